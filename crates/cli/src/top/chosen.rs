//! Chooses the events of a ring by their values.

use std::collections::HashMap;

use usertrace_reader::{Binding, Condition, Declared, Field, Occurrence, ProcessOf, fields_of};
use usertrace_ring::schema::{Event, FieldType, InChannel, Integer, Scalar};
use usertrace_sys::Scope;

/// Chooses the events of a channel that fulfil a condition.
#[derive(Debug)]
pub(super) struct Chosen {
    condition: Condition,
    /// Fields of a ring.
    packet: Vec<Field>,
    events: HashMap<u16, Bound>,
}

/// An event to which the condition is bound.
#[derive(Debug)]
struct Bound {
    contexts: Vec<Field>,
    fields: Vec<Field>,
    binding: Binding,
}

impl Chosen {
    pub(super) fn new(condition: Condition, scope: Scope) -> Self {
        // The files of the kernel do not say whose rings others are.
        let packet = match scope {
            Scope::Cpu => vec![cpu_id()],
            Scope::Thread | Scope::Global | Scope::MmCid => Vec::new(),
        };
        Self {
            condition,
            packet,
            events: HashMap::new(),
        }
    }

    /// Whether a record fulfils the condition. Records of unknown events do not.
    pub(super) fn has(
        &mut self,
        id: u16,
        payload: &[u8],
        ring: u32,
        channel: &InChannel<'_>,
        process: ProcessOf<'_>,
    ) -> bool {
        let split = match channel.contexts {
            Some(contexts) => contexts.split(payload),
            None => Some((&[][..], payload)),
        };
        let (Some(event), Some((contexts, payload))) = (channel.events.get(id), split) else {
            return false;
        };
        let Self {
            condition,
            packet,
            events,
        } = self;
        let bound = events
            .entry(id)
            .or_insert_with(|| Bound::new(condition, packet, event, channel));
        let occurrence = Occurrence {
            declared: bound.declared(packet),
            packet: &ring.to_ne_bytes()[..4 * packet.len()],
            contexts,
            payload,
            process,
        };
        condition.holds(&bound.binding, &occurrence)
    }
}

impl Bound {
    fn new(
        condition: &Condition,
        packet: &[Field],
        event: &Event,
        channel: &InChannel<'_>,
    ) -> Self {
        let contexts = channel.contexts.map(|contexts| fields_of(&contexts.fields));
        let contexts = contexts.unwrap_or_default();
        let fields = fields_of(&event.fields);
        let declared = Declared {
            packet,
            contexts: &contexts,
            fields: &fields,
        };
        Self {
            binding: condition.bind(&declared),
            contexts,
            fields,
        }
    }

    fn declared<'a>(&'a self, packet: &'a [Field]) -> Declared<'a> {
        Declared {
            packet,
            contexts: &self.contexts,
            fields: &self.fields,
        }
    }
}

/// Bindings of all events that a process described, with the contexts of a channel.
pub(super) fn bindings<'a>(
    condition: &'a Condition,
    scope: Scope,
    channel: &'a InChannel<'_>,
) -> impl Iterator<Item = Binding> + 'a {
    let packet = Chosen::new(condition.clone(), scope).packet;
    let events = channel.events.iter();
    events.map(move |event| Bound::new(condition, &packet, event, channel).binding)
}

fn cpu_id() -> Field {
    Field {
        name: "cpu_id".to_owned(),
        kind: FieldType::Scalar(Scalar::Integer(Integer {
            len: 4,
            signed: false,
            hex: false,
            big_endian: false,
        })),
        length_name: None,
    }
}
