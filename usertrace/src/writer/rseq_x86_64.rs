//! The restartable sequences of x86-64.
//!
//! Each sequence ends with one store that commits. If the thread is preempted, moved to another CPU or interrupted
//! by a signal before that store, the kernel continues it at the abort handler, which starts the sequence again:
//! what it had stored lies beyond `head` and means nothing. `tools/testing/selftests/rseq/` in the kernel has the
//! model; the pieces that the kernel prescribes are the descriptor (in the section `__rseq_cs`, where debuggers
//! look), the pointer to it in the thread's rseq area, and the signature in front of the abort handler.
//!
//! A debugger that single-steps aborts a sequence at each step. So the abort handler counts, and gives up.

use std::arch::asm;
use std::mem::offset_of;
use std::sync::atomic::AtomicU16;

use usertrace_sys::uapi::{LTT_SUBBUF_MAGIC, LttSubbuf};

use super::channel::{Channel, Control};

/// How often a sequence is tried before the record is given up.
///
/// Each try that fails was interrupted within some tens of nanoseconds: by chance this happens twice in a row at
/// most, unless something makes it happen.
const TRIES: u32 = 32;

/// `offsetof(struct rseq, cpu_id)`
const CPU_ID: i32 = 4;
/// `offsetof(struct rseq, rseq_cs)`
const RSEQ_CS: i32 = 8;
/// What stands in front of each abort handler: glibc registers with it.
const SIGNATURE: u32 = 0x5305_3053;

/// Where each thread's registered rseq area lies: proof that glibc registers one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rseq {
    /// From the thread pointer.
    offset: isize,
}

/// There is no registered rseq area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoRseq {
    /// The C library registers none: glibc before 2.35, or another one.
    Library,
    /// The C library tried, and the kernel refused, or was told not to try (`glibc.pthread.rseq=0`).
    Kernel,
}

impl Rseq {
    /// Asks the C library.
    ///
    /// # Errors
    /// There is no area, see [`NoRseq`].
    pub fn find() -> Result<Self, NoRseq> {
        let (offset, size): (*const isize, *const u32);
        // SAFETY: reads two entries of the global offset table. The symbols are weak: an entry is 0 if the C library
        // does not have it.
        unsafe {
            asm!(
                ".weak __rseq_offset",
                ".weak __rseq_size",
                "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
                "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
                offset = out(reg) offset,
                size = out(reg) size,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        if offset.is_null() || size.is_null() {
            return Err(NoRseq::Library);
        }
        // SAFETY: glibc's, constant since before the first constructor ran.
        let (offset, size) = unsafe { (*offset, *size) };
        if size == 0 {
            Err(NoRseq::Kernel)
        } else {
            Ok(Self { offset })
        }
    }

    /// As a number that a static can hold. Never 0: the thread's control block is there.
    pub(crate) fn to_raw(self) -> isize {
        self.offset
    }

    /// # Safety
    /// `raw` must come from [`Rseq::to_raw`] in this process.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(raw: isize) -> Self {
        Self { offset: raw }
    }

    /// The CPU that the thread was on a moment ago; not a CPU's number if the thread has no registered area.
    pub(super) fn cpu(self) -> u32 {
        let cpu: u32;
        // SAFETY: `offset` is that of the area, which each thread has, registered or not.
        unsafe {
            asm!(
                "mov {cpu:e}, dword ptr fs:[{offset} + {CPU_ID}]",
                offset = in(reg) self.offset,
                cpu = out(reg) cpu,
                CPU_ID = const CPU_ID,
                options(readonly, nostack, preserves_flags),
            );
        }
        cpu
    }
}

/// Why a sequence did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no ring for this thread's CPU, or no id: closed, wiped, or a thread without rseq.
    NoRing,
    /// The record does not fit into the sub-buffer, or there is none.
    NeedSubbuf,
    /// A full time stamp must come first.
    NeedTime,
    /// It was aborted too often.
    Aborted,
}

