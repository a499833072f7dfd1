//! Writes events as a Perfetto trace: packets of track events.
//!
//! Each process has a track. Below it, each known thread has a track, or else each ring. Fields
//! become debug annotations, and so do the functions at code addresses. A begin event and its end
//! event in the same thread become a slice; all other events are instants.
//!
//! A root span of `tracing` has an asynchronous track below its process, with its children in it or
//! below it (`span_tracks.rs`). A flow leads from the span to each slice of a thread in it, and one
//! to a span that follows from it.
//!
//! Times stay nanoseconds since 1970: the trace's primary clock is the time of day.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;

use usertrace_ring::schema::Integer;
use usertrace_symbols::{Area, Frame, NamedField};

use super::code_place::CodePlace;
use super::pairs::{SliceRole, Stack, is_of_function, slice_role};
use super::proto::{Message, NestedMark};
use super::span_tracks::{Ended, SpanTracks};
use crate::spans::role::Role;
use usertrace_reader::{
    Event, Field, Hosts, LossKind, Lost, Metadata, Number, Trace, Value, Values, value,
};

/// Field numbers and values from Perfetto's `protos/perfetto/trace`.
mod field {
    /// `trace.proto`
    pub(super) const TRACE_PACKET: u32 = 1;

    /// `trace_packet.proto`
    pub(super) mod packet {
        pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
        pub(crate) const TIMESTAMP: u32 = 8;
        pub(crate) const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
        pub(crate) const TRACK_EVENT: u32 = 11;
        pub(crate) const INTERNED_DATA: u32 = 12;
        pub(crate) const SEQUENCE_FLAGS: u32 = 13;
        pub(crate) const TRACE_PACKET_DEFAULTS: u32 = 59;
        pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
        pub(crate) const INCREMENTAL_STATE_CLEARED: u64 = 1;
        pub(crate) const NEEDS_INCREMENTAL_STATE: u64 = 2;
    }

    /// `clock_snapshot.proto`, `trace_packet_defaults.proto` and `builtin_clock.proto`
    pub(super) mod clock {
        pub(crate) const CLOCKS: u32 = 1;
        pub(crate) const PRIMARY_TRACE_CLOCK: u32 = 2;
        pub(crate) const CLOCK_ID: u32 = 1;
        pub(crate) const CLOCK_TIMESTAMP: u32 = 2;
        pub(crate) const DEFAULT_TIMESTAMP_CLOCK_ID: u32 = 58;
        pub(crate) const REALTIME: u64 = 1;
    }

    /// `track_event/track_descriptor.proto`, `process_descriptor.proto` and
    /// `thread_descriptor.proto`
    pub(super) mod track {
        pub(crate) const UUID: u32 = 1;
        pub(crate) const NAME: u32 = 2;
        pub(crate) const PROCESS: u32 = 3;
        pub(crate) const THREAD: u32 = 4;
        pub(crate) const PARENT_UUID: u32 = 5;
        pub(crate) const PROCESS_PID: u32 = 1;
        pub(crate) const PROCESS_CMDLINE: u32 = 2;
        pub(crate) const PROCESS_NAME: u32 = 6;
        pub(crate) const PROCESS_LABELS: u32 = 8;
        pub(crate) const THREAD_PID: u32 = 1;
        pub(crate) const THREAD_TID: u32 = 2;
        pub(crate) const THREAD_NAME: u32 = 5;
    }

    /// `track_event/track_event.proto` and `interned_data/interned_data.proto`
    pub(super) mod event {
        pub(crate) const CATEGORY_IIDS: u32 = 3;
        pub(crate) const DEBUG_ANNOTATIONS: u32 = 4;
        pub(crate) const TYPE: u32 = 9;
        pub(crate) const NAME_IID: u32 = 10;
        pub(crate) const TRACK_UUID: u32 = 11;
        pub(crate) const NAME: u32 = 23;
        pub(crate) const SOURCE_LOCATION: u32 = 33;
        pub(crate) const FLOW_IDS: u32 = 47;
        pub(crate) const TERMINATING_FLOW_IDS: u32 = 48;
        pub(crate) const SLICE_BEGIN: u64 = 1;
        pub(crate) const SLICE_END: u64 = 2;
        pub(crate) const INSTANT: u64 = 3;
        pub(crate) const INTERNED_CATEGORIES: u32 = 1;
        pub(crate) const INTERNED_NAMES: u32 = 2;
        pub(crate) const INTERNED_ANNOTATION_NAMES: u32 = 3;
        pub(crate) const INTERNED_IID: u32 = 1;
        pub(crate) const INTERNED_NAME: u32 = 2;
    }

