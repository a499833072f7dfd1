//! Output of all commands: messages, tables, JSON, and the names of files.

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use serde::Serialize;
use usertrace_ctf::ProcessSummary;

use crate::destination;

/// Options for the summary of a recording or snapshot.
#[derive(Debug, clap::Args)]
pub(crate) struct Summary {
    /// Write the summary as JSON, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,

    /// Print no summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Prints a message on standard error, as one line. A failure to print it is ignored.
pub(crate) fn say(what: impl fmt::Display) {
    let line = readable(&what.to_string()).replace('\n', "\\n");
    report(format_args!("usertrace: {line}\n"));
}

/// Prints a text on standard error; it may have several lines. A failure to print it is ignored.
pub(crate) fn report(text: impl fmt::Display) {
    let _ = write!(io::stderr().lock(), "{}", readable(&text.to_string()));
}

/// Writes control sequences to the terminal at standard error. The text must not contain names from
/// others.
pub(crate) fn draw(sequence: impl fmt::Display) {
    let _ = write!(io::stderr().lock(), "{sequence}");
}

/// Escapes control characters other than newlines and tabs. The text may have names that others
/// chose, and a terminal obeys control characters.
pub(crate) fn readable(text: &str) -> Cow<'_, str> {
    let is_bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut readable = String::with_capacity(text.len());
    for c in text.chars() {
        if is_bad(c) {
            readable.extend(c.escape_default());
        } else {
            readable.push(c);
        }
    }
    Cow::Owned(readable)
}

/// Quotes the text as one word for a shell.
pub(crate) fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Prints a command's result on standard output. A closed pipe is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let text = readable(text);
    let mut output = io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Prints an error with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    say(format_args!("{error:#}"));
}

/// Converts a command's result to an exit status. An error is printed, and becomes status 1.
pub(crate) fn exit_code(result: anyhow::Result<u8>) -> ExitCode {
    match result {
        Ok(status) => status.into(),
        Err(error) => {
            self::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Writes a value as JSON, to a file or, if that is "-", to standard output.
pub(crate) fn json(to: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("cannot make JSON")?;
    text.push('\n');
    match destination::fill(to, |file| file.write_all(text.as_bytes())) {
        Ok(_) => Ok(()),
        Err(error) if to == Path::new("-") => Err(error).context("cannot write to standard output"),
        Err(error) => Err(error).with_context(|| format!("cannot write {}", to.display())),
    }
}

/// The output directory of a command.
pub(crate) struct Directory {
    path: PathBuf,
    /// The command chose it, and removes it on drop if it is still empty.
    is_ours: bool,
}

impl Directory {
    /// Uses the named directory, or creates a new one at once, so that no other process takes the
    /// name.
    pub(crate) fn new(named: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(path) = named {
            return Ok(Self {
                path,
                is_ours: false,
            });
        }
        let mut names = names("");
        loop {
            let path = names.next().unwrap_or_default();
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made.with_context(|| format!("cannot make {}", path.display()))?;
                    return Ok(Self {
                        path,
                        is_ours: true,
                    });
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_ours {
            // Fails if the directory is not empty, which is intended.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// A free file name, for when the command line names none.
pub(crate) fn new_file(extension: &str) -> PathBuf {
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    names(extension).find(is_free).unwrap_or_default()
}

/// Names with the current time; the second and later ones have a number, too.
fn names(extension: &str) -> impl Iterator<Item = PathBuf> {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let name = format!("usertrace-{}", now.replace(['-', ':'], ""));
    (1u64..).map(move |number| {
        PathBuf::from(match number {
            1 => format!("{name}{extension}"),
            _ => format!("{name}-{number}{extension}"),
        })
    })
}

/// Formats a table of processes.
pub(crate) fn processes(processes: &[ProcessSummary]) -> String {
    let mut rows = vec![
        [
            "PID",
            "EVENTS",
            "LOST",
            "HOLES",
            "DAMAGED",
            "BYTES",
            "LAST EVENT",
            "DIRECTORY",
        ]
        .map(str::to_owned),
    ];
    rows.extend(processes.iter().map(|process| {
        [
            process.pid.to_string(),
            process.events.to_string(),
            process.lost.to_string(),
            process.holes.to_string(),
            process.damaged.to_string(),
            process.bytes.to_string(),
            process.last_event(),
            process.directory.display().to_string(),
        ]
    }));
    table(&rows)
}

/// Formats rows of cells as aligned columns.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::from(" ");
        for (n, (width, cell)) in widths.iter().zip(row).enumerate() {
            line.push(' ');
            // Right-align numbers; the last two columns are text.
            if n + 2 < N {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Sums over processes.
pub(crate) struct Totals {
    pub(crate) events: u64,
    pub(crate) earlier: u64,
    pub(crate) lost: u64,
    pub(crate) holes: u64,
    pub(crate) sunk: u64,
    pub(crate) damaged: u64,
    pub(crate) overwritten: u64,
    pub(crate) bytes: u64,
}

impl Totals {
    pub(crate) fn of<'a>(processes: impl IntoIterator<Item = &'a ProcessSummary>) -> Self {
        let mut totals = Self {
            events: 0,
            earlier: 0,
            lost: 0,
            holes: 0,
            sunk: 0,
            damaged: 0,
            overwritten: 0,
            bytes: 0,
        };
        for process in processes {
            totals.events += process.events;
            totals.earlier += process.earlier;
            totals.lost = totals.lost.saturating_add(process.lost);
            totals.holes += process.holes;
            totals.sunk = totals.sunk.saturating_add(process.sunk);
            totals.damaged += process.damaged;
            totals.overwritten += process.overwritten;
            totals.bytes += process.bytes;
        }
        totals
    }
}

/// Formats a count with its noun: "1 process", "2 processes".
pub(crate) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let plain = "a line\nwith\ttabs, \u{e9} and \u{65e5}\n";
        assert!(matches!(readable(plain), Cow::Borrowed(_)));
        assert_eq!(readable(plain), plain);
        assert_eq!(
            readable("\u{1b}[2J\u{7}\r\u{7f}\u{9b}31m\n"),
            "\\u{1b}[2J\\u{7}\\r\\u{7f}\\u{9b}31m\n"
        );
    }

    #[test]
    fn shell_words_are_quoted() {
        for text in ["traces/a-b_1", "", "a b", "it's $HOME `x` \\ \"\n;", "*"] {
            let script = format!("printf %s {}", shell_word(text));
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output();
            assert_eq!(output.unwrap().stdout, text.as_bytes());
        }
        assert_eq!(shell_word("traces/a-b_1"), "traces/a-b_1");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["N", "A", "B"], ["10", "x", "yy"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "   N A B\n  10 x yy\n");
    }
}
