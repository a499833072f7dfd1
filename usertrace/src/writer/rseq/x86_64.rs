//! The restartable sequences on x86-64.
//!
//! Each sequence ends with one store that commits. If the thread is preempted, moved to another CPU
//! or interrupted by a signal before that store, the kernel continues it at the abort handler. The
//! caller then has to try again: the stores so far lie beyond `head`, where readers do not look.
//!
//! The kernel's `tools/testing/selftests/rseq/` was the model. The kernel prescribes the descriptor
//! (in the section `__rseq_cs`, where debuggers look for it), the pointer to it in the thread's
//! rseq area, and the signature in front of the abort handler.
//!
//! A debugger that single-steps aborts a sequence at each step. So callers limit their tries.

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
use crate::writer::channel::{AHEAD, Channel, Control};
use crate::writer::refusal::Refusal;
use crate::writer::ring_index::{CPU_ID, CPU_ID_OF_TABLE, offset};
use crate::writer::route::{ID_BITS, Route, STRIDE_BITS};
use crate::writer::thread::Thread;

// The id is the low half of `eax`.
const _: () = assert!(ID_BITS == 16);

/// A restartable sequence.
///
/// It has no effect and returns `$refused` if there is no ring for the CPU that it runs on, or for
/// another field at `$index` of the thread's area, which comments below call the CPU, too. `body`
/// finds that number in `{cpu}`, may use `rax`, `rdx` and `{cpu}`, and ends with the instruction
/// that commits.
///
/// It is tried once, and returns `$aborted` if it was interrupted: the slow path tries again. So it
/// need not preserve its inputs, and needs no registers that a function must save.
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

            // At first, `{cpu}` is the offset of the area.
            "lea rax, [rip + 7b]",
            "mov qword ptr fs:[{cpu} + {RSEQ_CS}], rax",
            "3:",
            // The number is very large in a thread without a CPU number, and in one whose block is
            // lent.
            "mov rax, qword ptr [rip + usertrace_thread@GOTTPOFF]",
            "mov {cpu:e}, dword ptr fs:[{cpu} + {INDEX}]",
            "or {cpu:e}, dword ptr fs:[rax + {THREAD_NO_CPU}]",
            "cmp {cpu:e}, dword ptr [{channel} + {NR_RINGS}]",
            "jae {refused}",
            $($body,)*
            "4:",

            ".pushsection __rseq_failure, \"ax\"",
            // With the signature, this is an instruction that traps, and that disassemblers know.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {SIGNATURE}",
            "5:",
            "jmp {aborted}",
            ".popsection",

            cpu = inout(reg) $rseq.offset.get() => _,
            channel = in(reg) std::ptr::from_ref::<Channel>($channel),
            out("rax") _,
            out("rdx") _,
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
/// - `identify` runs after the number of rings was loaded. `name` puts the event's id into `dx`.
///   Both may use `rax`, and registers of the operands.
/// - `block` makes `{control}` the offset of the ring's control block.
/// - `room` compares `rax`, the bytes that the sub-buffer has left, with the record's length.
/// - `copy` copies the payload behind the header, which is at `{cpu} + rax`, and may use `rax`,
///   `rdx` and `{cpu}`.
/// - `commit` adds the record's length to the ring's head, in one instruction.
macro_rules! record_sequence {
    (
        ($rseq:expr, $channel:expr, $index:expr)
        refused: $refused:expr,
        aborted: $aborted:expr,
        need_subbuf: $need_subbuf:expr,
        need_time: $need_time:expr,
        identify: [$($identify:literal),* $(,)?]
        name: [$($name:expr),* $(,)?]
        block: [$($block:expr),* $(,)?]
        room: [$($room:literal),*]
        copy: [$($copy:expr),* $(,)?]
        commit: [$($commit:literal),*]
        operands: [$($operands:tt)*]
    ) => {
        sequence! {
            ($rseq, $channel, $index)
            refused: $refused,
            aborted: $aborted,
            body: [
                $($identify,)*
                $($block,)*
                "add {control}, qword ptr [{channel} + {CONTROL}]",
                // Bytes that the sub-buffer has left; 0 if none was begun.
                "xor eax, eax",
                "sub rax, qword ptr [{control} + {HEAD}]",
                "and rax, qword ptr [{channel} + {SUBBUF_MASK}]",
                $($room,)*
                "jb {need_subbuf}",
                // `{cpu}` becomes the address of the ring.
                "imul {cpu}, qword ptr [{channel} + {RING_SIZE}]",
                "add {cpu}, qword ptr [{channel} + {BUFFERS}]",
                // The time: read within the sequence, so that times in a ring never go back.
                "rdtsc",
                "shl rdx, 32",
                "or rdx, rax",
                // Its upper 16 bits become the lowest: the header has the id there.
                "rol rdx, 16",
                "cmp dx, word ptr [{control} + {TIME} + 6]",
                "jne {need_time}",
                $($name,)*
                "mov rax, qword ptr [{channel} + {RING_MASK}]",
                "and rax, qword ptr [{control} + {HEAD}]",
                // Stores wait for their cache lines in order, and lines of a ring have left the
                // cache since the last lap. The instruction never faults, and does nothing on
                // processors that do not know it.
                "prefetchw byte ptr [{cpu} + rax + {AHEAD}]",
                "mov qword ptr [{cpu} + rax], rdx",
                $($copy,)*
                $($commit,)*
            ]
            operands: [
                control = out(reg) _,
                $($operands)*
                need_subbuf = label { return $need_subbuf },
                need_time = label { return $need_time },
                BUFFERS = const offset_of!(Channel, buffers),
                CONTROL = const offset_of!(Channel, control),
                RING_SIZE = const offset_of!(Channel, ring_size),
                RING_MASK = const offset_of!(Channel, ring_mask),
                SUBBUF_MASK = const offset_of!(Channel, subbuf_mask),
                HEAD = const offset_of!(Control, head),
                TIME = const offset_of!(Control, time),
                AHEAD = const AHEAD,
            ]
        }
    };
}