    /// `track_event/source_location.proto`
    pub(super) mod source {
        pub(crate) const FILE: u32 = 2;
        pub(crate) const FUNCTION: u32 = 3;
        pub(crate) const LINE: u32 = 4;
    }

    /// `track_event/debug_annotation.proto`
    pub(super) mod annotation {
        pub(crate) const NAME_IID: u32 = 1;
        pub(crate) const UINT: u32 = 3;
        pub(crate) const INT: u32 = 4;
        pub(crate) const DOUBLE: u32 = 5;
        pub(crate) const STRING: u32 = 6;
        pub(crate) const POINTER: u32 = 7;
        pub(crate) const NAME: u32 = 10;
        pub(crate) const DICT_ENTRIES: u32 = 11;
        pub(crate) const ARRAY_VALUES: u32 = 12;
    }
}

use field::{annotation, clock, event as of_event, packet, source, track};

/// All packets belong to one sequence, so each name is interned only once.
const SEQUENCE: u64 = 1;

/// UUIDs of the tracks of spans begin here, above those of all other tracks.
const SPAN_TRACKS: u64 = 1 << 32;

/// The contexts with the id and the name of an event's thread.
const THREAD: &str = "vtid";
const THREAD_NAME: &str = "procname";

/// Interned names.
#[derive(Debug, Default)]
struct Interned {
    numbers: HashMap<String, u64>,
    /// Names that no packet contains yet.
    new: Vec<(String, u64)>,
}

impl Interned {
    fn number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        // 0 means no name.
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(name.to_owned(), number);
        self.new.push((name.to_owned(), number));
        number
    }

    fn numbers_of(&mut self, fields: &[Field]) -> Vec<u64> {
        let names = fields.iter().map(|field| &field.name);
        names.map(|name| self.number(name)).collect()
    }

    fn write_new(&mut self, message: &mut Message, field: u32) {
        for (name, number) in self.new.drain(..) {
            let interned = message.begin(field);
            message.number(of_event::INTERNED_IID, number);
            message.text(of_event::INTERNED_NAME, &name);
            message.end(interned);
        }
    }
}

/// What is known of a class of events, in one class of streams.
#[derive(Debug)]
struct Class {
    name: u64,
    category: u64,
    role: SliceRole,
    /// What it does to a span of `tracing`, and the span's name, also interned.
    of_span: Option<(Role, String, u64)>,
    /// All its fields if it gives some to a span after its begin.
    recorded: Vec<Field>,
    /// For a begin or an end event: the name of the slice, interned, and as text.
    slice: u64,
    stem: String,
    /// The slice's name includes the first field, an address: all functions share one event.
    is_of_address: bool,
    /// Interned names of its fields.
    packet: Vec<u64>,
    contexts: Vec<u64>,
    fields: Vec<u64>,
}

impl Class {
    /// Begins or ends a slice on the track, and ends slices within it. Returns the type and the
    /// name of the track event.
    fn update_stack(
        &self,
        message: &mut Message,
        ns: i64,
        role: SliceRole,
        track: &mut Track,
    ) -> (u64, u64) {
        match role {
            SliceRole::Begin if track.stack.begin(self.slice) => {
                (of_event::SLICE_BEGIN, self.slice)
            }
            SliceRole::End => match track.stack.end(self.slice) {
                Some(within) => {
                    for _ in 0..within {
                        let ending = begin_event(message, ns, of_event::SLICE_END, track.uuid);
                        end_event(message, ending);
                    }
                    (of_event::SLICE_END, self.slice)
                }
                None => (of_event::INSTANT, self.name),
            },
            SliceRole::Begin | SliceRole::Neither => (of_event::INSTANT, self.name),
        }
    }

