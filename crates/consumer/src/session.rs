//! All processes of one trace.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use usertrace_ctf::recording::Recorded;
use usertrace_ctf::{Clock, ProcessSummary, Version};

use super::channels::{CONTROL, MAIN};
use super::checkpoint::Checkpoint;
use super::chunks;
use super::file::ConsumerFile;
use super::process::{Destination, LiveProcess, ProcessError};

/// What a round of draining did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read.
    pub bytes: u64,
    /// How full the fullest ring was, in 1/1000.
    pub fill: u64,
}

/// What there is of a recording that goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingProgress {
    /// How many processes there were, and are.
    pub processes: usize,
    /// Events that are in the trace's files, of those that this recorder wrote.
    pub events: u64,
    /// Bytes of the trace's files.
    pub bytes: u64,
    /// Events that found no room.
    pub lost: u64,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionSummary {
    /// Each process.
    pub processes: Vec<ProcessSummary>,
    /// What went wrong with some of them.
    pub problems: Vec<String>,
}

/// Why no more is recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A trace cannot be written.
    #[error("traces cannot be written")]
    Write(#[from] io::Error),
    /// Another program consumes the trace. What both have would not be whole.
    #[error("another program consumes the channel {channel} of {name}")]
    Busy {
        /// The channel.
        channel: String,
        /// The name of the process's files.
        name: String,
    },
}

/// Ends a recording whose recorder was killed, and whose trace is gone: what there is of it is all
/// that there will be, and can be read. Nothing happens where there is none.
///
/// # Errors
/// When another one records there, or something cannot be written.
pub fn close_recording(output: &Path) -> io::Result<()> {
    Checkpoint::close(output)
}

/// Records the processes of one trace.
#[derive(Debug)]
pub struct Session<F> {
    checkpoint: Checkpoint,
    hostname: Option<String>,
    version: Version,
    /// Channels of events.
    channels: Vec<String>,
    /// By the name of their files.
    processes: BTreeMap<String, Slot<F>>,
    /// Channels and files that cannot be recorded.
    failed: BTreeSet<(String, String)>,
    /// How many processes it has forgotten.
    forgotten: usize,
    /// As the last process had it that has ended.
    last_clock: Option<Clock>,
    summary: SessionSummary,
}

#[derive(Debug)]
enum Slot<F> {
    /// Only the descriptions are there.
    Described(F),
    Live(Box<LiveProcess<F>>),
    /// It has ended, or cannot be read any more.
    Done,
}

impl<F: ConsumerFile> Session<F> {
    /// A session that writes to directories below `output`, which must exist, what there is in the
    /// trace `of`; or goes on with one that was killed there.
    ///
    /// # Errors
    /// When another one writes there, or another trace was recorded, or nothing can be written.
    pub fn open(output: &Path, of: &Recorded, hostname: Option<String>) -> io::Result<Self> {
        Self::new(Checkpoint::open(output, of, false)?, hostname)
    }

    /// Likewise, in chunks: see [`rotate`](Self::rotate). There may be finished ones of other
    /// recordings in the directory.
    ///
    /// # Errors
    /// As [`open`](Self::open), or when what goes on there has no chunks.
    pub fn open_in_chunks(
        output: &Path,
        of: &Recorded,
        hostname: Option<String>,
    ) -> io::Result<Self> {
        Self::new(Checkpoint::open(output, of, true)?, hostname)
    }

    fn new(checkpoint: Checkpoint, hostname: Option<String>) -> io::Result<Self> {
        Ok(Self {
            checkpoint,
            hostname,
            version: Version::default(),
            channels: vec![MAIN.to_owned()],
            processes: BTreeMap::new(),
            failed: BTreeSet::new(),
            forgotten: 0,
            last_clock: None,
            summary: SessionSummary::default(),
        })
    }

    /// Changes in which version of CTF the traces are of processes that are found from now on.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Says which channels of events the trace has, if that is not only [`MAIN`]: a process is read
    /// to its end when each of its files is.
    pub fn set_channels(&mut self, names: Vec<String>) {
        self.channels = names;
    }

    /// Is this file new to it?
    #[must_use]
    pub fn wants(&self, channel: &str, name: &str) -> bool {
        if self.failed.contains(&(channel.to_owned(), name.to_owned())) {
            return false;
        }
        match self.processes.get(name) {
            None => true,
            Some(Slot::Described(_)) => channel != CONTROL,
            Some(Slot::Live(process)) => !process.has(channel),
            Some(Slot::Done) => false,
        }
    }