/// The `name` of [`record_sequence`] for the route of an event. The route is loaded once, after the
/// number of rings, as x86 does not reorder loads, and late enough for the id to need no register.
macro_rules! id_of_route {
    () => {
        "mov rax, qword ptr [{route}]
        mov dx, ax
        shr rax, {ID_BITS}
        cmp rax, {channel}
        jne {refused}"
    };
}

/// The `block` of [`record_sequence`] for a channel that a route leads to: faster than a
/// multiplication, for which the time stamp would wait.
macro_rules! block_of_route {
    () => {
        "mov {control}, {cpu}
        shl {control}, {STRIDE_BITS}"
    };
}

/// Stores a record with a payload of constant length, in registers, and reports whether it did. The
/// slow path finds out why not.
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
    /// The sequence for a payload that is short enough for registers.
    macro_rules! in_registers {
        ([$($copy:literal),*] [$($word:ident = $index:literal),*]) => {
            record_sequence! {
                (rseq, channel, CPU_ID)
                refused: false,
                aborted: false,
                need_subbuf: false,
                need_time: false,
                identify: []
                name: [id_of_route!()]
                block: [block_of_route!()]
                room: ["cmp rax, {LEN}"]
                copy: [$($copy),*]
                commit: ["add qword ptr [{control} + {HEAD}], {LEN}"]
                operands: [
                    route = in(reg) std::ptr::from_ref(route),
                    $($word = in(reg) payload[$index],)*
                    LEN = const { 8 + 8 * WORDS },
                    ID_BITS = const ID_BITS,
                    STRIDE_BITS = const STRIDE_BITS,
                ]
            }
        };
    }
    // SAFETY: the channel was opened as `Channel::open` requires, as this function's caller
    // promises: all stores go to memory in the ring of this CPU, beyond head, in a sub-buffer
    // that was begun and has room for it. The sequence is aborted if another writer could have come
    // between, so no other writer stores there before the commit. The thread's rseq area is where
    // `rseq` says. The kernel and the linker provide the `fs:` segment and the descriptor.
    unsafe {
        match WORDS {
            0 => in_registers!([] []),
            1 => in_registers!(["mov qword ptr [{cpu} + rax + 8], {a}"][a = 0]),
            2 => in_registers!(
                ["mov qword ptr [{cpu} + rax + 8], {a}", "mov qword ptr [{cpu} + rax + 16], {b}"]
                [a = 0, b = 1]
            ),
            3 => in_registers!(
                [
                    "mov qword ptr [{cpu} + rax + 8], {a}",
                    "mov qword ptr [{cpu} + rax + 16], {b}",
                    "mov qword ptr [{cpu} + rax + 24], {c}"
                ]
                [a = 0, b = 1, c = 2]
            ),
            4 => in_registers!(
                [
                    "mov qword ptr [{cpu} + rax + 8], {a}",
                    "mov qword ptr [{cpu} + rax + 16], {b}",
                    "mov qword ptr [{cpu} + rax + 24], {c}",
                    "mov qword ptr [{cpu} + rax + 32], {d}"
                ]
                [a = 0, b = 1, c = 2, d = 3]
            ),
            _ => return false,
        }
    }
    true
}

