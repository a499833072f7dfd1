//! Collects a report from the events of a trace, in one pass.

use std::collections::HashMap;

use serde::Serialize;

use super::detail::{self, Detail};
use super::lanes::{LaneOwner, Lanes};
use super::losses::Losses;
use super::pairing::{Action, Pairs};
use super::pyramid::Pyramid;
use super::rules::{self, HeapUse};
use super::spans::{Span, Spans};
use usertrace_reader::{Counters, EnvValue, Event, Field, Item, Metadata, Printer, Reader, value};

/// Maximum numbers of synchronous and asynchronous spans.
const SPANS: usize = 1 << 17;
const LIVES: usize = 1 << 12;
/// A second.
const NS: i64 = 1_000_000_000;
/// Maximum numbers of listed problems, and of unfinished spans.
const PROBLEMS: usize = 100;
const OPEN: usize = 4096;

/// The contents of a page.
#[derive(Debug)]
pub struct Report {
    /// Time of the first event, in ns since 1970. All other times are relative to it.
    pub(super) begin: Option<i64>,
    pub(super) end: u64,
    pub(super) events: u64,
    pub(super) processes: Vec<Process>,
    pub(super) hosts: Vec<String>,
    /// What is known of the hosts' clocks, if there are several.
    pub(super) clocks: Vec<String>,
    pub(super) lanes: Lanes,
    pub(super) classes: Vec<Class>,
    pub(super) pyramid: Pyramid,
    pub(super) pairs: Pairs,
    pub(super) spans: Spans,
    pub(super) lives: Spans,
    /// Spans without an end.
    pub(super) open: Vec<Span>,
    pub(super) detail: Detail,
    pub(super) losses: Losses,
    /// Counters of channels that count.
    pub(super) counters: Counters,
    pub(super) problems: Vec<String>,
    pub(super) nr_problems: u64,
    is_damaged: bool,
}

/// A class of events, shared by all processes.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) loglevel: Option<u32>,
    pub(super) events: u64,
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

    /// Adds what a later trace of the process knows, and the first one did not.
    fn add(&mut self, metadata: &Metadata) {
        if let (true, Some(cmdline)) = (self.cmdline.is_empty(), metadata.env_text("cmdline")) {
            cmdline.clone_into(&mut self.cmdline);
        }
    }
}

/// Indices of the stream's fields that a report uses.
#[derive(Clone, Copy, Debug)]
struct StreamUse {
    cpu: Option<usize>,
    tid: Option<usize>,
    vtid: Option<usize>,
    procname: Option<usize>,
}

/// What the events of a class mean, in one class of streams.
#[derive(Clone, Debug)]
struct ClassUse {
    class: u32,
    actions: Vec<Action>,
    heap: Option<(HeapUse, u32)>,
    /// The field with the thread's handle.
    thread: Option<usize>,
}

/// A cache of what streams and classes mean.
#[derive(Debug, Default)]
struct SchemaCache {
    /// By trace, and class of streams.
    streams: HashMap<(u32, u32), StreamUse>,
    /// By trace, class of streams, and event id.
    uses: HashMap<(u32, u32, u16), usize>,
    all: Vec<ClassUse>,
    classes: HashMap<String, u32>,
}

/// An integer in the header of an event's packet.
fn packet_integer(event: &Event<'_>, index: Option<usize>) -> Option<u64> {
    value::integer(&event.stream.packet, index?, event.packet)
}

/// An integer in an event's payload.
fn payload_integer(event: &Event<'_>, index: Option<usize>) -> Option<u64> {
    value::integer(&event.class.fields, index?, event.payload)
}

fn position(fields: &[Field], name: &str) -> Option<usize> {
    fields.iter().position(|field| field.name == name)
}

impl Report {
    /// The default limit for single events in a page, in compressed bytes.
    pub const DETAIL: usize = 32 << 20;

