//! The events of a process, by id.

use std::collections::BTreeMap;

use super::{DescriptionError, Event};
use crate::PayloadLengths;

/// The events that a process described. What it holds is bounded by the size of the control
/// channel, which is never overwritten.
#[derive(Clone, Debug, Default)]
pub struct EventTable {
    /// Not by hash: the keys of the standard library's hasher are thread-local, see
    /// `writer/thread/`.
    events: BTreeMap<u16, Event>,
    /// By id, how long payloads are: a reader asks for each record. Ids are given one after the
    /// other, so they are low.
    lengths: Lengths,
}

/// Lengths of payloads, and of records that are always of one length: 0 is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lengths {
    payloads: Vec<Length>,
    records: Vec<u32>,
}

/// How long payloads of an event are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Length {
    /// There is no such event.
    #[default]
    Unknown,
    /// Always so long.
    Fixed(u32),
    /// What is in them says it.
    Variable,
}

impl EventTable {
    /// Takes a description. Some: it is new.
    ///
    /// # Errors
    /// When it is not one, or contradicts the one that its id has.
    pub fn describe(&mut self, line: &[u8]) -> Result<Option<&Event>, DescriptionError> {
        self.add(Event::parse(line)?)
    }

    /// Takes an event. Some: it is new.
    ///
    /// # Errors
    /// When it contradicts the one that its id has.
    pub fn add(&mut self, event: Event) -> Result<Option<&Event>, DescriptionError> {
        use std::collections::btree_map::Entry;
        match self.events.entry(event.id) {
            Entry::Vacant(entry) => {
                self.lengths.note(&event);
                Ok(Some(entry.insert(event)))
            }
            // Threads on two CPUs may describe the same event.
            Entry::Occupied(entry) if *entry.get() == event => Ok(None),
            Entry::Occupied(_) => Err(DescriptionError::Conflict(event.id)),
        }
    }

    /// The event of this id.
    #[must_use]
    pub fn get(&self, id: u16) -> Option<&Event> {
        self.events.get(&id)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl FromIterator<Event> for EventTable {
    /// Of events of the same id, the last one.
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let mut table = Self::default();
        for event in events {
            table.lengths.note(&event);
            table.events.insert(event.id, event);
        }
        table
    }
}

impl Lengths {
    fn note(&mut self, event: &Event) {
        let id = usize::from(event.id);
        if self.payloads.len() <= id {
            self.payloads.resize(id + 1, Length::Unknown);
            self.records.resize(id + 1, 0);
        }
        let fixed = event.fixed_len().and_then(|len| u32::try_from(len).ok());
        self.payloads[id] = fixed.map_or(Length::Variable, Length::Fixed);
        let padded = fixed.and_then(|len| len.checked_next_multiple_of(8)?.checked_add(8));
        self.records[id] = padded.unwrap_or(0);
    }
}

impl PayloadLengths for EventTable {
    #[inline(always)]
    fn payload_len(&self, id: u16, bytes: &[u8]) -> Option<usize> {
        match *self.lengths.payloads.get(usize::from(id))? {
            Length::Unknown => None,
            Length::Fixed(len) => Some(len as usize).filter(|&len| len <= bytes.len()),
            Length::Variable => self.get(id)?.payload_len(bytes),
        }
    }

    fn record_lens(&self) -> &[u32] {
        &self.lengths.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_its_first_description() {
        let mut table = EventTable::default();
        assert!(table.describe(b"7 a:b 0 u8 x\0").unwrap().is_some());
        assert_eq!(table.describe(b"7 a:b 0 u8 x\0"), Ok(None));
        assert_eq!(
            table.describe(b"7 a:c 0 u8 x\0"),
            Err(DescriptionError::Conflict(7))
        );
        assert_eq!(table.get(7).unwrap().name, "a:b");
        assert_eq!(table.len(), 1);
        assert_eq!(table.payload_len(7, b"xyz"), Some(1));
        assert_eq!(table.payload_len(7, b""), None);
        for id in [0, 6, 8, u16::MAX] {
            assert_eq!(table.payload_len(id, b"xyz"), None);
        }
        assert!(table.describe(b"9 a:d 0 u8 x;str s\0").unwrap().is_some());
        assert_eq!(table.payload_len(9, b"xyz\0zy"), Some(4));
        assert_eq!(table.payload_len(9, b"xyz"), None);
        assert_eq!(table.record_lens()[7..], [16, 0, 0]);
        let events = [7, 9].map(|id| table.get(id).unwrap().clone());
        let again: EventTable = events.into_iter().collect();
        assert_eq!(again.lengths, table.lengths);
    }
}
