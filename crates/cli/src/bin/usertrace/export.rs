//! `usertrace export`: converts traces to JSON, to Perfetto's format, to OTLP, to Parquet, or to
//! profiles.

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
#[cfg(feature = "parquet")]
use usertrace_columns::{Columns, Limits};
use usertrace_reader::{Event, Item, Lost, Reader, Trace};
use usertrace_report::export::{Json, LeftOut, Otlp, Perfetto, StackExport, StackFormat};
use usertrace_report::stacks::Weight;
use usertrace_symbols::{NamedField, Options, Resolver};

use crate::selection::Selected;
use crate::status::{DAMAGED, WRONG_COMMAND_LINE};
use crate::symbols::{self, Symbols};
#[cfg(feature = "parquet")]
use crate::tables;
use crate::{destination, output};

/// Size of a write, in bytes.
const CHUNK: usize = 128 << 10;

/// Write the events of traces in a format of others
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace export --json traces | jq -r 'select(.event == \"libc:malloc\") | .fields.size'
  usertrace export --json -e 'shop:*' --pid 4710 -o events.json traces
  usertrace export --json --where 'status >= 500' traces              # view --help says what EXPR is
  usertrace export --perfetto -o traces.perfetto-trace traces         # to open at ui.perfetto.dev
  usertrace export --parquet columns traces                           # to query with DuckDB or Spark
  usertrace export --otlp -o spans.jsonl traces                       # for the OpenTelemetry Collector
  usertrace export --folded -o traces.folded traces                   # for flamegraph.pl, inferno or speedscope
  usertrace export --pprof -o traces.pb.gz traces                     # go tool pprof -http : traces.pb.gz
  usertrace export --firefox -o traces.json.gz traces                 # to open at profiler.firefox.com
  usertrace record --malloc --context callstack -o traces -- ./server; usertrace export --pprof --by live -o live.pb.gz traces

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
UTF-8, {\"text\": ..., \"hex\": ...}; what is no number, \"NaN\", \"Infinity\" or \"-Infinity\". Behind code addresses (ip, callstack,
and those of --function) are their functions: ip_frames, callstack_frames; view --help says where symbols are looked for.

With --perfetto, it is a file for Perfetto: of each process a track, and below it one for each thread, if the trace knows
threads (record --context vtid,procname), or else one for each CPU. Fields are arguments, by their names; contexts are below
context, and the ring's below packet. Events of one thread that say that something begins and ends (NAME_entry and NAME_exit, or
_enter, .enter; _begin, _start and _end; _req and _acq) make a slice, all others are instants. What is missing is a slice,
on a track of the stream that it is missing in. Times are those that view prints. Functions at code addresses are arguments:
ip_frames and the like, and source_location. Calls of --function are slices with the function's name.

With --otlp, each line is a message of OTLP with spans, as the OpenTelemetry Collector reads them from files. Spans are those of
programs that use tracing, with their events; and those that make a slice with --perfetto. What is missing is a span of scope
usertrace. All other events are left out. How many spans have no begin or no end, and so are left out, is said on standard error.
Code is named by attributes: code.function.name, code.file.path, code.line.number and code.stacktrace.

With --parquet, DIR becomes a directory of tables, one for each kind of event, in Parquet files:
DIR/host=HOST/date=DATE/event=EVENT/part-N.parquet. Each event is a row: time, trace, process, pid, tid, cpu, provider, name,
loglevel, its fields by their names, and contexts with ctx_ in front. Losses are rows of a table of their own, event=lost. Times
are in nanoseconds since 1970, dates are those of UTC. Behind fields with code addresses are X_function, X_file and X_line.
DIR appears when all of it is written. It replaces an earlier export; a
directory with anything else is refused. docs/how-to/columns.md says more.

With --folded, --pprof or --firefox, what happened is added up by call stack: record --context callstack for stacks, or ip for
the place of each event alone. --by says what is added up:
  events     the number of events
  bytes      the sizes of allocations, and of other events the field bytes, size or len
  time       the time between events that begin and end something in one thread, in ns, without that of what is within it
  live       the bytes of allocations that were not released at the end (record --malloc)
  peak       the bytes of allocations when their process had the most in use
The innermost frame is the event, or what began and ended. Functions have names if their files or debug files are found.

--folded writes a line for each stack: frames from the outermost with ; between them, and the weight. The first frame is the
process, the second one the thread if --threads is given. --pprof writes all weights that there are, and --by is the one that pprof
shows first; process, thread and event are labels. --firefox has a track for each thread; what happened at about the same time
in one stack is one sample.

What cannot be read is said on standard error, and the rest is written.

TIME is HH:MM:SS as usertrace view prints it, which is looked for within the traces; YYYY-MM-DD HH:MM:SS; or seconds since 1970;
all with up to nine decimals.

