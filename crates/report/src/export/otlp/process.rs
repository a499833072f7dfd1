//! The open spans of a process.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use usertrace_reader::{Event, Trace, Value, Values, value};

use super::message::{self, INTERNAL, Ids, KeyValue, Span, SpanEvent};
use super::role::Role;

/// Open spans of a thread: ends may be missing forever.
const MAX_DEPTH: usize = 4096;
/// Events, links and attributes of a span, as in OpenTelemetry's libraries. Further events are
/// counted, further links and attributes left out.
const MAX_PARTS: usize = 128;

/// What is known of a class of events, in one class of streams.
#[derive(Debug)]
pub(super) struct Class {
    role: Role,
    /// The name of the span, or of its event.
    name: String,
    /// The provider.
    scope: String,
}

impl Class {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let (role, name) = Role::of(event);
        let provider = event.class.name.split_once(':');
        Self {
            role,
            name,
            scope: provider.map_or("", |(provider, _)| provider).to_owned(),
        }
    }
}

/// A span that has not ended.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) span: Span,
    pub(super) scope: String,
    /// How many threads are in it, since when there is one, and how long there was one before.
    entered: u32,
    since: i64,
    busy: i64,
}

/// What a thread is doing, from the outermost on.
#[derive(Debug, Default)]
struct Thread {
    /// Spans between two events.
    open: Vec<Open>,
    /// Spans of `tracing` that it is in.
    entered: Vec<u64>,
}

/// What an event has changed.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Spans that begin.
    pub(super) begun: usize,
    /// Spans that end, the innermost first.
    pub(super) ended: Vec<Open>,
    /// Spans that never end, of which so many were open.
    pub(super) unended: u64,
    pub(super) closed: usize,
    /// Ends without a begin.
    pub(super) unbegun: u64,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) attributes: Vec<KeyValue>,
    seed: u64,
    /// Spans of `tracing`, by their ids.
    spans: HashMap<u64, Open>,
    threads: HashMap<i64, Thread>,
}

impl Process {
    pub(super) fn of(trace: &Trace) -> Self {
        let metadata = trace.metadata();
        let name = metadata.owner_name().unwrap_or("unknown_service");
        let mut attributes = vec![KeyValue::text("service.name", name)];
        for (key, name) in [
            ("host.name", "hostname"),
            ("process.executable.name", "procname"),
            ("process.command_line", "cmdline"),
            ("usertrace.trace", "trace_name"),
        ] {
            if let Some(value) = metadata.env_text(name) {
                attributes.push(KeyValue::text(key, value));
            }
        }
        if let Some(pid) = metadata.pid() {
            attributes.push(KeyValue::integer("process.pid", pid));
        }
        let mut hasher = DefaultHasher::new();
        for name in ["hostname", "trace_name"] {
            metadata.env_text(name).hash(&mut hasher);
        }
        metadata.pid().hash(&mut hasher);
        Self {
            attributes,
            seed: hasher.finish(),
            spans: HashMap::new(),
            threads: HashMap::new(),
        }
    }

    /// Open spans.
    pub(super) fn open(&self) -> usize {
        let of_threads = self.threads.values().map(|thread| thread.open.len());
        self.spans.len() + of_threads.sum::<usize>()
    }

    /// The ids of a new span, which belongs to the trace of its parent.
    pub(super) fn ids(&self, of: impl Hash, parent: Option<Ids>) -> Ids {
        let hash = |part: u8| {
            let mut hasher = DefaultHasher::new();
            (self.seed, part, &of).hash(&mut hasher);
            // 0 is no id.
            hasher.finish().max(1)
        };
        let own_trace = || u128::from(hash(1)) << 64 | u128::from(hash(2));
        Ids {
            trace_id: parent.map_or_else(own_trace, |parent| parent.trace_id),
            span_id: hash(0),
        }
    }

