//! Where the C library registers no rseq area.

use super::*;
use crate::writer::thread;

const TUNABLE: &str = "GLIBC_TUNABLES";
const NO_RSEQ: &str = "glibc.pthread.rseq=0";

pub(super) fn is_without() -> bool {
    std::env::var(TUNABLE).is_ok_and(|value| value == NO_RSEQ)
}

/// Runs tests of this program in another process, in which the C library registers no area.
pub(super) fn run_without(arguments: &[&str]) {
    run_with((TUNABLE, NO_RSEQ), arguments);
}

/// All that is true with the C library's area is true with one of our own: threads come and go,
/// signal handlers trace, processes are killed.
#[test]
fn everything_with_an_area_of_our_own() {
    if !is_without() {
        run_without(&[
            "writer::tests::",
            "--skip",
            "everything_with",
            "--skip",
            "with_an_own",
        ]);
    }
}

/// A thread registers with its first event, and its end takes that back.
#[test]
fn a_thread_with_an_own_area() {
    if !is_without() {
        run_without(&[
            "writer::tests::registration::a_thread_with_an_own_area",
            "--exact",
        ]);
        return;
    }
    let cpu = || thread::with(|thread| thread.rseq[1].load(Ordering::Relaxed));
    let rings = Rings::new(1 << 16, 64);
    let found = rseq().unwrap();
    assert_eq!(found.to_raw(), thread::thread_offset());
    assert!(cpu() < possible_cpus());

    /// What a destructor of a younger key than the library's finds.
    static AFTER: AtomicU64 = AtomicU64::new(0);
    extern "C" fn after(_: *mut libc::c_void) {
        let cpu = thread::with(|thread| thread.rseq[1].load(Ordering::Relaxed));
        AFTER.store(u64::from(cpu) + 1, Ordering::Relaxed);
        // SAFETY: set before the thread was made.
        if let Some(rings) = unsafe { FOR_DESTRUCTOR.load(Ordering::Acquire).as_ref() } {
            // Too late: it must not register again.
            assert_eq!(put(rings, 1, &[2]), Err(Dropped::Lost));
        }
    }
    static FOR_DESTRUCTOR: AtomicPtr<Rings> = AtomicPtr::new(std::ptr::null_mut());
    FOR_DESTRUCTOR.store((&raw const rings).cast_mut(), Ordering::Release);
    let mut key = 0;
    // SAFETY: the destructor is this program's.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(after)) };
    assert_eq!(made, 0);

    for _ in 0..100 {
        AFTER.store(0, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(cpu(), u32::MAX);
                // SAFETY: the value is not used.
                unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
                put(&rings, 1, &[1]).unwrap();
                assert!(cpu() < possible_cpus());
            });
        });
        // The scope's end does not wait for destructors.
        while AFTER.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(AFTER.load(Ordering::Relaxed), u64::from(u32::MAX) + 1);
    }
    while rings.lost() < 100 {
        std::thread::yield_now();
    }
    assert_eq!(
        rings
            .decode_all(|_| 1)
            .iter()
            .map(|ring| ring.records.len())
            .sum::<usize>(),
        100
    );
    // SAFETY: all threads that had it are through.
    unsafe { libc::pthread_key_delete(key) };
}
