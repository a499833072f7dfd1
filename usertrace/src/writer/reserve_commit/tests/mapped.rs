//! Tests of the real writer in memory that processes share, with the real reader.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, Ordering};

use usertrace_ring::{
    Counts, Format, GapKind, Geometry as RingGeometry, Item, PayloadLengths, Positions, RingMemory,
    RingReader, SharedBytes, WaitPolicy,
};
use usertrace_sys::uapi::LttSubbuf;
use usertrace_sys::{Mode, Protocol, Scope};

use crate::os::{self, futex};
use crate::writer::channel::{Channel, Control, Geometry};
use crate::writer::tests::{fork, interrupted, shared as shared_memory, wait_for};
use crate::writer::wakeup::ReaderWakeup;
use crate::writer::{Dropped, reserve_commit};
use usertrace_testing::counts::counts;

const STRIDE: usize = 128;

/// The rings of a channel, in memory that children share.
pub(super) struct Rings {
    geometry: Geometry,
    /// Lies before the control blocks.
    reader_wakeup: &'static ReaderWakeup,
    memory: NonNull<u8>,
    len: usize,
    channel: Channel,
}

// SAFETY: all accesses to the rings are atomic, as the shared protocol requires; the other fields
// are not changed.
unsafe impl Send for Rings {}
// SAFETY: as for `Send`.
unsafe impl Sync for Rings {}

impl Rings {
    fn new(subbuf_size: u64, subbuf_count: u64, nr_rings: u32, scope: Scope, mode: Mode) -> Self {
        Self::with(
            subbuf_size,
            subbuf_count,
            nr_rings,
            scope,
            mode,
            |geometry| geometry,
        )
    }

    /// Opens rings with a changed geometry.
    pub(super) fn with(
        subbuf_size: u64,
        subbuf_count: u64,
        nr_rings: u32,
        scope: Scope,
        mode: Mode,
        change: impl FnOnce(Geometry) -> Geometry,
    ) -> Self {
        let control_len = STRIDE * (1 + nr_rings as usize);
        let len = control_len + (subbuf_size * subbuf_count) as usize * nr_rings as usize;
        let memory = shared_memory(len);
        // SAFETY: nothing else is at the start of the mapping, which `drop` unmaps together with
        // all users of the reference.
        let reader_wakeup = unsafe { memory.cast::<ReaderWakeup>().as_ref() };
        let geometry = Geometry {
            buffers: memory.as_ptr().wrapping_add(control_len),
            control: memory.as_ptr().wrapping_add(STRIDE),
            control_stride: STRIDE as u64,
            subbuf_size,
            subbuf_count,
            nr_rings,
            scope,
            mode,
            protocol: Protocol::Shared,
            wakeup: crate::writer::WakeupMethod::Futex(reader_wakeup),
            prefault: crate::writer::Prefault::Never,
            cell_size: 0,
            contexts: false,
            clock: crate::clock::Source::Processor,
            quiescence: None,
        };
        let geometry = change(geometry);
        let channel = Channel::default();
        // SAFETY: the geometry describes this memory, which outlives all writers: they borrow
        // `self`.
        unsafe { channel.open(&geometry) }.unwrap();
        Self {
            geometry,
            reader_wakeup,
            memory,
            len,
            channel,
        }
    }

    /// Opens the channel anew in a child of `fork`, as the runtime does.
    pub(super) fn open_in_child(&self) {
        self.channel.close();
        // SAFETY: the channel was just closed, and the child has no other thread that could be
        // inside.
        unsafe { self.reopen() };
    }

    /// # Safety
    /// The channel must be closed and quiescent.
    pub(super) unsafe fn reopen(&self) {
        // SAFETY: the geometry describes this memory. The caller keeps the channel closed and
        // quiescent.
        unsafe { self.channel.open(&self.geometry) }.unwrap();
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The memory of the control blocks and the rings.
    pub(super) fn memory(&self) -> NonNull<[u64]> {
        let start = NonNull::new(self.geometry.control.cast()).unwrap();
        NonNull::slice_from_raw_parts(start, (self.len - STRIDE) / 8)
    }

    pub(super) fn put(&self, id: u16, payload: &[u64]) -> Result<(), Dropped> {
        // SAFETY: `with` opened the channel with the geometry of this memory. These tests accept
        // any id.
        unsafe { reserve_commit::write(&self.channel, &AtomicU16::new(id), payload) }
    }

    fn control(&self, ring: u32) -> &Control {
        self.channel.ring_at(ring).unwrap().control
    }

    fn lost(&self) -> u64 {
        self.channel.positions().map(|(_, lost)| lost).sum()
    }

    fn reader(&self, ring: u32) -> Reader<'_> {
        let format = self.format();
        Reader {
            memory: self.ring_memory(ring),
            reader: RingReader::live(format, 0, u64::MAX),
        }
    }