/// The sequence that stores a record: all of the event path.
///
/// `len` makes `rax`, the record's offset in its sub-buffer, the offset of its last byte. `copy` copies the payload
/// from `{src}` to behind the header at `{base} + rax`, may use `rax`, `rdx`, `{base}` and `{tmp}`, and moves
/// `{head}` behind the record.
macro_rules! record_sequence {
    (
        ($rseq:expr, $channel:expr, $id:expr, $src:expr)
        len: [$($len:literal),*]
        copy: [$($copy:literal),*]
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

            "2:",
            "lea {tmp}, [rip + 7b]",
            "mov qword ptr fs:[{rseq} + {RSEQ_CS}], {tmp}",
            "3:",
            // The ring of this CPU. A thread without a CPU number has a very large one.
            "mov {base:e}, dword ptr fs:[{rseq} + {CPU_ID}]",
            "cmp {base:e}, dword ptr [{channel} + {NR_RINGS}]",
            "jae {no_ring}",
            "movzx {tmp:e}, word ptr [{id}]",
            "test {tmp:e}, {tmp:e}",
            "jz {no_ring}",
            "mov {control}, qword ptr [{channel} + {CONTROL_STRIDE}]",
            "imul {control}, {base}",
            "add {control}, qword ptr [{channel} + {CONTROL}]",
            "mov {head}, qword ptr [{control} + {HEAD}]",
            // Is there a sub-buffer, and room in it?
            "mov rax, qword ptr [{channel} + {SUBBUF_MASK}]",
            "and rax, {head}",
            "jz {need_subbuf}",
            $($len,)*
            "cmp rax, qword ptr [{channel} + {SUBBUF_MASK}]",
            "ja {need_subbuf}",
            "imul {base}, qword ptr [{channel} + {RING_SIZE}]",
            "add {base}, qword ptr [{channel} + {BUFFERS}]",
            // The header: read here, so that times in a ring never go back.
            "rdtsc",
            "shl rdx, 32",
            "or rdx, rax",
            "mov rax, qword ptr [{control} + {TIME}]",
            "xor rax, rdx",
            "shr rax, 48",
            "jnz {need_time}",
            "shl rdx, 16",
            "or rdx, {tmp}",
            "mov rax, qword ptr [{channel} + {RING_MASK}]",
            "and rax, {head}",
            "mov qword ptr [{base} + rax], rdx",
            $($copy,)*
            // The commit.
            "mov qword ptr [{control} + {HEAD}], {head}",
            "4:",

            ".pushsection __rseq_failure, \"ax\"",
            // With the signature, an instruction that disassemblers know, and that traps.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {SIGNATURE}",
            "5:",
            "dec {tries:e}",
            "jnz 2b",
            "jmp {aborted}",
            ".popsection",

            rseq = in(reg) $rseq.offset,
            channel = in(reg) std::ptr::from_ref::<Channel>($channel),
            id = in(reg) std::ptr::from_ref::<AtomicU16>($id),
            src = in(reg) $src,
            tries = inout(reg) TRIES => _,
            base = out(reg) _,
            control = out(reg) _,
            head = out(reg) _,
            tmp = out(reg) _,
            out("rax") _,
            out("rdx") _,
            $($operands)*
            no_ring = label { return Err(Refusal::NoRing) },
            need_subbuf = label { return Err(Refusal::NeedSubbuf) },
            need_time = label { return Err(Refusal::NeedTime) },
            aborted = label { return Err(Refusal::Aborted) },
            RSEQ_CS = const RSEQ_CS,
            CPU_ID = const CPU_ID,
            SIGNATURE = const SIGNATURE,
            NR_RINGS = const offset_of!(Channel, nr_rings),
            BUFFERS = const offset_of!(Channel, buffers),
            CONTROL = const offset_of!(Channel, control),
            CONTROL_STRIDE = const offset_of!(Channel, control_stride),
            RING_SIZE = const offset_of!(Channel, ring_size),
            RING_MASK = const offset_of!(Channel, ring_mask),
            SUBBUF_MASK = const offset_of!(Channel, subbuf_mask),
            HEAD = const offset_of!(Control, head),
            TIME = const offset_of!(Control, time),
            options(nostack),
        )
    };
}

