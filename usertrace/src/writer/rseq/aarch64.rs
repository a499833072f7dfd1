//! The restartable sequences on aarch64.
//!
//! They are those of `x86_64.rs`, which has their comments, on a machine with weak memory ordering:
//!
//! - The commit is a store-release: a reader that sees `head` move sees the record. The next
//!   writers on the same CPU need no such order: a processor sees its own stores in order, and the
//!   kernel has barriers where it moves a thread to another CPU.
//! - A channel's fields must be loaded after its number of rings, as they were stored before it. An
//!   address dependency ensures that: their addresses are computed from that number, though it does
//!   not change them. It costs two instructions that only calculate. A load-acquire would wait for
//!   the store-release of the last event, and `dmb ishld` for all loads.
//! - `isb` comes before the time is read. The architecture may read the counter early, so that
//!   times of two records change places. As records store only 48 bits of it, a step back by one
//!   would pass for one of 2^48 forward. The barrier comes after branches that depend on `head`, so
//!   the writer that stored `head` had read its time before.
//!
//! - `dmb ishst` comes before the stores to a cell of a table. A reader that sees one of them also
//!   sees the count that the update before committed: the store-release of that orders what came
//!   before it, but not what comes after.
//!
//! Sequences use no atomic read-modify-write instruction, except to count lost records.

use std::arch::asm;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU16, AtomicU32};

use usertrace_sys::uapi::{
    LTT_COUNT_BUCKET_SHIFT, LTT_COUNT_BUCKETS, LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE,
    LTT_COUNT_KEY_NUMBER, LTT_COUNT_PROBES, LTT_SUBBUF_MAGIC, LttSubbuf,
};

use super::area::{RSEQ_CS, Rseq, SIGNATURE};
use super::step::{Advance, CellStart, CellUpdate, SLOW_EACH, Start, Step};
use crate::writer::cell::{BUCKET, Cell, CellValues, MAX, MIN, STATE_WORDS, SUM_HIGH, SUM_LOW};
use crate::writer::channel::{Channel, Control};
use crate::writer::refusal::Refusal;
use crate::writer::ring_index::{CPU_ID, CPU_ID_OF_TABLE, offset};
use crate::writer::route::{ID_BITS, Route};
use crate::writer::thread::{Thread, thread_offset, thread_pointer};

const _: () = {
    // A store-release has no offset.
    assert!(offset_of!(Control, head) == 0);
    // These are loaded and stored in pairs.
    assert!(offset_of!(Channel, control_stride) == offset_of!(Channel, control) + 8);
    assert!(offset_of!(Channel, ring_mask) == offset_of!(Channel, ring_size) + 8);
    assert!(offset_of!(Start, cpu) == offset_of!(Start, epoch) + 4);
    assert!(offset_of!(Start, head) == offset_of!(Start, control) + 8);
    assert!(offset_of!(Advance, word_id) == offset_of!(Advance, word) + 8);
    assert!(offset_of!(Advance, second_word) == offset_of!(Advance, second) + 8);
    assert!(offset_of!(Advance, position) == offset_of!(Advance, subbuf) + 8);
    assert!(offset_of!(LttSubbuf, time) == offset_of!(LttSubbuf, position) + 8);
    assert!(offset_of!(LttSubbuf, magic) == offset_of!(LttSubbuf, cpu) + 4);
    assert!(offset_of!(CellStart, cpu) == offset_of!(CellStart, epoch) + 4);
    assert!(offset_of!(CellStart, count) == offset_of!(CellStart, cell) + 8);
    assert!(offset_of!(CellUpdate, table_size) == offset_of!(CellUpdate, head) + 8);
    assert!(offset_of!(CellUpdate, folded) == offset_of!(CellUpdate, bucket) + 8);
    // The sequences address `start` through a pointer to the update.
    assert!(offset_of!(CellUpdate, start) == 0);
    // A store-release has no offset.
    assert!(offset_of!(Cell, count) == 0);
};

/// A restartable sequence.
///
/// It has no effect, and is `$refused`, if there is no ring for the CPU that it runs on, or for
/// what else is at `$index` of the thread's area, which stands for the CPU in all that follows.
/// `body` finds that number in `{cpu}`, and the number of rings in `{one}`. It may use `{cpu}`,
/// `{one}`, `{two}` and `{tmp}`, and has the label 4 behind the instruction that commits. The
/// sequence is tried once, as on x86-64.
macro_rules! sequence {
    (
        ($rseq:expr, $channel:expr, $index:expr)
        refused: $refused:expr,
        aborted: $aborted:expr,
        body: [$($body:expr),* $(,)?]
        operands: [$($operands:tt)*]
    ) => {
        asm!(
            // The descriptor: version, flags, start, length, abort handler.
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "7:",
            ".long 0, 0",
            ".quad 3f, 4f - 3f, 5f",
            ".popsection",
            ".pushsection __rseq_cs_ptr_array, \"aw\"",
            ".quad 7b",
            ".popsection",

            "adrp {tmp}, 7b",
            "add {tmp}, {tmp}, :lo12:7b",
            "str {tmp}, [{rseq}, {RSEQ_CS}]",
            "3:",
            // A thread without a CPU number has a very large one, and so has one whose block is
            // lent.
            "ldr {cpu:w}, [{rseq}, {INDEX}]",
            "ldr {two:w}, [{thread}, {THREAD_NO_CPU}]",
            "ldr {one:w}, [{channel}, {NR_RINGS}]",
            "orr {cpu:w}, {cpu:w}, {two:w}",
            "cmp {cpu:w}, {one:w}",
            "b.hs {refused}",
            $($body,)*

            ".pushsection __rseq_failure, \"ax\"",
            ".balign 4",
            ".inst {SIGNATURE}",
            "5:",
            "b {aborted}",
            ".popsection",

            rseq = in(reg) thread_pointer().wrapping_offset($rseq.offset.get()),
            thread = in(reg) thread_pointer().wrapping_offset(thread_offset()),
            channel = in(reg) std::ptr::from_ref::<Channel>($channel),
            cpu = out(reg) _,
            tmp = out(reg) _,
            one = out(reg) _,
            two = out(reg) _,
            $($operands)*
            refused = label { return $refused },
            aborted = label { return $aborted },
            RSEQ_CS = const RSEQ_CS,
            INDEX = const offset($index),
            SIGNATURE = const SIGNATURE,
            THREAD_NO_CPU = const offset_of!(Thread, no_cpu),
            NR_RINGS = const { Channel::nr_offset($index) },
            options(nostack),
        )
    };
}

