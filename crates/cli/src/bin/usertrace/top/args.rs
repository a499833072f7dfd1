//! The arguments of `usertrace top`.

use std::path::PathBuf;
use std::time::Duration;

use usertrace_reader::Condition;

use super::view::Sort;
use crate::pids;
use crate::root::Root;
use crate::symbols::DebugFiles;

/// Show how often events come, by process and event, while they come
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace top                         # all traces, in the terminal, until q
  usertrace top mine -e 'shop:*'        # the events of one provider in one trace
  usertrace record -o traces -- ./server & sleep 1; usertrace top --where 'status >= 500' traces
  usertrace top -b -i 10 -n 6 mine      # six times, after ten seconds each, as lines
  usertrace top --places mine           # which lines of the program the events are from
  usertrace top --json mine | jq -c '.rows[] | [.event, .rate]'

An argument is the name of a trace, or a directory that record, or a program without the patched kernel, is writing to:
what is there already counts, too, but makes no rate. (A directory that is called like a trace: ./NAME.) Without an
argument it is all traces. Nothing is taken away from who records a trace, and nobody waits. Without the patched kernel,
programs write when a sub-buffer is full, so rates jump.

EVENTS/S, BYTES/S and LOST/S are of the last interval; MEAN and TOTAL since top saw the process first. LOST/S, and FILL,
which is how full the fullest ring is of what was not recorded, are the process's, the same for all of its events. Where
events come faster than they can be counted, a part of them is: ~ is in front of what is estimated by that.

Keys: n, m, t, l, b, f, c, i, e sort by EVENTS/S, MEAN, TOTAL, LOST/S, BYTES/S, FILL, PROCESS, PID, EVENT; r in the other order;
g a line for each process; / shows those whose process, pid or event has a text; space pauses; arrows, page keys, home and end
scroll; h says this; q, Esc or Ctrl-C ends it.

With --places, each function that events are from has a line, with its file and line: the innermost one of the context
callstack that is not of an allocator, a container or a lock, or else that of ip. Events without these contexts have no place.

Where standard output or input is no terminal, it is as with --batch.

Exit status: 0, also when what is watched ends or nobody reads on; 1 if it cannot be watched, 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Traces, or directories of recordings [default: all traces]
    #[arg(value_name = "TRACE|DIR")]
    pub(super) what: Vec<PathBuf>,

    /// Seconds of an interval
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(super) interval: Duration,

    /// End after so many intervals
    #[arg(short = 'n', long, value_name = "N")]
    pub(super) count: Option<u64>,

    /// Print lines at each interval
    #[arg(short, long)]
    pub(super) batch: bool,

    /// Print a line of JSON at each interval
    #[arg(long)]
    pub(super) json: bool,

    /// By what lines are sorted: rate, mean, total, lost, bytes, fill, process, pid, or event
    #[arg(
        short,
        long,
        value_name = "COLUMN",
        default_value = "rate",
        hide_possible_values = true
    )]
    pub(super) sort: Sort,

    /// Only these events: NAME or PROVIDER:NAME, * for any characters, ? for any one, ! in front
    /// for those that are not wanted; several with commas between them, of which the last that
    /// matches counts [default: all]
    #[arg(short, long, value_name = "PATTERNS", value_delimiter = ',')]
    pub(super) event: Vec<String>,

    /// Only events whose fields and contexts fulfil a condition in the syntax of LTTng's filters:
    /// 'size > 0 && path == "/api/*"'
    #[arg(long = "where", value_name = "EXPR")]
    pub(super) condition: Option<Condition>,

    #[command(flatten)]
    pub(super) of: pids::OfProcesses,

    /// Count the events of each function and line apart
    #[arg(long)]
    pub(super) places: bool,

    #[command(flatten)]
    pub(super) files: DebugFiles,

    /// A line for each process, with all of its events
    #[arg(short = 'g', long)]
    pub(super) processes: bool,

    #[command(flatten)]
    pub(super) root: Root,

    /// Panic in the terminal: for tests
    #[arg(long, hide = true)]
    pub(super) panic: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // Less than a step takes, or more than anybody waits, is a mistake.
    if !(0.05..=86400.0).contains(&seconds) {
        return Err("from 0.05 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}