/// Stores a record whose payload's length the compiler knows.
///
/// # Safety
/// `channel` must be one that [`Channel::open`] opened, or never was, or be wiped; the id must not be one of a record
/// that means something else than an event.
#[inline(always)]
pub(super) unsafe fn record<const WORDS: usize>(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64; WORDS],
) -> Result<(), Refusal> {
    /// The payload is so short that its copy is written out.
    macro_rules! written_out {
        ($($copy:literal),*) => {
            record_sequence! {
                (rseq, channel, id, payload.as_ptr())
                len: ["add rax, {LEN} - 1"]
                copy: [$($copy,)* "add {head}, {LEN}"]
                operands: [LEN = const { 8 + 8 * WORDS },]
            }
        };
    }
    // SAFETY: the caller's promise about the channel: all that is stored to lies in the ring of this CPU, beyond
    // head, in a sub-buffer that was begun and has room for it. The sequence is restarted if another writer could
    // have come between, so no other writer stores there before the commit. `payload` has WORDS words. The thread's
    // rseq area is where `rseq` says. What `fs:` and the descriptor need, the kernel and the linker provide.
    unsafe {
        match WORDS {
            0 => written_out!("/* {src} */"),
            1 => written_out!(
                "mov rdx, qword ptr [{src}]",
                "mov qword ptr [{base} + rax + 8], rdx"
            ),
            2 => written_out!(
                "mov rdx, qword ptr [{src}]",
                "mov {tmp}, qword ptr [{src} + 8]",
                "mov qword ptr [{base} + rax + 8], rdx",
                "mov qword ptr [{base} + rax + 16], {tmp}"
            ),
            3 => written_out!(
                "mov rdx, qword ptr [{src}]",
                "mov {tmp}, qword ptr [{src} + 8]",
                "mov qword ptr [{base} + rax + 8], rdx",
                "mov rdx, qword ptr [{src} + 16]",
                "mov qword ptr [{base} + rax + 16], {tmp}",
                "mov qword ptr [{base} + rax + 24], rdx"
            ),
            4 => written_out!(
                "mov rdx, qword ptr [{src}]",
                "mov {tmp}, qword ptr [{src} + 8]",
                "mov qword ptr [{base} + rax + 8], rdx",
                "mov rdx, qword ptr [{src} + 16]",
                "mov qword ptr [{base} + rax + 16], {tmp}",
                "mov {tmp}, qword ptr [{src} + 24]",
                "mov qword ptr [{base} + rax + 24], rdx",
                "mov qword ptr [{base} + rax + 32], {tmp}"
            ),
            _ => return record_words(rseq, channel, id, payload),
        }
    }
    Ok(())
}

/// Stores a record with any payload.
///
/// # Safety
/// As [`record`]'s; and the payload must not be longer than [`super::channel::LONGEST`] allows.
pub(super) unsafe fn record_words(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> Result<(), Refusal> {
    // SAFETY: as in `record`; `payload` has `words` words.
    unsafe {
        record_sequence! {
            (rseq, channel, id, payload.as_ptr())
            len: ["lea rax, [rax + 8 * {words} + 7]"]
            copy: [
                "add rax, {base}",
                "mov {tmp}, {words}",
                "test {tmp}, {tmp}",
                "jz 6f",
                "8:",
                "mov rdx, qword ptr [{src} + 8 * {tmp} - 8]",
                "mov qword ptr [rax + 8 * {tmp}], rdx",
                "dec {tmp}",
                "jnz 8b",
                "6:",
                "lea {head}, [{head} + 8 * {words} + 8]"
            ]
            operands: [words = in(reg) payload.len(),]
        }
    }
    Ok(())
}

/// What [`advance`] stores. Pointers to where nothing is to be stored point to `unused`.
#[repr(C)]
pub(super) struct Advance {
    /// Of the channel; `cpu`, `control` and `head` are what the addresses were made from.
    pub(super) epoch: u32,
    pub(super) cpu: u32,
    pub(super) control: *const Control,
    pub(super) head: u64,
    /// Gets a header word with `word_id` and the time.
    pub(super) word: *mut u64,
    pub(super) word_id: u64,
    /// Gets the full time.
    pub(super) full_time: *mut u64,
    /// Gets the header of a sub-buffer at `position`.
    pub(super) subbuf: *mut LttSubbuf,
    pub(super) position: u64,
    /// What `head` becomes.
    pub(super) new_head: u64,
    /// Out: the time.
    pub(super) time: u64,
}

/// How a sequence of the slow path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Committed.
    Done,
    /// What it started from holds no more: somebody else came first.
    Changed,
    /// It was aborted too often.
    Aborted,
}

