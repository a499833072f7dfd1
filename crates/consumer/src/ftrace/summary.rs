//! The summary of recorded kernel events.

use std::path::PathBuf;

use serde::Serialize;

/// The result of recording the kernel's events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelSummary {
    /// The trace's directory, which does not exist if there were no events.
    pub directory: PathBuf,
    /// The name of the ftrace clock that was used.
    pub clock: &'static str,
    /// Number of enabled events.
    pub event_kinds: usize,
    /// Events in the trace that this recorder wrote.
    pub events: u64,
    /// Events that were dropped, or overwritten before they were read.
    pub lost: u64,
    /// Size of the trace's files in bytes.
    pub bytes: u64,
    /// Problems, as text.
    pub problems: Vec<String>,
}