    /// Writes the fields without ids of spans, as debug annotations.
    fn annotate_own(&self, message: &mut Message, fields: &[Field], payload: &[u8]) {
        let ids = self.of_span.as_ref().map_or(0, |(role, ..)| role.ids());
        for (name, (_, value)) in self
            .fields
            .iter()
            .zip(Values::new(fields, payload))
            .skip(ids)
        {
            let mark = message.begin(of_event::DEBUG_ANNOTATIONS);
            message.number(annotation::NAME_IID, *name);
            value_of(message, value);
            message.end(mark);
        }
    }

    /// Writes everything that the event says as debug annotations, with the functions at its
    /// addresses.
    fn annotate(&self, message: &mut Message, event: &Event<'_>, named: &[NamedField<'_>]) {
        annotations(
            message,
            of_event::DEBUG_ANNOTATIONS,
            &self.fields,
            &event.class.fields,
            event.payload,
        );
        frames(message, of_event::DEBUG_ANNOTATIONS, named, Area::Payload);
        if let Some(contexts) = &event.stream.contexts {
            let mark = message.begin(of_event::DEBUG_ANNOTATIONS);
            message.text(annotation::NAME, "context");
            let field = annotation::DICT_ENTRIES;
            annotations(message, field, &self.contexts, contexts, event.contexts);
            frames(message, field, named, Area::Context);
            message.end(mark);
        }
        if !event.stream.packet.is_empty() {
            let fields = &event.stream.packet;
            let mark = message.begin(of_event::DEBUG_ANNOTATIONS);
            message.text(annotation::NAME, "packet");
            let field = annotation::DICT_ENTRIES;
            annotations(message, field, &self.packet, fields, event.packet);
            message.end(mark);
        }
        if let Some(loglevel) = event.class.loglevel {
            let mark = message.begin(of_event::DEBUG_ANNOTATIONS);
            message.text(annotation::NAME, "loglevel");
            message.number(annotation::UINT, loglevel.into());
            message.end(mark);
        }
    }
}

/// The owner of the events on a track.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Process,
    Thread(i64),
    /// A ring, by its class of streams and its number.
    Ring(u32, i64),
    /// Losses in the stream files of this name.
    Lost(OsString),
}

#[derive(Debug)]
struct Track {
    uuid: u64,
    stack: Stack,
}

/// Writes events and losses as a Perfetto trace.
///
/// Memory holds only the names of classes, fields and tracks, and the open slices.
#[derive(Debug, Default)]
pub struct Perfetto {
    has_begun: bool,
    names: Interned,
    categories: Interned,
    annotations: Interned,
    classes: Vec<Class>,
    /// The index of each class, by trace, class of streams, and id.
    class_indices: HashMap<(usize, u32, u16), usize>,
    tracks: Vec<Track>,
    /// The index of each track, by process and owner.
    track_indices: HashMap<(usize, Owner), usize>,
    spans: SpanTracks,
    /// The name of each trace's host, if there are several hosts.
    hosts: Vec<String>,
    /// Process ids that several hosts have.
    ambiguous: HashSet<i64>,
}

/// How a process is shown.
#[derive(Clone, Copy, Debug)]
struct Shown<'a> {
    /// The name of its host, if there are several hosts.
    host: Option<&'a str>,
    /// Its process id, unless another host has the same one: Perfetto would take both for one
    /// process.
    pid: Option<i64>,
}

impl Perfetto {
    /// A writer at the start of a trace.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells the processes of several hosts apart. Must be called before the first event.
    pub fn set_hosts(&mut self, traces: &[Trace]) {
        let hosts = Hosts::of(traces);
        if hosts.all.len() < 2 {
            return;
        }
        let mut owners: HashMap<i64, usize> = HashMap::new();
        for (trace, &host) in traces.iter().zip(&hosts.of_trace) {
            self.hosts.push(hosts.all[host].name.clone());
            if let Some(pid) = trace.metadata().pid()
                && *owners.entry(pid).or_insert(host) != host
            {
                self.ambiguous.insert(pid);
            }
        }
    }

