//! The open spans of a process.

use std::collections::HashMap;
use std::hash::Hash;

use usertrace_reader::{Event, Trace, value};
use usertrace_symbols::NamedField;

use super::message::{self, INTERNAL, Ids, KeyValue, Span, SpanEvent};
use crate::export::code_place::CodePlace;
use crate::export::pairs::{SliceRole, is_of_function, slice_role};
use crate::spans::ids::IdMaker;
use crate::spans::live::LiveSpans;
use crate::spans::role::Role;
use crate::spans::thread::{thread, thread_name};

/// Open spans of a thread: ends may be missing forever.
const MAX_DEPTH: usize = 4096;
/// Events, links and attributes of a span, as in OpenTelemetry's libraries. Further events are
/// counted, further links and attributes left out.
const MAX_PARTS: usize = 128;

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Something to a span of `tracing`.
    OfTracing(Role),
    /// The thread begins a span, or ends it.
    Begin,
    End,
    /// It has nothing to do with spans.
    None,
}

impl Action {
    /// What an event does, and the name of the span, or of its event.
    fn of(event: &Event<'_>) -> (Self, String) {
        // Without its provider, which is the scope.
        let short = |name: &str| {
            let name = name.split_once(':').map_or(name, |(_, name)| name);
            name.to_owned()
        };
        if let Some((role, name)) = Role::of(event) {
            return (Self::OfTracing(role), short(name));
        }
        let is_event = |name: &str| event.other(name) == Some(true);
        match slice_role(&event.class.name, &is_event) {
            (SliceRole::Begin, stem) => (Self::Begin, short(&stem)),
            (SliceRole::End, stem) => (Self::End, short(&stem)),
            (SliceRole::Neither, _) => (Self::None, String::new()),
        }
    }

    /// How many ids of spans come before the fields.
    fn ids(self) -> usize {
        match self {
            Self::OfTracing(role) => role.ids(),
            Self::Begin | Self::End | Self::None => 0,
        }
    }
}

/// What is known of a class of events, in one class of streams.
#[derive(Debug)]
pub(super) struct Class {
    action: Action,
    /// The name of the span, or of its event.
    name: String,
    /// The provider.
    scope: String,
    /// It begins a call of a function, whose address is its first field: the span is named after
    /// the function.
    is_of_function: bool,
}

impl Class {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let (action, name) = Action::of(event);
        let provider = event.class.name.split_once(':');
        Self {
            is_of_function: action == Action::Begin && is_of_function(event, &name),
            action,
            name,
            scope: provider.map_or("", |(provider, _)| provider).to_owned(),
        }
    }
}

