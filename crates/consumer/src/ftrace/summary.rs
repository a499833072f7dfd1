//! What a recording has of the kernel's own events.

use std::path::PathBuf;

use serde::Serialize;

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
