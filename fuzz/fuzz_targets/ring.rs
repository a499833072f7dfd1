//! A ring with any bytes and positions: reads descriptions of events from it, and then events as
//! described. Reading must end at the head or before, copy at most a few times the ring's size, and
//! report nothing twice. A sink that takes runs of records must get the same.
//!
//! The input is a byte with options, the ring's two positions, and its bytes, followed by zeros.
#![no_main]

use std::cell::Cell;
use std::convert::Infallible;

use libfuzzer_sys::fuzz_target;
use usertrace_ring::schema::EventTable;
use usertrace_ring::{
    Format, Frozen, Geometry, Item, MetaLengths, PayloadLengths, Positions, RingMemory, RingReader,
    WaitPolicy,
};
use usertrace_sys::Protocol;
use usertrace_testing::events;
use usertrace_testing::extraction::check_error;
use usertrace_testing::runs::{self, Runs};

/// Memory that counts the bytes that are copied.
struct CountingMemory<'a>(Frozen<'a>, &'a Cell<u64>);

impl RingMemory for CountingMemory<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        self.1.set(self.1.get() + buffer.len() as u64);
        self.0.read(offset, buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        self.1.set(self.1.get() + 8);
        self.0.load(offset)
    }

    fn positions(&mut self) -> Positions {
        self.0.positions()
    }
}

/// Reads the whole ring, and once more when nothing is left.
fn read(
    format: Format,
    bytes: &[u8],
    positions: Positions,
    policy: WaitPolicy,
    lengths: &impl PayloadLengths,
    mut record: impl FnMut(&[u8]),
) {
    let copied = Cell::new(0);
    let mut memory = CountingMemory(Frozen::new(bytes, positions), &copied);
    let limit = 1 << 62;
    let mut reader = RingReader::dump(format, &mut memory, limit);
    let mut as_they_are = (reader.clone(), Runs::new(lengths, 3, true));
    let mut items = Vec::new();
    let mut told = 0u64;
    let mut emit = |item: Item<'_>| -> Result<(), Infallible> {
        told += 1;
        items.push(runs::told(item));
        if let Item::Record { time, payload, .. } = item {
            assert!(time <= limit);
            record(payload);
        }
        Ok(())
    };
    let Ok(()) = reader.read(&mut memory, positions.head, policy, lengths, &mut emit);
    let position = reader.position();
    assert!(position <= positions.head.max(position.min(positions.claimed)));
    let Ok(()) = reader.read(&mut memory, positions.head, policy, lengths, &mut emit);
    assert_eq!(reader.position(), position);
    let size = format.geometry.ring_size();
    assert!(told <= size / 8 + 16, "{told} items");
    assert!(copied.get() <= 16 * size, "{} bytes", copied.get());
    let (other, taken) = &mut as_they_are;
    let Ok(()) = other.read(&mut memory, positions.head, policy, lengths, taken);
    let Ok(()) = other.read(&mut memory, positions.head, policy, lengths, taken);
    assert_eq!(taken.items, items);
    assert_eq!(other.position(), position);
}

fuzz_target!(|input: &[u8]| {
    let Some((&[how, ref rest @ ..], bytes)) = input.split_first_chunk::<17>() else {
        return;
    };
    let (words, _) = rest.as_chunks::<8>();
    let [head, claimed] = [words[0], words[1]].map(u64::from_le_bytes);
    let bit = |n: u32| u32::from(how >> n & 1);
    let geometry = Geometry::new(4096 << bit(0), 2 << bit(1)).expect("a ring may be so");
    let protocol = [Protocol::Rseq, Protocol::Shared][bit(2) as usize];
    let format = Format { geometry, protocol };
    let policy = match how >> 3 & 3 {
        0 => WaitPolicy::Wait,
        1 => WaitPolicy::GiveUp { below: claimed },
        _ => WaitPolicy::Last,
    };
    let positions = Positions { head, claimed };
    let mut ring = bytes.to_vec();
    ring.resize(geometry.ring_size() as usize, 0);

    let mut described = EventTable::default();
    read(format, &ring, positions, policy, &MetaLengths, |line| {
        if let Err(error) = described.describe(line.strip_suffix(&[0]).unwrap_or(line)) {
            check_error(&error);
        }
    });
    read(format, &ring, positions, policy, events(), |_| {});
    read(format, &ring, positions, policy, &described, |_| {});
});
