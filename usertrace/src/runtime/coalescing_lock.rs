//! A lock that nobody waits for.

use std::sync::atomic::{AtomicU32, Ordering};

const IDLE: u32 = 0;
const BUSY: u32 = 1;
/// Busy, and somebody who came meanwhile wants it done again.
const AGAIN: u32 = 2;

/// Lets one caller at a time do something that others may want done, too, at any moment: in other
/// threads, and in a signal handler that interrupts the one who is at it. Nobody waits; who comes
/// second leaves a note, and the first does it once more.
///
/// All zeros is an idle one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct CoalescingLock(AtomicU32);

impl CoalescingLock {
    /// Does it, or leaves a note for the one who is at it.
    pub(crate) fn run(&self, mut body: impl FnMut()) {
        // Acquire pairs with the release at the end of another run. Release, of the note: what the
        // caller saw before is seen by the one who reads the note.
        let enter = |state| Some(if state == IDLE { BUSY } else { AGAIN });
        match self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter)
        {
            Ok(IDLE) => {}
            _ => return,
        }
        loop {
            body();
            if self
                .0
                .compare_exchange(BUSY, IDLE, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
            // Acquire pairs with the release of the note.
            self.0.swap(BUSY, Ordering::Acquire);
        }
    }

    /// Makes it idle in the child of a `fork`, where nobody is at it.
    pub(crate) fn reset(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn who_comes_meanwhile_is_served_afterwards() {
        let (lock, runs) = (CoalescingLock::default(), Cell::new(0));
        lock.run(|| {
            runs.set(runs.get() + 1);
            if runs.get() < 3 {
                // What a signal handler would do here.
                lock.run(|| panic!("two at a time"));
                lock.run(|| panic!("two at a time"));
            }
        });
        assert_eq!(runs.get(), 3);
        lock.run(|| runs.set(10));
        assert_eq!(runs.get(), 10);
    }

    #[test]
    fn nobody_is_forgotten() {
        let (lock, asked, served) = (
            CoalescingLock::default(),
            AtomicU64::new(0),
            AtomicU64::new(0),
        );
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        asked.fetch_add(1, Ordering::Relaxed);
                        lock.run(|| {
                            served.store(asked.load(Ordering::Relaxed), Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(served.into_inner(), asked.into_inner());
    }
}