/// The sequence that stores a record: all of the event path.
///
/// - `identify` makes `{tmp}` the event's id, by loads at `{id} + {one}`. `{one}` is 0, but depends
///   on the number of rings, so the loads come after that of the number. It may use `{two}`.
/// - `len` turns `{at}`, the record's offset in its sub-buffer, into the offset of its last byte.
/// - `copy` copies the payload from `{src}` behind the header at `{at}`, and moves `{head}` behind
///   the record. It may use `{cpu}`, `{one}`, `{two}` and `{tmp}`.
macro_rules! record_sequence {
    (
        ($rseq:expr, $channel:expr, $index:expr, $id:expr, $src:expr)
        refused: $refused:expr,
        aborted: $aborted:expr,
        need_subbuf: $need_subbuf:expr,
        need_time: $need_time:expr,
        identify: [$($identify:expr),*]
        len: [$($len:literal),*]
        copy: [$($copy:expr),*]
        operands: [$($operands:tt)*]
    ) => {
        sequence! {
            ($rseq, $channel, $index)
            refused: $refused,
            aborted: $aborted,
            body: [
                // 0, but computed from the number of rings: loads at addresses with it come after
                // the load of that number.
                "eor {one}, {one}, {one}",
                "add {fields}, {channel}, {one}",
                $($identify,)*
                "ldp {control}, {one}, [{fields}, {CONTROL}]",
                "madd {control}, {one}, {cpu}, {control}",
                "ldr {head}, [{control}]",
                // Is there a sub-buffer, and room in it?
                "ldr {one}, [{fields}, {SUBBUF_MASK}]",
                "ands {at}, {head}, {one}",
                "b.eq {need_subbuf}",
                $($len,)*
                "cmp {at}, {one}",
                "b.hi {need_subbuf}",
                "ldr {at}, [{fields}, {BUFFERS}]",
                "ldp {one}, {two}, [{fields}, {RING_SIZE}]",
                "madd {at}, {one}, {cpu}, {at}",
                "and {two}, {two}, {head}",
                "add {at}, {at}, {two}",
                // The header: read here, so that times in a ring never go back.
                "isb",
                "mrs {one}, cntvct_el0",
                "ldr {two}, [{control}, {TIME}]",
                "eor {two}, {two}, {one}",
                "lsr {two}, {two}, #48",
                "cbnz {two}, {need_time}",
                "orr {tmp}, {tmp}, {one}, lsl #16",
                "str {tmp}, [{at}]",
                $($copy,)*
                // The commit.
                "stlr {head}, [{control}]",
                "4:",
            ]
            operands: [
                id = in(reg) std::ptr::from_ref($id),
                src = in(reg) $src,
                fields = out(reg) _,
                control = out(reg) _,
                head = out(reg) _,
                at = out(reg) _,
                $($operands)*
                need_subbuf = label { return $need_subbuf },
                need_time = label { return $need_time },
                BUFFERS = const offset_of!(Channel, buffers),
                CONTROL = const offset_of!(Channel, control),
                RING_SIZE = const offset_of!(Channel, ring_size),
                SUBBUF_MASK = const offset_of!(Channel, subbuf_mask),
                TIME = const offset_of!(Control, time),
            ]
        }
    };
}

/// The `identify` of [`record_sequence`] for the route of an event.
macro_rules! id_of_route {
    () => {
        "ldr {tmp}, [{id}, {one}]
        cmp {channel}, {tmp}, lsr {ID_BITS}
        b.ne {refused}
        and {tmp}, {tmp}, {ID_MASK}"
    };
}

