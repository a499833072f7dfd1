//! The event table of a process.

use std::collections::BTreeMap;

use super::{DescriptionError, Event};
use crate::PayloadLengths;

/// The events that a process described, by id. The control channel bounds its size, as it is never
/// overwritten.
#[derive(Clone, Debug, Default)]
pub struct EventTable {
    /// Not a hash map: the standard library keeps its hash keys in thread-local storage, see
    /// `writer/thread/`.
    events: BTreeMap<u16, Event>,
    /// Payload lengths by id. A reader needs one for each record. Ids are low, as they are given
    /// consecutively.
    lengths: Lengths,
}

/// Lengths of payloads, and of records if all records of the event have the same length. 0 is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lengths {
    payloads: Vec<Length>,
    records: Vec<u32>,
}

/// Length of an event's payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Length {
    /// There is no such event.
    #[default]
    Unknown,
    /// Every payload has this length.
    Fixed(u32),
    /// The length depends on the values.
    Variable,
}

impl EventTable {
    /// Adds a description. Some if it is new.
    ///
    /// # Errors
    /// If the line is not a description, or contradicts the one that its id has.
    pub fn describe(&mut self, line: &[u8]) -> Result<Option<&Event>, DescriptionError> {
        self.add(Event::parse(line)?)
    }

    /// Adds an event. Some if it is new.
    ///
    /// # Errors
    /// If it contradicts the one that its id has.
    pub fn add(&mut self, event: Event) -> Result<Option<&Event>, DescriptionError> {
        use std::collections::btree_map::Entry;
        match self.events.entry(event.id) {
            Entry::Vacant(entry) => {
                self.lengths.add(&event);
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

    /// All events, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.values()
    }

    /// Number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl FromIterator<Event> for EventTable {
    /// The last of several events with the same id wins.
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let mut table = Self::default();
        for event in events {
            table.lengths.add(&event);
            table.events.insert(event.id, event);
        }
        table
    }
}

impl Lengths {
    fn add(&mut self, event: &Event) {
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
    fn ids_keep_their_first_description() {
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
