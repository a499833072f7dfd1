//! `usertrace leaks`: shows who allocated the memory that is in use.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use usertrace_reader::Item;
use usertrace_report::leaks::{Leak, LeakTable, Leaks, Moment};
use usertrace_report::stacks::Frame;

use crate::output;
use crate::selection::Selected;
use crate::status::{DAMAGED, WRONG_COMMAND_LINE};
use crate::symbols::{self, DebugFiles};

/// Show who allocated the memory that is still in use
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace record --malloc --context callstack -o traces -- ./server; usertrace leaks traces
  usertrace leaks --peak traces                       # what was in use when it was the most
  usertrace leaks --debug-dir symbols --pid server traces
  usertrace leaks --json traces | jq -r '.leaks[0].function'

Each block is counted for the call stack that allocated it, from malloc, calloc, realloc and their like to free. The first line
is the call stack with the most bytes that were not freed: its bytes and blocks, the function that wanted them with file and
line, and the process. Functions of allocators, operator new and containers are not to blame, but are in the stack below it:
the innermost first.

Without context callstack, the places of context ip are counted. A child of fork begins with copies of its parent's blocks;
these count for the parent. What was lost, and blocks whose allocation is not in the trace, is said on standard error.

Symbols are found by the build ID that the trace has of each program and library: in the file itself, in a debug file in DIR
of --debug-dir or /usr/lib/debug, or from the servers in $DEBUGINFOD_URLS. A file with another build ID is not used.

Exit status: 0, or 1 if there is no trace, it cannot be read, or does not say who allocated memory, 2 for a wrong command
line, 3 if something of the traces is damaged or missing, and the rest was printed.")]
pub(crate) struct Args {
    #[command(flatten)]
    selected: Selected,

    /// What was in use when each process had the most bytes in use, instead of at the end
    #[arg(long)]
    peak: bool,

    /// Show the N call stacks with the most bytes; 0 for all of them
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,

    /// Write an object of JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    files: DebugFiles,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let mut leaks = Leaks::new(self.files.options()?);
        let Some(mut reader) = self.selected.open()? else {
            return Ok(WRONG_COMMAND_LINE);
        };
        reader.set_modules(true);
        let mut is_damaged = false;
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => leaks.event(&event),
                Item::Lost(lost) => {
                    leaks.lost(&lost);
                    is_damaged = true;
                }
                Item::Error(error) => {
                    is_damaged |= error.is_damage();
                    output::say(error);
                }
            }
        }
        if leaks.events() == 0 {
            bail!(
                "there are no allocations in these traces: record with usertrace record --malloc --context callstack"
            );
        }
        if leaks.is_without_stacks() {
            bail!(
                "these traces do not say who allocated memory: record with usertrace record --malloc --context callstack"
            );
        }
        let moment = match self.peak {
            true => Moment::Peak,
            false => Moment::End,
        };
        let table = leaks.table(moment);
        symbols::say(leaks.take_messages());
        let doubts = leaks.doubts();
        doubts.iter().for_each(output::say);
        match self.json {
            true => {
                let mut text = serde_json::to_string_pretty(&self.value(&table, &doubts))
                    .context("cannot make JSON")?;
                text.push('\n');
                output::print(&text)?;
            }
            false => output::print(&self.text(&table))?,
        }
        Ok(if is_damaged { DAMAGED } else { 0 })
    }

    /// The call stacks to show.
    fn shown<'a>(&self, table: &'a LeakTable) -> &'a [Leak] {
        match self.top {
            0 => &table.leaks,
            top => &table.leaks[..top.min(table.leaks.len())],
        }
    }

    fn text(&self, table: &LeakTable) -> String {
        let mut text = String::new();
        let shown = self.shown(table);
        for leak in shown {
            let place = leak
                .to_blame()
                .map_or_else(|| "unknown place".to_owned(), Frame::to_string);
            let _ = writeln!(
                text,
                "{} in {}: {place}, {}",
                amount(leak.bytes, "byte"),
                amount(leak.blocks, "block"),
                leak.owner
            );
            for frame in &leak.stack {
                let _ = writeln!(text, "    at {frame:#}");
            }
            text.push('\n');
        }
        let rest = &table.leaks[shown.len()..];
        if !rest.is_empty() {
            let bytes = rest.iter().map(|leak| leak.bytes).sum();
            let blocks = rest.iter().map(|leak| leak.blocks).sum();
            let _ = writeln!(
                text,
                "{} in {}: {} (--top 0 shows all)\n",
                amount(bytes, "byte"),
                amount(blocks, "block"),
                amount(rest.len() as u64, "other call stack")
            );
        }
        let when = match self.peak {
            true => "at the peak",
            false => "not freed at the end",
        };
        let _ = writeln!(
            text,
            "total: {} in {} {when}",
            amount(table.bytes, "byte"),
            amount(table.blocks, "block")
        );
        text
    }

    fn value(&self, table: &LeakTable, doubts: &[String]) -> Value {
        let leaks = self.shown(table).iter().map(|leak| {
            let blamed = leak.to_blame();
            json!({
                "bytes": leak.bytes.to_string(),
                "blocks": leak.blocks.to_string(),
                "host": leak.owner.host,
                "process": leak.owner.name,
                "pid": leak.owner.pid,
                "function": blamed.map(|frame| &frame.function),
                "file": blamed.and_then(|frame| frame.file.as_ref()),
                "line": blamed.and_then(|frame| frame.line),
                "stack": leak.stack.iter().map(frame_value).collect::<Vec<_>>(),
            })
        });
        json!({
            "at": if self.peak { "peak" } else { "end" },
            "bytes": table.bytes.to_string(),
            "blocks": table.blocks.to_string(),
            "leaks": leaks.collect::<Vec<_>>(),
            "doubts": doubts,
        })
    }
}

fn frame_value(frame: &Frame) -> Value {
    json!({
        "function": frame.function,
        "file": frame.file,
        "line": frame.line,
        "inlined": frame.is_inlined,
    })
}

/// `1 byte`, `2 bytes`
fn amount(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}
