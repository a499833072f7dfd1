//! The object of `snapshot`, `start`, `stop` and `filter`: a trace in the kernel, or programs that
//! the fallback traces. Programs are named by process id, by name, or by the directory of their
//! traces.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use usertrace_consumer::{ControlFs, programs_below};
use usertrace_control::Client;

use crate::kernel_commands::KernelCommand;
use crate::pids;
use crate::root::Root;

/// Time limit for a program's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) enum Target {
    /// A trace in this kernel.
    Trace(ControlFs),
    /// A process that the fallback traces.
    Process(u32),
    /// All processes that the fallback traces to a directory.
    Directory(PathBuf),
}

impl Target {
    /// Resolves a name. Traces in the kernel come first: their names may be anything but paths.
    /// Names of processes come last.
    pub(crate) fn of(command: &KernelCommand, name: &str, root: &Root) -> anyhow::Result<Self> {
        let control_fs = command.open(root);
        let is_trace = control_fs
            .as_ref()
            .is_ok_and(|control_fs| control_fs.trace(name).is_ok());
        let path = PathBuf::from(name);
        if is_trace {
            Ok(Self::Trace(control_fs?))
        } else if let Ok(process) = name.parse() {
            Ok(Self::Process(process))
        } else if path.is_dir() {
            Ok(Self::Directory(path))
        } else if let Some(process) = pids::only_of_name(name)? {
            Ok(Self::Process(process))
        } else {
            Ok(Self::Trace(control_fs?))
        }
    }

    /// The processes that the fallback traces; empty for a trace in the kernel.
    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        match self {
            Self::Trace(_) => Ok(Vec::new()),
            Self::Process(process) => Ok(vec![*process]),
            Self::Directory(directory) => {
                let programs = programs_below(directory);
                if programs.is_empty() {
                    bail!("no program is being traced to {}", directory.display());
                }
                Ok(programs)
            }
        }
    }

    /// Sends a request to each process over its control channel, and returns their answers. A
    /// process that fails does not keep the others from being asked.
    pub(crate) fn ask(&self, request: &str) -> anyhow::Result<Vec<(u32, String)>> {
        let (mut answers, mut failed) = (Vec::new(), None);
        for process in self.processes()? {
            let answer =
                Client::connect(process, ANSWER_TIMEOUT).and_then(|client| client.ask(request));
            match answer.with_context(|| format!("process {process}")) {
                Ok(answer) => answers.push((process, answer)),
                Err(error) if failed.is_none() => failed = Some(error),
                Err(error) => crate::output::error(&error),
            }
        }
        failed.map_or(Ok(answers), Err)
    }
}
