//! `usertrace daemon`: a service that records traces as they come and go.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use usertrace_consumer::{
    ControlFs, DaemonNotification, DaemonOptions, IfExists, Limits as WantedLimits, RecorderEvent,
    RecordingProgress, SavedTraceError, TraceSetup, TriggerOptions, daemon, describe,
    load_saved_traces, read_saved_traces, saved_traces_below,
};
use usertrace_ctf::Version;

use crate::kernel_commands;
use crate::limits::{self, Limits};
use crate::notify::{Level, Log, Notify};
use crate::output;
use crate::relay::Relay;
use crate::root::Root;
use crate::setup::Setup;
use crate::status::WRONG_COMMAND_LINE;
use crate::tables::{Message, TableOptions, Tables};

/// Default directory for traces, without `--output` and `$STATE_DIRECTORY`.
const OUTPUT: &str = "/var/lib/usertrace";
/// Heading of the options for triggers in help texts.
const TRIGGERS: &str = "Triggers";
/// Least time between two warnings about lost events.
const LOSS_WARNING_PERIOD: Duration = Duration::from_secs(60);

/// Record traces as they come and go, until it is told to end
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace daemon                             # all traces that there are, and will be
  usertrace daemon --trace web --trace db      # these, also if they come later
  usertrace daemon --start web -e 'shop:*' --rotate-time 1h --keep 48      # two days of a trace that it starts itself
  usertrace daemon --start web --flight --trigger 'shop:error then snapshot' --only-triggers    # what led to errors
  usertrace daemon --load /etc/usertrace/traces.d    # creates the traces that usertrace save has saved there
  systemctl enable --now usertrace             # as a service, where the package usertrace is installed
  usertrace view /var/lib/usertrace/web        # what there is, all chunks as one
  usertrace daemon --relay tcp://relay.example # to LTTng's relay daemon there
  kill -HUP PID                                # all begin a new chunk

Each trace has a directory of its name, and in there chunks, whose names sort by time. The one that is written is called
*.current; the others may be read, moved and removed by anybody. Limits are those of each trace. Without --rotate-size and
--rotate-time, a chunk ends with its trace, at SIGHUP, or with a quarter of --max-size.

SIGTERM and SIGINT end it, and the traces go on: their events stay in the kernel's rings, and the next daemon with the same
directory reads them, with nothing missing and nothing twice, unless a ring was full meanwhile. So it is if it is killed. Writers that
wait for a reader (mode block) wait for no daemon that is not there: what has no room then is lost, and counted.

For a trigger with the action snapshot, it writes one to DIR/snapshots/TRACE, with a name that sorts by time, and trigger.txt in it
says why. For rotate, a chunk ends. Each is done at most once in --trigger-interval, for all that fired before. Triggers that fired
while no daemon ran are answered when one starts. The other actions need no daemon: see usertrace trigger add --help.

With --load, it first creates the traces of each *.toml file in DIR, by name, as usertrace load does, and starts those that
have started = true. A trace that exists stays as it is. A file that is wrong is reported, and creates nothing; the others are
loaded.

With --parquet, each finished chunk also becomes tables in DIR/recording=HOST:DIRECTORY/chunk=CHUNK, for DuckDB, Spark and the
like: docs/how-to/columns.md. --keep and --max-size remove chunks, and no tables. What could not be converted, for example as the
disk of DIR was full, is tried again each minute, and by the next daemon.

With --relay, the traces go to LTTng's relay daemon, and each directory has only chunks that wait for it: see usertrace record --help.

When the disk is full, nothing is read until there is room, which is looked for each second. What was lost is said once a minute,
if anything was. Under systemd it tells when it is ready, how far it is, and that it is alive (Type=notify, WatchdogSec=). It
needs a kernel with trace buffers: without it, each program's own daemons record what it writes (USERTRACE_OUTPUT=DIR).

