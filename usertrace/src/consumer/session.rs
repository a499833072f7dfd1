//! All processes of one trace.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use super::{ConsumerFile, LiveProcess, ProcessError};
use crate::ctf::ProcessSummary;

/// A channel of this version's traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelName {
    /// Descriptions of events.
    Control,
    /// Events.
    Main,
}

impl ChannelName {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Control, Self::Main];

    /// Name of its directory.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Main => "main",
        }
    }
}

/// What a round of draining did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read.
    pub bytes: u64,
    /// How full the fullest ring was, in 1/1000.
    pub fill: u64,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionSummary {
    /// Each process.
    pub processes: Vec<ProcessSummary>,
    /// What went wrong with some of them.
    pub problems: Vec<String>,
}

/// Records the processes of one trace.
#[derive(Debug)]
pub struct Session<F> {
    output: PathBuf,
    hostname: Option<String>,
    /// By the name of their files.
    processes: BTreeMap<String, Slot<F>>,
    summary: SessionSummary,
}

#[derive(Debug)]
enum Slot<F> {
    /// Only the descriptions are there.
    Described(F),
    Live(Box<LiveProcess<F>>),
    /// It has ended, or cannot be recorded.
    Done,
}

impl<F: ConsumerFile> Session<F> {
    /// A session that writes to directories below `output`, which must exist.
    #[must_use]
    pub fn new(output: &Path, hostname: Option<String>) -> Self {
        Self {
            output: output.to_owned(),
            hostname,
            processes: BTreeMap::new(),
            summary: SessionSummary::default(),
        }
    }

    /// Is this file new to it?
    #[must_use]
    pub fn wants(&self, channel: ChannelName, name: &str) -> bool {
        match (self.processes.get(name), channel) {
            (None, _) => true,
            (Some(Slot::Described(_)), channel) => channel == ChannelName::Main,
            (Some(Slot::Live(process)), channel) => {
                channel == ChannelName::Control && !process.has_control()
            }
            (Some(Slot::Done), _) => false,
        }
    }

    /// Takes a file. The two of one process have the same name.
    ///
    /// # Errors
    /// When its trace cannot be created.
    pub fn add(&mut self, channel: ChannelName, name: &str, file: F) -> io::Result<()> {
        if !self.wants(channel, name) {
            return Ok(());
        }
        let slot = match (self.processes.remove(name), channel) {
            (None, ChannelName::Control) => Slot::Described(file),
            (Some(Slot::Live(process)), ChannelName::Control) => self.describe(name, process, file),
            (before, _) => match LiveProcess::new(&self.output, file, self.hostname.as_deref()) {
                Ok(process) => match before {
                    Some(Slot::Described(control)) => {
                        self.describe(name, Box::new(process), control)
                    }
                    _ => Slot::Live(Box::new(process)),
                },
                Err(ProcessError::File(error)) => {
                    self.problem(name, &error);
                    Slot::Done
                }
                Err(ProcessError::Write(error)) => return Err(error),
            },
        };
        self.processes.insert(name.to_owned(), slot);
        Ok(())
    }

    fn describe(&mut self, name: &str, mut process: Box<LiveProcess<F>>, control: F) -> Slot<F> {
        if let Err(error) = process.set_control(control) {
            self.problem(name, &error);
        }
        Slot::Live(process)
    }

    /// Reads what there is. `last`: there will be no more. `now` is what the time is.
    ///
    /// # Errors
    /// When a trace cannot be written.
    pub fn drain(&mut self, last: bool, now: Instant) -> io::Result<Progress> {
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
                Err(ProcessError::Write(error)) => return Err(error),
            };
            if ended && let Slot::Live(process) = std::mem::replace(slot, Slot::Done) {
                self.summary.processes.push(process.finish()?);
            }
        }
        Ok(progress)
    }

    /// How many processes there were, and are.
    #[must_use]
    pub fn nr_processes(&self) -> usize {
        self.processes.len()
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
    /// When a trace cannot be written.
    pub fn finish(mut self) -> io::Result<SessionSummary> {
        self.drain(true, Instant::now())?;
        Ok(self.summary)
    }

    /// Something went wrong with a file.
    pub fn problem(&mut self, name: &str, error: &dyn std::error::Error) {
        self.summary.problems.push(format!("{name}: {error}"));
    }
}
