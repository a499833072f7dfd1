//! Tests of the reader on rings of protocol `Shared`, wherever its writers stop and in whichever
//! order they run (A10, D2, D3, E7).

use proptest::prelude::*;
use usertrace_ring::{
    Counts, Format, Frozen, GapKind, Geometry, Item, Positions, RingReader, WaitPolicy,
};
use usertrace_sys::Protocol;

use usertrace_testing::shared::{SharedRing, Writer};
use usertrace_testing::{events, read_each};

const SUBBUF: u64 = 4096;
const COUNT: u64 = 4;
const START: u64 = 5 << 48;

fn format() -> Format {
    Format {
        geometry: Geometry::new(SUBBUF as u32, COUNT as u32).unwrap(),
        protocol: Protocol::Shared,
    }
}

#[derive(Debug, Default, PartialEq)]
struct Got {
    records: Vec<(u16, u64, Vec<u8>)>,
    gaps: Vec<GapKind>,
    overwritten: u64,
    subbuffers: u64,
}

fn memory(ring: &SharedRing) -> Frozen<'_> {
    let (head, claimed) = (ring.head, 0);
    Frozen::new(&ring.bytes, Positions { head, claimed })
}

fn read(reader: &mut RingReader, ring: &SharedRing, policy: WaitPolicy) -> Got {
    let mut got = Got::default();
    let mut memory = memory(ring);
    read_each(
        reader,
        &mut memory,
        ring.head,
        policy,
        events(),
        |item| match item {
            Item::SubBuffer { cpu, .. } => {
                assert_eq!(cpu, 77);
                got.subbuffers += 1;
            }
            Item::Record { id, time, payload } => got.records.push((id, time, payload.to_vec())),
            Item::Gap { kind } => got.gaps.push(kind),
            Item::Overwritten { subbuffers } => got.overwritten += subbuffers,
        },
    );
    got
}

fn dump(ring: &SharedRing) -> (Got, Counts) {
    let mut reader = RingReader::dump(format(), &mut memory(ring), u64::MAX);
    let got = read(&mut reader, ring, WaitPolicy::Last);
    assert_eq!(reader.position(), ring.head);
    (got, reader.counts())
}

fn ring(overwrites: bool) -> SharedRing {
    SharedRing::new(SUBBUF, COUNT, overwrites)
}

fn payload(n: u64) -> (u16, Vec<u8>) {
    match n % 3 {
        0 => (1, vec![]),
        1 => (2, n.to_le_bytes().to_vec()),
        _ => {
            let text = "x".repeat((n * 37 % 300) as usize);
            (3, format!("{text}\0").into())
        }
    }
}

fn reserve(ring: &mut SharedRing, n: u64) -> Option<Writer> {
    let (id, payload) = payload(n);
    ring.reserve(id, START + n, &payload)
}

fn fill(ring: &mut SharedRing, events: std::ops::Range<u64>) {
    for n in events {
        let (id, payload) = payload(n);
        ring.event(id, START + n, &payload);
    }
}

/// A ring with this many events, the last of them in places of an earlier round.
fn written(events: u64) -> SharedRing {
    let mut ring = ring(false);
    for n in 0..events {
        fill(&mut ring, n..n + 1);
        ring.consumed = ring.head;
    }
    ring
}

#[test]
fn dump_has_exactly_the_accepted_records() {
    for events in [0, 1, 2, 100, 1000] {
        let mut ring = ring(false);
        fill(&mut ring, 0..events);
        let (got, counts) = dump(&ring);
        assert_eq!(got.records, ring.done_from(0), "{events} events");
        assert_eq!(ring.lost + counts.events, events);
        assert_eq!((got.gaps.len(), counts.damaged), (0, 0));
        assert!(events < 1000 || ring.lost > 0, "it must have been full");
    }
}