    /// Appends an event's packets.
    pub fn event(&mut self, out: &mut Vec<u8>, event: &Event<'_>) {
        self.named_event(out, event, &[]);
    }

    /// Appends an event's packets, with the functions at the addresses in it.
    pub fn named_event(&mut self, out: &mut Vec<u8>, event: &Event<'_>, named: &[NamedField<'_>]) {
        let message = &mut Message {
            bytes: std::mem::take(out),
        };
        self.begin(message, event.ns);
        let number = self.class(event);
        let (owner, thread_name) = owner(event);
        let is_of_thread = matches!(owner, Owner::Thread(_));
        let track = self.track(message, event.trace, owner, thread_name.as_deref());
        let (class, track) = (&self.classes[number], &mut self.tracks[track]);
        // Threads that share a ring would end each other's slices.
        let role = if is_of_thread {
            class.role
        } else {
            SliceRole::Neither
        };
        let (kind, name) = class.update_stack(message, event.ns, role, track);
        let mark = begin_packet(message, Some(event.ns));
        let interned = message.begin(packet::INTERNED_DATA);
        self.categories
            .write_new(message, of_event::INTERNED_CATEGORIES);
        self.names.write_new(message, of_event::INTERNED_NAMES);
        self.annotations
            .write_new(message, of_event::INTERNED_ANNOTATION_NAMES);
        message.end_or_drop(interned);
        let event_mark = message.begin(packet::TRACK_EVENT);
        message.number(of_event::TYPE, kind);
        message.number(of_event::TRACK_UUID, track.uuid);
        // An end without a name ends the last slice. With a name, it could match another one.
        if kind != of_event::SLICE_END {
            message.number(of_event::CATEGORY_IIDS, class.category);
            let function = CodePlace::of(named).function;
            let first = Values::new(&event.class.fields, event.payload).next();
            let is_call = class.is_of_address && kind == of_event::SLICE_BEGIN;
            match (first, function) {
                (_, Some(frame)) if is_call => message.text(of_event::NAME, &frame.function),
                (Some((_, Value::Scalar(Number::Integer(_, bits)))), None) if is_call => {
                    message.text(of_event::NAME, &format!("{} 0x{bits:X}", class.stem));
                }
                _ => message.number(of_event::NAME_IID, name),
            }
            if let Some(frame) = function {
                source_location(message, frame);
            }
        }
        if let (of_event::SLICE_BEGIN, Some((Role::Enter, ..))) = (kind, &class.of_span)
            && let Some((ids, _)) = self.spans.get(event.trace.process(), span_id(event, 0))
        {
            message.fixed(of_event::FLOW_IDS, ids.span_id);
        }
        // Arrays of the end would follow those of the begin.
        let is_end = kind == of_event::SLICE_END;
        class.annotate(message, event, if is_end { &[] } else { named });
        message.end(event_mark);
        message.end(mark);
        self.span(message, event, number);
        *out = std::mem::take(&mut message.bytes);
    }

    /// Begins or ends the slice of a span of `tracing`, or adds to it.
    fn span(&mut self, message: &mut Message, event: &Event<'_>, class: usize) {
        let Some((role, ..)) = self.classes[class].of_span else {
            return;
        };
        let (process, id) = (event.trace.process(), span_id(event, 0));
        match role {
            // 0 is none.
            _ if id == 0 => {}
            Role::New => {
                // The end of one with the same id was lost.
                if let Some(ended) = self.spans.end(process, id) {
                    self.end_span(message, event.ns, &ended);
                }
                self.begin_span(message, event, class, [id, span_id(event, 1)]);
            }
            Role::Close => {
                if let Some(ended) = self.spans.end(process, id) {
                    self.end_span(message, event.ns, &ended);
                }
            }
            Role::Record => self.spans.record(event, class, id),
            Role::Follows => {
                let followed = self.spans.get(process, span_id(event, 1));
                let Some((followed, span)) = followed.zip(self.spans.get(process, id)) else {
                    return;
                };
                let flow = followed.0.span_id.rotate_left(1) ^ span.0.span_id;
                for (track, field, name) in [
                    (followed.1, of_event::FLOW_IDS, "followed"),
                    (span.1, of_event::TERMINATING_FLOW_IDS, "follows"),
                ] {
                    let uuid = SPAN_TRACKS + track as u64;
                    let mark = begin_event(message, event.ns, of_event::INSTANT, uuid);
                    message.text(of_event::NAME, name);
                    message.fixed(field, flow);
                    end_event(message, mark);
                }
            }
            Role::Enter | Role::Exit | Role::InSpan => {}
        }
    }

    fn begin_span(
        &mut self,
        message: &mut Message,
        event: &Event<'_>,
        class: usize,
        ids: [u64; 2],
    ) {
        let Some((_, name, number)) = &self.classes[class].of_span else {
            return;
        };
        let Some(begun) = self.spans.begin(event, name, *number, ids) else {
            return;
        };
        let uuid = SPAN_TRACKS + begun.track as u64;
        if begun.is_new {
            let name = name.clone();
            let parent = match begun.parent {
                Some(parent) => SPAN_TRACKS + parent as u64,
                None => {
                    let process = self.track(message, event.trace, Owner::Process, None);
                    self.tracks[process].uuid
                }
            };
            let mark = begin_packet(message, None);
            let descriptor = message.begin(packet::TRACK_DESCRIPTOR);
            message.number(track::UUID, uuid);
            message.number(track::PARENT_UUID, parent);
            message.text(track::NAME, &name);
            message.end(descriptor);
            message.end(mark);
        }
        let class = &self.classes[class];
        let Some((_, _, name)) = class.of_span else {
            return;
        };
        let mark = begin_event(message, event.ns, of_event::SLICE_BEGIN, uuid);
        message.number(of_event::CATEGORY_IIDS, class.category);
        message.number(of_event::NAME_IID, name);
        message.fixed(of_event::FLOW_IDS, begun.ids.span_id);
        class.annotate_own(message, &event.class.fields, event.payload);
        end_event(message, mark);
    }

    /// Ends the slice of a span, and slices within it.
    fn end_span(&self, message: &mut Message, ns: i64, ended: &Ended) {
        let uuid = SPAN_TRACKS + ended.track as u64;
        for _ in 0..ended.within {
            let ending = begin_event(message, ns, of_event::SLICE_END, uuid);
            end_event(message, ending);
        }
        let mark = begin_event(message, ns, of_event::SLICE_END, uuid);
        for record in &ended.records {
            let class = &self.classes[record.class];
            class.annotate_own(message, &class.recorded, &record.payload);
        }
        end_event(message, mark);
    }

    /// Appends the packets of a loss: a slice for the period in which events may be missing.
    pub fn lost(&mut self, out: &mut Vec<u8>, lost: &Lost, trace: &Trace) {
        let message = &mut Message {
            bytes: std::mem::take(out),
        };
        self.begin(message, lost.begin);
        let file = lost.path.file_name().unwrap_or_default().to_owned();
        let track = self.track(message, trace, Owner::Lost(file), None);
        let uuid = self.tracks[track].uuid;
        let (what, count) = match lost.kind {
            LossKind::Events(count) => ("events", count),
            LossKind::Packets(count) => ("packets", count),
        };
        let mark = begin_event(message, lost.begin, of_event::SLICE_BEGIN, uuid);
        message.text(of_event::NAME, &format!("{count} {what} lost"));
        let count_mark = message.begin(of_event::DEBUG_ANNOTATIONS);
        message.text(annotation::NAME, what);
        message.number(annotation::UINT, count);
        message.end(count_mark);
        end_event(message, mark);
        let ended = begin_event(message, lost.end, of_event::SLICE_END, uuid);
        end_event(message, ended);
        *out = std::mem::take(&mut message.bytes);
    }

    /// Writes the first packet: it sets the clock, and starts the sequence.
    fn begin(&mut self, message: &mut Message, ns: i64) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let mark = message.begin(field::TRACE_PACKET);
        message.number(packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE);
        message.number(packet::SEQUENCE_FLAGS, packet::INCREMENTAL_STATE_CLEARED);
        let defaults = message.begin(packet::TRACE_PACKET_DEFAULTS);
        message.number(clock::DEFAULT_TIMESTAMP_CLOCK_ID, clock::REALTIME);
        message.end(defaults);
        let snapshot = message.begin(packet::CLOCK_SNAPSHOT);
        message.number(clock::PRIMARY_TRACE_CLOCK, clock::REALTIME);
        let clocks = message.begin(clock::CLOCKS);
        message.number(clock::CLOCK_ID, clock::REALTIME);
        message.number(clock::CLOCK_TIMESTAMP, timestamp(ns));
        message.end(clocks);
        message.end(snapshot);
        message.end(mark);
    }

    /// The index of an event's class.
    fn class(&mut self, event: &Event<'_>) -> usize {
        let key = (event.trace.number(), event.stream.id, event.class.id);
        if let Some(&index) = self.class_indices.get(&key) {
            return index;
        }
        let name = &event.class.name;
        let (role, stem) = role_of(event);
        let provider = name.split(':').next().unwrap_or_default();
        let of_span = Role::of(event);
        let recorded = match of_span {
            Some((Role::Record, _)) => event.class.fields.clone(),
            _ => Vec::new(),
        };
        self.classes.push(Class {
            recorded,
            of_span: of_span.map(|(role, span)| (role, span.to_owned(), self.names.number(span))),
            name: self.names.number(name),
            category: self.categories.number(provider),
            role,
            slice: self.names.number(&stem),
            is_of_address: is_of_function(event, &stem),
            stem,
            packet: self.annotations.numbers_of(&event.stream.packet),
            contexts: self
                .annotations
                .numbers_of(event.stream.contexts.as_deref().unwrap_or_default()),
            fields: self.annotations.numbers_of(&event.class.fields),
        });
        self.class_indices.insert(key, self.classes.len() - 1);
        self.classes.len() - 1
    }

    /// The index of a track. Describes a new track, after its process's. `thread_name` is the
    /// thread's name.
    fn track(
        &mut self,
        message: &mut Message,
        trace: &Trace,
        owner: Owner,
        thread_name: Option<&str>,
    ) -> usize {
        let key = (trace.process(), owner);
        if let Some(&index) = self.track_indices.get(&key) {
            return index;
        }
        let (_, owner) = &key;
        let parent = match owner {
            Owner::Process => None,
            _ => {
                let process = self.track(message, trace, Owner::Process, None);
                Some(self.tracks[process].uuid)
            }
        };
        let uuid = self.tracks.len() as u64 + 1;
        let metadata = trace.metadata();
        let mark = begin_packet(message, None);
        let descriptor = message.begin(packet::TRACK_DESCRIPTOR);
        message.number(track::UUID, uuid);
        if let Some(parent) = parent {
            message.number(track::PARENT_UUID, parent);
        }
        let shown = Shown {
            host: self.hosts.get(trace.number()).map(String::as_str),
            pid: metadata.pid().filter(|pid| !self.ambiguous.contains(pid)),
        };
        describe_owner(message, metadata, shown, owner, thread_name);
        message.end(descriptor);
        message.end(mark);
        self.tracks.push(Track {
            uuid,
            stack: Stack::default(),
        });
        self.track_indices.insert(key, self.tracks.len() - 1);
        self.tracks.len() - 1
    }
}

