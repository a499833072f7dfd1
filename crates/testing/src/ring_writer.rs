//! A simulated ring of a traced program. It is written from the headers alone and does not use the
//! crate's numbers, so that a mistake in the crate is not made twice.
use std::convert::Infallible;
use std::sync::LazyLock;

use usertrace_ring::schema::EventTable;
use usertrace_ring::{Item, PayloadLengths, RingMemory, RingReader, WaitPolicy};

/// Events with ids 1 to 3: without a payload, with a number, and with a text.
pub fn events() -> &'static EventTable {
    static EVENTS: LazyLock<EventTable> = LazyLock::new(|| {
        let mut events = EventTable::default();
        for line in ["1 t:empty 0", "2 t:number 0 u64 n", "3 t:text 0 str s"] {
            events.describe(line.as_bytes()).unwrap();
        }
        events
    });
    &EVENTS
}

/// Reads a ring up to `head`, and passes each item to `take`.
pub fn read_each(
    reader: &mut RingReader,
    memory: &mut impl RingMemory,
    head: u64,
    policy: WaitPolicy,
    lengths: &impl PayloadLengths,
    mut take: impl FnMut(Item<'_>),
) {
    let Ok(()) = reader.read(memory, head, policy, lengths, &mut |item: Item<'_>| {
        take(item);
        Ok::<_, Infallible>(())
    });
}

/// Appends words in little-endian order.
pub fn words(bytes: &mut Vec<u8>, words: &[u64]) {
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

/// A ring written with restartable sequences: each record is committed by one store of the head.
#[derive(Clone)]
pub struct RingWriter {
    pub bytes: Vec<u8>,
    pub subbuf_size: u64,
    pub head: u64,
    pub lost: u64,
    pub time: u64,
    pub consumed: u64,
    /// The writer overwrites old sub-buffers; below, the position that it claimed.
    pub overwrites: bool,
    pub claimed: u64,
    pub cpu: u32,
    /// Size of a cell, if it is a table of counters.
    pub cell_size: u32,
    /// Accepted events: id, time, payload.
    pub accepted: Vec<(u16, u64, Vec<u8>)>,
    /// Position of each accepted event.
    pub places: Vec<u64>,
}

impl RingWriter {
    pub fn new(subbuf_size: u64, subbuf_count: u64, cpu: u32) -> Self {
        Self {
            bytes: vec![0; (subbuf_size * subbuf_count) as usize],
            subbuf_size,
            head: 0,
            lost: 0,
            time: 0,
            consumed: 0,
            overwrites: false,
            claimed: 0,
            cpu,
            cell_size: 0,
            accepted: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Stores a word, committed or not.
    pub fn store(&mut self, position: u64, word: u64) {
        let at = position as usize % self.bytes.len();
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn load(&self, position: u64) -> u64 {
        let at = position as usize % self.bytes.len();
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    /// Stores the header of the sub-buffer at `position`, without committing it.
    pub fn store_header(&mut self, position: u64, time: u64) {
        self.store(position, position);
        self.store(position + 8, time);
        self.store(position + 16, self.lost);
        self.store(position + 24, u64::from(self.cpu) | 0x4c54_5453 << 32);
    }

    /// Reserves `len` bytes at the head. False: the ring is full.
    pub fn room(&mut self, len: u64, time: u64) -> bool {
        let used = self.head % self.subbuf_size;
        if used != 0 && used + len <= self.subbuf_size {
            return true;
        }
        let mut next = self.head.next_multiple_of(self.subbuf_size);
        // Skip sub-buffers with an unfinished long record.
        while self.load(next + 56) != 0 {
            next += self.subbuf_size;
        }
        let oldest = (next + self.subbuf_size).saturating_sub(self.bytes.len() as u64);
        if self.overwrites {
            self.claimed = oldest;
        } else if oldest > self.consumed {
            self.lost += 1;
            return false;
        }
        if used != 0 {
            self.store(self.head, 0xffff | time << 16);
        }
        self.store_header(next, time);
        self.time = time;
        self.head = next + 64;
        true
    }

    pub fn event(&mut self, id: u16, time: u64, payload: &[u8]) -> bool {
        let len = 8 + payload.len().next_multiple_of(8) as u64;
        if !self.room(len, time) {
            return false;
        }
        if time >> 48 != self.time >> 48 {
            if !self.room(len + 16, time) {
                return false;
            }
            self.store(self.head, 0xfffe | time << 16);
            self.store(self.head + 8, time);
            self.time = time;
            self.head += 16;
        }
        self.store(self.head, u64::from(id) | time << 16);
        self.store_payload(self.head + 8, payload);
        self.accept(id, time, payload);
        self.time = time;
        self.head += len;
        true
    }

    /// Changes the count of unfinished long records at a position by `by`.
    pub fn busy(&mut self, position: u64, by: i64) {
        let subbuf = position - position % self.subbuf_size;
        let busy = self.load(subbuf + 56).wrapping_add_signed(by);
        self.store(subbuf + 56, busy);
    }

    /// Writes a long record. `bit` 62 marks it as done, 63 as busy.
    pub fn long(&mut self, id: u16, time: u64, payload: &[u8], bit: u32) -> bool {
        let len = 16 + payload.len().next_multiple_of(8) as u64;
        if !self.room(len, time) {
            return false;
        }
        self.store(self.head, 0xfffd | time << 16);
        self.store(self.head + 8, len | u64::from(id) << 32 | 1 << bit);
        self.store_payload(self.head + 16, payload);
        if bit == 62 {
            self.accept(id, time, payload);
        }
        self.time = time;
        self.head += len;
        true
    }

    fn accept(&mut self, id: u16, time: u64, payload: &[u8]) {
        self.accepted.push((id, time, payload.to_vec()));
        self.places.push(self.head);
    }

    /// Writes a description.
    pub fn meta(&mut self, time: u64, line: &str) -> bool {
        let payload = [line.as_bytes(), &[0]].concat();
        let done = self.event(0xfffc, time, &payload);
        if done {
            self.accepted.pop();
            self.places.pop();
        }
        done
    }

    fn store_payload(&mut self, position: u64, payload: &[u8]) {
        let at = position as usize % self.bytes.len();
        self.bytes[at..at + payload.len()].copy_from_slice(payload);
    }

    /// The control block.
    pub fn control(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        words(
            &mut bytes,
            &[self.head, self.lost, self.time, 0, self.claimed, 0, 0, 0],
        );
        words(&mut bytes, &[self.consumed, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }
}
