//! Processes, as a command line names them: by ids, or by names.

use std::convert::Infallible;
use std::fs;
use std::str::FromStr;

use anyhow::bail;
use usertrace::reader::comm;

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
        let name = match self {
            Self::Pid(pid) => return Ok(*pid),
            Self::Name(name) => name,
        };
        match &self.pids()[..] {
            [] => bail!("cannot find a process {name:?}: none that runs has that name"),
            [pid] => Ok(*pid),
            pids => {
                let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
                bail!(
                    "cannot tell which process {name:?} is: {} have that name (name one by its id)",
                    pids.join(", ")
                )
            }
        }
    }

    /// The ids of all of that name that run now.
    fn pids(&self) -> Vec<u32> {
        let name = match self {
            Self::Pid(pid) => return vec![*pid],
            Self::Name(name) => name,
        };
        let entries = fs::read_dir("/proc").into_iter().flatten();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut pids: Vec<u32> = pids.filter(|&pid| has_name(pid, name)).collect();
        pids.sort_unstable();
        pids
    }

    /// Is it a process of this id and name, as they were recorded?
    pub(crate) fn is(&self, pid: u32, process: &str) -> bool {
        match self {
            Self::Pid(wanted) => *wanted == pid,
            Self::Name(name) => comm(name) == process,
        }
    }
}

/// The process has the name, other than this one.
fn has_name(pid: u32, name: &str) -> bool {
    let found = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    pid != std::process::id() && found.strip_suffix(b"\n") == Some(comm(name).as_bytes())
}

/// The ids of processes, each of which must be one.
pub(crate) fn only(named: &[Named]) -> anyhow::Result<Vec<u32>> {
    named.iter().map(Named::pid).collect()
}
