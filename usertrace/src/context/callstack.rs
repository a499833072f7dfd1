//! Walks the calling thread's stack. Async-signal-safe.
//!
//! The walk begins in this function and steps through the library's own frames, by unwind tables,
//! up to the place of the event. So nothing has to store all registers there. In events of preload
//! libraries, it skips most of these frames. Without unwind tables, it begins with the frame
//! pointer that the event stored.
//!
//! Tables and frame pointers may lead anywhere: see `stack.rs` for the memory that is read. Each
//! frame lies above the last one, and there are at most [`MAX_FRAMES`].

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;

use super::sink::Sink;
use super::stack::{Stack, StackRange};
use crate::event::{Frame, Place};
use crate::unwind::{self, Addresses, KnownMemory, Registers, Start, Walks};

/// Maximum number of frames: `LTT_CALLSTACK_MAX`.
pub(crate) const MAX_FRAMES: usize = usertrace_sys::uapi::LTT_CALLSTACK_MAX;

/// Most frames of the library between the place of an event and this. Builds without optimisation
/// have the most.
const MAX_OWN: usize = 96;

/// What a walk needs of its thread and process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) range: StackRange<'a>,
    /// What the thread remembers of its walks.
    pub(super) walks: Option<Walks<'a>>,
    /// The changes to loaded code so far, as of which the rules of unwind tables are.
    pub(super) changes: u32,
}

/// Appends the number of a stack's addresses, and the addresses from the innermost on, of which
/// there are at most `max`. The first one is the event's place; return addresses follow. Passes
/// each to `see` that no earlier walk of the thread has come to.
#[inline(always)]
pub(super) fn append(
    (place, max): (Place, usize),
    known: Known<'_>,
    to: &mut impl Sink,
    see: impl FnMut(usize),
) {
    let max = max.min(MAX_FRAMES);
    if !place.has_frame() {
        append_address(place, max, to, see);
    } else if !recall((place, max), known, to) {
        append_walk((place, max), known, to, see);
    }
}

/// The same, of a place without a frame. So there is one address at most.
#[inline(always)]
pub(super) fn append_address(
    place: Place,
    max: usize,
    to: &mut impl Sink,
    mut see: impl FnMut(usize),
) {
    let count = max.min((place.ip != 0).into());
    if count > 0 {
        see(place.ip);
    }
    append_all(to, &[place.ip][..count], |&ip| Some(ip as u64));
}

/// Appends the number of a stack's addresses, and the addresses. False if there is none in the
/// place of one.
#[inline(always)]
fn append_all<T>(to: &mut impl Sink, addresses: &[T], address: impl Fn(&T) -> Option<u64>) -> bool {
    to.append(&(addresses.len() as u32).to_ne_bytes());
    to.append_numbers(addresses, address)
}

/// Where the walk of an event's stack begins, if a function of the library returns there. `low`:
/// the stack pointer of the calling code.
#[inline(always)]
fn start_above(low: usize, (place, max): (Place, usize), known: Known<'_>) -> Option<Start> {
    let (stack_pointer, frame_pointer) = place.caller_above(low)?;
    Some(Start {
        ip: place.ip,
        stack_pointer,
        frame_pointer,
        changes: known.changes,
        max,
    })
}

/// Appends the addresses of a stack, and returns true, if the thread remembers it.
#[inline(always)]
fn recall(place: (Place, usize), known: Known<'_>, to: &mut impl Sink) -> bool {
    let low = Registers::current().stack_pointer;
    let before = to.mark();
    let is_recalled = if let Some(walks) = known.walks
        && let Some(memory) = known.range.memory_from(low)
        && let Some(start) = start_above(low, place, known)
    {
        walks.recall(&start, memory, |words, memory| {
            to.back_to(before);
            append_same(words, memory, to)
        })
    } else {
        false
    };
    if !is_recalled {
        to.back_to(before);
    }
    #[cfg(test)]
    tests::RECALLED.set(tests::RECALLED.get() || is_recalled);
    is_recalled
}

/// Appends the addresses of these words if all of them are still in the memory. Apart, so that all
/// that the loop needs is in registers.
#[inline(never)]
fn append_same(words: &[AtomicU64], memory: KnownMemory, to: &mut impl Sink) -> bool {
    append_all(to, words, |word| unwind::still(word, memory))
}

