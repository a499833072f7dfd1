//! Tests of the reader on rings that are complete, truncated, overtaken or damaged (A10, C7, E7,
//! F4).

use std::sync::LazyLock;

use proptest::prelude::*;
use usertrace_ring::schema::EventTable;
use usertrace_ring::{
    Counts, Format, Frozen, GapKind, Geometry, Item, PayloadLengths, Positions, RingMemory,
    RingReader, SUBBUF_HEADER_LEN, WaitPolicy,
};
use usertrace_sys::Protocol;

use usertrace_testing::{RingWriter, read_each};

const SUBBUF: u64 = 4096;
const COUNT: u64 = 4;

fn geometry() -> Geometry {
    Geometry::new(SUBBUF as u32, COUNT as u32).unwrap()
}

fn format() -> Format {
    Format {
        geometry: geometry(),
        protocol: Protocol::Rseq,
    }
}

fn events() -> &'static EventTable {
    static EVENTS: LazyLock<EventTable> = LazyLock::new(|| {
        let mut events = EventTable::default();
        for line in [
            "1 t:empty 0",
            "2 t:number 0 u64 n",
            "3 t:text 0 u16 x;str s",
        ] {
            events.describe(line.as_bytes()).unwrap();
        }
        events
    });
    &EVENTS
}

fn ring() -> RingWriter {
    RingWriter::new(SUBBUF, COUNT, 3)
}

#[derive(Debug, Default, PartialEq)]
struct Got {
    records: Vec<(u16, u64, Vec<u8>)>,
    gaps: Vec<GapKind>,
    lost: u64,
    cpus: Vec<u32>,
    overwritten: u64,
}

fn read(reader: &mut RingReader, bytes: &[u8], head: u64, policy: WaitPolicy) -> Got {
    let mut got = Got::default();
    let mut memory = Frozen::new(bytes, Positions { head, claimed: 0 });
    read_each(
        reader,
        &mut memory,
        head,
        policy,
        events(),
        |item| match item {
            Item::SubBuffer { lost, cpu, .. } => {
                got.lost = lost;
                got.cpus.push(cpu);
            }
            Item::Record { id, time, payload } => got.records.push((id, time, payload.to_vec())),
            Item::Gap { kind } => got.gaps.push(kind),
            Item::Overwritten { subbuffers } => got.overwritten += subbuffers,
        },
    );
    got
}

/// Reported records and overwritten sub-buffers, in order.
enum Reported {
    Record((u16, u64, Vec<u8>)),
    Overwritten(u64),
}

fn report(
    reader: &mut RingReader,
    memory: &mut impl RingMemory,
    head: u64,
    policy: WaitPolicy,
    reported: &mut Vec<Reported>,
) {
    read_each(reader, memory, head, policy, events(), |item| match item {
        Item::Record { id, time, payload } => {
            reported.push(Reported::Record((id, time, payload.to_vec())));
        }
        Item::Overwritten { subbuffers } => reported.push(Reported::Overwritten(subbuffers)),
        Item::Gap { kind } => panic!("{kind:?}"),
        Item::SubBuffer { .. } => {}
    });
}

fn dump(ring: &RingWriter) -> (Got, Counts) {
    let (head, claimed) = (ring.head, 0);
    let mut memory = Frozen::new(&ring.bytes, Positions { head, claimed });
    let mut reader = RingReader::dump(format(), &mut memory, u64::MAX);
    let got = read(&mut reader, &ring.bytes, head, WaitPolicy::Last);
    (got, reader.counts())
}

/// Writes events of several lengths, so that sub-buffers end with and without padding.
fn fill(ring: &mut RingWriter, from: u64, events: u64) {
    for n in from..from + events {
        match n % 3 {
            0 => ring.event(1, n, b""),
            1 => ring.event(2, n, &n.to_le_bytes()),
            _ => {
                let text = "x".repeat((n % 100) as usize);
                ring.event(3, n, format!("ab{text}\0").as_bytes())
            }
        };
    }
}

#[test]
fn dump_has_exactly_the_accepted_records() {
    for events in [0, 1, 2, 100, 1000] {
        let mut ring = ring();
        fill(&mut ring, 10, events);
        let (got, counts) = dump(&ring);
        assert_eq!(got.records, ring.accepted, "{events} events");
        assert_eq!(counts.events, ring.accepted.len() as u64);
        assert_eq!((counts.holes, counts.damaged), (0, 0));
        assert_eq!(ring.lost + counts.events, events);
        assert!(
            events < 1000 || ring.lost > 0,
            "the ring must have been full"
        );
        assert!(got.cpus.iter().all(|&cpu| cpu == 3));
    }
}

