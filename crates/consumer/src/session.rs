//! The recording of all processes of one trace.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use usertrace_ctf::recording::RecordingNote;
use usertrace_ctf::{Clock, ProcessSummary, Version};

use super::channels::{CONTROL, MAIN};
use super::checkpoint::Checkpoint;
use super::chunks;
use super::file::ConsumerFile;
use super::process::{Destination, LiveProcess, ProcessError};

/// The result of draining all processes once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read.
    pub bytes: u64,
    /// Fill level of the fullest ring, in 1/1000.
    pub fill: u64,
}

/// Statistics of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingProgress {
    /// Number of processes, including those that have ended.
    pub processes: usize,
    /// Events in the trace's files that this recorder wrote.
    pub events: u64,
    /// Size of the trace's files in bytes.
    pub bytes: u64,
    /// Events that were dropped, at least: a gap for lack of memory counts as one.
    pub lost: u64,
}

/// The result of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionSummary {
    /// All processes.
    pub processes: Vec<ProcessSummary>,
    /// Problems of some processes, as text.
    pub problems: Vec<String>,
}

/// Why a recording ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A trace cannot be written.
    #[error("traces cannot be written")]
    Write(#[from] io::Error),
    /// Another program consumes the trace, and each would miss events.
    #[error("another program consumes the channel {channel} of {name}")]
    Busy {
        /// The channel.
        channel: String,
        /// The name of the process's files.
        name: String,
    },
}

/// Completes the recording of a killed recorder whose trace no longer exists, so that it can be
/// read. Does nothing if there is no recording.
///
/// # Errors
/// If another recorder uses the directory, or it cannot be written.
pub fn close_recording(output: &Path) -> io::Result<()> {
    Checkpoint::close(output)
}

/// Records the processes of one trace.
#[derive(Debug)]
pub struct Session<F> {
    checkpoint: Checkpoint,
    hostname: Option<String>,
    version: Version,
    /// Event channels.
    channels: Vec<String>,
    /// By the name of their files.
    processes: BTreeMap<String, Slot<F>>,
    /// Channels and files that cannot be recorded.
    failed: BTreeSet<(String, String)>,
    /// Number of processes whose state was removed.
    forgotten: usize,
    /// The clock of the process that ended last.
    last_clock: Option<Clock>,
    summary: SessionSummary,
}

#[derive(Debug)]
enum Slot<F> {
    /// Only its file of the channel `control` is open.
    Described(F),
    Live(Box<LiveProcess<F>>),
    /// The process has ended, or its files cannot be read.
    Done,
}

impl<F: ConsumerFile> Session<F> {
    /// Starts to record the trace `of` below the existing directory `output`, or continues the
    /// recording there of a recorder that was killed.
    ///
    /// # Errors
    /// If another recorder uses the directory, if it has a recording of another trace, or if it
    /// cannot be written.
    pub fn open(output: &Path, of: &RecordingNote, hostname: Option<String>) -> io::Result<Self> {
        Self::new(Checkpoint::open(output, of, false)?, hostname)
    }