/// A writer that is killed at any step loses only its own record, which is counted. Records of
/// other writers are read, including those behind it.
///
/// Requirements: A10, D3
#[test]
fn writer_may_die_at_each_step() {
    let (mut steps_seen, mut begins) = (0, 0);
    for events in 1..260 {
        let before = written(events);
        for step in 0.. {
            let mut killed = before.clone();
            let begun = killed.begun.len();
            let mut writer = reserve(&mut killed, events).unwrap();
            let steps = writer.steps.len();
            killed.run(&mut writer, step);
            for after in [0, 1, 2, 20, 60] {
                let mut ring = killed.clone();
                fill(&mut ring, events + 1..events + 1 + after);
                let (got, counts) = dump(&ring);
                let oldest = ring.oldest();
                let what = format!("{events} events, step {step}, {after} after it");
                assert_eq!(got.records, ring.done_from(oldest), "{what}");
                assert_eq!(counts.unfinished, ring.unfinished_from(oldest), "{what}");
                assert_eq!((counts.corrupted, counts.damaged), (0, 0), "{what}");
            }
            steps_seen += 1;
            if killed.begun.len() > begun {
                begins += 1;
            }
            if step == steps {
                break;
            }
        }
    }
    assert!(steps_seen > 2000 && begins > 50, "{steps_seen} {begins}");
}

/// Two writers die, the second of which may have begun the next sub-buffer.
#[test]
fn two_writers_may_die_at_each_step() {
    for events in (1..130).chain([150, 201, 259]) {
        let before = written(events);
        let steps = |n| reserve(&mut before.clone(), n).unwrap().steps.len();
        for first in 0..=steps(events) {
            let mut killed = before.clone();
            let mut writer = reserve(&mut killed, events).unwrap();
            killed.run(&mut writer, first);
            for second in [0, 1, 2, 3, 5, 8, 9, 10, 11, 12, 13, 14, 99] {
                let mut ring = killed.clone();
                let mut writer = reserve(&mut ring, events + 1).unwrap();
                ring.run(&mut writer, second);
                fill(&mut ring, events + 2..events + 12);
                let (got, counts) = dump(&ring);
                let oldest = ring.oldest();
                let what = format!("{events} events, steps {first} and {second}");
                assert_eq!(got.records, ring.done_from(oldest), "{what}");
                // Two adjacent holes look like one, and a hole before padding looks like padding.
                let unfinished = ring.unfinished_from(oldest);
                assert!(counts.unfinished <= unfinished, "{what}");
                assert!(unfinished == 0 || counts.unfinished > 0, "{what}");
                assert_eq!((counts.corrupted, counts.damaged), (0, 0), "{what}");
            }
        }
    }
}

/// The very first writer dies and no other follows: nothing was committed, and only its record is
/// lost.
#[test]
fn first_writer_may_die_at_each_step() {
    for step in 0.. {
        let mut ring = ring(false);
        let mut writer = reserve(&mut ring, 0).unwrap();
        let steps = writer.steps.len();
        ring.run(&mut writer, step);
        let (got, counts) = dump(&ring);
        assert_eq!(got.records, ring.done_from(0), "step {step}");
        assert_eq!(counts.unfinished, ring.unfinished_from(0), "step {step}");
        assert_eq!((counts.corrupted, counts.damaged), (0, 0), "step {step}");
        if step == steps {
            break;
        }
    }
}

/// Without the header of the very first sub-buffer, there is no time to start from.
#[test]
fn missing_first_header_is_corruption() {
    let mut ring = ring(false);
    let mut dead = reserve(&mut ring, 0).unwrap();
    ring.run(&mut dead, 3);
    fill(&mut ring, 1..300);
    let (got, counts) = dump(&ring);
    assert_eq!(got.gaps[0], GapKind::Corrupted);
    assert_eq!((counts.corrupted, counts.unfinished), (1, 0));
    assert_eq!(got.records, ring.done_from(SUBBUF));
}

