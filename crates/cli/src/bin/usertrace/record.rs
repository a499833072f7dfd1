//! `usertrace record`: records a program, or running processes, until they end.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use usertrace_consumer::{
    CONTROL_FS, ControlFs, KernelOptions, KernelSummary, Notification, Options, RecordError,
    RecorderEvent, Recording, TraceSetup, record, record_fallback,
};
use usertrace_ctf::recording::RecordingNote;
use usertrace_ctf::{ProcessSummary, Version};

use crate::descendants::Watch;
use crate::limits::{self, Limits};
use crate::obstacle::{self, Found};
use crate::output::{self, Totals};
use crate::pids::{self, Named};
use crate::preload::{Preload, Wanted};
use crate::progress::Progress;
use crate::relay::{self, Relay};
use crate::root::Root;
use crate::setup::{DEFAULT_SUBBUF, MAX_SUBBUF, Setup};
use crate::status::WRONG_COMMAND_LINE;
use crate::tables::{Message, TableOptions, Tables};
use crate::trigger;

/// Exit status if recording failed, as of `env`, `nohup` and `timeout`.
pub(crate) const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Exit status if signals ended the recording while the program still ran, as after SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Run a program and record what it, and all other traced programs, write meanwhile
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace record ./server --port 80         # a program that has tracepoints
  usertrace record --malloc -- sqlite3 db     # the use of memory of one that has none
  usertrace record --pthread --dl -- ./server # its locks and conditions, and the libraries that it loads
  usertrace record --block -- ./server        # it waits rather than that events are lost
  usertrace record -o trace -- make -j4 && usertrace view trace
  usertrace record -e 'shop:*,!shop:tick' -- ./server     # all events of a provider but one
  usertrace record --context vtid,procname -- ./server    # each event with its thread and that one's name
  usertrace record --kernel 'sched:sched_switch,irq:*' -- ./server    # with what the kernel did meanwhile, as root
  usertrace record -p 4711                    # a program that runs, without its children
  usertrace record --trace mine -o trace      # a trace that was set up by hand, until SIGINT
  usertrace record --rotate-size 100M --keep 10 -o trace -- ./server      # the last gigabyte, in parts
  usertrace record --relay tcp://relay.example -- ./server    # to LTTng's relay daemon there

The trace is a directory with a CTF trace for each process, for usertrace view, babeltrace2 and Trace Compass. The program's
input and output are left alone, and signals are passed on to it; two of SIGINT, SIGTERM or SIGHUP end the
recording even if the program does not end. Without a program, everything that is traced is recorded until one of
these signals comes; how far it is, is shown in a terminal, or else said every ten seconds. A summary is printed on
standard error. Of several processes, as of a shell or another wrapper, it names the one with the most events, and the
command that shows it alone.

A recording that was killed goes on when it is started again with the same directory, while its trace is there:
nothing that was read is missing then, and nothing is there twice. One program at a time can read a trace.

With --rotate-size or --rotate-time the directory has chunks, each with complete traces, whose names sort by time. The one that
is written is called *.current; the others may be read, moved and removed by anybody, and usertrace view on the directory
prints them all as one.

With --relay, the traces go to LTTng's relay daemon, which keeps them in HOST/TRACE-TIME. The directory has chunks that wait; each is
removed when the relay has confirmed it. While the relay is away, the directory fills up to --relay-spool; then events stay in
the rings, as far as these go, and what finds no room there is counted. When the relay is back, what it has of the chunks that
wait is replaced, so nothing is there twice. What has not been sent a minute after the end (--relay-wait) stays in the directory, and
usertrace send sends it. With --live, babeltrace2 -i lttng-live net://RELAY/host/HOST/TRACE prints events as they
come.

When the disk is full, nothing is read until there is room: events stay in the rings, as far as these go, and what finds no room
there is counted, as always. If it is full to the end, recording fails; what is in the rings stays there, and usertrace record
with the same directory goes on.