    fn format(&self) -> Format {
        let (size, count) = (self.geometry.subbuf_size, self.geometry.subbuf_count);
        Format {
            geometry: RingGeometry::new(size as u32, count as u32).unwrap(),
            protocol: Protocol::Shared,
        }
    }

    fn ring_memory(&self, ring: u32) -> Memory<'_> {
        let size = self.geometry.ring_size() as usize;
        let start = self.geometry.buffers.wrapping_add(ring as usize * size);
        Memory {
            // SAFETY: the memory is mapped until `self` is dropped, which `Memory` borrows.
            bytes: unsafe { SharedBytes::new(NonNull::new(start).unwrap(), size) },
            control: self.control(ring),
        }
    }

    /// How many sub-buffers of a ring, from the oldest on, have no header, because the writer of
    /// each was killed before the store. A reader then has no full time to start from, and skips
    /// them.
    fn without_start(&self, ring: u32) -> u64 {
        let mut memory = self.ring_memory(ring);
        let (geometry, head) = (self.format().geometry, memory.positions().head);
        let mut is_begun = |start: u64| {
            let mut field = |at: usize| memory.load(geometry.offset(start) + at as u64);
            let position = field(std::mem::offset_of!(LttSubbuf, position));
            let contiguous = field(std::mem::offset_of!(LttSubbuf, contiguous));
            position == start && (start + 1..=start + geometry.subbuf_size()).contains(&contiguous)
        };
        let starts = (geometry.oldest(head)..head).step_by(geometry.subbuf_size() as usize);
        starts.take_while(|&start| !is_begun(start)).count() as u64
    }

    /// Makes the header of the first ring's sub-buffer look as before the store.
    fn forget_header(&self, subbuf: u64) {
        let offset = subbuf * self.geometry.subbuf_size;
        let header = self.geometry.buffers.wrapping_add(offset as usize);
        for field in [
            std::mem::offset_of!(LttSubbuf, position),
            std::mem::offset_of!(LttSubbuf, time),
            std::mem::offset_of!(LttSubbuf, cpu),
            std::mem::offset_of!(LttSubbuf, base),
            std::mem::offset_of!(LttSubbuf, contiguous),
        ] {
            // SAFETY: inside the ring, aligned, and accessed atomically.
            let word = unsafe { &*header.wrapping_add(field & !7).cast::<AtomicU64>() };
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Decodes a quiescent ring.
    fn dump(&self, ring: u32) -> (Vec<Found>, Counts) {
        let mut memory = self.ring_memory(ring);
        let reader = RingReader::dump(self.format(), &mut memory, u64::MAX);
        let mut reader = Reader { memory, reader };
        let found = reader.read(WaitPolicy::Last);
        (found, reader.reader.counts())
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and all borrows of it have ended.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}

struct Memory<'a> {
    bytes: SharedBytes<'a>,
    control: &'a Control,
}

impl RingMemory for Memory<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        self.bytes.read(offset, buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        self.bytes.load(offset)
    }

    fn positions(&mut self) -> Positions {
        std::sync::atomic::fence(Ordering::Acquire);
        Positions {
            head: self.control.head.load(Ordering::Acquire),
            claimed: 0,
        }
    }
}

/// Payloads are as long as their records.
struct Any;

impl PayloadLengths for Any {
    fn payload_len(&self, _id: u16, bytes: &[u8]) -> Option<usize> {
        Some(bytes.len())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    id: u16,
    /// The writer in the header of the sub-buffer.
    writer: u32,
    time: u64,
    payload: Vec<u64>,
}

struct Reader<'a> {
    memory: Memory<'a>,
    reader: RingReader,
}