/// Stores a record with a short payload of constant length, and reports whether it did. The slow
/// path finds out why not.
///
/// # Safety
/// `channel` must be one that [`Channel::open`] opened, or never was, or be wiped; the id that
/// `route` has must not be one of a record that means something else than an event.
#[inline(always)]
pub(in crate::writer) unsafe fn record<const WORDS: usize>(
    rseq: Rseq,
    channel: &Channel,
    route: &Route,
    payload: &[u64; WORDS],
) -> bool {
    /// The sequence with an unrolled copy of the payload.
    macro_rules! written_out {
        ($($copy:literal),*) => {
            record_sequence! {
                (rseq, channel, CPU_ID, route, payload.as_ptr())
                refused: false,
                aborted: false,
                need_subbuf: false,
                need_time: false,
                identify: [id_of_route!()]
                len: ["add {at}, {at}, {LEN} - 1"]
                copy: [$($copy,)* "add {head}, {head}, {LEN}"]
                operands: [
                    LEN = const { 8 + 8 * WORDS },
                    ID_BITS = const ID_BITS,
                    ID_MASK = const (1 << ID_BITS) - 1,
                ]
            }
        };
    }
    // SAFETY: the channel was opened as `Channel::open` requires, as this function's caller
    // promises: all stores go to memory in the ring of this CPU, beyond head, in a sub-buffer
    // that was begun and has room for it. The sequence is restarted if another writer could have
    // come between, so no other writer stores there before the commit. `payload` has WORDS words.
    // The thread's rseq area is where `rseq` says. What the descriptor needs, the kernel and the
    // linker provide.
    unsafe {
        match WORDS {
            0 => written_out!("/* {src} */"),
            1 => written_out!("ldr {one}, [{src}]", "str {one}, [{at}, #8]"),
            2 => written_out!("ldp {one}, {two}, [{src}]", "stp {one}, {two}, [{at}, #8]"),
            3 => written_out!(
                "ldp {one}, {two}, [{src}]",
                "ldr {tmp}, [{src}, #16]",
                "stp {one}, {two}, [{at}, #8]",
                "str {tmp}, [{at}, #24]"
            ),
            4 => written_out!(
                "ldp {one}, {two}, [{src}]",
                "ldp {tmp}, {cpu}, [{src}, #16]",
                "stp {one}, {two}, [{at}, #8]",
                "stp {tmp}, {cpu}, [{at}, #24]"
            ),
            _ => return false,
        }
    }
    true
}