/// The same, with nothing counted as committed: the reader does not skip a completed record.
#[test]
fn completed_uncounted_record_is_not_skipped() {
    let mut ring = ring(false);
    let _dead = reserve(&mut ring, 0).unwrap();
    let mut other = reserve(&mut ring, 1).unwrap();
    // All steps except the commit.
    let steps = other.steps.len();
    ring.run(&mut other, steps - 1);
    assert_eq!(ring.done_from(0).len(), 1);
    let (got, counts) = dump(&ring);
    assert_eq!(got.gaps, [GapKind::Corrupted]);
    assert_eq!((counts.corrupted, counts.unfinished), (1, 0));
}

/// The commit counter does not agree with the records.
///
/// Requirements: D3
#[test]
fn hole_that_contradicts_the_counter_is_corruption() {
    for wrong in [8, 4000] {
        let mut ring = written(150);
        let subbuf = ring.head - ring.head % SUBBUF;
        fill(&mut ring, 150..155);
        let hole = ring.head;
        assert_eq!(hole - hole % SUBBUF, subbuf);
        let _dead = reserve(&mut ring, 155).unwrap();
        fill(&mut ring, 156..190);
        let committed = ring.load(subbuf + 40);
        ring.store(subbuf + 40, committed + wrong);
        let (got, counts) = dump(&ring);
        assert_eq!(got.gaps, [GapKind::Corrupted], "{wrong}");
        assert_eq!((counts.corrupted, counts.unfinished), (1, 0));
        let events = ring.records.iter();
        let want: Vec<_> = events
            .filter(|r| r.position >= ring.oldest() && r.done)
            .filter(|r| r.position < hole || r.position >= subbuf + SUBBUF)
            .map(|r| r.event.clone())
            .collect();
        assert_eq!(got.records, want);
    }
}

/// A live reader reads up to a writer that sleeps, and continues when the writer does.
#[test]
fn live_reader_waits_for_a_writer_at_each_step() {
    for events in (1..260).step_by(7) {
        let before = written(events);
        let steps = reserve(&mut before.clone(), events).unwrap().steps.len();
        for step in 0..=steps {
            let mut ring = before.clone();
            let mut reader = RingReader::live(format(), ring.consumed, u64::MAX);
            let mut sleeper = reserve(&mut ring, events).unwrap();
            let position = ring.records.last().unwrap().position;
            ring.run(&mut sleeper, step);
            fill(&mut ring, events + 1..events + 30);
            let got = read(&mut reader, &ring, WaitPolicy::Wait);
            if step < steps {
                assert_eq!(
                    (got.records.len(), got.gaps.len()),
                    (0, 0),
                    "{events} {step}"
                );
                assert!(reader.position() <= position);
            }
            let mut records = got.records;
            ring.run(&mut sleeper, usize::MAX);
            let got = read(&mut reader, &ring, WaitPolicy::Wait);
            records.extend(got.records);
            assert_eq!(records, ring.done_from(position), "{events} {step}");
            assert_eq!(got.gaps, []);
            assert_eq!(reader.position(), ring.head);
        }
    }
}

/// A reader gives up on a writer and continues behind it. Writers pass over the place until the
/// sleeping one leaves it.
#[test]
fn busy_place_is_passed_over() {
    for step in 0..3 {
        let mut ring = ring(false);
        let mut reader = RingReader::live(format(), 0, u64::MAX);
        fill(&mut ring, 0..150);
        let mut sleeper = reserve(&mut ring, 150).unwrap();
        ring.run(&mut sleeper, step);
        let place = ring.head - ring.head % SUBBUF;
        let (mut n, mut records) = (151, Vec::new());
        while ring.head < place + 5 * COUNT * SUBBUF / 2 {
            fill(&mut ring, n..n + 1);
            n += 1;
            let below = ring.head.saturating_sub(COUNT * SUBBUF / 2);
            let got = read(&mut reader, &ring, WaitPolicy::GiveUp { below });
            records.extend(got.records);
            ring.consumed = reader.position();
        }
        assert_eq!(reader.counts().unfinished, 1);
        assert_eq!((reader.counts().skipped, ring.passed_over), (2, 2));
        ring.run(&mut sleeper, usize::MAX);
        ring.records[150].done = false;
        while ring.head < place + 5 * COUNT * SUBBUF {
            fill(&mut ring, n..n + 1);
            n += 1;
            records.extend(read(&mut reader, &ring, WaitPolicy::Wait).records);
            ring.consumed = reader.position();
        }
        assert_eq!((reader.counts().skipped, ring.passed_over), (2, 2));
        assert_eq!(records, ring.done_from(0), "step {step}");
        assert_eq!((ring.lost, reader.counts().damaged), (0, 0));
    }
}