/// Copies the payload of `{words}` words at `{src}` behind the header at `{cpu} + rax`.
///
/// Loads are of single words. The caller's last stores may still be in the store buffer. A load of
/// a part of one store can get its bytes from there. A load of parts of two stores waits until both
/// have left it, behind all stores to the ring before them. Stores are of two words, as the store
/// buffer has few places.
macro_rules! copy_words {
    () => {
        "lea rax, [{cpu} + rax + 8]
        mov {cpu}, {words}
        sub {cpu}, 8
        jb 6f
        8:
        prefetchw byte ptr [rax + {AHEAD}]
        movq xmm0, qword ptr [{src}]
        movhps xmm0, qword ptr [{src} + 8]
        movq xmm1, qword ptr [{src} + 16]
        movhps xmm1, qword ptr [{src} + 24]
        movups xmmword ptr [rax], xmm0
        movups xmmword ptr [rax + 16], xmm1
        movq xmm0, qword ptr [{src} + 32]
        movhps xmm0, qword ptr [{src} + 40]
        movq xmm1, qword ptr [{src} + 48]
        movhps xmm1, qword ptr [{src} + 56]
        movups xmmword ptr [rax + 32], xmm0
        movups xmmword ptr [rax + 48], xmm1
        add {src}, 64
        add rax, 64
        sub {cpu}, 8
        jae 8b
        6:
        test {words:l}, 4
        jz 6f
        movq xmm0, qword ptr [{src}]
        movhps xmm0, qword ptr [{src} + 8]
        movq xmm1, qword ptr [{src} + 16]
        movhps xmm1, qword ptr [{src} + 24]
        movups xmmword ptr [rax], xmm0
        movups xmmword ptr [rax + 16], xmm1
        add {src}, 32
        add rax, 32
        6:
        test {words:l}, 2
        jz 6f
        movq xmm0, qword ptr [{src}]
        movhps xmm0, qword ptr [{src} + 8]
        movups xmmword ptr [rax], xmm0
        add {src}, 16
        add rax, 16
        6:
        test {words:l}, 1
        jz 6f
        mov rdx, qword ptr [{src}]
        mov qword ptr [rax], rdx
        6:"
    };
}

