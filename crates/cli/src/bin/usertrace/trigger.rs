//! `usertrace trigger`: what a trace does when an event happens.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use serde::Serialize;
use usertrace_consumer::{ControlFs, FiredFile, FiredTrigger, TraceDir, TraceTrigger};
use usertrace_sys::filter::{Trigger, TriggerAction};

use crate::kernel_commands;
use crate::output;
use crate::root::Root;

/// Add, list or remove what a trace does when an event happens
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace trigger add mine 'shop:error if code == 7 then stop once'
  usertrace trigger list mine
  usertrace trigger remove mine --all

A trigger acts when a program writes an event that a pattern matches, and whose values fulfil a condition in the syntax of
--where. usertrace trigger add --help has the actions.

Exit status: 0, 1 if there is no such trace or trigger, or the kernel refuses, 2 for a wrong command line.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Add(Add),
    List(List),
    Remove(Remove),
}

/// Add triggers to a trace, and print each with its number
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace trigger add mine 'shop:error then stop once'    # the flight recorder keeps what led to the error
  usertrace trigger add mine 'shop:served if status >= 500 then snapshot'    # usertrace daemon writes one
  usertrace trigger add mine 'shop:served if status >= 500 then notify every 100'    # usertrace wait ends

ACTION is what happens:

  stop      the trace stops, as by usertrace stop
  start     the trace starts, as by usertrace start
  snapshot  usertrace daemon writes a snapshot
  rotate    usertrace daemon begins a new chunk
  notify    nothing; usertrace wait ends for each action

Once: for the first event that matches. Every N: for each Nth one, of all processes together. The filter of the trace does not
matter for its triggers. A trigger acts at most ten times a second; the rest is counted as suppressed. A trace that is stopped
also has its triggers; for one that starts it, the trace is allocated, which fixes its channels.

Exit status: 0, 1 if there is no such trace, or the kernel refuses, 2 for a wrong command line.")]
struct Add {
    /// Name of the trace
    trace: String,

    /// PATTERN [if EXPR] then ACTION [once|every N]
    #[arg(required = true, value_name = "TRIGGER", value_parser = checked)]
    triggers: Vec<String>,

    #[command(flatten)]
    root: Root,
}

/// List the triggers of a trace, and what they have done
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace trigger list mine
  usertrace trigger list --json mine | jq '.[] | select(.spent) | .text'

MATCHED is how many events matched, FIRED how often the trigger acted, SUPPRESSED how often it did not, as it had acted ten times
within a second. LAST and PID are when it acted last, and for which process, by the ids of the initial namespace. The last
column is the trigger, with (spent) before one that was to act once and has.

Exit status: 0, 1 if there is no such trace, 2 for a wrong command line.")]
struct List {
    /// Name of the trace
    trace: String,

    /// Write the list as JSON, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    #[command(flatten)]
    root: Root,
}

/// Remove triggers of a trace
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace trigger remove mine --all
  usertrace trigger remove mine $(usertrace trigger add mine 'shop:error then notify' | cut -d' ' -f1)

Exit status: 0, 1 if there is no such trace or trigger, 2 for a wrong command line.")]
struct Remove {
    /// Name of the trace
    trace: String,

    /// Numbers of the triggers, as usertrace trigger list shows them
    #[arg(value_name = "N", required_unless_present = "all")]
    numbers: Vec<u32>,

    /// Remove all triggers of the trace
    #[arg(long, conflicts_with = "numbers")]
    all: bool,

    #[command(flatten)]
    root: Root,
}

/// Checks the line of a trigger. The kernel checks no more of an expression than its size and its
/// parentheses, and would refuse other mistakes without their place.
pub(crate) fn checked(text: &str) -> Result<String, String> {
    match Trigger::parse(text) {
        // Without a number that was printed before it.
        Ok(trigger) => Ok(trigger.to_string()),
        Err(error) => Err(error.with_caret(text).to_string()),
    }
}

/// A trigger and what it has done.
#[derive(Debug, Serialize)]
pub(crate) struct ListedTrigger {
    #[serde(flatten)]
    pub(crate) counts: FiredTrigger,
    pub(crate) text: String,
}

/// The triggers of a trace, with what they have done. Empty if the trace is removed meanwhile.
pub(crate) fn listed(trace: &TraceDir) -> anyhow::Result<Vec<ListedTrigger>> {
    let file = FiredFile::open(trace)?;
    // Counts of a trigger that is added in between are 0.
    let counts = file.read()?.unwrap_or_default();
    let triggers = trace.triggers()?.into_iter();
    let listed = triggers.map(|TraceTrigger { number, text }| {
        let of_it = counts.iter().find(|counts| counts.number == number);
        let fresh = FiredTrigger {
            number,
            ..FiredTrigger::default()
        };
        ListedTrigger {
            counts: of_it.cloned().unwrap_or(fresh),
            text,
        }
    });
    Ok(listed.collect())
}

/// Formats nanoseconds since 1970 as UTC; `-` if the trigger has not fired.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        ns => {
            let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
            humantime::format_rfc3339_micros(time).to_string()
        }
    }
}

impl ListedTrigger {
    fn row(&self) -> [String; 7] {
        let counts = &self.counts;
        let spent = if counts.spent { "(spent) " } else { "" };
        [
            counts.number.to_string(),
            counts.matched.to_string(),
            counts.fired.to_string(),
            counts.suppressed.to_string(),
            match counts.pid {
                0 => "-".to_owned(),
                pid => pid.to_string(),
            },
            time(counts.time),
            format!("{spent}{}", self.text),
        ]
    }

