//! Processes on the command line: process ids or names.

use std::convert::Infallible;
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;
use usertrace_os::procfs;
use usertrace_reader::comm;

/// Longest time for which the fallback's daemons of a new program have its name. They are forked
/// from it, and rename themselves a moment later.
const RENAMING: Duration = Duration::from_millis(500);
/// Pause between two checks for renamed daemons.
const PAUSE: Duration = Duration::from_millis(5);

/// A process id, or the name of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Pid(u32),
    Name(String),
}

impl FromStr for Named {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text
            .parse()
            .map_or_else(|_| Self::Name(text.to_owned()), Self::Pid))
    }
}

impl Named {
    /// The process id. A name must belong to exactly one process.
    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        match self {
            Self::Pid(pid) => Ok(*pid),
            Self::Name(name) => match only_of_name(name)? {
                Some(pid) => Ok(pid),
                None => bail!("cannot find a process {name:?}: none that runs has that name"),
            },
        }
    }

    /// Whether a recorded process with this id and name is meant.
    pub(crate) fn is(&self, pid: u32, process: &str) -> bool {
        match self {
            Self::Pid(wanted) => *wanted == pid,
            Self::Name(name) => comm(name) == process,
        }
    }
}

/// Option that restricts a command to some processes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct OfProcesses {
    /// Only of these processes: ids, or names, which may be those of several; several with commas
    /// between them
    #[arg(long, value_name = "PID|NAME", value_delimiter = ',')]
    pid: Vec<Named>,
}

impl OfProcesses {
    /// The processes named on the command line; empty means all.
    pub(crate) fn named(&self) -> &[Named] {
        &self.pid
    }

    /// Whether a process with this id and name is selected.
    pub(crate) fn has(&self, pid: u32, process: &str) -> bool {
        self.pid.is_empty() || self.pid.iter().any(|named| named.is(pid, process))
    }
}

/// Finds the only running process of that name, other than this one. `None` if there is none;
/// several are an error.
pub(crate) fn only_of_name(name: &str) -> anyhow::Result<Option<u32>> {
    let matches = |&pid: &u32| pid != std::process::id() && procfs::name(pid) == comm(name);
    let begun = Instant::now();
    let pids = loop {
        let mut pids: Vec<u32> = procfs::pids().filter(matches).collect();
        if pids.len() < 2 || begun.elapsed() > RENAMING {
            pids.sort_unstable();
            break pids;
        }
        sleep(PAUSE);
    };
    match &pids[..] {
        [] => Ok(None),
        [pid] => Ok(Some(*pid)),
        pids => {
            let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
            bail!(
                "cannot tell which process {name:?} is: {} have that name (name one by its id)",
                pids.join(", ")
            )
        }
    }
}

/// The ids of processes; each name must belong to exactly one.
pub(crate) fn only(named: &[Named]) -> anyhow::Result<Vec<u32>> {
    named.iter().map(Named::pid).collect()
}