Exit status: the program's, 128+N if signal N ended it; 125 if recording failed or tables are missing, 126 if the program cannot be
executed, 127 if there is none, 130 if it was left running; 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Directory for the trace; must be new or empty, or have a recording that was killed [default:
    /// usertrace-TIME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Name of the trace; one that exists is joined, stopped in the end, and stays [default: that
    /// of the recording that was killed, or usertrace-PID]
    #[arg(long, value_name = "NAME")]
    trace: Option<String>,

    /// Record all processes that are traced, also beside a program: as it is anyway without -p
    #[arg(short, long, conflicts_with = "pid")]
    all: bool,

    /// Record processes that run, and no others, until the last of them ends or SIGINT comes; by
    /// their ids, or by names of which there is one process each; several with commas between them
    #[arg(
        short,
        long,
        value_name = "PID|NAME",
        value_delimiter = ',',
        conflicts_with = "program"
    )]
    pid: Vec<Named>,

    /// Record events of the kernel's own, too, on the same clock: SYSTEM:NAME, as -e has them; of
    /// the whole machine, or of the processes of -p and what they start
    #[arg(short, long, value_name = "PATTERNS", value_delimiter = ',')]
    kernel: Vec<String>,

    /// KiB of the kernel's ring for its own events, for each CPU [default: the kernel's]
    #[arg(long, value_name = "KIB", requires = "kernel")]
    kernel_buffer: Option<u32>,

    /// Version of CTF: 1.8, or 2, which babeltrace2 2.1 and later read
    #[arg(long, value_name = "VERSION", default_value = "1.8")]
    ctf: Version,

    #[command(flatten)]
    setup: Setup,

    #[command(flatten)]
    preload: Wanted,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    tables: TableOptions,

    #[command(flatten)]
    relay: Relay,

    /// How long to wait for the relay when the recording has ended
    #[arg(long, value_name = "DURATION", value_parser = limits::duration, default_value = "1min", requires = "relay", help_heading = "Relay")]
    relay_wait: Duration,

    #[command(flatten)]
    summary: output::Summary,

    #[command(flatten)]
    root: Root,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Limit of processes in the summary; JSON has them all.
