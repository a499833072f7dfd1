//! Recording the kernel's events, in a thread of its own.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use usertrace_sys::uapi::{LTT_CHANNEL_MAIN, LttClockSync};

use super::FtraceError;
use super::format::Format;
use super::page;
use super::ring::{Lost, Ring};
use super::tracefs::{self, Instance, Tracefs};
use crate::ctf::{
    Clock, StreamChannel, StreamOf, StreamState, StreamWriter, TraceInfo, TraceOf, TraceWriter,
    Version, new_uuid,
};
use crate::metadata::{Contexts, Description};
use crate::runtime::filter::Patterns;
use crate::writer::Scope;

/// What the trace's directory is called, and its streams' files.
const DIRECTORY: &str = "kernel";
const CHANNEL: &str = "cpu";
/// What each event says besides its fields: the thread in which it happened; 0 is that of an idle CPU.
const CONTEXTS: &[u8] = b"@1 s32 tid";
/// Where a record has that, and its event's id.
const PID: usize = 4;
/// Between two looks at the rings.
const WAIT: Duration = Duration::from_millis(20);
/// How long to try to write what is left, if that fails.
const STOPPING: Duration = Duration::from_secs(2);

/// Which events of the kernel's are to be recorded.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    /// Patterns of `SYSTEM:NAME`, as in filters of traces.
    pub events: Vec<String>,
    /// KiB of each CPU's ring; None: as many as the kernel gives.
    pub buffer_kib: Option<u32>,
}

/// The trace that they are to be.
#[derive(Clone, Copy, Debug)]
pub struct KernelTrace<'a> {
    /// Its name.
    pub name: &'a str,
    /// These processes and their children only, if there are some.
    pub pids: &'a [u32],
    /// Below which directory it is written.
    pub output: &'a Path,
    /// The machine.
    pub hostname: Option<&'a str>,
    /// In which version of CTF.
    pub version: Version,
}

/// What was recorded of the kernel's events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelSummary {
    /// Where the trace is; none is made for no event.
    pub directory: PathBuf,
    /// The clock of ftrace that it is on.
    pub clock: &'static str,
    /// Kinds of events that were asked for.
    pub event_kinds: usize,
    /// Events in the trace, of those that this recorder wrote.
    pub events: u64,
    /// Events that found no room, or were overwritten before they were read.
    pub lost: u64,
    /// Bytes of the trace's files.
    pub bytes: u64,
    /// What went wrong.
    pub problems: Vec<String>,
}

/// The kernel's events, while they are recorded. They are no longer when it is dropped.
#[derive(Debug)]
pub struct KernelEvents {
    thread: Option<JoinHandle<KernelSummary>>,
    shared: Arc<Shared>,
    instance: Instance,
    directory: PathBuf,
    has_clock: bool,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// The clock of the traces beside it, as soon as it is known.
    clock: Mutex<Option<Clock>>,
}

impl KernelEvents {
    /// Makes all ready. Where a recording of the trace was killed, it goes on with that one's events.
    ///
    /// # Errors
    /// When tracefs cannot be used, or there is no such event, or nothing can be written.
    pub fn new(options: &KernelOptions, to: &KernelTrace<'_>) -> Result<Self, FtraceError> {
        let tracefs = Tracefs::find()?;
        let patterns = Patterns::new(&options.events)?;
        let mut events = tracefs.events()?;
        events.retain(|event| patterns.accept(event));
        if events.is_empty() {
            return Err(FtraceError::NoEvent {
                patterns: options.events.join(","),
                list: tracefs.path().join("available_events"),
            });
        }
        let instance = tracefs.instance(to.name)?;
        if instance.is_old {
            // Those that it has enabled are what its files have.
            events = instance.enabled()?;
        } else {
            prepare(&instance, options, to.pids, &events)?;
        }
        let formats = events.iter().map(|event| instance.format(event));
        let formats = formats.collect::<Result<Vec<_>, _>>()?;
        let directory = to.output.join(DIRECTORY);
        let writing = |source| FtraceError::Write {
            path: directory.clone(),
            source,
        };
        let start = instance.clock.sync();
        let info = TraceInfo {
            trace_name: to.name.to_owned(),
            of: TraceOf::Kernel {
                release: proc("osrelease"),
                version: proc("version"),
            },
            hostname: to.hostname.map(str::to_owned),
        };
        let clock_now = clock(instance.clock, &start);
        let begun = begin(&directory, info, clock_now, to.version, &formats);
        let (trace, streams) = begun.map_err(writing)?;
        let mut cpus = Vec::new();
        for (cpu, path) in instance.cpus()? {
            let ring = Ring::open(&path).map_err(|source| FtraceError::File { path, source })?;
            cpus.push(Cpu::new(cpu, ring, &streams));
        }
        let shared = Arc::<Shared>::default();
        let worker = Worker {
            trace,
            clock: instance.clock,
            start,
            is_dated: false,
            formats: formats
                .into_iter()
                .map(|format| (format.event.id, format))
                .collect(),
            cpus,
            shared: Arc::clone(&shared),
            problems: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("kernel-events".to_owned())
            .spawn(move || worker.run());
        let thread = thread.map_err(|source| FtraceError::File {
            path: instance.path().to_owned(),
            source,
        })?;
        Ok(Self {
            thread: Some(thread),
            shared,
            instance,
            directory,
            has_clock: false,
        })
    }

    /// From now on events are recorded.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&self) -> Result<(), FtraceError> {
        self.instance.set("tracing_on", "1")
    }