Exit status: 0, or 1 if there is no trace, or it cannot be read, or FILE or DIR not be written; 2 for a wrong command line; 3 if
something of the traces is damaged or missing, and the rest was written.")]
#[command(
    override_usage = "usertrace export [OPTIONS] <--json|--perfetto|--otlp> <DIR>...\n       usertrace export [OPTIONS] <--folded|--pprof> <DIR>...\n       usertrace export [OPTIONS] --firefox <DIR>...\n       usertrace export [OPTIONS] --parquet <DIR> <DIR>..."
)]
#[command(group = clap::ArgGroup::new("format").required(true))]
pub(crate) struct Args {
    /// As JSON, an object in each line
    #[arg(long, group = "format")]
    json: bool,

    /// As a trace of Perfetto
    #[arg(long, group = "format")]
    perfetto: bool,

    /// As spans for OpenTelemetry, a message of OTLP in each line
    #[arg(long, group = "format")]
    otlp: bool,

    /// As folded call stacks, a line for each, with the sum of a weight
    #[arg(long, group = "format")]
    folded: bool,

    /// As a profile for pprof
    #[arg(long, group = "format")]
    pprof: bool,

    /// As a profile for Firefox Profiler
    #[arg(long, group = "format")]
    firefox: bool,

    /// What is added up by call stack: events, bytes, time, live or peak
    #[arg(long, value_name = "WEIGHT", default_value = "events", value_parser = weight,
        conflicts_with_all = ["json", "perfetto", "otlp", "parquet"])]
    by: Weight,

    /// Give each thread a frame of its own in folded call stacks
    #[arg(long, requires = "folded")]
    threads: bool,

    /// As tables of Parquet files in DIR, in place of an earlier export that is there
    #[arg(long, group = "format", value_name = "DIR", conflicts_with = "output")]
    parquet: Option<PathBuf>,

    #[command(flatten)]
    selected: Selected,

    #[command(flatten)]
    symbols: Symbols,

    /// Write to FILE, in place of one that is there; - for standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Parses the name of a weight.
fn weight(name: &str) -> Result<Weight, String> {
    let known = Weight::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| {
        let names = Weight::ALL.map(Weight::name);
        format!("unknown weight; known: {}", names.join(", "))
    })
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let binary = [
            (self.perfetto, "--perfetto"),
            (self.pprof, "--pprof"),
            (self.firefox, "--firefox"),
        ];
        if let Some((_, option)) = binary.iter().find(|(is_chosen, _)| *is_chosen)
            && self.output.is_none()
            && io::stdout().is_terminal()
        {
            output::say(format_args!(
                "{option} is nothing to look at: it wants -o FILE, or a pipe"
            ));
            return Ok(WRONG_COMMAND_LINE);
        }
        let stacks = match (self.folded, self.pprof, self.firefox) {
            (true, _, _) => Some(StackFormat::Folded),
            (_, true, _) => Some(StackFormat::Pprof),
            (_, _, true) => Some(StackFormat::Firefox),
            _ => None,
        };
        // Open the traces before the output file is replaced: it may hold something of value.
        let Some(mut reader) = self.selected.open()? else {
            return Ok(WRONG_COMMAND_LINE);
        };
        let symbols = self.symbols.options()?;
        if let Some(directory) = &self.parquet {
            return write_columns(directory, &mut reader, symbols);
        }
        let format = match (stacks, self.perfetto, self.otlp) {
            (Some(format), _, _) => {
                reader.set_modules(true);
                let export = StackExport::new(format, self.by, self.threads, symbols);
                Format::Stacks(Box::new(export))
            }
            (None, is_perfetto, is_otlp) => {
                reader.set_modules(symbols.is_some());
                let resolver = symbols.map(Resolver::new);
                let to = if is_perfetto {
                    let mut perfetto = Perfetto::new();
                    perfetto.set_hosts(reader.traces());
                    EventFormat::Perfetto(Box::new(perfetto))
                } else if is_otlp {
                    EventFormat::Otlp(Box::default())
                } else {
                    EventFormat::Json(Json::new())
                };
                Format::Events(to, Box::new(resolver))
            }
        };
        let path = self.output.as_deref().unwrap_or(Path::new("-"));
        let mut is_damaged = false;
        let written = destination::fill(path, |to| {
            let mut export = Export::new(to, format);
            let written = export.write(&mut reader);
            is_damaged = export.is_damaged;
            written
        });
        written.with_context(|| match path.to_str() {
            Some("-") => "cannot write to standard output".to_owned(),
            _ => format!("cannot write {}", path.display()),
        })?;
        Ok(if is_damaged { DAMAGED } else { 0 })
    }
}

