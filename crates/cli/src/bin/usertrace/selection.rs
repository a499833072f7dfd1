//! Options that select traces and events, shared by the commands that read traces.

use std::path::PathBuf;
use std::time::Duration;

use usertrace_reader::sync::{SyncRule, synchronize};
use usertrace_reader::{Condition, Corrections, Hosts, Patterns, Reader, Selection, Time, Trace};

use crate::output;
use crate::pids::{self, Named};

#[derive(Debug, clap::Args)]
pub(crate) struct Selected {
    /// Directories with traces
    #[arg(required = true, value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,

    /// Only these events: NAME or PROVIDER:NAME, * for any characters, ? for any one, ! in front
    /// for those that are not wanted; several with commas between them, of which the last that
    /// matches counts [default: all]
    #[arg(short, long, value_name = "PATTERNS", value_delimiter = ',')]
    event: Vec<String>,

    /// Only events whose fields and contexts fulfil a condition in the syntax of LTTng's filters:
    /// 'size > 0 && path == "/api/*"'
    #[arg(long = "where", value_name = "EXPR")]
    condition: Option<Condition>,

    #[command(flatten)]
    processes: pids::OfProcesses,

    /// Only those from this time on
    #[arg(long, value_name = "TIME")]
    from: Option<Time>,

    /// Only those up to this time
    #[arg(long, value_name = "TIME")]
    to: Option<Time>,

    /// Only those of the last so long, up to the end of the last one: 10s, 200ms
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, conflicts_with = "from")]
    last: Option<Duration>,

    /// Correct the clocks of several hosts by the messages between them: the events that send and
    /// receive a message, as PROVIDER:NAME, and the fields that are equal in both, with commas
    /// between them. Once for each kind of message. EVENT:FIELD is for an event that both hosts
    /// write twice in each call
    #[arg(long, value_name = "SEND=RECEIVE:FIELD")]
    sync: Vec<SyncRule>,
}

impl Selected {
    /// Takes `--where` away, for a command whose condition is on something other than events.
    pub(crate) fn take_condition(&mut self) -> Option<Condition> {
        self.condition.take()
    }

    /// The selection for the reader, without times, which depend on the traces. `None`: a pattern
    /// is invalid, and a message said so; the exit status is
    /// [`WRONG_COMMAND_LINE`](crate::status::WRONG_COMMAND_LINE) then.
    pub(crate) fn selection(&self) -> Option<Selection> {
        let mut selection = Selection {
            events: patterns(&self.event)?,
            condition: self.condition.clone(),
            ..Selection::default()
        };
        for process in self.processes.named() {
            match process {
                Named::Pid(pid) => selection.pids.push((*pid).into()),
                Named::Name(name) => selection.names.push(name.clone()),
            }
        }
        Some(selection)
    }

    /// Opens the traces, and says of several hosts how far their times are comparable. `None`: as
    /// for [`selection`](Self::selection).
    pub(crate) fn open(&self) -> anyhow::Result<Option<Reader>> {
        let opened = self.open_hosts()?;
        Ok(opened.map(|(reader, clocks)| {
            clocks.iter().for_each(output::say);
            reader
        }))
    }

    /// Like [`open`](Self::open), but returns what is to be said of the hosts' clocks.
    pub(crate) fn open_hosts(&self) -> anyhow::Result<Option<(Reader, Vec<String>)>> {
        let Some(mut selection) = self.selection() else {
            return Ok(None);
        };
        let mut clocks = None;
        if !self.sync.is_empty() {
            let Some((corrections, lines)) = self.synchronize()? else {
                return Ok(None);
            };
            selection.corrections = corrections;
            clocks = Some(lines);
        }
        let mut reader = Reader::open(&self.directories, selection)?;
        reader.unknown_names().iter().for_each(output::say);
        let clocks = clocks.unwrap_or_else(|| Hosts::of(reader.traces()).lines());
        let may_be_forged = |trace: &Trace| trace.metadata().env("may_be_forged").is_some();
        if reader.traces().iter().any(may_be_forged) {
            output::say(
                "a program may have forged some of these traces: they are from a dump that did not say where its traces are",
            );
        }
        if self.from.is_some() || self.to.is_some() || self.last.is_some() {
            let times = [self.from, self.to];
            let is_of_day = |time: &Option<Time>| matches!(time, Some(Time::OfDay { .. }));
            let needs_span = self.last.is_some() || times.iter().any(is_of_day);
            let span = needs_span.then(|| reader.span());
            let span = span.flatten().unwrap_or_default();
            let within = |time: Option<Time>| time.map(|time| time.within(span));
            let before_end = self.last.map(|last| {
                let last = i64::try_from(last.as_nanos()).unwrap_or(i64::MAX);
                span.1.saturating_sub(last)
            });
            reader.set_times(before_end.or(within(self.from)), within(self.to));
        }
        Ok(Some((reader, clocks)))
    }

    /// Reads the messages between hosts. Returns the corrections of the hosts' clocks, and what is
    /// to be said of them. `None`: `--sync` does not fit the traces, and a message said so.
    fn synchronize(&self) -> anyhow::Result<Option<(Corrections, Vec<String>)>> {
        match synchronize(&self.directories, &self.sync) {
            Ok(synchronized) => {
                let lines = synchronized.lines();
                Ok(Some((synchronized.corrections, lines)))
            }
            Err(error) if error.is_wrong_rule() => {
                output::say(error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Parses patterns of events; `Some(None)` selects all events. `None`: a pattern is invalid, and a
/// message said so.
#[allow(
    clippy::option_option,
    reason = "the outer option is validity, the inner one is presence"
)]
pub(crate) fn patterns(events: &[String]) -> Option<Option<Patterns>> {
    if events.is_empty() {
        return Some(None);
    }
    let patterns = Patterns::new(events);
    patterns.map_err(output::say).ok().map(Some)
}