/// [`record_sequence`] for a payload that is in memory.
macro_rules! words_sequence {
    (
        ($rseq:expr, $channel:expr, $index:expr, $payload:expr)
        refused: $refused:expr,
        aborted: $aborted:expr,
        need_subbuf: $need_subbuf:expr,
        need_time: $need_time:expr,
        identify: [$($identify:literal),* $(,)?]
        name: [$($name:expr),* $(,)?]
        block: [$($block:expr),* $(,)?]
        operands: [$($operands:tt)*]
    ) => {
        record_sequence! {
            ($rseq, $channel, $index)
            refused: $refused,
            aborted: $aborted,
            need_subbuf: $need_subbuf,
            need_time: $need_time,
            identify: [$($identify),*]
            name: [$($name),*]
            block: [$($block),*]
            room: ["cmp rax, {len}"]
            copy: [copy_words!()]
            commit: ["add qword ptr [{control} + {HEAD}], {len}"]
            operands: [
                src = inout(reg) $payload.as_ptr() => _,
                words = in(reg) $payload.len(),
                len = in(reg) 8 + 8 * $payload.len(),
                out("xmm0") _,
                out("xmm1") _,
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
            (rseq, channel, CPU_ID, payload)
            refused: false,
            aborted: false,
            need_subbuf: false,
            need_time: false,
            identify: []
            name: [id_of_route!()]
            block: [block_of_route!()]
            operands: [
                route = in(reg) std::ptr::from_ref(route),
                ID_BITS = const ID_BITS,
                STRIDE_BITS = const STRIDE_BITS,
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
            (rseq, channel, INDEX, payload)
            refused: Err(Refusal::NoRing),
            aborted: Err(Refusal::Aborted),
            need_subbuf: Err(Refusal::NeedSubbuf),
            need_time: Err(Refusal::NeedTime),
            identify: [
                "movzx {id:e}, word ptr [{id}]",
                "test {id:e}, {id:e}",
                "jz {refused}",
            ]
            name: ["mov dx, {id:x}"]
            block: [
                "mov {control}, qword ptr [{channel} + {CONTROL_STRIDE}]",
                "imul {control}, {cpu}",
            ]
            operands: [
                id = inout(reg) std::ptr::from_ref(id) => _,
                CONTROL_STRIDE = const offset_of!(Channel, control_stride),
            ]
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
                "cmp {cpu:e}, dword ptr [{start} + {START_CPU}]",
                "jne {refused}",
                "mov {tmp:e}, dword ptr [{start} + {START_EPOCH}]",
                "cmp {tmp:e}, dword ptr [{channel} + {EPOCH}]",
                "jne {refused}",
                "mov {control}, qword ptr [{start} + {START_CONTROL}]",
                "mov {tmp}, qword ptr [{start} + {START_HEAD}]",
                "cmp {tmp}, qword ptr [{control} + {HEAD}]",
                "jne {refused}",
                $($body,)*
            ]
            operands: [
                start = in(reg) std::ptr::from_ref::<Start>($start),
                tmp = out(reg) _,
                control = out(reg) _,
                $($operands)*
                START_CPU = const offset_of!(Start, cpu),
                START_EPOCH = const offset_of!(Start, epoch),
                START_CONTROL = const offset_of!(Start, control),
                START_HEAD = const offset_of!(Start, head),
                EPOCH = const offset_of!(Channel, epoch),
                HEAD = const offset_of!(Control, head),
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
                "movzx {id:e}, word ptr [{id}]",
                "test {id:e}, {id:e}",
                "jz {refused}",
                "xor eax, eax",
                "sub rax, {tmp}",
                "and rax, qword ptr [{channel} + {SUBBUF_MASK}]",
                "cmp rax, {len}",
                "jb {refused}",
                "imul {cpu}, qword ptr [{channel} + {RING_SIZE}]",
                "add {cpu}, qword ptr [{channel} + {BUFFERS}]",
                "rol {time}, 16",
                "cmp {time:x}, word ptr [{control} + {TIME} + 6]",
                "jne {refused}",
                "mov {time:x}, {id:x}",
                "mov rax, qword ptr [{channel} + {RING_MASK}]",
                "and rax, {tmp}",
                "prefetchw byte ptr [{cpu} + rax + {AHEAD}]",
                "mov qword ptr [{cpu} + rax], {time}",
                copy_words!(),
                "add qword ptr [{control} + {HEAD}], {len}",
            ]
            operands: [
                id = inout(reg) std::ptr::from_ref(id) => _,
                time = inout(reg) time => _,
                src = inout(reg) payload.as_ptr() => _,
                words = in(reg) payload.len(),
                len = in(reg) 8 + 8 * payload.len(),
                out("xmm0") _,
                out("xmm1") _,
                BUFFERS = const offset_of!(Channel, buffers),
                RING_SIZE = const offset_of!(Channel, ring_size),
                RING_MASK = const offset_of!(Channel, ring_mask),
                SUBBUF_MASK = const offset_of!(Channel, subbuf_mask),
                TIME = const offset_of!(Control, time),
                AHEAD = const AHEAD,
            ]
        }
    }
    Step::Done
}

/// The sequence of [`advance`]. `time` leaves the time in `rax`, and may use `rdx`.
macro_rules! advance_sequence {
    (
        ($rseq:expr, $channel:expr, $index:expr, $arg:ident)
        time: [$($time:literal),* $(,)?]
    ) => {
        continued_sequence! {
            ($rseq, $channel, $index, &(*$arg).start)
            body: [
                $($time,)*
                "mov {tmp}, qword ptr [{arg} + {FULL_TIME}]",
                "mov qword ptr [{tmp}], rax",
                "mov rdx, rax",
                "shl rdx, 16",
                "or rdx, qword ptr [{arg} + {WORD_ID}]",
                "mov {tmp}, qword ptr [{arg} + {WORD}]",
                "mov qword ptr [{tmp}], rdx",
                "mov {tmp}, qword ptr [{arg} + {SECOND}]",
                "mov rdx, qword ptr [{arg} + {SECOND_WORD}]",
                "mov qword ptr [{tmp}], rdx",
                "mov {tmp}, qword ptr [{arg} + {SUBBUF}]",
                "mov qword ptr [{tmp} + {SUBBUF_TIME}], rax",
                "mov rdx, qword ptr [{arg} + {POSITION}]",
                "mov qword ptr [{tmp} + {SUBBUF_POSITION}], rdx",
                "mov rdx, qword ptr [{control} + {LOST}]",
                "mov qword ptr [{tmp} + {SUBBUF_LOST}], rdx",
                "mov dword ptr [{tmp} + {SUBBUF_CPU}], {cpu:e}",
                "mov dword ptr [{tmp} + {SUBBUF_MAGIC}], {MAGIC}",
                "mov rdx, qword ptr [{arg} + {NEW_HEAD}]",
                "mov qword ptr [{control} + {HEAD}], rdx",
            ]
            operands: [
                arg = in(reg) $arg,
                TIME = const offset_of!(Advance, time),
                FULL_TIME = const offset_of!(Advance, full_time),
                WORD = const offset_of!(Advance, word),
                WORD_ID = const offset_of!(Advance, word_id),
                SECOND = const offset_of!(Advance, second),
                SECOND_WORD = const offset_of!(Advance, second_word),
                SUBBUF = const offset_of!(Advance, subbuf),
                POSITION = const offset_of!(Advance, position),
                NEW_HEAD = const offset_of!(Advance, new_head),
                SUBBUF_POSITION = const offset_of!(LttSubbuf, position),
                SUBBUF_TIME = const offset_of!(LttSubbuf, time),
                SUBBUF_LOST = const offset_of!(LttSubbuf, lost),
                SUBBUF_CPU = const offset_of!(LttSubbuf, cpu),
                SUBBUF_MAGIC = const offset_of!(LttSubbuf, magic),
                MAGIC = const LTT_SUBBUF_MAGIC,
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
                "rdtsc",
                "shl rdx, 32",
                "or rax, rdx",
                "mov qword ptr [{arg} + {TIME}], rax",
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
            time: ["mov rax, qword ptr [{arg} + {TIME}]"]
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
                "cmp {claimed}, qword ptr [{control} + {CLAIMED}]",
                "jbe 4f",
                "mov qword ptr [{control} + {CLAIMED}], {claimed}",
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
                "cmp {epoch:e}, dword ptr [{channel} + {EPOCH}]",
                "jne {refused}",
                "mov qword ptr [{control} + {TIME}], {time}",
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
                "cmp {epoch:e}, dword ptr [{channel} + {EPOCH}]",
                "jne {refused}",
                "lock inc qword ptr [{control} + {LOST}]",
            ]
            operands: [
                epoch = in(reg) epoch,
                control = in(reg) std::ptr::from_ref(control),
                EPOCH = const offset_of!(Channel, epoch),
                LOST = const offset_of!(Control, lost),
            ]
        }
    }
    Step::Done
}

/// A sequence that changes a cell of a table. It does nothing unless all of `$start` still holds,
/// but for the count, which `body` compares. `body` finds the address of the cell in `{cell}`, and
/// may use `{tmp}`.
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
                "cmp {cpu:e}, dword ptr [{start} + {START_CPU}]",
                "jne {refused}",
                "mov {tmp:e}, dword ptr [{start} + {START_EPOCH}]",
                "cmp {tmp:e}, dword ptr [{channel} + {EPOCH}]",
                "jne {refused}",
                "mov {cell}, qword ptr [{start} + {START_CELL}]",
                $($body,)*
            ]
            operands: [
                start = in(reg) $start,
                tmp = out(reg) _,
                cell = out(reg) _,
                $($operands)*
                START_CPU = const offset_of!(CellStart, cpu),
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
                "inc qword ptr [{cell} + {COUNT}]",
            ]
            operands: [
                COUNT = const offset_of!(Cell, count),
            ]
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
                "mov {tmp}, qword ptr [{start} + {START_COUNT}]",
                "cmp {tmp}, qword ptr [{cell} + {COUNT}]",
                "jne {refused}",
                "test {tmp}, {tmp}",
                "jnz 6f",
                "mov rax, qword ptr [{start} + {NAME}]",
                "mov qword ptr [{cell} + {CELL_NAME}], rax",
                "mov {tmp}, qword ptr [{start} + {KEY}]",
                "mov rax, qword ptr [{tmp}]",
                "mov rdx, qword ptr [{tmp} + 8]",
                "mov qword ptr [{cell} + {CELL_KEY}], rax",
                "mov qword ptr [{cell} + {CELL_KEY} + 8], rdx",
                "mov rax, qword ptr [{tmp} + 16]",
                "mov rdx, qword ptr [{tmp} + 24]",
                "mov qword ptr [{cell} + {CELL_KEY} + 16], rax",
                "mov qword ptr [{cell} + {CELL_KEY} + 24], rdx",
                "mov rax, qword ptr [{start} + {HEAD}]",
                "mov rdx, qword ptr [{start} + {TABLE_SIZE}]",
                "mov qword ptr [rax], rdx",
                "6:",
                // The last update's bucket comes first: until the commit, the cell says the same
                // without it.
                "mov rax, qword ptr [{start} + {BUCKET}]",
                "mov rdx, qword ptr [{start} + {FOLDED}]",
                "mov qword ptr [rax], rdx",
                "mov rax, qword ptr [{start} + {STATE_AT}]",
                "mov rdx, qword ptr [{start} + {STATE}]",
                "mov qword ptr [rax], rdx",
                "mov rdx, qword ptr [{start} + {STATE} + 8]",
                "mov qword ptr [rax + 8], rdx",
                "mov rdx, qword ptr [{start} + {STATE} + 16]",
                "mov qword ptr [rax + 16], rdx",
                "mov rdx, qword ptr [{start} + {STATE} + 24]",
                "mov qword ptr [rax + 24], rdx",
                "mov rdx, qword ptr [{start} + {STATE} + 32]",
                "mov qword ptr [rax + 32], rdx",
                // The commit.
                "inc qword ptr [{cell} + {COUNT}]",
            ]
            operands: [
                START_COUNT = const offset_of!(CellStart, count),
                COUNT = const offset_of!(Cell, count),
                NAME = const offset_of!(CellUpdate, name),
                CELL_NAME = const offset_of!(Cell, name),
                KEY = const offset_of!(CellUpdate, key),
                CELL_KEY = const offset_of!(Cell, key),
                HEAD = const offset_of!(CellUpdate, head),
                TABLE_SIZE = const offset_of!(CellUpdate, table_size),
                BUCKET = const offset_of!(CellUpdate, bucket),
                FOLDED = const offset_of!(CellUpdate, folded),
                STATE_AT = const offset_of!(CellUpdate, state_at),
                STATE = const offset_of!(CellUpdate, state),
            ]
        }
    }
    Step::Done
}

