//! Shows counters: as text, JSON and OpenMetrics.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;
use usertrace_reader::Counter;
use usertrace_sys::count::highest_of_bucket;

use super::collected::Collected;
use super::request::Requests;
use super::{open_metrics, text};
use crate::{destination, output, terminal};

/// Where and how counters are shown.
#[derive(Debug)]
pub(super) struct Display {
    pub(super) json: Option<PathBuf>,
    pub(super) open_metrics: Option<PathBuf>,
    /// How many counters the text has.
    pub(super) top: usize,
    /// The text goes to standard error, as standard output is the program's.
    pub(super) to_stderr: bool,
    /// There is one state after the other.
    pub(super) is_live: bool,
    pub(super) requests: Requests,
    pub(super) begun: Instant,
    /// Lines on the terminal that the next state replaces.
    pub(super) drawn: usize,
    /// What was shown last, if there is one state after the other.
    pub(super) last: Option<(Vec<Counter>, u64)>,
}

/// A state, as JSON.
#[derive(Serialize)]
struct State<'a> {
    /// Since the beginning.
    seconds: f64,
    counters: Vec<CounterJson<'a>>,
    /// Events that found no room in a table.
    overflow: u64,
    /// Events that were not counted.
    lost: u64,
    problems: &'a [String],
}

#[derive(Serialize)]
struct CounterJson<'a> {
    event: &'a str,
    channel: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    key_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    value_name: &'a str,
    count: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    values: Option<ValuesJson>,
}

#[derive(Serialize)]
struct ValuesJson {
    values: u64,
    sum: i64,
    mean: Option<f64>,
    min: i64,
    max: i64,
    /// Buckets that have values.
    histogram: Vec<BucketJson>,
}

/// A bucket, with its lowest and its highest value. Without `from`, it has all values up to `to`;
/// without `to`, all from `from` on.
#[derive(Serialize)]
struct BucketJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
    count: u64,
}

impl Display {
    pub(super) fn new(requests: Requests) -> Self {
        Self {
            json: None,
            open_metrics: None,
            top: usize::MAX,
            to_stderr: false,
            is_live: false,
            requests,
            begun: Instant::now(),
            drawn: 0,
            last: None,
        }
    }

    /// Shows a state. The problems of it are reported then. Returns false if nobody reads on.
    pub(super) fn show(
        &mut self,
        collected: &mut Collected,
        is_last: bool,
    ) -> anyhow::Result<bool> {
        let counters = collected.counters.sums();
        if let Some(path) = &self.open_metrics {
            let text = open_metrics::text(&counters, collected.lost);
            destination::fill(path, |to| to.write_all(text.as_bytes()))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        // The last interval may have ended with the program.
        let state = (counters, collected.lost);
        let is_shown = self.last.as_ref() == Some(&state) && collected.problems.is_empty();
        if is_last && is_shown && !(self.is_terminal() && self.json.is_none()) {
            return Ok(true);
        }
        let (counters, lost) = &state;
        let goes_on = match &self.json {
            Some(path) => self.write_json(path, counters, collected)?,
            None => true,
        };
        let problems = std::mem::take(&mut collected.problems);
        if !problems.is_empty() {
            // Messages stay above the next state.
            self.drawn = 0;
        }
        problems.iter().for_each(output::say);
        let is_quiet = match &self.json {
            Some(path) => path == Path::new("-"),
            None => false,
        };
        let printed = match is_quiet {
            true => Ok(()),
            false => self.print(counters, *lost, is_last),
        };
        if self.is_live {
            self.last = Some(state);
        }
        match printed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            printed => printed
                .context("cannot write the counters")
                .map(|()| goes_on),
        }
    }

    /// Whether the text goes to a terminal.
    fn is_terminal(&self) -> bool {
        match self.to_stderr {
            true => io::stderr().is_terminal(),
            false => io::stdout().is_terminal(),
        }
    }

