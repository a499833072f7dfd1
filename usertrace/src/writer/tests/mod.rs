//! Tests of the writer in plain shared memory instead of the kernel's.

mod contexts;
#[cfg(feature = "fallback")]
mod count;
mod lent;
mod long;
mod mm_cid;
mod overwrite;
#[cfg(feature = "fallback")]
mod read;
mod registration;
mod waiting;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU64, Ordering};

use proptest::prelude::*;
use usertrace_sys::uapi::{
    LTT_ID_LONG, LTT_ID_PAD, LTT_ID_TIME, LTT_LONG_DONE, LTT_LONG_ID_SHIFT, LTT_LONG_LEN_MASK,
    LTT_SUBBUF_MAGIC, LttSubbuf,
};
use usertrace_sys::{Mode, Protocol, Scope};

use super::channel::{Control, GeometryError};
use super::*;
use crate::os::membarrier;
use usertrace_testing::counts::counts;

/// The rings of a channel, in memory that is shared with children.
struct Rings {
    geometry: Geometry,
    len: usize,
    channel: Channel,
}

// SAFETY: the memory is shared, and what is in it is accessed as the protocol says.
unsafe impl Send for Rings {}
// SAFETY: likewise.
unsafe impl Sync for Rings {}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    id: u16,
    time: u64,
    payload: Vec<u64>,
}

/// Contents of the control blocks and rings besides records.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    records: Vec<Record>,
    full_times: usize,
    /// Long records that are not done.
    busy: usize,
    /// Places at which no sub-buffer was begun.
    passed_over: usize,
    /// As the last sub-buffer's header says.
    lost: u64,
}

fn possible_cpus() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }
        .try_into()
        .unwrap()
}

/// Memory that children share.
pub(in crate::writer) fn shared(len: usize) -> NonNull<u8> {
    // SAFETY: a new mapping.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert_ne!(address, libc::MAP_FAILED);
    NonNull::new(address.cast()).unwrap()
}

impl Rings {
    fn new(subbuf_size: u64, subbuf_count: u64) -> Self {
        Self::with(subbuf_size, subbuf_count, |geometry| geometry)
    }

    /// Rings whose geometry is changed before they are opened.
    fn with(
        subbuf_size: u64,
        subbuf_count: u64,
        change: impl FnOnce(Geometry) -> Geometry,
    ) -> Self {
        let nr_rings = possible_cpus();
        let control_len = 128 * nr_rings as usize;
        let len = control_len + (subbuf_size * subbuf_count) as usize * nr_rings as usize;
        let memory = shared(len).as_ptr();
        let geometry = Geometry {
            buffers: memory.wrapping_add(control_len),
            control: memory,
            control_stride: 128,
            subbuf_size,
            subbuf_count,
            nr_rings,
            scope: mm_cid::scope(),
            mode: Mode::Discard,
            protocol: Protocol::Rseq,
            wakeup: WakeupMethod::None,
            prefault: Prefault::Never,
            cell_size: 0,
            contexts: false,
            clock: crate::clock::Source::Processor,
            quiescence: None,
        };
        let rings = Self {
            geometry: change(geometry),
            len,
            channel: Channel::default(),
        };
        rings.open();
        // Before any handler, or child, comes to ask for it in the middle of its being found.
        rseq();
        rings
    }

    fn open(&self) {
        // SAFETY: the geometry is that of the memory, and the tests that close a channel wait for
        // its writers.
        unsafe { self.channel.open(&self.geometry) }.unwrap();
    }

    fn control(&self, cpu: u32) -> &Control {
        self.channel.ring_at(cpu).unwrap().control
    }

    fn lost(&self) -> u64 {
        self.channel.positions().map(|(_, lost)| lost).sum()
    }

    /// The first ring that has something.
    fn written(&self) -> Option<u32> {
        let mut heads = (0..).zip(self.channel.positions());
        heads.find_map(|(ring, (head, _))| (head != 0).then_some(ring))
    }

    fn word(&self, cpu: u32, position: u64) -> u64 {
        // SAFETY: inside the ring; and no writer stores below `head`.
        unsafe {
            self.channel
                .ring_at(cpu)
                .unwrap()
                .at::<u64>(position)
                .read_volatile()
        }
    }

