//! The reader and the writers, at the same time, in all protocols and modes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::thread;

use usertrace_ring::{
    Counts, Format, Geometry, Item, PayloadLengths, Positions, RingMemory, RingReader, SharedBytes,
    WaitPolicy,
};
use usertrace_sys::uapi::LttRingControl;
use usertrace_sys::{Mode, Protocol, Scope};

use crate::os::futex;
use crate::writer::{
    Channel as Writers, Cursor, Geometry as Sizes, Payload, Refusal, Rseq, write_slowly,
};
use usertrace_testing::counts::counts;

const SUBBUF: u64 = 4096;
const COUNT: u64 = 4;
const STRIDE: u64 = size_of::<LttRingControl>() as u64;

/// Two words: who wrote it, and its number.
const SHORT: u16 = 1;
/// As many more as the number says.
const LONG: u16 = 2;

/// Words behind the first two of a long payload.
fn more(n: u64) -> u64 {
    n * 7 % 300
}

/// The value of each word of a record.
fn pattern(who: u64, n: u64) -> u64 {
    n << 8 | who
}

struct Lengths;

impl PayloadLengths for Lengths {
    fn payload_len(&self, id: u16, bytes: &[u8]) -> Option<usize> {
        let n = u64::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
        let len = match id {
            SHORT => 16,
            LONG => 16 + 8 * more(n) as usize,
            _ => return None,
        };
        (len <= bytes.len()).then_some(len)
    }
}

/// Rings and their control blocks, on the heap.
struct Rings {
    words: Vec<AtomicU64>,
    nr: u32,
    format: Format,
    writers: Writers,
    rseq: Option<Rseq>,
}

/// One of them, as a reader sees it.
struct Ring<'a> {
    bytes: SharedBytes<'a>,
    control: SharedBytes<'a>,
}

impl RingMemory for Ring<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        self.bytes.read(offset, buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        self.bytes.load(offset)
    }

    fn positions(&mut self) -> Positions {
        fence(Ordering::Acquire);
        Positions {
            head: self.control.load(offset_of!(LttRingControl, head) as u64),
            claimed: self
                .control
                .load(offset_of!(LttRingControl, claimed) as u64),
        }
    }
}

