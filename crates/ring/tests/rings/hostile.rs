//! Tests of the reader on memory that a process changes arbitrarily during the read (A11, F4). The
//! reader ends in bounded time and memory, advances, and only reports what the bytes contain.

use std::cell::RefCell;
use std::convert::Infallible;

use proptest::prelude::*;
use usertrace_ring::{
    Format, Frozen, Geometry, Item, PayloadLengths, Positions, RingMemory, RingReader, WaitPolicy,
};
use usertrace_sys::Protocol;

use usertrace_testing::runs::{Runs, as_text};
use usertrace_testing::shared::SharedRing;
use usertrace_testing::{RingWriter, events};

const SUBBUF: u64 = 4096;
const COUNT: u64 = 4;
const RING: u64 = SUBBUF * COUNT;
/// Contents of a lost page.
const LOST: u64 = 0x4c54_544c_4f53_fffb;

/// A ring whose words and positions may change at any time.
struct Hostile {
    bytes: Vec<u8>,
    /// The change before each access: to a word, or to a position.
    changes: Vec<Change>,
    next: usize,
    positions: Positions,
    /// All bytes that the reader received.
    copied: u64,
    accesses: u64,
    last_copy: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    Word(u64, u64),
    Head(u64),
    Claimed(u64),
}

impl Hostile {
    fn change(&mut self) {
        self.accesses += 1;
        if self.changes.is_empty() {
            return;
        }
        self.next += 1;
        match self.changes[self.next % self.changes.len()] {
            Change::Nothing => {}
            Change::Word(at, word) => {
                let at = (at % RING) as usize & !7;
                self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            Change::Head(head) => self.positions.head = head,
            Change::Claimed(claimed) => self.positions.claimed = claimed,
        }
    }
}

/// The ring, which the test inspects while a reader uses it.
struct Shared(RefCell<Hostile>);

impl RingMemory for &Shared {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        let mut ring = self.0.borrow_mut();
        ring.change();
        ring.copied += buffer.len() as u64;
        let offset = offset as usize;
        buffer.copy_from_slice(&ring.bytes[offset..offset + buffer.len()]);
        ring.last_copy = buffer.to_vec();
    }

    fn load(&mut self, offset: u64) -> u64 {
        let mut ring = self.0.borrow_mut();
        ring.change();
        let at = offset as usize;
        u64::from_le_bytes(ring.bytes[at..at + 8].try_into().unwrap())
    }

    fn positions(&mut self) -> Positions {
        let mut ring = self.0.borrow_mut();
        ring.change();
        ring.positions
    }
}

/// Words with and without a meaning.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..4,
        position(),
        Just(0xffff),
        Just(u64::MAX),
        (0u64..9).prop_map(|n| n << 16 | 0xfffd),
        (0u64..5, 0u64..64, 62u32..64)
            .prop_map(|(id, len, bit)| (len * 8) | (id << 32) | (1 << bit)),
        Just(7 | 0x4c54_5453 << 32),
        Just(LOST),
    ]
}

fn position() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..4 * RING).prop_map(|n| n & !7),
        (0..16u64).prop_map(|n| n * SUBBUF),
        0..4 * RING,
        any::<u64>(),
        Just(1 << 62),
    ]
}

/// Offsets of header words, and any others.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..COUNT, 0u64..12).prop_map(|(subbuf, word)| subbuf * SUBBUF + word * 8),
        0..RING,
    ]
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        6 => Just(Change::Nothing),
        2 => (place(), word()).prop_map(|(at, word)| Change::Word(at, word)),
        1 => position().prop_map(Change::Head),
        1 => position().prop_map(Change::Claimed),
    ];
    prop::collection::vec(change, 0..40)
}

fn format() -> impl Strategy<Value = Format> {
    let protocol = prop_oneof![Just(Protocol::Rseq), Just(Protocol::Shared)];
    protocol.prop_map(|protocol| Format {
        geometry: Geometry::new(SUBBUF as u32, COUNT as u32).unwrap(),
        protocol,
    })
}