#[test]
fn subbuf_may_end_without_padding() {
    let mut ring = ring();
    // A header of 64 bytes and 252 records of 16 bytes.
    for n in 0..2 * 252 {
        ring.event(2, n, &n.to_le_bytes());
    }
    assert_eq!(ring.head, 2 * SUBBUF);
    let (got, counts) = dump(&ring);
    assert_eq!(got.records, ring.accepted);
    assert_eq!(counts.damaged + counts.holes, 0);
}

#[test]
fn reader_stops_at_the_head() {
    let mut ring = ring();
    fill(&mut ring, 0, 50);
    let head = ring.head;
    let accepted = ring.accepted.clone();
    fill(&mut ring, 50, 5);
    ring.head = head;
    assert_eq!(dump(&ring).0.records, accepted);
}

#[test]
fn live_ring_is_read_incrementally() {
    let mut ring = ring();
    let mut reader = RingReader::live(format(), 0, u64::MAX);
    let mut records = Vec::new();
    for round in 0..300 {
        fill(&mut ring, round * 7, 7);
        let got = read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Wait);
        records.extend(got.records);
        assert_eq!(reader.position(), ring.head);
        ring.consumed = reader.position();
    }
    assert!(
        ring.head > 3 * COUNT * SUBBUF,
        "the ring must have gone round"
    );
    assert_eq!(ring.lost, 0);
    assert_eq!(records, ring.accepted);
    assert_eq!(reader.counts().damaged + reader.counts().holes, 0);
}

#[test]
fn another_reader_resumes_within_a_subbuf() {
    let mut ring = ring();
    fill(&mut ring, 1 << 50, 30);
    let consumed = ring.head;
    let before = ring.accepted.len();
    fill(&mut ring, (1 << 50) + 30, 30);
    let mut reader = RingReader::live(format(), consumed, u64::MAX);
    assert_eq!(reader.position(), consumed);
    let got = read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Wait);
    assert_eq!(got.records, ring.accepted[before..]);
}

#[test]
fn times_are_full() {
    let mut ring = ring();
    for time in [
        5,
        (1 << 48) - 1,
        1 << 48,
        (1 << 48) + 1,
        7 << 48,
        (7 << 48) + (1 << 47),
        u64::MAX - 1,
    ] {
        ring.event(1, time, b"");
    }
    assert_eq!(dump(&ring).0.records, ring.accepted);
}

#[test]
fn time_past_the_limit_is_damage() {
    let mut ring = ring();
    ring.event(1, 1000, b"");
    ring.event(1, 2000, b"");
    ring.event(1, 2001, b"");
    let mut reader = RingReader::live(format(), 0, 2000);
    let got = read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Last);
    assert_eq!(got.records, ring.accepted[..2]);
    assert_eq!(got.gaps, [GapKind::Damaged]);
}

#[test]
fn dump_begins_with_the_oldest_subbuf() {
    let mut ring = ring();
    for round in 0..80 {
        fill(&mut ring, round * 20, 20);
        ring.consumed = ring.head;
    }
    let (got, counts) = dump(&ring);
    let n = got.records.len();
    assert!(ring.head > 2 * COUNT * SUBBUF && n > 100);
    // Everything that is still in the ring, consumed or not.
    assert_eq!(got.records, ring.accepted[ring.accepted.len() - n..]);
    assert_eq!(got.cpus.len() as u64, COUNT);
    assert_eq!(counts.damaged + counts.holes, 0);
}

