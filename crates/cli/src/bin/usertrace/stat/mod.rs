//! `usertrace stat`: counts events instead of recording them.

mod collected;
mod open_metrics;
mod request;
mod run;
mod show;
mod text;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use self::collected::Collected;
use self::request::{Request, Requests, request};
use self::show::Display;
use crate::output;
use crate::preload::Wanted;
use crate::root::Root;
use crate::status::{DAMAGED, WRONG_COMMAND_LINE};

/// Count the events of a program, and show histograms of their values
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace stat --malloc -e 'libc:malloc hist(size)' -- sqlite3 db     # the sizes that it allocates
  usertrace stat -e 'shop:served by path if status >= 500' -- ./server 3    # only those that fail
  usertrace stat -- ./server 3                        # how many events there are of each kind
  usertrace stat -e 'shop:served hist(bytes) by path' --top 10 -- ./server 3
  usertrace stat -e 'shop:*' --interval 1 --json -- ./server 3    # a line of JSON each second
  usertrace stat -e 'shop:served by status' --interval 1 --openmetrics shop.prom -- ./server 3
  usertrace stat traces                               # counters in recordings, snapshots, and out of dumps
  usertrace stat --trace mine --interval 1            # a trace with channels that count, until SIGINT

PATTERN [hist(FIELD)|sum(FIELD)] [by KEY] [if EXPRESSION] counts the events that PATTERN matches. hist and sum add up the values
of an integer field; hist shows a histogram of them, too. by counts the values of KEY apart: a field, or a context as
$ctx.vtid or $ctx.procname. With if, only events count of which the expression is true. Of several -e, an event is for
the first one whose pattern matches it. Each process has a table of counters for each CPU. Events that find no room there
are counted together.

No event is written anywhere, so counting takes no room however long it goes on. The counters are exact, whatever threads and
processes there are, and also if they are killed. What could not be counted is said.

With a program, its output is left alone: the counters are printed on standard error, and those of its children count, too.
With --interval, a terminal shows the present state; elsewhere one follows the other. With --trace, processes that end between
two looks may be missing if something else records the trace.

--openmetrics is for the textfile collector of Prometheus's node_exporter, and for what reads OpenMetrics.

Exit status: the program's, 128+N if signal N ended it; 125 if counting failed, 126 if the program cannot be executed,
127 if there is none, 130 if it was left running; without a program 0, 1 if there is no such trace, 3 if something of it
is damaged; 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Directories with traces: recordings, snapshots, what extract writes
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// What to count: PATTERN [hist(FIELD)|sum(FIELD)] [by KEY] [if EXPR] [default: all kinds]
    #[arg(short, long, value_name = "WHAT", value_parser = request)]
    event: Vec<Request>,

    /// Show the counters of a trace of the kernel
    #[arg(long, value_name = "NAME", conflicts_with_all = ["directories", "program", "event"])]
    trace: Option<String>,

    /// Show the counters each so many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "directories")]
    interval: Option<Duration>,

    /// Show no more than N counters, those with the most events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,

    /// Write the counters as JSON, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Write the counters as OpenMetrics text to FILE, which is replaced as a whole each time
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,

    #[command(flatten)]
    preload: Wanted,

    #[command(flatten)]
    root: Root,

    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", conflicts_with = "directories")]
    program: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        if self.program.is_empty() && self.trace.is_none() && self.directories.is_empty() {
            output::say(
                "name a program after --, directories with traces, or a trace with --trace",
            );
            return WRONG_COMMAND_LINE.into();
        }
        let mut requests = self.event.clone();
        if requests.is_empty() {
            requests.extend(request("*"));
        }
        let requests = Requests(requests);
        let display = Display {
            json: self.json,
            open_metrics: self.openmetrics,
            top: self.top.map_or(usize::MAX, |top| top as usize),
            to_stderr: !self.program.is_empty(),
            is_live: self.interval.is_some(),
            begun: Instant::now(),
            ..Display::new(match self.program.is_empty() {
                true => Requests::default(),
                false => requests.clone(),
            })
        };
        if !self.program.is_empty() {
            let counting = run::Counting {
                requests,
                program: self.program,
                preload: self.preload,
                root: self.root,
                interval: self.interval,
            };
            return counting.run(display);
        }
        output::exit_code(match &self.trace {
            Some(trace) => watch::watch(&self.root, trace, self.interval, display),
            None => read(&self.directories, display),
        })
    }
}

/// Shows the counters in traces.
fn read(directories: &[PathBuf], mut display: Display) -> anyhow::Result<u8> {
    let mut collected = Collected::default();
    collected.add(directories)?;
    display.show(&mut collected, true)?;
    Ok(if collected.is_damaged { DAMAGED } else { 0 })
}

/// Parses the seconds of an interval.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.1..=86400.0).contains(&seconds) {
        return Err("from 0.1 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}