    /// Reads what lies between two positions; `words` says how long an event's payload is.
    fn decode_range(&self, cpu: u32, from: u64, to: u64, words: impl Fn(u16) -> usize) -> Decoded {
        let mut decoded = Decoded::default();
        let (mut position, mut time) = (from, 0u64);
        while position < to {
            let into = position % self.geometry.subbuf_size;
            if into == 0 {
                let begun = self.word(cpu, position);
                if begun != position {
                    assert!(begun < position, "a place that was passed over");
                    decoded.passed_over += 1;
                    position += self.geometry.subbuf_size;
                    continue;
                }
                time = self.word(cpu, position + 8);
                decoded.lost = self.word(cpu, position + 16);
                assert_eq!(
                    self.word(cpu, position + 24),
                    u64::from(cpu) | u64::from(LTT_SUBBUF_MAGIC) << 32
                );
                position += size_of::<LttSubbuf>() as u64;
                continue;
            }
            let header = self.word(cpu, position);
            let low = header >> 16;
            let moved = (time & !0xffff_ffff_ffff) | low;
            time = if moved < time {
                moved + (1 << 48)
            } else {
                moved
            };
            match header as u16 {
                LTT_ID_PAD => position += self.geometry.subbuf_size - into,
                LTT_ID_TIME => {
                    time = self.word(cpu, position + 8);
                    decoded.full_times += 1;
                    position += 16;
                }
                LTT_ID_LONG => {
                    let second = self.word(cpu, position + 8);
                    let len = second & LTT_LONG_LEN_MASK;
                    assert!(
                        len >= 16
                            && len.is_multiple_of(8)
                            && into + len <= self.geometry.subbuf_size
                    );
                    if second & LTT_LONG_DONE != 0 {
                        decoded.records.push(Record {
                            id: (second >> LTT_LONG_ID_SHIFT) as u16,
                            time,
                            payload: (2..len / 8)
                                .map(|n| self.word(cpu, position + 8 * n))
                                .collect(),
                        });
                    } else {
                        decoded.busy += 1;
                    }
                    position += len;
                }
                id => {
                    let words = words(id) as u64;
                    assert!(
                        into + 8 + 8 * words <= self.geometry.subbuf_size,
                        "straddles"
                    );
                    let payload = (1..=words)
                        .map(|n| self.word(cpu, position + 8 * n))
                        .collect();
                    decoded.records.push(Record { id, time, payload });
                    position += 8 + 8 * words;
                }
            }
        }
        assert_eq!(position, to, "head is not where the last record ends");
        decoded
    }

    fn decode(&self, cpu: u32, words: impl Fn(u16) -> usize) -> Decoded {
        self.decode_range(
            cpu,
            0,
            self.control(cpu).head.load(Ordering::Acquire),
            words,
        )
    }

    fn decode_all(&self, words: impl Fn(u16) -> usize + Copy) -> Vec<Decoded> {
        (0..self.geometry.nr_rings)
            .map(|cpu| self.decode(cpu, words))
            .collect()
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and its users borrowed it.
        unsafe { libc::munmap(self.geometry.control.cast(), self.len) };
    }
}

/// As the runtime has it: found once, by a thread that is not special.
fn rseq() -> Option<Rseq> {
    static FOUND: OnceLock<Rseq> = OnceLock::new();
    Some(*FOUND.get_or_init(|| Rseq::find().expect("these tests need a kernel with rseq")))
}

/// Keeps the calling thread on one CPU, and says which.
fn pin() -> u32 {
    // SAFETY: a set of CPUs is plain data, and the calls write or read nothing else.
    unsafe {
        let cpu = libc::sched_getcpu();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
            0
        );
        cpu as u32
    }
}

/// Calls `body` with the number of the ring to which all its events go.
fn on_one_ring(body: impl FnOnce(u32)) {
    let done = try_on_one_ring(|ring| {
        body(ring);
        Ok(())
    });
    if let Err(error) = done {
        panic!("{error}");
    }
}

/// As [`on_one_ring`], of something that may fail.
///
/// Where rings go by concurrency ids, it is called in a child: a thread that has one CPU and is not
/// the only one of its process can get another id while it does not run.
fn try_on_one_ring(
    body: impl FnOnce(u32) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    if mm_cid::scope() == Scope::Cpu {
        return body(pin());
    }
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // The child's end closes the pipe: the parent has no writer any more.
    let child = fork(move || {
        let body = AssertUnwindSafe(|| body(mm_cid::cid()));
        let failure = match std::panic::catch_unwind(body) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
                (Some(text), _) => text.clone(),
                (None, text) => (*text.unwrap_or(&"a panic")).to_owned(),
            },
        };
        writer.write_all(failure.as_bytes()).unwrap();
        panic!("told");
    });
    let mut failure = String::new();
    reader.read_to_string(&mut failure).unwrap();
    let status = wait_for(child);
    prop_assert!(status == 0, "the child's status was {status:#x}: {failure}");
    Ok(())
}

