//! Tests of the reader on rings with lost pages, for which there was no memory (F2, F4). It reports
//! exactly the records before them in their sub-buffers, and counts each hole, which is not damage.

use proptest::prelude::*;
use usertrace_ring::{
    Counts, Format, Frozen, GapKind, Geometry, Item, Positions, RingReader, WaitPolicy,
};
use usertrace_sys::Protocol;

use usertrace_testing::shared::SharedRing;
use usertrace_testing::{RingWriter, events, read_each};

const PAGE: u64 = 4096;
const SUBBUF: u64 = 4 * PAGE;
const COUNT: u64 = 4;
const RING: u64 = SUBBUF * COUNT;
/// Contents of a lost page.
const LOST: u64 = 0x4c54_544c_4f53_fffb;

type Event = (u16, u64, Vec<u8>);

fn format(protocol: Protocol) -> Format {
    Format {
        geometry: Geometry::new(SUBBUF as u32, COUNT as u32).unwrap(),
        protocol,
    }
}

fn event(n: u64, longest: u64) -> (u16, Vec<u8>) {
    match n % 4 {
        0 => (1, vec![]),
        1 => (2, n.to_le_bytes().to_vec()),
        _ => {
            let text = "x".repeat((n * 7919 % longest) as usize);
            (3, format!("{text}\0").into())
        }
    }
}

/// An event and its position.
#[derive(Clone, Debug)]
struct Placed {
    position: u64,
    len: u64,
    event: Event,
}

/// The lost pages of a ring, as a bit mask.
#[derive(Clone, Copy, Debug)]
struct LostPages(u16);

impl LostPages {
    fn apply(self, bytes: &mut [u8]) {
        for (n, page) in bytes.chunks_mut(PAGE as usize).enumerate() {
            if self.0 & 1 << n != 0 {
                page.as_chunks_mut().0.fill(LOST.to_le_bytes());
            }
        }
    }

    /// Position of the first lost page of a sub-buffer.
    fn first(self, subbuf: u64) -> Option<u64> {
        (subbuf..subbuf + SUBBUF)
            .step_by(PAGE as usize)
            .find(|position| self.0 & 1 << (position % RING / PAGE) != 0)
    }

    /// Whether an event ends before the lost page.
    fn keeps(self, placed: &Placed) -> bool {
        let subbuf = placed.position - placed.position % SUBBUF;
        self.first(subbuf)
            .is_none_or(|lost| placed.position + placed.len <= lost)
    }

    /// Number and bytes of holes in sub-buffers from `oldest` up to `head`. `placed`: all events
    /// there.
    fn holes(self, placed: &[Placed], oldest: u64, head: u64) -> (u64, u64) {
        let (mut holes, mut bytes) = (0, 0);
        for subbuf in (oldest..head).step_by(SUBBUF as usize) {
            let limit = head.min(subbuf + SUBBUF);
            let Some(lost) = self.first(subbuf).filter(|&lost| lost < limit) else {
                continue;
            };
            let ends = placed
                .iter()
                .filter(|placed| (subbuf..subbuf + SUBBUF).contains(&placed.position))
                .map(|placed| placed.position + placed.len);
            let there = |end: &u64| *end <= lost;
            let begin = if lost == subbuf { subbuf } else { subbuf + 64 };
            let first = ends.clone().filter(there).max().unwrap_or(begin);
            // Only padding may be lost.
            let last = ends.max().unwrap_or(begin);
            if last < lost && limit == subbuf + SUBBUF {
                continue;
            }
            holes += 1;
            bytes += limit - first;
        }
        (holes, bytes)
    }
}

/// Reads page by page, and with the largest window.
fn read(
    reader: &mut RingReader,
    bytes: &[u8],
    positions: Positions,
    policy: WaitPolicy,
) -> Vec<Event> {
    let mut by_pages = reader.clone();
    by_pages.set_window(PAGE);
    let got = read_once(reader, bytes, positions, policy);
    assert_eq!(read_once(&mut by_pages, bytes, positions, policy), got);
    assert_eq!(by_pages.counts(), reader.counts());
    got
}

fn read_once(
    reader: &mut RingReader,
    bytes: &[u8],
    positions: Positions,
    policy: WaitPolicy,
) -> Vec<Event> {
    let mut got = Vec::new();
    let mut memory = Frozen::new(bytes, positions);
    read_each(
        reader,
        &mut memory,
        positions.head,
        policy,
        events(),
        |item| match item {
            Item::Record { id, time, payload } => got.push((id, time, payload.to_vec())),
            Item::Gap { kind } => assert_ne!(kind, GapKind::Damaged),
            Item::SubBuffer { .. } | Item::Overwritten { .. } => {}
        },
    );
    got
}

fn check(
    (got, counts): (Vec<Event>, Counts),
    lost: LostPages,
    placed: &[Placed],
    (oldest, head): (u64, u64),
) -> Result<(), TestCaseError> {
    let there = |placed: &&Placed| placed.position >= oldest && lost.keeps(placed);
    let want: Vec<_> = placed
        .iter()
        .filter(there)
        .map(|placed| placed.event.clone())
        .collect();
    prop_assert_eq!(got, want);
    prop_assert_eq!(
        (counts.damaged, counts.corrupted, counts.unfinished),
        (0, 0, 0)
    );
    let holes = lost.holes(placed, oldest, head);
    prop_assert_eq!((counts.holes, counts.hole_bytes), holes);
    Ok(())
}