/// Writes the part of a track's description that depends on its owner.
fn describe_owner(
    message: &mut Message,
    metadata: &Metadata,
    shown: Shown<'_>,
    owner: &Owner,
    thread_name: Option<&str>,
) {
    match owner {
        Owner::Process => {
            let name = metadata.owner_name();
            let name = match shown.host {
                Some(host) => Some(format!("{host}: {}", name.unwrap_or("?")).into()),
                None => name.map(Cow::from),
            };
            let labels = [("hostname", "host"), ("trace_name", "trace")];
            let labels = labels
                .into_iter()
                .filter_map(|(key, label)| Some(format!("{label} {}", metadata.env_text(key)?)));
            // Without a process id, this would describe another process.
            match shown.pid {
                Some(pid) => {
                    let process = message.begin(track::PROCESS);
                    message.signed(track::PROCESS_PID, pid);
                    if let Some(name) = name {
                        message.text(track::PROCESS_NAME, &name);
                    }
                    if let Some(cmdline) = metadata.env_text("cmdline") {
                        message.text(track::PROCESS_CMDLINE, cmdline);
                    }
                    labels.for_each(|label| message.text(track::PROCESS_LABELS, &label));
                    message.end(process);
                }
                None => {
                    let name = name.as_deref().unwrap_or("?");
                    match metadata.pid() {
                        Some(pid) => message.text(track::NAME, &format!("{name} ({pid})")),
                        None => message.text(track::NAME, name),
                    }
                }
            }
        }
        Owner::Thread(tid) if shown.pid.is_none() && metadata.pid().is_some() => {
            let name = thread_name.unwrap_or("thread");
            message.text(track::NAME, &format!("{name} {tid}"));
        }
        Owner::Thread(tid) => {
            let thread = message.begin(track::THREAD);
            message.signed(track::THREAD_PID, shown.pid.unwrap_or(0));
            message.signed(track::THREAD_TID, *tid);
            if let Some(name) = thread_name {
                message.text(track::THREAD_NAME, name);
            }
            message.end(thread);
        }
        Owner::Ring(class, number) => {
            let of_class = metadata.classes().iter().find(|known| known.id == *class);
            let name = of_class.and_then(|class| Some(&class.packet.first()?.name[..]));
            let name = match name {
                Some("cpu_id") => "CPU",
                name => name.unwrap_or("ring"),
            };
            message.text(track::NAME, &format!("{name} {number}"));
        }
        Owner::Lost(file) => {
            let file = file.to_string_lossy();
            message.text(track::NAME, &format!("lost in {file}"));
        }
    }
}