fn put<const WORDS: usize>(rings: &Rings, id: u16, payload: &[u64; WORDS]) -> Result<(), Dropped> {
    let route = Route::none();
    let number = id;
    let id = AtomicU16::new(number);
    // SAFETY: `open` kept its promise; ids mean events here.
    unsafe {
        route.set(&rings.channel, number);
        if try_write(rseq().unwrap(), &rings.channel, &route, payload) {
            return Ok(());
        }
        let payload = Payload::Words(payload);
        write_slowly(rseq(), &rings.channel, &id, payload, Refusal::Again)
    }
}

/// A payload that is made in place.
fn put_made(
    rings: &Rings,
    id: u16,
    len: usize,
    fill: &dyn Fn(&mut Cursor<'_>),
) -> Result<(), Dropped> {
    let id = AtomicU16::new(id);
    // SAFETY: as in `put`.
    unsafe {
        try_write_made(rseq(), &rings.channel, &id, len, fill).or_else(|refusal| {
            let payload = Payload::Made { len, fill };
            write_slowly(rseq(), &rings.channel, &id, payload, refusal)
        })
    }
}

fn put_words(rings: &Rings, id: u16, payload: &[u64]) -> Result<(), Dropped> {
    // SAFETY: as in `put`.
    unsafe { write_words(rseq(), &rings.channel, &AtomicU16::new(id), payload) }
}

#[test]
fn a_record_of_each_length() {
    let rings = Rings::new(4096, 4);
    on_one_ring(|cpu| {
        let before = crate::clock::cycles();
        put(&rings, 10, &[]).unwrap();
        put(&rings, 11, &[1]).unwrap();
        put(&rings, 12, &[1, 2]).unwrap();
        put(&rings, 13, &[1, 2, 3]).unwrap();
        put(&rings, 14, &[1, 2, 3, 4]).unwrap();
        put(&rings, 15, &[1, 2, 3, 4, 5]).unwrap();
        put(&rings, 19, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
        put_words(&rings, 10, &[]).unwrap();
        put_words(&rings, 12, &[8, 9]).unwrap();
        let after = crate::clock::cycles();

        let decoded = rings.decode(cpu, |id| usize::from(id) - 10);
        let payloads: Vec<_> = decoded
            .records
            .iter()
            .map(|record| record.payload.clone())
            .collect();
        let expected: [&[u64]; 9] = [
            &[],
            &[1],
            &[1, 2],
            &[1, 2, 3],
            &[1, 2, 3, 4],
            &[1, 2, 3, 4, 5],
            &[1, 2, 3, 4, 5, 6, 7, 8, 9],
            &[],
            &[8, 9],
        ];
        assert_eq!(payloads, expected);
        let times: Vec<_> = decoded.records.iter().map(|record| record.time).collect();
        assert!(times.is_sorted() && before <= times[0] && times[8] <= after);
        assert_eq!(rings.lost(), 0);
    });
}

/// A full ring drops the records that do not fit, and counts them.
///
/// Requirements: E7
#[test]
fn a_full_ring_drops_and_counts() {
    let rings = Rings::new(4096, 2);
    on_one_ring(|cpu| {
        let accepted = (0..1000)
            .filter(|&n| put(&rings, 1, &[n, 0]).is_ok())
            .count();
        // 24 bytes each, in what the header leaves of each of the two sub-buffers.
        assert_eq!(accepted, 2 * ((4096 - size_of::<LttSubbuf>()) / 24));
        assert_eq!(rings.lost(), 1000 - accepted as u64);
        let decoded = rings.decode(cpu, |_| 2);
        assert!(
            decoded
                .records
                .iter()
                .map(|record| record.payload[0])
                .eq(0..accepted as u64)
        );

        // The consumer reads the first sub-buffer: there is room for one again, which knows what
        // was lost before it.
        rings.control(cpu).consumed.store(4096, Ordering::Release);
        put(&rings, 1, &[1000, 0]).unwrap();
        let head = rings.control(cpu).head.load(Ordering::Acquire);
        let decoded = rings.decode_range(cpu, 8192, head, |_| 2);
        assert_eq!(decoded.records[0].payload, [1000, 0]);
        assert_eq!(decoded.lost, 1000 - accepted as u64);
    });
}

/// A time stamp's upper bits are stored when they are not those of the newest full time in the
/// ring.
#[test]
fn a_full_time_comes_first_where_it_is_needed() {
    let rings = Rings::new(4096, 2);
    on_one_ring(|cpu| {
        put(&rings, 1, &[1]).unwrap();
        rings
            .control(cpu)
            .time
            .fetch_xor(1 << 48, Ordering::Relaxed);
        put(&rings, 1, &[2]).unwrap();
        put(&rings, 1, &[3]).unwrap();
        let decoded = rings.decode(cpu, |_| 1);
        assert_eq!(decoded.full_times, 1);
        assert!(
            decoded
                .records
                .iter()
                .map(|record| record.payload[0])
                .eq(1..=3)
        );

        // There are less than 16 bytes left for it: the next sub-buffer has it in its header.
        while rings.control(cpu).head.load(Ordering::Relaxed) % 4096 != 4088 {
            put(&rings, 2, &[]).unwrap();
        }
        rings
            .control(cpu)
            .time
            .fetch_xor(1 << 48, Ordering::Relaxed);
        put(&rings, 2, &[]).unwrap();
        let decoded = rings.decode(cpu, |id| if id == 1 { 1 } else { 0 });
        assert_eq!(decoded.full_times, 1);
        assert!(decoded.records.iter().map(|record| record.time).is_sorted());
    });
}

#[test]
fn a_closed_channel_takes_nothing() {
    let rings = Rings::new(4096, 2);
    rings.channel.close();
    assert_eq!(put(&rings, 1, &[1]), Err(Dropped::Closed));
    // The state of the channel in a child of `fork`.
    let wiped = Channel::default();
    // SAFETY: a channel that was never opened.
    let result = unsafe { write_words(rseq(), &wiped, &AtomicU16::new(1), &[1]) };
    assert_eq!(result, Err(Dropped::Closed));
    rings.open();
    // An event that was not described: its id is no id.
    assert_eq!(put(&rings, 0, &[1]), Err(Dropped::Closed));
    assert_eq!(
        rings
            .channel
            .positions()
            .map(|(head, lost)| head + lost)
            .sum::<u64>(),
        0
    );
}

#[test]
fn a_cpu_without_a_ring_is_counted_in_the_first() {
    let rings = Rings::new(4096, 2);
    if possible_cpus() < 2 || mm_cid::scope() == Scope::MmCid {
        return;
    }
    // SAFETY: as in `pin`.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(1, &mut set);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
            0
        );
    }
    rings.channel.close();
    // SAFETY: the memory is that of `rings`, and no other thread writes.
    unsafe {
        rings.channel.open(&Geometry {
            nr_rings: 1,
            ..rings.geometry
        })
    }
    .unwrap();
    assert_eq!(put(&rings, 1, &[1]), Err(Dropped::Lost));
    assert_eq!(rings.lost(), 1);
}