/// The writer stores the next sub-buffer's header before it moves the head. Any of its words may be
/// visible already.
#[test]
fn half_stored_next_header_is_no_damage() {
    for stored in 0u32..16 {
        for mid in [false, true] {
            let mut ring = ring();
            for round in 0..80 {
                fill(&mut ring, round * 20, 20);
                ring.consumed = ring.head;
            }
            while mid == ring.head.is_multiple_of(SUBBUF) {
                ring.event(1, 2000, b"");
                ring.consumed = ring.head;
            }
            ring.lost += 5;
            let next = ring.head.next_multiple_of(SUBBUF);
            let before = ring.clone();
            ring.store_header(next, 2001);
            for word in 0..4 {
                if stored & 1 << word == 0 {
                    let at = ((next + 8 * word) % (SUBBUF * COUNT)) as usize;
                    ring.bytes[at..at + 8].copy_from_slice(&before.bytes[at..at + 8]);
                }
            }
            let (got, counts) = dump(&ring);
            let n = got.records.len();
            assert_eq!(got.records, ring.accepted[ring.accepted.len() - n..]);
            assert_eq!(counts.damaged + counts.holes, 0, "words {stored:04b}");
            let whole = got.cpus.len() as u64;
            assert_eq!(whole, if stored & 7 == 0 { COUNT } else { COUNT - 1 });
        }
    }
}

#[test]
fn unwritten_page_is_a_hole() {
    let mut ring = ring();
    fill(&mut ring, 0, 300);
    let whole = ring.clone();
    // The second sub-buffer: from its middle on, then all of it.
    for from in [SUBBUF + SUBBUF / 2, SUBBUF] {
        ring.bytes[from as usize..2 * SUBBUF as usize].fill(0);
        let (got, counts) = dump(&ring);
        assert_eq!((counts.holes, counts.damaged), (1, 0));
        assert_eq!(got.gaps, [GapKind::Hole]);
        assert!(counts.hole_bytes >= SUBBUF / 2 && counts.hole_bytes <= SUBBUF);
        let rest: Vec<_> = got.records.iter().map(|r| r.1).collect();
        assert!(rest.first() == Some(&0) && rest.last() == Some(&299));
        assert!(got.records.iter().all(|r| whole.accepted.contains(r)));
    }
}

#[test]
fn hole_of_a_live_ring_counts_once() {
    let mut ring = ring();
    let mut reader = RingReader::live(format(), 0, u64::MAX);
    ring.event(1, 5, b"");
    ring.head += 64;
    for _ in 0..3 {
        read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Wait);
        ring.head += 64;
    }
    assert_eq!(reader.position(), ring.head - 64);
    assert_eq!(reader.counts().holes, 1);
    assert_eq!(reader.counts().hole_bytes, 3 * 64);
    // The next sub-buffer is read again.
    ring.head = SUBBUF;
    ring.event(1, 6, b"");
    assert_eq!(
        read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Wait)
            .records
            .len(),
        1
    );
}

#[test]
fn long_record_is_read_when_done() {
    let mut ring = ring();
    ring.event(1, 1, b"");
    let at = ring.head;
    ring.long(3, 2, b"ab0123456789\0", 63);
    ring.event(1, 3, b"");
    // Nobody will complete it: an unfinished record of known size.
    let (got, counts) = dump(&ring);
    assert_eq!(got.records, ring.accepted);
    assert_eq!((got.gaps, counts.damaged), (vec![GapKind::Unfinished], 0));
    // Its writer may still complete it.
    let mut reader = RingReader::live(format(), 0, u64::MAX);
    assert_eq!(
        read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Wait)
            .records
            .len(),
        1
    );
    assert_eq!(reader.position(), at);
    ring.store(at + 8, 32 | 3 << 32 | 1 << 62);
    let got = read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Wait);
    assert_eq!(got.records[0], (3, 2, b"ab0123456789\0".to_vec()));
    assert_eq!(got.records[1], (1, 3, vec![]));
    assert_eq!(reader.position(), ring.head);
}

/// A reader waits until its policy gives up records below some position.
#[test]
fn unfinished_long_record_does_not_stop_a_live_ring() {
    let mut ring = ring();
    ring.long(3, 2, b"ab0123456789\0", 63);
    let mut reader = RingReader::live(format(), 0, u64::MAX);
    fill(&mut ring, 10, 100);
    for policy in [WaitPolicy::Wait, WaitPolicy::GiveUp { below: 64 }] {
        let got = read(&mut reader, &ring.bytes, ring.head, policy);
        assert_eq!((got.records.len(), reader.position()), (0, 64));
    }
    let give_up = WaitPolicy::GiveUp { below: 65 };
    let got = read(&mut reader, &ring.bytes, ring.head, give_up);
    assert_eq!(got.gaps, [GapKind::Unfinished]);
    assert_eq!(got.records, ring.accepted);
    let counts = reader.counts();
    assert_eq!((counts.unfinished, counts.holes, counts.damaged), (1, 0, 0));
    assert_eq!(reader.position(), ring.head);
}

