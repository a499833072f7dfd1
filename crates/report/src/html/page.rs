//! Writes the page: its code and its data.
//!
//! All data are inert. Numbers and names are JSON in which `<` is escaped; everything else is
//! compressed and in base64. The page's code converts names to text, never to HTML. A content
//! security policy forbids all other code, and all external resources.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;

use super::Report;
use super::calls::CallRows;
use super::collect::Crash;
use super::spans::Span;
use crate::activity::LaneOwner;
use crate::binary::{base64, deflate};
use crate::varint;
use usertrace_reader::Counter;

/// Maximum number of counters, those with the most events.
const COUNTERS: usize = 10_000;

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: &[&str] = &[
    include_str!("page/data.js"),
    include_str!("page/format.js"),
    include_str!("page/detail.js"),
    include_str!("page/view.js"),
    include_str!("page/timeline.js"),
    include_str!("page/overview.js"),
    include_str!("page/tables.js"),
    include_str!("page/flame.js"),
    include_str!("page/stacks.js"),
    include_str!("page/panel.js"),
    include_str!("page/spans.js"),
    include_str!("page/calls.js"),
    include_str!("page/main.js"),
];

#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    version: &'static str,
    /// In decimal: the numbers of JavaScript lack precision.
    begin: Option<String>,
    end: u64,
    events: u64,
    detailed: u64,
    lost_events: u64,
    lost_packets: u64,
    shift: u32,
    span_threshold: u64,
    life_threshold: u64,
    hosts: &'a [String],
    clocks: &'a [String],
    processes: Vec<Process<'a>>,
    lanes: Vec<Lane>,
    classes: Vec<Class<'a>>,
    pairs: Vec<Pair<'a>>,
    losses: Vec<Loss>,
    counters: Vec<CounterRow>,
    parts: Vec<[u64; 4]>,
    /// How many root spans of `tracing` the page has.
    requests: usize,
    problems: &'a [String],
    nr_problems: u64,
}

#[derive(Serialize)]
struct Process<'a> {
    name: &'a str,
    pid: Option<i64>,
    host: u32,
    trace: &'a str,
    cmdline: &'a str,
    crash: Option<&'a Crash>,
    events: u64,
    last: Option<u64>,
    /// Memory in use at the end.
    blocks: Option<u64>,
    bytes: Option<u64>,
}

#[derive(Serialize)]
struct Lane {
    kind: &'static str,
    /// The index of the process or the host.
    of: u32,
    id: String,
    name: String,
    events: u64,
}

#[derive(Serialize)]
struct Class<'a> {
    name: &'a str,
    loglevel: Option<u32>,
    events: u64,
}

#[derive(Serialize)]
struct Pair<'a> {
    name: &'a str,
    is_async: bool,
    count: u64,
    min: u64,
    mean: u64,
    p99: u64,
    max: u64,
    unbegun: u64,
    unended: u64,
}

#[derive(Serialize)]
struct CounterRow {
    event: String,
    key_name: String,
    key: String,
    value_name: String,
    count: u64,
    values: u64,
    /// The sum, as exactly as JavaScript has it.
    sum: f64,
    min: i64,
    max: i64,
    histogram: Vec<u64>,
}

impl CounterRow {
    fn of(counter: Counter) -> Self {
        Self {
            sum: counter.sum as f64,
            event: counter.event,
            key_name: counter.key_name,
            key: counter.key,
            value_name: counter.value_name,
            count: counter.count,
            values: counter.values,
            min: counter.min,
            max: counter.max,
            histogram: counter.histogram,
        }
    }
}

#[derive(Serialize)]
struct Loss {
    process: u32,
    cpu: Option<u32>,
    begin: i64,
    end: i64,
    events: u64,
    packets: u64,
}