    /// Does what an event says. `has_room`: another span may be open.
    pub(super) fn act(&mut self, class: &Class, event: &Event<'_>, has_room: bool) -> Outcome {
        let id = |index| value::integer(&event.class.fields, index, event.payload).unwrap_or(0);
        match class.role {
            Role::None => Outcome::default(),
            Role::New => self.new_span(class, event, [id(0), id(1)], has_room),
            Role::Begin => self.begin(class, event, has_room),
            Role::End => self.end(class, event),
            Role::Close => self.close(event, id(0)),
            Role::Enter | Role::Exit => {
                self.enter_or_exit(class.role == Role::Enter, event, id(0));
                Outcome::default()
            }
            Role::Record | Role::InSpan => {
                if let Some(open) = self.spans.get_mut(&id(0)) {
                    match class.role {
                        Role::Record => open.add(event, class.role, "record."),
                        _ => open.happened(event, class),
                    }
                }
                Outcome::default()
            }
            Role::Follows => {
                let link = self.spans.get(&id(1)).map(|followed| followed.span.ids);
                if let (Some(open), Some(link)) = (self.spans.get_mut(&id(0)), link)
                    && open.span.links.len() < MAX_PARTS
                {
                    open.span.links.push(link);
                }
                Outcome::default()
            }
        }
    }

    fn new_span(
        &mut self,
        class: &Class,
        event: &Event<'_>,
        [id, parent]: [u64; 2],
        has_room: bool,
    ) -> Outcome {
        let before = self.spans.remove(&id);
        let replaced = usize::from(before.is_some());
        let mut outcome = Outcome {
            unended: replaced as u64,
            closed: replaced,
            ..Outcome::default()
        };
        if !has_room {
            outcome.unended += 1;
            return outcome;
        }
        let parent = self.spans.get(&parent).map(|parent| parent.span.ids);
        let ids = self.ids((&class.scope, &class.name, id, event.ns), parent);
        let mut open = Open::new(ids, parent, class, event.ns);
        open.add(event, class.role, "");
        open.add_thread(event);
        self.spans.insert(id, open);
        outcome.begun = 1;
        outcome
    }

    fn close(&mut self, event: &Event<'_>, id: u64) -> Outcome {
        let Some(mut open) = self.spans.remove(&id) else {
            return Outcome {
                unbegun: 1,
                ..Outcome::default()
            };
        };
        if open.entered > 0 {
            open.busy += event.ns - open.since;
        }
        let whole = event.ns - open.span.start_time_unix_nano;
        let times = [("busy_ns", open.busy), ("idle_ns", whole - open.busy)];
        let times = times.map(|(key, ns)| KeyValue::integer(key, ns));
        open.span.attributes.extend(times);
        open.span.end_time_unix_nano = event.ns;
        Outcome {
            ended: vec![open],
            closed: 1,
            ..Outcome::default()
        }
    }

    fn enter_or_exit(&mut self, enters: bool, event: &Event<'_>, id: u64) {
        if let Some(open) = self.spans.get_mut(&id) {
            if enters {
                if open.entered == 0 {
                    open.since = event.ns;
                }
                open.entered += 1;
            } else if open.entered > 0 {
                open.entered -= 1;
                if open.entered == 0 {
                    open.busy += event.ns - open.since;
                }
            }
        }
        let Some(tid) = thread(event) else {
            return;
        };
        let entered = &mut self.threads.entry(tid).or_default().entered;
        if enters {
            if entered.len() < MAX_DEPTH {
                entered.push(id);
            }
        } else if let Some(at) = entered.iter().rposition(|&entered| entered == id) {
            entered.remove(at);
        }
        self.forget_idle(tid);
    }

    fn begin(&mut self, class: &Class, event: &Event<'_>, has_room: bool) -> Outcome {
        let Some(tid) = thread(event) else {
            return Outcome::default();
        };
        let thread = self.threads.entry(tid).or_default();
        let depth = thread.open.len();
        if depth >= MAX_DEPTH || !has_room {
            return Outcome {
                unended: 1,
                ..Outcome::default()
            };
        }
        let around = thread.open.last().map(|open| open.span.ids);
        let entered = thread.entered.last().and_then(|id| self.spans.get(id));
        let parent = around.or(entered.map(|open| open.span.ids));
        let ids = self.ids((&class.scope, &class.name, tid, event.ns, depth), parent);
        let mut open = Open::new(ids, parent, class, event.ns);
        open.add(event, class.role, "");
        open.add_thread(event);
        self.threads.entry(tid).or_default().open.push(open);
        Outcome {
            begun: 1,
            ..Outcome::default()
        }
    }

