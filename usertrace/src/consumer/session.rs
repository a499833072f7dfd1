//! All processes of one trace.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use super::notes::Notes;
use super::process::To;
use super::{ConsumerFile, LiveProcess, ProcessError, Recorded};
use crate::ctf::{Clock, ProcessSummary, Version};

/// The channel that describes events.
pub const CONTROL: &str = "control";

/// The channel that each trace has for its events.
pub const MAIN: &str = "main";

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
pub struct SoFar {
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

/// Records the processes of one trace.
#[derive(Debug)]
pub struct Session<F> {
    output: PathBuf,
    notes: Notes,
    hostname: Option<String>,
    version: Version,
    /// Channels of events.
    channels: Vec<String>,
    /// By the name of their files.
    processes: BTreeMap<String, Slot<F>>,
    /// Channels and files that cannot be recorded.
    failed: BTreeSet<(String, String)>,
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
    /// A session that writes to directories below `output`, which must exist, what there is in the trace `of`; or goes on
    /// with one that was killed there.
    ///
    /// # Errors
    /// When another one writes there, or another trace was recorded, or nothing can be written.
    pub fn open(output: &Path, of: &Recorded, hostname: Option<String>) -> io::Result<Self> {
        Ok(Self {
            output: output.to_owned(),
            notes: Notes::open(output, of)?,
            hostname,
            version: Version::default(),
            channels: vec![MAIN.to_owned()],
            processes: BTreeMap::new(),
            failed: BTreeSet::new(),
            summary: SessionSummary::default(),
        })
    }

    /// Changes in which version of CTF the traces are of processes that are found from now on.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Says which channels of events the trace has, if that is not only [`MAIN`]: a process is read to its end when each of
    /// its files is.
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
        let (slot, added) = match (self.processes.remove(name), channel) {
            (None, CONTROL) => (Some(Slot::Described(file)), Ok(())),
            (Some(Slot::Live(mut process)), channel) => {
                let added = match channel {
                    CONTROL => process.set_control(file),
                    channel => process.add_channel(channel, file),
                };
                (Some(Slot::Live(process)), added)
            }
            (before, channel) => match (self.begin(name, channel, file), before) {
                (Ok(Some(mut process)), Some(Slot::Described(control))) => {
                    let added = process.set_control(control);
                    (Some(Slot::Live(process)), added)
                }
                (Ok(Some(process)), _) => (Some(Slot::Live(process)), Ok(())),
                (Ok(None), _) => (Some(Slot::Done), Ok(())),
                (Err(error), before) => (before, Err(error)),
            },
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

    fn begin(
        &self,
        name: &str,
        channel: &str,
        file: F,
    ) -> Result<Option<Box<LiveProcess<F>>>, ProcessError> {
        let to = To {
            output: &self.output,
            notes: &self.notes,
            hostname: self.hostname.as_deref(),
            version: self.version,
        };
        let process = LiveProcess::new(to, name, channel, file, self.channels.len())?;
        Ok(process.map(Box::new))
    }

    /// Reads what there is. `last`: there will be no more. `now` is what the time is.
    ///
    /// # Errors
    /// When a trace cannot be written, or another program consumes it.
    pub fn drain(&mut self, last: bool, now: Instant) -> Result<Progress, SessionError> {
        let mut progress = Progress::default();
        for (name, slot) in &mut self.processes {
            let Slot::Live(process) = slot else {
                continue;
            };
            let ended = match process.drain(last, now) {
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
            if ended && let Slot::Live(process) = std::mem::replace(slot, Slot::Done) {
                if process.has_undescribed() {
                    self.summary.problems.push(format!(
                        "{name}: not all events could be described, as there was no room in the channel {CONTROL}: give it \
                         more or larger sub-buffers before the trace starts"
                    ));
                }
                self.summary.processes.push(process.finish()?);
            }
        }
        Ok(progress)
    }

    /// The clock of the traces, as soon as there is one.
    pub(super) fn clock(&self) -> Option<&Clock> {
        self.processes.values().find_map(|slot| match slot {
            Slot::Live(process) => Some(process.clock()),
            _ => None,
        })
    }

    /// How many processes there were, and are.
    #[must_use]
    pub fn nr_processes(&self) -> usize {
        self.processes.len()
    }

    /// What there is so far, as of the last [`drain`](Self::drain).
    #[must_use]
    pub fn so_far(&self) -> SoFar {
        let mut so_far = SoFar {
            processes: self.processes.len(),
            ..SoFar::default()
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

    /// Reads what there is for the last time.
    ///
    /// # Errors
    /// When a trace cannot be written, or another program consumes it.
    pub fn finish(mut self) -> Result<SessionSummary, SessionError> {
        self.drain(true, Instant::now())?;
        self.notes.remove()?;
        Ok(self.summary)
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