#[test]
fn bad_geometry_is_refused() {
    let rings = Rings::new(4096, 2);
    let good = rings.geometry;
    let channel = Channel::default();
    for bad in [
        Geometry {
            subbuf_size: 0,
            ..good
        },
        Geometry {
            subbuf_size: 4096 + 8,
            ..good
        },
        Geometry {
            subbuf_size: 1024,
            ..good
        },
        Geometry {
            subbuf_size: 1 << 63,
            ..good
        },
        Geometry {
            subbuf_count: 1,
            ..good
        },
        Geometry {
            subbuf_count: 3,
            ..good
        },
        Geometry {
            control_stride: 64,
            ..good
        },
        Geometry {
            control_stride: 129,
            ..good
        },
        Geometry {
            nr_rings: 0,
            ..good
        },
        Geometry {
            buffers: good.buffers.wrapping_add(4),
            ..good
        },
        Geometry {
            scope: Scope::Thread,
            ..good
        },
        Geometry {
            scope: Scope::MmCid,
            protocol: Protocol::Shared,
            ..good
        },
    ] {
        // SAFETY: it is refused.
        assert_eq!(unsafe { channel.open(&bad) }, Err(GeometryError), "{bad:?}");
        assert!(!channel.is_open());
    }
}

/// An event reads its route before the restartable sequence. The sequence writes nothing if the
/// route has changed by then.
///
/// Requirements: A9
#[test]
fn a_route_that_was_changed_leads_nowhere() {
    let [rings, others] = [(); 2].map(|()| Rings::new(4096, 4));
    pin();
    let rseq = rseq().unwrap();
    let route = Route::none();
    assert!(route.channel().is_none());
    // SAFETY: both channels outlive the route, and are what `open` was promised; ids mean events
    // here.
    unsafe {
        put(&rings, 7, &[1]).unwrap();
        put(&others, 7, &[1]).unwrap();
        route.set(&rings.channel, 7);
        assert!(std::ptr::eq(
            route.channel().unwrap(),
            &raw const rings.channel
        ));
        assert!(try_write(rseq, &rings.channel, &route, &[2]));
        route.set(&others.channel, 8);
        assert!(!try_write(rseq, &rings.channel, &route, &[3]));
        assert!(try_write(rseq, &others.channel, &route, &[4]));
        route.clear();
        assert!(!try_write(rseq, &others.channel, &route, &[5]));
        route.set(&rings.channel, 0);
        assert!(route.channel().is_none());
    }
    let payloads = |rings: &Rings| -> Vec<(u16, Vec<u64>)> {
        let cpu = pin();
        let head = rings.control(cpu).head.load(Ordering::Acquire);
        let records = rings.decode_range(cpu, 0, head, |_| 1).records;
        records
            .into_iter()
            .map(|record| (record.id, record.payload))
            .collect()
    };
    assert_eq!(payloads(&rings), [(7, vec![1]), (7, vec![2])]);
    assert_eq!(payloads(&others), [(7, vec![1]), (8, vec![4])]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Over many laps, with records of all lengths and a consumer that reads now and then: what was
    /// accepted is there, in order, and what was not is counted.
    #[test]
    fn any_mix_of_lengths_and_reads(
        // Longer than 256 words is what takes a long record; more than 502 are too many.
        steps in prop::collection::vec((prop_oneof![4 => 0usize..=255, 1 => 256usize..=510], 0u8..8), 1..400),
        subbuf_count in prop::sample::select(vec![2u64, 4, 8]),
        block in any::<bool>(),
    ) {
        // Without a wakeup method, writers do not wait.
        let mode = if block { Mode::Block } else { Mode::Discard };
        let rings = Rings::with(4096, subbuf_count, |geometry| Geometry { mode, ..geometry });
        try_on_one_ring(|cpu| {
            let (mut written, mut read) = (Vec::new(), Vec::new());
            let (mut consumed, mut dropped) = (0, 0);
            let consume = |consumed: u64, read: &mut Vec<Record>| {
                let head = rings.control(cpu).head.load(Ordering::Acquire);
                read.extend(rings.decode_range(cpu, consumed, head, |id| usize::from(id) - 1).records);
                head
            };
            for (n, &(words, action)) in steps.iter().enumerate() {
                let payload: Vec<u64> = (0..words as u64).map(|word| n as u64 * 1000 + word).collect();
                match put_words(&rings, words as u16 + 1, &payload) {
                    Ok(()) => {
                        prop_assert!(words <= 502);
                        written.push(payload);
                    }
                    Err(Dropped::Lost) => dropped += 1,
                    Err(Dropped::Closed) => prop_assert!(false, "not closed"),
                }
                if action == 0 {
                    let head = consume(consumed, &mut read);
                    // A consumer may stop anywhere between two records; the writer needs whole
                    // sub-buffers.
                    rings.control(cpu).consumed.store(head, Ordering::Release);
                    consumed = head;
                }
            }
            consume(consumed, &mut read);
            prop_assert_eq!(rings.lost(), dropped);
            prop_assert!(read.iter().map(|record| record.time).is_sorted());
            let payloads: Vec<_> = read.into_iter().map(|record| record.payload).collect();
            prop_assert_eq!(payloads, written);
            Ok(())
        })?;
    }
}

/// Several threads write on all CPUs: each record is whole, each ring is in order of time, and no
/// record is missing.
///
/// Requirements: A3, B6
#[test]
fn threads_share_the_rings() {
    const THREADS: u64 = 6;
    let events = counts(20_000, 100_000);
    let rings = Rings::new(1 << 20, 32);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let rings = &rings;
            scope.spawn(move || {
                for n in 0..events {
                    put(rings, 1, &[thread, n, !n]).unwrap();
                }
            });
        }
    });
    assert_eq!(rings.lost(), 0);
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for decoded in rings.decode_all(|_| 3) {
        assert!(decoded.records.iter().map(|record| record.time).is_sorted());
        let mut newest = BTreeMap::new();
        for record in decoded.records {
            let [thread, n, check] = record.payload[..] else {
                unreachable!()
            };
            assert_eq!(n, !check);
            assert!(newest.insert(thread, n).is_none_or(|before| before < n));
            seen.entry(thread).or_default().push(n);
        }
    }
    assert_eq!(seen.len(), THREADS as usize);
    for numbers in seen.values_mut() {
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..events));
    }
}