const MAX_SHOWN: usize = 20;

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        if self.limits.keeps_nothing() {
            output::say("--keep is for chunks: it needs --rotate-size or --rotate-time");
            return WRONG_COMMAND_LINE.into();
        }
        if self.tables.parquet.is_some() && !self.limits.rotates() {
            output::say("--parquet is for chunks: it needs --rotate-size or --rotate-time");
            return WRONG_COMMAND_LINE.into();
        }
        if self.relay.is_live() && self.setup.flight {
            output::say(
                "--live is for events that are read as they come: it does not go with --flight",
            );
            return WRONG_COMMAND_LINE.into();
        }
        if let Some(conflict) = self.relay.conflict(&self.limits, self.ctf) {
            output::say(conflict);
            return WRONG_COMMAND_LINE.into();
        }
        self.try_run().unwrap_or_else(|error| {
            output::error(&error);
            FAILED.into()
        })
    }

    fn try_run(self) -> anyhow::Result<ExitCode> {
        let pids = pids::only(&self.pid)?;
        // Must live until the program has ended: its drop may remove links to the libraries.
        let preload = Preload::new(&self.preload)?;
        let directory = output::Directory::new(self.output)?;
        let output = directory.path().clone();
        // The recording itself reports an earlier one that cannot be read.
        let before = RecordingNote::of(&output).ok().flatten();
        let trace = self.trace.or(before.map(|before| before.name));
        let setup = TraceSetup::from(self.setup);
        trigger::warn_without_daemon(&setup.triggers);
        let options = Options {
            root: self.root.path,
            trace: trace.unwrap_or_else(|| format!("usertrace-{}", std::process::id())),
            setup: setup.clone(),
            relay: self.relay.options(&output, Some(self.relay_wait)),
            output,
            version: self.ctf,
            program: self.program,
            environment: preload.iter().map(Preload::variable).collect(),
            pids,
            kernel: (!self.kernel.is_empty()).then_some(KernelOptions {
                events: self.kernel,
                buffer_kib: self.kernel_buffer,
            }),
            limits: self.limits.into(),
        };
        let quiet = self.summary.quiet;
        let tables = self.tables.parquet.map(|root| {
            Tables::start(&root, move |message| match message {
                Message::Trouble(text) => output::say(text),
                Message::Done(text) if !quiet => output::say(text),
                Message::Done(_) => {}
            })
        });
        let tables = tables.transpose()?;
        if let Some(tables) = &tables {
            tables.add_left(&options.output);
        }
        // Do not draw over a program's output.
        let shows = !quiet && options.program.is_empty();
        let mut display = shows.then(Progress::new);
        let mut notify = |notification: Notification<'_>| match notification {
            Notification::RecordingProgress(progress) => display
                .iter_mut()
                .for_each(|display| display.show(progress)),
            Notification::RecorderEvent(event) => {
                display.iter_mut().for_each(Progress::clear_line);
                if let (RecorderEvent::ChunkFinished(chunk), Some(tables)) = (event, &tables) {
                    tables.add(chunk);
                }
                limits::report(event, quiet);
            }
        };
        let (recorded, obstacles) = run_recording(&options, preload.is_some(), &mut notify);
        display.into_iter().for_each(Progress::end);
        let recording = match recorded {
            Ok(recording) => recording,
            Err(error) => {
                let status = failure_status(&error);
                output::error(&error.into());
                return Ok(status.into());
            }
        };
        report_problems(&recording, &obstacles);
        if !quiet {
            report_summary(&recording, &setup);
            if !options.program.is_empty() && has_no_events(&recording, &obstacles) {
                output::say(
                    "nobody wrote an event: are there tracepoints in the program, and does -e name them? --malloc, \
                     --pthread, --dl and --function make events of what programs do that have none",
                );
            }
        }
        if let Some(to) = &self.summary.json {
            output::json(to, &recording)?;
        }
        let is_converted = tables.is_none_or(Tables::end);
        let directory = options.output.to_string_lossy();
        let is_sent =
            options.relay.is_none() || relay::report(recording.relay.as_ref(), &directory, quiet);
        if recording.incomplete > 0 || !is_converted || !is_sent {
            return Ok(FAILED.into());
        }
        Ok(match recording.exit_status {
            Some(status) => ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)),
            None => INTERRUPTED.into(),
        })
    }
}

/// Programs that could not be traced.
pub(crate) struct Obstacles {
    /// The started program, found and reported before it ran.
    of_program: Option<Found>,
    /// Programs that it and its descendants executed, found meanwhile.
    of_descendants: Vec<Found>,
}