/// Copies the payload of `{words}` words at `{src}` behind the header at `{at}`, and moves `{head}`
/// behind the record. From the end: a last odd word, an odd pair of words, then 32 bytes at a time.
macro_rules! copy_words {
    () => {
        "add {at}, {at}, #8
        mov {tmp}, {words}
        tbz {tmp}, #0, 6f
        sub {tmp}, {tmp}, #1
        ldr {one}, [{src}, {tmp}, lsl #3]
        str {one}, [{at}, {tmp}, lsl #3]
        6:
        tbz {tmp}, #1, 6f
        sub {tmp}, {tmp}, #2
        add {one}, {src}, {tmp}, lsl #3
        add {two}, {at}, {tmp}, lsl #3
        ldr q0, [{one}]
        str q0, [{two}]
        6:
        cbz {tmp}, 6f
        8:
        sub {tmp}, {tmp}, #4
        add {one}, {src}, {tmp}, lsl #3
        add {two}, {at}, {tmp}, lsl #3
        ldp q0, q1, [{one}]
        stp q0, q1, [{two}]
        cbnz {tmp}, 8b
        6:
        add {head}, {head}, {words}, lsl #3
        add {head}, {head}, #8"
    };
}

/// [`record_sequence`] for a payload that is in memory.
macro_rules! words_sequence {
    (
        ($rseq:expr, $channel:expr, $index:expr, $id:expr, $payload:expr)
        refused: $refused:expr,
        aborted: $aborted:expr,
        need_subbuf: $need_subbuf:expr,
        need_time: $need_time:expr,
        identify: [$($identify:expr),* $(,)?]
        operands: [$($operands:tt)*]
    ) => {
        record_sequence! {
            ($rseq, $channel, $index, $id, $payload.as_ptr())
            refused: $refused,
            aborted: $aborted,
            need_subbuf: $need_subbuf,
            need_time: $need_time,
            identify: [$($identify),*]
            len: [
                "add {at}, {at}, {words}, lsl #3",
                "add {at}, {at}, #7"
            ]
            copy: [copy_words!()]
            operands: [
                words = in(reg) $payload.len(),
                out("v0") _,
                out("v1") _,
                $($operands)*
            ]
        }
    };
}

/// Stores a record with a payload of any length in memory for the route of an event, as [`record`]
/// does.
///
/// # Safety
/// As [`record`]'s; and the payload must not be longer than
/// [`LONGEST`](crate::writer::channel::LONGEST) allows.
#[inline(always)]
pub(in crate::writer) unsafe fn record_routed(
    rseq: Rseq,
    channel: &Channel,
    route: &Route,
    payload: &[u64],
) -> bool {
    // SAFETY: as in `record`; `payload` has `words` words.
    unsafe {
        words_sequence! {
            (rseq, channel, CPU_ID, route, payload)
            refused: false,
            aborted: false,
            need_subbuf: false,
            need_time: false,
            identify: [id_of_route!()]
            operands: [
                ID_BITS = const ID_BITS,
                ID_MASK = const (1 << ID_BITS) - 1,
            ]
        }
    }
    true
}

/// Stores a record with a payload of any length in memory.
///
/// # Safety
/// As [`record`]'s, for `id`; and the payload must not be longer than
/// [`LONGEST`](crate::writer::channel::LONGEST) allows.
pub(in crate::writer) unsafe fn record_words<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> Result<(), Refusal> {
    // SAFETY: as in `record_routed`.
    unsafe {
        words_sequence! {
            (rseq, channel, INDEX, id, payload)
            refused: Err(Refusal::NoRing),
            aborted: Err(Refusal::Aborted),
            need_subbuf: Err(Refusal::NeedSubbuf),
            need_time: Err(Refusal::NeedTime),
            identify: [
                "ldrh {tmp:w}, [{id}, {one}]",
                "cbz {tmp:w}, {refused}"
            ]
            operands: []
        }
    }
    Ok(())
}

/// A sequence of the slow path, which does nothing unless all of `$start` still holds.
macro_rules! continued_sequence {
    (
        ($rseq:expr, $channel:expr, $index:expr, $start:expr)
        body: [$($body:expr),* $(,)?]
        operands: [$($operands:tt)*]
    ) => {
        sequence! {
            ($rseq, $channel, $index)
            refused: Step::Changed,
            aborted: Step::Aborted,
            body: [
                "ldp {one:w}, {two:w}, [{start}, {START_EPOCH}]",
                "ldr {tmp:w}, [{channel}, {EPOCH}]",
                "cmp {tmp:w}, {one:w}",
                "ccmp {cpu:w}, {two:w}, #0, eq",
                "b.ne {refused}",
                "ldp {control}, {one}, [{start}, {START_CONTROL}]",
                "ldr {two}, [{control}]",
                "cmp {two}, {one}",
                "b.ne {refused}",
                $($body,)*
            ]
            operands: [
                start = in(reg) std::ptr::from_ref::<Start>($start),
                control = out(reg) _,
                $($operands)*
                START_EPOCH = const offset_of!(Start, epoch),
                START_CONTROL = const offset_of!(Start, control),
                EPOCH = const offset_of!(Channel, epoch),
            ]
        }
    };
}

/// Stores a record with a payload of any length in memory, and a time that the caller read after it
/// loaded all of [`Start`].
///
/// # Safety
/// As [`record_words`]'s. `start` must have been made from a ring of `channel`.
pub(in crate::writer) unsafe fn record_at(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
    (start, time): (&Start, u64),
) -> Step {
    // SAFETY: as in `record_words`. The control block and the head are those of the ring of this
    // CPU, as the sequence compares.
    unsafe {
        continued_sequence! {
            (rseq, channel, CPU_ID, start)
            body: [
                "mov {head}, {two}",
                "ldrh {tmp:w}, [{id}]",
                "cbz {tmp:w}, {refused}",
                "ldr {one}, [{channel}, {SUBBUF_MASK}]",
                "ands {at}, {head}, {one}",
                "b.eq {refused}",
                "add {at}, {at}, {words}, lsl #3",
                "add {at}, {at}, #7",
                "cmp {at}, {one}",
                "b.hi {refused}",
                "ldr {at}, [{channel}, {BUFFERS}]",
                "ldp {one}, {two}, [{channel}, {RING_SIZE}]",
                "madd {at}, {one}, {cpu}, {at}",
                "and {two}, {two}, {head}",
                "add {at}, {at}, {two}",
                "ldr {two}, [{control}, {TIME}]",
                "eor {two}, {two}, {time}",
                "lsr {two}, {two}, #48",
                "cbnz {two}, {refused}",
                "orr {tmp}, {tmp}, {time}, lsl #16",
                "str {tmp}, [{at}]",
                copy_words!(),
                "stlr {head}, [{control}]",
                "4:",
            ]
            operands: [
                id = in(reg) std::ptr::from_ref(id),
                time = in(reg) time,
                src = in(reg) payload.as_ptr(),
                words = in(reg) payload.len(),
                head = out(reg) _,
                at = out(reg) _,
                out("v0") _,
                out("v1") _,
                BUFFERS = const offset_of!(Channel, buffers),
                RING_SIZE = const offset_of!(Channel, ring_size),
                SUBBUF_MASK = const offset_of!(Channel, subbuf_mask),
                TIME = const offset_of!(Control, time),
            ]
        }
    }
    Step::Done
}

/// The sequence of [`advance`]. `time` leaves the time in `two`.
macro_rules! advance_sequence {
    (
        ($rseq:expr, $channel:expr, $index:expr, $arg:ident)
        time: [$($time:literal),* $(,)?]
    ) => {
        continued_sequence! {
            ($rseq, $channel, $index, &(*$arg).start)
            body: [
                $($time,)*
                "ldr {tmp}, [{arg}, {FULL_TIME}]",
                "str {two}, [{tmp}]",
                "ldp {tmp}, {one}, [{arg}, {WORD}]",
                "orr {one}, {one}, {two}, lsl #16",
                "str {one}, [{tmp}]",
                "ldp {tmp}, {one}, [{arg}, {SECOND}]",
                "str {one}, [{tmp}]",
                "ldp {tmp}, {one}, [{arg}, {SUBBUF}]",
                "stp {one}, {two}, [{tmp}, {SUBBUF_POSITION}]",
                "ldr {one}, [{control}, {LOST}]",
                "str {one}, [{tmp}, {SUBBUF_LOST}]",
                "stp {cpu:w}, {magic:w}, [{tmp}, {SUBBUF_CPU}]",
                "ldr {one}, [{arg}, {NEW_HEAD}]",
                "stlr {one}, [{control}]",
                "4:",
            ]
            operands: [
                arg = in(reg) $arg,
                magic = in(reg) LTT_SUBBUF_MAGIC,
                TIME = const offset_of!(Advance, time),
                FULL_TIME = const offset_of!(Advance, full_time),
                WORD = const offset_of!(Advance, word),
                SECOND = const offset_of!(Advance, second),
                SUBBUF = const offset_of!(Advance, subbuf),
                NEW_HEAD = const offset_of!(Advance, new_head),
                SUBBUF_POSITION = const offset_of!(LttSubbuf, position),
                SUBBUF_LOST = const offset_of!(LttSubbuf, lost),
                SUBBUF_CPU = const offset_of!(LttSubbuf, cpu),
                LOST = const offset_of!(Control, lost),
            ]
        }
    };
}

/// Does the stores of `advance`, with the time of the processor's counter, and moves `head`.
///
/// # Safety
/// The addresses in `advance` must have been made from a [`Ring`](crate::writer::channel::Ring) of
/// `channel` for that CPU, that epoch and that head, and lie in the part of the ring that may be
/// overwritten, or in memory of the caller.
pub(in crate::writer) unsafe fn advance<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    advance: &mut Advance,
) -> Step {
    let arg = std::ptr::from_mut(advance);
    // SAFETY: the addresses in `advance` are of the ring, as this function's caller promises, for
    // as long as CPU, epoch and head are what they were; that they are is compared in the sequence,
    // and the sequence is restarted if they could have changed since. `arg` is the caller's.
    unsafe {
        advance_sequence! {
            (rseq, channel, INDEX, arg)
            time: [
                "isb",
                "mrs {two}, cntvct_el0",
                "str {two}, [{arg}, {TIME}]",
            ]
        }
    }
    Step::Done
}

/// Likewise, with the time in `advance`, which the caller read after it loaded all of [`Start`].
///
/// # Safety
/// As [`advance`]'s.
pub(in crate::writer) unsafe fn advance_at<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    advance: &mut Advance,
) -> Step {
    let arg = std::ptr::from_mut(advance);
    // SAFETY: as in `advance`.
    unsafe {
        advance_sequence! {
            (rseq, channel, INDEX, arg)
            time: ["ldr {two}, [{arg}, {TIME}]"]
        }
    }
    Step::Done
}

