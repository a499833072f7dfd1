//! Rings that go by concurrency ids: as those of CPUs, but that a thread takes its ring along.

use std::sync::Barrier;

use usertrace_sys::Scope;

use super::*;
use crate::writer::ring_index::{MM_CID, NO_INDEX};
use crate::writer::rseq::{forget_mm_cid, has_mm_cid};
use crate::writer::thread;

const RINGS: &str = "USERTRACE_TEST_RINGS";
const CIDS: &str = "mm_cid";

/// Of the rings of all these tests: of CPUs, but in a process in which they are made once more.
pub(super) fn scope() -> Scope {
    if std::env::var(RINGS).is_ok_and(|rings| rings == CIDS) {
        Scope::MmCid
    } else {
        Scope::Cpu
    }
}

fn cids(subbuf_size: u64, subbuf_count: u64) -> Rings {
    Rings::with(subbuf_size, subbuf_count, |geometry| Geometry {
        scope: Scope::MmCid,
        ..geometry
    })
}

pub(super) fn cid() -> u32 {
    rseq().unwrap().index::<MM_CID>()
}

/// Where the rings' heads are.
fn heads(rings: &Rings) -> Vec<u64> {
    rings.channel.positions().map(|(head, _)| head).collect()
}

/// Lets the calling thread run on this CPU only.
fn move_to(cpu: u32) {
    // SAFETY: as in `pin`.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        let ret = libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        assert_eq!(ret, 0);
    }
}

/// All that is true of rings of CPUs is true of these: deaths, signal handlers, `vfork`, time, long
/// records, waiting.
#[test]
fn everything_with_rings_of_concurrency_ids() {
    if scope() == Scope::MmCid {
        return;
    }
    run_with(
        (RINGS, CIDS),
        &[
            "writer::tests::",
            "--skip",
            "everything_with",
            // Of the event path alone, which does not know of these rings.
            "--skip",
            "a_route_that_was_changed",
        ],
    );
}

/// A thread that moves between CPUs keeps its ring: a process of one thread has one.
#[test]
fn a_thread_takes_its_ring_along() {
    const ROUNDS: u64 = 100;
    let rings = cids(1 << 16, 16);
    let status = in_child(|| {
        for n in 0..ROUNDS {
            move_to((n % u64::from(possible_cpus())) as u32);
            let (before, heads_before) = (cid(), heads(&rings));
            put(&rings, 1, &[n, !n]).unwrap();
            let after = cid();
            for (ring, (head, head_before)) in (0..).zip(heads(&rings).iter().zip(heads_before)) {
                let written = *head != head_before;
                assert!(before != after || written == (ring == before));
            }
        }
    });
    assert_eq!(status, 0);
    let decoded = rings.decode_all(|_| 2);
    let counts: Vec<_> = decoded.iter().map(|ring| ring.records.len()).collect();
    assert_eq!(counts.iter().sum::<usize>() as u64, ROUNDS);
    assert_eq!(counts.iter().filter(|&&count| count > 0).count(), 1);
}

/// Threads that run at the same time have different rings, and there are no more of these than
/// threads.
#[test]
fn threads_that_run_at_the_same_time_have_different_rings() {
    const EVENTS: u64 = 50_000;
    let rings = cids(1 << 18, 64);
    let status = in_child(|| {
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (rings, barrier) = (&rings, &barrier);
                scope.spawn(move || {
                    move_to(thread % possible_cpus());
                    barrier.wait();
                    for n in 0..EVENTS {
                        put(rings, 1, &[thread.into(), n, !n]).unwrap();
                    }
                });
            }
        });
    });
    assert_eq!((status, rings.lost()), (0, 0));
    let mut seen = [Vec::new(), Vec::new()];
    let mut used = 0;
    for ring in rings.decode_all(|_| 3) {
        used += u64::from(!ring.records.is_empty());
        for record in ring.records {
            let [thread, n, check] = record.payload[..] else {
                unreachable!()
            };
            assert_eq!(n, !check);
            seen[thread as usize].push(n);
        }
    }
    for numbers in &mut seen {
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..EVENTS));
    }
    // The thread that waits for them is one, too.
    assert!((2..=3).contains(&used), "{used}");
}

/// A kernel that does not maintain the ids leaves zeros, so all threads would write to one ring.
///
/// Requirements: F2
#[test]
fn without_ids_all_is_lost_and_counted() {
    let rings = cids(4096, 4);
    assert!(has_mm_cid());
    let status = in_child(|| {
        forget_mm_cid();
        assert_eq!(cid(), NO_INDEX);
        assert_eq!(put(&rings, 1, &[1]), Err(Dropped::Lost));
        assert_eq!(put_made(&rings, 1, 3000, &|_| {}), Err(Dropped::Lost));
    });
    assert_eq!((status, rings.lost()), (0, 2));
    assert!(heads(&rings).iter().all(|&head| head == 0));
}

/// The area of a thread that could not register has id 0, which belongs to another thread.
///
/// Requirements: F2
#[test]
fn a_thread_without_an_area_loses_its_events() {
    if !registration::is_without() {
        registration::run_without(&[
            "writer::tests::mm_cid::a_thread_without_an_area_loses_its_events",
            "--exact",
        ]);
        return;
    }
    let rings = cids(4096, 4);
    put(&rings, 1, &[1]).unwrap();
    let before = heads(&rings);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            thread::with(|thread| thread.registration.store(u16::MAX, Ordering::Relaxed));
            assert_eq!(cid(), NO_INDEX);
            assert_eq!(put(&rings, 1, &[2]), Err(Dropped::Lost));
            assert_eq!(put_made(&rings, 1, 3000, &|_| {}), Err(Dropped::Lost));
        });
    });
    assert_eq!((rings.lost(), heads(&rings)), (2, before));
}
