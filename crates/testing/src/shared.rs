//! A simulated ring that several writers share by reserve and commit. Each writer is a list of
//! steps, and may be delayed before any of them, or forever. It is written from the headers alone.

use std::collections::VecDeque;

const HEADER: u64 = 64;
// Words of a sub-buffer's header.
const POSITION: u64 = 0;
const TIME: u64 = 8;
const LOST: u64 = 16;
const CPU: u64 = 24;
const BASE: u64 = 32;
const COMMITTED: u64 = 40;
const CONTIGUOUS: u64 = 48;
const PLACE: u64 = 56;

/// A writer's access to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Store(u64, u64),
    /// Adds to the commit count of the sub-buffer at a position.
    Commit(u64, u64),
    /// Like `Store`, and completes the record.
    Done(u64, u64),
}

/// A writer in the middle of a record.
#[derive(Clone, Debug)]
pub struct Writer {
    pub steps: VecDeque<Step>,
    /// Index of its record in the ring's records.
    pub record: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub position: u64,
    pub event: (u16, u64, Vec<u8>),
    pub done: bool,
}

#[derive(Clone)]
pub struct SharedRing {
    pub bytes: Vec<u8>,
    pub subbuf_size: u64,
    pub head: u64,
    pub lost: u64,
    pub time: u64,
    pub consumed: u64,
    pub overwrites: bool,
    /// All reserved records, in order.
    pub records: Vec<Record>,
    /// Positions of started sub-buffers.
    pub begun: Vec<u64>,
    pub passed_over: u64,
}

impl SharedRing {
    pub fn new(subbuf_size: u64, subbuf_count: u64, overwrites: bool) -> Self {
        Self {
            bytes: vec![0; (subbuf_size * subbuf_count) as usize],
            subbuf_size,
            head: 0,
            lost: 0,
            time: 0,
            consumed: 0,
            overwrites,
            records: Vec::new(),
            begun: Vec::new(),
            passed_over: 0,
        }
    }

    pub fn ring_size(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub fn load(&self, position: u64) -> u64 {
        let at = (position % self.ring_size()) as usize;
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    pub fn store(&mut self, position: u64, word: u64) {
        let at = (position % self.ring_size()) as usize;
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn subbuf(&self, position: u64) -> u64 {
        position - position % self.subbuf_size
    }

    /// Finds a quiescent place for the next sub-buffer. Returns its position and commit count.
    fn place(&mut self) -> Option<(u64, u64)> {
        let size = self.subbuf_size;
        let first = self.head.next_multiple_of(size);
        let places = self.ring_size() / size - 1;
        let is_quiescent = |ring: &Self, position| {
            let committed = ring.load(position + COMMITTED);
            committed.is_multiple_of(size) && committed / size == ring.load(position + PLACE) >> 32
        };
        let fits = |ring: &Self, position| {
            ring.overwrites || position + size - ring.consumed <= ring.ring_size()
        };
        let taken = (0..places)
            .map(|n| first + n * size)
            .take_while(|&position| fits(self, position))
            .find(|&position| is_quiescent(self, position))?;
        for position in (first..=taken).step_by(size as usize) {
            let takes = self.load(position + PLACE) >> 32;
            let lap = position / self.ring_size() + 1;
            let take = u64::from(position == taken);
            self.store(position + PLACE, ((takes + take) << 32) | (lap << 1) | take);
            self.passed_over += 1 - take;
        }
        Some((taken, self.load(taken + COMMITTED)))
    }

    /// Reserves a record, and returns the steps that write it. `None`: the ring is full.
    pub fn reserve(&mut self, id: u16, time: u64, payload: &[u8]) -> Option<Writer> {
        let len = 16 + payload.len().next_multiple_of(8) as u64;
        let mut steps = VecDeque::new();
        let used = self.head % self.subbuf_size;
        let old = self.subbuf(self.head);
        let alone = self.load(old + COMMITTED) % self.subbuf_size == used;
        let fits = used != 0 && used + len <= self.subbuf_size && time >> 48 == self.time >> 48;
        let position = if fits {
            if alone {
                steps.push_back(Step::Store(old + CONTIGUOUS, self.head));
            }
            self.head
        } else {
            let Some((place, committed)) = self.place() else {
                self.lost += 1;
                return None;
            };
            if used != 0 {
                if alone {
                    steps.push_back(Step::Store(old + CONTIGUOUS, self.head));
                }
                steps.push_back(Step::Store(self.head, 0xffff | time << 16));
                steps.push_back(Step::Commit(old, self.subbuf_size - used));
            }
            self.time = time;
            for (field, value) in [
                (TIME, time),
                (LOST, self.lost),
                (CPU, 77 | 0x4c54_5453 << 32),
                (BASE, committed),
                (CONTIGUOUS, place + HEADER),
                (POSITION, place),
            ] {
                steps.push_back(Step::Store(place + field, value));
            }
            steps.push_back(Step::Commit(place, HEADER));
            self.begun.push(place);
            place + HEADER
        };
        self.head = position + len;
        let second = len | u64::from(id) << 32;
        steps.push_back(Step::Store(position + 8, second | 1 << 63));
        steps.push_back(Step::Store(position, 0xfffd | time << 16));
        for (n, bytes) in payload.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let word = u64::from_le_bytes(word);
            steps.push_back(Step::Store(position + 16 + 8 * n as u64, word));
        }
        steps.push_back(Step::Done(position + 8, second | 1 << 62));
        steps.push_back(Step::Commit(self.subbuf(position), len));
        self.records.push(Record {
            position,
            event: (id, time, payload.to_vec()),
            done: false,
        });
        Some(Writer {
            steps,
            record: self.records.len() - 1,
        })
    }

    /// Executes some steps of a writer.
    pub fn run(&mut self, writer: &mut Writer, steps: usize) {
        for _ in 0..steps {
            match writer.steps.pop_front() {
                None => break,
                Some(Step::Store(position, word)) => self.store(position, word),
                Some(Step::Done(position, word)) => {
                    self.store(position, word);
                    self.records[writer.record].done = true;
                }
                Some(Step::Commit(subbuf, len)) => {
                    let committed = self.load(subbuf + COMMITTED);
                    self.store(subbuf + COMMITTED, committed + len);
                }
            }
        }
    }

    /// Writes a complete event.
    pub fn event(&mut self, id: u16, time: u64, payload: &[u8]) -> bool {
        match self.reserve(id, time, payload) {
            Some(mut writer) => {
                self.run(&mut writer, usize::MAX);
                true
            }
            None => false,
        }
    }

    /// The complete events from a position on.
    pub fn done_from(&self, position: u64) -> Vec<(u16, u64, Vec<u8>)> {
        let records = self.records.iter();
        records
            .filter(|record| record.done && record.position >= position)
            .map(|record| record.event.clone())
            .collect()
    }

    /// The number of incomplete records from a position on.
    pub fn unfinished_from(&self, position: u64) -> u64 {
        let records = self.records.iter();
        records
            .filter(|record| !record.done && record.position >= position)
            .count() as u64
    }

    /// Position of the oldest sub-buffer that can be in the ring.
    pub fn oldest(&self) -> u64 {
        let newest = self.subbuf(self.head.saturating_sub(1));
        newest.saturating_sub(self.ring_size() - self.subbuf_size)
    }
}
