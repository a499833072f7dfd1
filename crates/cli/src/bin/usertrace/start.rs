//! `usertrace start`, `stop`, and `destroy`: traces that outlive the command.

use std::process::ExitCode;

use anyhow::bail;
use usertrace_consumer::TraceSetup;

use crate::root::Root;
use crate::setup::Setup;
use crate::target::Target;
use crate::{kernel_commands, output};

/// Make a trace active, which is created if there is none of that name
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace start mine
  usertrace start --flight -e 'shop:*' mine    # the last events of a provider, for a snapshot or a dump
  usertrace snapshot mine && usertrace destroy mine
  usertrace start --flight --trigger 'shop:error then stop once' mine    # they stay from an error on
  usertrace start 4711                         # a program that usertrace stop has stopped, without the patched kernel

All programs that have tracepoints write to it from now on, also those that run already. It stays until it is
destroyed. Size and number of sub-buffers, and contexts, are fixed once a trace was started.

Exit status: 0, 1 if the kernel refuses, 2 for a wrong command line.")]
pub(crate) struct Start {
    /// Name of the trace; without the patched kernel, a program's process id, or its name if there
    /// is only one, or the directory that programs are traced to
    trace: String,

    #[command(flatten)]
    setup: Setup,

    #[command(flatten)]
    root: Root,
}

/// Make a trace inactive: programs write no more to it, and what it has can be read
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace stop mine
  usertrace start mine          # it goes on
  usertrace stop traces         # without the patched kernel: all programs that are traced to this directory

On a kernel without trace buffers, programs are asked by their control channels: start them with USERTRACE_CONTROL=thread.

Exit status: 0, 1 if there is no such trace, 2 for a wrong command line.")]
pub(crate) struct Stop {
    /// Name of the trace; without the patched kernel, a program's process id, or its name if there
    /// is only one, or the directory that programs are traced to
    trace: String,

    #[command(flatten)]
    root: Root,
}

/// Remove a trace, with all that is in its rings
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace destroy mine

Exit status: 0, 1 if there is no such trace, or some were not removed, 2 for a wrong command line.")]
pub(crate) struct Destroy {
    /// Names of the traces
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<String>,

    #[command(flatten)]
    root: Root,
}

impl Start {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run().map(|()| 0))
    }

    fn try_run(self) -> anyhow::Result<()> {
        let setup = TraceSetup::from(self.setup);
        let target = Target::of(&kernel_commands::START, &self.trace, &self.root)?;
        if !matches!(target, Target::Trace(_)) {
            if !setup.triggers.is_empty() {
                bail!(
                    "the fallback has no triggers: \"usertrace filter\" chooses events of programs that run, and \"usertrace \
                     view --follow --where EXPR\" shows them as they come"
                );
            }
            if setup != TraceSetup::default() {
                bail!(
                    "programs that run have their rings: only usertrace filter changes their events"
                );
            }
            return target.ask("initialise").map(drop);
        }
        // A new trace is removed on drop, unless `keep` is reached.
        let mut trace = kernel_commands::START
            .open(&self.root)?
            .create(&self.trace, &setup)?;
        trace.start()?;
        trace.keep();
        Ok(())
    }
}

impl Stop {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run().map(|()| 0))
    }

    fn try_run(self) -> anyhow::Result<()> {
        let target = Target::of(&kernel_commands::STOP, &self.trace, &self.root)?;
        match &target {
            Target::Trace(control_fs) => Ok(control_fs.trace(&self.trace)?.stop()?),
            _ => target.ask("finalise").map(drop),
        }
    }
}

impl Destroy {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let control_fs = kernel_commands::DESTROY.open(&self.root)?;
        let mut status = 0;
        for name in &self.traces {
            let removed = control_fs.trace(name).and_then(|mut trace| {
                trace.adopt();
                trace.remove()
            });
            if let Err(error) = removed {
                output::error(&error.into());
                status = 1;
            }
        }
        Ok(status)
    }
}
