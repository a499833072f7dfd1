//! The event that the tests write, and checks of its records.

use std::collections::BTreeMap;

use usertrace::{Outcome, Status};

usertrace_testing::numbered_event!();

/// Length of its record: header word, `thread` and `number`, padding.
pub const RECORD_LEN: usize = 24;

/// Gets buffers for this process.
///
/// # Panics
/// If the process gets none.
pub fn attach() {
    assert_eq!(usertrace::init(), Status::Attached);
}

/// Writes the event.
#[inline]
pub fn write(thread: u32, number: u64) -> Outcome {
    usertrace::event!(numbered, thread, number)
}

/// Writes 10 events as thread 0, has a `vfork` child write 5 as thread 1, and writes 10 more.
/// Returns whether the parent's events were all recorded, and each of the child's had the expected
/// outcome.
#[must_use]
pub fn write_around_vfork(expected: Outcome) -> bool {
    let recorded = |number| write(0, number) == Outcome::Recorded;
    let mut ok = (0..10).all(recorded);
    #[allow(
        deprecated,
        reason = "programs do it; this one keeps nothing that the child changes"
    )]
    // SAFETY: the child writes events, to memory that it shares, and ends.
    let pid = unsafe { libc::vfork() };
    if pid == 0 {
        let good = (0..5).all(|number| write(1, number) == expected);
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = -1;
    // SAFETY: the child is this process's.
    ok &= unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid && status == 0;
    ok && (10..20).all(recorded)
}

/// Decodes a record of the event, without its header word.
///
/// # Panics
/// If it is too short.
#[must_use]
pub fn read(payload: &[u8]) -> (u32, u64) {
    let (thread, rest) = payload.split_at(4);
    (
        u32::from_ne_bytes(thread.try_into().expect("4 bytes")),
        u64::from_ne_bytes(rest[..8].try_into().expect("8 bytes")),
    )
}

/// The numbers of each thread, sorted.
#[must_use]
pub fn by_thread(events: impl IntoIterator<Item = (u32, u64)>) -> BTreeMap<u32, Vec<u64>> {
    let mut threads: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (thread, number) in events {
        threads.entry(thread).or_default().push(number);
    }
    for numbers in threads.values_mut() {
        numbers.sort_unstable();
    }
    threads
}

/// Checks that these are the numbers from 0 on, each once, and returns how many.
///
/// # Panics
/// If they are not.
pub fn check_prefix(numbers: &[u64]) -> u64 {
    for (expected, &number) in (0..).zip(numbers) {
        assert_eq!(number, expected, "of {}", numbers.len());
    }
    numbers.len() as u64
}