    fn write_json(
        &self,
        path: &Path,
        counters: &[Counter],
        collected: &Collected,
    ) -> anyhow::Result<bool> {
        let overflow = counters.iter().filter(|counter| counter.is_overflow());
        let overflow = overflow.fold(0u64, |sum, of| sum.saturating_add(of.count));
        let known = counters.iter().filter(|counter| !counter.is_overflow());
        let state = State {
            seconds: self.begun.elapsed().as_secs_f64(),
            counters: known.map(CounterJson::of).collect(),
            overflow,
            lost: collected.lost,
            problems: &collected.problems,
        };
        if !self.is_live {
            output::json(path, &state)?;
            return Ok(true);
        }
        let mut line = serde_json::to_string(&state).context("cannot make JSON")?;
        line.push('\n');
        if path != Path::new("-") {
            destination::fill(path, |to| to.write_all(line.as_bytes()))
                .with_context(|| format!("cannot write {}", path.display()))?;
            return Ok(true);
        }
        let mut out = io::stdout().lock();
        match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            written => written
                .context("cannot write to standard output")
                .map(|()| true),
        }
    }

    fn print(&mut self, counters: &[Counter], lost: u64, is_last: bool) -> io::Result<()> {
        let is_terminal = self.is_terminal();
        let descriptor = if self.to_stderr { 2 } else { 1 };
        let (width, height) = match is_terminal {
            true => terminal::size_of(descriptor),
            false => (80, usize::MAX),
        };
        let redraws = self.is_live && is_terminal;
        let mut text = String::new();
        if self.is_live && !redraws {
            text += &format!("{:.1} s:\n", self.begun.elapsed().as_secs_f64());
        }
        text += &self.text(counters, lost, width);
        let mut before = String::new();
        if redraws {
            if self.drawn > 0 {
                before = format!("\x1b[{}A\r\x1b[J", self.drawn);
            }
            // The last state stays as a whole.
            if !is_last {
                text = fitting(&text, width, height);
            }
            self.drawn = text.lines().count();
        } else if self.is_live && !is_last {
            text.push('\n');
        }
        let text = before + &output::readable(&text);
        match self.to_stderr {
            true => {
                // As for messages, a failure to write to standard error is no error.
                let _ = io::stderr().lock().write_all(text.as_bytes());
                Ok(())
            }
            false => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }

    fn text(&self, counters: &[Counter], lost: u64, width: usize) -> String {
        if counters.is_empty() {
            let mut text = "no event was counted\n".to_owned();
            text += &losses(lost);
            return text;
        }
        let shown: Vec<&Counter> = counters.iter().take(self.top).collect();
        let mut text = text::table(&shown);
        if let Some(more) = counters.len().checked_sub(shown.len()).filter(|&n| n > 0) {
            let more = output::count(more, "counter", "counters");
            text += &format!("and {more} with fewer events (--top)\n");
        }
        let overflow = counters.iter().filter(|counter| counter.is_overflow());
        let overflow = overflow.fold(0u64, |sum, of| sum.saturating_add(of.count));
        if overflow > 0 {
            text += &format!(
                "{overflow} events found no room in a table, so their keys are not told apart\n"
            );
        }
        text += &losses(lost);
        for counter in shown {
            if counter.values > 0 && self.requests.wants_histogram(counter) {
                text += &format!("\n{}\n", text::title(counter));
                text += &text::histogram(counter, width);
            }
        }
        text
    }
}

fn losses(lost: u64) -> String {
    match lost {
        0 => String::new(),
        1 => "1 event was lost, and not counted\n".to_owned(),
        _ => format!("{lost} events were lost, and not counted\n"),
    }
}

/// As many lines as a terminal has, each no longer than it is wide.
fn fitting(text: &str, width: usize, height: usize) -> String {
    let lines = text.lines().take(height.saturating_sub(1).max(1));
    let lines = lines.map(|line| line.chars().take(width).chain(['\n']).collect::<String>());
    lines.collect()
}

impl<'a> CounterJson<'a> {
    fn of(counter: &'a Counter) -> Self {
        let has_key = !counter.key_name.is_empty();
        let limit = if counter.sum < 0 { i64::MIN } else { i64::MAX };
        let buckets = counter.histogram.iter().enumerate();
        let buckets = buckets.filter(|(_, count)| **count > 0);
        let buckets = buckets.map(|(n, &count)| BucketJson {
            from: n.checked_sub(1).map(|bit| 1 << bit),
            to: highest_of_bucket(n),
            count,
        });
        Self {
            event: &counter.event,
            channel: &counter.channel,
            key_name: &counter.key_name,
            key: has_key.then_some(&*counter.key),
            value_name: &counter.value_name,
            count: counter.count,
            values: (!counter.value_name.is_empty()).then(|| ValuesJson {
                values: counter.values,
                sum: i64::try_from(counter.sum).unwrap_or(limit),
                mean: counter.mean(),
                min: counter.min,
                max: counter.max,
                histogram: buckets.collect(),
            }),
        }
    }
}
