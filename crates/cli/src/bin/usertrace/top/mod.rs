//! `usertrace top`.

mod screen;
mod table;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;
use usertrace_cli::top::{Counter, Rates, Recordings, Row, STEP, Traces};
use usertrace_reader::Patterns;

use self::screen::Screen;
use self::table::{sums, table, whole};
use self::view::{Sort, View};
use crate::pids;
use crate::root::Root;
use crate::status::WRONG_COMMAND_LINE;
use crate::{kernel_commands, output, selection};

/// Show how often events come, by process and event, while they come
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace top                         # all traces, in the terminal, until q
  usertrace top mine -e 'shop:*'        # the events of one provider in one trace
  usertrace record -o traces -- ./server & sleep 1; usertrace top traces
  usertrace top -b -i 10 -n 6 mine      # six times, after ten seconds each, as lines
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

Where standard output or input is no terminal, it is as with --batch.

Exit status: 0, also when what is watched ends or nobody reads on; 1 if it cannot be watched, 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Traces, or directories of recordings [default: all traces]
    #[arg(value_name = "TRACE|DIR")]
    what: Vec<PathBuf>,

    /// Seconds of an interval
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// End after so many intervals
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,

    /// Print lines at each interval
    #[arg(short, long)]
    batch: bool,

    /// Print a line of JSON at each interval
    #[arg(long)]
    json: bool,

    /// By what lines are sorted: rate, mean, total, lost, bytes, fill, process, pid, or event
    #[arg(
        short,
        long,
        value_name = "COLUMN",
        default_value = "rate",
        hide_possible_values = true
    )]
    sort: Sort,

    /// Only these events: NAME or PROVIDER:NAME, * for any characters, ? for any one, ! in front for those that are not
    /// wanted; several with commas between them, of which the last that matches counts [default: all]
    #[arg(short, long, value_name = "PATTERNS", value_delimiter = ',')]
    event: Vec<String>,

    #[command(flatten)]
    of: pids::OfProcesses,

    /// A line for each process, with all of its events
    #[arg(short = 'g', long)]
    processes: bool,

    #[command(flatten)]
    root: Root,

    /// Panic in the terminal: for tests
    #[arg(long, hide = true)]
    panic: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // Less than a step takes, or more than anybody waits, is a mistake.
    if !(0.05..=86400.0).contains(&seconds) {
        return Err("from 0.05 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let Some(events) = selection::patterns(&self.event) else {
            return Ok(WRONG_COMMAND_LINE);
        };
        let counters = self.counters()?;
        let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        let top = Top {
            counters,
            events,
            begun: Instant::now(),
            rates: Rates::new(Instant::now()),
            rows: Vec::new(),
            problems: Vec::new(),
            view: View {
                sort: self.sort,
                reverse: false,
                by_process: self.processes,
                filter: String::new(),
            },
            args: self,
        };
        if top.args.batch || top.args.json || !is_terminal {
            top.print()?;
        } else {
            Screen::new(top).run()?;
        }
        Ok(0)
    }

    fn counters(&self) -> anyhow::Result<Vec<Box<dyn Counter>>> {
        let (mut names, mut directories) = (Vec::new(), Vec::new());
        let control_fs = self.root.open();
        for what in &self.what {
            let name = what.to_str().filter(|name| !name.contains('/'));
            let is_trace = |name: &&str| control_fs.as_ref().is_ok_and(|fs| fs.trace(name).is_ok());
            match name.filter(is_trace) {
                Some(name) => names.push(name.to_owned()),
                None if what.is_dir() => directories.push(what.clone()),
                None => match &control_fs {
                    Ok(_) => bail!("there is no trace, and no directory, {}", what.display()),
                    Err(error) => bail!(
                        "there is no directory {}, and no trace, as {error}",
                        what.display()
                    ),
                },
            }
        }
        let mut counters: Vec<Box<dyn Counter>> = Vec::new();
        let all = self.what.is_empty();
        if all || !names.is_empty() {
            let control_fs =
                control_fs.map_err(|error| kernel_commands::TOP.explain(error, &self.root.path))?;
            let names = (!all).then_some(names);
            counters.push(Box::new(Traces::new(control_fs, names)?));
        }
        if !directories.is_empty() {
            counters.push(Box::new(Recordings::new(&directories)?));
        }
        Ok(counters)
    }
}

/// What is counted.
struct Top {
    args: Args,
    counters: Vec<Box<dyn Counter>>,
    events: Option<Patterns>,
    begun: Instant,
    rates: Rates,
    rows: Vec<Row>,
    /// What cannot be counted.
    problems: Vec<String>,
    view: View,
}

/// An interval, as JSON.
#[derive(Serialize)]
struct Interval<'a> {
    /// Since it began.
    seconds: f64,
    rows: &'a [Row],
    problems: &'a [String],
}

impl Top {
    /// Counts what is new, and says how long nothing needs to be done.
    fn step(&mut self) -> Duration {
        let begun = Instant::now();
        let until = begun + STEP;
        let waits = self.counters.iter_mut().map(|counter| counter.step(until));
        let wait = waits.min().unwrap_or(STEP);
        // Others are to have as much of the CPU as this.
        wait.max(begun.elapsed().min(2 * STEP))
    }

    /// An interval is over.
    fn update(&mut self) {
        let counters = self.counters.iter_mut();
        let counted: Vec<_> = counters.flat_map(|counter| counter.counted()).collect();
        let mut rows = self.rates.update(Instant::now(), &counted);
        rows.retain(|row| self.args.of.has(row.pid, &row.process));
        if let Some(patterns) = &self.events {
            rows.retain(|row| {
                row.event
                    .as_deref()
                    .is_some_and(|event| patterns.accept(event))
            });
        }
        self.rows = rows;
        for counter in &mut self.counters {
            self.problems.extend(counter.problems());
        }
    }

    fn has_ended(&self) -> bool {
        self.counters.iter().all(|counter| counter.has_ended())
    }

    /// Prints each interval, until there is nothing more to say, or nobody who reads it.
    fn print(mut self) -> anyhow::Result<()> {
        let mut next = self.begun + self.args.interval;
        let mut intervals = 0;
        loop {
            let wait = self.step();
            let now = Instant::now();
            // What ended between two intervals is told of at once.
            let ended = self.has_ended();
            if now < next && !ended {
                std::thread::sleep(wait.min(next - now));
                continue;
            }
            next = now.max(next + self.args.interval);
            self.update();
            match self.print_interval() {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written.context("cannot write to standard output")?,
            }
            intervals += 1;
            if ended || self.args.count.is_some_and(|count| intervals >= count) {
                return Ok(());
            }
        }
    }

    fn print_interval(&mut self) -> io::Result<()> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let rows = self.view.rows(&self.rows);
        let problems = std::mem::take(&mut self.problems);
        let mut text = String::new();
        if self.args.json {
            let interval = Interval {
                seconds,
                rows: &rows,
                problems: &problems,
            };
            text += &serde_json::to_string(&interval)?;
            text.push('\n');
        } else {
            for problem in &problems {
                output::say(problem);
            }
            text += &format!("{seconds:.1} s: {}\n", sums(&self.rows, whole).join(", "));
            text += &output::readable(&table(&rows));
            text.push('\n');
        }
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        output.flush()
    }
}
