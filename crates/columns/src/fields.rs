//! The fields of an event, as the trace declares them.

use usertrace_reader::{Event, Field};

use crate::code::CodeFields;

/// The parts of a row, one behind the other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) packet: Vec<Field>,
    pub(crate) contexts: Vec<Field>,
    pub(crate) own: Vec<Field>,
    /// What is at the code addresses in the others.
    pub(crate) code: CodeFields,
}

/// A part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Packet,
    Contexts,
    Own,
    Code,
}

impl Part {
    /// In the order in which they are in memory.
    pub(crate) const ALL: [Self; 4] = [Self::Packet, Self::Contexts, Self::Own, Self::Code];
}

impl Fields {
    /// `names_code`: rows have functions at code addresses.
    pub(crate) fn of(event: &Event<'_>, names_code: bool) -> Self {
        let code = names_code.then(|| CodeFields::of(event));
        Self {
            code: code.unwrap_or_default(),
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
            Part::Code => &self.code.numbers,
        }
    }
}
