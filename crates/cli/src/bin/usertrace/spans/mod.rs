//! `usertrace spans`: spans of programs that use `tracing`, by name, and one by one.

mod json;
mod table;
mod waterfall;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use usertrace_reader::{Item, LossKind};
use usertrace_report::spans::{Collected, Collector, FieldText, Options, Tree};

use crate::selection::{Selected, patterns};
use crate::status::{DAMAGED, WRONG_COMMAND_LINE};
use crate::{output, terminal};

/// How many names are shown without `--top`.
const TOP: usize = 50;
/// How many spans are named if an id is not enough to tell one.
const MATCHES: usize = 10;

/// What was read.
struct Read {
    collected: Collected,
    lost_events: u64,
    lost_packets: u64,
    is_damaged: bool,
}

/// Find slow requests: the spans of programs that use tracing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace spans traces
  usertrace spans --where 'status >= 500' --slowest 10 traces
  usertrace spans --find path=/orders traces
  usertrace spans --root 'shop:request' --slowest 5 --json traces

Without --slowest, --show and --find, each line is about the spans of one name, those with the longest total time first:
  COUNT     spans that have ended
  OPEN      spans without an end: they were open at the end of their process's events, or their end was lost
  TOTAL     sum of their durations, from .new to .close
  BUSY      sum of the times while at least one thread was in them, from .enter to .exit
  P50, P99  half, and 99 %, of them lasted no longer; the error is 1/32 at most
  MAX       the longest
  CHILDREN  share of TOTAL while at least one direct child was open
then the name, and the direct children by name, with the sum of their durations as a share of TOTAL. Children at the same time
count each there, so these shares may add up to more than CHILDREN. OPEN spans have no part in any other number.

--slowest lists root spans, those without a parent, with their fields. An id is that of the span in export --otlp, and stays
the same when the trace is read again. --show prints the span with this id, and --find the slowest root span in whose tree a
span or an event has this field with this value, as a waterfall: a line for each span, with a letter for the thread that was
in it at that time, a dot where no thread was, and * for several; below it, its events. With --slowest, --find lists all such
roots.

A span that has a parent that is not in the trace is a root, marked \"parent unknown\". Its .new may have been lost, or not be
selected by -e. If one span is around all requests, --root says which ones are requests.

--where chooses spans: its fields are those of .new and .record, contexts those of .new, and duration_ns, busy_ns, idle_ns and
name. The numbers have only the chosen spans, and --slowest and --find only the chosen roots.

TIME is HH:MM:SS as usertrace view prints it, which is looked for within the traces; YYYY-MM-DD HH:MM:SS; or seconds since 1970;
all with up to nine decimals. Spans that began before --from or ended after --to are incomplete.

Exit status: 0, or 1 if there is no trace, it cannot be read, or has no such span, 2 for a wrong command line, 3 if something
of the traces is damaged or missing, and the rest was shown.")]
#[command(mut_arg("condition", |arg| arg.help(
    "Only spans whose fields fulfil a condition in the syntax of LTTng's filters: \
     'status >= 500 && duration_ns > 1000000'"
)))]
pub(crate) struct Args {
    #[command(flatten)]
    selected: Selected,

    /// The number of names that are listed, those with the longest total time
    #[arg(long, value_name = "N", default_value_t = TOP)]
    top: usize,

    /// List the N slowest root spans
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    slowest: Option<u32>,

    /// Print the span with this id: as many of its digits as tell it from others
    #[arg(long, value_name = "ID", conflicts_with_all = ["slowest", "find"], value_parser = digits)]
    show: Option<String>,

    /// Print the slowest root span in whose tree a span or an event has this field with this value
    #[arg(long, value_name = "FIELD=VALUE")]
    find: Option<FieldText>,

    /// Spans with these names are the roots, whatever is around them: patterns as of -e
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    root: Vec<String>,