/// The owner of an event's track, and the thread's name if known.
fn owner<'a>(event: &Event<'a>) -> (Owner, Option<Cow<'a, str>>) {
    let contexts = event.stream.contexts.as_deref().unwrap_or_default();
    let (mut thread, mut name) = (None, None);
    if contexts.iter().any(|field| field.name == THREAD) {
        for (field, value) in Values::new(contexts, event.contexts) {
            match value {
                Value::Scalar(Number::Integer(_, bits)) if field.name == THREAD => {
                    thread = Some(bits.cast_signed())
                }
                Value::Text(text) if field.name == THREAD_NAME => {
                    name = Some(String::from_utf8_lossy(text))
                }
                _ => {}
            }
        }
    }
    if let Some(thread) = thread {
        return (Owner::Thread(thread), name);
    }
    let owner = match Values::new(&event.stream.packet, event.packet).next() {
        // 0 means several threads.
        Some((field, Value::Scalar(Number::Integer(_, bits))))
            if field.name == "tid" && bits != 0 =>
        {
            Owner::Thread(bits.cast_signed())
        }
        Some((_, Value::Scalar(Number::Integer(_, bits)))) => {
            Owner::Ring(event.stream.id, bits.cast_signed())
        }
        _ => Owner::Process,
    };
    (owner, None)
}