#[test]
fn long_record_of_a_wrong_length_costs_only_itself() {
    let mut ring = ring();
    ring.long(2, 1, &[0; 24], 62);
    ring.long(9, 2, &[0; 8], 62);
    ring.event(1, 3, b"");
    let (got, counts) = dump(&ring);
    assert_eq!(got.records, ring.accepted[2..]);
    assert_eq!((counts.damaged, counts.damaged_bytes), (2, 40 + 24));
}

#[test]
fn damage_costs_the_rest_of_its_subbuf() {
    let mut ring = ring();
    fill(&mut ring, 0, 300);
    let whole = ring.accepted.clone();
    for (what, word) in [
        ("unknown id", 77),
        ("reserved id", 0xfff5),
        ("description in main", 0xfffc),
        ("long record of no length", 0xfffd),
    ] {
        let mut ring = ring.clone();
        ring.store(SUBBUF + SUBBUF_HEADER_LEN, word);
        ring.store(SUBBUF + SUBBUF_HEADER_LEN + 8, 0);
        let (got, counts) = dump(&ring);
        assert_eq!((counts.damaged, counts.holes), (1, 0), "{what}");
        assert_eq!(counts.damaged_bytes, SUBBUF - SUBBUF_HEADER_LEN, "{what}");
        assert!(got.records.last() == whole.last() && got.records.len() < whole.len());
    }
    // A header: the magic.
    ring.store(SUBBUF + 24, 0);
    let (_, counts) = dump(&ring);
    assert_eq!((counts.damaged, counts.damaged_bytes), (1, SUBBUF));
}

#[test]
fn impossible_heads_are_counted() {
    let mut ring = ring();
    fill(&mut ring, 0, 100);
    let good = ring.head;
    for head in [u64::MAX, u64::MAX - 7, 1 << 63, (1 << 62) + 8, good + 1] {
        let mut reader = RingReader::live(format(), 0, u64::MAX);
        for _ in 0..3 {
            read(&mut reader, &ring.bytes, head, WaitPolicy::Wait);
        }
        assert_eq!(reader.counts().damaged, 1, "{head:#x}");
    }
    // A head below the reader's position.
    let mut reader = RingReader::live(format(), 0, u64::MAX);
    let got = read(&mut reader, &ring.bytes, good, WaitPolicy::Wait);
    assert_eq!(got.records, ring.accepted);
    assert_eq!(
        read(&mut reader, &ring.bytes, good - 8, WaitPolicy::Wait),
        Got::default()
    );
    assert_eq!(reader.position(), good);
    assert_eq!(reader.counts().damaged, 1);
}

/// A writer ignores the consumed position: the reader resynchronizes.
#[test]
fn overtaken_reader_resumes_at_a_subbuf() {
    let mut ring = ring();
    let mut reader = RingReader::live(format(), 0, u64::MAX);
    fill(&mut ring, 0, 10);
    read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Wait);
    for n in 1..100 {
        fill(&mut ring, 10 * n, 10);
        ring.consumed = ring.head;
    }
    let got = read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Wait);
    assert_eq!(got.gaps, []);
    assert!(got.overwritten > 0);
    let n = got.records.len();
    assert!(n > 100);
    assert_eq!(got.records, ring.accepted[ring.accepted.len() - n..]);
    assert_eq!(reader.position(), ring.head);
}

fn overwriting() -> (RingWriter, Format) {
    let mut ring = ring();
    ring.overwrites = true;
    (ring, format())
}

/// A ring that changes during the reader's copy number `when`.
struct Overtaken<'a> {
    before: &'a RingWriter,
    after: &'a RingWriter,
    copies: u32,
    /// Copies before the change.
    when: u32,
}

impl Overtaken<'_> {
    fn now(&self) -> &RingWriter {
        if self.copies > self.when {
            self.after
        } else {
            self.before
        }
    }
}

impl RingMemory for Overtaken<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        // The change happens in the middle of the copy.
        let half = buffer.len() / 2;
        let positions = Positions::default();
        Frozen::new(&self.now().bytes, positions).read(offset, &mut buffer[..half]);
        self.copies += 1;
        let rest = offset + half as u64;
        Frozen::new(&self.now().bytes, positions).read(rest, &mut buffer[half..]);
    }

    fn load(&mut self, offset: u64) -> u64 {
        Frozen::new(&self.now().bytes, Positions::default()).load(offset)
    }

    fn positions(&mut self) -> Positions {
        let (head, claimed) = (self.now().head, self.now().claimed);
        Positions { head, claimed }
    }
}