    /// The clock of the traces beside this one: what has the same time there is to have it here.
    pub fn set_clock(&mut self, clock: &Clock) {
        self.has_clock = true;
        let mut of_others = self
            .shared
            .clock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *of_others = Some(*clock);
    }

    /// Was it told?
    #[must_use]
    pub fn has_clock(&self) -> bool {
        self.has_clock
    }

    /// From now on events are not recorded; what there was before will be, by [`KernelEvents::finish`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop(&self) -> Result<(), FtraceError> {
        self.instance.set("tracing_on", "0")
    }

    /// Writes what is left, and gives all back to the kernel.
    #[must_use]
    pub fn finish(mut self) -> KernelSummary {
        self.join().unwrap_or_default()
    }

    /// Ends, and leaves to a recording that goes on with this one what could not be written.
    pub fn keep(mut self) {
        self.instance.stays = true;
        self.join();
    }

    fn join(&mut self) -> Option<KernelSummary> {
        let thread = self.thread.take()?;
        // Pairs with the thread's acquiring load: it sees that the instance was stopped.
        self.shared.stop.store(true, Ordering::Release);
        thread.thread().unpark();
        let panicked = |_| KernelSummary {
            problems: vec!["the thread that records the kernel's events panicked".to_owned()],
            ..KernelSummary::default()
        };
        Some(thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for KernelEvents {
    fn drop(&mut self) {
        // The thread has the rings' files open, and the instance cannot be removed before it ends.
        let _ = self.stop();
        let unfinished = self.join();
        if unfinished.is_some_and(|summary| summary.events == 0) && !self.instance.is_old {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Sets an instance up that is new.
fn prepare(
    instance: &Instance,
    options: &KernelOptions,
    pids: &[u32],
    events: &[String],
) -> Result<(), FtraceError> {
    if let Some(kib) = options.buffer_kib {
        instance.set("buffer_size_kb", &kib.to_string())?;
    }
    if !pids.is_empty() {
        // For the kernel, threads have ids, and those that are yet to come count as children.
        let threads: Vec<_> = pids.iter().flat_map(|&pid| threads(pid)).collect();
        instance.set("options/event-fork", "1")?;
        instance.set("set_event_pid", &threads.join(" "))?;
    }
    events.iter().try_for_each(|event| instance.enable(event))
}

/// Ids of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let names = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok());
    names.collect()
}

/// Something that the kernel says of itself.
fn proc(file: &str) -> String {
    let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(file));
    text.unwrap_or_default().trim_end().to_owned()
}

/// What is known of the clock by now, if nobody else knows better.
fn clock(clock: tracefs::Clock, start: &LttClockSync) -> Clock {
    Clock::new(start, &[clock.sync()])
}

/// Begins the trace, or goes on with the one that there is.
fn begin(
    directory: &Path,
    info: TraceInfo,
    clock: Clock,
    version: Version,
    formats: &[Format],
) -> io::Result<(TraceWriter, Streams)> {
    crate::ctf::mend(directory)?;
    let (uuid, streams) = streams(directory)?;
    let uuid = match uuid {
        Some(uuid) => uuid,
        None => new_uuid()?,
    };
    let mut trace = TraceWriter::resume(directory, info, clock, uuid, Vec::new())?;
    trace.set_version(version);
    trace.declare_contexts(Scope::Cpu, &contexts())?;
    for format in formats {
        trace.declare(&format.event)?;
    }
    Ok((trace, streams))
}

/// Where the files stand that there are, by their names.
type Streams = HashMap<OsString, StreamState>;

/// The streams in a directory, and the UUID of which all are.
fn streams(directory: &Path) -> io::Result<(Option<[u8; 16]>, Streams)> {
    let (mut uuid, mut streams) = (None, Streams::new());
    let files = match fs::read_dir(directory) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((uuid, streams)),
        Err(error) => return Err(error),
    };
    for file in files {
        let file = file?;
        if let Some((of, state)) = StreamState::of_file(&file.path())? {
            uuid = Some(of);
            streams.insert(file.file_name(), state);
        }
    }
    Ok((uuid, streams))
}

fn contexts() -> Contexts {
    match Description::parse(CONTEXTS) {
        Ok(Description::Contexts(contexts)) => contexts,
        other => unreachable!("{other:?}"),
    }
}

/// A CPU, and its stream.
#[derive(Debug)]
struct Cpu {
    number: u32,
    ring: Ring,
    /// None: there was no event yet, and it has no file.
    stream: Option<StreamWriter>,
    /// Where that stands, for who has to begin a packet again.
    state: Option<StreamState>,
    /// What is not after this time is in the file already.
    known: Option<u64>,
    /// A page that could not be written yet.
    held: Option<super::ring::Part>,
    events: u64,
    lost: u64,
}

impl Cpu {
    fn new(number: u32, ring: Ring, streams: &Streams) -> Self {
        let file = stream_of(number).file_name(&channel());
        let state = streams.get(OsStr::new(&file)).copied();
        Self {
            number,
            ring,
            stream: None,
            known: state.map(|state| state.time),
            lost: state.map_or(0, |state| state.discarded),
            state,
            held: None,
            events: 0,
        }
    }
}

fn channel() -> StreamChannel {
    let mut channel = StreamChannel::new(CHANNEL, LTT_CHANNEL_MAIN as u32);
    channel.set_contexts();
    channel
}

fn stream_of(cpu: u32) -> StreamOf {
    StreamOf::Cpu(cpu)
}

struct Worker {
    trace: TraceWriter,
    clock: tracefs::Clock,
    start: LttClockSync,
    /// The clock is that of the other traces.
    is_dated: bool,
    /// By the ids of events.
    formats: HashMap<u16, Format>,
    cpus: Vec<Cpu>,
    shared: Arc<Shared>,
    problems: Vec<String>,
}

impl Worker {
    fn run(mut self) -> KernelSummary {
        let mut stopping: Option<Instant> = None;
        loop {
            // Pairs with the releasing store of who stopped the instance: what is read from here on is all there is.
            if self.shared.stop.load(Ordering::Acquire) {
                stopping.get_or_insert_with(Instant::now);
            }
            let (mut progress, mut failed) = (false, None);
            for cpu in &mut self.cpus {
                match cpu.drain(&self.trace, &self.formats) {
                    Ok(some) => progress |= some,
                    Err(error) => failed = Some((cpu.number, error)),
                }
            }
            if let Err(error) = self.take_clock() {
                failed.get_or_insert((0, error));
            }
            match (stopping, failed) {
                (None, _) => std::thread::park_timeout(WAIT),
                (Some(_), None) if progress => {}
                (Some(_), None) => break,
                (Some(since), Some(_)) if since.elapsed() < STOPPING => std::thread::sleep(WAIT),
                (Some(_), Some((cpu, error))) => {
                    let directory = self.trace.directory().display();
                    self.problems.push(format!(
                        "{directory}: events of CPU {cpu} cannot be written: {error}"
                    ));
                    break;
                }
            }
        }
        self.finish()
    }

    /// Has the clock of the other traces, if they have one by now.
    fn take_clock(&mut self) -> io::Result<()> {
        if self.is_dated || self.clock != tracefs::Clock::Counter {
            return Ok(());
        }
        let clock = *self
            .shared
            .clock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(clock) = clock {
            self.trace.set_clock(clock)?;
            self.is_dated = true;
        }
        Ok(())
    }

    fn finish(mut self) -> KernelSummary {
        let mut failed = None;
        let mut summary = KernelSummary {
            clock: self.clock.name(),
            event_kinds: self.formats.len(),
            ..KernelSummary::default()
        };
        for cpu in &mut self.cpus {
            let lost = cpu.ring.lost_at_the_end();
            if let Err(error) = cpu
                .lose(&self.trace, lost)
                .and_then(|()| match &mut cpu.stream {
                    Some(stream) => stream.finish(),
                    None => Ok(()),
                })
            {
                failed.get_or_insert(error);
            }
            summary.events += cpu.events;
            summary.lost += cpu.lost;
            summary.bytes += cpu.stream.as_ref().map_or(0, StreamWriter::written);
        }
        if !self.is_dated {
            // What was measured over all of the time is better than what was at the start.
            let measured = self.trace.set_clock(clock(self.clock, &self.start));
            failed = failed.or(measured.err());
        }
        summary.bytes += self.trace.metadata_len();
        if self
            .cpus
            .iter()
            .all(|cpu| cpu.stream.is_none() && cpu.state.is_none())
        {
            // Readers want no trace without a stream.
            let _ = fs::remove_dir_all(self.trace.directory());
            summary.bytes = 0;
        }
        self.trace.directory().clone_into(&mut summary.directory);
        if let Some(error) = failed {
            self.problems
                .push(format!("{}: {error}", summary.directory.display()));
        }
        summary.problems = self.problems;
        summary
    }
}

impl Cpu {
    /// Writes what there is in the ring. Was there something?
    fn drain(&mut self, trace: &TraceWriter, formats: &HashMap<u16, Format>) -> io::Result<bool> {
        let mut some = false;
        // No more than it may have now: what is written meanwhile is for the next time.
        for _ in 0..self.ring.nr_pages() {
            let part = match self.held.take() {
                Some(part) => part,
                None => match self.ring.next()? {
                    Some(part) => part,
                    None => break,
                },
            };
            some = true;
            if let Err(error) = self.write(trace, formats, part) {
                // From the end of the last packet, when there is room again.
                self.stream = None;
                self.held = Some(part);
                return Err(error);
            }
        }
        Ok(some)
    }

    /// Writes a part of a page. A recorder that is killed leaves whole packets, and the next one finds the page again.
    fn write(
        &mut self,
        trace: &TraceWriter,
        formats: &HashMap<u16, Format>,
        part: super::ring::Part,
    ) -> io::Result<()> {
        self.lose(trace, part.lost)?;
        let known = self.known;
        let mut events = 0;
        let mut stream = self.stream(trace)?;
        let mut payload = Vec::new();
        for record in page::records(self.ring.page(), part.to) {
            let is_known =
                record.offset < part.from || known.is_some_and(|known| record.time <= known);
            let id = record.bytes.first_chunk().map(|id| u16::from_ne_bytes(*id));
            let Some(format) = id.and_then(|id| formats.get(&id)).filter(|_| !is_known) else {
                continue;
            };
            let pid = record
                .bytes
                .get(PID..)
                .and_then(|bytes| bytes.first_chunk());
            payload.clear();
            format.payload(record.bytes, &mut payload);
            stream.event(
                format.event.id,
                record.time,
                pid.unwrap_or(&[0; 4]),
                &payload,
            )?;
            events += 1;
        }
        stream.flush()?;
        self.state = Some(stream.state());
        self.stream = Some(stream);
        self.events += events;
        Ok(())
    }

    /// Tells of events that are missing here.
    fn lose(&mut self, trace: &TraceWriter, lost: Lost) -> io::Result<()> {
        let more = match lost {
            Lost::InAll(count) => count.saturating_sub(self.lost),
            Lost::More(count) => count,
            Lost::Some => {
                let mut stream = self.stream(trace)?;
                stream.overwrite(1)?;
                self.stream = Some(stream);
                return Ok(());
            }
        };
        if more > 0 {
            let mut stream = self.stream(trace)?;
            stream.discard(more);
            self.lost += more;
            self.stream = Some(stream);
        }
        Ok(())
    }

    /// The stream: a file that is begun now, or where it stood.
    fn stream(&mut self, trace: &TraceWriter) -> io::Result<StreamWriter> {
        match self.stream.take() {
            Some(stream) => Ok(stream),
            None => trace.resume_stream(&channel(), stream_of(self.number), self.state.as_ref()),
        }
    }
}
