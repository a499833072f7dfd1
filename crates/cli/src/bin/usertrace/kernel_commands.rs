//! Commands that need the kernel's trace buffers, and what to use without them.

use std::path::Path;

use usertrace_consumer::{CONTROL_FS, ControlFs, ControlFsError};
use usertrace_sys::Calls;

use crate::root::Root;

/// A command that needs the kernel's trace buffers.
#[derive(Debug)]
pub(crate) struct KernelCommand {
    /// Name after `usertrace` on the command line.
    pub(crate) name: &'static str,
    /// Advice for a kernel without trace buffers.
    pub(crate) instead: &'static str,
    /// The command changes traces, so it needs write access.
    pub(crate) changes: bool,
}

const fn command(name: &'static str, changes: bool, instead: &'static str) -> KernelCommand {
    KernelCommand {
        name,
        instead,
        changes,
    }
}

pub(crate) const DAEMON: KernelCommand = command(
    "daemon",
    true,
    "use \"usertrace record\", or run programs with USERTRACE_OUTPUT=DIR: each writes its own trace",
);
pub(crate) const START: KernelCommand = command(
    "start TRACE",
    true,
    "use \"usertrace record -- PROGRAM\", or name a program that was stopped: \"usertrace start PID\"",
);
pub(crate) const STOP: KernelCommand = command(
    "stop TRACE",
    true,
    "name a program that runs: \"usertrace stop PID\"",
);
pub(crate) const DESTROY: KernelCommand = command(
    "destroy",
    true,
    "without it, a trace is a directory of files, which rm removes",
);
pub(crate) const FILTER: KernelCommand = command(
    "filter TRACE",
    true,
    "name a program that runs: \"usertrace filter PID\"",
);
pub(crate) const TRIGGER: KernelCommand = command(
    "trigger",
    true,
    "without it, nothing acts on events: record those that matter, with -e \"PATTERN if EXPR\"",
);
pub(crate) const WAIT: KernelCommand = command(
    "wait",
    false,
    "without it, watch a recording: \"usertrace view --follow --where EXPR DIR\"",
);
pub(crate) const SAVE: KernelCommand = command(
    "save",
    false,
    "without it, the variables of a program's environment set up its trace",
);
pub(crate) const LOAD: KernelCommand = command(
    "load",
    true,
    "without it, the variables of a program's environment set up its trace",
);
pub(crate) const STATUS: KernelCommand = command("status", false, "use \"usertrace top DIR\"");
pub(crate) const SNAPSHOT: KernelCommand = command(
    "snapshot TRACE",
    false,
    "name a program that runs, or the directory of its trace: \"usertrace snapshot DIR\"",
);
pub(crate) const LIST: KernelCommand = command(
    "list",
    false,
    "use \"usertrace list --events\" for programs, or \"usertrace top DIR\" for a recording",
);
pub(crate) const TOP: KernelCommand =
    command("top", false, "use \"usertrace top DIR\" for a recording");
pub(crate) const STAT: KernelCommand = command(
    "stat --trace",
    false,
    "use \"usertrace stat -- PROGRAM\", or \"usertrace stat DIR\" for a recording",
);
pub(crate) const PREVIOUS_BOOT: KernelCommand = command(
    "extract --previous-boot",
    false,
    "use \"usertrace extract VMCORE\" with a dump",
);

/// All commands that need the kernel's trace buffers.
pub(crate) const ALL: [&KernelCommand; 15] = [
    &DAEMON,
    &START,
    &STOP,
    &DESTROY,
    &FILTER,
    &TRIGGER,
    &WAIT,
    &SAVE,
    &LOAD,
    &STATUS,
    &SNAPSHOT,
    &LIST,
    &TOP,
    &STAT,
    &PREVIOUS_BOOT,
];

impl KernelCommand {
    /// Opens the control file system for this command.
    ///
    /// # Errors
    /// When it cannot be used. If the kernel has no trace buffers, the error says what to use
    /// instead.
    pub(crate) fn open(&self, root: &Root) -> anyhow::Result<ControlFs> {
        root.open().map_err(|error| self.explain(error, &root.path))
    }

    /// Adds the command's name and an alternative to an error, if the kernel has no trace buffers.
    pub(crate) fn explain(&self, error: ControlFsError, root: &Path) -> anyhow::Error {
        // With an explicit `--root`, the given path is the problem, not the kernel.
        let kernel_lacks_buffers = matches!(error, ControlFsError::Missing(_))
            && root == Path::new(CONTROL_FS)
            && Calls::discover().is_err();
        if !kernel_lacks_buffers {
            return error.into();
        }
        anyhow::anyhow!(
            "\"usertrace {}\" needs the patched kernel; {} (usertrace doctor says what works here)",
            self.name,
            self.instead
        )
    }
}