fn policy() -> impl Strategy<Value = WaitPolicy> {
    prop_oneof![
        Just(WaitPolicy::Wait),
        position().prop_map(|below| WaitPolicy::GiveUp { below }),
        Just(WaitPolicy::Last),
    ]
}

/// Reads up to each of the heads in turn.
fn check(
    ring: &Shared,
    reader: &mut RingReader,
    reads: &[(u64, WaitPolicy)],
) -> Result<(), TestCaseError> {
    for &(head, policy) in reads {
        (ring.0.borrow_mut().copied, ring.0.borrow_mut().accesses) = (0, 0);
        let before = reader.position();
        let (mut reported, mut wrong) = (0u64, None);
        let mut count = reader.counts().events;
        let Ok(()) = reader.read(&mut &*ring, head, policy, events(), &mut |item: Item<
            '_,
        >| {
            if let Item::Record { id, payload, .. } = item {
                reported += 8 + payload.len() as u64;
                count += 1;
                if events().payload_len(id, payload) != Some(payload.len()) {
                    wrong = Some("a payload that its event does not have");
                }
                let copy = &ring.0.borrow().last_copy;
                let mut places = (0..copy.len()).step_by(8);
                if !payload.is_empty() && !places.any(|at| copy[at..].starts_with(payload)) {
                    wrong = Some("a payload that is not in the copy");
                }
            }
            Ok::<_, Infallible>(())
        });
        let ring = ring.0.borrow();
        prop_assert_eq!(wrong, None);
        prop_assert_eq!(reader.counts().events, count);
        prop_assert!(reader.position() >= before);
        prop_assert!(reported <= ring.copied);
        // The reader copies each sub-buffer once, and once more after it waited. A sub-buffer that
        // writers commit piece by piece is copied as often.
        let copied = ring.copied;
        prop_assert!(copied <= RING + 2 * SUBBUF, "{} bytes", copied);
        prop_assert!(ring.accesses <= RING, "{} accesses", ring.accesses);
    }
    Ok(())
}

/// Marks these pages as lost.
fn lose(bytes: &mut [u8], pages: u8) {
    for (n, page) in bytes.chunks_mut(4096).enumerate() {
        if pages & 1 << n != 0 {
            page.as_chunks_mut().0.fill(LOST.to_le_bytes());
        }
    }
}

fn shared(bytes: Vec<u8>, changes: Vec<Change>, positions: Positions) -> Shared {
    Shared(RefCell::new(Hostile {
        bytes,
        changes,
        next: 0,
        positions,
        copied: 0,
        accesses: 0,
        last_copy: Vec::new(),
    }))
}

/// The sink receives nearly all records unparsed, including those of a sub-buffer's first page.
#[test]
fn runs_are_taken_unparsed() {
    const SUBBUF: u64 = 16 << 10;
    let mut ring = RingWriter::new(SUBBUF, 4, 0);
    while ring.event(2, 1000, &[7; 8]) {}
    let format = Format {
        geometry: Geometry::new(SUBBUF as u32, 4).unwrap(),
        protocol: Protocol::Rseq,
    };
    let positions = Positions {
        head: ring.head,
        claimed: 0,
    };
    for has_room in [false, true] {
        let mut memory = Frozen::new(&ring.bytes, positions);
        let mut reader = RingReader::live(format, 0, u64::MAX);
        let mut runs = Runs::new(events(), u64::MAX, has_room);
        let Ok(()) = reader.read(
            &mut memory,
            ring.head,
            WaitPolicy::Wait,
            events(),
            &mut runs,
        );
        assert_eq!(runs.taken, ring.accepted.len() as u64);
        // All except in that page, and in the last one, of which less than a page is left.
        let in_room = if has_room {
            runs.taken - 4 * 2 * 256
        } else {
            0
        };
        assert!(
            runs.taken_in_room >= in_room,
            "{} in room",
            runs.taken_in_room
        );
        assert_eq!(has_room, runs.taken_in_room > 0);
    }
}

/// A ring whose oldest sub-buffer is overwritten while its second page is copied.
struct Overtaken<'a> {
    bytes: &'a [u8],
    positions: Positions,
}