/// A writer died before it stored the header, and the reader read nothing since the round before,
/// as that was overwritten or passed over. The old records in the place are later than everything
/// that was read, and do not belong to this round.
#[test]
fn missing_header_behind_unread_places_is_corruption() {
    const PASSED_OVER: u64 = 2;
    for (step, read_first) in (0..6).flat_map(|step| [5, 30, 60].map(|n| (step, n))) {
        let mut ring = ring(true);
        let mut reader = RingReader::live(format(), 0, u64::MAX);
        let mut events = 0..;
        fill(&mut ring, 0..read_first);
        events.nth(read_first as usize - 1);
        let mut records = read(&mut reader, &ring, WaitPolicy::Wait).records;
        let mut next = |ring: &mut SharedRing| reserve(ring, events.next().unwrap()).unwrap();
        let write = |ring: &mut SharedRing, mut writer: Writer| ring.run(&mut writer, usize::MAX);
        // A writer that never leaves its place.
        while ring.head / SUBBUF < PASSED_OVER {
            let writer = next(&mut ring);
            write(&mut ring, writer);
        }
        next(&mut ring);
        // A writer that dies at the start of the next sub-buffer.
        let begins = (PASSED_OVER + 1 + COUNT) * SUBBUF;
        loop {
            let mut writer = next(&mut ring);
            if ring.begun.last() == Some(&begins) {
                ring.run(&mut writer, step);
                break;
            }
            write(&mut ring, writer);
        }
        while ring.head < begins + 2 * SUBBUF + 100 {
            let writer = next(&mut ring);
            write(&mut ring, writer);
        }
        let got = read(&mut reader, &ring, WaitPolicy::Last);
        records.extend(got.records);
        let mut all = ring.records.iter().filter(|record| record.done);
        for record in &records {
            assert!(all.any(|done| done.event == *record), "{step}: {record:?}");
        }
        let what = format!("step {step}, {read_first} read");
        let counts = reader.counts();
        assert_eq!((counts.damaged, counts.corrupted), (0, 1), "{what}");
    }
}

/// A step of a scenario.
#[derive(Clone, Debug)]
enum Action {
    /// A writer writes an event.
    Write,
    /// A writer begins an event, does this many steps of it, and sleeps.
    Sleep(usize),
    /// A sleeping writer does this many more steps.
    Wake(usize, usize),
    /// A sleeping writer dies.
    Kill(usize),
    Read,
    GiveUp,
    /// The mode changes between discard and overwrite (E3).
    Flip,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        12 => Just(Action::Write),
        3 => (0usize..16).prop_map(Action::Sleep),
        3 => (any::<usize>(), prop_oneof![0usize..16, Just(usize::MAX)])
            .prop_map(|(who, steps)| Action::Wake(who, steps)),
        1 => any::<usize>().prop_map(Action::Kill),
        4 => Just(Action::Read),
        1 => Just(Action::GiveUp),
        1 => Just(Action::Flip),
    ];
    // Repeated, so that the ring wraps around within few steps.
    prop::collection::vec((action, 1usize..40), 1..60).prop_map(|actions| {
        let actions = actions.into_iter();
        actions
            .flat_map(|(action, times)| {
                let times = if matches!(action, Action::Write) {
                    times
                } else {
                    1
                };
                std::iter::repeat_n(action, times)
            })
            .collect()
    })
}

