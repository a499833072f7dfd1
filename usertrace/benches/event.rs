//! What one event costs, against the floor: the time stamp and the same stores, into a ring of the same size.
//!
//! Machines are noisy, and in a virtual machine most of the floor is `rdtsc`. So what counts is the ratio, of medians
//! taken in turns; it is printed at the end.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use usertrace::fake::{Fake, Sizes};
use usertrace::runtime::init_with;
use usertrace::{Outcome, Status, event};

usertrace::tracepoint! {
    mod empty { provider: "bench", name: "empty", loglevel: Info, fields: {} }
}
usertrace::tracepoint! {
    mod number { provider: "bench", name: "number", loglevel: Info, fields: { n: u32 } }
}
usertrace::tracepoint! {
    mod numbers { provider: "bench", name: "numbers", loglevel: Info, fields: { a: u64, b: u64, c: u64, d: u64 } }
}
usertrace::tracepoint! {
    mod text { provider: "bench", name: "text", loglevel: Info, fields: { n: u32, text: str } }
}
/// Stays disabled: each trace of the fake kernel wants every event, so this one is not asked for by any.
mod disabled {
    use usertrace::event::{Callsite, Loglevel};
    pub(crate) static CALLSITE: Callsite = Callsite::new("bench", "disabled", Loglevel::Info, "");
    pub(crate) fn record(_: u64) -> usertrace::Outcome {
        unreachable!("no trace wants it")
    }
}

const SIZES: Sizes = Sizes {
    subbuf_size: [4096, 65536],
    subbuf_count: [4, 32],
};
/// Events between two reads: as many of the longest as are in half a ring.
const BATCH: u64 = 65536 * 16 / 40;

/// A ring without any protocol.
struct Floor {
    ring: Vec<u64>,
    head: u64,
}

impl Floor {
    fn new() -> Self {
        Self {
            ring: vec![1; 65536 * 32 / 8],
            head: 0,
        }
    }

    #[inline(always)]
    fn event<const WORDS: usize>(&mut self, payload: [u64; WORDS]) {
        let at = (self.head as usize) & (65536 * 32 / 8 - 1);
        // SAFETY: a record that would not fit at the end starts at the front, as a ring's record would.
        unsafe {
            let at = if at + WORDS < self.ring.len() { at } else { 0 };
            let to = self.ring.as_mut_ptr().add(at);
            to.write_volatile(usertrace::clock::cycles() << 16 | 1);
            for (n, word) in payload.into_iter().enumerate() {
                to.add(n + 1).write_volatile(word);
            }
        }
        self.head += 1 + WORDS as u64;
    }
}

/// Times events, and reads the ring between batches, untimed.
fn timed(fake: &Fake, slot: usize, count: u64, mut event: impl FnMut(u64)) -> Duration {
    let (mut left, mut total) = (count, Duration::ZERO);
    while left > 0 {
        let batch = left.min(BATCH);
        fake.consume(0, slot);
        let start = Instant::now();
        (0..batch).for_each(&mut event);
        total += start.elapsed();
        left -= batch;
    }
    total
}

fn must(outcome: Outcome) {
    assert_eq!(outcome, Outcome::Recorded);
}

fn pin() {
    // SAFETY: a set of CPUs is plain data.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Median of the ratios of neighbours in time.
fn ratio(mut event: impl FnMut() -> Duration, mut floor: impl FnMut() -> Duration) -> (f64, f64) {
    let mut pairs: Vec<(f64, f64)> = (0..301)
        .map(|_| {
            let (event, floor) = (event().as_secs_f64(), floor().as_secs_f64());
            (event / floor, event / BATCH as f64 * 1e9)
        })
        .collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    pairs[pairs.len() / 2]
}

fn main() {
    pin();
    let fake = Fake::new(SIZES);
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    let slot = fake.create().expect("a slot");
    fake.start(slot);
    // SAFETY: the runtime's handler is installed.
    unsafe { libc::raise(libc::SIGRTMIN() + 3) };
    let mut floor = Floor::new();

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("event");
    group.throughput(Throughput::Elements(1));
    macro_rules! bench {
        ($name:literal, $event:expr) => {
            group.bench_function($name, |bencher| {
                bencher.iter_custom(|count| timed(fake, slot, count, $event));
            });
        };
    }
    bench!("floor/empty", |_| floor.event([]));
    bench!("floor/u32", |n| floor.event([black_box(n)]));
    bench!("floor/32 bytes", |n| floor.event([black_box(n), n, n, n]));
    bench!("empty", |_| must(event!(empty)));
    bench!("u32", |n| must(event!(number, black_box(n) as u32)));
    bench!("32 bytes", |n| must(event!(numbers, black_box(n), n, n, n)));
    bench!("u32 and 20 bytes of text", |n| must(event!(
        text,
        n as u32,
        "twenty bytes of text"
    )));
    bench!("disabled", |n| {
        let _ = black_box(event!(disabled, n));
    });
    group.finish();

    let ratios = [
        (
            "empty",
            ratio(
                || timed(fake, slot, BATCH, |_| must(event!(empty))),
                || timed(fake, slot, BATCH, |_| floor.event([])),
            ),
        ),
        (
            "u32",
            ratio(
                || {
                    timed(fake, slot, BATCH, |n| {
                        must(event!(number, black_box(n) as u32))
                    })
                },
                || timed(fake, slot, BATCH, |n| floor.event([black_box(n)])),
            ),
        ),
        (
            "32 bytes",
            ratio(
                || {
                    timed(fake, slot, BATCH, |n| {
                        must(event!(numbers, black_box(n), n, n, n))
                    })
                },
                || timed(fake, slot, BATCH, |n| floor.event([black_box(n), n, n, n])),
            ),
        ),
    ];
    for (name, (ratio, time)) in ratios {
        println!("{name}: {ratio:.2} times the floor ({time:.1} ns)");
    }
}