/// The id of a span in a field of its event.
fn span_id(event: &Event<'_>, index: usize) -> u64 {
    value::integer(&event.class.fields, index, event.payload).unwrap_or(0)
}

/// The role of an event, considering only counterparts that were selected as well.
fn role_of(event: &Event<'_>) -> (SliceRole, String) {
    let is_event = |name: &str| event.other(name) == Some(true);
    slice_role(&event.class.name, &is_event)
}

/// Perfetto cannot represent times before 1970.
fn timestamp(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0)
}

fn begin_packet(message: &mut Message, ns: Option<i64>) -> NestedMark {
    let mark = message.begin(field::TRACE_PACKET);
    if let Some(ns) = ns {
        message.number(packet::TIMESTAMP, timestamp(ns));
    }
    message.number(packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE);
    message.number(packet::SEQUENCE_FLAGS, packet::NEEDS_INCREMENTAL_STATE);
    mark
}

fn begin_event(message: &mut Message, ns: i64, kind: u64, track: u64) -> [NestedMark; 2] {
    let mark = begin_packet(message, Some(ns));
    let event = message.begin(packet::TRACK_EVENT);
    message.number(of_event::TYPE, kind);
    message.number(of_event::TRACK_UUID, track);
    [mark, event]
}

fn end_event(message: &mut Message, [mark, event]: [NestedMark; 2]) {
    message.end(event);
    message.end(mark);
}

