//! The events of a process, by id.

use std::collections::HashMap;

use super::{DescriptionError, Event};
use crate::ring::PayloadLengths;

/// The events that a process described. What it holds is bounded by the size of the control channel, which is never
/// overwritten.
#[derive(Clone, Debug, Default)]
pub struct EventTable {
    events: HashMap<u16, Event>,
}

impl EventTable {
    /// Takes a description. Some: it is new.
    ///
    /// # Errors
    /// When it is not one, or contradicts the one that its id has.
    pub fn describe(&mut self, line: &[u8]) -> Result<Option<&Event>, DescriptionError> {
        use std::collections::hash_map::Entry;
        let event = Event::parse(line)?;
        match self.events.entry(event.id) {
            Entry::Vacant(entry) => Ok(Some(entry.insert(event))),
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
        let events = events.into_iter().map(|event| (event.id, event));
        Self {
            events: events.collect(),
        }
    }
}

impl PayloadLengths for EventTable {
    fn payload_len(&self, id: u16, bytes: &[u8]) -> Option<usize> {
        self.get(id)?.payload_len(bytes)
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
        assert_eq!(table.payload_len(8, b"xyz"), None);
    }
}
