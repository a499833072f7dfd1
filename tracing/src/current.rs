//! Cache of a thread's current span.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// The subscriber that looked last, and the id that it found. `NOBODY` if the thread has
    /// entered or left a span since.
    static CACHED: Cell<(u32, u64)> = const { Cell::new((NOBODY, 0)) };
}

const NOBODY: u32 = 0;

/// Caches the id of the current span for one subscriber: a query takes atomic instructions.
#[derive(Debug)]
pub(crate) struct CurrentSpan {
    /// Distinguishes the subscribers that a thread may have.
    subscriber: u32,
}

impl CurrentSpan {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(NOBODY);
        // Relaxed: only the number must be unique.
        let subscriber = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { subscriber }
    }

    /// The id; `query` finds it if it is not cached.
    #[inline(always)]
    pub(crate) fn get(&self, query: impl FnOnce() -> u64) -> u64 {
        match CACHED.get() {
            (subscriber, id) if subscriber == self.subscriber => id,
            _ => {
                let id = query();
                CACHED.set((self.subscriber, id));
                id
            }
        }
    }

    /// Clears the cache: this thread has entered or left a span.
    #[inline(always)]
    pub(crate) fn clear() {
        CACHED.set((NOBODY, 0));
    }
}
