//! Writes spans as OTLP in JSON: OpenTelemetry's protocol, a message in each line, as the
//! OpenTelemetry Collector writes and reads files.
//!
//! Two things are spans: those of programs that use `tracing`, from `.new` to `.close`; and what
//! two events of one thread begin and end, as for Perfetto. Events within a span of `tracing` are
//! events of the span. Others have no place in OTLP's traces, and are left out. A loss is a span
//! from its begin to its end.
//!
//! Functions at code addresses are attributes by OpenTelemetry's conventions (`code.*`).
//!
//! Spans are written when they end. Their ids are hashes of the process, the span and its begin.

mod message;
mod process;

use std::collections::HashMap;

use usertrace_reader::{Event, LossKind, Lost, Trace};
use usertrace_symbols::NamedField;

use message::{INTERNAL, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span, TracesData};
use process::{Class, Process};

/// Most spans of a line.
const BATCH: usize = 100;
/// Most open spans of all processes. Further ones are left out.
const MAX_OPEN: usize = 1 << 20;

/// Spans that are not in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Spans without an end.
    pub unended: u64,
    /// Ends without a begin.
    pub unbegun: u64,
}

/// Writes spans as OTLP. Memory holds the open spans, and those of one line.
#[derive(Debug, Default)]
pub struct Otlp {
    classes: Vec<Class>,
    /// The index of each class, by trace, class of streams, and id.
    class_indices: HashMap<(usize, u32, u16), usize>,
    processes: HashMap<usize, Process>,
    open: usize,
    left_out: LeftOut,
    /// Spans of one process and provider that have ended.
    batch: Vec<Span>,
    of_batch: (usize, String),
}

impl Otlp {
    /// A writer without spans.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes an event. Appends a line if there are enough spans for it.
    pub fn event(&mut self, out: &mut Vec<u8>, event: &Event<'_>) {
        self.named_event(out, event, &[]);
    }

    /// Takes an event, and names its code by what is at the addresses in it. Appends a line if
    /// there are enough spans for it.
    pub fn named_event(&mut self, out: &mut Vec<u8>, event: &Event<'_>, named: &[NamedField<'_>]) {
        let class = self.class(event);
        let number = event.trace.process();
        let process = self.processes.entry(number);
        let process = process.or_insert_with(|| Process::of(event.trace));
        let outcome = process.act(&self.classes[class], event, named, self.open < MAX_OPEN);
        self.open += outcome.begun;
        self.open -= outcome.closed;
        self.left_out.unended += outcome.unended;
        self.left_out.unbegun += outcome.unbegun;
        for open in outcome.ended {
            self.add(out, number, open.scope, open.span);
        }
    }

    /// Takes a loss.
    pub fn lost(&mut self, out: &mut Vec<u8>, lost: &Lost, trace: &Trace) {
        let number = trace.process();
        let process = self.processes.entry(number);
        let process = process.or_insert_with(|| Process::of(trace));
        let (name, count) = match lost.kind {
            LossKind::Events(count) => ("events lost", count),
            LossKind::Packets(count) => ("packets lost", count),
        };
        let file = lost.path.file_name().unwrap_or_default().to_string_lossy();
        let span = Span {
            ids: process.ids((name, &file, lost.begin, lost.end, count)),
            parent_span_id: 0,
            name: name.to_owned(),
            kind: INTERNAL,
            start_time_unix_nano: lost.begin,
            end_time_unix_nano: lost.end,
            attributes: vec![
                KeyValue::integer("count", i64::try_from(count).unwrap_or(i64::MAX)),
                KeyValue::text("file", &file),
            ],
            events: Vec::new(),
            dropped_events_count: 0,
            links: Vec::new(),
        };
        self.add(out, number, "usertrace".to_owned(), span);
    }

    /// Appends the last line. Returns how many spans are not in the output.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> LeftOut {
        self.write(out);
        let open = self.processes.values().map(Process::open).sum::<usize>();
        LeftOut {
            unended: self.left_out.unended + open as u64,
            unbegun: self.left_out.unbegun,
        }
    }

    /// The index of an event's class.
    fn class(&mut self, event: &Event<'_>) -> usize {
        let key = (event.trace.number(), event.stream.id, event.class.id);
        *self.class_indices.entry(key).or_insert_with(|| {
            self.classes.push(Class::of(event));
            self.classes.len() - 1
        })
    }

    fn add(&mut self, out: &mut Vec<u8>, process: usize, scope: String, span: Span) {
        let of = (process, scope);
        if self.batch.len() >= BATCH || self.of_batch != of {
            self.write(out);
            self.of_batch = of;
        }
        self.batch.push(span);
    }

    /// Appends a line of the spans of the batch.
    fn write(&mut self, out: &mut Vec<u8>) {
        let (process, scope) = &self.of_batch;
        let Some(process) = self
            .processes
            .get(process)
            .filter(|_| !self.batch.is_empty())
        else {
            return;
        };
        let message = TracesData {
            resource_spans: [ResourceSpans {
                resource: Resource {
                    attributes: &process.attributes,
                },
                scope_spans: [ScopeSpans {
                    scope: Scope { name: scope },
                    spans: &self.batch,
                }],
            }],
        };
        message.write(out);
        self.batch.clear();
    }
}