impl RingMemory for Overtaken<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        if offset == 4096 {
            self.positions.claimed = 16 << 10;
        }
    }

    fn load(&mut self, _offset: u64) -> u64 {
        unreachable!("a ring of this protocol has no counts");
    }

    fn positions(&mut self) -> Positions {
        self.positions
    }
}

/// Records that a writer overwrote after they were copied to the sink's buffer are dropped.
///
/// Requirements: E3
#[test]
fn overtaken_runs_are_dropped() {
    const SUBBUF: u64 = 16 << 10;
    let mut ring = RingWriter::new(SUBBUF, 2, 0);
    // Records before the second page, where one begins.
    while ring.event(2, 1000, &[7; 8]) {}
    let format = Format {
        geometry: Geometry::new(SUBBUF as u32, 2).unwrap(),
        protocol: Protocol::Rseq,
    };
    let mut memory = Overtaken {
        bytes: &ring.bytes,
        positions: Positions {
            head: ring.head,
            claimed: 0,
        },
    };
    let mut reader = RingReader::live(format, 0, u64::MAX);
    let mut runs = Runs::new(events(), u64::MAX, true);
    let Ok(()) = reader.read(
        &mut memory,
        ring.head,
        WaitPolicy::Wait,
        events(),
        &mut runs,
    );
    assert_eq!(memory.positions.claimed, SUBBUF);
    let lost = as_text(Item::Overwritten { subbuffers: 1 });
    let at = runs.items.iter().position(|item| *item == lost);
    assert_eq!(at, Some(1 + (4096 - 64) / 16));
    assert_eq!(reader.counts().overwritten, 1);
    assert!(runs.taken_in_room > 500, "{}", runs.taken_in_room);
}

/// Window size in pages.
const WINDOWS: [u64; 3] = [1, 3, 16];

proptest! {
    /// A sink of unparsed runs receives the same records and items as one of single records.
    #[test]
    fn runs_have_the_same_records(
        events in prop::collection::vec((1u16..=3, 0u64..3, 0usize..60), 1..64),
        written in 1u64..4000,
        rare in 1u64..1000,
        changes in prop::collection::vec((any::<u64>(), word()), 0..3),
        lost in 0u16..0x1000,
        overwrites: bool,
        consumed in any::<prop::sample::Index>(),
        window in prop::sample::select(&WINDOWS),
        (refuses, has_room) in (2u64..9, any::<bool>()),
        // The high bits of the time may change, and some times may exceed the limit.
        first in prop::sample::select(&[1000, (1 << 48) - 1000]),
        believed in prop_oneof![Just(u64::MAX >> 1), 0u64..4000],
    ) {
        const SUBBUF: u64 = 16 << 10;
        const COUNT: u64 = 4;
        let mut ring = RingWriter::new(SUBBUF, COUNT, 0);
        ring.overwrites = overwrites;
        let mut time = first;
        for (n, (id, passed, len)) in (0..written).zip(events.iter().cycle()) {
            time += passed;
            let payload = match id {
                1 => Vec::new(),
                2 => n.to_le_bytes().to_vec(),
                _ => format!("{}\0", "x".repeat(*len)).into_bytes(),
            };
            match (n + 1).is_multiple_of(rare) {
                true => ring.long(*id, time, &payload, 62 + u32::from(n % 3 == 0)),
                false => ring.event(*id, time, &payload),
            };
        }
        for (at, word) in changes {
            ring.store((at % ring.head) & !7, word);
        }
        // Few changes: each costs the rest of its sub-buffer.
        for (page, bytes) in ring.bytes.chunks_mut(4096).enumerate() {
            if lost & 0xff == page as u16 {
                bytes.as_chunks_mut().0.fill(LOST.to_le_bytes());
            }
        }
        let format = Format {
            geometry: Geometry::new(SUBBUF as u32, COUNT as u32).unwrap(),
            protocol: Protocol::Rseq,
        };
        let positions = Positions { head: ring.head, claimed: ring.claimed };
        let from = consumed.index(ring.places.len().max(1));
        let from = ring.places.get(from).copied().unwrap_or(0);
        for dump in [true, false] {
            let mut memory = Frozen::new(&ring.bytes, positions);
            let mut reader = match dump {
                true => RingReader::dump(format, &mut memory, first + believed),
                false => RingReader::live(format, from, first + believed),
            };
            reader.set_window(window << 12);
            let mut other = reader.clone();
            let mut items = Vec::new();
            let policy = WaitPolicy::Last;
            let Ok(()) = reader.read(&mut memory, ring.head, policy, usertrace_testing::events(), &mut |item: Item<'_>| {
                items.push(as_text(item));
                Ok::<_, Infallible>(())
            });
            let mut runs = Runs::new(usertrace_testing::events(), refuses, has_room);
            let Ok(()) = other.read(&mut memory, ring.head, policy, usertrace_testing::events(), &mut runs);
            prop_assert_eq!(&runs.items, &items);
            prop_assert_eq!(other.position(), reader.position());
            prop_assert_eq!(other.counts(), reader.counts());
        }
    }
}