    /// Ends a span, and spans within it that lack their own ends.
    fn end(&mut self, class: &Class, event: &Event<'_>) -> Outcome {
        let Some(tid) = thread(event) else {
            return Outcome::default();
        };
        let open = self.threads.get_mut(&tid).map(|thread| &mut thread.open);
        let is_it = |open: &Open| open.span.name == class.name && open.scope == class.scope;
        let found = open.and_then(|open| Some((open.iter().rposition(is_it)?, open)));
        let Some((at, open)) = found else {
            return Outcome {
                unbegun: 1,
                ..Outcome::default()
            };
        };
        let mut ended: Vec<_> = open.drain(at..).rev().collect();
        for open in &mut ended {
            open.span.end_time_unix_nano = event.ns;
        }
        if let Some(open) = ended.last_mut() {
            open.add(event, class.role, "end.");
        }
        self.forget_idle(tid);
        Outcome {
            closed: ended.len(),
            ended,
            ..Outcome::default()
        }
    }

    fn forget_idle(&mut self, tid: i64) {
        let is_idle = |thread: &Thread| thread.open.is_empty() && thread.entered.is_empty();
        if self.threads.get(&tid).is_some_and(is_idle) {
            self.threads.remove(&tid);
        }
    }
}

impl Open {
    fn new(ids: Ids, parent: Option<Ids>, class: &Class, begin: i64) -> Self {
        Self {
            span: Span {
                ids,
                parent_span_id: parent.map_or(0, |parent| parent.span_id),
                name: class.name.clone(),
                kind: INTERNAL,
                start_time_unix_nano: begin,
                end_time_unix_nano: begin,
                attributes: Vec::new(),
                events: Vec::new(),
                dropped_events_count: 0,
                links: Vec::new(),
            },
            scope: class.scope.clone(),
            entered: 0,
            since: 0,
            busy: 0,
        }
    }

    /// Adds fields of an event. Those whose keys are there already get the prefix.
    fn add(&mut self, event: &Event<'_>, role: Role, prefix: &str) {
        let to = &mut self.span.attributes;
        let without = role.ids();
        message::add_fields(to, &event.class.fields, event.payload, without, prefix);
        to.truncate(MAX_PARTS);
    }

    /// Adds the thread of an event, if it is known.
    fn add_thread(&mut self, event: &Event<'_>) {
        if let Some(tid) = thread(event) {
            self.span
                .attributes
                .push(KeyValue::integer("thread.id", tid));
        }
        let contexts = event.stream.contexts.as_deref().unwrap_or_default();
        for (field, value) in Values::new(contexts, event.contexts) {
            if let ("procname", Value::Text(name)) = (&field.name[..], value) {
                let name = String::from_utf8_lossy(name);
                self.span
                    .attributes
                    .push(KeyValue::text("thread.name", &name));
            }
        }
    }

    /// Adds an event of the span.
    fn happened(&mut self, event: &Event<'_>, class: &Class) {
        if self.span.events.len() >= MAX_PARTS {
            self.span.dropped_events_count = self.span.dropped_events_count.saturating_add(1);
            return;
        }
        let mut attributes = Vec::new();
        let without = class.role.ids();
        let fields = &event.class.fields;
        message::add_fields(&mut attributes, fields, event.payload, without, "");
        attributes.truncate(MAX_PARTS);
        self.span.events.push(SpanEvent {
            time_unix_nano: event.ns,
            name: class.name.clone(),
            attributes,
        });
    }
}

/// The thread of an event, by its context or its ring.
fn thread(event: &Event<'_>) -> Option<i64> {
    let contexts = event.stream.contexts.as_deref().unwrap_or_default();
    let of_context = contexts.iter().position(|field| field.name == "vtid");
    let of_context = of_context.and_then(|n| value::integer(contexts, n, event.contexts));
    let packet = &event.stream.packet;
    let of_ring = || {
        let n = packet.iter().position(|field| field.name == "tid")?;
        // 0 means several threads.
        value::integer(packet, n, event.packet).filter(|&tid| tid != 0)
    };
    of_context.or_else(of_ring).map(u64::cast_signed)
}