/// Records until the program ends or a signal stops the recording. Looks for programs that cannot
/// be traced. `preloads`: the environment preloads libraries.
pub(crate) fn run_recording(
    options: &Options,
    preloads: bool,
    notify: &mut dyn FnMut(Notification<'_>),
) -> (Result<Recording, RecordError>, Obstacles) {
    // An explicit --root that cannot be opened is an error, and no reason to fall back.
    let fallback = options.root == Path::new(CONTROL_FS) && ControlFs::open(&options.root).is_err();
    let program = options.program.first();
    let program = program.filter(|_| fallback || preloads);
    let of_program = program.and_then(|program| obstacle::of(program, preloads));
    // Start the program nevertheless: its descendants may be traced.
    if let Some(obstacle) = &of_program {
        output::say(obstacle);
    }
    let watch = program.map(|_| Watch::start(preloads));
    let recorded = match fallback {
        true => record_fallback(options, notify),
        false => record(options, notify),
    };
    let obstacles = Obstacles {
        of_program,
        of_descendants: watch.map(Watch::end).unwrap_or_default(),
    };
    (recorded, obstacles)
}

/// The exit status of a recording that failed.
pub(crate) fn failure_status(error: &RecordError) -> u8 {
    match error {
        RecordError::Program { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        },
        _ => FAILED,
    }
}

/// Reports programs that could not be traced, and problems of the recording.
pub(crate) fn report_problems(recording: &Recording, obstacles: &Obstacles) {
    let is_reported = |found: &Found| {
        let of_program = obstacles.of_program.as_ref();
        of_program.is_some_and(|reported| reported.is_same(found))
    };
    let found = obstacles.of_descendants.iter();
    for found in found.filter(|found| !is_reported(found)) {
        output::say(found);
    }
    let of_kernel = recording.kernel.iter().flat_map(|kernel| &kernel.problems);
    for problem in recording.session.problems.iter().chain(of_kernel) {
        output::say(problem);
    }
}

/// Prints the summary, with advice.
fn report_summary(recording: &Recording, setup: &TraceSetup) {
    output::report(summary(recording));
    let processes = &recording.session.processes;
    if let Some(advice) = how_to_see_the_busiest(processes, &recording.directory) {
        output::say(advice);
    }
    if let Some(advice) = advice(recording, setup) {
        output::say(advice);
    }
}

/// Whether the recording is empty and no message has said why.
pub(crate) fn has_no_events(recording: &Recording, obstacles: &Obstacles) -> bool {
    recording.session.processes.is_empty()
        && recording.session.problems.is_empty()
        && recording.incomplete == 0
        && obstacles.of_program.is_none()
        && obstacles.of_descendants.is_empty()
}

/// Advice on how to lose no events next time.
fn advice(recording: &Recording, setup: &TraceSetup) -> Option<String> {
    /// Factor of the suggested size.
    const GROWTH: u32 = 8;
    let size = setup.subbuf_size.unwrap_or(DEFAULT_SUBBUF);
    let lost = lost_in_full_rings(&recording.session.processes, size);
    if lost == 0 {
        return None;
    }
    let size = size.saturating_mul(GROWTH).min(MAX_SUBBUF);
    let more = format!("rings with more room (--subbuf-size {}k)", size >> 10);
    let instead = match (setup.block, setup.subbuf_size == Some(MAX_SUBBUF)) {
        (true, true) => return None,
        (true, false) => more,
        (false, true) => "programs that wait when a ring is full (--block)".to_owned(),
        (false, false) => format!("{more}, or programs that wait when a ring is full (--block)"),
    };
    Some(format!(
        "{lost} events were lost, as rings were full: they need {instead}"
    ))
}

/// Events lost in full rings. A process that wrote less than a sub-buffer lost events for another
/// reason, for example in a child of `vfork`.
fn lost_in_full_rings(processes: &[ProcessSummary], subbuf_size: u32) -> u64 {
    let filled = processes
        .iter()
        .filter(|process| process.bytes >= u64::from(subbuf_size));
    filled.map(|process| process.lost).sum()
}

/// Names the process with the most events, and the command that shows it alone.
fn how_to_see_the_busiest(processes: &[ProcessSummary], directory: &Path) -> Option<String> {
    let most = processes.iter().map(|process| process.events).max()?;
    if processes.len() < 2 || most == 0 {
        return None;
    }
    let busiest = processes.iter().find(|process| process.events == most)?;
    let is_one = |is_it: &dyn Fn(&ProcessSummary) -> bool| {
        let mut others = processes.iter().filter(|process| is_it(process)).skip(1);
        others.next().is_none()
    };
    // A process that executes another program keeps its id. The option takes lists, and numbers are
    // ids.
    let has_usable_name = !busiest.comm.starts_with('-')
        && !busiest.comm.contains(',')
        && busiest.comm.parse::<u32>().is_err();
    let by_name = !is_one(&|process| process.pid == busiest.pid)
        && is_one(&|process| process.comm == busiest.comm)
        && has_usable_name;
    let process = match by_name {
        true => output::shell_word(&busiest.comm).into_owned(),
        false => busiest.pid.to_string(),
    };
    Some(format!(
        "process {:?} ({}) wrote the most events, {most} \
         (to see it alone: usertrace view --pid {process} {})",
        busiest.comm,
        busiest.pid,
        output::shell_word(&directory.to_string_lossy())
    ))
}

fn summary(recording: &Recording) -> String {
    let processes = &recording.session.processes;
    let totals = Totals::of(processes);
    let mut text = format!(
        "usertrace: {} events of {} in {:.2} s, {} lost, {} holes, {} damaged; {} bytes in {}\n",
        totals.events,
        output::count(processes.len(), "process", "processes"),
        recording.seconds,
        totals.lost,
        totals.holes,
        totals.damaged,
        totals.bytes,
        recording.directory.display(),
    );
    if totals.sunk > 0 {
        text.push_str(&format!(
            "usertrace: the programs' first writes to {} found no memory\n",
            output::count(totals.sunk as usize, "page", "pages")
        ));
    }
    if let Some(kernel) = &recording.kernel {
        text.push_str(&of_kernel(kernel));
    }
    if totals.overwritten > 0 {
        text.push_str(&format!(
            "usertrace: {} overwritten before they were read\n",
            output::count(
                totals.overwritten as usize,
                "sub-buffer was",
                "sub-buffers were"
            )
        ));
    }
    let mut busiest = processes.clone();
    busiest.sort_by_key(|process| std::cmp::Reverse(process.events));
    busiest.truncate(MAX_SHOWN);
    if !busiest.is_empty() {
        text.push_str(&output::processes(&busiest));
    }
    if let Some(more) = processes
        .len()
        .checked_sub(MAX_SHOWN)
        .filter(|&more| more > 0)
    {
        let more = output::count(more, "process", "processes");
        text.push_str(&format!("  and {more} with fewer events\n"));
    }
    text
}

fn of_kernel(kernel: &KernelSummary) -> String {
    format!(
        "usertrace: {} events of the kernel, {} lost; {} bytes in {}\n",
        kernel.events,
        kernel.lost,
        kernel.bytes,
        kernel.directory.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, comm: &str, events: u64) -> ProcessSummary {
        ProcessSummary {
            pid,
            comm: comm.to_owned(),
            events,
            ..ProcessSummary::default()
        }
    }

    /// The process that the advice gives to `--pid`.
    fn named(processes: &[ProcessSummary]) -> Option<String> {
        let text = how_to_see_the_busiest(processes, Path::new("a b"))?;
        let (_, command) = text.split_once("usertrace view --pid ").unwrap();
        Some(command.strip_suffix(" 'a b')").unwrap().to_owned())
    }

    /// Larger rings do not help a child of `vfork`.
    #[test]
    fn losses_without_full_rings_give_no_advice() {
        let process = |bytes, lost| ProcessSummary {
            bytes,
            lost,
            ..ProcessSummary::default()
        };
        let processes = [process(4095, 10), process(4096, 3), process(1 << 20, 4)];
        assert_eq!(lost_in_full_rings(&processes, 4096), 7);
    }

    #[test]
    fn busiest_process_is_named_unambiguously() {
        let shells = [
            process(7, "sh", 3),
            process(8, "sh", 9),
            process(9, "sh", 9),
        ];
        assert_eq!(named(&shells).unwrap(), "8");
        let executed = [process(7, "sh", 3), process(7, "my prog", 9)];
        assert_eq!(named(&executed).unwrap(), "'my prog'");
        let again = [process(7, "sh", 3), process(7, "x", 9), process(8, "x", 1)];
        assert_eq!(named(&again).unwrap(), "7");
        for name in ["-sh", "12", "a,b"] {
            assert_eq!(
                named(&[process(7, name, 9), process(7, "sh", 3)]).unwrap(),
                "7"
            );
        }
    }

    #[test]
    fn single_process_gets_no_advice() {
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[process(7, "sh", 3)]), None);
        assert_eq!(named(&[process(7, "sh", 0), process(8, "sh", 0)]), None);
    }
}