/// Writes fields as annotations. `names` are their interned names.
fn annotations(message: &mut Message, field: u32, names: &[u64], fields: &[Field], bytes: &[u8]) {
    for (name, (_, value)) in names.iter().zip(Values::new(fields, bytes)) {
        let mark = message.begin(field);
        message.number(annotation::NAME_IID, *name);
        value_of(message, value);
        message.end(mark);
    }
}

/// Writes the functions at the addresses of each field of an area as an array of texts.
fn frames(message: &mut Message, field: u32, named: &[NamedField<'_>], area: Area) {
    for of in named.iter().filter(|of| of.area == area) {
        let mark = message.begin(field);
        message.text(annotation::NAME, &format!("{}_frames", of.name));
        for frame in of.frames.iter().flat_map(|(_, frames)| frames.iter()) {
            let element = message.begin(annotation::ARRAY_VALUES);
            message.text(annotation::STRING, &format!("{frame:#}"));
            message.end(element);
        }
        message.end(mark);
    }
}

/// Writes where the code of an event is.
fn source_location(message: &mut Message, frame: &Frame) {
    let mark = message.begin(of_event::SOURCE_LOCATION);
    if let Some(file) = &frame.file {
        message.text(source::FILE, file);
    }
    message.text(source::FUNCTION, &frame.function);
    if let Some(line) = frame.line {
        message.number(source::LINE, line.into());
    }
    message.end(mark);
}

fn value_of(message: &mut Message, value: Value<'_>) {
    match value {
        Value::Scalar(value) => number(message, value),
        Value::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => message.text(annotation::STRING, text),
            Err(_) => {
                entry(message, "text", |message| {
                    message.text(annotation::STRING, &String::from_utf8_lossy(bytes));
                });
                entry(message, "hex", |message| {
                    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                    message.text(annotation::STRING, &digits);
                });
            }
        },
        Value::Enum(value) => {
            let labels: Vec<_> = value.names().collect();
            if !labels.is_empty() {
                entry(message, "label", |message| {
                    message.text(annotation::STRING, &labels.join(", "));
                });
            }
            entry(message, "value", |message| {
                integer(message, value.kind, value.bits)
            });
        }
        Value::List(elements) => {
            for element in elements {
                let mark = message.begin(annotation::ARRAY_VALUES);
                number(message, element);
                message.end(mark);
            }
        }
    }
}

fn entry(message: &mut Message, name: &str, value: impl FnOnce(&mut Message)) {
    let mark = message.begin(annotation::DICT_ENTRIES);
    message.text(annotation::NAME, name);
    value(message);
    message.end(mark);
}

fn number(message: &mut Message, number: Number) {
    match number {
        Number::Integer(kind, bits) => integer(message, kind, bits),
        Number::Bool(byte) => message.number(annotation::UINT, byte.into()),
        Number::F32(number) => message.double(annotation::DOUBLE, number.into()),
        Number::F64(number) => message.double(annotation::DOUBLE, number),
    }
}

fn integer(message: &mut Message, kind: Integer, bits: u64) {
    // Perfetto shows pointers in hexadecimal.
    let field = match kind {
        Integer { hex: true, .. } => annotation::POINTER,
        Integer { signed: true, .. } => annotation::INT,
        _ => annotation::UINT,
    };
    message.number(field, bits);
}