Exit status: 0 if it was told to end, 1 if it cannot work, 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Where to write; each trace to a directory of its name in there [default: $STATE_DIRECTORY,
    /// or /var/lib/usertrace]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Only the trace of this name, which need not be there yet; may be given several times
    #[arg(long, value_name = "NAME")]
    trace: Vec<String>,

    /// Start this trace, which is created if there is none of that name, and stays when the daemon
    /// ends; the options below say what it is to be like
    #[arg(long, value_name = "NAME")]
    start: Option<String>,

    #[command(flatten)]
    setup: Setup,

    /// Create the traces of the files *.toml in this directory, which usertrace save has printed;
    /// they stay when the daemon ends
    #[arg(long, value_name = "DIR")]
    load: Option<PathBuf>,

    /// Record nothing: write only the snapshots that triggers ask for
    #[arg(long, conflicts_with_all = ["parquet", "relay"], help_heading = TRIGGERS)]
    only_triggers: bool,

    /// Least time between two snapshots of a trace, and between two chunks that triggers begin; one
    /// that fires earlier is answered then
    #[arg(long, value_name = "DURATION", value_parser = limits::duration, default_value = "10s", help_heading = TRIGGERS)]
    trigger_interval: Duration,

    /// Remove the oldest of more than N snapshots of a trace; or of more than --max-size
    #[arg(long, value_name = "N", default_value = "100", help_heading = TRIGGERS)]
    keep_snapshots: usize,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    tables: TableOptions,

    #[command(flatten)]
    relay: Relay,

    /// Say only what is wrong
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    root: Root,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        let mut log = Log::new();
        if self.start.is_none() && TraceSetup::from(self.setup.clone()) != TraceSetup::default() {
            log.say(
                Level::Error,
                "what a trace is to be like is for one that is started: --start NAME",
            );
            return WRONG_COMMAND_LINE.into();
        }
        if let Some(conflict) = self.relay.conflict(&self.limits, Version::V1_8) {
            log.say(Level::Error, conflict);
            return WRONG_COMMAND_LINE.into();
        }
        match self.try_run(&mut log) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                log.say(Level::Error, format_args!("{error:#}"));
                ExitCode::FAILURE
            }
        }
    }

    fn try_run(self, log: &mut Log) -> anyhow::Result<()> {
        let control_fs = kernel_commands::DAEMON.open(&self.root)?;
        let loaded = match &self.load {
            Some(directory) => load(&control_fs, directory, self.quiet, log),
            None => Vec::new(),
        };
        self.start(&control_fs)?;
        let mut traces = self.trace;
        // An empty list selects all traces.
        if !traces.is_empty() {
            traces.extend(self.start);
            traces.extend(loaded);
        }
        let output = self.output.unwrap_or_else(default_output);
        let limits: WantedLimits = self.limits.into();
        let options = DaemonOptions {
            root: self.root.path,
            traces,
            relay: self.relay.options(&output, None),
            output,
            records: !self.only_triggers,
            triggers: TriggerOptions {
                interval: self.trigger_interval,
                keep: Some(self.keep_snapshots),
                max_size: limits.max_size,
            },
            limits,
        };
        let quiet = self.quiet;
        let tables = self.tables.parquet.map(|root| {
            let mut log = Log::new();
            Tables::start(&root, move |message| match message {
                Message::Trouble(text) => log.say(Level::Error, text),
                Message::Done(text) if !quiet => log.say(Level::Info, text),
                Message::Done(_) => {}
            })
        });
        let mut reporter = Reporter {
            log,
            tables: tables.transpose()?,
            notify: Notify::from_environment().context("$NOTIFY_SOCKET cannot be used")?,
            quiet: self.quiet,
            lost: 0,
            last_warning: None,
        };
        let progress = daemon(&options, &mut |notification| reporter.report(&notification))?;
        if !self.quiet {
            let ended = format!("ended: {}; the traces go on", totals(&progress));
            reporter.log.say(Level::Info, ended);
        }
        Ok(())
    }

    fn start(&self, control_fs: &ControlFs) -> anyhow::Result<()> {
        let Some(name) = &self.start else {
            return Ok(());
        };
        // A trace that exists may have been started, for example by the previous daemon. The setup
        // of a started trace is fixed.
        let setup = match control_fs.trace(name) {
            Ok(_) => TraceSetup::default(),
            Err(_) => self.setup.clone().into(),
        };
        let mut trace = control_fs.create(name, &setup)?;
        trace.start()?;
        trace.keep();
        Ok(())
    }
}

