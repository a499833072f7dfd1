//! What `snapshot`, `start`, `stop` and `filter` are about: a trace in the kernel, or programs that
//! the fallback traces, by the process's id or name or by the directory that they are traced to.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use usertrace_consumer::{ControlFs, programs_below};
use usertrace_control::Client;

use crate::kernel_commands::KernelCommand;
use crate::pids;
use crate::root::Root;

/// How long to wait for a program's answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) enum Target {
    /// A trace in this kernel.
    Trace(ControlFs),
    /// A process that the fallback traces.
    Process(u32),
    /// All processes that it traces to a directory.
    Directory(PathBuf),
}

impl Target {
    /// What a name stands for. Traces of the kernel come first: their names may be anything but
    /// paths. Names of processes come last.
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

    /// The processes that the fallback traces; nothing for a trace in the kernel.
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

    /// Asks each of its processes, by their control channels. Gives their answers. If some do not
    /// do it, the others do.
    pub(crate) fn ask(&self, request: &str) -> anyhow::Result<Vec<(u32, String)>> {
        let (mut answers, mut failed) = (Vec::new(), None);
        for process in self.processes()? {
            let answer = Client::connect(process, PATIENCE).and_then(|client| client.ask(request));
            match answer.with_context(|| format!("process {process}")) {
                Ok(answer) => answers.push((process, answer)),
                Err(error) if failed.is_none() => failed = Some(error),
                Err(error) => crate::output::error(&error),
            }
        }
        failed.map_or(Ok(answers), Err)
    }
}
