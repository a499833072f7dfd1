//! A process that forks children, and kills each at a random instant while it writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use usertrace::Outcome;
use usertrace::fake::process::{child, wait};

use super::programs::{shared, write_one};

/// Threads of each child.
pub(crate) const THREADS: usize = 2;

/// Counts of a child's thread, in shared memory that outlives the child.
#[derive(Debug)]
#[repr(C)]
struct Witness {
    /// Events that were certainly recorded.
    recorded: AtomicU64,
    /// Events that were certainly lost.
    lost: AtomicU64,
    /// Whether an event was refused: in a burst of children, some find no buffers.
    is_off: AtomicU64,
}

impl Witness {
    /// Whether the thread's first event was recorded, lost, or refused.
    fn has_tried(&self) -> bool {
        let all = [&self.recorded, &self.lost, &self.is_off];
        all.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }
}

/// Numbers that differ between runs; they need not be random.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(time.unwrap().as_nanos() as u64 | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Prints a line for each child: its process id, and the recorded and lost events of each thread.
pub(crate) fn serve() {
    let count: usize = std::env::var("COUNT").unwrap().parse().unwrap();
    let mut random = Random::new();
    // Run several at once, so that both CPUs are busy while one dies.
    for n in 0..count {
        let witnesses: &[Witness; THREADS] = shared();
        let pid = child(|| live(witnesses));
        // On a busy machine, most children would be killed before their first event. Half are not.
        while n % 2 == 0 && !witnesses.iter().any(Witness::has_tried) {
            std::thread::yield_now();
        }
        let until = Instant::now() + Duration::from_micros(random.below(2500));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        // SAFETY: the signal goes to a child of this process.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        assert_eq!(wait(pid), libc::SIGKILL);
        let mut line = pid.to_string();
        for witness in witnesses {
            let recorded = witness.recorded.load(Ordering::Relaxed);
            line += &format!(" {recorded} {}", witness.lost.load(Ordering::Relaxed));
        }
        println!("{line}");
        // SAFETY: the child has ended, and this loop uses the mapping no more.
        unsafe {
            libc::munmap(
                std::ptr::from_ref(witnesses).cast_mut().cast(),
                size_of_val(witnesses),
            )
        };
    }
}

fn live(witnesses: &'static [Witness; THREADS]) {
    std::thread::scope(|scope| {
        for (thread, witness) in witnesses.iter().enumerate() {
            scope.spawn(move || {
                let mut n = 0;
                loop {
                    match write_one(thread as u32, n) {
                        Outcome::Recorded => {
                            n += 1;
                            witness.recorded.store(n, Ordering::Relaxed);
                            if n % 16 == 0 {
                                // Pause, so that not all time goes into full rings.
                                (0..200).for_each(|_| std::hint::spin_loop());
                            }
                        }
                        Outcome::Lost => {
                            witness.lost.fetch_add(1, Ordering::Relaxed);
                            (0..200).for_each(|_| std::hint::spin_loop());
                        }
                        Outcome::Off => witness.is_off.store(1, Ordering::Relaxed),
                    }
                }
            });
        }
    });
}
