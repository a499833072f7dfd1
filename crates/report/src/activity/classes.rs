//! Finds out once what the fields of each class of streams and events mean.

use std::collections::HashMap;

use usertrace_reader::{Event, Field, value};

use super::lanes::LaneOwner;
use super::pairing::{Action, Pairs};
use super::rules;
use crate::fields::integer_field;
use crate::heap::HeapUse;

/// Fields of other events than those of an allocator that have a number of bytes.
const BYTES: [&str; 3] = ["bytes", "size", "len"];

/// The name of the pair for the life of a memory block.
pub(super) const LIFE: &str = "libc:malloc → free";

/// A class of events, shared by all processes.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) loglevel: Option<u32>,
    pub(crate) events: u64,
}

/// Indices of a stream's fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamUse {
    pub(crate) cpu: Option<usize>,
    tid: Option<usize>,
    vtid: Option<usize>,
    procname: Option<usize>,
}

/// What the events of a class mean, in one class of streams.
#[derive(Clone, Debug)]
pub(crate) struct ClassUse {
    pub(crate) class: u32,
    pub(crate) actions: Vec<Action>,
    /// What it does to memory, and the pair for the life of blocks.
    pub(crate) heap: Option<(HeapUse, u32)>,
    /// The field with a number of bytes.
    bytes: Option<usize>,
    /// The field with the thread's handle.
    thread: Option<usize>,
}

/// A cache of what streams and classes mean.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    pub(crate) all: Vec<Class>,
    /// By trace, and class of streams.
    streams: HashMap<(u32, u32), StreamUse, ahash::RandomState>,
    /// By trace, class of streams, and event id.
    uses: HashMap<(u32, u32, u16), usize, ahash::RandomState>,
    all_uses: Vec<ClassUse>,
    by_name: HashMap<String, u32>,
}

/// An integer in the header of an event's packet.
pub(crate) fn packet_integer(event: &Event<'_>, index: Option<usize>) -> Option<u64> {
    value::integer(&event.stream.packet, index?, event.packet)
}

/// An integer in an event's payload.
pub(crate) fn payload_integer(event: &Event<'_>, index: Option<usize>) -> Option<u64> {
    value::integer(&event.class.fields, index?, event.payload)
}

fn position(fields: &[Field], name: &str) -> Option<usize> {
    fields.iter().position(|field| field.name == name)
}

impl Classes {
    /// What the fields of an event's stream and class mean.
    pub(crate) fn usage(&mut self, pairs: &mut Pairs, event: &Event<'_>) -> (StreamUse, &ClassUse) {
        let trace = event.trace.number() as u32;
        let stream = *self
            .streams
            .entry((trace, event.stream.id))
            .or_insert_with(|| StreamUse::of(event));
        let place = (trace, event.stream.id, event.class.id);
        let used = match self.uses.get(&place) {
            Some(&used) => used,
            None => self.resolve(pairs, place, event),
        };
        (stream, &self.all_uses[used])
    }

    /// Finds out what the events of a class mean, and caches it.
    #[cold]
    fn resolve(&mut self, pairs: &mut Pairs, place: (u32, u32, u16), event: &Event<'_>) -> usize {
        let (name, fields) = (&event.class.name, &event.class.fields);
        let next = self.all.len() as u32;
        let class = *self.by_name.entry(name.clone()).or_insert(next);
        if class == next {
            self.all.push(Class {
                name: name.clone(),
                loglevel: event.class.loglevel,
                events: 0,
            });
        }
        let exists = |name: &str| event.other(name).is_some();
        let rules = rules::actions(name, fields, &exists);
        let actions = rules.into_iter().map(|rule| pairs.action(rule)).collect();
        let heap = HeapUse::of(name, fields).map(|used| (used, pairs.pair(LIFE.to_owned(), true)));
        self.all_uses.push(ClassUse {
            class,
            actions,
            heap,
            bytes: BYTES.iter().find_map(|name| integer_field(fields, name)),
            thread: integer_field(fields, "thread"),
        });
        self.uses.insert(place, self.all_uses.len() - 1);
        self.all_uses.len() - 1
    }
}

impl ClassUse {
    /// The number of bytes that an event is about: what it allocated, or what its field says.
    pub(crate) fn bytes_of(&self, event: &Event<'_>) -> u64 {
        let field = |index| payload_integer(event, index);
        match self.heap {
            Some((heap, _)) => heap.allocated(field).unwrap_or(0),
            // A negative number is an error code.
            None => field(self.bytes).map_or(0, |bytes| bytes.cast_signed().max(0).cast_unsigned()),
        }
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

    /// The thread of a process that wrote an event, as far as the trace says.
    pub(crate) fn thread(self, process: u32, used: &ClassUse, event: &Event<'_>) -> LaneOwner {
        let contexts = event.stream.contexts.as_deref().unwrap_or_default();
        let vtid = self
            .vtid
            .and_then(|vtid| value::integer(contexts, vtid, event.contexts));
        // A `tid` of 0 is a ring that several threads share.
        let tid = vtid.or_else(|| packet_integer(event, self.tid).filter(|&tid| tid != 0));
        match (tid, payload_integer(event, used.thread)) {
            (Some(tid), _) => LaneOwner::Thread(process, tid),
            (None, Some(thread)) => LaneOwner::Handle(process, thread),
            (None, None) => LaneOwner::Process(process),
        }
    }

    /// The name of an event's thread, if its contexts have it.
    pub(crate) fn thread_name<'a>(self, event: &Event<'a>) -> Option<&'a [u8]> {
        let contexts = event.stream.contexts.as_deref().unwrap_or_default();
        let name = value::text(contexts, self.procname?, event.contexts)?;
        (!name.is_empty()).then_some(name)
    }
}