impl Report {
    /// Writes the page.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn write(&self, title: &str, to: &mut impl Write) -> io::Result<()> {
        let data = serde_json::to_string(&self.data(title))?;
        // So that no name ends the script element.
        let data = data.replace('<', "\\u003c");
        let mut nonce = String::new();
        for byte in usertrace_ctf::new_uuid()? {
            let _ = write!(nonce, "{byte:02x}");
        }
        let mut rest = HTML;
        let mut parts = Vec::new();
        while let Some((before, (name, behind))) = rest
            .split_once("{{")
            .and_then(|(before, rest)| Some((before, rest.split_once("}}")?)))
        {
            parts.push((before, name));
            rest = behind;
        }
        for (before, name) in parts {
            to.write_all(before.as_bytes())?;
            match name {
                "title" => to.write_all(escape(title).as_bytes())?,
                "nonce" => to.write_all(nonce.as_bytes())?,
                "style" => to.write_all(STYLE.as_bytes())?,
                "data" => to.write_all(data.as_bytes())?,
                "calls" => {
                    if let Some(calls) = CallRows::new(&self.calls) {
                        let calls = base64(&deflate(&serde_json::to_vec(&calls)?));
                        to.write_all(calls.as_bytes())?;
                    }
                }
                "requests" => to.write_all(self.requests_text()?.as_bytes())?,
                "counts" => to.write_all(base64(&deflate(&self.counts())).as_bytes())?,
                "stacks" => self.write_stacks(to)?,
                "scripts" => {
                    for script in SCRIPTS {
                        write!(to, "<script nonce=\"{nonce}\">\n{script}</script>\n")?;
                    }
                }
                "detail" => self.write_detail(to)?,
                _ => {}
            }
        }
        to.write_all(rest.as_bytes())?;
        to.flush()
    }

    /// The root spans, compressed, or nothing.
    fn requests_text(&self) -> io::Result<String> {
        let Some(requests) = &self.requests else {
            return Ok(String::new());
        };
        Ok(base64(&deflate(&serde_json::to_vec(requests)?)))
    }

    /// Writes the call stacks, or an empty element if no event has any.
    fn write_stacks(&self, to: &mut impl Write) -> io::Result<()> {
        match self.stacks() {
            Some(stacks) => to.write_all(base64(&deflate(&stacks)).as_bytes()),
            None => Ok(()),
        }
    }

    fn write_detail(&self, to: &mut impl Write) -> io::Result<()> {
        for part in &self.detail.parts {
            writeln!(
                to,
                "<script type=\"application/octet-stream\" id=\"part-{}\">{}</script>",
                part.number,
                base64(&part.bytes)
            )?;
        }
        Ok(())
    }

    fn data<'a>(&'a self, title: &'a str) -> Data<'a> {
        let classes = self.activity.classes().iter().map(|class| Class {
            name: &class.name,
            loglevel: class.loglevel,
            events: class.events,
        });
        let parts = self.detail.parts.iter();
        Data {
            title,
            version: env!("CARGO_PKG_VERSION"),
            begin: self.activity.begin.map(|ns| ns.to_string()),
            end: self.activity.end,
            events: self.events,
            detailed: self.detailed(),
            lost_events: self.losses.events,
            lost_packets: self.losses.packets,
            shift: self.pyramid.shift,
            span_threshold: self.spans.threshold,
            life_threshold: self.lives.threshold,
            hosts: &self.hosts,
            clocks: &self.clocks,
            processes: self.process_rows(),
            lanes: self.lane_rows(),
            classes: classes.collect(),
            pairs: self.pair_rows(),
            losses: self.loss_rows(),
            counters: self.counter_rows(),
            parts: parts
                .map(|part| [part.number, part.begin, part.end, part.events])
                .collect(),
            requests: self.requests.as_ref().map_or(0, |of| of.trees.len()),
            problems: &self.problems,
            nr_problems: self.nr_problems,
        }
    }

    fn process_rows(&self) -> Vec<Process<'_>> {
        let rows = self.processes.iter().enumerate().map(|(n, process)| {
            let in_use = self.activity.heap.in_use(n as u32);
            Process {
                name: &process.name,
                pid: process.pid,
                host: process.host,
                trace: &process.trace,
                cmdline: &process.cmdline,
                crash: process.crash.as_ref(),
                events: process.events,
                last: process.last,
                blocks: in_use.map(|used| used.blocks),
                bytes: in_use.map(|used| used.bytes),
            }
        });
        rows.collect()
    }

    fn lane_rows(&self) -> Vec<Lane> {
        let rows = self.activity.lanes.all.iter().map(|lane| {
            let (kind, of, id) = match lane.owner {
                LaneOwner::Thread(process, tid) => ("thread", process, tid.to_string()),
                LaneOwner::Handle(process, thread) => ("handle", process, format!("0x{thread:X}")),
                LaneOwner::Process(process) => ("process", process, String::new()),
                LaneOwner::Rest(process) => ("rest", process, String::new()),
                LaneOwner::Cpu(host, cpu) => ("cpu", host, cpu.to_string()),
            };
            Lane {
                kind,
                of,
                id,
                name: String::from_utf8_lossy(&lane.name).into_owned(),
                events: lane.events,
            }
        });
        rows.collect()
    }

    fn pair_rows(&self) -> Vec<Pair<'_>> {
        let rows = self.activity.pairs.all.iter().map(|pair| Pair {
            name: &pair.name,
            is_async: pair.is_async,
            count: pair.durations.count,
            min: pair.durations.min,
            mean: pair.durations.mean(),
            p99: pair.durations.percentile(99),
            max: pair.durations.max,
            unbegun: pair.unbegun,
            unended: pair.unended,
        });
        rows.collect()
    }

    fn counter_rows(&self) -> Vec<CounterRow> {
        let counters = self.counters.sums().into_iter().take(COUNTERS);
        counters.map(CounterRow::of).collect()
    }

    fn loss_rows(&self) -> Vec<Loss> {
        let begin = self.activity.begin.unwrap_or(0);
        let rows = self.losses.all.iter().map(|loss| Loss {
            process: loss.process,
            cpu: loss.cpu,
            begin: loss.begin.saturating_sub(begin),
            end: loss.end.saturating_sub(begin),
            events: loss.events,
            packets: loss.packets,
        });
        rows.collect()
    }

    /// Encodes counts, levels and spans, for `data.js`.
    fn counts(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, self.pyramid.series.len() as u64);
        for series in &self.pyramid.series {
            varint::put(&mut out, series.lane.into());
            varint::put(&mut out, series.class.into());
            varint::put(&mut out, series.cells.len() as u64);
            let mut last = 0;
            for &(bin, count) in &series.cells {
                varint::put(&mut out, (bin - last).into());
                varint::put(&mut out, count.into());
                last = bin;
            }
        }
        let mut levels: Vec<_> = self.pyramid.levels.iter().collect();
        levels.sort_by_key(|&(process, _)| process);
        varint::put(&mut out, levels.len() as u64);
        for (&process, level) in levels {
            varint::put(&mut out, process.into());
            varint::put(&mut out, level.cells.len() as u64);
            let mut last = 0;
            for &(bin, highest, value) in &level.cells {
                varint::put(&mut out, (bin - last).into());
                varint::put(&mut out, highest);
                varint::put(&mut out, value);
                last = bin;
            }
        }
        for spans in [&self.spans.all, &self.lives.all, &self.open] {
            write_spans(&mut out, spans);
        }
        out
    }
}

fn write_spans(out: &mut Vec<u8>, spans: &[Span]) {
    let mut spans = spans.to_vec();
    spans.sort_unstable_by_key(|span| (span.begin, span.lane, span.depth));
    varint::put(out, spans.len() as u64);
    let mut last = 0;
    for span in spans {
        varint::put(out, span.lane.into());
        varint::put(out, span.begin - last);
        varint::put(out, span.duration);
        varint::put(out, span.pair.into());
        varint::put(out, span.depth.into());
        last = span.begin;
    }
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