/// Raises `claimed` in the ring's control block: everything below it may be overwritten from now
/// on. It never goes back.
///
/// # Safety
/// `start` must have been made from a [`Ring`](crate::writer::channel::Ring) of `channel`.
pub(in crate::writer) unsafe fn claim<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    start: &Start,
    claimed: u64,
) -> Step {
    // SAFETY: stores to an atomic field of the control block.
    unsafe {
        continued_sequence! {
            (rseq, channel, INDEX, start)
            body: [
                "ldr {one}, [{control}, {CLAIMED}]",
                "cmp {claimed}, {one}",
                "b.ls 4f",
                "str {claimed}, [{control}, {CLAIMED}]",
                "4:",
            ]
            operands: [
                claimed = in(reg) claimed,
                CLAIMED = const offset_of!(Control, claimed),
            ]
        }
    }
    Step::Done
}

/// Stores the newest full time in a ring's control block, unless the channel was closed since
/// `epoch`.
///
/// # Safety
/// As [`lose`]'s.
pub(in crate::writer) unsafe fn note_time<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    epoch: u32,
    control: &Control,
    time: u64,
) -> Step {
    // SAFETY: stores to an atomic field of `control`.
    unsafe {
        sequence! {
            (rseq, channel, INDEX)
            refused: Step::Changed,
            aborted: Step::Aborted,
            body: [
                "ldr {one:w}, [{channel}, {EPOCH}]",
                "cmp {epoch:w}, {one:w}",
                "b.ne {refused}",
                "str {time}, [{control}, {TIME}]",
                "4:",
            ]
            operands: [
                epoch = in(reg) epoch,
                control = in(reg) std::ptr::from_ref(control),
                time = in(reg) time,
                EPOCH = const offset_of!(Channel, epoch),
                TIME = const offset_of!(Control, time),
            ]
        }
    }
    Step::Done
}

/// Counts a lost record in a ring's control block, unless the channel was closed since `epoch`.
///
/// The increment is atomic, as a thread that cannot finish a sequence counts outside of one.
///
/// # Safety
/// `control` must come from a [`Ring`](crate::writer::channel::Ring) of `channel` for that epoch.
pub(in crate::writer) unsafe fn lose<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    epoch: u32,
    control: &Control,
) -> Step {
    // SAFETY: adds to an atomic field of `control`.
    unsafe {
        sequence! {
            (rseq, channel, INDEX)
            refused: Step::Changed,
            aborted: Step::Aborted,
            body: [
                "ldr {one:w}, [{channel}, {EPOCH}]",
                "cmp {epoch:w}, {one:w}",
                "b.ne {refused}",
                "ldxr {one}, [{lost}]",
                "add {one}, {one}, #1",
                // If it stores, it commits: so that it did not is found behind the sequence's end.
                "stxr {tmp:w}, {one}, [{lost}]",
                "4:",
                "cbnz {tmp:w}, {aborted}",
            ]
            operands: [
                epoch = in(reg) epoch,
                lost = in(reg) control.lost.as_ptr(),
                EPOCH = const offset_of!(Channel, epoch),
            ]
        }
    }
    Step::Done
}

