//! The thread that writes the kernel's events.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use usertrace_ctf::{Clock, StreamState, StreamWriter, TraceInfo, TraceWriter, Version, new_uuid};
use usertrace_ring::schema::{Contexts, Description};
use usertrace_sys::Scope;
use usertrace_sys::uapi::LttClockSync;

use super::cpu::{Cpu, Streams};
use super::format::Format;
use super::summary::KernelSummary;
use super::tracefs;
use crate::host_clock::host_clock;

/// The context of each event: the id of its thread, or 0 for the idle thread.
const CONTEXTS: &[u8] = b"@1 s32 tid";
/// Polling interval of the rings.
const WAIT: Duration = Duration::from_millis(20);
/// How long to retry writing the remaining events after an error.
const STOPPING: Duration = Duration::from_secs(2);

/// State that the thread shares with its owner.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The kernel has stopped recording.
    pub(super) stop: AtomicBool,
    /// The clock of the programs' traces, as known now.
    pub(super) clock: Mutex<Option<Clock>>,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) trace: TraceWriter,
    pub(super) clock: tracefs::Clock,
    pub(super) start: LttClockSync,
    /// The clock is that of the programs' traces.
    pub(super) is_dated: bool,
    /// By event id.
    pub(super) formats: HashMap<u16, Format>,
    pub(super) cpus: Vec<Cpu>,
    pub(super) shared: Arc<Shared>,
    pub(super) problems: Vec<String>,
}

impl Worker {
    pub(super) fn run(mut self) -> KernelSummary {
        let mut stopping: Option<Instant> = None;
        loop {
            // Pairs with the release store of the owner, after it stopped the instance: what the
            // rings contain from here on is everything.
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

    /// Adopts the clock of the programs' traces, if it is known.
    fn take_clock(&mut self) -> io::Result<()> {
        if self.clock != tracefs::Clock::Counter {
            return Ok(());
        }
        let clock = *self
            .shared
            .clock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(clock) = clock {
            if clock != *self.trace.clock() {
                self.trace.set_clock(clock)?;
            }
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
            // A measurement over the whole recording is more accurate than the one at the start.
            let measured = self.trace.set_clock(clock(self.clock, &self.start));
            failed = failed.or(measured.err());
        }
        summary.bytes += self.trace.metadata_len();
        if self
            .cpus
            .iter()
            .all(|cpu| cpu.stream.is_none() && cpu.state.is_none())
        {
            // Trace readers reject a trace without streams.
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

/// Starts the trace, or continues the existing one.
pub(super) fn begin(
    directory: &Path,
    info: TraceInfo,
    clock: Clock,
    version: Version,
    formats: &[Format],
) -> io::Result<(TraceWriter, Streams)> {
    usertrace_ctf::mend(directory)?;
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

/// The states of the streams in a directory, and their common UUID.
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

/// The clock as measured so far, for use without programs' traces.
pub(super) fn clock(clock: tracefs::Clock, start: &LttClockSync) -> Clock {
    host_clock(start, &[clock.sync()])
}