impl Reader<'_> {
    fn read(&mut self, policy: WaitPolicy) -> Vec<Found> {
        let mut found = Vec::new();
        let mut writer = None;
        let head = self.memory.positions().head;
        let Ok(()) = self
            .reader
            .read(&mut self.memory, head, policy, &Any, &mut |item: Item<
                '_,
            >| {
                match item {
                    Item::SubBuffer { cpu, .. } => writer = Some(cpu),
                    Item::Record { id, time, payload } => found.push(Found {
                        id,
                        writer: writer.unwrap_or_default(),
                        time,
                        payload: payload
                            .as_chunks()
                            .0
                            .iter()
                            .map(|&word| u64::from_ne_bytes(word))
                            .collect(),
                    }),
                    Item::Gap { kind } => assert_ne!(kind, GapKind::Damaged),
                    Item::Overwritten { .. } => {}
                }
                Ok::<_, Infallible>(())
            });
        assert!(found.iter().map(|found| found.time).is_sorted());
        found
    }

    /// Marks everything that was read as consumed, and wakes waiting writers.
    fn consume(&self) {
        let control = self.memory.control;
        control
            .consumed
            .store(self.reader.position(), Ordering::SeqCst);
        if control.waiters.load(Ordering::SeqCst) != 0 {
            futex::wake(control.consumed_low(), u32::MAX);
        }
    }
}

fn gettid() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::gettid() as u32 }
}

/// The numbers of each thread, in the order of their records.
fn by_thread(found: &[Found]) -> BTreeMap<u64, Vec<u64>> {
    let mut threads = BTreeMap::<_, Vec<_>>::new();
    for found in found {
        let [thread, n, check, ..] = found.payload[..] else {
            panic!("{found:?}");
        };
        assert_eq!(check, !n);
        threads.entry(thread).or_default().push(n);
    }
    threads
}

/// Four threads write into one ring while a reader consumes it. The reader gets all records that
/// were not lost.
///
/// Requirements: D2, D3
#[test]
fn four_threads_and_a_reader() {
    const THREADS: u64 = 4;
    let events = counts(10_000, 50_000);
    for mode in [Mode::Block, Mode::Discard] {
        let rings = Rings::new(4096, 4, 1, Scope::Global, mode);
        let written = AtomicU64::new(0);
        let running = AtomicU64::new(THREADS);
        let mut found = Vec::new();
        let mut reader = rings.reader(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (rings, written, running) = (&rings, &written, &running);
                scope.spawn(move || {
                    let lens = [3, 4, 30];
                    for n in 0..events {
                        let mut payload = [n; 30];
                        payload[..3].copy_from_slice(&[thread, n, !n]);
                        if rings.put(1, &payload[..lens[n as usize % 3]]).is_ok() {
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    running.fetch_sub(1, Ordering::Release);
                });
            }
            while running.load(Ordering::Acquire) != 0 {
                found.extend(reader.read(WaitPolicy::Wait));
                reader.consume();
            }
        });
        found.extend(reader.read(WaitPolicy::Wait));
        let counts = reader.reader.counts();
        assert_eq!(counts.events, written.load(Ordering::Relaxed));
        assert_eq!(counts.events + rings.lost(), THREADS * events);
        assert_eq!(mode == Mode::Block, rings.lost() == 0);
        assert_eq!(
            (counts.unfinished, counts.corrupted, counts.damaged),
            (0, 0, 0)
        );
        for numbers in by_thread(&found).values() {
            assert!(numbers.is_sorted_by(|a, b| a < b));
        }
        assert_eq!(
            reader.reader.position(),
            rings.control(0).head.load(Ordering::Relaxed)
        );
        assert_ne!(rings.reader_wakeup.notifications.load(Ordering::Relaxed), 0);
    }
}

