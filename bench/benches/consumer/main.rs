//! Processor time of the consumer for an event, from a full ring to a stream file. Waiting for the
//! disk does not count.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use usertrace_ctf::{Clock, Identity, ProcessWriter, new_uuid};
use usertrace_ring::schema::{Description, Event};
use usertrace_ring::{Channel, Positions, RingMemory, RingReader, SharedBytes, WaitPolicy};
// The events in C are linked to each program here.
use usertrace_c as _;
use usertrace_sys::uapi::{
    LTT_CHANNEL_MAIN, LTT_ID_PAD, LTT_SUBBUF_MAGIC, LttClockSync, LttInfoChannel, LttRingControl,
    LttSubbuf,
};
use usertrace_sys::{Mode, Protocol, Scope};

const SUBBUF_SIZE: u64 = 1 << 20;
const SUBBUF_COUNT: u64 = 16;
/// Its payload is 32 bytes.
const EVENT: &str = "16 bench:numbers 6 u64 a;u64 b;u64 c;u64 d";
const EVENT_ID: u64 = 16;
const EVENT_WORDS: usize = 5;

/// A ring, as another process would have it.
struct Ring {
    words: Vec<AtomicU64>,
    events: u64,
}

impl Ring {
    fn full() -> Self {
        let words = (SUBBUF_SIZE * SUBBUF_COUNT / 8) as usize;
        let mut ring = Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            events: 0,
        };
        let mut time = 1_000_000;
        for start in (0..SUBBUF_COUNT).map(|n| n * SUBBUF_SIZE) {
            let mut at = (start / 8) as usize;
            let end = at + (SUBBUF_SIZE / 8) as usize;
            // A sub-buffer's header, then records.
            let header: [u64; size_of::<LttSubbuf>() / 8] = zerocopy::transmute!(LttSubbuf {
                position: start,
                time,
                magic: LTT_SUBBUF_MAGIC,
                ..LttSubbuf::default()
            });
            ring.put(&mut at, &header);
            while at + EVENT_WORDS <= end {
                time += 40;
                let n = ring.events;
                ring.put(&mut at, &[EVENT_ID | time << 16, n, n, n, n]);
                ring.events += 1;
            }
            if at < end {
                ring.put(&mut at, &[u64::from(LTT_ID_PAD) | time << 16]);
            }
        }
        ring
    }

    fn put(&mut self, at: &mut usize, words: &[u64]) {
        for word in words {
            *self.words[*at].get_mut() = *word;
            *at += 1;
        }
    }
}

impl RingMemory for &Ring {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        // SAFETY: the words live as long, and are atomics.
        let bytes = unsafe {
            SharedBytes::new(NonNull::from(&self.words[..]).cast(), self.words.len() * 8)
        };
        bytes.read(offset, buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        self.words[(offset / 8) as usize].load(Ordering::Acquire)
    }

    fn positions(&mut self) -> Positions {
        Positions {
            head: SUBBUF_SIZE * SUBBUF_COUNT,
            claimed: 0,
        }
    }
}

/// Time that this thread had of a processor.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it is this function's.
    let ret = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(ret, 0, "CLOCK_THREAD_CPUTIME_ID");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn writer(directory: &Path) -> ProcessWriter {
    let channel = Channel::new(&LttInfoChannel {
        subbuf_size: SUBBUF_SIZE as u32,
        subbuf_count: SUBBUF_COUNT as u32,
        nr_rings: 1,
        protocol: Protocol::Rseq as u32,
        mode: Mode::Discard as u32,
        scope: Scope::Cpu as u32,
        control_stride: size_of::<LttRingControl>() as u32,
        ..LttInfoChannel::default()
    })
    .expect("a channel");
    let sync = LttClockSync {
        cycles: 1_000_000,
        monotonic: 5_000_000_000,
        realtime: 1_700_000_000_000_000_000,
        freq: 1_000_000_000,
    };
    let identity = Identity {
        trace: "bench".to_owned(),
        comm: "bench".to_owned(),
        pid: 1,
        process: 1,
        hostname: None,
    };
    let event = Event::parse(EVENT.as_bytes()).expect("an event");
    let path = directory.join(identity.directory());
    let mut writer = ProcessWriter::resume(
        &path,
        identity,
        Clock::new(&sync, &[]),
        new_uuid().expect("a UUID"),
        vec![Description::Event(event)],
    )
    .expect("a trace");
    let reader = RingReader::live(channel.format(), 0, u64::MAX);
    writer
        .add_channel("main", LTT_CHANNEL_MAIN as u32, &channel, vec![reader], &[])
        .expect("its channel");
    writer
}

fn consumer(criterion: &mut Criterion) {
    let ring = Ring::full();
    let mut group = criterion.benchmark_group("consumer");
    group.throughput(Throughput::Elements(ring.events));
    group.sample_size(20);
    for (name, place) in [
        ("memory", "/dev/shm"),
        ("disk", env!("CARGO_TARGET_TMPDIR")),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|turns| {
                let turn = |_| {
                    let directory = tempfile::tempdir_in(place).expect("a directory");
                    let mut writer = writer(directory.path());
                    let head = SUBBUF_SIZE * SUBBUF_COUNT;
                    let begun = processor_time();
                    let end = writer.read(0, 0, &mut &ring, head, WaitPolicy::Wait);
                    let took = processor_time() - begun;
                    assert_eq!(end.expect("it is written"), head);
                    assert_eq!(writer.summary().events, ring.events);
                    took
                };
                (0..turns).map(turn).sum()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, consumer);
criterion_main!(benches);