/// Rings that a signal handler finds.
static FOR_HANDLER: AtomicPtr<Rings> = AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn trace_in_handler(_: libc::c_int) {
    // SAFETY: set before the handler was installed, and valid until the process is done with it.
    if let Some(rings) = unsafe { FOR_HANDLER.load(Ordering::Acquire).as_ref() } {
        let n = HANDLED.fetch_add(1, Ordering::Relaxed);
        put(rings, 2, &[n, !n]).unwrap();
    }
}

/// Runs `body` in a child, whose status is 0 then, or 1 if it panics.
pub(in crate::writer) fn fork(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child only runs code that needs no lock of another thread: it makes threads,
    // writes events, and ends.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let done = std::panic::catch_unwind(AssertUnwindSafe(body)).is_ok();
            libc::_exit(i32::from(!done));
        }
        pid
    }
}

/// Does something in the end, also if a test fails.
pub(in crate::writer) struct AtEnd<F: Fn()>(pub(in crate::writer) F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// How a child ended.
pub(in crate::writer) fn wait_for(pid: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    // SAFETY: the child is the caller's.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Runs tests of this program in another process, with this in its environment; but none that this
/// one was told to skip.
fn run_with((name, value): (&str, &str), arguments: &[&str]) {
    let own: Vec<_> = std::env::args().collect();
    let skipped = own.windows(2).filter(|pair| pair[0] == "--skip").flatten();
    let output = Command::new(std::env::current_exe().unwrap())
        .env(name, value)
        .args(arguments)
        .args(skipped)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !text.contains(" 0 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs `body` in a child, and says how the child ended.
fn in_child(body: impl FnOnce()) -> libc::c_int {
    wait_for(fork(body))
}

/// Calls `body`, and `handler` in the middle of it, each 50 microseconds.
///
/// # Safety
/// `handler` must be async-signal-safe, and SIGALRM and its timer this caller's.
pub(in crate::writer) unsafe fn interrupted(
    handler: extern "C" fn(libc::c_int),
    body: impl FnOnce(),
) {
    let each = |tv_usec| {
        let time = libc::timeval { tv_sec: 0, tv_usec };
        let timer = libc::itimerval {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: `handler` may be called as a signal handler, as this function's caller promises.
        // A timer of zeros is none.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    };
    // SAFETY: as above.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
    }
    each(50);
    body();
    each(0);
}

/// D2's nesting, with rseq: a signal handler that traces in the middle of an event is simply first.
#[test]
fn a_signal_handler_traces_in_the_middle_of_an_event() {
    let count = counts(50_000, 400_000);
    let rings = Rings::new(1 << 20, 32);
    let handled = shared(4096).cast::<AtomicU64>();
    let status = in_child(|| {
        FOR_HANDLER.store((&raw const rings).cast_mut(), Ordering::Release);
        // SAFETY: the handler is async-signal-safe, and the process is the test's own.
        unsafe {
            interrupted(trace_in_handler, || {
                for n in 0..count {
                    put(&rings, 1, &[n, !n]).unwrap();
                }
            });
            handled
                .as_ref()
                .store(HANDLED.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    });
    assert_eq!(status, 0);
    let (mut events, mut handlers) = (Vec::new(), Vec::new());
    for decoded in rings.decode_all(|_| 2) {
        assert!(decoded.records.iter().map(|record| record.time).is_sorted());
        for record in decoded.records {
            assert_eq!(record.payload[0], !record.payload[1]);
            let list = if record.id == 1 {
                &mut events
            } else {
                &mut handlers
            };
            list.push(record.payload[0]);
        }
    }
    events.sort_unstable();
    handlers.sort_unstable();
    assert!(events.into_iter().eq(0..count));
    // SAFETY: written by the child, which is gone.
    let handled = unsafe { handled.as_ref() }.load(Ordering::Relaxed);
    assert!(handled > 0, "no signal came");
    assert!(handlers.into_iter().eq(0..handled));
}

/// A process that is killed at any instruction leaves all events that it has committed, and no
/// others.
///
/// Requirements: A10
#[test]
fn a_killed_process_leaves_a_prefix() {
    let rounds = counts(25, 100);
    for round in 0..rounds {
        let rings = Rings::new(1 << 20, 16);
        let witness = shared(4096).cast::<AtomicU64>();
        // SAFETY: as in `in_child`; the parent kills the child that it made.
        unsafe {
            let pid = libc::fork();
            assert!(pid >= 0);
            if pid == 0 {
                for n in 0.. {
                    if put(&rings, 1, &[n, !n]).is_ok() {
                        witness.as_ref().store(n + 1, Ordering::Release);
                    } else {
                        loop {
                            libc::pause();
                        }
                    }
                }
            }
            while witness.as_ref().load(Ordering::Acquire) < round * 3700 / rounds {
                std::hint::spin_loop();
            }
            libc::kill(pid, libc::SIGKILL);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
        }
        let mut numbers = Vec::new();
        for decoded in rings.decode_all(|_| 2) {
            for record in decoded.records {
                assert_eq!(record.payload[0], !record.payload[1]);
                numbers.push(record.payload[0]);
            }
        }
        numbers.sort_unstable();
        assert!(
            numbers.iter().copied().eq(0..numbers.len() as u64),
            "not a prefix"
        );
        // SAFETY: the child is gone.
        let witness_value = unsafe { witness.as_ref() }.load(Ordering::Acquire);
        assert!(
            numbers.len() as u64 >= witness_value,
            "an event that was committed is missing"
        );
        // SAFETY: mapped above.
        unsafe { libc::munmap(witness.as_ptr().cast(), 4096) };
    }
}

/// A debugger that steps through an event aborts each sequence: the program goes on, and the loss
/// is counted.
#[test]
fn single_steps_do_not_hang() {
    let rings = Rings::new(4096, 4);
    let cpu = pin();
    put(&rings, 1, &[1]).unwrap();
    let head = rings.control(cpu).head.load(Ordering::Acquire);
    // SAFETY: as in `in_child`; the child is traced by its parent alone.
    let steps = unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            let result = put(&rings, 1, &[2]);
            libc::_exit(if result == Err(Dropped::Lost) { 0 } else { 1 });
        }
        let mut steps = 0u64;
        loop {
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            if libc::WIFEXITED(status) {
                assert_eq!(
                    libc::WEXITSTATUS(status),
                    0,
                    "the event was not counted as lost"
                );
                break steps;
            }
            assert!(libc::WIFSTOPPED(status), "the child died: {status:#x}");
            steps += 1;
            assert_eq!(libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0), 0);
        }
    };
    assert!(steps > 100, "it was not stepped through");
    assert_eq!(rings.lost(), 1);
    assert_eq!(rings.control(cpu).head.load(Ordering::Acquire), head);
}

/// After a channel is closed and all running sequences are restarted, no writer stores into its
/// rings.
///
/// Requirements: A9
#[test]
fn no_writer_stores_into_a_closed_quiescent_channel() {
    membarrier::register().unwrap();
    let rings = Rings::new(4096, 4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopped = AtEnd(|| stop.store(true, Ordering::Relaxed));
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = put(&rings, 1, &[1, 2, 3]);
                }
            });
        }
        for _ in 0..500 {
            // A writer has begun.
            while rings.written().is_none() {
                std::hint::spin_loop();
            }
            rings.channel.close();
            membarrier::restart().unwrap();
            // SAFETY: the whole memory of the rings; the test checks that no writer accesses it.
            unsafe {
                std::ptr::write_bytes(rings.geometry.control, 0, rings.len);
                for _ in 0..20 {
                    std::hint::spin_loop();
                }
                let words =
                    std::slice::from_raw_parts(rings.geometry.control.cast::<u64>(), rings.len / 8);
                assert!(words.iter().all(|&word| word == 0));
            }
            rings.open();
        }
    });
}