/// Four threads write into a ring that overwrites while a reader reads it. No record is torn or
/// read twice, and the reader gets the newest one.
///
/// Requirements: D3
#[test]
fn four_threads_overwrite_while_a_reader_reads() {
    const THREADS: u64 = 4;
    let events = counts(10_000, 50_000);
    let rings = Rings::new(4096, 4, 1, Scope::Global, Mode::Overwrite);
    let running = AtomicU64::new(THREADS);
    let mut found = Vec::new();
    let mut reader = rings.reader(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rings, running) = (&rings, &running);
            scope.spawn(move || {
                for n in 0..events {
                    // A record is lost only if other writers are inside all other places.
                    let _ = rings.put(1, &[thread, n, !n, n, n]);
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        while running.load(Ordering::Acquire) != 0 {
            found.extend(reader.read(WaitPolicy::Wait));
        }
    });
    found.extend(reader.read(WaitPolicy::Wait));
    let counts = reader.reader.counts();
    assert_eq!(
        (counts.unfinished, counts.corrupted, counts.damaged),
        (0, 0, 0)
    );
    for numbers in by_thread(&found).values() {
        assert!(numbers.is_sorted_by(|a, b| a < b), "twice, or out of order");
    }
    rings.put(1, &[0, events, !events]).unwrap();
    let last = reader.read(WaitPolicy::Wait);
    assert_eq!(last.last().unwrap().payload[1], events);
}

/// Each thread has its own ring, whose headers name the thread. When all of these are taken,
/// further threads share the last ring. The next owner of a released ring begins a new sub-buffer.
///
/// Requirements: D1
#[test]
fn each_thread_has_a_ring() {
    let rings = Rings::new(4096, 4, 4, Scope::Thread, Mode::Discard);
    let write = |n: u64| {
        rings.put(1, &[0, n, !n]).unwrap();
        rings.put(1, &[0, n, !n]).unwrap();
    };
    let (turn, over) = (AtomicU64::new(0), Barrier::new(4));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let (turn, over) = (&turn, &over);
                scope.spawn(move || {
                    while turn.load(Ordering::Acquire) != n {
                        std::thread::yield_now();
                    }
                    write(n);
                    turn.store(n + 1, Ordering::Release);
                    over.wait();
                    gettid()
                })
            })
            .collect();
        while turn.load(Ordering::Acquire) != 3 {
            std::thread::yield_now();
        }
        // All other rings are taken, so these threads write into the shared one.
        in_thread(|| write(3));
        in_thread(|| write(4));
        over.wait();
        for (ring, thread) in (0..).zip(threads) {
            let thread = thread.join().unwrap();
            assert_eq!(owner(&rings, ring), thread);
            let (found, _) = rings.dump(ring);
            assert_eq!(found.len(), 2);
            assert!(
                found
                    .iter()
                    .all(|found| found.writer == thread && found.payload[1] == u64::from(ring))
            );
        }
    });
    assert_eq!(owner(&rings, 3), 0);
    let (found, _) = rings.dump(3);
    let numbers: Vec<_> = found.iter().map(|found| found.payload[1]).collect();
    assert_eq!(numbers, [3, 3, 4, 4]);
    assert!(found.iter().all(|found| found.writer == 0));

    rings.control(1).owner.store(0, Ordering::Release);
    let thread = in_thread(|| write(5));
    assert_eq!(owner(&rings, 1), thread);
    let (found, _) = rings.dump(1);
    for found in found {
        assert_eq!(found.payload[1] == 5, found.writer == thread, "{found:?}");
    }
    assert_eq!(
        rings.control(1).head.load(Ordering::Relaxed),
        4096 + 64 + 2 * 40
    );
}

/// A thread does not take a full ring: it could not begin a sub-buffer, so its records would name
/// the previous owner. The next event tries again.
#[test]
fn a_full_ring_is_not_taken() {
    let rings = Rings::new(4096, 2, 2, Scope::Thread, Mode::Discard);
    let fill = || {
        std::thread::scope(|scope| {
            scope
                .spawn(|| while rings.put(1, &[0, 1, !1]).is_ok() {})
                .join()
                .unwrap();
        })
    };
    fill();
    rings.control(0).owner.store(0, Ordering::Release);
    rings.put(1, &[0, 2, !2]).unwrap();
    assert_eq!(rings.control(0).owner.load(Ordering::Relaxed), 0);
    let (found, _) = rings.dump(1);
    assert_eq!((found[0].writer, found[0].payload[1]), (0, 2));
    let mut reader = rings.reader(0);
    reader.read(WaitPolicy::Wait);
    reader.consume();
    rings.put(1, &[0, 3, !3]).unwrap();
    let found = reader.read(WaitPolicy::Wait);
    assert_eq!((found[0].writer, found[0].payload[1]), (gettid(), 3));
}

/// Runs `body` in a thread, and waits until the kernel has removed the thread. Returns its id.
fn in_thread(body: impl FnOnce() + Send) -> u32 {
    let thread = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            body();
            gettid()
        });
        thread.join().unwrap()
    });
    wait_for_end(thread);
    thread
}

/// Waits until the kernel has removed a thread, which is a moment after `join`.
fn wait_for_end(thread: u32) {
    while os::thread::may_exist(std::process::id(), thread) {
        std::thread::yield_now();
    }
}

fn owner(rings: &Rings, ring: u32) -> u32 {
    rings.control(ring).owner.load(Ordering::Relaxed)
}

