//! `usertrace snapshot`: writes the present contents of rings, while tracing goes on.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;
use usertrace_consumer::{DaemonTrace, SessionSummary, snapshot, snapshot_below, snapshot_of};
use usertrace_ctf::Version;

use crate::kernel_commands;
use crate::output::{self, Totals};
use crate::root::Root;
use crate::status::DAMAGED;
use crate::target::Target;

/// Write what is in the rings of a trace now, and let it go on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace snapshot mine -o before && usertrace view before | tail
  usertrace snapshot traces -o before    # without the patched kernel: of all programs that are traced to this directory

In a channel that overwrites (echo 1 >CHANNEL/flight), these are the last events; in another one, those that nobody
has consumed yet. Programs are not stopped, and nothing is consumed: what is overwritten while it is read counts as
discarded packets. The snapshot is a directory with a CTF trace for each process. A summary is printed on standard
error.

On a kernel without trace buffers, the programs' daemons write what is in the rings to the traces, and the snapshot is a copy
of these.

Exit status: 0, 1 if there is no such trace or the snapshot cannot be written, 2 for a wrong command line, 3 if some
process could not be read, or not all of its events found room.")]
pub(crate) struct Args {
    /// Name of the trace; without the patched kernel, a program's process id, or its name if there
    /// is only one, or the directory that programs are traced to
    trace: String,

    /// Directory for the snapshot; must be new or empty [default: usertrace-TIME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Version of CTF: 1.8, or 2, which babeltrace2 2.1 and later read
    #[arg(long, value_name = "VERSION", default_value = "1.8")]
    ctf: Version,

    #[command(flatten)]
    summary: output::Summary,

    #[command(flatten)]
    root: Root,
}

/// Summary of a snapshot, as JSON.
#[derive(Serialize)]
struct Summary<'a> {
    trace: &'a str,
    directory: &'a PathBuf,
    #[serde(flatten)]
    session: &'a SessionSummary,
}

/// Reports a snapshot of programs that the fallback traces.
fn report_programs(
    written: &[DaemonTrace],
    directory: &PathBuf,
    summary: &output::Summary,
) -> anyhow::Result<u8> {
    if !summary.quiet {
        output::say(format_args!(
            "{} in {}",
            output::count(written.len(), "process", "processes"),
            directory.display()
        ));
    }
    if let Some(to) = &summary.json {
        let processes = written.iter().map(|written| {
            let name = written.directory.file_name().unwrap_or_default();
            json!({ "pid": written.process, "directory": directory.join(name) })
        });
        let value = json!({ "directory": directory, "processes": processes.collect::<Vec<_>>() });
        output::json(to, &value)?;
    }
    Ok(0)
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let target = Target::of(&kernel_commands::SNAPSHOT, &self.trace, &self.root)?;
        let directory = output::Directory::new(self.output)?;
        let directory = directory.path();
        let control_fs = match &target {
            Target::Trace(control_fs) => control_fs,
            Target::Process(process) => {
                let written = snapshot_of(*process, directory)?;
                return report_programs(&written, directory, &self.summary);
            }
            Target::Directory(traced) => {
                let written = snapshot_below(traced, directory)?;
                return report_programs(&written, directory, &self.summary);
            }
        };
        let session = snapshot(control_fs, &self.trace, directory, self.ctf)
            .with_context(|| format!("no snapshot of {}", self.trace))?;
        for problem in &session.problems {
            output::say(problem);
        }
        if !self.summary.quiet {
            let totals = Totals::of(&session.processes);
            output::say(format_args!(
                "{} events of {}, {} lost, {} holes, {} damaged; {} bytes in {}",
                totals.events,
                output::count(session.processes.len(), "process", "processes"),
                totals.lost,
                totals.holes,
                totals.damaged,
                totals.bytes,
                directory.display(),
            ));
            if !session.processes.is_empty() {
                output::report(output::processes(&session.processes));
            }
        }
        if let Some(to) = &self.summary.json {
            let summary = Summary {
                trace: &self.trace,
                directory,
                session: &session,
            };
            output::json(to, &summary)?;
        }
        Ok(if session.problems.is_empty() {
            0
        } else {
            DAMAGED
        })
    }
}
