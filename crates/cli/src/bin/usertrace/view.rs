//! `usertrace view`: prints traces, merged by time.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use usertrace_reader::{Event, Hosts, Item, LossKind, Lost, Printer, Reader, is_going_on};
use usertrace_symbols::Resolver;

use crate::call_printer::CallPrinter;
use crate::selection::Selected;
use crate::status::{DAMAGED, WRONG_COMMAND_LINE};
use crate::symbols::{self, Symbols};
use crate::{output, place};

/// Size of a write, in bytes.
const CHUNK: usize = 128 << 10;

/// Time between two checks for new events.
const PAUSE: Duration = Duration::from_millis(100);

/// Print the events of traces, merged by time
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace view usertrace-20261122T150347Z | less
  usertrace view -e 'shop:*,!shop:tick' --from 15:03:47.2 traces
  usertrace view --where 'status >= 500 && path == \"/api/*\"' traces
  usertrace view --pid 4710,4711 traces
  usertrace record -o traces -- ./server & sleep 1; usertrace view --follow traces
  usertrace view --debug-dir symbols traces              # functions and lines of addresses
  usertrace view --calls traces                          # of record --function

A directory is a trace, with a file metadata, or has some below it: what record, snapshot, extract and programs that trace
without the patched kernel have written. Each event is a line, as babeltrace2 prints it: the time of day, the time since the
line before, host, program and process id, the event, the CPU or thread whose ring it was in, contexts, and fields. What was
lost is said on standard error, with the file that it is missing in. If the end of a file is missing, as a recorder leaves it
that was killed, events up to there are printed, and the status is 3; usertrace record -o into the same directory completes
what a recorder left.

With --calls, each function of record --function is a line with its duration, or two if something happened in it: NAME() { and
} /* NAME */, with the calls in it between them. Other events are comments. Threads are told apart by their ids; record
--context vtid, or with rings of threads. \"left without an exit\" is a function that an exception or longjmp left, or whose exit
was lost.

With --follow, what record is writing is printed as it is written, within a fraction of a second; programs that trace without
it write when a sub-buffer is full. It ends when record has ended, or, if there is none, all processes have, or by a signal, as
that of Ctrl-C. Events that were written late come late; the time since the line before is negative then.

Traces of several hosts are merged by the hosts' own clocks. How far these can be trusted is said on standard error. --sync
corrects them by messages and says which error is left; it reads the traces twice.

--where chooses events by their values, in the syntax of LTTng's filters: fields by their names, an element as sizes[0],
contexts as $ctx.NAME, those of the program as $app.NAME; integers, floats, \"TEXT\" in which * stands for any characters;
< <= > >= == !=, && || !, & | ^ ~ << >> (which bind more tightly than comparisons), parentheses. Events that lack
the decisive fields are not printed. Losses are reported as ever. docs/reference/expressions.md says more.

If the channel has context ip or callstack, the functions there follow each event in lines of their own, which begin with
four spaces: the innermost first, with file and line; so do the addresses of other functions, as of record --function. Symbols
are found by the build ID that the trace has of each program and library: in the file itself, in a debug file in DIR of
--debug-dir or /usr/lib/debug, or from the servers in $DEBUGINFOD_URLS. A file with another build ID is not used, and a message
says so. --symbols never prints addresses only, as babeltrace2 does.

TIME is HH:MM:SS as printed, which is looked for within the traces; YYYY-MM-DD HH:MM:SS; or seconds since 1970; all with
up to nine decimals.

Exit status: 0, or 1 if there is no trace, it cannot be read or --sync corrects no clock, 2 for a wrong command line, 3 if
something of them is damaged or missing, and the rest was printed.")]
pub(crate) struct Args {
    #[command(flatten)]
    selected: Selected,

    /// Go on with what is recorded meanwhile, also of processes that begin later
    #[arg(long, conflicts_with_all = ["from", "to", "sync"])]
    follow: bool,

    /// Print calls of functions with indentation, from the events of record --function: each with
    /// its duration, and other events between them
    #[arg(long)]
    calls: bool,

    /// Also print the events that describe the modules that processes have loaded
    #[arg(long)]
    modules: bool,