/// More threads than rings run one after the other. Each has its own ring, whose sub-buffers name
/// the thread. The records of earlier owners remain. Writing does not change `errno`.
///
/// Requirements: A8
#[test]
fn rings_of_ended_threads_are_taken() {
    const THREADS: u64 = 20;
    let rings = Rings::new(4096, 32, 4, Scope::Thread, Mode::Discard);
    let mut threads = Vec::new();
    for n in 0..THREADS {
        threads.push(in_thread(|| {
            // SAFETY: the location of `errno` belongs to this thread.
            unsafe { *libc::__errno_location() = 77 };
            for _ in 0..3 {
                rings.put(1, &[0, n, !n]).unwrap();
            }
            // SAFETY: as above.
            assert_eq!(unsafe { *libc::__errno_location() }, 77);
        }));
    }
    let found: Vec<_> = (0..3).flat_map(|ring| rings.dump(ring).0).collect();
    assert_eq!(found.len() as u64, 3 * THREADS);
    for found in &found {
        assert_eq!(
            found.writer, threads[found.payload[1] as usize],
            "{found:?}"
        );
    }
    assert_eq!(rings.control(3).head.load(Ordering::Relaxed), 0);
    assert_eq!(rings.lost(), 0);
    // A thread that dies while it takes a ring leaves this bit set, and does not own the ring.
    for ring in 0..3 {
        let owner = &rings.control(ring).owner;
        owner.fetch_or(1 << 31, Ordering::Relaxed);
    }
    let thread = in_thread(|| rings.put(1, &[0, 99, !99]).unwrap());
    assert!((0..3).any(|ring| owner(&rings, ring) == thread));
}

/// A running thread keeps its ring, whether it writes or not.
///
/// Requirements: A8
#[test]
fn rings_of_running_threads_are_not_taken() {
    let rings = Rings::new(4096, 16, 4, Scope::Thread, Mode::Discard);
    let (wrote, over) = (Barrier::new(4), Barrier::new(4));
    std::thread::scope(|scope| {
        for n in 0..3 {
            let (rings, wrote, over) = (&rings, &wrote, &over);
            scope.spawn(move || {
                rings.put(1, &[0, n, !n]).unwrap();
                wrote.wait();
                over.wait();
                rings.put(1, &[0, n, !n]).unwrap();
            });
        }
        wrote.wait();
        let owners: Vec<_> = (0..3).map(|ring| owner(&rings, ring)).collect();
        for n in 3..10 {
            in_thread(|| rings.put(1, &[0, n, !n]).unwrap());
        }
        assert!((0..3).all(|ring| owner(&rings, ring) == owners[ring as usize]));
        over.wait();
    });
    for ring in 0..3 {
        let (found, _) = rings.dump(ring);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].payload, found[1].payload);
    }
    assert_eq!(rings.dump(3).0.len(), 7);
}

/// The full ring of an ended thread is not taken until it is read.
///
/// Requirements: D3
#[test]
fn unread_ring_of_an_ended_thread_is_not_taken() {
    let rings = Rings::new(4096, 2, 2, Scope::Thread, Mode::Discard);
    let first = in_thread(|| while rings.put(1, &[0, 1, !1]).is_ok() {});
    let full = rings.control(0).head.load(Ordering::Relaxed);
    in_thread(|| rings.put(1, &[0, 2, !2]).unwrap());
    assert_eq!(owner(&rings, 0), first);
    assert_eq!(rings.control(0).head.load(Ordering::Relaxed), full);
    assert_eq!(rings.dump(1).0[0].payload[1], 2);
    let mut reader = rings.reader(0);
    assert!(
        reader
            .read(WaitPolicy::Wait)
            .iter()
            .all(|found| found.writer == first)
    );
    reader.consume();
    let third = in_thread(|| rings.put(1, &[0, 3, !3]).unwrap());
    let found = reader.read(WaitPolicy::Wait);
    assert_eq!((found[0].writer, found[0].payload[1]), (third, 3));
}

/// A thread that writes to many channels in turn keeps its ring in each, and begins no sub-buffer
/// for a change of the channel.
///
/// Requirements: A7
#[test]
fn thread_keeps_its_rings_of_several_channels() {
    let channels: Vec<_> = (0..6)
        .map(|_| Rings::new(4096, 2, 4, Scope::Thread, Mode::Discard))
        .collect();
    in_thread(|| {
        for n in 0..10u64 {
            for rings in &channels {
                rings.put(1, &[0, n, !n]).unwrap();
            }
        }
    });
    for rings in &channels {
        assert_eq!(rings.control(0).head.load(Ordering::Relaxed), 64 + 10 * 40);
    }
}