proptest! {
    /// Requirements: F4
    #[test]
    fn arbitrary_changing_memory_is_survived(
        words in prop::collection::vec(word(), 509),
        headers in any::<bool>(),
        lost in 0u8..16,
        changes in changes(),
        format in format(),
        (head, claimed, consumed) in (position(), position(), position()),
        reads in prop::collection::vec((position(), policy()), 1..6),
    ) {
        // A whole ring of these is slow to generate: repeat them, out of step with sub-buffers.
        let words = words.iter().cycle().take(RING as usize / 8);
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        if headers {
            for subbuf in 0..COUNT {
                let at = (subbuf * SUBBUF) as usize;
                bytes[at..at + 8].copy_from_slice(&(RING + subbuf * SUBBUF).to_le_bytes());
                bytes[at + 24..at + 32].copy_from_slice(&(0x4c54_5453u64 << 32).to_le_bytes());
            }
        }
        lose(&mut bytes, lost);
        let ring = shared(bytes, changes, Positions { head, claimed });
        check(&ring, &mut RingReader::live(format, consumed, u64::MAX), &reads)?;
        check(&ring, &mut RingReader::dump(format, &mut &ring, u64::MAX), &reads)?;
    }

    /// Valid rings, some words of which change during the read.
    #[test]
    fn arbitrary_changes_are_survived(
        written in 1u64..700,
        overwrites: bool,
        lost in 0u8..16,
        sleeping in prop::collection::vec((0u64..700, 0usize..12), 0..4),
        changes in changes(),
        reads in prop::collection::vec(prop_oneof![
            3 => policy().prop_map(|policy| (None, policy)),
            1 => (position(), policy()).prop_map(|(head, policy)| (Some(head), policy)),
        ], 1..6),
    ) {
        let mut ring = SharedRing::new(SUBBUF, COUNT, overwrites);
        for n in 0..written {
            let text = format!("{}\0", "x".repeat((n * 37 % 200) as usize));
            let steps = sleeping.iter().find(|(who, _)| *who == n);
            if let Some(mut writer) = ring.reserve(3, 1000 + n, text.as_bytes()) {
                ring.run(&mut writer, steps.map_or(usize::MAX, |(_, steps)| *steps));
            }
            ring.consumed = ring.head.saturating_sub(RING / 2);
        }
        let format = Format {
            geometry: Geometry::new(SUBBUF as u32, COUNT as u32).unwrap(),
            protocol: Protocol::Shared,
        };
        let reads: Vec<_> = reads
            .iter()
            .map(|(head, policy)| (head.unwrap_or(ring.head), *policy))
            .collect();
        let positions = Positions { head: ring.head, claimed: 0 };
        let consumed = ring.consumed;
        lose(&mut ring.bytes, lost);
        let ring = shared(ring.bytes, changes, positions);
        check(&ring, &mut RingReader::live(format, consumed, u64::MAX), &reads)?;
        check(&ring, &mut RingReader::dump(format, &mut &ring, u64::MAX), &reads)?;
    }
}