// The sequences address `start` through a pointer to the update.
const _: () = assert!(offset_of!(CellUpdate, start) == 0);

/// The sequence that counts an event: it finds the event's cell, which must not be free, and
/// updates that.
///
/// - `spread` adds what a key is spread by to `{at}`, the id. `rax` is the number of cells, without
///   the overflow cell.
/// - `name` makes `{id}`, the event's id, what a cell has as its name.
/// - `scale` multiplies `{cell}` by the size of a cell.
/// - `key` jumps to 9 behind a comparison of names, if the key of the cell is that of the event,
///   too.
/// - `update` updates the cell at `{cell}`, and ends with the instruction that commits. It may use
///   `rax`, `rdx`, `{cpu}`, `{at}`, `{id}` and `{tmp}`.
macro_rules! count_sequence {
    (
        ($rseq:expr, $channel:expr, $route:expr, $id:expr)
        spread: [$($spread:literal),*]
        name: [$($name:literal),*]
        key: [$($key:literal),*]
        scale: [$($scale:literal),*]
        update: [$($update:literal),* $(,)?]
        operands: [$($operands:tt)*]
    ) => {
        sequence! {
            ($rseq, $channel, CPU_ID_OF_TABLE)
            refused: false,
            aborted: false,
            body: [
                // The route and the id come after the number of tables, as x86 does not reorder
                // loads: they are those of the trace whose tables these are.
                "mov eax, dword ptr [{cell}]",
                "cmp eax, {tmp:e}",
                "jne {refused}",
                "movzx {id:e}, word ptr [{id}]",
                "test {id:e}, {id:e}",
                "jz {refused}",
                "mov rax, qword ptr [{channel} + {CELLS}]",
                "dec rax",
                // `{cpu}` becomes the address of the table.
                "imul {cpu}, qword ptr [{channel} + {RING_SIZE}]",
                "add {cpu}, qword ptr [{channel} + {BUFFERS}]",
                $($spread,)*
                "add {at}, {id}",
                "cmp {at}, rax",
                "jb 6f",
                // For a higher id, the slow path has the remainder of a division.
                "sub {at}, rax",
                "cmp {at}, rax",
                "jae {refused}",
                "6:",
                $($name,)*
                // Behind the overflow cell.
                "mov {cell}, {at}",
                $($scale,)*
                "lea {cell}, [{cell} + {cpu} + {SIZE}]",
                "mov edx, {PROBES}",
                "8:",
                // Free, or a multiple of `SLOW_EACH`.
                "cmp byte ptr [{cell} + {COUNT}], 0",
                "je {refused}",
                "cmp {id}, qword ptr [{cell} + {NAME}]",
                $($key,)*
                "inc {at}",
                "cmp {at}, rax",
                "jae {refused}",
                "add {cell}, {SIZE}",
                "dec edx",
                "jnz 8b",
                "jmp {refused}",
                "9:",
                $($update,)*
            ]
            operands: [
                cell = inout(reg) std::ptr::from_ref::<AtomicU32>($route.0) => _,
                tmp = inout(reg) u64::from($route.1) => _,
                id = inout(reg) std::ptr::from_ref::<AtomicU16>($id) => _,
                $($operands)*
                CELLS = const offset_of!(Channel, ring_mask),
                RING_SIZE = const offset_of!(Channel, ring_size),
                BUFFERS = const offset_of!(Channel, buffers),
                PROBES = const LTT_COUNT_PROBES,
                COUNT = const offset_of!(Cell, count),
                NAME = const offset_of!(Cell, name),
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
                spread: ["xor {at:e}, {at:e}"]
                name: []
                key: ["je 9f"]
                scale: ["shl {cell}, 6"]
                update: ["inc qword ptr [{cell} + {COUNT}]"]
                operands: [
                    at = out(reg) _,
                    SIZE = const LTT_COUNT_CELL_PLAIN,
                ]
            },
            Some((key, hash)) => count_sequence! {
                (rseq, channel, route, id)
                spread: ["imul {at}, rax", "shr {at}, 32"]
                name: ["mov rdx, {NUMBER}", "or {id}, rdx"]
                key: ["jne 6f", "cmp {key}, qword ptr [{cell} + {KEY}]", "je 9f", "6:"]
                scale: ["shl {cell}, 6"]
                update: ["inc qword ptr [{cell} + {COUNT}]"]
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
            spread: [$($spread:literal),*]
            name: [$($name:literal),*]
            key: [$($key:literal),*]
            extension: $extension:literal
            less: $less:literal
            greater: $greater:literal
            operands: [$($operands:tt)*]
        ) => {
            count_sequence! {
                (rseq, channel, route, id)
                spread: [$($spread),*]
                name: [$($name),*]
                key: [$($key),*]
                scale: ["imul {cell}, {cell}, {SIZE}"]
                update: [
                    // `rax` becomes the address of the current state, `{at}` that of the next one.
                    "mov rax, qword ptr [{cell} + {COUNT}]",
                    "and eax, 1",
                    "imul eax, eax, {STATE_SIZE}",
                    "lea rax, [{cell} + rax + {STATES}]",
                    "lea {at}, [2 * {cell} + 2 * {STATES} + {STATE_SIZE}]",
                    "sub {at}, rax",
                    "mov rdx, qword ptr [rax + {BUCKET}]",
                    "test rdx, rdx",
                    "jz {refused}",
                    // The next bucket word: one more than in this bucket's histogram entry, or than
                    // in the current word, if that is of this bucket.
                    "mov {id}, qword ptr [{cell} + 8 * {bucket} + {HISTOGRAM}]",
                    "inc {id}",
                    "shl {id}, 8",
                    "or {id}, {bucket}",
                    "ror {id}, 8",
                    "mov {tmp}, rdx",
                    "shr {tmp}, {BUCKET_SHIFT}",
                    // A program may have written anything there.
                    "and {tmp:e}, {BUCKETS} - 1",
                    "lea {cpu}, [rdx + 1]",
                    "cmp {tmp}, {bucket}",
                    "cmove {id}, {cpu}",
                    "mov qword ptr [{at} + {BUCKET}], {id}",
                    // The last update's bucket comes before the commit: until then, the cell says
                    // the same without it.
                    "shl rdx, 8",
                    "shr rdx, 8",
                    "mov qword ptr [{cell} + 8 * {tmp} + {HISTOGRAM}], rdx",
                    $extension,
                    "mov rdx, qword ptr [rax + {SUM_LOW}]",
                    "add rdx, {value}",
                    "mov qword ptr [{at} + {SUM_LOW}], rdx",
                    "mov rdx, qword ptr [rax + {SUM_HIGH}]",
                    "adc rdx, {tmp}",
                    "mov qword ptr [{at} + {SUM_HIGH}], rdx",
                    "mov rdx, qword ptr [rax + {MIN}]",
                    "cmp {value}, rdx",
                    $less,
                    "mov qword ptr [{at} + {MIN}], rdx",
                    "mov rdx, qword ptr [rax + {MAX}]",
                    "cmp {value}, rdx",
                    $greater,
                    "mov qword ptr [{at} + {MAX}], rdx",
                    // The commit.
                    "inc qword ptr [{cell} + {COUNT}]",
                ]
                operands: [
                    value = in(reg) value,
                    bucket = in(reg) bucket,
                    $($operands)*
                    SIZE = const LTT_COUNT_CELL_VALUE,
                    STATES = const size_of::<Cell>() + offset_of!(CellValues, state),
                    STATE_SIZE = const 8 * STATE_WORDS,
                    HISTOGRAM = const size_of::<Cell>() + offset_of!(CellValues, histogram),
                    BUCKETS = const LTT_COUNT_BUCKETS,
                    BUCKET_SHIFT = const LTT_COUNT_BUCKET_SHIFT,
                    SUM_LOW = const 8 * SUM_LOW,
                    SUM_HIGH = const 8 * SUM_HIGH,
                    MIN = const 8 * MIN,
                    MAX = const 8 * MAX,
                    BUCKET = const 8 * BUCKET,
                ]
            }
        };
    }
    macro_rules! of_sign {
        ($extension:literal, $less:literal, $greater:literal) => {
            match key {
                None => of_value! {
                    spread: ["xor {at:e}, {at:e}"]
                    name: []
                    key: ["je 9f"]
                    extension: $extension
                    less: $less
                    greater: $greater
                    operands: [at = out(reg) _,]
                },
                Some((key, hash)) => of_value! {
                    spread: ["imul {at}, rax", "shr {at}, 32"]
                    name: ["mov rdx, {NUMBER}", "or {id}, rdx"]
                    key: ["jne 6f", "cmp {key}, qword ptr [{cell} + {KEY}]", "je 9f", "6:"]
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
            false => of_sign!("mov {tmp:e}, 0", "cmovb rdx, {value}", "cmova rdx, {value}"),
            true => of_sign!(
                "mov {tmp}, {value}\nsar {tmp}, 63",
                "cmovl rdx, {value}",
                "cmovg rdx, {value}"
            ),
        }
    }
    true
}

const _: () = {
    // The sequence looks at one byte of the count.
    assert!(SLOW_EACH == 1 << 8);
    // The shifts by 8 keep the count in a bucket's word.
    assert!(LTT_COUNT_BUCKET_SHIFT == 56);
    assert!(LTT_COUNT_CELL_PLAIN == 1 << 6);
    assert!(LTT_COUNT_BUCKETS.is_power_of_two());
};