/// A reader that is overtaken in the middle of a copy drops the copy, counts the sub-buffer, and
/// reads everything that is still there.
///
/// Requirements: D3
#[test]
fn reader_drops_an_overtaken_copy() {
    let (mut before, format) = overwriting();
    fill(&mut before, 0, 400);
    for (more, claim_only) in [0, 1, 5, 60, 70, 200, 400, 800]
        .into_iter()
        .flat_map(|more| [(more, false), (more, true)])
    {
        let mut after = before.clone();
        fill(&mut after, 400, more);
        if claim_only {
            // The writer claimed a place and stored half of the header.
            let next = after.head.next_multiple_of(SUBBUF);
            after.claimed = after.claimed.max(next + SUBBUF - COUNT * SUBBUF);
            after.store(next, next);
            after.store(next + 8, 1_000_000);
        }
        for when in 0..5 {
            let mut memory = Overtaken {
                before: &before,
                after: &after,
                copies: 0,
                when,
            };
            let mut reader = RingReader::live(format, 0, u64::MAX);
            let (mut records, mut overwritten) = (Vec::new(), 0);
            for last in [false, true] {
                let (head, policy) = if last {
                    memory.when = 0;
                    memory.copies = 1;
                    (after.head, WaitPolicy::Last)
                } else {
                    (before.head, WaitPolicy::Wait)
                };
                read_each(
                    &mut reader,
                    &mut memory,
                    head,
                    policy,
                    events(),
                    |item| match item {
                        Item::SubBuffer { .. } => {}
                        Item::Record { id, time, payload } => {
                            records.push((id, time, payload.to_vec()));
                        }
                        Item::Gap { kind } => panic!("{kind:?}"),
                        Item::Overwritten { subbuffers } => overwritten += subbuffers,
                    },
                );
            }
            let counts = reader.counts();
            let what = format!("{more} more, {claim_only}, at copy {when}");
            assert_eq!((counts.damaged, counts.holes), (0, 0), "{what}");
            assert_eq!(counts.overwritten, overwritten, "{what}");
            assert_eq!(reader.position(), after.head, "{what}");
            // In order, and only written records.
            let mut written = after.accepted.iter();
            assert!(records.iter().all(|r| written.any(|w| w == r)), "{what}");
            // Everything that can still be in the ring.
            let oldest = RingReader::dump(format, &mut memory, u64::MAX).position();
            let end = oldest.max(after.claimed);
            assert_eq!(end, oldest, "{what}");
            let missing = after.accepted.len() - records.len();
            let first = after
                .accepted
                .iter()
                .position(|w| *w == records[0])
                .unwrap();
            let gone = after.bytes.len() as u64 / SUBBUF;
            assert!(
                overwritten <= after.head / SUBBUF + 1 - (gone - 2),
                "{what}"
            );
            assert_eq!(missing == 0, overwritten == 0, "{what}");
            assert!(missing >= first, "{what}");
        }
    }
}

/// The newest sub-buffer is never lost, and a dump begins above everything that was claimed.
#[test]
fn dump_of_an_overwriting_ring_has_its_newest_part() {
    let (mut ring, format) = overwriting();
    for n in 0..8000 {
        fill(&mut ring, n, 1);
        if n % 37 != 0 {
            continue;
        }
        for claimed in [ring.claimed, ring.claimed + SUBBUF] {
            let claimed = if ring.head < COUNT * SUBBUF {
                0
            } else {
                claimed
            };
            let head = ring.head;
            let mut memory = Frozen::new(&ring.bytes, Positions { head, claimed });
            let mut reader = RingReader::dump(format, &mut memory, u64::MAX);
            let start = reader.position();
            assert!(start >= claimed && head - start > (COUNT - 2) * SUBBUF || start == 0);
            let got = read(&mut reader, &ring.bytes, head, WaitPolicy::Last);
            let events = got.records.len();
            assert!(events > 100 || events == ring.accepted.len());
            assert_eq!(got.records, ring.accepted[ring.accepted.len() - events..]);
            assert_eq!(reader.counts().damaged + reader.counts().holes, 0);
        }
    }
    assert!(ring.head > 10 * COUNT * SUBBUF && ring.lost == 0);
}

