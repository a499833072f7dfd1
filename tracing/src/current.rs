//! The span that a thread is in.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// Who looked last, and the id that was found. Nobody, if the thread has entered or left a span
    /// since.
    static SEEN: Cell<(u32, u64)> = const { Cell::new((NOBODY, 0)) };
}

const NOBODY: u32 = 0;

/// Remembers the id of the current span for one subscriber: to ask for it takes atomic
/// instructions.
#[derive(Debug)]
pub(crate) struct Current {
    /// Tells apart the subscribers that a thread may have.
    who: u32,
}

impl Current {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(NOBODY);
        // Relaxed: it is only to be another number each time.
        let who = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { who }
    }

    /// The id, which `ask` asks for if it is not known.
    #[inline(always)]
    pub(crate) fn get(&self, ask: impl FnOnce() -> u64) -> u64 {
        match SEEN.get() {
            (who, id) if who == self.who => id,
            _ => {
                let id = ask();
                SEEN.set((self.who, id));
                id
            }
        }
    }

    /// This thread has entered or left a span.
    #[inline(always)]
    pub(crate) fn changed() {
        SEEN.set((NOBODY, 0));
    }
}
