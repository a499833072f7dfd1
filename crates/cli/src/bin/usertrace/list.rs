//! `usertrace list` and `usertrace status`: the state of traces, and the events of programs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use usertrace::Loglevel;
use usertrace_consumer::{
    CONTROL_FS, ConsumerFile as _, ControlFsError, KernelFile, ProcessTracepoints,
    TraceTracepoints, TracepointSource, consumer_files, event_channels, programs, tracepoints,
};
use usertrace_os::procfs;
use usertrace_sys::uapi::{
    LTT_FILE_DEAD, LTT_MODE_BLOCK, LTT_MODE_COUNT, LTT_MODE_DISCARD, LTT_MODE_OVERWRITE,
    LTT_SCOPE_CPU, LTT_SCOPE_GLOBAL, LTT_SCOPE_MM_CID, LTT_SCOPE_THREAD, LttRingPositions,
};

use crate::root::Root;
use crate::trigger::{self, ListedTrigger};
use crate::{kernel_commands, output, pids, unusable};

/// List traces, their processes and how full their rings are, or the events of programs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace list
  usertrace list mine
  usertrace list --events               # all events of all programs that run, whether they are traced or not
  usertrace list --events mine          # those of the processes of a trace, and which of them it wants
  usertrace list --events --pid shop    # those of the programs of this name
  usertrace list --events --json | jq '.programs[].tracepoints[].name'

Channels are listed with whose their rings are, and with what becomes of events when a ring is full: discard,
overwrite, or block. Processes are listed, once for each channel, from when they have told the kernel of their buffers, which is when they write their first
event, or end. RINGS is how many there are, and what of; FILL is how full the fullest ring is that was not read yet;
LOST is how many events were dropped because a ring was full; SUNK is how many pages there was no memory for.

With --events, the events that each process of a trace can write are listed, as it described them in the trace's rings,
also when it has ended: log level, whether the trace wants it, PROVIDER:NAME, and fields. Without TRACE, programs that
run and are in no trace are listed, too; these are asked, which takes a control channel: start them with
USERTRACE_CONTROL=signal or =thread (see usertrace ctl). WANTED is then whether any trace or probe wants the event. On a
kernel without trace buffers, all programs are asked. Who cannot be asked is named behind a !, with the reason.

Exit status: 0, 1 if traces cannot be listed, 2 for a wrong command line, 3 if not all events are known.")]
pub(crate) struct Args {
    /// Only these traces [default: all]
    traces: Vec<String>,

    /// List the events that programs can write
    #[arg(long)]
    events: bool,

    /// Write the list as JSON, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    #[command(flatten)]
    of: pids::OfProcesses,

    #[command(flatten)]
    root: Root,
}

/// Say what a trace is like, which events it has, and how full its rings are
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace status mine
  usertrace status --pid shop mine      # of the processes of this name
  usertrace status --json mine | jq '.processes[].lost'

As list, of one trace, and in addition which events it wants, its triggers, the events that go to other channels than main, and
each channel's sub-buffers and contexts. A condition that programs cannot use stands behind a !, with the reason.

Exit status: 0 if the trace is active, 3 if it is not, 1 if there is none, 2 for a wrong command line.")]
pub(crate) struct Status {
    /// Name of the trace
    trace: String,

    /// Write it as JSON, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    #[command(flatten)]
    of: pids::OfProcesses,

    #[command(flatten)]
    root: Root,
}

/// Exit status for an inactive trace, as for an inactive service.
const NOT_ACTIVE: u8 = 3;

impl Status {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let directory = kernel_commands::STATUS
            .open(&self.root)?
            .trace(&self.trace)?;
        let trace = Trace {
            // Unreadable files belong to a trace that was removed meanwhile, or to a user's rights.
            triggers: trigger::listed(&directory).unwrap_or_default(),
            problems: unusable::conditions(&directory).unwrap_or_default(),
            ..trace(directory.path(), &self.of)
        };
        if let Some(to) = &self.json {
            output::json(to, &trace)?;
        } else {
            output::print(&trace.describe(true))?;
        }
        Ok(if trace.active { 0 } else { NOT_ACTIVE })
    }
}

#[derive(Serialize)]
struct Trace {
    name: String,
    active: bool,
    /// Patterns of the events that it records, as in its file `filter`.
    events: Vec<String>,
    /// Its triggers; only in `status`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    triggers: Vec<ListedTrigger>,
    /// Conditions that programs cannot use; only in `status`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// Channels of events, without `control`.
    channels: Vec<Channel>,
    processes: Vec<Process>,
}