/// An impossible claim does not cost the newest sub-buffer.
#[test]
fn impossible_claim_leaves_the_newest_subbuf() {
    let (mut ring, format) = overwriting();
    fill(&mut ring, 0, 500);
    let head = ring.head;
    for claimed in [head, head + SUBBUF, u64::MAX] {
        let mut memory = Frozen::new(&ring.bytes, Positions { head, claimed });
        let reader = RingReader::dump(format, &mut memory, u64::MAX);
        assert_eq!(reader.position(), (head - 1) / SUBBUF * SUBBUF);
    }
}

/// Writers pass over a place in which a long record is still being written, and so does the reader.
#[test]
fn busy_place_is_passed_over() {
    let mut ring = ring();
    let mut reader = RingReader::live(format(), 0, u64::MAX);
    let mut records = Vec::new();
    fill(&mut ring, 0, 150);
    ring.long(3, 150, b"ab0123456789\0", 63);
    let place = ring.head - 8;
    ring.busy(place, 1);
    for n in 151..4000 {
        fill(&mut ring, n, 1);
        let below = ring.head.saturating_sub(COUNT * SUBBUF / 2);
        let give_up = WaitPolicy::GiveUp { below };
        records.extend(read(&mut reader, &ring.bytes, ring.head, give_up).records);
        ring.consumed = reader.position();
        if n == 2000 {
            ring.busy(place, -1);
        }
    }
    let counts = reader.counts();
    assert!(counts.skipped > 0 && ring.head > 3 * COUNT * SUBBUF);
    assert_eq!((counts.unfinished, counts.damaged, counts.holes), (1, 0, 0));
    assert_eq!(records, ring.accepted);
    assert_eq!(ring.lost, 0);
    // The same header is damage where no writer can have passed over it.
    let mut bytes = ring.bytes.clone();
    let newest = (ring.head - 1) / SUBBUF * SUBBUF;
    let at = (newest % (COUNT * SUBBUF)) as usize;
    bytes[at..at + 8].copy_from_slice(&(newest - COUNT * SUBBUF).to_le_bytes());
    let mut reader = RingReader::live(format(), newest, u64::MAX);
    read(&mut reader, &bytes, ring.head, WaitPolicy::Last);
    assert_eq!((reader.counts().skipped, reader.counts().damaged), (0, 1));
}

/// The ring's size bounds everything that is read, and lengths add up.
fn check_bounds(bytes: &[u8], head: u64, consumed: u64) -> Result<(), TestCaseError> {
    let geometry = geometry();
    let mut memory = Frozen::new(bytes, Positions { head, claimed: 0 });
    let dump = RingReader::dump(format(), &mut memory, u64::MAX);
    let live = RingReader::live(format(), consumed, u64::MAX);
    for (mut reader, policy) in [
        (dump, WaitPolicy::Last),
        (live.clone(), WaitPolicy::Wait),
        (live, WaitPolicy::Last),
    ] {
        let mut total = 0;
        let start = reader.position();
        read_each(&mut reader, &mut memory, head, policy, events(), |item| {
            if let Item::Record { id, payload, .. } = item {
                total += 8 + payload.len() as u64;
                assert_eq!(events().payload_len(id, payload), Some(payload.len()));
            }
        });
        let counts = reader.counts();
        prop_assert!(total <= geometry.ring_size());
        prop_assert!(counts.hole_bytes <= geometry.ring_size());
        prop_assert!(reader.position() >= start);
    }
    Ok(())
}

fn positions() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..8 * SUBBUF,
        any::<u64>(),
        (0..1000u64).prop_map(|n| n * 8)
    ]
}

