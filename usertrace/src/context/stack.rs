//! The memory of the stack that a walk follows. Async-signal-safe.
//!
//! A walk reads only memory that it knows to be readable:
//!
//! - The stack of a thread ends at the thread's control block, that of the first thread at the
//!   strings that the kernel put there. If all pages between the stack pointer and that end are
//!   readable, they are the stack: they stay mapped as long as the code runs that asks. The thread
//!   remembers that range.
//! - On other stacks, as of signal handlers and coroutines, the walk probes each page, each time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::memory::is_readable;
use crate::unwind::{KnownMemory, StackMemory};
use crate::writer;

const PAGE: usize = 4096;
/// Largest known stack. Checking a larger one would take too long.
const MAX_STACK: usize = 16 << 20;
/// How far a walk of an unknown stack goes.
const MAX_UNKNOWN: usize = 1 << 20;

/// The stack that a thread had last: the lowest address that is known to be readable, and the end.
/// If the end is 0, the stack with that address has no known end. Zeros: nothing is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackRange<'a>(pub(super) &'a [AtomicU64; 2]);

impl StackRange<'_> {
    /// The memory of the stack from `sp` on, which the calling code is at, if the thread remembers
    /// that it is readable.
    #[inline(always)]
    pub(super) fn memory_from(self, sp: usize) -> Option<KnownMemory> {
        let (low, end) = self.load();
        if !(low..end).contains(&sp) {
            return None;
        }
        // SAFETY: a known stack is readable from the calling code's own frame up to its end, and
        // stays mapped as long as code runs on it.
        unsafe { KnownMemory::new(sp, end) }
    }

    /// The end of the stack that `sp` is on, if it is known.
    fn end_of(self, sp: usize) -> Option<usize> {
        let (low, end) = self.load();
        if (low..end).contains(&sp) {
            return Some(end);
        }
        let page = sp & !(PAGE - 1);
        if end == 0 && low == page {
            return None;
        }
        let found = stack_ends()
            .into_iter()
            .find(|&top| is_stack(page, top, (low, end)));
        // A signal handler may store the range of another stack in between.
        let [of_low, of_end] = self.0;
        of_end.store(0, Ordering::Relaxed);
        of_low.store(page as u64, Ordering::Relaxed);
        of_end.store(found.unwrap_or(0) as u64, Ordering::Relaxed);
        if of_low.load(Ordering::Relaxed) != page as u64 {
            of_end.store(0, Ordering::Relaxed);
        }
        found
    }

    #[inline(always)]
    fn load(self) -> (usize, usize) {
        let [of_low, of_end] = self.0;
        let end = of_end.load(Ordering::Relaxed);
        let low = of_low.load(Ordering::Relaxed);
        let is_same = of_end.load(Ordering::Relaxed) == end;
        if is_same {
            (low as usize, end as usize)
        } else {
            (0, 0)
        }
    }
}

/// Where stacks of this process end that the calling thread may run on: that of a thread, and that
/// of the first thread.
fn stack_ends() -> [usize; 2] {
    // SAFETY: reads the auxiliary vector.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as usize;
    [writer::thread_pointer() as usize, name]
}

/// Whether the pages from `page` up to `end` are a stack. `known` is a range of readable addresses.
fn is_stack(page: usize, end: usize, known: (usize, usize)) -> bool {
    if end <= page || end - page > MAX_STACK {
        return false;
    }
    let stop = if known.1 == end {
        known.0.max(page)
    } else {
        end
    };
    (page..stop).step_by(PAGE).all(is_readable)
}

/// The part of a stack that a walk may read.
#[derive(Debug)]
pub(super) struct Stack {
    low: usize,
    end: usize,
    /// Whether all of it is readable. Otherwise, pages are probed.
    is_known: bool,
    /// The page that was probed last, and is readable.
    probed: usize,
}

impl Stack {
    /// The stack of the calling thread from `stack_pointer` on, which the calling code is on.
    pub(super) fn new(stack_pointer: usize, range: StackRange<'_>) -> Self {
        let end = range.end_of(stack_pointer);
        Self {
            low: stack_pointer,
            end: end.unwrap_or(stack_pointer.saturating_add(MAX_UNKNOWN)),
            is_known: end.is_some(),
            probed: 0,
        }
    }
}

impl StackMemory for Stack {
    #[inline]
    fn word(&mut self, address: usize) -> Option<usize> {
        let is_inside = address >= self.low
            && address.is_multiple_of(size_of::<usize>())
            && address < self.end
            && self.end - address >= size_of::<usize>();
        if !is_inside {
            return None;
        }
        let page = address & !(PAGE - 1);
        if !self.is_known && page != self.probed {
            if !is_readable(page) {
                return None;
            }
            self.probed = page;
        }
        let place = std::ptr::with_exposed_provenance::<usize>(address);
        // SAFETY: aligned and readable, as established above. Volatile: the word may be anything,
        // and the compiler must not assume what it stored there.
        Some(unsafe { place.read_volatile() })
    }

    #[inline]
    fn enter(&mut self, stack_pointer: usize, is_signal: bool) -> bool {
        // A frame may end where the stack does.
        if (self.low..=self.end).contains(&stack_pointer) {
            return true;
        }
        if is_signal {
            *self = Self {
                low: stack_pointer,
                end: stack_pointer.saturating_add(MAX_UNKNOWN),
                is_known: false,
                probed: 0,
            };
        }
        is_signal
    }

    #[inline]
    fn known(&self) -> Option<KnownMemory> {
        if !self.is_known {
            return None;
        }
        // SAFETY: a known stack is readable from the walk's own frame up to its end, and stays
        // mapped as long as the walk runs on it.
        unsafe { KnownMemory::new(self.low, self.end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_threads_are_known() {
        let check = || {
            let here = 0u8;
            let (range, sp) = (Default::default(), (&raw const here).addr());
            let range = StackRange(&range);
            let end = range.end_of(sp).expect("a known stack");
            assert!(end > sp && end - sp <= MAX_STACK);
            // It is remembered.
            assert_eq!(range.load(), (sp & !(PAGE - 1), end));
            assert_eq!(range.end_of(sp - 8), range.end_of(sp));
            // An address elsewhere is not on it.
            let heap = Box::new(0u8);
            assert_eq!(range.end_of((&raw const *heap).addr()), None);
            assert_eq!(range.end_of(sp), Some(end));
        };
        check();
        std::thread::spawn(check).join().unwrap();
    }
}