/// A process that shares the memory, and was not created through the wrapper of `vfork`, takes
/// neither a free ring nor that of a running thread. It cannot find out that the thread runs,
/// because the thread belongs to another process.
///
/// Requirements: A5, F2
#[test]
fn process_that_shares_memory_takes_no_ring() {
    extern "C" fn write(rings: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the rings are alive, because the parent waits for this process.
        let rings = unsafe { &*rings.cast::<Rings>() };
        i32::from(rings.put(1, &[0, 9, !9]).is_err())
    }
    let rings = Rings::new(4096, 2, 4, Scope::Thread, Mode::Discard);
    let in_child = || {
        let mut stack = vec![0u128; 1 << 14];
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the child has its own stack, and with `CLONE_VFORK` this thread waits until the
        // child exits.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(stack.len()).cast();
            libc::clone(write, top, flags, (&raw const rings).cast_mut().cast())
        };
        assert_eq!(wait_for(pid), 0);
    };
    in_child();
    assert!((0..3).all(|ring| owner(&rings, ring) == 0));
    let wrote = Barrier::new(4);
    std::thread::scope(|scope| {
        for n in 0..3 {
            let (rings, wrote) = (&rings, &wrote);
            scope.spawn(move || {
                rings.put(1, &[0, n, !n]).unwrap();
                wrote.wait();
                wrote.wait();
            });
        }
        wrote.wait();
        let owners: Vec<_> = (0..3).map(|ring| owner(&rings, ring)).collect();
        in_child();
        assert!((0..3).all(|ring| owner(&rings, ring) == owners[ring as usize]));
        wrote.wait();
    });
    assert_eq!(rings.dump(3).0.len(), 2);
}