proptest! {
    /// Requirements: F4
    #[test]
    fn arbitrary_bytes_are_survived(
        words in prop::collection::vec(
            prop_oneof![any::<u64>(), 0u64..4, Just(u64::MAX), (0u64..9).prop_map(|n| n << 16 | 3)],
            509),
        head in positions(),
        consumed in positions(),
    ) {
        // A whole ring of these is slow to generate: repeat them, out of step with sub-buffers.
        let words = words.iter().cycle().take((SUBBUF * COUNT / 8) as usize);
        let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        check_bounds(&bytes, head, consumed)?;
    }

    /// Valid rings with some changed words.
    ///
    /// Requirements: F4
    #[test]
    fn arbitrary_changes_are_survived(
        events in 0u64..400,
        changes in prop::collection::vec(
            (0..SUBBUF * COUNT / 8, prop_oneof![any::<u64>(), 0u64..4, 0xfff0u64..0x1_0000]), 0..20),
        heads in prop_oneof![Just(None), positions().prop_map(Some)],
        consumed in positions(),
    ) {
        let mut ring = ring();
        fill(&mut ring, 3, events);
        let head = heads.unwrap_or(ring.head);
        for (word, value) in changes {
            ring.store(word * 8, value);
        }
        check_bounds(&ring.bytes, head, consumed)?;
    }

    /// Whatever the mode becomes during the read, no record is reported twice, torn, or out of
    /// order. Missing records were in sub-buffers that count as overwritten at that point.
    ///
    /// Requirements: E3
    #[test]
    fn mode_may_change_during_a_read(
        rounds in prop::collection::vec((0u64..300, any::<bool>(), 0u64..300, any::<bool>(), 0u32..4), 1..12),
        flips: bool,
    ) {
        let mut ring = ring();
        let mut reader = RingReader::live(format(), 0, u64::MAX);
        let (mut n, mut reported) = (0, Vec::new());
        for (before, flip_before, during, flip_during, when) in rounds {
            ring.overwrites ^= flips && flip_before;
            fill(&mut ring, n, before);
            let copied = ring.clone();
            ring.overwrites ^= flips && flip_during;
            fill(&mut ring, n + before, during);
            n += before + during;
            let mut memory = Overtaken { before: &copied, after: &ring, copies: 0, when };
            report(&mut reader, &mut memory, copied.head, WaitPolicy::Wait, &mut reported);
            ring.consumed = reader.position();
        }
        let mut memory = Frozen::new(&ring.bytes, Positions { head: ring.head, claimed: 0 });
        report(&mut reader, &mut memory, ring.head, WaitPolicy::Last, &mut reported);
        let counts = reader.counts();
        prop_assert_eq!((counts.damaged, counts.holes, counts.unfinished), (0, 0, 0));
        prop_assert!(flips || counts.overwritten == 0);

        // The next expected record, the sub-buffer of the last one, and how many were overwritten
        // since.
        let (mut next, mut subbuf, mut overwritten) = (0, 0, 0);
        let (mut all_overwritten, mut missing_bytes) = (0, 0);
        for item in reported {
            match item {
                Reported::Overwritten(subbuffers) => overwritten += subbuffers,
                Reported::Record(record) => {
                    let missing = ring.accepted[next..].iter().position(|accepted| *accepted == record);
                    prop_assert!(missing.is_some(), "{record:?} is reported twice, torn, or too late");
                    let this = next + missing.unwrap();
                    let this_subbuf = ring.places[this] / SUBBUF;
                    if overwritten == 0 {
                        prop_assert_eq!(this, next, "missing, and nothing was overwritten");
                    } else {
                        // The reader continues at the start of a sub-buffer. It may have read the
                        // one before to its end.
                        prop_assert!(this == 0 || ring.places[this - 1] / SUBBUF < this_subbuf);
                        prop_assert!((0..=1).contains(&(this_subbuf - subbuf - overwritten)));
                        // Up to the next header.
                        missing_bytes += (this_subbuf * SUBBUF).saturating_sub(ring.places[next]);
                    }
                    all_overwritten += overwritten;
                    (next, subbuf, overwritten) = (this + 1, this_subbuf, 0);
                }
            }
        }
        prop_assert_eq!((next, overwritten), (ring.accepted.len(), 0), "the newest are there");
        prop_assert_eq!(counts.overwritten, all_overwritten);
        prop_assert!(counts.overwritten_bytes >= missing_bytes);
        prop_assert!(counts.overwritten_bytes <= all_overwritten * SUBBUF);
    }

    /// Everything before a committed head is readable, wherever that is.
    ///
    /// Requirements: A10
    #[test]
    fn every_committed_head_is_an_end(lens in prop::collection::vec(0usize..300, 0..60)) {
        let mut ring = ring();
        for (n, len) in lens.iter().enumerate() {
            let text = [b"ab".as_slice(), &vec![b'x'; *len], b"\0"].concat();
            ring.event(3, n as u64, &text);
            let mut reader = RingReader::live(format(), 0, u64::MAX);
            let got = read(&mut reader, &ring.bytes, ring.head, WaitPolicy::Last);
            prop_assert_eq!(&got.records, &ring.accepted);
        }
    }
}
