//! Contestants take turns: each runs one batch per round, so that noise of the machine affects all
//! alike.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Code that is measured in turns with others.
pub(crate) struct Contestant<'a> {
    /// Runs before each batch, in one thread, untimed.
    pub(crate) prepare: Box<dyn Fn() + Sync + 'a>,
    /// The batch of a thread.
    pub(crate) batch: Box<dyn Fn(usize) + Sync + 'a>,
    /// Number of events in a batch.
    pub(crate) events: u64,
}

impl<'a> Contestant<'a> {
    pub(crate) fn new(events: u64, batch: impl Fn(usize) + Sync + 'a) -> Self {
        Self {
            prepare: Box::new(|| ()),
            batch: Box::new(batch),
            events,
        }
    }

    pub(crate) fn prepared(self, prepare: impl Fn() + Sync + 'a) -> Self {
        Self {
            prepare: Box::new(prepare),
            ..self
        }
    }
}

/// Number of warm-up rounds.
const WARM: usize = 3;

/// Nanoseconds of an event, for each contestant and round; of several threads that run at the same
/// time, the mean.
pub(crate) fn contest(
    contestants: &[Contestant<'_>],
    threads: usize,
    rounds: usize,
) -> Vec<Vec<f64>> {
    let times = Mutex::new(vec![vec![0.0; rounds]; contestants.len()]);
    let barrier = Barrier::new(threads);
    let ready = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (times, barrier, ready) = (&times, &barrier, &ready);
            scope.spawn(move || {
                pin(thread);
                let mut goal = 0;
                for round in 0..WARM + rounds {
                    for turn in 0..contestants.len() {
                        // The order changes from round to round.
                        let at = (turn + round) % contestants.len();
                        let contestant = &contestants[at];
                        if thread == 0 {
                            (contestant.prepare)();
                        }
                        barrier.wait();
                        // The barrier wakes one after the other; this lets them start together.
                        goal += threads;
                        ready.fetch_add(1, Ordering::AcqRel);
                        while ready.load(Ordering::Acquire) < goal {
                            spin_loop();
                        }
                        let time = timed(|| (contestant.batch)(thread));
                        if let Some(round) = round.checked_sub(WARM) {
                            let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
                            times[at][round] += time.as_secs_f64() * 1e9
                                / contestant.events as f64
                                / threads as f64;
                        }
                        barrier.wait();
                    }
                }
            });
        }
    });
    times.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Time of a call.
pub(crate) fn timed(batch: impl FnOnce()) -> Duration {
    let start = Instant::now();
    batch();
    start.elapsed()
}

/// Keeps the calling thread on the CPU of its number among those that it may use.
pub(crate) fn pin(thread: usize) {
    // SAFETY: sets of CPUs are plain data.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        let process = libc::getpid();
        assert_eq!(
            libc::sched_getaffinity(process, size_of_val(&all), &raw mut all),
            0
        );
        let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
            .filter(|&cpu| libc::CPU_ISSET(cpu, &all))
            .collect();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpus[thread % cpus.len()], &mut one);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&one), &raw const one),
            0
        );
    }
}
