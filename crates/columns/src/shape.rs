//! The fields of an event, as they are in memory.

use std::sync::Arc;

use usertrace_reader::{Event, Field};
use usertrace_ring::schema::{FieldType, Integer, Scalar};

use crate::schema::Layout;

/// The fields of an event: traces that declare an event alike have one in common.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) fields: Fields,
    /// Their columns, as long as all texts are UTF-8.
    pub(crate) layout: Arc<Layout>,
}

/// The parts of a row, one behind the other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) packet: Vec<Field>,
    pub(crate) contexts: Vec<Field>,
    pub(crate) own: Vec<Field>,
}

/// A part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Packet,
    Contexts,
    Own,
}

impl Shape {
    /// The fields of a loss: what is lost, how many, since when, and the file that it is missing
    /// in. Before them is the CPU, if it is known.
    pub(crate) fn of_losses(has_cpu: bool) -> Self {
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
            length_name: None,
        };
        let integer = |len, signed| {
            FieldType::Scalar(Scalar::Integer(Integer {
                len,
                signed,
                hex: false,
                big_endian: false,
            }))
        };
        let cpu = has_cpu.then(|| field("cpu_id", integer(4, false)));
        Self {
            fields: Fields {
                packet: cpu.into_iter().collect(),
                contexts: Vec::new(),
                own: vec![
                    field("lost", FieldType::Str),
                    field("lost_count", integer(8, false)),
                    field("lost_since", integer(8, true)),
                    field("lost_file", FieldType::Str),
                ],
            },
            layout: Arc::new(Layout::of_losses(has_cpu)),
        }
    }
}

impl Part {
    /// In the order in which they are in memory.
    pub(crate) const ALL: [Self; 3] = [Self::Packet, Self::Contexts, Self::Own];
}

impl Fields {
    pub(crate) fn of(event: &Event<'_>) -> Self {
        Self {
            packet: event.stream.packet.clone(),
            contexts: event.stream.contexts.clone().unwrap_or_default(),
            own: event.class.fields.clone(),
        }
    }

    /// Whether the event's fields are the same.
    pub(crate) fn are(&self, event: &Event<'_>) -> bool {
        self.packet == event.stream.packet
            && self.contexts == event.stream.contexts.as_deref().unwrap_or_default()
            && self.own == event.class.fields
    }

    pub(crate) fn part(&self, part: Part) -> &[Field] {
        match part {
            Part::Packet => &self.packet,
            Part::Contexts => &self.contexts,
            Part::Own => &self.own,
        }
    }
}