#[derive(Serialize)]
struct Channel {
    name: String,
    /// What a ring belongs to, as in the channel's file `scope`.
    scope: String,
    /// What happens to events when a ring is full; `?` if unknown.
    mode: &'static str,
    /// Bytes in a sub-buffer.
    subbuf_size: Option<u32>,
    /// Sub-buffers in a ring.
    subbuf_count: Option<u32>,
    /// Names of the contexts of each event.
    contexts: Vec<String>,
    /// Patterns of the events that go here; `None` for `main`, which takes the rest.
    events: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Process {
    channel: String,
    pid: u32,
    comm: String,
    process: u64,
    dead: bool,
    rings: usize,
    /// What a ring belongs to, as in the channel's file `scope`.
    scope: &'static str,
    ring_bytes: u64,
    /// Bytes in the fullest ring that were not consumed yet.
    fullest: u64,
    lost: u64,
    /// Pages that found no memory at their first write.
    sunk: u64,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        if self.events {
            return self.events();
        }
        let control_fs = kernel_commands::LIST.open(&self.root)?;
        let paths = match &self.traces[..] {
            [] => control_fs.traces()?,
            names => {
                let traces = names.iter().map(|name| control_fs.trace(name));
                let paths = traces.map(|trace| Ok(trace?.path().to_owned()));
                paths.collect::<Result<_, ControlFsError>>()?
            }
        };
        let traces: Vec<_> = paths.iter().map(|path| trace(path, &self.of)).collect();
        if let Some(to) = &self.json {
            output::json(to, &traces)?;
        } else if traces.is_empty() {
            output::print("There is no trace.\n")?;
        } else {
            let texts = traces.iter().map(|trace| trace.describe(false));
            output::print(&texts.collect::<String>())?;
        }
        Ok(0)
    }