/// Appends the addresses of a stack that a walk comes to. Apart: it needs all registers.
#[inline(never)]
fn append_walk(
    (place, max): (Place, usize),
    known: Known<'_>,
    to: &mut impl Sink,
    see: impl FnMut(usize),
) {
    let mut places = [const { MaybeUninit::uninit() }; MAX_FRAMES];
    let mut addresses = Addresses::new(&mut places[..max]);
    walk(place, known, &mut addresses, see);
    append_all(to, addresses.get(), |&bytes| {
        Some(u64::from_ne_bytes(bytes))
    });
}

#[inline(always)]
fn walk(place: Place, known: Known<'_>, addresses: &mut Addresses<'_>, mut see: impl FnMut(usize)) {
    let changes = known.changes;
    let here = Registers::current();
    let stack = &mut Stack::new(here.stack_pointer, known.range);
    let start = start_above(here.stack_pointer, (place, addresses.room()), known);
    see(place.ip);
    addresses.push(place.ip);
    if !addresses.has_room() {
        return;
    }
    let returned = start.as_ref().and_then(|start| {
        Registers::returned_to(
            start.ip,
            start.stack_pointer,
            start.frame_pointer,
            changes,
            stack,
        )
    });
    let start = start.filter(|_| returned.is_some());
    let (registers, is_caller) = match returned {
        Some(registers) => (registers, false),
        // Apart: what a call stores in memory does not stay in registers.
        None => match begin(place, here, changes, stack) {
            Some(found) => found,
            None => return,
        },
    };
    if is_caller {
        see(registers.ip);
        addresses.push(registers.ip);
    }
    // No function up to this frame has changed the frame pointer.
    let mend = |registers: Registers, stack: &mut Stack| {
        let of_place = registers.lacks_frame_pointer(changes).then(|| {
            let frame = place.frame_above(here.stack_pointer);
            find_place(place.ip, frame, here, changes, stack)
        });
        let (of_place, _) = of_place??;
        Some(registers.with_frame_pointer(of_place))
    };
    unwind::append_callers(
        registers,
        (changes, known.walks, start.as_ref()),
        stack,
        addresses,
        mend,
        see,
    );
}

