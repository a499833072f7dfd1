//! `usertrace generate`: writes manual pages and shell completions from the command's own
//! definition of its options.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::{environment, markdown, output};

/// Write manual pages, completions for a shell, or a reference of all commands
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace generate man /usr/local/share/man/man1
  usertrace generate completions bash >/etc/bash_completion.d/usertrace
  usertrace generate markdown >commands.md

Exit status: 0, 1 if they cannot be written, 2 for a wrong command line.")]
pub(crate) struct Args {
    #[command(subcommand)]
    files: Files,
}

#[derive(Debug, clap::Subcommand)]
enum Files {
    /// Write a manual page for each command
    #[command(after_help = "\
Exit status: 0, 1 if they cannot be written, 2 for a wrong command line.")]
    Man {
        /// Directory for them
        directory: PathBuf,
    },
    /// Write the completions for a shell to standard output
    #[command(after_help = "\
Exit status: 0, 1 if they cannot be written, 2 for a wrong command line.")]
    Completions {
        /// bash, elvish, fish, powershell, or zsh
        #[arg(hide_possible_values = true)]
        shell: Shell,
    },
    /// Write a reference of all commands to standard output, as one page of Markdown
    #[command(after_help = "\
Exit status: 0, 1 if it cannot be written, 2 for a wrong command line.")]
    Markdown,
}

impl Args {
    /// `command`: the whole command line.
    pub(crate) fn run(self, command: Command) -> ExitCode {
        output::exit_code(self.try_run(command).map(|()| 0))
    }

    fn try_run(self, mut command: Command) -> anyhow::Result<()> {
        match self.files {
            Files::Man { directory } => {
                fs::create_dir_all(&directory)
                    .with_context(|| format!("cannot make {}", directory.display()))?;
                command = command.disable_help_subcommand(true);
                // `build` gives the subcommands their full names.
                command.build();
                let main = std::iter::once(&command).chain(command.get_subcommands());
                let main: Vec<_> = main.map(file_name).collect();
                pages(&command, &main, &directory)
            }
            Files::Completions { shell } => {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut command, "usertrace", &mut text);
                output::print(&String::from_utf8_lossy(&text))
            }
            Files::Markdown => {
                command = command.disable_help_subcommand(true);
                // Gives the commands their whole names.
                command.build();
                output::print(&markdown::page(&command))
            }
        }
    }
}

/// The file name of a command's manual page.
fn file_name(command: &Command) -> String {
    Man::new(command.clone()).get_filename()
}

/// Writes the pages of a command and of its subcommands. The pages in `main` refer to each other.
fn pages(command: &Command, main: &[String], directory: &Path) -> anyhow::Result<()> {
    let name = file_name(command);
    let path = directory.join(&name);
    let page = page(command, &name, main).context("cannot make a manual page")?;
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    let mut commands = command.get_subcommands();
    commands.try_for_each(|command| pages(command, main, directory))
}

/// The current time, or that of `SOURCE_DATE_EPOCH`, for reproducible builds.
fn time() -> SystemTime {
    let epoch = env::var("SOURCE_DATE_EPOCH").ok();
    let epoch = epoch.and_then(|seconds| seconds.parse().ok());
    epoch.map_or_else(SystemTime::now, |seconds: u32| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into())
    })
}

fn page(command: &Command, name: &str, main: &[String]) -> io::Result<Vec<u8>> {
    let date = humantime::format_rfc3339_seconds(time()).to_string();
    let man = Man::new(command.clone())
        .title(name.trim_end_matches(".1").to_uppercase())
        .date(date.split('T').next().unwrap_or_default())
        .source(concat!("usertrace ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(help) = command.get_after_help() {
        page.write_all(after_help(&help.to_string()).to_roff().as_bytes())?;
    }
    page.write_all(environment(command).to_roff().as_bytes())?;
    page.write_all(see_also(name, main).to_roff().as_bytes())?;
    Ok(page)
}

/// Converts the text after a command's options. Its paragraphs may include one of examples and one
/// about the exit status.
fn after_help(text: &str) -> Roff {
    let mut roff = Roff::new();
    let section = |roff: &mut Roff, name| {
        roff.control("SH", [name]);
    };
    let mut notes = false;
    for paragraph in text.split("\n\n") {
        if let Some(examples) = paragraph.strip_prefix("Examples:\n") {
            section(&mut roff, "EXAMPLES");
            roff.control("nf", []);
            for line in examples.lines() {
                roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
            roff.control("fi", []);
        } else if let Some(status) = paragraph.strip_prefix("Exit status: ") {
            section(&mut roff, "EXIT STATUS");
            roff.text([roman(status)]);
        } else {
            if notes {
                roff.control("PP", []);
            } else {
                section(&mut roff, "NOTES");
            }
            notes = true;
            roff.text([roman(paragraph)]);
        }
    }
    roff
}

/// The variables of the environment that a command reads.
fn environment(command: &Command) -> Roff {
    let mut roff = Roff::new();
    let mut variables = environment::of(command).peekable();
    if variables.peek().is_some() {
        roff.control("SH", ["ENVIRONMENT"]);
    }
    for variable in variables {
        roff.control("TP", []);
        roff.text([bold(variable.name)]);
        roff.text([roman(variable.meaning)]);
    }
    roff
}

/// The section that names the other commands, and babeltrace2.
fn see_also(own: &str, main: &[String]) -> Roff {
    let pages = main.iter().map(String::as_str);
    let pages = pages.filter(|name| *name != own).chain(["babeltrace2.1"]);
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let mut inlines = Vec::new();
    for page in pages {
        if !inlines.is_empty() {
            inlines.push(roman(", "));
        }
        let name = page.strip_suffix(".1").unwrap_or(page);
        inlines.extend([bold(name), roman("(1)")]);
    }
    roff.text(inlines);
    roff
}