/// A sequence of the slow path. It does something only if the thread is still on the CPU, and the channel still in
/// the epoch, that the slow path started from; `check` and `body` may use `rax`, `rdx` and `{tmp}`; the last
/// instruction of `body` commits.
macro_rules! checked_sequence {
    (
        ($rseq:expr, $channel:expr)
        check: [$($check:literal),*]
        body: [$($body:literal),*]
        operands: [$($operands:tt)*]
    ) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "7:",
            ".long 0, 0",
            ".quad 3f, 4f - 3f, 5f",
            ".popsection",
            ".pushsection __rseq_cs_ptr_array, \"aw\"",
            ".quad 7b",
            ".popsection",

            "2:",
            "lea {tmp}, [rip + 7b]",
            "mov qword ptr fs:[{rseq} + {RSEQ_CS}], {tmp}",
            "3:",
            "mov {tmp:e}, dword ptr fs:[{rseq} + {CPU_ID}]",
            "cmp {tmp:e}, dword ptr [{channel} + {NR_RINGS}]",
            "jae {changed}",
            $($check,)*
            $($body,)*
            "4:",

            ".pushsection __rseq_failure, \"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {SIGNATURE}",
            "5:",
            "dec {tries:e}",
            "jnz 2b",
            "jmp {aborted}",
            ".popsection",

            rseq = in(reg) $rseq.offset,
            channel = in(reg) std::ptr::from_ref::<Channel>($channel),
            tries = inout(reg) TRIES => _,
            tmp = out(reg) _,
            out("rax") _,
            out("rdx") _,
            $($operands)*
            changed = label { return Step::Changed },
            aborted = label { return Step::Aborted },
            RSEQ_CS = const RSEQ_CS,
            CPU_ID = const CPU_ID,
            SIGNATURE = const SIGNATURE,
            NR_RINGS = const offset_of!(Channel, nr_rings),
            EPOCH = const offset_of!(Channel, epoch),
            options(nostack),
        )
    };
}