    /// Lists the events that programs can write.
    fn events(&self) -> anyhow::Result<u8> {
        let mut listed = Listed::default();
        match self.root.open() {
            Ok(control_fs) => {
                let names = match &self.traces[..] {
                    [] => control_fs.trace_names()?,
                    names => names.to_vec(),
                };
                for name in names {
                    match tracepoints(&control_fs, &name) {
                        Ok(mut trace) => {
                            let is_selected = |process: &ProcessTracepoints| {
                                self.of.has(process.pid, &process.comm)
                            };
                            trace.processes.retain(is_selected);
                            listed.traces.push(trace);
                        }
                        // The trace was removed meanwhile.
                        Err(ControlFsError::NoTrace(_)) if self.traces.is_empty() => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            // Without the control file system, programs can still be asked, unless the command line
            // names traces or a root.
            Err(ControlFsError::Missing(_))
                if self.traces.is_empty() && self.root.path == Path::new(CONTROL_FS) => {}
            Err(error) => return Err(error.into()),
        }
        if self.traces.is_empty() {
            let processes = listed.traces.iter().flat_map(|trace| &trace.processes);
            let alive = processes.filter(|process| !process.dead);
            let mut known: BTreeSet<_> = alive.map(|process| process.pid).collect();
            known.insert(std::process::id());
            let is_wanted = |pid| !known.contains(&pid) && self.of.has(pid, &procfs::name(pid));
            (listed.programs, listed.problems) = programs(is_wanted);
        }
        if let Some(to) = &self.json {
            output::json(to, &listed)?;
        } else {
            output::print(&listed.describe(self.traces.is_empty()))?;
        }
        Ok(if listed.is_complete() { 0 } else { INCOMPLETE })
    }
}

/// Exit status if some events are unknown.
const INCOMPLETE: u8 = 3;

/// The events of programs.
#[derive(Default, Serialize)]
struct Listed {
    traces: Vec<TraceTracepoints>,
    /// Programs that are in none of these traces.
    programs: Vec<ProcessTracepoints>,
    problems: Vec<String>,
}

impl Listed {
    fn is_complete(&self) -> bool {
        let of_traces = self.traces.iter().flat_map(|trace| &trace.processes);
        let mut processes = of_traces.chain(&self.programs);
        let mut traces = self.traces.iter();
        self.problems.is_empty()
            && traces.all(|trace| trace.problems.is_empty())
            && processes.all(|process| process.problems.is_empty())
    }

    /// Describes them for people. `programs`: include programs that are in no trace.
    fn describe(&self, programs: bool) -> String {
        let mut text = String::new();
        for trace in &self.traces {
            let processes = output::count(trace.processes.len(), "process", "processes");
            text += &format!("{}: {processes}\n", trace.trace);
            text += &trace
                .processes
                .iter()
                .map(process_events)
                .collect::<String>();
            text += &problems(&trace.problems);
        }
        if programs {
            let number = output::count(self.programs.len(), "program", "programs");
            let which = match self.traces.is_empty() {
                true => "with events",
                false => "with events in none of these traces",
            };
            text += &format!("{number} {which}\n");
            text += &self.programs.iter().map(process_events).collect::<String>();
            text += &problems(&self.problems);
        }
        text
    }
}

fn problems(problems: &[String]) -> String {
    let lines = problems.iter().map(|problem| format!("  ! {problem}\n"));
    lines.collect()
}

/// Describes a process and its events, for people.
fn process_events(process: &ProcessTracepoints) -> String {
    let count = process.tracepoints.len();
    let mut text = format!("  {} ({})", process.comm.escape_debug(), process.pid);
    if process.source != TracepointSource::Nobody {
        text += &format!(": {}", output::count(count, "event", "events"));
    }
    if process.dead {
        text += ", ended";
    }
    text += "\n";
    if count > 0 {
        let mut rows = vec![["LEVEL", "WANTED", "EVENT", "FIELDS"].map(str::to_owned)];
        rows.extend(process.tracepoints.iter().map(|event| {
            let fields = event.fields.iter().map(|field| {
                let (kind, name) = (&field.kind, &field.name);
                format!("{kind} {name}")
            });
            let mut fields: Vec<_> = fields.collect();
            fields.extend(event.format.iter().map(|format| format!("{format:?}")));
            [
                loglevel(event.loglevel),
                if event.wanted { "yes" } else { "no" }.to_owned(),
                event.name.clone(),
                fields.join(", "),
            ]
        }));
        text += &output::table(&rows);
    }
    text + &problems(&process.problems)
}

/// The name of a log level, or its number.
fn loglevel(number: u32) -> String {
    const NAMED: [Loglevel; 15] = [
        Loglevel::Emergency,
        Loglevel::Alert,
        Loglevel::Critical,
        Loglevel::Error,
        Loglevel::Warning,
        Loglevel::Notice,
        Loglevel::Info,
        Loglevel::DebugSystem,
        Loglevel::DebugProgram,
        Loglevel::DebugProcess,
        Loglevel::DebugModule,
        Loglevel::DebugUnit,
        Loglevel::DebugFunction,
        Loglevel::DebugLine,
        Loglevel::Debug,
    ];
    let named = NAMED.into_iter().find(|&level| level as u32 == number);
    named.map_or_else(|| number.to_string(), |level| format!("{level:?}"))
}

fn table(processes: &[Process]) -> String {
    let mut rows = vec![
        [
            "PID",
            "CHANNEL",
            "RINGS",
            "RING SIZE",
            "FILL",
            "LOST",
            "SUNK",
            "STATE",
            "NAME",
        ]
        .map(str::to_owned),
    ];
    rows.extend(processes.iter().map(|process| {
        [
            process.pid.to_string(),
            process.channel.clone(),
            format!("{} {}", process.rings, process.scope),
            process.ring_bytes.to_string(),
            format!("{}%", process.fullest * 100 / process.ring_bytes.max(1)),
            process.lost.to_string(),
            process.sunk.to_string(),
            if process.dead { "ended" } else { "runs" }.to_owned(),
            process.comm.escape_debug().to_string(),
        ]
    }));
    output::table(&rows)
}

fn read(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned())
}

fn lines(text: String) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The value read, or `None` with a message if it cannot be read. No message if it is gone.
fn unless_gone<T>(path: &Path, read: io::Result<T>) -> Option<T> {
    if let Err(error) = &read
        && error.kind() != io::ErrorKind::NotFound
    {
        output::say(format_args!(
            "cannot read {:?}: {error}",
            path.display().to_string()
        ));
    }
    read.ok()
}

/// Reads the state of a trace. The trace may be removed, and its processes may end, at any time;
/// the result omits them.
fn trace(path: &Path, of: &pids::OfProcesses) -> Trace {
    let name = path.file_name().unwrap_or_default();
    let start = read(&path.join("start"));
    let (mut channels, mut processes) = (Vec::new(), Vec::new());
    for channel in unless_gone(path, event_channels(path)).unwrap_or_default() {
        let directory = path.join(&channel);
        let setting = |file| read(&directory.join(file));
        let mode = match (setting("mode").as_deref(), setting("flight").as_deref()) {
            (Some("count"), _) => "count",
            (Some("block"), _) => "block",
            (Some("overwrite"), _) | (_, Some("1")) => "overwrite",
            (Some("discard"), _) | (_, Some("0")) => "discard",
            _ => "?",
        };
        let files = unless_gone(&directory, consumer_files(&directory)).unwrap_or_default();
        let of_channel = files
            .iter()
            .filter_map(|file| process(&channel, &directory.join(file)));
        let (modes, listed): (Vec<_>, Vec<_>) = of_channel.unzip();
        channels.push(Channel {
            scope: setting("scope").unwrap_or_else(|| "?".to_owned()),
            // A process's file has the exact mode.
            mode: modes.last().copied().unwrap_or(mode),
            subbuf_size: setting("subbuf_size").and_then(|size| size.parse().ok()),
            subbuf_count: setting("subbuf_count").and_then(|count| count.parse().ok()),
            contexts: setting("contexts").map(lines).unwrap_or_default(),
            events: setting("filter").map(lines),
            name: channel,
        });
        let is_selected = |process: &Process| of.has(process.pid, &process.comm);
        processes.extend(listed.into_iter().filter(is_selected));
    }
    Trace {
        name: name.to_string_lossy().into_owned(),
        active: start.as_deref() == Some("1"),
        events: read(&path.join("filter")).map(lines).unwrap_or_default(),
        triggers: Vec::new(),
        problems: Vec::new(),
        channels,
        processes,
    }
}

impl Channel {
    fn describe(&self, whole: bool) -> String {
        let Self {
            name, scope, mode, ..
        } = self;
        let mut text = format!("  channel {name}: {scope}, {mode}");
        if !whole {
            return text + "\n";
        }
        if let (Some(count), Some(size)) = (self.subbuf_count, self.subbuf_size) {
            text += &format!(", {count} sub-buffers of {size} bytes in a ring");
        }
        text += "\n";
        if let Some(events) = &self.events {
            text += &format!("    events: {}\n", events.join(" "));
        }
        if !self.contexts.is_empty() {
            text += &format!("    contexts: {}\n", self.contexts.join(" "));
        }
        text
    }
}

impl Trace {
    /// Describes a trace for people. `whole`: include its setup.
    fn describe(&self, whole: bool) -> String {
        let state = if self.active { "active" } else { "not active" };
        let processes = output::count(self.nr_processes(), "process", "processes");
        let mut text = format!("{}: {state}, {processes}\n", self.name);
        if whole {
            text += &format!("  events: {}\n", self.events.join(" "));
        }
        for trigger in &self.triggers {
            text += &format!("  trigger {}\n", trigger.describe());
        }
        text += &problems(&self.problems);
        for channel in &self.channels {
            text += &channel.describe(whole);
        }
        if !self.processes.is_empty() {
            text += &table(&self.processes);
        }
        text
    }

    fn nr_processes(&self) -> usize {
        let numbers = self.processes.iter().map(|process| process.process);
        numbers.collect::<BTreeSet<_>>().len()
    }
}

/// Reads a process's state in a channel, and what happens to its events when a ring is full.
fn process(channel: &str, path: &Path) -> Option<(&'static str, Process)> {
    let file = unless_gone(path, KernelFile::open(path))?;
    let info = unless_gone(path, file.info())?;
    let mut rings = vec![LttRingPositions::default(); info.channel.nr_rings as usize];
    let flags = file.positions(&mut rings).ok()?;
    let ring_bytes = u64::from(info.channel.subbuf_size) * u64::from(info.channel.subbuf_count);
    // A table is never full of what was not consumed.
    let is_table = info.channel.mode == LTT_MODE_COUNT;
    let waiting = |ring: &LttRingPositions| match is_table {
        true => 0,
        false => ring.head.saturating_sub(ring.consumed).min(ring_bytes),
    };
    let comm = info.comm.split(|&b| b == 0).next().unwrap_or_default();
    let process = Process {
        channel: channel.to_owned(),
        pid: info.pid,
        comm: String::from_utf8_lossy(comm).into_owned(),
        process: info.process,
        dead: flags & LTT_FILE_DEAD != 0,
        rings: rings.len(),
        scope: scope(info.channel.scope),
        ring_bytes,
        fullest: rings.iter().map(waiting).max().unwrap_or(0),
        lost: rings
            .iter()
            .fold(0, |lost, ring| lost.saturating_add(ring.lost)),
        sunk: info.sunk,
    };
    Some((mode(info.channel.mode), process))
}

fn mode(number: u32) -> &'static str {
    match number {
        LTT_MODE_DISCARD => "discard",
        LTT_MODE_OVERWRITE => "overwrite",
        LTT_MODE_BLOCK => "block",
        LTT_MODE_COUNT => "count",
        _ => "?",
    }
}

fn scope(number: u32) -> &'static str {
    match number {
        LTT_SCOPE_CPU => "cpu",
        LTT_SCOPE_THREAD => "thread",
        LTT_SCOPE_GLOBAL => "global",
        LTT_SCOPE_MM_CID => "mm_cid",
        _ => "?",
    }
}