/// A span that has not ended.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) span: Span,
    /// What its end event has as the name. The span may be named after a function.
    name: String,
    pub(super) scope: String,
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
    ids: IdMaker,
    /// Spans of `tracing`.
    spans: LiveSpans<Open>,
    /// Spans between two events of a thread, from the outermost on.
    threads: HashMap<i64, Vec<Open>>,
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
        Self {
            attributes,
            ids: IdMaker::new(metadata),
            spans: LiveSpans::default(),
            threads: HashMap::new(),
        }
    }

    /// Open spans.
    pub(super) fn open(&self) -> usize {
        let of_threads = self.threads.values().map(Vec::len);
        self.spans.len() + of_threads.sum::<usize>()
    }

    /// The ids of a loss.
    pub(super) fn ids(&self, of: impl Hash) -> Ids {
        self.ids.ids(of, None)
    }

    /// Does what an event says. `has_room`: another span may be open.
    pub(super) fn act(
        &mut self,
        class: &Class,
        event: &Event<'_>,
        named: &[NamedField<'_>],
        has_room: bool,
    ) -> Outcome {
        let id = |index| value::integer(&event.class.fields, index, event.payload).unwrap_or(0);
        let role = match class.action {
            Action::None => return Outcome::default(),
            Action::Begin => return self.begin(class, event, named, has_room),
            Action::End => return self.end(class, event),
            Action::OfTracing(role) => role,
        };
        let span = id(0);
        match role {
            // 0 is none.
            _ if span == 0 => {}
            Role::New => return self.new_span(class, event, named, [span, id(1)], has_room),
            Role::Close => return self.close(event, span),
            Role::Enter => self.spans.enter(span, thread(event), event.ns),
            Role::Exit => self.spans.exit(span, thread(event), event.ns),
            Role::Record | Role::InSpan => {
                if let Some(live) = self.spans.get_mut(span) {
                    match role {
                        Role::Record => live.value.add(event, class.action, "record."),
                        _ => live.value.happened(event, class, named),
                    }
                }
            }
            Role::Follows => {
                let link = self.spans.get(id(1)).map(|live| live.value.span.ids);
                if let (Some(live), Some(link)) = (self.spans.get_mut(span), link)
                    && live.value.span.links.len() < MAX_PARTS
                {
                    live.value.span.links.push(link);
                }
            }
        }
        Outcome::default()
    }

    fn new_span(
        &mut self,
        class: &Class,
        event: &Event<'_>,
        named: &[NamedField<'_>],
        [id, parent]: [u64; 2],
        has_room: bool,
    ) -> Outcome {
        let before = self.spans.close(id);
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
        let parent = self.spans.get(parent).map(|live| live.value.span.ids);
        let of = (&class.scope[..], &class.name[..], id, event.ns);
        let ids = self.ids.ids(of, parent);
        let mut open = Open::new(ids, parent, class, event.ns);
        open.add(event, class.action, "");
        open.add_thread(event);
        message::add_code(&mut open.span.attributes, &CodePlace::of(named));
        self.spans.begin(id, event.ns, open);
        outcome.begun = 1;
        outcome
    }

    fn close(&mut self, event: &Event<'_>, id: u64) -> Outcome {
        let Some(live) = self.spans.close(id) else {
            return Outcome {
                unbegun: 1,
                ..Outcome::default()
            };
        };
        let busy = live.busy(event.ns);
        let mut open = live.value;
        let whole = event.ns - open.span.start_time_unix_nano;
        let times = [("busy_ns", busy), ("idle_ns", whole - busy)];
        let times = times.map(|(key, ns)| KeyValue::integer(key, ns));
        open.span.attributes.extend(times);
        open.span.end_time_unix_nano = event.ns;
        Outcome {
            ended: vec![open],
            closed: 1,
            ..Outcome::default()
        }
    }

    fn begin(
        &mut self,
        class: &Class,
        event: &Event<'_>,
        named: &[NamedField<'_>],
        has_room: bool,
    ) -> Outcome {
        let Some(tid) = thread(event) else {
            return Outcome::default();
        };
        let open_spans = self.threads.entry(tid).or_default();
        let depth = open_spans.len();
        if depth >= MAX_DEPTH || !has_room {
            return Outcome {
                unended: 1,
                ..Outcome::default()
            };
        }
        let around = open_spans.last().map(|open| open.span.ids);
        let entered = self.spans.current(tid);
        let parent = around.or(entered.map(|live| live.value.span.ids));
        let of = (&class.scope, &class.name, tid, event.ns, depth);
        let ids = self.ids.ids(of, parent);
        let mut open = Open::new(ids, parent, class, event.ns);
        open.add(event, class.action, "");
        open.add_thread(event);
        let place = CodePlace::of(named);
        message::add_code(&mut open.span.attributes, &place);
        if let Some(function) = place.function.filter(|_| class.is_of_function) {
            open.span.name.clone_from(&function.function);
        }
        open_spans.push(open);
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
        let open = self.threads.get_mut(&tid);
        let is_it = |open: &Open| open.name == class.name && open.scope == class.scope;
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
            open.add(event, class.action, "end.");
        }
        self.forget_idle(tid);
        Outcome {
            closed: ended.len(),
            ended,
            ..Outcome::default()
        }
    }

    fn forget_idle(&mut self, tid: i64) {
        if self.threads.get(&tid).is_some_and(Vec::is_empty) {
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
            name: class.name.clone(),
            scope: class.scope.clone(),
        }
    }

    /// Adds fields of an event. Those whose keys are there already get the prefix.
    fn add(&mut self, event: &Event<'_>, action: Action, prefix: &str) {
        let to = &mut self.span.attributes;
        let without = action.ids();
        message::add_fields(to, &event.class.fields, event.payload, without, prefix);
        to.truncate(MAX_PARTS);
    }

    /// Adds the thread of an event, if it is known.
    fn add_thread(&mut self, event: &Event<'_>) {
        if let Some(tid) = thread(event) {
            let of_thread = KeyValue::integer("thread.id", tid);
            message::add_new(&mut self.span.attributes, of_thread);
        }
        if let Some(name) = thread_name(event) {
            let name = String::from_utf8_lossy(name);
            let of_thread = KeyValue::text("thread.name", &name);
            message::add_new(&mut self.span.attributes, of_thread);
        }
    }

    /// Adds an event of the span.
    fn happened(&mut self, event: &Event<'_>, class: &Class, named: &[NamedField<'_>]) {
        if self.span.events.len() >= MAX_PARTS {
            self.span.dropped_events_count = self.span.dropped_events_count.saturating_add(1);
            return;
        }
        let mut attributes = Vec::new();
        let without = class.action.ids();
        let fields = &event.class.fields;
        message::add_fields(&mut attributes, fields, event.payload, without, "");
        attributes.truncate(MAX_PARTS);
        message::add_code(&mut attributes, &CodePlace::of(named));
        self.span.events.push(SpanEvent {
            time_unix_nano: event.ns,
            name: class.name.clone(),
            attributes,
        });
    }
}
