//! `usertrace report`: writes an HTML page about traces.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use usertrace_report::html::Report;

use crate::selection::Selected;
use crate::status::{DAMAGED, WRONG_COMMAND_LINE};
use crate::symbols::{self, Symbols};
use crate::{destination, output};

/// Make one HTML page of traces, to look at in a browser
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace report traces -o page.html
  usertrace report -e 'shop:*,!shop:tick' --from 15:03:47.2 --to 15:03:48 traces
  usertrace report --where 'bytes >= 4096' traces                     # view --help says what EXPR is
  usertrace record --pthread --malloc --context vtid,procname -o traces -- ./server; usertrace report traces

The page needs nothing but itself: no server, no network, no other file. It shows how many events there were, when, of which
thread and on which CPU; what lasted, where events belong together (X_entry and X_exit, _begin and _end, _req and _acq,
spans of tracing, malloc and free, mutexes that are held); the slowest requests of programs that use tracing; the calls of
record --function; what was lost; and, of traces that extract took out of a dump, where
they end. ? in the page says which keys it has. Threads have lanes of their own if the trace tells threads apart: record
--context vtid,procname.

Counts are exact, and the longest durations are there, however large the trace is. Single events, with their fields, are in the
page as far as there is room (--detail); where there are none, the page says so, and report --from --to of that time
has them.

TIME is HH:MM:SS as in the page, which is looked for within the traces; YYYY-MM-DD HH:MM:SS; or seconds since 1970; all with
up to nine decimals.

Exit status: 0, or 1 if there is no trace, it cannot be read or written or --sync corrects no clock, 2 for a wrong command
line, 3 if something of them is damaged or missing, and the page has the rest.")]
pub(crate) struct Args {
    #[command(flatten)]
    selected: Selected,

    #[command(flatten)]
    symbols: Symbols,

    /// The page, in place of one that is there; - for standard output [default:
    /// usertrace-TIME.html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// MiB for single events, compressed: the page becomes a third larger than that
    #[arg(long, value_name = "MIB", default_value_t = (Report::DETAIL >> 20) as u32)]
    detail: u32,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let Some((mut reader, clocks)) = self.selected.open_hosts()? else {
            return Ok(WRONG_COMMAND_LINE);
        };
        let symbols = self.symbols.options()?;
        reader.set_modules(true);
        let mut report = Report::collect(&mut reader, (self.detail as usize) << 20, symbols);
        report.set_clocks(clocks);
        for problem in report.problems() {
            output::say(problem);
        }
        symbols::say(report.take_messages());
        let names: Vec<String> = self
            .selected
            .directories
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let path = self.output.unwrap_or_else(|| output::new_file(".html"));
        let title = names.join(" ");
        let len = destination::fill(&path, |mut to| report.write(&title, &mut to))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let lost = match (report.lost(), report.lost_packets()) {
            (events, 0) => format!("{events} lost"),
            (events, packets) => format!("{events} and {packets} packets lost"),
        };
        output::say(format_args!(
            "{}: {} events of {}, {lost}; {} of them one by one; {len} bytes",
            path.display(),
            report.events(),
            output::count(report.processes(), "process", "processes"),
            report.detailed(),
        ));
        Ok(if report.is_damaged() { DAMAGED } else { 0 })
    }
}