/// A sequence that changes a cell of a table. It does nothing unless all of `$start` still holds,
/// but for the count, which `body` compares. `body` finds the address of the cell in `{cell}`, and
/// the count that `$start` has in `{count}`. It may use `{one}`, `{two}` and `{tmp}`.
macro_rules! cell_sequence {
    (
        ($rseq:expr, $channel:expr, $start:expr)
        body: [$($body:literal),* $(,)?]
        operands: [$($operands:tt)*]
    ) => {
        sequence! {
            ($rseq, $channel, CPU_ID_OF_TABLE)
            refused: Step::Changed,
            aborted: Step::Aborted,
            body: [
                "ldp {one:w}, {two:w}, [{start}, {START_EPOCH}]",
                "ldr {tmp:w}, [{channel}, {EPOCH}]",
                "cmp {tmp:w}, {one:w}",
                "ccmp {cpu:w}, {two:w}, #0, eq",
                "b.ne {refused}",
                "ldp {cell}, {count}, [{start}, {START_CELL}]",
                $($body,)*
                "4:",
            ]
            operands: [
                start = in(reg) $start,
                cell = out(reg) _,
                count = out(reg) _,
                $($operands)*
                START_EPOCH = const offset_of!(CellStart, epoch),
                START_CELL = const offset_of!(CellStart, cell),
                EPOCH = const offset_of!(Channel, epoch),
            ]
        }
    };
}

/// Counts an event in a cell that is not free, and has no values.
///
/// # Safety
/// `start` must have been made from a [`Table`](crate::writer::channel::Table) of `channel` for
/// that CPU and that epoch.
#[inline]
pub(in crate::writer) unsafe fn count_in_cell(
    rseq: Rseq,
    channel: &Channel,
    start: &CellStart,
) -> Step {
    // SAFETY: adds to an atomic field of a cell of the table of this CPU, as this function's caller
    // promises. A cell that is not free stays that of its event and key.
    unsafe {
        cell_sequence! {
            (rseq, channel, std::ptr::from_ref(start))
            body: [
                "ldr {one}, [{cell}]",
                "add {one}, {one}, #1",
                "stlr {one}, [{cell}]",
            ]
            operands: []
        }
    }
    Step::Done
}

/// Does the stores of `update`, and counts an event in its cell.
///
/// # Safety
/// The addresses in `update` must have been made from a
/// [`Table`](crate::writer::channel::Table) of `channel` for that CPU and that epoch, or lie in
/// memory of the caller.
#[inline]
pub(in crate::writer) unsafe fn update_cell(
    rseq: Rseq,
    channel: &Channel,
    update: &CellUpdate,
) -> Step {
    // SAFETY: the addresses in `update` are of the table of this CPU, as this function's caller
    // promises; the sequence is aborted if another writer of that table could have come between
    // the comparison of the count and the commit.
    unsafe {
        cell_sequence! {
            (rseq, channel, std::ptr::from_ref(update))
            body: [
                "ldr {one}, [{cell}]",
                "cmp {one}, {count}",
                "b.ne {refused}",
                "dmb ishst",
                "cbnz {count}, 6f",
                "ldr {one}, [{start}, {NAME}]",
                "str {one}, [{cell}, {CELL_NAME}]",
                "ldr {tmp}, [{start}, {KEY}]",
                "ldp {one}, {two}, [{tmp}]",
                "stp {one}, {two}, [{cell}, {CELL_KEY}]",
                "ldp {one}, {two}, [{tmp}, #16]",
                "stp {one}, {two}, [{cell}, {CELL_KEY} + 16]",
                "ldp {one}, {two}, [{start}, {HEAD}]",
                "str {two}, [{one}]",
                "6:",
                "ldp {one}, {two}, [{start}, {BUCKET}]",
                "str {two}, [{one}]",
                "ldr {tmp}, [{start}, {STATE_AT}]",
                "ldp {one}, {two}, [{start}, {STATE}]",
                "stp {one}, {two}, [{tmp}]",
                "ldp {one}, {two}, [{start}, {STATE} + 16]",
                "stp {one}, {two}, [{tmp}, #16]",
                "ldr {one}, [{start}, {STATE} + 32]",
                "str {one}, [{tmp}, #32]",
                "add {count}, {count}, #1",
                "stlr {count}, [{cell}]",
            ]
            operands: [
                NAME = const offset_of!(CellUpdate, name),
                CELL_NAME = const offset_of!(Cell, name),
                KEY = const offset_of!(CellUpdate, key),
                CELL_KEY = const offset_of!(Cell, key),
                HEAD = const offset_of!(CellUpdate, head),
                BUCKET = const offset_of!(CellUpdate, bucket),
                STATE_AT = const offset_of!(CellUpdate, state_at),
                STATE = const offset_of!(CellUpdate, state),
            ]
        }
    }
    Step::Done
}

