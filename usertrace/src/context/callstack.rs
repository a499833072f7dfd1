//! Walks the calling thread's stack. Async-signal-safe.
//!
//! The walk begins in this function and steps through the library's own frames, by unwind tables,
//! up to the place of the event. So nothing has to store all registers there. In events of preload
//! libraries, it skips most of these frames. Without unwind tables, it begins with the frame
//! pointer that the event stored.
//!
//! Tables and frame pointers may lead anywhere: see `stack.rs` for the memory that is read. Each
//! frame lies above the last one, and there are at most [`MAX_FRAMES`].

use super::stack::{Stack, StackRange};
use crate::event::{Frame, Place};
use crate::unwind::Registers;

/// Maximum number of frames: `LTT_CALLSTACK_MAX`.
pub(crate) const MAX_FRAMES: usize = usertrace_sys::uapi::LTT_CALLSTACK_MAX;

/// Most frames of the library between the place of an event and this. Builds without optimisation
/// have the most.
const MAX_OWN: usize = 96;

/// Passes the addresses of a stack from the innermost on to `take`: at most `max`. The first one is
/// the event's place; return addresses follow. Rules of unwind tables are as of the last of
/// `changes` changes to loaded code.
#[inline(never)]
pub(super) fn walk(
    place: Place,
    max: usize,
    range: StackRange<'_>,
    changes: u32,
    mut take: impl FnMut(usize),
) {
    if place.ip == 0 || max == 0 {
        return;
    }
    take(place.ip);
    if max == 1 {
        return;
    }
    let here = Registers::current();
    let stack = &mut Stack::new(here.stack_pointer, range);
    let Some((mut registers, mut is_caller)) = begin(place, here, changes, stack) else {
        return;
    };
    for _ in 1..max {
        if !is_caller {
            let caller = registers.caller(changes, stack);
            let Some(caller) = caller.or_else(|| {
                // No function up to this one has changed the frame pointer.
                let of_place = registers.lacks_frame_pointer(changes).then(|| {
                    let frame = place.frame_above(here.stack_pointer);
                    find_place(place.ip, frame, here, changes, stack)
                });
                let (of_place, _) = of_place??;
                registers
                    .with_frame_pointer(of_place)
                    .caller(changes, stack)
            }) else {
                return;
            };
            registers = caller;
        }
        is_caller = false;
        take(registers.ip);
    }
}

/// The frame of the function that the event is in, or of its caller, and whether it is the latter.
fn begin(
    place: Place,
    here: Registers,
    changes: u32,
    stack: &mut Stack,
) -> Option<(Registers, bool)> {
    let low = here.stack_pointer;
    let frame = place.frame_above(low);
    let frame_pointer = match frame {
        Frame::Caller {
            stack_pointer,
            frame_pointer,
        } => {
            let caller =
                Registers::returned_to(place.ip, stack_pointer, frame_pointer, changes, stack);
            if let Some(registers) = caller {
                return Some((registers, false));
            }
            frame_pointer
        }
        Frame::Pointer(frame_pointer) => Some(frame_pointer),
        Frame::Inside(_) | Frame::Below(_) => None,
    };
    find_place(place.ip, frame, here, changes, stack).or_else(|| {
        let by_pointer = Registers::of_frame(low, frame_pointer?);
        Some((by_pointer, false))
    })
}

/// Finds the frame of the function that the event is in, or of its caller, by steps through the
/// library's own frames. Returns whether it is the caller.
fn find_place(
    ip: usize,
    frame: Frame,
    here: Registers,
    changes: u32,
    stack: &mut Stack,
) -> Option<(Registers, bool)> {
    let mut registers = here;
    for _ in 0..MAX_OWN {
        registers = registers.caller(changes, stack)?;
        let above = |stack_pointer| registers.stack_pointer > stack_pointer;
        match frame {
            Frame::Caller { .. } if registers.ip == ip => return Some((registers, false)),
            // The function of the event has gone if it called the library at its very end.
            Frame::Inside(stack_pointer) if above(stack_pointer) => return Some((registers, true)),
            Frame::Below(stack_pointer) if above(stack_pointer) => return Some((registers, false)),
            Frame::Pointer(_) => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::memory::is_readable;

    const PAGE: usize = 4096;

    fn addresses(frame: usize, max: usize) -> Vec<usize> {
        let range = Default::default();
        let mut all = Vec::new();
        // As it is stored.
        let range = StackRange(&range);
        let place = Place::new(0x1_0000_1234, Frame::Pointer(frame));
        walk(place, max, range, 0, |address| all.push(address));
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

    /// The call stack of an event in [`inner`].
    #[inline(never)]
    fn inner(kind: fn(usize) -> Frame) -> Vec<usize> {
        let here = Registers::current();
        let place = Place::new(here.ip, kind(here.stack_pointer));
        let range = Default::default();
        let mut all = Vec::new();
        walk(place, 64, StackRange(&range), 0, |address| {
            all.push(address);
        });
        std::hint::black_box(all)
    }

    #[inline(never)]
    fn middle(kind: fn(usize) -> Frame, room: &mut [u64]) -> Vec<usize> {
        let all = inner(kind);
        room.fill(all.len() as u64);
        std::hint::black_box(all)
    }

    #[inline(never)]
    fn outer(kind: fn(usize) -> Frame) -> Vec<usize> {
        let mut room = [0; 1000];
        let all = middle(kind, &mut room);
        std::hint::black_box(room);
        std::hint::black_box(all)
    }

    /// Unwind tables lead from the library's own code to the event's callers, and to the start of
    /// the thread.
    #[test]
    fn tables_lead_to_the_callers() {
        crate::os::linker::prepare();
        if !crate::unwind::has_tables() {
            return;
        }
        let is_in =
            |address: usize, function: usize| (function..function + 4096).contains(&address);
        let functions = [
            inner as *const () as usize,
            middle as *const () as usize,
            outer as *const () as usize,
        ];
        let all = outer(Frame::Inside);
        assert!((5..64).contains(&all.len()), "{all:x?}");
        for (&address, function) in all.iter().zip(functions) {
            assert!(is_in(address, function), "{all:x?} {functions:x?}");
        }
        // The event's function is the caller of the one with the frame.
        let without = outer(Frame::Below);
        assert_eq!(without[1], all[2], "{without:x?} {all:x?}");
        assert_eq!(without[3..], all[4..], "{without:x?} {all:x?}");
    }
}