/// The frame of the function that the event is in, or of its caller, and whether it is the latter.
#[inline(never)]
fn begin(
    place: Place,
    here: Registers,
    changes: u32,
    stack: &mut Stack,
) -> Option<(Registers, bool)> {
    let low = here.stack_pointer;
    let frame = place.frame_above(low);
    let frame_pointer = match frame {
        Frame::Caller { frame_pointer, .. } => frame_pointer,
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
#[inline(never)]
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
    use crate::event::SizedBuffer;
    use crate::os::memory::is_readable;
    use crate::unwind::{LastWalk, StackMemo};

    const PAGE: usize = 4096;

    thread_local! {
        /// The stack that the thread had last.
        static RANGE: [AtomicU64; 2] = const { [const { AtomicU64::new(0) }; 2] };
        /// Whether the thread remembered a stack.
        pub(super) static RECALLED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    fn addresses(frame: usize, max: usize) -> Vec<usize> {
        // As it is stored.
        let place = Place::new(0x1_0000_1234, Frame::Pointer(frame));
        all_of(place, max, None)
    }

    #[inline(never)]
    fn all_of(place: Place, max: usize, walks: Option<Walks<'_>>) -> Vec<usize> {
        let mut scratch = MaybeUninit::<[u64; MAX_FRAMES + 1]>::uninit();
        let mut buffer = SizedBuffer::new(&mut scratch);
        RANGE.with(|range| {
            let known = Known {
                range: StackRange(range),
                walks,
                changes: 0,
            };
            append((place, max), known, &mut buffer, |_| {});
        });
        let (count, addresses) = buffer.bytes().split_first_chunk().unwrap();
        let (addresses, []) = addresses.as_chunks() else {
            panic!("whole addresses");
        };
        assert_eq!(addresses.len(), u32::from_ne_bytes(*count) as usize);
        let number = |&bytes| u64::from_ne_bytes(bytes) as usize;
        addresses.iter().map(number).collect()
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
        std::hint::black_box(all_of(place, 64, None))
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
        if !unwind::has_tables() {
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

    /// The place of the caller of a function with these registers, which it has had since its
    /// beginning.
    #[inline(always)]
    fn place_of_caller(here: Registers) -> Place {
        let own = Place::new(here.ip, Frame::Inside(here.stack_pointer));
        let caller = all_of(own, 2, None).get(1).copied();
        let frame = Frame::Caller {
            stack_pointer: here.stack_pointer,
            frame_pointer: None,
        };
        Place::new(caller.unwrap_or(0), frame)
    }

    /// Walks that use what the thread remembers, and compare themselves with walks that do not.
    struct Compared {
        last: Box<LastWalk>,
        stacks: Box<StackMemo>,
        /// Random numbers that choose the calls.
        seed: u64,
        walks: usize,
        /// Those of whole stacks that were remembered.
        recalled: usize,
    }

    impl Compared {
        fn random(&mut self, below: u64) -> u64 {
            self.seed = self
                .seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.seed >> 33) % below
        }

        #[inline(never)]
        fn walk(&mut self) {
            let here = Registers::current();
            let place = match self.random(3) {
                0 => Place::new(here.ip, Frame::Inside(here.stack_pointer)),
                1 => Place::new(here.ip, Frame::Below(here.stack_pointer)),
                // As in a library to preload: of this function's caller.
                _ => place_of_caller(here),
            };
            let max = [2, 7, 16, 40, 64][self.random(5) as usize];
            for _ in 0..self.random(6) {
                // From the same instruction, so that the frames of both are the same.
                let walks = Walks {
                    last: &self.last,
                    stacks: Some(&self.stacks),
                };
                let [with, without] = [Some(walks), None].map(|walks| all_of(place, max, walks));
                assert_eq!(with, without);
                self.recalled += usize::from(RECALLED.take());
                self.walks += 1;
                self.seed ^= with.len() as u64;
            }
        }

        /// Calls each other, and walks, from different places, with frames of different lengths.
        #[inline(never)]
        fn call(&mut self, depth: usize, room: &mut [u64]) -> u64 {
            room.fill(depth as u64);
            let mut sum = 0;
            for _ in 0..1 + self.random(3) {
                let choice = if depth == 0 { 4 } else { self.random(5) };
                sum ^= match choice {
                    0 => self.call(depth - 1, &mut [0; 3]),
                    1 => self.call(depth - 1, &mut [0; 40]) ^ 1,
                    2 => self.other(depth - 1) ^ self.call(depth - 1, &mut []),
                    3 => {
                        let again = |of: &mut Self| of.other(depth - 1);
                        std::hint::black_box(again)(self)
                    }
                    _ => {
                        self.walk();
                        0
                    }
                };
            }
            std::hint::black_box(room).iter().sum::<u64>() ^ sum
        }

        #[inline(never)]
        fn other(&mut self, depth: usize) -> u64 {
            let length = 1 + self.random(9) as usize;
            let sum = self.call(depth, &mut vec![0; length]);
            if self.random(2) == 0 {
                self.walk();
            }
            sum ^ std::hint::black_box(length as u64)
        }
    }

    /// What a walk takes from earlier ones is what it would find itself.
    #[test]
    fn earlier_walks_change_nothing() {
        crate::os::linker::prepare();
        let mut compared = Compared {
            last: Box::default(),
            stacks: Box::default(),
            seed: 1,
            walks: 0,
            recalled: 0,
        };
        while compared.walks < 20_000 {
            compared.call(8, &mut []);
        }
        assert!(compared.last.is_used() || !unwind::has_tables());
        let is_recalled = cfg!(target_arch = "x86_64") && unwind::has_tables();
        assert!(
            compared.recalled > 1000 || !is_recalled,
            "{}",
            compared.recalled
        );
    }

    /// Whatever is in the memory of earlier walks, no other memory is read than the stack's.
    #[test]
    fn damaged_memory_of_walks_does_no_harm() {
        crate::os::linker::prepare();
        let here = Registers::current();
        damage(Place::new(here.ip, Frame::Inside(here.stack_pointer)));
        damage(place_of_caller(here));
    }

    #[inline(always)]
    fn damage(place: Place) {
        let (last, stacks) = (Box::<LastWalk>::default(), Box::<StackMemo>::default());
        let walks = Walks {
            last: &last,
            stacks: Some(&stacks),
        };
        let mut seed = 7u64;
        let expected = all_of(place, 64, None);
        for round in 0..20_000 {
            let before = all_of(place, 64, Some(walks));
            assert!(before.len() <= 64 && before.first() == Some(&place.ip));
            if round % 50 == 0 {
                last.forget();
                stacks.forget();
                assert_eq!(all_of(place, 64, Some(walks)), expected);
            }
            let mut random = || {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                seed >> 16 ^ seed << 40
            };
            match random() % 2 {
                0 => last.damage(random),
                _ => stacks.damage(random),
            }
        }
    }
}