    /// Takes a file. Those of one process have the same name.
    ///
    /// # Errors
    /// When its trace cannot be written, or another program consumes it.
    pub fn add(&mut self, channel: &str, name: &str, file: F) -> Result<(), SessionError> {
        if !self.wants(channel, name) {
            return Ok(());
        }
        let before = self.processes.remove(name);
        let to = self.to();
        let (slot, added) = match (before, channel) {
            (None, CONTROL) => (Some(Slot::Described(file)), Ok(())),
            (Some(Slot::Live(mut process)), channel) => {
                let added = match channel {
                    CONTROL => process.set_control(to, file),
                    channel => process.add_channel(to, channel, file),
                };
                (Some(Slot::Live(process)), added)
            }
            (before, channel) => {
                let nr_channels = self.channels.len();
                let process = LiveProcess::new(to, name, channel, file, nr_channels);
                match (process, before) {
                    (Ok(Some(mut process)), Some(Slot::Described(control))) => {
                        let added = process.set_control(to, control);
                        (Some(Slot::Live(Box::new(process))), added)
                    }
                    (Ok(Some(process)), _) => (Some(Slot::Live(Box::new(process))), Ok(())),
                    (Ok(None), _) => (Some(Slot::Done), Ok(())),
                    (Err(error), before) => (before, Err(error)),
                }
            }
        };
        if let Some(slot) = slot {
            self.processes.insert(name.to_owned(), slot);
        }
        match added {
            Ok(()) => Ok(()),
            Err(ProcessError::File(error)) => {
                // The process's other channels are recorded nevertheless.
                self.failed.insert((channel.to_owned(), name.to_owned()));
                self.problem(&format!("{channel}/{name}"), &error);
                Ok(())
            }
            Err(ProcessError::Busy(channel)) => Err(busy(channel, name)),
            Err(ProcessError::Write(error)) => Err(error.into()),
        }
    }

