//! `usertrace filter`: shows or changes which events a trace records.

use std::process::ExitCode;

use anyhow::bail;
use usertrace_consumer::filter_words;
use usertrace_sys::filter::join;

use crate::root::Root;
use crate::setup::checked_condition;
use crate::target::Target;
use crate::{kernel_commands, output};

/// Say, or change, which events a trace has
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace filter mine                              # what it has
  usertrace filter mine 'shop:*' '!shop:tick'        # all events of a provider but one, and no others
  usertrace filter mine '!shop:tick'                 # all events but one
  usertrace filter --add mine 'db:*'                 # those of another provider, too
  usertrace filter mine 'shop:served if status >= 500'  # only those with such values
  usertrace filter mine 0                            # none; 1: all
  usertrace filter --channel slow mine 'disk:*'      # what goes to a channel of its own rather than to main
  usertrace filter 4711 'shop:*'                     # of a program that runs on a kernel without trace buffers
  usertrace filter traces 'shop:*'                   # of all that are traced to this directory there

NAME or PROVIDER:NAME, * for any characters, ? for any one, ! in front for those that are not wanted; the last that
matches counts. PATTERN if EXPR: only events whose fields and contexts fulfil a condition, in the syntax of --where.
Programs that run follow at once. What the kernel refuses, its log names (dmesg).

On a kernel without trace buffers, programs are asked by their control channels: start them with USERTRACE_CONTROL=thread.

Exit status: 0, 1 if there is no such trace or channel, or the kernel refuses, 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Name of the trace; without the patched kernel, a program's process id, or its name if there
    /// is only one, or the directory that programs are traced to
    trace: String,

    /// Patterns of events, in place of those before
    #[arg(value_name = "PATTERN", value_parser = checked_condition)]
    patterns: Vec<String>,

    /// In addition to those before
    #[arg(long, requires = "patterns")]
    add: bool,

    /// Of a channel other than main
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,

    #[command(flatten)]
    root: Root,
}

impl Args {
    /// Shows or changes the filters of programs that the fallback traces.
    fn filter_programs(&self, target: &Target) -> anyhow::Result<()> {
        if self.channel.is_some() {
            bail!("the fallback's traces have no channels of their own");
        }
        if self.patterns.is_empty() {
            let answers = target.ask("filter")?;
            let lines = answers
                .iter()
                .map(|(process, words)| format!("{process}: {words}\n"));
            return output::print(&lines.collect::<String>());
        }
        let request = match self.add {
            true => {
                let patterns = self.patterns.iter().map(String::as_str);
                format!("filter add {}", join(patterns))
            }
            false => format!("filter set {}", filter_words(&self.patterns)),
        };
        target.ask(&request).map(drop)
    }

    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run().map(|()| 0))
    }

    fn try_run(self) -> anyhow::Result<()> {
        let target = Target::of(&kernel_commands::FILTER, &self.trace, &self.root)?;
        let Target::Trace(control_fs) = &target else {
            return self.filter_programs(&target);
        };
        let trace = control_fs.trace(&self.trace)?;
        let channel = self.channel.as_deref();
        if self.patterns.is_empty() {
            let lines = trace.events(channel)?.into_iter();
            output::print(&lines.map(|line| line + "\n").collect::<String>())?;
        } else if self.add {
            trace.add_events(channel, &self.patterns)?;
        } else {
            trace.set_events(channel, &self.patterns)?;
        }
        Ok(())
    }
}
