//! Processes, as a command line names them: by ids, or by names.

use std::convert::Infallible;
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;
use usertrace_os::procfs;
use usertrace_reader::comm;

/// How long the daemons of a program that has just begun may have its name: they are forked from
/// it, and take their own name a moment later.
const RENAMING: Duration = Duration::from_millis(500);
/// Between two looks whether they have.
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
    /// The id of the only process of that name.
    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        match self {
            Self::Pid(pid) => Ok(*pid),
            Self::Name(name) => match only_of_name(name)? {
                Some(pid) => Ok(pid),
                None => bail!("cannot find a process {name:?}: none that runs has that name"),
            },
        }
    }

    /// Is it a process of this id and name, as they were recorded?
    pub(crate) fn is(&self, pid: u32, process: &str) -> bool {
        match self {
            Self::Pid(wanted) => *wanted == pid,
            Self::Name(name) => comm(name) == process,
        }
    }
}

/// Which processes a command is about, as an option says it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct OfProcesses {
    /// Only of these processes: ids, or names, which may be those of several; several with commas
    /// between them
    #[arg(long, value_name = "PID|NAME", value_delimiter = ',')]
    pid: Vec<Named>,
}

impl OfProcesses {
    /// Those that were named; none: all.
    pub(crate) fn named(&self) -> &[Named] {
        &self.pid
    }

    /// Is a process of this id and name among them?
    pub(crate) fn has(&self, pid: u32, process: &str) -> bool {
        self.pid.is_empty() || self.pid.iter().any(|named| named.is(pid, process))
    }
}

/// The id of the process of that name that runs now, other than this one; nothing if there is none.
pub(crate) fn only_of_name(name: &str) -> anyhow::Result<Option<u32>> {
    let is_it = |&pid: &u32| pid != std::process::id() && procfs::name(pid) == comm(name);
    let begun = Instant::now();
    let pids = loop {
        let mut pids: Vec<u32> = procfs::pids().filter(is_it).collect();
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

/// The ids of processes, each of which must be one.
pub(crate) fn only(named: &[Named]) -> anyhow::Result<Vec<u32>> {
    named.iter().map(Named::pid).collect()
}