    /// Starts or continues a recording like [`open`](Self::open), in chunks: see
    /// [`rotate`](Self::rotate). The directory may contain finished chunks of other recordings.
    ///
    /// # Errors
    /// As for [`open`](Self::open), or if the recording there has no chunks.
    pub fn open_in_chunks(
        output: &Path,
        of: &RecordingNote,
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

    /// Sets the CTF version for processes that are found from now on.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Sets the event channels of the trace; the default is only [`MAIN`]. The recording of a
    /// process is complete when all its channels are.
    pub fn set_channels(&mut self, names: Vec<String>) {
        self.channels = names;
    }

    /// Whether this file is to be opened and added.
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

    /// Adds a consumer file. All files of a process have the same name.
    ///
    /// # Errors
    /// If its trace cannot be written, or another program consumes it.
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
                // The process's other channels are still recorded.
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

    /// Drains all rings. `last` means that no more data will come. `now` is the current time.
    ///
    /// # Errors
    /// If a trace cannot be written, or another program consumes it. A failed write can be retried:
    /// partial writes are removed then, and unwritten events stay in the rings.
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
                    // Other errors are about the process's files, which are no longer needed.
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

    /// The clock of the traces as known now, once there is one.
    #[must_use]
    pub fn clock(&self) -> Option<Clock> {
        let live = self.processes.values().find_map(|slot| match slot {
            Slot::Live(process) => Some(process.clock()),
            _ => None,
        });
        live.or(self.last_clock)
    }

    /// Number of processes, including those that have ended.
    #[must_use]
    pub fn nr_processes(&self) -> usize {
        self.processes.len()
    }

    /// Statistics as of the last [`drain`](Self::drain).
    #[must_use]
    pub fn progress(&self) -> RecordingProgress {
        let mut progress = RecordingProgress {
            processes: self.forgotten + self.processes.len(),
            ..RecordingProgress::default()
        };
        let mut add = |process: &ProcessSummary| {
            progress.events += process.events;
            progress.bytes += process.bytes;
            progress.lost = progress.lost.saturating_add(process.least_lost());
        };
        self.summary.processes.iter().for_each(&mut add);
        for slot in self.processes.values() {
            if let Slot::Live(process) = slot {
                add(&process.summary());
            }
        }
        progress
    }

    /// Whether a process still runs, or was not read completely.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.processes
            .values()
            .any(|slot| matches!(slot, Slot::Live(_)))
    }

    /// Number of processes whose rings have data that is in no file, and the size of that data, as
    /// of the last drain.
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

    /// Ends the current chunk after writing everything that was read. Nothing is written to it
    /// afterwards. Returns its path, or `None` if it is empty or there are no chunks. The switch is
    /// atomic if this process is killed.
    ///
    /// # Errors
    /// If a file cannot be written. A retry is possible, even after further events were read.
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

    /// Completes the traces of everything that was read, so that readers find all that they need.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn complete(&mut self) -> Result<(), SessionError> {
        let to = Destination {
            checkpoint: &self.checkpoint,
            hostname: self.hostname.as_deref(),
            version: self.version,
        };
        for slot in self.processes.values_mut() {
            if let Slot::Live(process) = slot {
                // The next drain reports errors about the process's files.
                if let Err(ProcessError::Write(error)) = process.complete(to) {
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// The size of the current chunk in bytes; 0 without chunks.
    ///
    /// # Errors
    /// If its directory cannot be read.
    pub fn chunk_size(&self) -> io::Result<u64> {
        let directory = self.checkpoint.chunk_directory();
        directory.map_or(Ok(0), |directory| chunks::size(&directory))
    }

    /// The start of the current chunk, in seconds since 1970; `None` without chunks.
    #[must_use]
    pub fn chunk_begin(&self) -> Option<u64> {
        self.checkpoint.chunk_begin()
    }

    /// Takes the summaries and problems of processes that have ended since the last call. For
    /// recordings that do not end.
    pub fn take_summary(&mut self) -> SessionSummary {
        std::mem::take(&mut self.summary)
    }

    /// Removes the state of processes that have ended and that the kernel no longer knows. For
    /// recordings that do not end.
    ///
    /// # Errors
    /// If the checkpoint cannot be read, or removed.
    pub fn forget(&mut self, exists: &dyn Fn(&str) -> bool) -> io::Result<()> {
        let before = self.processes.len();
        self.processes
            .retain(|name, slot| !matches!(slot, Slot::Done) || exists(name));
        self.forgotten += before - self.processes.len();
        self.failed.retain(|(_, name)| exists(name));
        self.checkpoint.remove_ended(exists)
    }

    /// Drains all rings for the last time, and completes the recording. The session must not be
    /// used afterwards.
    ///
    /// # Errors
    /// If a trace cannot be written, which can be retried, or another program consumes it.
    pub fn finish(&mut self) -> Result<SessionSummary, SessionError> {
        self.drain(true, Instant::now())?;
        self.checkpoint.next_chunk()?;
        self.checkpoint.remove()?;
        Ok(self.take_summary())
    }

    /// Adds a problem about a file to the summary.
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