    fn to(&self) -> Destination<'_> {
        Destination {
            checkpoint: &self.checkpoint,
            hostname: self.hostname.as_deref(),
            version: self.version,
        }
    }

    /// Reads what there is. `last`: there will be no more. `now` is what the time is.
    ///
    /// # Errors
    /// When a trace cannot be written, or another program consumes it. In the first case, it may be
    /// tried again: what was not written as a whole is taken away then, and what was not written
    /// stays in the rings until it is.
    pub fn drain(&mut self, last: bool, now: Instant) -> Result<Progress, SessionError> {
        let mut progress = Progress::default();
        let to = Destination {
            checkpoint: &self.checkpoint,
            hostname: self.hostname.as_deref(),
            version: self.version,
        };
        for (name, slot) in &mut self.processes {
            let Slot::Live(process) = slot else {
                continue;
            };
            let ended = match process.drain(to, last, now) {
                Ok(drained) => {
                    progress.bytes += drained.bytes;
                    progress.fill = progress.fill.max(drained.fill);
                    drained.ended
                }
                Err(ProcessError::File(error)) => {
                    self.summary.problems.push(format!("{name}: {error}"));
                    true
                }
                Err(ProcessError::Busy(channel)) => return Err(busy(channel, name)),
                Err(ProcessError::Write(error)) => return Err(error.into()),
            };
            if ended {
                let summary = match process.finish(to) {
                    Err(ProcessError::Write(error)) => return Err(error.into()),
                    // It touches files of the process no more.
                    finished => finished.unwrap_or_default(),
                };
                if process.has_undescribed() {
                    self.summary.problems.push(format!(
                        "{name}: not all events could be described, as there was no room in the channel {CONTROL}: give it \
                         more or larger sub-buffers before the trace starts"
                    ));
                }
                if process.has_unstable_clock() {
                    self.summary.problems.push(format!(
                        "{name}: the clock of the trace became unstable while it recorded: events of different CPUs may \
                         be in a wrong order; a new trace has another clock"
                    ));
                }
                self.summary.processes.push(summary);
                self.last_clock = Some(process.clock());
                *slot = Slot::Done;
            }
        }
        Ok(progress)
    }

    /// The clock of the traces, as soon as there is one, as well as it is known by now.
    #[must_use]
    pub fn clock(&self) -> Option<Clock> {
        let live = self.processes.values().find_map(|slot| match slot {
            Slot::Live(process) => Some(process.clock()),
            _ => None,
        });
        live.or(self.last_clock)
    }

    /// How many processes there were, and are.
    #[must_use]
    pub fn nr_processes(&self) -> usize {
        self.processes.len()
    }

    /// What there is so far, as of the last [`drain`](Self::drain).
    #[must_use]
    pub fn so_far(&self) -> RecordingProgress {
        let mut so_far = RecordingProgress {
            processes: self.forgotten + self.processes.len(),
            ..RecordingProgress::default()
        };
        let mut add = |process: &ProcessSummary| {
            so_far.events += process.events;
            so_far.bytes += process.bytes;
            so_far.lost = so_far.lost.saturating_add(process.lost);
        };
        self.summary.processes.iter().for_each(&mut add);
        for slot in self.processes.values() {
            if let Slot::Live(process) = slot {
                add(&process.summary());
            }
        }
        so_far
    }

    /// Is there a process that still runs, or was not read to its end?
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.processes
            .values()
            .any(|slot| matches!(slot, Slot::Live(_)))
    }

    /// Processes whose rings have something that is in no file yet, and how many bytes that is, as
    /// of the last look at them.
    #[must_use]
    pub fn unwritten(&self) -> (usize, u64) {
        let live = self.processes.values().filter_map(|slot| match slot {
            Slot::Live(process) => Some(process.unwritten()),
            Slot::Described(_) | Slot::Done => None,
        });
        let with = live.filter(|&bytes| bytes > 0);
        with.fold((0, 0), |(processes, sum), bytes| {
            (processes + 1, sum + bytes)
        })
    }

    /// Ends the chunk that is written, with what was read so far: from now on, nothing is written
    /// there. Gives where it is; none if there is nothing in it, or there are no chunks. Whoever is
    /// killed meanwhile has ended it, or has not.
    ///
    /// # Errors
    /// When something cannot be written. It may be tried again, and events may be read before.
    pub fn rotate(&mut self) -> Result<Option<PathBuf>, SessionError> {
        let Some(directory) = self.checkpoint.chunk_directory() else {
            return Ok(None);
        };
        self.complete()?;
        if !directory.exists() {
            return Ok(None);
        }
        Ok(self.checkpoint.next_chunk()?)
    }

    /// Writes all that is to be said of what was read: nothing that readers need is missing in the
    /// files then.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn complete(&mut self) -> Result<(), SessionError> {
        let to = Destination {
            checkpoint: &self.checkpoint,
            hostname: self.hostname.as_deref(),
            version: self.version,
        };
        for slot in self.processes.values_mut() {
            if let Slot::Live(process) = slot {
                // What else is wrong with its files the next look at them tells.
                if let Err(ProcessError::Write(error)) = process.complete(to) {
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Bytes of the chunk that is written; 0 if there are no chunks.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn chunk_size(&self) -> io::Result<u64> {
        let directory = self.checkpoint.chunk_directory();
        directory.map_or(Ok(0), |directory| chunks::size(&directory))
    }

    /// When the chunk that is written was begun, in seconds since 1970; none: there are no chunks.
    #[must_use]
    pub fn chunk_begin(&self) -> Option<u64> {
        self.checkpoint.chunk_begin()
    }

    /// Takes the summaries of the processes that have ended since the last time, and what went
    /// wrong: for recordings that do not end.
    pub fn take_summary(&mut self) -> SessionSummary {
        std::mem::take(&mut self.summary)
    }

    /// Forgets processes that have ended, and of which the kernel has nothing any more: for
    /// recordings that do not end.
    ///
    /// # Errors
    /// When checkpoint cannot be read, or removed.
    pub fn forget(&mut self, exists: &dyn Fn(&str) -> bool) -> io::Result<()> {
        let before = self.processes.len();
        self.processes
            .retain(|name, slot| !matches!(slot, Slot::Done) || exists(name));
        self.forgotten += before - self.processes.len();
        self.failed.retain(|(_, name)| exists(name));
        self.checkpoint.remove_ended(exists)
    }

    /// Reads what there is for the last time. Nothing is to be done with it after that.
    ///
    /// # Errors
    /// When a trace cannot be written, which may be tried again, or another program consumes it.
    pub fn finish(&mut self) -> Result<SessionSummary, SessionError> {
        self.drain(true, Instant::now())?;
        self.checkpoint.next_chunk()?;
        self.checkpoint.remove()?;
        Ok(self.take_summary())
    }

    /// Something went wrong with a file.
    pub fn problem(&mut self, name: &str, error: &dyn std::error::Error) {
        self.summary.problems.push(format!("{name}: {error}"));
    }
}

fn busy(channel: String, name: &str) -> SessionError {
    SessionError::Busy {
        channel,
        name: name.to_owned(),
    }
}