/// A signal handler writes an event while its thread takes the ring of an ended thread.
///
/// Requirements: D2
#[test]
fn signal_handler_traces_while_a_ring_is_taken() {
    let most = counts(600, 3000);
    // The ring has room for as many records of handlers. If threads start slowly, each gets more
    // signals, so fewer threads suffice.
    const SIGNALS: u64 = 50_000;
    let rings = Rings::new(1 << 16, 64, 2, Scope::Thread, Mode::Discard);
    let counts = shared_memory(4096).cast::<[AtomicU64; 2]>();
    let child = fork(|| {
        rings.open_in_child();
        FOR_HANDLER.store((&raw const rings).cast_mut(), Ordering::Release);
        let mut threads = 0;
        // SAFETY: as in `trace_in_handlers`; `counts` is mapped and written by this child only.
        unsafe {
            interrupted(trace_in_handler, || {
                while threads < most && HANDLED.load(Ordering::Relaxed) < SIGNALS {
                    in_thread(|| rings.put(1, &[1, threads, !threads]).unwrap());
                    threads += 1;
                }
            });
            let [wrote, handled] = counts.as_ref();
            wrote.store(threads, Ordering::Relaxed);
            handled.store(HANDLED.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    });
    assert_eq!(wait_for(child), 0);
    // SAFETY: the memory is mapped, and the child that wrote it has ended.
    let [threads, handled] = unsafe { counts.as_ref() }
        .each_ref()
        .map(|count| count.load(Ordering::Relaxed));
    let (mut found, mut counts) = rings.dump(0);
    let (common, more) = rings.dump(1);
    found.extend(common);
    counts += more;
    assert_eq!(
        (counts.unfinished, counts.corrupted, counts.damaged),
        (0, 0, 0)
    );
    let mut numbers = by_thread(&found);
    for numbers in numbers.values_mut() {
        numbers.sort_unstable();
    }
    assert!(numbers.remove(&1).unwrap().into_iter().eq(0..threads));
    assert!(handled > 0, "no signal came");
    assert!(numbers.remove(&9).unwrap().into_iter().eq(0..handled));
}

/// A record that is written in pieces has the same contents for any pieces. An abandoned record is
/// counted as unfinished.
#[test]
fn record_may_be_written_in_pieces() {
    let rings = Rings::new(4096, 2, 1, Scope::Global, Mode::Discard);
    let text: Vec<u8> = (0..100).collect();
    for pieces in [
        &[1, 2, 5, 8, 9, 3][..],
        &[8, 8],
        &[7],
        &[0, 3, 0],
        &[64, 1, 15],
        &[],
    ] {
        let len: usize = pieces.iter().sum();
        // SAFETY: as in `put`.
        let record =
            unsafe { reserve_commit::reserve::<false>(&rings.channel, &AtomicU16::new(9), len) };
        let mut record = record.unwrap();
        let mut rest = &text[..len];
        for &piece in pieces {
            let (now, later) = rest.split_at(piece);
            record.append(now);
            rest = later;
        }
        // Bytes beyond the reserved length are ignored.
        record.append(&[0xff; 16]);
        record.finish();
        let found = rings.dump(0).0.pop().unwrap();
        let bytes: Vec<_> = found
            .payload
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        assert_eq!(bytes.len(), len.next_multiple_of(8));
        assert_eq!(bytes[..len], text[..len]);
    }
    // SAFETY: as in `put`.
    drop(unsafe { reserve_commit::reserve::<false>(&rings.channel, &AtomicU16::new(9), 100) });
    rings.put(1, &[1, 2, 3]).unwrap();
    let (found, counts) = rings.dump(0);
    assert_eq!(found.last().unwrap().payload, [1, 2, 3]);
    assert_eq!(
        (counts.unfinished, counts.corrupted, counts.damaged),
        (1, 0, 0)
    );
    // A record that is longer than a sub-buffer.
    // SAFETY: as in `put`.
    let record = unsafe {
        reserve_commit::reserve::<false>(&rings.channel, &AtomicU16::new(9), 4096 - 64 - 15)
    };
    assert_eq!(record.err(), Some(Dropped::Lost));
    assert_eq!(rings.put(0, &[]), Err(Dropped::Closed), "no id");
    rings.channel.close();
    assert_eq!(rings.put(1, &[]), Err(Dropped::Closed));
}

static FOR_HANDLER: AtomicPtr<Rings> = AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn trace_in_handler(_: libc::c_int) {
    // SAFETY: the test stores the pointer before it installs the handler, and the rings outlive the
    // last signal.
    if let Some(rings) = unsafe { FOR_HANDLER.load(Ordering::Acquire).as_ref() } {
        let n = HANDLED.fetch_add(1, Ordering::Relaxed);
        rings.put(2, &[9, n, !n]).unwrap();
    }
}

/// A signal handler writes an event at any instruction of another event.
///
/// Requirements: D2
#[test]
fn a_signal_handler_traces_in_the_middle_of_an_event() {
    // A single ring is shared by all threads. Of two, the first belongs to the thread.
    for nr_rings in [1, 2] {
        trace_in_handlers(nr_rings);
    }
}

fn trace_in_handlers(nr_rings: u32) {
    let events = counts(50_000, 400_000);
    let rings = Rings::new(1 << 20, 32, nr_rings, Scope::Thread, Mode::Discard);
    let handled = shared_memory(4096).cast::<AtomicU64>();
    let child = fork(|| {
        rings.open_in_child();
        FOR_HANDLER.store((&raw const rings).cast_mut(), Ordering::Release);
        // SAFETY: the handler is async-signal-safe, and this child uses SIGALRM and its timer for
        // nothing else. `handled` is mapped.
        unsafe {
            interrupted(trace_in_handler, || {
                for n in 0..events {
                    rings.put(1, &[1, n, !n]).unwrap();
                }
            });
            handled
                .as_ref()
                .store(HANDLED.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    });
    assert_eq!(wait_for(child), 0);
    let (found, counts) = rings.dump(0);
    assert_eq!(
        (counts.unfinished, counts.corrupted, counts.damaged),
        (0, 0, 0)
    );
    let mut numbers = by_thread(&found);
    assert!(numbers.remove(&1).unwrap().into_iter().eq(0..events));
    // SAFETY: the memory is mapped, and the child that wrote it has ended.
    let handled = unsafe { handled.as_ref() }.load(Ordering::Relaxed);
    assert!(handled > 0, "no signal came");
    assert!(numbers.remove(&9).unwrap().into_iter().eq(0..handled));
}

/// Writes records of a thread until it is killed. Stores the number of committed ones in `witness`.
fn write_until_killed(rings: &Rings, thread: u64, mode: Mode, witness: &AtomicU64) {
    let mut written = 0;
    for n in 0.. {
        let payload = [thread, n, !n, n];
        if rings.put(1, &payload[..3 + n as usize % 2]).is_ok() {
            written = n + 1;
        } else if mode == Mode::Discard {
            // The ring is full, and no reader consumes it.
            loop {
                std::thread::park();
            }
        }
        witness.store(written, Ordering::Release);
    }
}

/// Checks the numbers of a killed thread's records. The thread had committed at least `committed`.
fn check_prefix(numbers: &[u64], committed: u64, mode: Mode) {
    let newest = numbers.last().map_or(0, |last| last + 1);
    // In a ring that overwrites, other threads may have overwritten all records of a thread.
    assert!(newest >= committed || mode == Mode::Overwrite && newest == 0);
    if mode == Mode::Discard {
        let first = numbers.first();
        assert!(first.is_none_or(|&first| first == 0), "{first:?}");
        assert!(
            numbers.iter().copied().eq(0..numbers.len() as u64),
            "not a prefix"
        );
    }
}

/// A reader gives up the oldest sub-buffers if the writers that began them were killed before they
/// stored the headers. It reads the later ones.
///
/// Requirements: A10
#[test]
fn oldest_sub_buffers_without_headers_are_given_up() {
    for killed in 0..3 {
        let rings = Rings::new(4096, 8, 1, Scope::Global, Mode::Discard);
        let child = fork(|| {
            rings.open_in_child();
            for n in 0..400 {
                rings.put(1, &[0, n, !n]).unwrap();
            }
        });
        assert_eq!(wait_for(child), 0);
        let (all, _) = rings.dump(0);
        for subbuf in 0..killed {
            rings.forget_header(subbuf);
        }
        assert_eq!(rings.without_start(0), killed);
        let (found, counts) = rings.dump(0);
        assert_eq!((counts.corrupted, counts.damaged), (killed, 0));
        assert_eq!(counts.damaged_bytes, killed * 4096);
        let numbers = |found: &[Found]| by_thread(found).remove(&0).unwrap();
        let (all, left) = (numbers(&all), numbers(&found));
        assert_eq!(left, all[all.len() - left.len()..]);
        assert!(left.len() > 100 && (killed == 0) == (left.len() == 400));
    }
}

/// Writers that are killed at any instant leave all committed records, of each thread from its
/// first one on. The reader counts the uncommitted ones.
///
/// Requirements: A10
#[test]
fn killed_writers_leave_a_prefix_of_each_thread() {
    for (threads, scope, mode) in [
        (1, Scope::Global, Mode::Discard),
        (3, Scope::Global, Mode::Discard),
        (3, Scope::Thread, Mode::Discard),
        (3, Scope::Global, Mode::Overwrite),
    ] {
        let rounds = counts(15, 60);
        for round in 0..rounds {
            let count = if mode == Mode::Overwrite { 4 } else { 1 << 9 };
            let rings = Rings::new(4096, count, 3, scope, mode);
            let memory = shared_memory(4096);
            // SAFETY: the memory is mapped and aligned. All processes access it atomically.
            let witness = unsafe { memory.cast::<[AtomicU64; 3]>().as_ref() };
            let child = fork(|| {
                rings.open_in_child();
                std::thread::scope(|scope| {
                    for thread in 0..threads {
                        let rings = &rings;
                        scope.spawn(move || {
                            write_until_killed(rings, thread, mode, &witness[thread as usize]);
                        });
                    }
                });
            });
            // The sum over all threads: a thread may not run before the others have filled the
            // ring.
            let written = || {
                witness
                    .iter()
                    .map(|w| w.load(Ordering::Acquire))
                    .sum::<u64>()
            };
            while written() < round * 3180 / rounds {
                std::hint::spin_loop();
            }
            // SAFETY: this test started the child, and has not waited for it.
            unsafe { libc::kill(child, libc::SIGKILL) };
            assert_eq!(libc::WTERMSIG(wait_for(child)), libc::SIGKILL);
            let (mut found, mut counts) = (Vec::new(), Counts::default());
            for ring in 0..3 {
                let (more, these) = rings.dump(ring);
                found.extend(more);
                counts += these;
            }
            assert!(counts.unfinished <= threads, "{counts:?}");
            assert_eq!(counts.damaged, 0);
            let mut numbers = by_thread(&found);
            for thread in 0..threads {
                let numbers = numbers.remove(&thread).unwrap_or_default();
                let committed = witness[thread as usize].load(Ordering::Acquire);
                // If the reader skipped a sub-buffer, records of other threads are missing, too.
                if counts.corrupted == 0 {
                    check_prefix(&numbers, committed, mode);
                }
            }
            // A writer may be killed between the reservation and the store of the header, mostly on
            // emulated processors, and where others keep it from running: one of each thread.
            let writers = if scope == Scope::Thread { 1 } else { threads };
            let without_start = [0, 1, 2].map(|ring| rings.without_start(ring));
            assert!(
                without_start.iter().all(|&count| count <= writers),
                "{without_start:?} {round}"
            );
            assert!(
                counts.corrupted <= without_start.iter().sum(),
                "{counts:?} {round}"
            );
            // SAFETY: `shared_memory` mapped it, and the last use of `witness` is above.
            unsafe { libc::munmap(memory.as_ptr().cast(), 4096) };
        }
    }
}
