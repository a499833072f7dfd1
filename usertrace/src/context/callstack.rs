//! Walks the calling thread's stack by frame pointers. Async-signal-safe.
//!
//! Code that was built without frame pointers leaves anything in the register. So the walk only
//! follows a frame that lies above the last one, in memory that it knows to be readable:
//!
//! - The stack of a thread ends at the thread's control block, that of the first thread at the
//!   strings that the kernel put there. If all pages between the stack pointer and that end are
//!   readable, they are the stack: they stay mapped as long as the code runs that asks. The thread
//!   remembers that range.
//! - On other stacks, as of signal handlers and coroutines, the walk probes each page, each time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::Place;
use crate::os::memory::is_readable;
use crate::writer;

/// Maximum number of frames: `LTT_CALLSTACK_MAX`.
pub(crate) const MAX_FRAMES: usize = usertrace_sys::uapi::LTT_CALLSTACK_MAX;

const PAGE: usize = 4096;
/// Largest known stack. Checking a larger one would take too long.
const MAX_STACK: usize = 16 << 20;
/// How far a walk of an unknown stack goes.
const MAX_UNKNOWN: usize = 1 << 20;
/// Return addresses below are none: the kernel maps nothing there.
const FIRST_ADDRESS: usize = 65536;
/// On AArch64, the upper bits of a return address may be a signature.
const ADDRESS_BITS: u32 = 48;

/// The stack that a thread had last: the lowest address that is known to be readable, and the end.
/// If the end is 0, the stack with that address has no known end. Zeros: nothing is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackRange<'a>(pub(super) &'a [AtomicU64; 2]);

impl StackRange<'_> {
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

/// Passes the addresses of a stack from the innermost on to `take`: at most `max`. The first one is
/// the event's place; return addresses follow.
pub(super) fn walk(place: Place, max: usize, range: StackRange<'_>, mut take: impl FnMut(usize)) {
    if place.ip == 0 || max == 0 {
        return;
    }
    take(place.ip);
    let here = 0u8;
    let mut low = (&raw const here).addr();
    let mut frame = place.frame_above(low);
    let known = range.end_of(low);
    let end = known.unwrap_or(low.saturating_add(MAX_UNKNOWN));
    let mut probed = 0;
    for _ in 1..max {
        const RECORD: usize = 2 * size_of::<usize>();
        let is_record = frame >= low
            && frame.is_multiple_of(align_of::<usize>())
            && frame.checked_add(RECORD).is_some_and(|after| after <= end);
        if !is_record {
            return;
        }
        // A record may lie in two pages.
        for page in [frame, frame + RECORD - 1].map(|address| address & !(PAGE - 1)) {
            if known.is_none() && page != probed {
                if !is_readable(page) {
                    return;
                }
                probed = page;
            }
        }
        let record = std::ptr::with_exposed_provenance::<[usize; 2]>(frame);
        // SAFETY: aligned and readable, as established above. Volatile: the words may be anything,
        // and the compiler must not assume what it stored there.
        let [next, address] = unsafe { record.read_volatile() };
        let address = address & ((1 << ADDRESS_BITS) - 1);
        if address < FIRST_ADDRESS {
            return;
        }
        take(address);
        low = frame + 1;
        frame = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(frame: usize, max: usize) -> Vec<usize> {
        let range = Default::default();
        let mut all = Vec::new();
        // As it is stored.
        let range = StackRange(&range);
        walk(Place::new(0x1_0000_1234, frame), max, range, |address| {
            all.push(address)
        });
        all
    }

    /// Records at these places of an array on the stack, with the places of the next ones.
    fn with_records(links: &[(usize, usize)], body: impl FnOnce(usize)) {
        let mut words = [0usize; 64];
        let base = words.as_ptr().addr();
        for &(at, next) in links {
            words[at] = base + 8 * next;
            words[at + 1] = 0x10_0000 + at;
        }
        body(base);
        std::hint::black_box(&mut words);
    }

    #[test]
    fn frames_are_followed_upwards() {
        with_records(&[(0, 4), (4, 8), (8, 2)], |base| {
            let expected = [0x1_0000_1234, 0x10_0000, 0x10_0004, 0x10_0008];
            // The last record leads downwards.
            assert_eq!(addresses(base, 64), expected);
            assert_eq!(addresses(base, 2), expected[..2]);
            assert_eq!(addresses(base, 1), expected[..1]);
            assert!(addresses(base, 0).is_empty());
        });
    }

    #[test]
    fn hostile_frame_pointers_end_the_walk() {
        // To itself; to the middle of itself; to no address.
        with_records(&[(0, 0)], |base| assert_eq!(addresses(base, 9).len(), 2));
        with_records(&[(0, 4)], |base| assert_eq!(addresses(base, 9).len(), 2));
        with_records(&[], |base| assert_eq!(addresses(base, 9).len(), 1));
        with_records(&[(0, 4), (4, 8)], |base| {
            for frame in [
                0,
                1,
                8,
                base + 1,
                base + 4,
                usize::MAX,
                usize::MAX - 15,
                1 << 63,
            ] {
                assert_eq!(addresses(frame, 9).len(), 1, "{frame:#x}");
            }
        });
    }

    /// A stack that no thread has: each page is probed, and the guard page ends the walk.
    #[test]
    fn unmapped_memory_ends_the_walk() {
        // SAFETY: a new mapping.
        let map = unsafe {
            let (none, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), 16 * PAGE, none, flags, -1, 0)
        };
        assert_ne!(map, libc::MAP_FAILED);
        assert!(!is_readable(map.addr()));
        let middle = map.wrapping_byte_add(8 * PAGE);
        // SAFETY: inside the mapping.
        let opened = unsafe { libc::mprotect(middle, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0);
        assert!(is_readable(middle.addr()) && is_readable(middle.addr() + PAGE - 8));
        assert!(!is_readable(middle.addr() + PAGE));
        let record = middle.cast::<usize>();
        // SAFETY: in the page that is writable.
        unsafe {
            record.write(middle.addr() + PAGE);
            record.add(1).write(0x12_3456);
        }
        // The walk takes only what lies above its own frame, in the stack of this thread.
        with_records(&[(0, 4)], |base| {
            let first = std::ptr::with_exposed_provenance_mut::<usize>(base);
            // SAFETY: the first word of the array, which is not read meanwhile.
            unsafe { first.write_volatile(middle.addr()) };
            assert!(addresses(base, 9).len() <= 2);
        });
        // SAFETY: the mapping of this test.
        unsafe { libc::munmap(map, 16 * PAGE) };
        assert!(!is_readable(middle.addr()));
    }

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