/// Stores what `advance` says, and moves `head`.
///
/// # Safety
/// The addresses in `advance` must have been made from a [`super::channel::Ring`] of `channel` for that CPU, that
/// epoch and that head, and lie in the part of the ring that may be overwritten, or in memory of the caller.
pub(super) unsafe fn advance(rseq: Rseq, channel: &Channel, advance: &mut Advance) -> Step {
    // SAFETY: the caller's promise, for as long as CPU, epoch and head are what they were; that they are is compared
    // in the sequence, and the sequence is restarted if they could have changed since.
    unsafe {
        checked_sequence! {
            (rseq, channel)
            check: [
                "cmp {tmp:e}, dword ptr [{arg} + {ARG_CPU}]",
                "jne {changed}",
                "mov {tmp:e}, dword ptr [{arg} + {ARG_EPOCH}]",
                "cmp {tmp:e}, dword ptr [{channel} + {EPOCH}]",
                "jne {changed}",
                "mov {control}, qword ptr [{arg} + {ARG_CONTROL}]",
                "mov {tmp}, qword ptr [{arg} + {ARG_HEAD}]",
                "cmp {tmp}, qword ptr [{control} + {HEAD}]",
                "jne {changed}"
            ]
            body: [
                "rdtsc",
                "shl rdx, 32",
                "or rax, rdx",
                "mov qword ptr [{arg} + {ARG_TIME}], rax",
                "mov {tmp}, qword ptr [{arg} + {ARG_FULL_TIME}]",
                "mov qword ptr [{tmp}], rax",
                "mov rdx, rax",
                "shl rdx, 16",
                "or rdx, qword ptr [{arg} + {ARG_WORD_ID}]",
                "mov {tmp}, qword ptr [{arg} + {ARG_WORD}]",
                "mov qword ptr [{tmp}], rdx",
                "mov {tmp}, qword ptr [{arg} + {ARG_SUBBUF}]",
                "mov qword ptr [{tmp} + {SUBBUF_TIME}], rax",
                "mov rdx, qword ptr [{arg} + {ARG_POSITION}]",
                "mov qword ptr [{tmp} + {SUBBUF_POSITION}], rdx",
                "mov rdx, qword ptr [{control} + {LOST}]",
                "mov qword ptr [{tmp} + {SUBBUF_LOST}], rdx",
                "mov edx, dword ptr [{arg} + {ARG_CPU}]",
                "mov dword ptr [{tmp} + {SUBBUF_CPU}], edx",
                "mov dword ptr [{tmp} + {SUBBUF_MAGIC}], {MAGIC}",
                "mov rdx, qword ptr [{arg} + {ARG_NEW_HEAD}]",
                "mov qword ptr [{control} + {HEAD}], rdx"
            ]
            operands: [
                arg = in(reg) std::ptr::from_mut(advance),
                control = out(reg) _,
                ARG_CPU = const offset_of!(Advance, cpu),
                ARG_EPOCH = const offset_of!(Advance, epoch),
                ARG_CONTROL = const offset_of!(Advance, control),
                ARG_HEAD = const offset_of!(Advance, head),
                ARG_TIME = const offset_of!(Advance, time),
                ARG_FULL_TIME = const offset_of!(Advance, full_time),
                ARG_WORD = const offset_of!(Advance, word),
                ARG_WORD_ID = const offset_of!(Advance, word_id),
                ARG_SUBBUF = const offset_of!(Advance, subbuf),
                ARG_POSITION = const offset_of!(Advance, position),
                ARG_NEW_HEAD = const offset_of!(Advance, new_head),
                SUBBUF_POSITION = const offset_of!(LttSubbuf, position),
                SUBBUF_TIME = const offset_of!(LttSubbuf, time),
                SUBBUF_LOST = const offset_of!(LttSubbuf, lost),
                SUBBUF_CPU = const offset_of!(LttSubbuf, cpu),
                SUBBUF_MAGIC = const offset_of!(LttSubbuf, magic),
                MAGIC = const LTT_SUBBUF_MAGIC,
                HEAD = const offset_of!(Control, head),
                LOST = const offset_of!(Control, lost),
            ]
        }
    }
    Step::Done
}

/// Stores the newest full time of the ring that `control` belongs to, unless the channel was closed since.
///
/// # Safety
/// As [`lose`]'s.
pub(super) unsafe fn note_time(
    rseq: Rseq,
    channel: &Channel,
    epoch: u32,
    control: &Control,
    time: u64,
) -> Step {
    // SAFETY: stores to an atomic field of `control`.
    unsafe {
        checked_sequence! {
            (rseq, channel)
            check: [
                "cmp {epoch:e}, dword ptr [{channel} + {EPOCH}]",
                "jne {changed}"
            ]
            body: ["mov qword ptr [{control} + {TIME}], {time}"]
            operands: [
                epoch = in(reg) epoch,
                control = in(reg) std::ptr::from_ref(control),
                time = in(reg) time,
                TIME = const offset_of!(Control, time),
            ]
        }
    }
    Step::Done
}

/// Counts a lost record in the ring that `control` belongs to, unless the channel was closed since.
///
/// The increment is an atomic one, so that a thread that cannot finish a sequence may count without one.
///
/// # Safety
/// `control` must come from a [`super::channel::Ring`] of `channel` for that epoch.
pub(super) unsafe fn lose(rseq: Rseq, channel: &Channel, epoch: u32, control: &Control) -> Step {
    // SAFETY: adds to an atomic field of `control`.
    unsafe {
        checked_sequence! {
            (rseq, channel)
            check: [
                "cmp {epoch:e}, dword ptr [{channel} + {EPOCH}]",
                "jne {changed}"
            ]
            body: ["lock inc qword ptr [{control} + {LOST}]"]
            operands: [
                epoch = in(reg) epoch,
                control = in(reg) std::ptr::from_ref(control),
                LOST = const offset_of!(Control, lost),
            ]
        }
    }
    Step::Done
}
