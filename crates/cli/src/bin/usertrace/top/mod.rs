//! `usertrace top`: shows event rates of running programs.

mod args;
mod batch;
mod counting;
mod screen;
mod table;
mod view;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use usertrace_cli::top::{Counter, Rates, Recordings, Traces};

pub(crate) use self::args::Args;
use self::counting::Top;
use self::screen::Screen;
use self::view::View;
use crate::status::WRONG_COMMAND_LINE;
use crate::{kernel_commands, output, selection};

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let Some(events) = selection::patterns(&self.event) else {
            return Ok(WRONG_COMMAND_LINE);
        };
        let counters = self.counters()?;
        let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        let top = Top {
            counters,
            events,
            begun: Instant::now(),
            rates: Rates::new(Instant::now()),
            rows: Vec::new(),
            problems: Vec::new(),
            is_checked: false,
            view: View {
                sort: self.sort,
                reverse: false,
                by_process: self.processes,
                filter: String::new(),
            },
            args: self,
        };
        if top.args.batch || top.args.json || !is_terminal {
            batch::print(top)?;
        } else {
            Screen::new(top).run()?;
        }
        Ok(0)
    }

    fn counters(&self) -> anyhow::Result<Vec<Box<dyn Counter>>> {
        let (mut names, mut directories) = (Vec::new(), Vec::new());
        let control_fs = self.root.open();
        for what in &self.what {
            let name = what.to_str().filter(|name| !name.contains('/'));
            let is_trace = |name: &&str| control_fs.as_ref().is_ok_and(|fs| fs.trace(name).is_ok());
            match name.filter(is_trace) {
                Some(name) => names.push(name.to_owned()),
                None if what.is_dir() => directories.push(what.clone()),
                None => match &control_fs {
                    Ok(_) => bail!("there is no trace, and no directory, {}", what.display()),
                    Err(error) => bail!(
                        "there is no directory {}, and no trace, as {error}",
                        what.display()
                    ),
                },
            }
        }
        let condition = || self.condition.clone();
        let places = match self.places {
            true => Some(self.files.options()?),
            false => None,
        };
        let mut counters: Vec<Box<dyn Counter>> = Vec::new();
        let all = self.what.is_empty();
        if all || !names.is_empty() {
            let control_fs =
                control_fs.map_err(|error| kernel_commands::TOP.explain(error, &self.root.path))?;
            let names = (!all).then_some(names);
            counters.push(Box::new(Traces::new(
                control_fs,
                names,
                condition(),
                places.clone(),
            )?));
        }
        if !directories.is_empty() {
            counters.push(Box::new(Recordings::new(
                &directories,
                condition(),
                places,
            )?));
        }
        Ok(counters)
    }
}