    /// Collects everything that a reader returns. `detail` limits the single events, in compressed
    /// bytes.
    #[must_use]
    pub fn collect(reader: &mut Reader, detail: usize) -> Self {
        let mut report = Self {
            begin: None,
            end: 0,
            events: 0,
            processes: Vec::new(),
            hosts: Vec::new(),
            clocks: Vec::new(),
            lanes: Lanes::default(),
            classes: Vec::new(),
            pyramid: Pyramid::default(),
            pairs: Pairs::default(),
            spans: Spans::new(SPANS),
            lives: Spans::new(LIVES),
            open: Vec::new(),
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
        let (mut cache, printer) = (SchemaCache::default(), Printer::new());
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => report.event(&mut cache, &printer, &event),
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

    fn event(&mut self, cache: &mut SchemaCache, printer: &Printer, event: &Event<'_>) {
        self.counters.add(event);
        let time = self.advance(event.ns);
        let process = event.trace.process() as u32;
        let (stream, used) = self.usage(cache, event);
        let lane = self.thread_lane(process, stream, used, event);
        let host = match self.processes.get_mut(process as usize) {
            Some(process) => {
                process.events += 1;
                process.last = Some(time);
                process.host
            }
            None => 0,
        };
        self.events += 1;
        self.classes[used.class as usize].events += 1;
        let series = self.pyramid.series(lane, used.class);
        self.pyramid.count(series, time);
        let cpu = packet_integer(event, stream.cpu).map(|cpu| {
            let cpu = self.lanes.get(LaneOwner::Cpu(host, cpu as u32));
            self.lanes.all[cpu as usize].events += 1;
            let series = self.pyramid.series(cpu, used.class);
            self.pyramid.count(series, time);
            cpu
        });
        let ended = self.end_spans(process, lane, used, event, time);
        let ended = ended.map(|span| detail::EndedSpan {
            pair: span.pair,
            duration: span.duration,
            depth: span.depth,
        });
        let columns = [lane, cpu.map_or(0, |cpu| cpu + 1), used.class];
        let write = |text: &mut Vec<u8>| printer.values(text, event);
        self.detail.add(time, columns, ended, write);
    }

    /// Converts the time of the next event to ns since the first one. Never goes back.
    fn advance(&mut self, ns: i64) -> u64 {
        let begin = *self.begin.get_or_insert(ns);
        // The reader sorts events by time, so this is no earlier than the first one.
        let time = u64::try_from(ns.saturating_sub(begin)).unwrap_or(0);
        self.end = time.max(self.end);
        self.end
    }

    /// What the fields of an event's stream and class mean.
    fn usage<'k>(
        &mut self,
        cache: &'k mut SchemaCache,
        event: &Event<'_>,
    ) -> (StreamUse, &'k ClassUse) {
        let trace = event.trace.number() as u32;
        let stream = *cache
            .streams
            .entry((trace, event.stream.id))
            .or_insert_with(|| StreamUse::of(event));
        let place = (trace, event.stream.id, event.class.id);
        let used = match cache.uses.get(&place) {
            Some(&used) => used,
            None => self.resolve_class(cache, place, event),
        };
        (stream, &cache.all[used])
    }

    /// The lane of the thread that wrote an event. Counts the event there, and updates the name.
    fn thread_lane(
        &mut self,
        process: u32,
        stream: StreamUse,
        used: &ClassUse,
        event: &Event<'_>,
    ) -> u32 {
        let contexts = event.stream.contexts.as_deref().unwrap_or_default();
        let vtid = stream
            .vtid
            .and_then(|vtid| value::integer(contexts, vtid, event.contexts));
        // A `tid` of 0 is a ring that several threads share.
        let tid = vtid.or_else(|| packet_integer(event, stream.tid).filter(|&tid| tid != 0));
        let owner = match (tid, payload_integer(event, used.thread)) {
            (Some(tid), _) => LaneOwner::Thread(process, tid),
            (None, Some(thread)) => LaneOwner::Handle(process, thread),
            (None, None) => LaneOwner::Process(process),
        };
        let number = self.lanes.get(owner);
        let lane = &mut self.lanes.all[number as usize];
        lane.events += 1;
        if let Some(index) = stream.procname
            && let Some(name) = value::text(contexts, index, event.contexts)
            && !name.is_empty()
            && name != lane.name
        {
            name.clone_into(&mut lane.name);
        }
        number
    }

    /// Begins and ends the spans of an event. Returns one that ended, if any.
    fn end_spans(
        &mut self,
        process: u32,
        lane: u32,
        used: &ClassUse,
        event: &Event<'_>,
        time: u64,
    ) -> Option<Span> {
        let field = |index| payload_integer(event, index);
        let mut ended = None;
        for action in &used.actions {
            if action.only_if.is_some() && field(action.only_if) != Some(0) {
                continue;
            }
            let key = field(action.key).unwrap_or(0);
            let done = self.pairs.act(action, [process, lane], key, time);
            if let Some(done) = done {
                let span = self.span(lane, time, done, action.is_async);
                ended = ended.or(Some(span));
            }
        }
        if let Some((heap, pair)) = used.heap {
            let done = self.pairs.heap(heap, pair, process, time, field);
            if let Some(done) = done {
                ended = Some(self.span(lane, time, done, true));
            }
            let bytes = self.pairs.in_use.get(&process).map_or(0, |used| used.bytes);
            self.pyramid.set_level(process, time, bytes);
        }
        ended
    }

    /// Adds a span that has ended.
    fn span(
        &mut self,
        lane: u32,
        time: u64,
        ended: super::pairing::EndedPair,
        is_async: bool,
    ) -> Span {
        let span = Span {
            lane,
            begin: ended.begin,
            duration: time - ended.begin,
            pair: ended.pair,
            depth: ended.depth,
        };
        let spans = if is_async {
            &mut self.lives
        } else {
            &mut self.spans
        };
        spans.add(span);
        span
    }

    /// Finds out what the events of a class mean, and caches it.
    #[cold]
    fn resolve_class(
        &mut self,
        cache: &mut SchemaCache,
        place: (u32, u32, u16),
        event: &Event<'_>,
    ) -> usize {
        let (name, fields) = (&event.class.name, &event.class.fields);
        let next = self.classes.len() as u32;
        let class = *cache.classes.entry(name.clone()).or_insert(next);
        if class == next {
            self.classes.push(Class {
                name: name.clone(),
                loglevel: event.class.loglevel,
                events: 0,
            });
        }
        let exists = |name: &str| event.other(name).is_some();
        let rules = rules::actions(name, fields, &exists);
        let actions = rules.into_iter().map(|rule| self.pairs.action(rule));
        let actions = actions.collect();
        let heap = HeapUse::of(name, fields).map(|used| {
            let pair = self.pairs.pair("libc:malloc → free".to_owned(), true);
            (used, pair)
        });
        cache.all.push(ClassUse {
            class,
            actions,
            heap,
            thread: rules::field(fields, "thread"),
        });
        cache.uses.insert(place, cache.all.len() - 1);
        cache.all.len() - 1
    }

    fn finish(&mut self) {
        self.pairs.finish();
        self.detail.end_part();
        let mut open: Vec<Span> = Vec::new();
        for (&lane, of_lane) in &self.pairs.open {
            // Spans end with the last event of their process: what it did later is unknown.
            let process = match self.lanes.all[lane as usize].owner {
                LaneOwner::Thread(process, _) | LaneOwner::Handle(process, _) => process,
                LaneOwner::Process(process) | LaneOwner::Rest(process) => process,
                LaneOwner::Cpu(..) => continue,
            };
            let process = self.processes.get(process as usize);
            let end = process.and_then(|process| process.last).unwrap_or(self.end);
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

impl StreamUse {
    fn of(event: &Event<'_>) -> Self {
        let packet = &event.stream.packet;
        let contexts = event.stream.contexts.as_deref().unwrap_or_default();
        Self {
            cpu: position(packet, "cpu_id"),
            tid: position(packet, "tid"),
            // The kernel's own events have `tid` instead.
            vtid: position(contexts, "vtid").or_else(|| position(contexts, "tid")),
            procname: position(contexts, "procname"),
        }
    }
}