/// The sequence that counts an event, as on x86-64.
///
/// - `first` makes `{at}` the offset of the event's cell, from `{two}`, the number of cells without
///   the overflow cell, and `{id}`, the event's id.
/// - `name` makes `{id}` what a cell has as its name.
/// - `key` jumps to 9 behind a comparison of names, if the key of the cell is that of the event,
///   too. It may use `{tmp}`.
/// - `update` updates the cell at `{cell}`, whose count is `{count}`, and ends with the instruction
///   that commits. It may use `{cpu}`, `{one}`, `{two}`, `{tmp}`, `{at}`, `{id}` and `{route}`.
macro_rules! count_sequence {
    (
        ($rseq:expr, $channel:expr, $route:expr, $id:expr)
        first: [$($first:literal),*]
        name: [$($name:literal),*]
        key: [$($key:literal),*]
        update: [$($update:literal),* $(,)?]
        operands: [$($operands:tt)*]
    ) => {
        sequence! {
            ($rseq, $channel, CPU_ID_OF_TABLE)
            refused: false,
            aborted: false,
            body: [
                // 0, but computed from the number of tables: loads at addresses with it come after
                // the load of that number. So route and id are those of the trace whose tables
                // these are.
                "eor {one}, {one}, {one}",
                "ldr {two:w}, [{route}, {one}]",
                "cmp {two:w}, {word:w}",
                "b.ne {refused}",
                "ldrh {id:w}, [{id}, {one}]",
                "cbz {id:w}, {refused}",
                "add {cell}, {channel}, {one}",
                "ldp {one}, {two}, [{cell}, {RING_SIZE}]",
                "ldr {tmp}, [{cell}, {BUFFERS}]",
                // `{tmp}` becomes the address of the table.
                "madd {tmp}, {one}, {cpu}, {tmp}",
                "sub {two}, {two}, #1",
                $($first,)*
                "cmp {at}, {two}",
                "b.lo 6f",
                // For a higher id, the slow path has the remainder of a division.
                "sub {at}, {at}, {two}",
                "cmp {at}, {two}",
                "b.hs {refused}",
                "6:",
                $($name,)*
                // Behind the overflow cell.
                "mov {one}, {SIZE}",
                "madd {cell}, {at}, {one}, {tmp}",
                "add {cell}, {cell}, {one}",
                "mov {cpu}, {PROBES}",
                "8:",
                "ldp {count}, {tmp}, [{cell}]",
                // Free, or a multiple of `SLOW_EACH`.
                "tst {count}, {SLOW_EACH} - 1",
                "b.eq {refused}",
                "cmp {tmp}, {id}",
                $($key,)*
                "add {at}, {at}, #1",
                "cmp {at}, {two}",
                "b.hs {refused}",
                "add {cell}, {cell}, {one}",
                "subs {cpu}, {cpu}, #1",
                "b.ne 8b",
                "b {refused}",
                "9:",
                $($update,)*
                "add {count}, {count}, #1",
                // The commit.
                "stlr {count}, [{cell}]",
                "4:",
            ]
            operands: [
                route = inout(reg) std::ptr::from_ref::<AtomicU32>($route.0) => _,
                word = in(reg) $route.1,
                id = inout(reg) std::ptr::from_ref::<AtomicU16>($id) => _,
                cell = out(reg) _,
                count = out(reg) _,
                $($operands)*
                RING_SIZE = const offset_of!(Channel, ring_size),
                BUFFERS = const offset_of!(Channel, buffers),
                PROBES = const LTT_COUNT_PROBES,
                SLOW_EACH = const SLOW_EACH,
            ]
        }
    };
}

/// Counts an event without a value in a table without values, and reports whether it did. `route`:
/// the word that led here, and where it is. The slow path finds out why not.
///
/// # Safety
/// `channel` must be one that [`Channel::open`] opened, or never was, or be wiped. It must have
/// such cells in each opening in which `route` has that word.
#[inline(always)]
pub(in crate::writer) unsafe fn count_plain(
    rseq: Rseq,
    channel: &Channel,
    route: (&AtomicU32, u32),
    id: &AtomicU16,
    key: Option<(u64, u32)>,
) -> bool {
    // SAFETY: all stores go to a cell of the table of this CPU, at an index below the number of
    // cells, as the channel was opened as `Channel::open` requires. The sequence is aborted if
    // another writer of that table could have come between.
    unsafe {
        match key {
            None => count_sequence! {
                (rseq, channel, route, id)
                first: ["mov {at}, {id}"]
                name: []
                key: ["b.eq 9f"]
                update: []
                operands: [
                    at = out(reg) _,
                    SIZE = const LTT_COUNT_CELL_PLAIN,
                ]
            },
            Some((key, hash)) => count_sequence! {
                (rseq, channel, route, id)
                first: ["mul {at}, {at}, {two}", "add {at}, {id}, {at}, lsr #32"]
                name: ["orr {id}, {id}, {NUMBER}"]
                key: ["ldr {tmp}, [{cell}, {KEY}]", "ccmp {tmp}, {key}, #0, eq", "b.eq 9f"]
                update: []
                operands: [
                    at = inout(reg) u64::from(hash) => _,
                    key = in(reg) key,
                    SIZE = const LTT_COUNT_CELL_PLAIN,
                    NUMBER = const (LTT_COUNT_KEY_NUMBER as u64) << 32,
                    KEY = const offset_of!(Cell, key),
                ]
            },
        }
    }
    true
}

