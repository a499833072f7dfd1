//! `usertrace view`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use usertrace::reader::{Item, Lost, Patterns, Printer, Reader, Selection, Time, What};

use crate::output;

const WRONG_COMMAND_LINE: u8 = 2;
/// Something of what was to be read is damaged.
const DAMAGED: u8 = 3;

/// Bytes to write at once.
const CHUNK: usize = 128 << 10;

/// Print the events of traces, merged by time
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace view usertrace-20261122T150347Z | less
  usertrace view -e 'shop:*,!shop:tick' --from 15:03:47.2 traces
  usertrace view --pid 4710,4711 traces

A directory is a trace, with a file metadata, or has some below it: what record, snapshot, extract and programs that trace
without the patched kernel have written. Each event is a line, as babeltrace2 prints it: the time of day, the time since the
line before, host, program and process id, the event, the CPU or thread whose ring it was in, contexts, and fields. What was
lost is said on standard error, with the file that it is missing in. What a recorder that was killed left half written at
the end of a file is passed over; usertrace record -o into the same directory completes it.

TIME is HH:MM:SS as printed, which is looked for within the traces; YYYY-MM-DD HH:MM:SS; or seconds since 1970; all with
up to nine decimals.

Exit status: 0, or 1 if there is no trace or it cannot be read, 2 for a wrong command line, 3 if something of them is
damaged, and the rest was printed.")]
pub(crate) struct Args {
    /// Directories with traces
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Only these events: NAME or PROVIDER:NAME, * for any characters, ? for any one, ! in front for those that are not
    /// wanted; several with commas between them, of which the last that matches counts [default: all]
    #[arg(short, long, value_name = "PATTERNS", value_delimiter = ',')]
    event: Vec<String>,

    /// Only those of these processes; several with commas between them
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<i64>,

    /// Only those from this time on
    #[arg(long, value_name = "TIME")]
    from: Option<Time>,

    /// Only those up to this time
    #[arg(long, value_name = "TIME")]
    to: Option<Time>,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let events = match &self.event[..] {
            [] => None,
            patterns => match Patterns::new(patterns) {
                Ok(patterns) => Some(patterns),
                Err(bad) => {
                    output::say(bad);
                    return Ok(WRONG_COMMAND_LINE);
                }
            },
        };
        let selection = Selection {
            events,
            pids: self.pid,
            ..Selection::default()
        };
        let mut reader = Reader::open(&self.directories, selection)?;
        if self.from.is_some() || self.to.is_some() {
            let span = reader.span().unwrap_or_default();
            let within = |time: Option<Time>| time.map(|time| time.within(span));
            reader.set_times(within(self.from), within(self.to));
        }
        let mut view = View::default();
        let written = view.print(&mut reader).and_then(|()| view.flush());
        match written {
            // Who reads it has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            written => written.context("cannot write to standard output")?,
        }
        Ok(if view.is_damaged { DAMAGED } else { 0 })
    }
}

#[derive(Default)]
struct View {
    text: Vec<u8>,
    printer: Printer,
    is_damaged: bool,
}

impl View {
    /// Prints all that there is.
    fn print(&mut self, reader: &mut Reader) -> io::Result<()> {
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => {
                    self.printer.event(&mut self.text, &event);
                    if self.text.len() >= CHUNK {
                        self.flush()?;
                    }
                }
                Item::Lost(lost) => {
                    let what = self.describe(&lost);
                    self.say(what)?;
                }
                Item::Problem(problem) => {
                    self.is_damaged |= !problem.is_end();
                    self.say(problem)?;
                }
            }
        }
        Ok(())
    }

    /// Says something behind the events before it.
    fn say(&mut self, what: impl std::fmt::Display) -> io::Result<()> {
        self.flush()?;
        output::say(what);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut output = io::stdout().lock();
        output.write_all(&self.text)?;
        self.text.clear();
        output.flush()
    }

    fn describe(&mut self, lost: &Lost) -> String {
        let count = |n: u64, what: &str| match n {
            1 => format!("1 {what} was"),
            n => format!("{n} {what}s were"),
        };
        let lost_what = match lost.what {
            What::Events(n) => count(n, "event"),
            What::Packets(n) => count(n, "packet"),
        };
        let mut time = |ns| {
            let mut text = Vec::new();
            self.printer.time(&mut text, ns);
            String::from_utf8_lossy(&text).into_owned()
        };
        let (begin, end) = (time(lost.begin), time(lost.end));
        format!(
            "{lost_what} discarded between [{begin}] and [{end}] in {}",
            lost.path.display()
        )
    }
}