impl Rings {
    fn new(scope: Scope, protocol: Protocol, mode: Mode) -> Self {
        let rseq = (protocol == Protocol::Rseq).then(|| Rseq::find().expect("rseq"));
        let nr = match scope {
            // SAFETY: no memory is involved.
            Scope::Cpu | Scope::MmCid => unsafe {
                libc::sysconf(libc::_SC_NPROCESSORS_CONF) as u32
            },
            Scope::Thread => 8,
            Scope::Global => 1,
        };
        let words = u64::from(nr) * (STRIDE + SUBBUF * COUNT) / 8;
        let rings = Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            nr,
            format: Format {
                geometry: Geometry::new(SUBBUF as u32, COUNT as u32).unwrap(),
                protocol,
            },
            writers: Writers::default(),
            rseq,
        };
        let start: *mut u8 = rings.words[0].as_ptr().cast();
        let sizes = Sizes {
            buffers: start.wrapping_add((u64::from(nr) * STRIDE) as usize),
            control: start,
            control_stride: STRIDE,
            subbuf_size: SUBBUF,
            subbuf_count: COUNT,
            nr_rings: nr,
            scope,
            mode,
            protocol,
            wakeup: crate::writer::WakeupMethod::None,
            prefault: crate::writer::Prefault::Never,
            cell_size: 0,
            contexts: false,
            clock: crate::clock::Source::Processor,
            quiescence: None,
        };
        // SAFETY: the words are there for as long as the channel.
        unsafe { rings.writers.open(&sizes) }.unwrap();
        rings
    }

    fn bytes(&self, offset: u64, len: u64) -> SharedBytes<'_> {
        let start = NonNull::from(&self.words[offset as usize / 8]).cast();
        // SAFETY: inside the words, which are atomics.
        unsafe { SharedBytes::new(start, len as usize) }
    }

    fn ring(&self, n: u32) -> Ring<'_> {
        let ring_size = SUBBUF * COUNT;
        let first = u64::from(self.nr) * STRIDE;
        Ring {
            bytes: self.bytes(first + u64::from(n) * ring_size, ring_size),
            control: self.bytes(u64::from(n) * STRIDE, STRIDE),
        }
    }

    fn consume(&self, n: u32, position: u64) {
        let at = u64::from(n) * STRIDE + offset_of!(LttRingControl, consumed) as u64;
        let consumed = &self.words[at as usize / 8];
        // Pairs with the load of a writer that begins a sub-buffer.
        consumed.store(position, Ordering::Release);
        // SAFETY: the lower half of the word, which is only accessed by atomics.
        let low = unsafe { AtomicU32::from_ptr(consumed.as_ptr().cast()) };
        futex::wake(low, u32::MAX >> 1);
    }

    fn lost(&self) -> u64 {
        let lost = offset_of!(LttRingControl, lost) as u64;
        (0..self.nr).map(|n| self.ring(n).control.load(lost)).sum()
    }

    /// Writes a record, in one of the ways that there are. False: it was lost.
    fn write(&self, who: u64, n: u64) -> bool {
        let words = [who, n];
        let fill = |cursor: &mut Cursor<'_>| {
            cursor.append(&who.to_ne_bytes());
            cursor.append(&n.to_ne_bytes());
            for _ in 0..more(n) {
                cursor.append(&pattern(who, n).to_ne_bytes());
            }
        };
        let (id, payload) = if n.is_multiple_of(4) {
            let len = 16 + 8 * more(n) as usize;
            (LONG, Payload::Made { len, fill: &fill })
        } else {
            (SHORT, Payload::Words(&words))
        };
        // SAFETY: `new` kept the promise of `open`, and ids are those of such payloads.
        unsafe {
            let (id, again) = (AtomicU16::new(id), Refusal::Again);
            write_slowly(self.rseq, &self.writers, &id, payload, again).is_ok()
        }
    }
}

/// Records that were read from one ring.
#[derive(Default)]
struct Read {
    /// Number of the last record of each writer.
    last: BTreeMap<u64, u64>,
    events: u64,
}

impl Read {
    fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Record { id, payload, .. } => {
                let words: Vec<_> = payload
                    .as_chunks()
                    .0
                    .iter()
                    .map(|word| u64::from_ne_bytes(*word))
                    .collect();
                let [who, n, rest @ ..] = &words[..] else {
                    panic!("a payload of {} bytes", payload.len());
                };
                assert_eq!(id, if n % 4 == 0 { LONG } else { SHORT });
                assert!(rest.iter().all(|&word| word == pattern(*who, *n)), "torn");
                let before = self.last.insert(*who, *n);
                assert!(before < Some(*n), "{who}: {n} after {before:?}");
                self.events += 1;
            }
            Item::SubBuffer { .. } | Item::Overwritten { .. } => {}
            Item::Gap { kind } => panic!("{kind:?}"),
        }
    }
}

/// Changes the mode of a channel until `done`.
fn change_modes(writers: &Writers, done: &AtomicBool) {
    let modes = [Mode::Discard, Mode::Overwrite, Mode::Block];
    for n in (0usize..).take_while(|_| !done.load(Ordering::Acquire)) {
        writers.set_mode(modes[n % 3]);
        if n.is_multiple_of(50) {
            thread::yield_now();
        }
    }
}

/// Checks that the reader found all accepted records, except for those that it counted as
/// overwritten.
fn check_counts(counts: &Counts, accepted: u64, mode: Mode, changes: bool, what: &str) {
    let gaps = [
        counts.holes,
        counts.unfinished,
        counts.corrupted,
        counts.damaged,
    ];
    assert_eq!(gaps, [0; 4], "{what}");
    if changes {
        assert!(counts.events <= accepted, "{what}");
        assert!(
            counts.events == accepted || counts.overwritten != 0,
            "{what}"
        );
    } else if mode == Mode::Overwrite {
        assert!(counts.events <= accepted, "{what}");
        assert_eq!(counts.events == accepted, counts.overwritten == 0, "{what}");
    } else {
        assert_eq!((counts.events, counts.overwritten), (accepted, 0), "{what}");
    }
}