    /// Write JSON, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Parses the beginning of an id.
fn digits(text: &str) -> Result<String, String> {
    let is_id = (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    match is_id {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("an id has 1 to 16 hexadecimal digits".to_owned()),
    }
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(mut self) -> anyhow::Result<u8> {
        let condition = self.selected.take_condition();
        let Some(roots) = patterns(&self.root) else {
            return Ok(WRONG_COMMAND_LINE);
        };
        let options = Options {
            condition,
            roots,
            field: self.find.clone(),
            id: self.show.clone(),
            keep: self.kept(),
        };
        let Some(read) = self.collect(options)? else {
            return Ok(WRONG_COMMAND_LINE);
        };
        let collected = &read.collected;
        collected.unknown_names.iter().for_each(output::say);
        self.print(collected)?;
        self.say_left_out(&read);
        Ok(if read.is_damaged { DAMAGED } else { 0 })
    }

    /// How many trees are needed.
    fn kept(&self) -> usize {
        match (self.slowest, &self.show, &self.find) {
            (Some(n), ..) => n as usize,
            (_, Some(_), _) => MATCHES,
            (.., Some(_)) => 1,
            (None, None, None) => 0,
        }
    }

    /// Reads the traces. `None`: the command line is wrong, and a message said so.
    fn collect(&self, options: Options) -> anyhow::Result<Option<Read>> {
        let Some(mut reader) = self.selected.open()? else {
            return Ok(None);
        };
        let mut collector = Collector::new(options);
        let (mut lost_events, mut lost_packets, mut is_damaged) = (0u64, 0u64, false);
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => collector.event(&event),
                Item::Lost(lost) => match lost.kind {
                    LossKind::Events(n) => lost_events = lost_events.saturating_add(n),
                    LossKind::Packets(n) => lost_packets = lost_packets.saturating_add(n),
                },
                Item::Error(error) => {
                    is_damaged |= error.is_damage();
                    output::say(error);
                }
            }
        }
        let traces = reader.traces();
        Ok(Some(Read {
            collected: collector.finish(traces),
            lost_events,
            lost_packets,
            is_damaged,
        }))
    }

    fn print(&self, collected: &Collected) -> anyhow::Result<()> {
        if self.slowest.is_none() && self.show.is_none() && self.find.is_none() {
            return match &self.json {
                Some(path) => output::json(path, &json::names(collected)),
                None => output::print(&table::names(collected, self.top)),
            };
        }
        if self.slowest.is_some() {
            return match &self.json {
                Some(path) => output::json(path, &json::roots(collected)),
                None => output::print(&table::roots(collected)),
            };
        }
        let (tree, top) = self.only_span(collected)?;
        match &self.json {
            Some(path) => output::json(path, &json::tree(collected, tree, top)),
            None => {
                let (columns, _) = terminal::size_of(libc::STDOUT_FILENO);
                output::print(&waterfall::text(collected, tree, top, columns))
            }
        }
    }

    /// The span that --show or --find means, and its tree.
    fn only_span<'a>(&self, collected: &'a Collected) -> anyhow::Result<(&'a Tree, usize)> {
        let Some(digits) = &self.show else {
            match collected.trees.first() {
                Some(tree) => return Ok((tree, 0)),
                None => bail!("no root span has that field with that value in its tree"),
            }
        };
        let found = collected.trees.iter().flat_map(|tree| {
            let spans = tree.spans.iter().enumerate();
            let found =
                spans.filter(move |(_, span)| span.ids.to_string().starts_with(&digits[..]));
            found.map(move |(index, _)| (tree, index))
        });
        let found: Vec<_> = found.take(MATCHES).collect();
        match &found[..] {
            [only] => Ok(*only),
            [] => bail!("no span has the id {digits}"),
            several => {
                let ids: Vec<_> = several
                    .iter()
                    .map(|(tree, index)| tree.spans[*index].ids.to_string())
                    .collect();
                bail!(
                    "several spans have an id that begins with {digits}: {}",
                    ids.join(", ")
                )
            }
        }
    }

    /// Says on standard error what is missing.
    fn say_left_out(&self, read: &Read) {
        let left_out = read.collected.left_out;
        if read.lost_events > 0 || read.lost_packets > 0 {
            output::say(format_args!(
                "{} events and {} packets were lost: spans may be missing, or lack their ends",
                read.lost_events, read.lost_packets
            ));
        }
        if left_out.unbegun > 0 {
            output::say(format_args!(
                "{} spans ended that had not begun in these events; they are not counted",
                left_out.unbegun
            ));
        }
        if left_out.no_room > 0 {
            output::say(format_args!(
                "{} spans are not counted: too many were open at the same time",
                left_out.no_room
            ));
        }
        if left_out.is_cut {
            output::say("some of the slowest root spans are not listed: they are too large");
        }
        if self.find.is_some() && self.slowest.is_none() && left_out.trees > 0 {
            output::say(format_args!(
                "{} other root spans have that, too; add --slowest {} to list all",
                left_out.trees,
                left_out.trees + 1
            ));
        }
    }
}