/// Writes tables. Returns the exit status.
#[cfg(feature = "parquet")]
fn write_columns(
    directory: &Path,
    reader: &mut Reader,
    symbols: Option<Options>,
) -> anyhow::Result<u8> {
    let mut columns = Columns::new(directory, Limits::default())?;
    reader.set_modules(symbols.is_some());
    let mut resolver = symbols.map(Resolver::new);
    if resolver.is_some() {
        columns.name_code();
    }
    let mut is_damaged = false;
    tables::fill(
        &mut columns,
        reader,
        resolver.as_mut(),
        &std::sync::atomic::AtomicBool::new(false),
        &mut |error| {
            is_damaged |= error.is_damage();
            output::say(error);
        },
    )?;
    columns.finish()?;
    if let Some(resolver) = &mut resolver {
        symbols::say(resolver.symbols.take_messages());
        symbols::say(resolver.symbols.missing());
    }
    Ok(if is_damaged { DAMAGED } else { 0 })
}

#[cfg(not(feature = "parquet"))]
fn write_columns(_: &Path, _: &mut Reader, _: Option<Options>) -> anyhow::Result<u8> {
    anyhow::bail!("this usertrace was built without --parquet (feature \"parquet\")")
}

/// Formats in which each event has a place of its own.
enum EventFormat {
    Json(Json),
    Perfetto(Box<Perfetto>),
    Otlp(Box<Otlp>),
}

enum Format {
    Events(EventFormat, Box<Option<Resolver>>),
    Stacks(Box<StackExport>),
}

impl EventFormat {
    fn event(&mut self, out: &mut Vec<u8>, event: &Event<'_>, named: &[NamedField<'_>]) {
        match self {
            Self::Json(json) => json.named_event(out, event, named),
            Self::Perfetto(perfetto) => perfetto.named_event(out, event, named),
            Self::Otlp(otlp) => otlp.named_event(out, event, named),
        }
    }

    fn lost(&mut self, out: &mut Vec<u8>, lost: &Lost, trace: &Trace) {
        match self {
            Self::Json(json) => json.lost(out, lost, trace),
            Self::Perfetto(perfetto) => perfetto.lost(out, lost, trace),
            Self::Otlp(otlp) => otlp.lost(out, lost, trace),
        }
    }

    /// Appends what comes behind all events.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if let Self::Otlp(otlp) = self {
            let LeftOut { unbegun, unended } = otlp.finish(out);
            if unbegun > 0 || unended > 0 {
                output::say(format_args!(
                    "spans that are left out: {unbegun} without a begin, {unended} without an end"
                ));
            }
        }
    }
}

impl Format {
    fn event(&mut self, out: &mut Vec<u8>, event: &Event<'_>) {
        match self {
            Self::Events(to, resolver) => match &mut **resolver {
                Some(resolver) => {
                    if !resolver.note(event) {
                        to.event(out, event, &resolver.name_fields(event));
                    }
                    symbols::say(resolver.symbols.take_messages());
                }
                None => to.event(out, event, &[]),
            },
            Self::Stacks(stacks) => stacks.event(event),
        }
    }

    fn lost(&mut self, out: &mut Vec<u8>, lost: &Lost, trace: &Trace) {
        match self {
            Self::Events(to, _) => to.lost(out, lost, trace),
            Self::Stacks(stacks) => stacks.lost(lost),
        }
    }

    /// Appends what comes behind all events.
    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Events(to, resolver) => {
                to.finish(out);
                if let Some(resolver) = &**resolver {
                    symbols::say(resolver.symbols.missing());
                }
            }
            Self::Stacks(stacks) => {
                let notes = stacks.finish(out).map_err(io::Error::other)?;
                symbols::say(stacks.take_messages());
                symbols::say(notes.lines());
            }
        }
        Ok(())
    }
}

struct Export<W> {
    to: W,
    format: Format,
    bytes: Vec<u8>,
    is_damaged: bool,
}

impl<W: Write> Export<W> {
    fn new(to: W, format: Format) -> Self {
        Self {
            to,
            format,
            bytes: Vec::new(),
            is_damaged: false,
        }
    }

    fn write(&mut self, reader: &mut Reader) -> io::Result<()> {
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => self.format.event(&mut self.bytes, &event),
                Item::Lost(lost) => {
                    if let Some(trace) = reader.traces().get(lost.trace) {
                        self.format.lost(&mut self.bytes, &lost, trace);
                    }
                }
                Item::Error(error) => {
                    self.is_damaged |= error.is_damage();
                    output::say(error);
                }
            }
            if self.bytes.len() >= CHUNK {
                self.flush()?;
            }
        }
        self.format.finish(&mut self.bytes)?;
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.bytes)?;
        self.bytes.clear();
        self.to.flush()
    }
}