/// Runs three writers, and a reader that reads while they write. `changes`: the mode changes
/// meanwhile, and the reader does not know it.
fn run(scope: Scope, protocol: Protocol, mode: Mode, changes: bool) {
    const WRITERS: u64 = 3;
    let events = if cfg!(miri) {
        100
    } else {
        counts(4_000, 20_000)
    };
    let rings = Rings::new(scope, protocol, mode);
    let done = AtomicBool::new(false);
    let (mut read, mut readers): (Vec<_>, Vec<_>) = (0..rings.nr)
        .map(|_| {
            let reader = RingReader::live(rings.format, 0, u64::MAX);
            (Read::default(), reader)
        })
        .unzip();
    let mut drain = |policy| {
        for n in 0..rings.nr {
            let mut ring = rings.ring(n);
            let head = ring.positions().head;
            let (reader, read) = (&mut readers[n as usize], &mut read[n as usize]);
            let Ok(()) = reader.read(&mut ring, head, policy, &Lengths, &mut |item: Item<'_>| {
                read.item(item);
                Ok::<_, Infallible>(())
            });
            rings.consume(n, reader.position());
        }
    };
    let accepted: u64 = thread::scope(|scope| {
        let writers: Vec<_> = (1..=WRITERS)
            .map(|who| {
                let rings = &rings;
                let write = move |&n: &u64| {
                    let accepted = rings.write(who, n);
                    // So that the reader is not always a lap behind, even with one CPU for all.
                    if !accepted || n.is_multiple_of(32) {
                        thread::yield_now();
                    }
                    accepted
                };
                scope.spawn(move || (1..=events).filter(write).count() as u64)
            })
            .collect();
        let done = &done;
        if changes {
            let rings = &rings;
            scope.spawn(move || change_modes(&rings.writers, done));
        }
        let reader = scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                drain(WaitPolicy::Wait);
                thread::yield_now();
            }
            // They are gone.
            drain(WaitPolicy::Last);
        });
        let accepted = writers.into_iter().map(|w| w.join().unwrap()).sum();
        done.store(true, Ordering::Release);
        reader.join().unwrap();
        accepted
    });
    let mut counts = Counts::default();
    for (n, reader) in (0..).zip(&readers) {
        // Up to the newest.
        assert_eq!(reader.position(), rings.ring(n).positions().head);
        counts += reader.counts();
    }
    let what = format!("{scope:?} {protocol:?} {mode:?}: {accepted} accepted, {counts:?}");
    assert_eq!(rings.lost() + accepted, WRITERS * events, "{what}");
    assert_eq!(
        counts.events,
        read.iter().map(|read| read.events).sum::<u64>(),
        "{what}"
    );
    check_counts(&counts, accepted, mode, changes, &what);
}

/// Requirements: D2, D3
#[test]
fn rings_of_cpus_are_read_while_they_are_written() {
    for mode in [Mode::Discard, Mode::Overwrite] {
        run(Scope::Cpu, Protocol::Rseq, mode, false);
        run(Scope::MmCid, Protocol::Rseq, mode, false);
    }
}

/// Requirements: D2, D3
#[test]
fn shared_rings_are_read_while_they_are_written() {
    for scope in [Scope::Global, Scope::Thread] {
        for mode in [Mode::Discard, Mode::Overwrite] {
            run(scope, Protocol::Shared, mode, false);
        }
    }
}

/// While the mode changes all the time, no record is torn, lost without being counted, or read
/// twice. A reader that checks `claimed` does not need to know the mode.
///
/// Requirements: E3
#[test]
fn mode_changes_tear_and_repeat_no_record() {
    for scope in [Scope::Cpu, Scope::MmCid] {
        run(scope, Protocol::Rseq, Mode::Overwrite, true);
    }
    for scope in [Scope::Global, Scope::Thread] {
        run(scope, Protocol::Shared, Mode::Overwrite, true);
    }
}