    /// Describes the trigger on one line, for people.
    pub(crate) fn describe(&self) -> String {
        let FiredTrigger {
            number,
            fired,
            spent,
            ..
        } = self.counts;
        let spent = if spent { ", spent" } else { "" };
        let fired = match fired {
            1 => "once".to_owned(),
            fired => format!("{fired} times"),
        };
        format!("{number} {} (fired {fired}{spent})", self.text)
    }
}

/// The error for a trace that was removed between two steps.
fn gone(trace: &str) -> anyhow::Error {
    anyhow::anyhow!("trace {trace:?} was removed meanwhile")
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Add(add) => add.try_run(),
            Command::List(list) => list.try_run(),
            Command::Remove(remove) => remove.try_run(),
        };
        output::exit_code(done.map(|()| 0))
    }
}

fn open(root: &Root) -> anyhow::Result<ControlFs> {
    kernel_commands::TRIGGER.open(root)
}

/// Allocates a trace if one of these triggers is to start it, and says so: programs fire triggers
/// by the buffers of a trace.
pub(crate) fn allocate_to_start(trace: &TraceDir, triggers: &[String]) -> anyhow::Result<()> {
    let starts = |text: &String| {
        let trigger = Trigger::parse(text);
        trigger.is_ok_and(|trigger| trigger.action == TriggerAction::Start)
    };
    if triggers.iter().any(starts) && trace.allocate()? {
        let name = trace.path().file_name().unwrap_or_default();
        output::say(format_args!(
            "trace {name:?} is allocated now, so that programs can start it; its channels are fixed"
        ));
    }
    Ok(())
}

/// Says of triggers that only a daemon answers that `record` does not.
pub(crate) fn warn_without_daemon(triggers: &[String]) {
    let mut actions = triggers
        .iter()
        .filter_map(|text| Some(Trigger::parse(text).ok()?.action));
    let is_of_daemon = |action: &TriggerAction| match action {
        TriggerAction::Snapshot | TriggerAction::Rotate => true,
        TriggerAction::Stop | TriggerAction::Start | TriggerAction::Notify => false,
    };
    if let Some(action) = actions.find(is_of_daemon) {
        output::say(format_args!(
            "\"usertrace daemon\" does {:?} for a trigger; \"usertrace record\" does not",
            action.name()
        ));
    }
}

impl Add {
    fn try_run(self) -> anyhow::Result<()> {
        let trace = open(&self.root)?.trace(&self.trace)?;
        for text in &self.triggers {
            let TraceTrigger { number, text } = trace.add_trigger(text)?;
            output::print(&format!("{number} {text}\n"))?;
        }
        allocate_to_start(&trace, &self.triggers)
            .context("the trigger is added, and cannot fire before the trace is allocated")
    }
}

impl List {
    fn try_run(self) -> anyhow::Result<()> {
        let control_fs = open(&self.root)?;
        let trace = control_fs.trace(&self.trace)?;
        let triggers = listed(&trace).map_err(|error| match control_fs.trace(&self.trace) {
            Ok(_) => error,
            Err(_) => gone(&self.trace),
        })?;
        if let Some(to) = &self.json {
            return output::json(to, &triggers);
        }
        if triggers.is_empty() {
            return output::print(&format!("Trace {:?} has no triggers.\n", self.trace));
        }
        let head = [
            "N",
            "MATCHED",
            "FIRED",
            "SUPPRESSED",
            "PID",
            "LAST",
            "TRIGGER",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(triggers.iter().map(ListedTrigger::row));
        output::print(&output::table(&rows))
    }
}

impl Remove {
    fn try_run(self) -> anyhow::Result<()> {
        let trace = open(&self.root)?.trace(&self.trace)?;
        if self.all {
            return Ok(trace.remove_triggers()?);
        }
        // The kernel's error would not say which ones there are.
        let known: Vec<_> = trace.triggers()?.iter().map(|of| of.number).collect();
        if let Some(number) = self.numbers.iter().find(|number| !known.contains(number)) {
            bail!(
                "trace {:?} has no trigger {number}{}",
                self.trace,
                of_these(&known)
            );
        }
        for number in self.numbers {
            trace.remove_trigger(number)?;
        }
        Ok(())
    }
}

/// Which triggers a trace has, for errors.
pub(crate) fn of_these(numbers: &[u32]) -> String {
    if numbers.is_empty() {
        return ": it has none".to_owned();
    }
    let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
    format!(": it has {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements: E4
    #[test]
    fn wrong_trigger_is_refused_with_its_place() {
        let good = "shop:error if code == 7 then stop once";
        assert_eq!(checked(good).as_deref(), Ok(good));
        assert_eq!(checked(&format!("17 {good}")).as_deref(), Ok(good));
        for (bad, place) in [
            ("a if x = 1 then stop", "a if x = 1 then stop\n         ^"),
            ("a then panic", "a then panic\n         ^^^^^"),
            ("a", "a\n   ^"),
        ] {
            let error = checked(bad).unwrap_err();
            assert!(error.contains(place), "{error}");
        }
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(time(0), "-");
        assert_eq!(
            time(1_795_762_605_416_403_206),
            "2026-11-27T06:56:45.416403Z"
        );
    }
}
