//! `usertrace extract`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use usertrace::crash::{Dump, Extraction, Vmcoreinfo, extract};
use usertrace::ctf::Version;

use crate::output::{self, Totals};

const DAMAGED: u8 = 3;
const NO_TRACE: u8 = 4;

/// Take the traces out of the dump of a kernel that crashed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace extract /var/crash/vmcore
  usertrace extract /proc/vmcore -o /var/crash/traces      # in the crash kernel
  usertrace extract vmcore -o traces && usertrace view traces | tail

The dump is an ELF file (/proc/vmcore, or what makedumpfile -E or QEMU's dump-guest-memory made of one), or in the compressed format
of kdump (makedumpfile -c, -l, -p, -z, and QEMU's); flattened ones (makedumpfile -F) are read as well. Neither symbols nor
debug information are needed. For each trace there will be a directory, with a CTF trace for each
process. A summary, and what could not be read, is printed on standard error.

Exit status: 0 if all traces were extracted, 1 if that failed, 2 for a wrong command line, 3 if something of them
is damaged or missing, 4 if there is no trace in the dump.")]
pub(crate) struct Args {
    /// The dump
    vmcore: PathBuf,

    /// Directory for the traces; must be new or empty [default: usertrace-TIME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Version of CTF: 1.8, or 2, which babeltrace2 2.1 and later read
    #[arg(long, value_name = "VERSION", default_value = "1.8")]
    ctf: Version,

    /// Write the summary as JSON, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// What there is to say in the end.
#[derive(Serialize)]
struct Summary<'a> {
    vmcore: &'a Path,
    directory: &'a Path,
    kernel: Option<&'a str>,
    crash_time: Option<i64>,
    #[serde(flatten)]
    extraction: &'a Extraction,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let name = self.vmcore.display();
        let dump = Dump::open(&self.vmcore).with_context(|| format!("cannot read {name}"))?;
        let Vmcoreinfo {
            root,
            release,
            crash_time,
        } = dump.vmcoreinfo().clone();
        if dump.is_cut_short() {
            output::say(format_args!(
                "{name} is cut short: it has less than its headers say"
            ));
        }
        let Some(root) = root else {
            output::say(format_args!(
                "{name} has no trace: its kernel has no trace buffers (there is no ltt_root in the dump's \
                 vmcoreinfo)"
            ));
            return Ok(NO_TRACE);
        };
        let directory = self.output.unwrap_or_else(output::default_directory);
        create(&directory).with_context(|| format!("cannot write to {}", directory.display()))?;
        let extraction = extract(&dump, root, crash_time, &directory, self.ctf)
            .with_context(|| format!("cannot extract the traces of {name}"))?;
        report(&extraction, release.as_deref(), crash_time);
        if let Some(to) = &self.json {
            let summary = Summary {
                vmcore: &self.vmcore,
                directory: &directory,
                kernel: release.as_deref(),
                crash_time,
                extraction: &extraction,
            };
            output::json(to, &summary)?;
        }
        Ok(if extraction.is_damaged() {
            DAMAGED
        } else if extraction.traces.is_empty() {
            NO_TRACE
        } else {
            0
        })
    }
}

/// The directory for the traces: it may be there, but must be empty, so that what is in it then belongs together.
fn create(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    match fs::read_dir(directory)?.next() {
        None => Ok(()),
        Some(Ok(_)) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        Some(Err(error)) => Err(error),
    }
}

fn report(extraction: &Extraction, release: Option<&str>, crash_time: Option<i64>) {
    let problems = &extraction.problems;
    for problem in &problems.messages {
        output::say(problem);
    }
    if let Some(more) = problems
        .count
        .checked_sub(problems.messages.len() as u64)
        .filter(|&more| more > 0)
    {
        output::say(format_args!("and {more} more of that"));
    }
    if extraction.traces.is_empty() {
        output::say("there was no trace when the kernel crashed");
        return;
    }
    let release = release.unwrap_or("of unknown version");
    let when = crash_time.map_or_else(String::new, |time| {
        let time = u64::try_from(time).unwrap_or(0);
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time);
        format!(", crashed at {}", humantime::format_rfc3339_seconds(time))
    });
    output::say(format_args!("kernel {release}{when}"));
    for trace in &extraction.traces {
        let totals = Totals::of(&trace.processes);
        output::report(format_args!(
            "trace {}{}: {} events of {}, {} lost, {} holes, {} damaged; {} bytes\n",
            trace.name,
            if trace.active { "" } else { " (not active)" },
            totals.events,
            output::count(trace.processes.len(), "process", "processes"),
            totals.lost,
            totals.holes,
            totals.damaged,
            totals.bytes,
        ));
        if !trace.processes.is_empty() {
            output::report(output::processes(&trace.processes));
        }
    }
}
