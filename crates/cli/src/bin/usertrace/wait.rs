//! `usertrace wait`: waits until a trigger of a trace fires.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;
use usertrace_consumer::{FiredFile, FiredTrigger, TraceDir, WaitOutcome};

use crate::kernel_commands;
use crate::output;
use crate::root::Root;
use crate::trigger::{of_these, time};

/// Exit status if the time is over.
const TIMED_OUT: u8 = 3;

/// Pause after a wake-up, before the next one. Other triggers may fire all the time.
const PAUSE: Duration = Duration::from_millis(10);

/// Wait until a trigger of a trace fires
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace wait mine && usertrace snapshot mine      # when any trigger of the trace fires
  usertrace wait --trigger 3 --timeout 60 mine        # for this one, at most a minute
  usertrace wait --count 10 --json mine | jq .pid     # for which processes, the next ten times

It waits for what fires from its start on, and prints a line for each trigger that fired: when it did last, its number, for which
process, by the ids of the initial namespace, how often it has fired so far, and the trigger. Triggers of all actions count.
One that fires in quick succession may get one line for several times; --count counts them all.

If all triggers that it waits for are spent, which were to fire once and have, it ends with an error, as none of them will fire.

Exit status: 0 if so many fired, 3 if the time is over before, 1 if there is no such trace or trigger (any more), or none can fire,
2 for a wrong command line.")]
pub(crate) struct Args {
    /// Name of the trace
    trace: String,

    /// Only this trigger, by its number; may be given several times [default: all]
    #[arg(long, value_name = "N")]
    trigger: Vec<u32>,

    /// Give up after so long: seconds, or with a unit: 500ms, 1h [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    timeout: Option<Duration>,

    /// Wait until they have fired so often, all together
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,

    /// Print each as a line of JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    root: Root,
}

/// Parses a time limit: seconds, or a number with a unit.
fn timeout(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// A trigger that fired.
#[derive(Serialize)]
struct Fired<'a> {
    trace: &'a str,
    #[serde(flatten)]
    counts: &'a FiredTrigger,
    /// How often it fired since the last line about it.
    new: u64,
    text: &'a str,
}

/// What triggers have done since this command was started.
struct Watched {
    /// Numbers of the triggers; empty for all.
    wanted: Vec<u32>,
    /// How often each had fired when it was looked at last.
    seen: BTreeMap<u32, u64>,
}

impl Watched {
    fn is_wanted(&self, number: u32) -> bool {
        self.wanted.is_empty() || self.wanted.contains(&number)
    }