/// A ring with its writers and its reader.
struct Scenario {
    ring: SharedRing,
    reader: RingReader,
    sleepers: Vec<Writer>,
    records: Vec<(u16, u64, Vec<u8>)>,
    /// The number of the next event.
    next: u64,
    /// Whether `Action::Flip` changes the mode.
    flips: bool,
    has_given_up: bool,
    has_overwritten: bool,
}

impl Scenario {
    fn new(overwrites: bool, flips: bool) -> Self {
        Self {
            ring: ring(overwrites),
            reader: RingReader::live(format(), 0, u64::MAX),
            sleepers: Vec::new(),
            records: Vec::new(),
            next: 0,
            flips,
            has_given_up: false,
            has_overwritten: overwrites,
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Write => {
                fill(&mut self.ring, self.next..self.next + 1);
                self.next += 1;
            }
            Action::Sleep(steps) => {
                if let Some(mut writer) = reserve(&mut self.ring, self.next) {
                    self.ring.run(&mut writer, steps);
                    self.sleepers.push(writer);
                }
                self.next += 1;
            }
            Action::Wake(who, steps) if !self.sleepers.is_empty() => {
                let who = who % self.sleepers.len();
                self.ring.run(&mut self.sleepers[who], steps);
                if self.sleepers[who].steps.is_empty() {
                    self.sleepers.swap_remove(who);
                }
            }
            Action::Kill(who) if !self.sleepers.is_empty() => {
                let who = who % self.sleepers.len();
                self.sleepers.swap_remove(who);
            }
            Action::Wake(..) | Action::Kill(..) => {}
            Action::Flip => {
                self.ring.overwrites ^= self.flips;
                self.has_overwritten |= self.ring.overwrites;
            }
            Action::Read => self.read(WaitPolicy::Wait),
            Action::GiveUp => {
                let below = self.ring.head.saturating_sub(self.ring.ring_size() / 2);
                self.has_given_up |= self.reader.position() < below;
                self.read(WaitPolicy::GiveUp { below });
            }
        }
    }

    fn read(&mut self, policy: WaitPolicy) {
        let got = read(&mut self.reader, &self.ring, policy);
        self.records.extend(got.records);
        self.ring.consumed = self.reader.position();
    }

    /// Checks what was read, and how the reader counted the rest.
    fn check(&self) -> Result<(), TestCaseError> {
        let (ring, records) = (&self.ring, &self.records);
        let counts = self.reader.counts();
        prop_assert_eq!(self.reader.position(), ring.head);
        prop_assert_eq!(counts.damaged, 0);

        // In order, and only written records.
        let mut all = ring.records.iter();
        for got in records {
            prop_assert!(
                all.any(|record| record.event == *got),
                "{:?} was reported twice, or was never written",
                got
            );
        }
        if self.has_overwritten {
            // The newest records are never missing.
            let newest = ring.done_from(ring.head.saturating_sub(1) / SUBBUF * SUBBUF);
            prop_assert!(counts.corrupted > 0 || records.ends_with(&newest));
        } else if !self.has_given_up {
            prop_assert_eq!(counts.overwritten, 0);
            if counts.corrupted == 0 {
                let done = ring.done_from(0);
                prop_assert_eq!(records, &done);
                let unfinished = ring.unfinished_from(0);
                prop_assert!(counts.unfinished <= unfinished);
                prop_assert!(unfinished == 0 || counts.unfinished > 0);
            } else {
                prop_assert!(ring.unfinished_from(0) > 0);
            }
        }
        Ok(())
    }
}

proptest! {
    /// No event is reported twice, torn, or out of order. Only events of killed and given-up
    /// writers are missing, and they are counted.
    ///
    /// Requirements: A10, D3, E7
    #[test]
    fn each_event_is_reported_once(
        actions in actions(),
        overwrites: bool,
        flips: bool,
    ) {
        let mut scenario = Scenario::new(overwrites, flips);
        actions.into_iter().for_each(|action| scenario.act(action));
        scenario.read(WaitPolicy::Last);
        scenario.check()?;
    }
}
