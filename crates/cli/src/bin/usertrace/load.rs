//! `usertrace load`: creates traces from files.

use std::path::PathBuf;
use std::process::ExitCode;

use usertrace_consumer::{IfExists, load_saved_traces, read_saved_traces};

use crate::root::Root;
use crate::{kernel_commands, output};

/// Create traces from files that usertrace save printed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace save mine >mine.toml && usertrace destroy mine && usertrace load mine.toml
  usertrace save mine >mine.toml && usertrace load --replace mine.toml      # anew, for example with a larger ring
  usertrace save mine | sed 's/\"mine\"/\"copy\"/' | usertrace load -       # a second trace with the same settings

It creates all traces of all files, then starts those that have started = true. If one line is wrong, or the kernel refuses
one, it names the line, and none of the traces is left. With --replace, a trace of the same name is removed with its events,
after the kernel took the new settings on trial. docs/reference/saved-traces.md describes the files.

Exit status: 0, 1 if a file is wrong, a trace exists, or the kernel refuses, 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Files with settings of traces; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Replace traces that exist; their events are gone
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    root: Root,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run().map(|()| 0))
    }

    fn try_run(self) -> anyhow::Result<()> {
        let control_fs = kernel_commands::LOAD.open(&self.root)?;
        let mut files = Vec::new();
        for path in &self.files {
            files.push(read_saved_traces(path)?);
        }
        let if_exists = match self.replace {
            true => IfExists::Replace,
            false => IfExists::Fail,
        };
        load_saved_traces(&control_fs, &files, if_exists)?;
        Ok(())
    }
}
