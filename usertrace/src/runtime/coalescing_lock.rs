//! A lock that no caller waits for: its holder runs again on behalf of later callers.

use std::sync::atomic::{AtomicU32, Ordering};

const IDLE: u32 = 0;
const BUSY: u32 = 1;
/// Busy, and another caller requested one more run.
const AGAIN: u32 = 2;

/// Runs an operation by one caller at a time. Further requests may come at any moment, from other
/// threads or from a signal handler that interrupts the holder. The lock is only tried: a second
/// caller sets a flag and returns, and the holder runs again.
///
/// All zeros is an idle lock. Async-signal-safe.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct CoalescingLock(AtomicU32);

impl CoalescingLock {
    /// Runs `body`, or makes the holder run its own once more.
    pub(crate) fn run(&self, mut body: impl FnMut()) {
        // Acquire pairs with the release at the end of another run. Release pairs with the swap
        // below: the holder's next run sees what this caller stored before.
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
            // Acquire pairs with the release of the requesting caller.
            self.0.swap(BUSY, Ordering::Acquire);
        }
    }

    /// Makes the lock idle in the child of a `fork`, where no thread holds it.
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
    fn nested_requests_cause_one_more_run() {
        let (lock, runs) = (CoalescingLock::default(), Cell::new(0));
        lock.run(|| {
            runs.set(runs.get() + 1);
            if runs.get() < 3 {
                // A signal handler may do this.
                lock.run(|| panic!("two at a time"));
                lock.run(|| panic!("two at a time"));
            }
        });
        assert_eq!(runs.get(), 3);
        lock.run(|| runs.set(10));
        assert_eq!(runs.get(), 10);
    }

    #[test]
    fn no_request_is_lost() {
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
