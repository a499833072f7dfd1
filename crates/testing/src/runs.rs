//! A sink that takes records in raw form, as the recorder does, and parses them itself.

use std::convert::Infallible;

use usertrace_ring::{Item, PayloadLengths, Run, Sink};

/// Received items, in order, as text.
pub struct Runs<'a, L> {
    pub items: Vec<String>,
    /// Records received in raw form.
    pub taken: u64,
    /// Of these, records received in the sink's own buffer, without another copy.
    pub taken_in_room: u64,
    /// The sink refuses one of so many runs.
    refuses: u64,
    /// The sink offers a buffer of its own.
    has_room: bool,
    /// How often the reader has asked for the buffer.
    requests: u64,
    room: Vec<u8>,
    lengths: &'a L,
}

/// An item as text.
pub fn as_text(item: Item<'_>) -> String {
    format!("{item:?}")
}

impl<'a, L: PayloadLengths> Runs<'a, L> {
    pub fn new(lengths: &'a L, refuses: u64, has_room: bool) -> Self {
        Self {
            items: Vec::new(),
            taken: 0,
            taken_in_room: 0,
            refuses,
            has_room,
            requests: 0,
            room: Vec::new(),
            lengths,
        }
    }

    fn take(&mut self, run: &Run, mut bytes: &[u8]) {
        assert_eq!(bytes.len(), run.len);
        let [first, last] = run.times;
        let (mut time, mut padding) = (first, 0);
        for n in 0..run.events {
            let word = u64::from_le_bytes(*bytes.first_chunk().unwrap());
            let id = word as u16;
            // The difference of times, from 48 bits; it is never negative.
            let passed = (word >> 16).wrapping_sub(time) & ((1 << 48) - 1);
            assert!(n > 0 || passed == 0, "the first time is not its own");
            time += passed;
            let len = self.lengths.payload_len(id, &bytes[8..]).unwrap();
            let payload = &bytes[8..8 + len];
            self.items.push(as_text(Item::Record { id, time, payload }));
            padding = len.next_multiple_of(8) - len;
            bytes = &bytes[8 + len + padding..];
        }
        assert!(run.events > 0 && bytes.is_empty());
        assert_eq!((time, padding), (last, run.padding));
        self.taken += run.events;
    }
}

impl<L: PayloadLengths> Sink for Runs<'_, L> {
    type Error = Infallible;

    fn item(&mut self, item: Item<'_>) -> Result<(), Infallible> {
        self.items.push(as_text(item));
        Ok(())
    }

    fn takes_run(&self, time: u64) -> bool {
        // The answer depends on the record only.
        !time.is_multiple_of(self.refuses)
    }

    fn run(&mut self, run: &Run, records: &[u8]) -> Result<(), Infallible> {
        self.take(run, records);
        Ok(())
    }

    fn room(&mut self, len: usize) -> Result<Option<&mut [u8]>, Infallible> {
        self.requests += 1;
        if !self.has_room || self.requests.is_multiple_of(self.refuses) {
            return Ok(None);
        }
        self.room.clear();
        self.room.resize(len, 0xee);
        Ok(Some(&mut self.room))
    }

    fn run_in_room(&mut self, run: &Run) {
        let room = std::mem::take(&mut self.room);
        self.take(run, &room[..run.len]);
        self.taken_in_room += run.events;
        self.room = room;
    }
}
