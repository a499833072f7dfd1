//! Collects a report from the events of a trace, in one pass.

use serde::Serialize;

use super::detail::{self, Detail};
use super::losses::Losses;
use super::pyramid::Pyramid;
use super::requests::{self, Requests};
use super::spans::{Span, Spans};
use crate::activity::{Activity, Ended, LaneOwner};
use crate::calls::CallTree;
use crate::process_text::process_text;
use crate::spans::{self, Collector};
use crate::stacks::{Frames, Profile};
use usertrace_reader::{Counters, EnvValue, Event, Item, Metadata, Printer, Reader};
use usertrace_symbols::Options;

/// Maximum numbers of synchronous and asynchronous spans.
const SPANS: usize = 1 << 17;
const LIVES: usize = 1 << 12;
/// Maximum number of memory blocks in use that are tracked.
const BLOCKS: usize = 1 << 20;
/// A second.
const NS: i64 = 1_000_000_000;
/// Maximum numbers of listed problems, and of unfinished spans.
const PROBLEMS: usize = 100;
const OPEN: usize = 4096;

/// The contents of a page.
#[derive(Debug)]
pub struct Report {
    /// Threads, pairs and memory.
    pub(super) activity: Activity,
    pub(super) profile: Profile,
    /// The names of all code in call stacks, if any event has one.
    pub(super) frames: Option<Frames>,
    pub(super) events: u64,
    pub(super) processes: Vec<Process>,
    pub(super) hosts: Vec<String>,
    /// What is known of the hosts' clocks, if there are several.
    pub(super) clocks: Vec<String>,
    pub(super) pyramid: Pyramid,
    pub(super) spans: Spans,
    pub(super) lives: Spans,
    /// Spans without an end.
    pub(super) open: Vec<Span>,
    /// Calls of functions, and whether they have names.
    pub(super) calls: CallTree,
    names_calls: bool,
    /// The slowest root spans of `tracing`.
    pub(super) requests: Option<Requests>,
    pub(super) detail: Detail,
    pub(super) losses: Losses,
    /// Counters of channels that count.
    pub(super) counters: Counters,
    pub(super) problems: Vec<String>,
    pub(super) nr_problems: u64,
    is_damaged: bool,
    /// Spans that an event ended: kept for its memory.
    ended: Vec<Ended>,
}

/// What a trace records about the kernel's crash.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Crash {
    /// Seconds since 1970.
    time: Option<i64>,
    /// ns since 1970, in decimal: the numbers of JavaScript lack precision.
    ns: Option<String>,
    cpu: Option<i64>,
    thread: Option<i64>,
    /// A program may have forged the events.
    may_be_forged: bool,
}

/// A process, with all its traces, for example in several chunks.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) pid: Option<i64>,
    pub(super) host: u32,
    pub(super) trace: String,
    /// Its command line, or empty.
    pub(super) cmdline: String,
    /// Set if the trace comes from the dump of a crashed kernel.
    pub(super) crash: Option<Crash>,
    pub(super) events: u64,
    pub(super) last: Option<u64>,
}

impl Process {
    fn of(metadata: &Metadata, hosts: &mut Vec<String>) -> Self {
        let text = |name| metadata.env_text(name).unwrap_or_default().to_owned();
        let host = text("hostname");
        let known = hosts.iter().position(|known| *known == host);
        let host = known.unwrap_or_else(|| {
            hosts.push(host);
            hosts.len() - 1
        });
        let number = |name| match metadata.env(name) {
            Some(EnvValue::Number(number)) => Some(*number),
            _ => None,
        };
        let corrected = |ns: i64| metadata.clock().corrected(ns);
        let second = |time: i64| corrected(time.saturating_mul(NS)).div_euclid(NS);
        let crash = Crash {
            time: number("crash_time").map(second),
            ns: number("crash_ns").map(|ns| corrected(ns).to_string()),
            cpu: number("crash_cpu"),
            thread: number("crash_thread"),
            may_be_forged: number("may_be_forged").is_some(),
        };
        Self {
            name: metadata.owner_name().unwrap_or_default().to_owned(),
            pid: metadata.pid(),
            host: host as u32,
            trace: text("trace_name"),
            cmdline: text("cmdline"),
            crash: (metadata.env_text("origin") == Some("dump")).then_some(crash),
            events: 0,
            last: None,
        }
    }

