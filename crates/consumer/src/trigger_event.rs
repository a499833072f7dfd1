//! What a daemon tells of the actions that triggers asked for.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use usertrace_sys::filter::TriggerAction;

use super::error::{OutputError, describe};
use super::{ControlFsError, SnapshotError};

/// An action that triggers asked for, and what became of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum TriggerEvent {
    /// A snapshot was written.
    SnapshotWritten {
        /// Its directory. `None` if no process had the trace's buffers.
        path: Option<PathBuf>,
        /// How many firings it answers.
        firings: u64,
        /// Its events.
        events: u64,
        /// The processes that they are of.
        processes: usize,
    },
    /// No snapshot could be written. It will be tried again.
    SnapshotFailed(SnapshotError),
    /// No process could be written, for these reasons. It will be tried again.
    SnapshotUnwritten(Vec<String>),
    /// No thread could be started, or it failed. It will be tried again.
    SnapshotAborted(io::Error),
    /// The directory of the snapshots cannot be used. It will be tried again.
    NoDirectory(OutputError),
    /// The note could not be written: the next daemon may answer the same firings again.
    NotNoted(OutputError),
    /// A trigger fired too soon after the last action, which is done later.
    Postponed {
        /// The action.
        action: TriggerAction,
        /// When it is done.
        after: Duration,
    },
    /// A chunk ends.
    ChunkEnds {
        /// How many firings asked for that.
        firings: u64,
    },
    /// A chunk was to end, and the trace is not recorded.
    NoChunk,
    /// The trace was removed before the action was done.
    TooLate {
        /// How many firings are not answered.
        firings: u64,
    },
    /// The counts of the triggers cannot be read.
    Unreadable(ControlFsError),
}

impl TriggerEvent {
    /// Whether this is a problem.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        match self {
            Self::SnapshotWritten { .. } | Self::Postponed { .. } | Self::ChunkEnds { .. } => false,
            Self::SnapshotFailed(_)
            | Self::SnapshotUnwritten(_)
            | Self::SnapshotAborted(_)
            | Self::NoDirectory(_)
            | Self::NotNoted(_)
            | Self::NoChunk
            | Self::TooLate { .. }
            | Self::Unreadable(_) => true,
        }
    }
}

impl fmt::Display for TriggerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SnapshotWritten {
                path: Some(path),
                firings,
                events,
                processes,
            } => write!(
                f,
                "snapshot in {}: {events} events of {processes} {} (triggers fired {})",
                path.display(),
                if *processes == 1 {
                    "process"
                } else {
                    "processes"
                },
                times(*firings)
            ),
            Self::SnapshotWritten { path: None, .. } => {
                write!(f, "no snapshot: no process has written events")
            }
            Self::SnapshotFailed(error) => {
                write!(f, "no snapshot, to be tried again: {}", describe(error))
            }
            Self::SnapshotUnwritten(problems) => {
                write!(f, "no snapshot, to be tried again: {}", problems.join("; "))
            }
            Self::SnapshotAborted(error) => {
                write!(
                    f,
                    "no snapshot, to be tried again: cannot run a thread: {error}"
                )
            }
            Self::NoDirectory(error) => write!(
                f,
                "nothing is done for triggers, to be tried again: {}",
                describe(error)
            ),
            Self::NotNoted(error) => write!(
                f,
                "the next daemon may do again what triggers asked for: {}",
                describe(error)
            ),
            Self::Postponed { action, after } => write!(
                f,
                "a trigger fired again, for which a {} follows in {} s",
                match action {
                    TriggerAction::Rotate => "new chunk",
                    _ => "snapshot",
                },
                after.as_millis().div_ceil(1000)
            ),
            Self::ChunkEnds { firings } => {
                write!(f, "a new chunk begins (triggers fired {})", times(*firings))
            }
            Self::NoChunk => write!(
                f,
                "a trigger asked for a new chunk, and nothing is recorded"
            ),
            Self::TooLate { firings } => write!(
                f,
                "the trace was removed before triggers that had fired {} were answered",
                times(*firings)
            ),
            Self::Unreadable(error) => {
                write!(f, "triggers are not followed: {}", describe(error))
            }
        }
    }
}

/// A number of times, for people.
pub(super) fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}