/// Creates the traces of each file in a directory, and returns their names. Logs the mistakes of
/// files.
fn load(control_fs: &ControlFs, directory: &Path, quiet: bool, log: &mut Log) -> Vec<String> {
    let mut names = Vec::new();
    let mut failed = |error: &SavedTraceError| log.say(Level::Error, describe(error));
    let paths = saved_traces_below(directory).inspect_err(&mut failed);
    for path in paths.unwrap_or_default() {
        let load = |file| load_saved_traces(control_fs, &[file], IfExists::Keep);
        let Ok(loaded) = read_saved_traces(&path)
            .and_then(load)
            .inspect_err(|error| log.say(Level::Error, describe(error)))
        else {
            continue;
        };
        for (traces, what) in [
            (loaded.created, "created"),
            (loaded.kept, "exists already, not loaded"),
        ] {
            for trace in traces {
                if !quiet {
                    let path = path.display();
                    log.say(Level::Info, format_args!("{trace}: {what} from {path}"));
                }
                names.push(trace);
            }
        }
    }
    names
}

fn default_output() -> PathBuf {
    let given = std::env::var_os("STATE_DIRECTORY").unwrap_or_default();
    // systemd separates several directories by colons.
    let first = std::env::split_paths(&given).next();
    let first = first.filter(|path| !path.as_os_str().is_empty());
    first.unwrap_or_else(|| PathBuf::from(OUTPUT))
}

/// The totals of a recording, for people.
fn totals(progress: &RecordingProgress) -> String {
    format!(
        "{} events of {}, {} bytes, {} lost",
        progress.events,
        output::count(progress.processes, "process", "processes"),
        progress.bytes,
        progress.lost
    )
}

/// Passes the daemon's notifications to the log and to systemd.
struct Reporter<'a> {
    log: &'a mut Log,
    tables: Option<Tables>,
    notify: Notify,
    quiet: bool,
    /// Lost events at the last warning, and the time of that warning.
    lost: u64,
    last_warning: Option<Instant>,
}

impl Reporter<'_> {
    fn info(&mut self, what: impl std::fmt::Display) {
        if !self.quiet {
            self.log.say(Level::Info, what);
        }
    }

    fn report(&mut self, notification: &DaemonNotification<'_>) {
        match notification {
            DaemonNotification::Ready => self.notify.ready(),
            DaemonNotification::Reloading => {
                self.notify.reloading();
                self.info("all begin a new chunk");
            }
            DaemonNotification::Stopping => self.notify.stopping(),
            DaemonNotification::Started { trace, directory } => {
                self.info(format_args!("{trace}: recorded to {}", directory.display()));
                if let Some(tables) = &self.tables {
                    tables.add_left(directory);
                }
            }
            DaemonNotification::RecorderEvent { trace, event } => {
                if let (RecorderEvent::ChunkFinished(chunk), Some(tables)) = (event, &self.tables) {
                    tables.add(chunk);
                }
                let line = format!("{trace}: {event}");
                match event.is_trouble() {
                    true => self.log.say(Level::Error, line),
                    false => self.info(line),
                }
            }
            DaemonNotification::Trigger { trace, event } => {
                let line = format!("{trace}: {event}");
                match event.is_trouble() {
                    true => self.log.say(Level::Error, line),
                    false => self.info(line),
                }
            }
            DaemonNotification::Ended { trace, progress } => {
                self.info(format_args!("{trace} was removed: {}", totals(progress)));
            }
            DaemonNotification::Problem { trace, problem } => {
                self.log
                    .say(Level::Warning, format_args!("{trace}: {problem}"));
            }
            DaemonNotification::Failed { trace, error } => {
                let why = describe(error);
                self.log.say(Level::Error, format_args!("{trace}: {why}"));
            }
            DaemonNotification::RecordingProgress { traces, progress } => {
                let traces = output::count(*traces, "trace", "traces");
                self.notify
                    .status(&format!("{traces}: {}", totals(progress)));
                self.notify.alive();
                self.warn_about_losses(progress.lost);
            }
            _ => {}
        }
    }

    fn warn_about_losses(&mut self, lost: u64) {
        let is_due = self
            .last_warning
            .is_none_or(|at| at.elapsed() >= LOSS_WARNING_PERIOD);
        if lost > self.lost && is_due {
            let more = lost - self.lost;
            self.log.say(
                Level::Warning,
                format_args!("{more} events were lost as their rings were full, {lost} so far"),
            );
            (self.lost, self.last_warning) = (lost, Some(Instant::now()));
        }
    }
}
