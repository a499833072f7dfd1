//! `usertrace export`.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use usertrace::export::Json;
use usertrace::reader::{Item, Reader};

use crate::output;
use crate::selection::{DAMAGED, Selected, WRONG_COMMAND_LINE};

/// Bytes to write at once.
const CHUNK: usize = 128 << 10;

/// Write the events of traces in a format of others
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace export --json traces | jq -r 'select(.event == \"libc:malloc\") | .fields.size'
  usertrace export --json -e 'shop:*' --pid 4710 -o events.json traces

With --json, each line is an object, of an event, in the order of time:
  time       nanoseconds since 1970
  host, process, pid, trace       where it comes from, as far as that is known
  event      its name, PROVIDER:NAME
  loglevel   as in lttng-ust: 0 (emergency) to 14 (debug); missing if it is none of these
  packet     whose ring it was in: cpu_id, tid or mm_cid
  context    contexts, if its channel has any
  fields     its fields
or of what is missing in a trace, when that was noticed: lost is \"events\" or \"packets\", count how many, since when the
first of them may have been, and file the stream that they are missing in.
Times, integers of 64 bits and counts are strings of digits, as most readers of JSON round larger numbers than 2^53. Those that
are shown in hexadecimal are strings, too: \"0x1F\". An enumeration is {\"labels\": [...], \"value\": ...}; a text that is not
UTF-8, {\"text\": ..., \"hex\": ...}.

What cannot be read is said on standard error, and the rest is written. Patterns and times are those of usertrace view.

Exit status: 0, or 1 if there is no trace, or it cannot be read, or FILE not be written; 2 for a wrong command line; 3 if
something of the traces is damaged, and the rest was written.")]
#[command(group = clap::ArgGroup::new("format").required(true))]
pub(crate) struct Args {
    /// As JSON, an object in each line
    #[arg(long, group = "format")]
    json: bool,

    #[command(flatten)]
    selected: Selected,

    /// Write to FILE [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        // Before the file is made: there may be something of worth in it.
        let Some(mut reader) = self.selected.open()? else {
            return Ok(WRONG_COMMAND_LINE);
        };
        let (to, written, is_damaged) = match &self.output {
            Some(path) => {
                let to = path.display().to_string();
                let file = File::create(path).with_context(|| format!("cannot write {to}"))?;
                let mut export = Export::new(file);
                let written = export.write(&mut reader);
                (to, written, export.is_damaged)
            }
            None => {
                let mut export = Export::new(io::stdout().lock());
                let written = export.write(&mut reader);
                ("to standard output".to_owned(), written, export.is_damaged)
            }
        };
        match written {
            // Who reads it has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && self.output.is_none() => {
                return Ok(0);
            }
            written => written.with_context(|| format!("cannot write {to}"))?,
        }
        Ok(if is_damaged { DAMAGED } else { 0 })
    }
}

struct Export<W> {
    to: W,
    bytes: Vec<u8>,
    is_damaged: bool,
}

impl<W: Write> Export<W> {
    fn new(to: W) -> Self {
        Self {
            to,
            bytes: Vec::new(),
            is_damaged: false,
        }
    }

    fn write(&mut self, reader: &mut Reader) -> io::Result<()> {
        let mut json = Json::new();
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => json.event(&mut self.bytes, &event),
                Item::Lost(lost) => {
                    if let Some(trace) = reader.traces().get(lost.trace) {
                        json.lost(&mut self.bytes, &lost, trace);
                    }
                }
                Item::Problem(problem) => {
                    self.is_damaged |= !problem.is_end();
                    output::say(problem);
                }
            }
            if self.bytes.len() >= CHUNK {
                self.flush()?;
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.bytes)?;
        self.bytes.clear();
        self.to.flush()
    }
}