    #[command(flatten)]
    symbols: Symbols,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let mut view = View {
            prints_modules: self.modules,
            calls: self.calls.then(CallPrinter::default),
            resolver: self.symbols.options()?.map(Resolver::new),
            ..View::default()
        };
        let wants_modules = self.modules || view.resolver.is_some();
        let written = if self.follow {
            let Some(selection) = self.selected.selection() else {
                return Ok(WRONG_COMMAND_LINE);
            };
            let directories = &self.selected.directories;
            let mut reader = Reader::follow(directories, selection)?;
            reader.set_modules(wants_modules);
            let hosts = Hosts::of(reader.traces());
            hosts.lines().iter().for_each(output::say);
            let written = view.follow(&mut reader, directories);
            reader.unknown_names().iter().for_each(output::say);
            written
        } else {
            let Some(mut reader) = self.selected.open()? else {
                return Ok(WRONG_COMMAND_LINE);
            };
            reader.set_modules(wants_modules);
            view.print(&mut reader)
        };
        if let Some(resolver) = &view.resolver {
            symbols::say(resolver.symbols.missing());
        }
        if let Some(note) = view.calls.as_ref().and_then(CallPrinter::note) {
            output::say(note);
        }
        view.exit_status(written)
    }
}

#[derive(Default)]
struct View {
    text: Vec<u8>,
    printer: Printer,
    is_damaged: bool,
    /// Names code addresses, if that is wanted.
    resolver: Option<Resolver>,
    prints_modules: bool,
    /// Prints calls, if that is wanted.
    calls: Option<CallPrinter>,
}

impl View {
    /// Prints the traces, and new events, until nobody writes any more.
    fn follow(&mut self, reader: &mut Reader, directories: &[PathBuf]) -> io::Result<()> {
        let mut was_recorded = false;
        // Check for writers before the last read: a writer that ends has written everything by
        // then. The fallback's daemons write after their process has ended, so wait for three
        // checks without a writer.
        let mut idle = 0;
        while idle < 3 {
            self.print(reader)?;
            thread::sleep(PAUSE);
            idle = match is_going_on(reader, directories, &mut was_recorded) {
                true => 0,
                false => idle + 1,
            };
            reader.refresh();
            self.forget_classes();
        }
        self.print(reader)?;
        reader.finish();
        self.forget_classes();
        self.print(reader)
    }

    /// The exit status.
    fn exit_status(&self, written: io::Result<()>) -> anyhow::Result<u8> {
        match written {
            // The reader closed the pipe, which is no error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            written => written.context("cannot write to standard output")?,
        }
        Ok(if self.is_damaged { DAMAGED } else { 0 })
    }

    /// Prints all items that the reader has now.
    fn print(&mut self, reader: &mut Reader) -> io::Result<()> {
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => {
                    self.event(&event)?;
                    if self.text.len() >= CHUNK {
                        self.flush()?;
                    }
                }
                Item::Lost(lost) => {
                    let what = self.describe(&lost);
                    self.say(what)?;
                }
                Item::Error(error) => {
                    self.is_damaged |= error.is_damage();
                    self.say(error)?;
                }
            }
        }
        if let Some(calls) = &mut self.calls {
            calls.flush(&mut self.text);
        }
        self.flush()
    }

    /// Appends an event, and what the code addresses in it are called.
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        let is_of_modules = event.stream.is_about_modules();
        if self.calls.is_some() {
            return self.call(event, is_of_modules);
        }
        if !is_of_modules || self.prints_modules {
            self.printer.event(&mut self.text, event);
        }
        let Some(resolver) = &mut self.resolver else {
            return Ok(());
        };
        if is_of_modules {
            resolver.note(event);
            return Ok(());
        }
        let named = resolver.name_fields(event);
        if named.is_empty() {
            return Ok(());
        }
        place::append(&mut self.text, &named);
        for message in resolver.symbols.take_messages() {
            self.say(message)?;
        }
        Ok(())
    }

    /// Appends what an event says of calls.
    fn call(&mut self, event: &Event<'_>, is_of_modules: bool) -> io::Result<()> {
        let (Some(calls), resolver) = (&mut self.calls, &mut self.resolver) else {
            return Ok(());
        };
        if is_of_modules {
            if let Some(resolver) = resolver {
                resolver.note(event);
                calls.forget_names();
            }
            return Ok(());
        }
        calls.event(&mut self.text, event, resolver.as_mut());
        let messages = resolver.as_mut().map(|of| of.symbols.take_messages());
        for message in messages.unwrap_or_default() {
            self.say(message)?;
        }
        Ok(())
    }

    /// The reader may have read other declarations.
    fn forget_classes(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.forget_classes();
        }
        if let Some(resolver) = &mut self.resolver {
            resolver.refresh();
        }
    }

    /// Prints a message after the events that precede it.
    fn say(&mut self, what: impl std::fmt::Display) -> io::Result<()> {
        self.flush()?;
        output::say(what);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
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
        let lost_what = match lost.kind {
            LossKind::Events(n) => count(n, "event"),
            LossKind::Packets(n) => count(n, "packet"),
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