    /// The wanted ones.
    fn of<'a>(&self, all: &'a [FiredTrigger]) -> Vec<&'a FiredTrigger> {
        all.iter().filter(|of| self.is_wanted(of.number)).collect()
    }

    /// The triggers that fired since the last call, and how often.
    fn news<'a>(&mut self, all: &'a [FiredTrigger]) -> Vec<(&'a FiredTrigger, u64)> {
        let mut news = Vec::new();
        let mut seen = BTreeMap::new();
        for of in self.of(all) {
            // A trigger that was added meanwhile has fired all that it has since then.
            let before = self.seen.get(&of.number).copied().unwrap_or(0);
            let new = of.fired.checked_sub(before).unwrap_or(of.fired);
            if new > 0 {
                news.push((of, new));
            }
            seen.insert(of.number, of.fired);
        }
        self.seen = seen;
        news
    }
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let begun = Instant::now();
        let trace = kernel_commands::WAIT.open(&self.root)?.trace(&self.trace)?;
        let file = FiredFile::open(&trace)?;
        let mut watched = Watched {
            wanted: self.trigger.clone(),
            seen: BTreeMap::new(),
        };
        let first = self.read(&file)?;
        self.check(&watched, &first)?;
        watched.news(&first);
        let mut left = self.count;
        loop {
            let rest = self
                .timeout
                .map(|limit| limit.saturating_sub(begun.elapsed()));
            let outcome = file.wait(rest).context("cannot wait")?;
            if outcome == WaitOutcome::Removed {
                return Err(self.removed());
            }
            let now = self.read(&file)?;
            let news = watched.news(&now);
            if news.is_empty() && file.is_removed() {
                return Err(self.removed());
            }
            self.print(&trace, &news)?;
            let fired = news
                .iter()
                .fold(0u64, |sum, (_, new)| sum.saturating_add(*new));
            left = left.saturating_sub(fired);
            if left == 0 {
                return Ok(0);
            }
            // Triggers that nobody waits for may end each wait before its time is over.
            if outcome == WaitOutcome::TimedOut || rest.is_some_and(|rest| rest.is_zero()) {
                output::say(format_args!(
                    "no trigger of trace {:?} fired in time{}",
                    self.trace,
                    match self.count - left {
                        0 => String::new(),
                        fired => format!(", after {fired} of {}", self.count),
                    }
                ));
                return Ok(TIMED_OUT);
            }
            self.check(&watched, &now)?;
            sleep(PAUSE);
        }
    }

    /// Reads what the triggers have done.
    fn read(&self, file: &FiredFile) -> anyhow::Result<Vec<FiredTrigger>> {
        match file.read()? {
            Some(triggers) => Ok(triggers),
            None => Err(self.removed()),
        }
    }

    fn removed(&self) -> anyhow::Error {
        anyhow::anyhow!("trace {:?} was removed", self.trace)
    }

    /// Checks that there is a trigger to wait for.
    fn check(&self, watched: &Watched, all: &[FiredTrigger]) -> anyhow::Result<()> {
        let name = &self.trace;
        let numbers: Vec<_> = all.iter().map(|of| of.number).collect();
        if numbers.is_empty() {
            bail!("trace {name:?} has no triggers (usertrace trigger add)");
        }
        if let Some(number) = self.trigger.iter().find(|number| !numbers.contains(number)) {
            bail!(
                "trace {name:?} has no trigger {number}{}",
                of_these(&numbers)
            );
        }
        let wanted = watched.of(all);
        if wanted.iter().all(|of| of.spent) {
            let last = wanted.iter().max_by_key(|of| of.time);
            let when = last.map_or(String::new(), |of| {
                format!(" (trigger {} did last at {})", of.number, time(of.time))
            });
            bail!("no trigger of trace {name:?} will fire: each was to fire once, and has{when}");
        }
        Ok(())
    }

    fn print(&self, trace: &TraceDir, news: &[(&FiredTrigger, u64)]) -> anyhow::Result<()> {
        if news.is_empty() {
            return Ok(());
        }
        // A trigger that was removed since then has no text any more.
        let triggers = trace.triggers().unwrap_or_default();
        let mut lines = String::new();
        for &(counts, new) in news {
            let text = triggers.iter().find(|of| of.number == counts.number);
            let text = text.map_or("", |of| &of.text);
            let fired = Fired {
                trace: &self.trace,
                counts,
                new,
                text,
            };
            lines += &match self.json {
                true => serde_json::to_string(&fired).context("cannot make JSON")? + "\n",
                false => fired.line(),
            };
        }
        output::print(&lines)
    }
}

impl Fired<'_> {
    /// The line for people.
    fn line(&self) -> String {
        let FiredTrigger {
            number,
            fired,
            pid,
            time: at,
            ..
        } = self.counts;
        let times = output::count(
            usize::try_from(*fired).unwrap_or(usize::MAX),
            "time",
            "times",
        );
        let line = format!(
            "{} trigger {number}, process {pid}, fired {times}: {}",
            time(*at),
            self.text
        );
        line.trim_end_matches([':', ' ']).to_owned() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(number: u32, fired: u64) -> FiredTrigger {
        FiredTrigger {
            number,
            fired,
            ..FiredTrigger::default()
        }
    }

    #[test]
    fn time_limits_are_seconds_or_have_a_unit() {
        assert_eq!(timeout("60"), Ok(Duration::from_secs(60)));
        assert_eq!(timeout("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(timeout("0"), Ok(Duration::ZERO));
        assert_eq!(timeout("5min"), Ok(Duration::from_secs(300)));
        for bad in ["", "-1", "nan", "inf", "1e300", "soon"] {
            timeout(bad).unwrap_err();
        }
    }

    /// Requirements: E4
    #[test]
    fn only_what_fires_later_counts() {
        let mut watched = Watched {
            wanted: vec![],
            seen: BTreeMap::new(),
        };
        watched.news(&[fired(1, 5), fired(2, 0)]);
        assert!(watched.news(&[fired(1, 5), fired(2, 0)]).is_empty());
        let now = [fired(1, 7), fired(2, 0), fired(3, 1)];
        assert_eq!(watched.news(&now), [(&now[0], 2), (&now[2], 1)]);
        // Trigger 1 was removed, and its number given to another one.
        let now = [fired(1, 2), fired(2, 0), fired(3, 1)];
        assert_eq!(watched.news(&now), [(&now[0], 2)]);
        watched.wanted = vec![2];
        let now = [fired(1, 9), fired(2, 1)];
        assert_eq!(watched.news(&now), [(&now[1], 1)]);
    }
}