/// Counts an event with a value in a table with values, and reports whether it did. `SIGNED`: as
/// the value is. The slow path finds out why not: the cell may have no value yet.
///
/// # Safety
/// As [`count_plain`]'s, and `value`'s bucket must be below [`LTT_COUNT_BUCKETS`].
#[inline(always)]
pub(in crate::writer) unsafe fn count_value<const SIGNED: bool>(
    rseq: Rseq,
    channel: &Channel,
    route: (&AtomicU32, u32),
    id: &AtomicU16,
    (value, bucket): (u64, usize),
    key: Option<(u64, u32)>,
) -> bool {
    macro_rules! of_value {
        (
            first: [$($first:literal),*]
            name: [$($name:literal),*]
            key: [$($key:literal),*]
            extension: $extension:literal
            less: $less:literal
            greater: $greater:literal
            operands: [$($operands:tt)*]
        ) => {
            count_sequence! {
                (rseq, channel, route, id)
                first: [$($first),*]
                name: [$($name),*]
                key: [$($key),*]
                update: [
                    // `{at}` becomes the address of the current state, `{id}` that of the next one.
                    "and {tmp}, {count}, #1",
                    "mov {one}, {STATE_SIZE}",
                    "mul {tmp}, {tmp}, {one}",
                    "add {id}, {cell}, {STATES}",
                    "add {at}, {id}, {tmp}",
                    "add {id}, {id}, {one}",
                    "sub {id}, {id}, {tmp}",
                    "ldr {tmp}, [{at}, {BUCKET}]",
                    "cbz {tmp}, {refused}",
                    // The next bucket word: one more than in this bucket's histogram entry, or than
                    // in the current word, if that is of this bucket.
                    "add {cpu}, {cell}, {HISTOGRAM}",
                    "ldr {two}, [{cpu}, {bucket}, lsl #3]",
                    "add {two}, {two}, #1",
                    "bfi {two}, {bucket}, {BUCKET_SHIFT}, #8",
                    // A program may have written anything there.
                    "ubfx {one}, {tmp}, {BUCKET_SHIFT}, {BUCKET_BITS}",
                    "add {route}, {tmp}, #1",
                    "cmp {one}, {bucket}",
                    "csel {two}, {route}, {two}, eq",
                    "ubfx {tmp}, {tmp}, #0, {BUCKET_SHIFT}",
                    // A reader that sees one of the stores also sees the count before.
                    "dmb ishst",
                    // The last update's bucket comes before the commit: until then, the cell says
                    // the same without it.
                    "str {tmp}, [{cpu}, {one}, lsl #3]",
                    "str {two}, [{id}, {BUCKET}]",
                    $extension,
                    "ldp {one}, {two}, [{at}, {SUM_LOW}]",
                    "adds {one}, {one}, {value}",
                    "adc {two}, {two}, {tmp}",
                    "stp {one}, {two}, [{id}, {SUM_LOW}]",
                    "ldp {one}, {two}, [{at}, {MIN}]",
                    "cmp {value}, {one}",
                    $less,
                    "cmp {value}, {two}",
                    $greater,
                    "stp {one}, {two}, [{id}, {MIN}]",
                ]
                operands: [
                    value = in(reg) value,
                    bucket = in(reg) bucket,
                    $($operands)*
                    SIZE = const LTT_COUNT_CELL_VALUE,
                    STATES = const size_of::<Cell>() + offset_of!(CellValues, state),
                    STATE_SIZE = const 8 * STATE_WORDS,
                    HISTOGRAM = const size_of::<Cell>() + offset_of!(CellValues, histogram),
                    BUCKET_SHIFT = const LTT_COUNT_BUCKET_SHIFT,
                    BUCKET_BITS = const LTT_COUNT_BUCKETS.trailing_zeros(),
                    SUM_LOW = const 8 * SUM_LOW,
                    MIN = const 8 * MIN,
                    BUCKET = const 8 * BUCKET,
                ]
            }
        };
    }
    macro_rules! of_sign {
        ($extension:literal, $less:literal, $greater:literal) => {
            match key {
                None => of_value! {
                    first: ["mov {at}, {id}"]
                    name: []
                    key: ["b.eq 9f"]
                    extension: $extension
                    less: $less
                    greater: $greater
                    operands: [at = out(reg) _,]
                },
                Some((key, hash)) => of_value! {
                    first: ["mul {at}, {at}, {two}", "add {at}, {id}, {at}, lsr #32"]
                    name: ["orr {id}, {id}, {NUMBER}"]
                    key: ["ldr {tmp}, [{cell}, {KEY}]", "ccmp {tmp}, {key}, #0, eq", "b.eq 9f"]
                    extension: $extension
                    less: $less
                    greater: $greater
                    operands: [
                        at = inout(reg) u64::from(hash) => _,
                        key = in(reg) key,
                        NUMBER = const (LTT_COUNT_KEY_NUMBER as u64) << 32,
                        KEY = const offset_of!(Cell, key),
                    ]
                },
            }
        };
    }
    // SAFETY: as in `count_plain`; `bucket` is one of the histogram's, as this function's caller
    // promises.
    unsafe {
        match SIGNED {
            false => of_sign!(
                "mov {tmp}, xzr",
                "csel {one}, {value}, {one}, lo",
                "csel {two}, {value}, {two}, hi"
            ),
            true => of_sign!(
                "asr {tmp}, {value}, #63",
                "csel {one}, {value}, {one}, lt",
                "csel {two}, {value}, {two}, gt"
            ),
        }
    }
    true
}

const _: () = {
    // These are loaded and stored in pairs.
    assert!(offset_of!(Cell, name) == 8);
    assert!(SUM_HIGH == SUM_LOW + 1 && MAX == MIN + 1);
    assert!(LTT_COUNT_BUCKETS.is_power_of_two());
};
