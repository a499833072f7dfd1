//! `usertrace save`: prints the settings of traces.

use std::process::ExitCode;

use usertrace_consumer::{
    ControlFsError, SavedTrace, SavedTraceError, TraceDir, print_saved_traces,
};

use crate::root::Root;
use crate::{kernel_commands, output};

/// Print the settings of traces, for usertrace load
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace save mine                  # its settings, its channels, and their filters
  usertrace save mine >mine.toml
  usertrace save >all.toml             # all traces in one file

The text is TOML, made to be read and edited: docs/reference/saved-traces.md describes it. It has no events: usertrace snapshot
saves those.

Exit status: 0, 1 if there is no such trace, 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Names of the traces [default: all]
    #[arg(value_name = "TRACE")]
    traces: Vec<String>,

    #[command(flatten)]
    root: Root,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run().map(|()| 0))
    }

    fn try_run(self) -> anyhow::Result<()> {
        let control_fs = kernel_commands::SAVE.open(&self.root)?;
        let is_all = self.traces.is_empty();
        let names = match is_all {
            true => control_fs.trace_names()?,
            false => self.traces,
        };
        let mut saved = Vec::new();
        for name in names {
            let trace = control_fs.trace(&name).map_err(SavedTraceError::from);
            let capture = |trace: TraceDir| {
                let captured = SavedTrace::capture(&trace);
                // A trace that was removed meanwhile has no files, and is not there.
                captured.map_err(|error| match control_fs.trace(&name) {
                    Err(gone @ ControlFsError::NoTrace(_)) => gone.into(),
                    _ => error,
                })
            };
            match trace.and_then(capture) {
                Ok(trace) => saved.push(trace),
                Err(SavedTraceError::ControlFs(ControlFsError::NoTrace(_))) if is_all => {}
                Err(error) => return Err(error.into()),
            }
        }
        output::print(&print_saved_traces(&saved))
    }
}