/// A ring of protocol `Rseq`.
fn written(count: u64, longest: u64, overwrites: bool) -> (RingWriter, Vec<Placed>) {
    let mut ring = RingWriter::new(SUBBUF, COUNT, 3);
    ring.overwrites = overwrites;
    let mut placed = Vec::new();
    for n in 0..count {
        let (id, payload) = event(n, longest);
        // Some are long records.
        let done = if n % 5 == 0 {
            ring.long(id, n, &payload, 62)
        } else {
            ring.event(id, n, &payload)
        };
        let header = if n % 5 == 0 { 16 } else { 8 };
        let len = header + payload.len().next_multiple_of(8) as u64;
        if done {
            placed.push(Placed {
                position: ring.head - len,
                len,
                event: (id, n, payload),
            });
        }
    }
    (ring, placed)
}

fn written_shared(count: u64, longest: u64, overwrites: bool) -> (SharedRing, Vec<Placed>) {
    let mut ring = SharedRing::new(SUBBUF, COUNT, overwrites);
    for n in 0..count {
        let (id, payload) = event(n, longest);
        ring.event(id, 1000 + n, &payload);
    }
    let placed = placed_in(&ring);
    (ring, placed)
}

fn placed_in(ring: &SharedRing) -> Vec<Placed> {
    let records = ring.records.iter();
    records
        .filter(|record| record.done)
        .map(|record| Placed {
            position: record.position,
            len: 16 + record.event.2.len().next_multiple_of(8) as u64,
            event: record.event.clone(),
        })
        .collect()
}

proptest! {
    /// Requirements: F2
    #[test]
    fn records_before_a_lost_page_are_reported(
        count in 0u64..2000,
        longest in 1u64..2000,
        overwrites: bool,
        lost in any::<u16>().prop_map(LostPages),
        stops in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let (mut ring, placed) = written(count, longest, overwrites);
        lost.apply(&mut ring.bytes);
        let format = format(Protocol::Rseq);
        let positions = Positions { head: ring.head, claimed: ring.claimed };
        let oldest = format.geometry.oldest(ring.head);

        let mut reader = RingReader::dump(format, &mut Frozen::new(&ring.bytes, positions), u64::MAX);
        let got = read(&mut reader, &ring.bytes, positions, WaitPolicy::Last);
        prop_assert_eq!(reader.position(), ring.head);
        check((got, reader.counts()), lost, &placed, (oldest, ring.head))?;

        // A live reader that reads repeatedly finds the same.
        let mut heads: Vec<_> = stops
            .iter()
            .filter(|_| !placed.is_empty())
            .map(|stop| stop.get(&placed))
            .map(|placed| placed.position + placed.len)
            .filter(|&head| head > oldest)
            .collect();
        heads.sort_unstable();
        heads.push(ring.head);
        let mut reader = RingReader::live(format, oldest, u64::MAX);
        let mut got = Vec::new();
        for head in heads {
            got.extend(read(&mut reader, &ring.bytes, Positions { head, ..positions }, WaitPolicy::Wait));
            prop_assert_eq!(reader.position(), head);
        }
        check((got, reader.counts()), lost, &placed, (oldest, ring.head))?;
    }

    /// Requirements: F2
    #[test]
    fn records_before_a_lost_page_of_a_shared_ring_are_reported(
        count in 0u64..2000,
        longest in 1u64..2000,
        overwrites: bool,
        lost in any::<u16>().prop_map(LostPages),
    ) {
        let (mut ring, placed) = written_shared(count, longest, overwrites);
        lost.apply(&mut ring.bytes);
        let format = format(Protocol::Shared);
        let positions = Positions { head: ring.head, claimed: 0 };
        let oldest = ring.oldest();
        let readers = [
            (RingReader::live(format, oldest, u64::MAX), WaitPolicy::Wait),
            (
                RingReader::dump(format, &mut Frozen::new(&ring.bytes, positions), u64::MAX),
                WaitPolicy::Last,
            ),
        ];
        for (mut reader, policy) in readers {
            let got = read(&mut reader, &ring.bytes, positions, policy);
            prop_assert_eq!(reader.position(), ring.head);
            check((got, reader.counts()), lost, &placed, (oldest, ring.head))?;
        }
    }

    /// If writers died too, the reader may report less, but no other events and no damage.
    ///
    /// Requirements: F2
    #[test]
    fn lost_pages_and_dead_writers_are_no_damage(
        count in 1u64..600,
        longest in 1u64..1000,
        lost in any::<u16>().prop_map(LostPages),
        dead in prop::collection::vec((0u64..600, 0usize..14), 1..4),
    ) {
        let mut ring = SharedRing::new(SUBBUF, COUNT, false);
        for n in 0..count {
            let (id, payload) = event(n, longest);
            let steps = dead.iter().find(|(who, _)| *who == n);
            if let Some(mut writer) = ring.reserve(id, 1000 + n, &payload) {
                ring.run(&mut writer, steps.map_or(usize::MAX, |(_, steps)| *steps));
            }
        }
        let placed = placed_in(&ring);
        lost.apply(&mut ring.bytes);
        let format = format(Protocol::Shared);
        let positions = Positions { head: ring.head, claimed: 0 };
        let mut reader = RingReader::dump(format, &mut Frozen::new(&ring.bytes, positions), u64::MAX);
        let got = read(&mut reader, &ring.bytes, positions, WaitPolicy::Last);
        prop_assert_eq!(reader.position(), ring.head);
        prop_assert_eq!(reader.counts().damaged, 0);
        let mut there = placed.iter().filter(|placed| lost.keeps(placed));
        for event in got {
            prop_assert!(there.any(|placed| placed.event == event), "{event:?}");
        }
    }
}