    /// Its name and its number.
    pub(super) fn text(&self) -> String {
        process_text(&self.name, self.pid)
    }

    /// Adds what a later trace of the process knows, and the first one did not.
    fn add(&mut self, metadata: &Metadata) {
        if let (true, Some(cmdline)) = (self.cmdline.is_empty(), metadata.env_text("cmdline")) {
            cmdline.clone_into(&mut self.cmdline);
        }
    }
}

impl Report {
    /// The default limit for single events in a page, in compressed bytes.
    pub const DETAIL: usize = 32 << 20;

    /// Collects everything that a reader returns. `detail` limits the single events, in compressed
    /// bytes; `symbols` says where to look for symbols. The reader has to select
    /// [`modules`](usertrace_reader::Selection::modules) for code to have names.
    #[must_use]
    pub fn collect(reader: &mut Reader, detail: usize, symbols: Option<Options>) -> Self {
        let names_calls = symbols.is_some();
        let mut report = Self {
            activity: Activity::new(BLOCKS),
            profile: Profile::new(symbols),
            frames: None,
            ended: Vec::new(),
            events: 0,
            processes: Vec::new(),
            hosts: Vec::new(),
            clocks: Vec::new(),
            pyramid: Pyramid::default(),
            spans: Spans::new(SPANS),
            lives: Spans::new(LIVES),
            open: Vec::new(),
            calls: CallTree::default(),
            names_calls,
            requests: None,
            detail: Detail::new(detail),
            losses: Losses::default(),
            counters: Counters::default(),
            problems: Vec::new(),
            nr_problems: 0,
            is_damaged: false,
        };
        for trace in reader.traces() {
            match report.processes.get_mut(trace.process()) {
                // Another chunk of the process's recording.
                Some(process) => process.add(trace.metadata()),
                None => {
                    let process = Process::of(trace.metadata(), &mut report.hosts);
                    report.processes.push(process);
                }
            }
        }
        let printer = Printer::new();
        let mut requests = Collector::new(spans::Options {
            keep: requests::ROOTS,
            ..spans::Options::default()
        });
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => {
                    requests.event(&event);
                    report.event(&printer, &event);
                }
                Item::Lost(lost) => {
                    if let Some(trace) = reader.traces().get(lost.trace) {
                        report.losses.add(&lost, trace.process() as u32);
                    }
                }
                Item::Error(error) => {
                    report.is_damaged |= error.is_damage();
                    report.nr_problems += 1;
                    if report.problems.len() < PROBLEMS {
                        report.problems.push(error.to_string());
                    }
                }
            }
        }
        report.finish();
        let begin = report.activity.begin.unwrap_or(0);
        let requests = Requests::new(&requests.finish(reader.traces()), begin);
        report.requests = Some(requests).filter(|requests| !requests.trees.is_empty());
        report
    }

    /// Sets what the page says of the clocks of several hosts.
    pub fn set_clocks(&mut self, clocks: Vec<String>) {
        self.clocks = clocks;
    }

    /// Number of events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Number of lost events, as far as they were counted.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.events
    }

    /// Number of packets that were overwritten before they were read. The number of events in them
    /// is unknown.
    #[must_use]
    pub fn lost_packets(&self) -> u64 {
        self.losses.packets
    }

    /// Number of single events in the page.
    #[must_use]
    pub fn detailed(&self) -> u64 {
        self.detail.parts.iter().map(|part| part.events).sum()
    }

    /// Number of processes.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Takes what is to be said of files without symbols: a line each.
    pub fn take_messages(&mut self) -> Vec<String> {
        self.profile.code.take_messages()
    }

    /// The first hundred problems.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Whether data is damaged or missing.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    fn event(&mut self, printer: &Printer, event: &Event<'_>) {
        if self.profile.note(event) {
            self.calls.forget_names();
            return;
        }
        let resolver = self.profile.code.resolver();
        self.calls
            .event(event, Some(resolver).filter(|_| self.names_calls));
        self.counters.add(event);
        let process = event.trace.process() as u32;
        let mut ended = std::mem::take(&mut self.ended);
        let stack = self.profile.stack(event);
        let is_related = self.profile.code.is_related(process);
        let step = self
            .activity
            .event(event, process, stack, is_related, &mut ended);
        self.profile
            .add(process, stack, &step, &ended, &self.activity);
        let host = match self.processes.get_mut(process as usize) {
            Some(process) => {
                process.events += 1;
                process.last = Some(step.time);
                process.host
            }
            None => 0,
        };
        self.events += 1;
        let series = self.pyramid.series(step.lane, step.class);
        self.pyramid.count(series, step.time);
        let cpu = step.cpu.map(|cpu| {
            let lanes = &mut self.activity.lanes;
            let cpu = lanes.get(LaneOwner::Cpu(host, cpu as u32));
            lanes.count(cpu, None);
            let series = self.pyramid.series(cpu, step.class);
            self.pyramid.count(series, step.time);
            cpu
        });
        if step.is_of_heap {
            let in_use = self.activity.heap.in_use(process);
            let bytes = in_use.map_or(0, |used| used.bytes);
            self.pyramid.set_level(process, step.time, bytes);
        }
        for span in &ended {
            self.span(step.lane, span);
        }
        let shown = ended.first().map(|span| detail::EndedSpan {
            pair: span.pair,
            duration: span.duration,
            depth: span.depth,
        });
        let columns = [step.lane, cpu.map_or(0, |cpu| cpu + 1), step.class];
        let place = self.profile.place(stack);
        let write = |text: &mut Vec<u8>| {
            printer.values(text, event);
            if !place.is_empty() {
                text.extend_from_slice(b" at ");
                text.extend_from_slice(place.as_bytes());
            }
        };
        self.detail.add(step.time, columns, shown, write);
        ended.clear();
        self.ended = ended;
    }

    /// Adds a span that has ended.
    fn span(&mut self, lane: u32, ended: &Ended) {
        let spans = match self.activity.pairs.all[ended.pair as usize].is_async {
            true => &mut self.lives,
            false => &mut self.spans,
        };
        spans.add(Span {
            lane,
            begin: ended.begin,
            duration: ended.duration,
            pair: ended.pair,
            depth: ended.depth,
        });
    }

    fn finish(&mut self) {
        self.activity.finish();
        self.calls.finish();
        let profile = &mut self.profile;
        if profile.stackless < profile.events {
            self.frames = Some(Frames::resolve(&profile.table, &mut profile.code));
        }
        self.detail.end_part();
        let mut open: Vec<Span> = Vec::new();
        for (&lane, of_lane) in &self.activity.pairs.open {
            // Spans end with the last event of their process: what it did later is unknown.
            let process = match self.activity.lanes.all[lane as usize].owner {
                LaneOwner::Thread(process, _) | LaneOwner::Handle(process, _) => process,
                LaneOwner::Process(process) | LaneOwner::Rest(process) => process,
                LaneOwner::Cpu(..) => continue,
            };
            let process = self.processes.get(process as usize);
            let end = process
                .and_then(|process| process.last)
                .unwrap_or(self.activity.end);
            open.extend(of_lane.iter().map(|open| Span {
                lane,
                begin: open.begin,
                duration: end.saturating_sub(open.begin),
                pair: open.pair,
                depth: open.depth,
            }));
        }
        // The oldest ones, in a reproducible order.
        open.sort_unstable_by_key(|span| (span.begin, span.lane, span.depth));
        open.truncate(OPEN);
        self.open = open;
    }
}
