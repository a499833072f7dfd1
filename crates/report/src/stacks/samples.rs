//! Adds up what happened in each call stack, in bounded memory.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use super::table::{NO_STACK, StackId};

/// Maximum number of sums. Further stacks are added up for each process.
const MAX_CELLS: usize = 1 << 19;

/// The number of no lane and of no label.
const NONE: u32 = u32::MAX;

/// What a sum is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Label {
    /// Events of a class.
    Event(u32),
    /// Spans of a pair.
    Span(u32),
    /// Anything.
    Any,
}

/// What sums are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) process: u32,
    lane: u32,
    pub(crate) stack: StackId,
    pub(crate) label: Label,
}

/// Each event looks a key up, so it is hashed as few numbers.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (kind, number) = match self.label {
            Label::Event(class) => (0, class),
            Label::Span(pair) => (1, pair),
            Label::Any => (2, 0),
        };
        let wide = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        state.write_u64(wide(self.process, self.lane));
        state.write_u64(wide(self.stack, number) ^ kind << 62);
    }
}

impl Key {
    pub(crate) fn new(process: u32, lane: Option<u32>, stack: StackId, label: Label) -> Self {
        Self {
            process,
            lane: lane.unwrap_or(NONE),
            stack,
            label,
        }
    }

    /// The lane of the thread, if it is known.
    pub(crate) fn lane(self) -> Option<u32> {
        (self.lane != NONE).then_some(self.lane)
    }
}

/// The sums of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// In ns.
    pub(crate) time: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.time = self.time.saturating_add(other.time);
    }
}

/// Sums for all keys.
#[derive(Debug)]
pub(crate) struct Samples {
    numbers: HashMap<Key, u32, ahash::RandomState>,
    all: Vec<(Key, Sums)>,
    /// The last key, as many events of a thread come from one place.
    last: Option<(Key, u32)>,
    max: usize,
    folded: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self::new(MAX_CELLS)
    }
}

impl Samples {
    fn new(max: usize) -> Self {
        Self {
            numbers: HashMap::default(),
            all: Vec::new(),
            last: None,
            max,
            folded: 0,
        }
    }

    /// Adds to the sums of a key. Returns their number.
    pub(crate) fn add(&mut self, key: Key, sums: &Sums) -> u32 {
        let number = match self.last {
            Some((last, number)) if last == key => number,
            _ => self.number(key),
        };
        self.all[number as usize].1.add(sums);
        number
    }

    fn number(&mut self, key: Key) -> u32 {
        let mut found = key;
        if self.all.len() >= self.max && !self.numbers.contains_key(&key) {
            self.folded += 1;
            found = Key::new(key.process, None, NO_STACK, Label::Any);
        }
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(found).or_insert_with(|| {
            self.all.push((found, Sums::default()));
            next
        });
        if found == key {
            self.last = Some((key, number));
        }
        number
    }

    /// All sums, by their numbers.
    pub(crate) fn all(&self) -> &[(Key, Sums)] {
        &self.all
    }

    /// Number of events and spans whose stack was forgotten, as there were too many.
    pub(crate) fn folded(&self) -> u64 {
        self.folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_beyond_the_limit() {
        let mut samples = Samples::new(10);
        let sums = Sums {
            events: 1,
            bytes: 8,
            time: 3,
        };
        for stack in 0..100 {
            for process in 0..2 {
                samples.add(Key::new(process, Some(1), stack, Label::Event(0)), &sums);
            }
        }
        assert_eq!(samples.all().len(), 12);
        assert_eq!(samples.folded(), 190);
        let mut total = Sums::default();
        for (_, sums) in samples.all() {
            total.add(sums);
        }
        assert_eq!((total.events, total.bytes, total.time), (200, 1600, 600));
        let key = Key::new(0, Some(1), 0, Label::Event(0));
        assert_eq!(samples.add(key, &sums), 0);
    }
}
