//! Identity of a traced process, and summaries of what was read of it.

use std::path::PathBuf;

use serde::Serialize;

use crate::names::file_name;

/// Identity of a traced process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the trace.
    pub trace: String,
    /// Name of the process, as the kernel has it.
    pub comm: String,
    /// Process id in the initial namespace.
    pub pid: u32,
    /// Number of its buffers, never reused.
    pub process: u64,
    /// Host name of the machine, if it is known.
    pub hostname: Option<String>,
}

impl Identity {
    /// Directory name of the process's trace.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("{}-{}-{}", file_name(&self.comm), self.pid, self.process)
    }
}

/// Summary of what was read of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessSummary {
    /// Name of the trace.
    pub trace: String,
    /// Name of the process.
    pub comm: String,
    /// Its id.
    pub pid: u32,
    /// Its command line, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmdline: Option<String>,
    /// Number of its buffers.
    pub process: u64,
    /// Directory of its CTF trace.
    pub directory: PathBuf,
    /// Number of events that it described.
    pub event_kinds: usize,
    /// Events that were read and written.
    pub events: u64,
    /// Events that were left out, as they were too early.
    #[serde(skip_serializing_if = "is_none")]
    pub earlier: u64,
    /// Events that it dropped because a ring was full.
    pub lost: u64,
    /// Events that were lost because their writer died or gave up.
    pub unfinished: u64,
    /// Events that were read but did not fit on the disk.
    #[serde(skip_serializing_if = "is_none")]
    pub unwritten: u64,
    /// Error that kept them from being written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_error: Option<String>,
    /// Gaps for lack of memory.
    pub holes: u64,
    /// Writes that found no memory, as the kernel counted them: only the first one to each page.
    pub sunk: u64,
    /// Sub-buffers that became partly unreadable because a writer died in them.
    pub corrupted: u64,
    /// Gaps of damaged bytes.
    pub damaged: u64,
    /// Sub-buffers that were overwritten before they were read.
    pub overwritten: u64,
    /// Size of the CTF trace.
    pub bytes: u64,
    /// Time of the first event, in ns since 1970.
    pub first_event_ns: Option<i64>,
    /// Time of the last event, in ns since 1970.
    pub last_event_ns: Option<i64>,
    /// Summaries of rings, once they are read completely. Rings without anything are missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<RingSummary>,
}

/// Summary of a ring that was read completely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RingSummary {
    /// Name of its channel.
    pub channel: String,
    /// Its index in the channel: that of a CPU or a thread.
    pub ring: usize,
    /// Events that were read.
    pub events: u64,
    /// Events that were dropped because it was full.
    pub lost: u64,
    /// Sub-buffers that were overwritten before they were read.
    pub overwritten: u64,
    /// Gaps of damaged bytes.
    pub damaged: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl ProcessSummary {
    /// How many events were dropped, at least: a gap for lack of memory counts as one, as in CTF.
    #[must_use]
    pub const fn least_lost(&self) -> u64 {
        self.lost.saturating_add(self.holes)
    }

    /// Formats the time of the last event.
    #[must_use]
    pub fn last_event(&self) -> String {
        self.last_event_ns
            .map_or_else(|| "-".to_owned(), crate::info::date)
    }

    /// A message that events did not fit on the disk, if so.
    #[must_use]
    pub fn describe_unwritten(&self) -> Option<String> {
        let error = self.write_error.as_ref()?;
        Some(format!(
            "process {} ({}) in trace {}: {} events could not be written: {error} (the rest is in {})",
            self.pid,
            self.comm,
            self.trace,
            self.unwritten,
            self.directory.display(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_have_plain_names() {
        let name = |comm: &str| {
            let identity = Identity {
                trace: "t".into(),
                comm: comm.into(),
                pid: 7,
                process: 3,
                hostname: None,
            };
            identity.directory()
        };
        assert_eq!(name("sqlite3"), "sqlite3-7-3");
        assert_eq!(name("gnome-shell"), "gnome-shell-7-3");
        assert_eq!(name("-rf"), "_rf-7-3");
        assert_eq!(name("../a b\n"), "_._a_b_-7-3");
        assert_eq!(name(""), "_-7-3");
    }
}
