//! Events with contexts: the address, and a call stack of 16 frames.

use std::hint::black_box;

use usertrace::__private::Caller;
use usertrace::event_at;
use usertrace::fake::Seen;
use usertrace_sys::uapi::LTT_RULE_CONTEXT;

use super::ours::Ours;

/// The contexts that are measured, each alone.
pub(crate) const NAMES: [&str; 3] = ["ip", "callstack:1", "callstack:16"];

/// Writes so many events, for a caller.
type Events = extern "C" fn(u64, usize, usize);

/// Calls of functions with frame pointers before the events.
const DEPTH: u64 = 24;

/// Calls itself until `depth` is 0, and then `events` with the return address and the frame of its
/// caller, with frame pointers all the way.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn nested(depth: u64, events: Events, count: u64) {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "test rdi, rdi",
        "jz 2f",
        "dec rdi",
        "call {nested}",
        "pop rbp",
        "ret",
        "2:",
        "mov rdi, rdx",
        "mov rax, rsi",
        "mov rsi, [rbp + 8]",
        "mov rdx, [rbp]",
        "call rax",
        "pop rbp",
        "ret",
        nested = sym nested,
    );
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn nested(depth: u64, events: Events, count: u64) {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "cbz x0, 2f",
        "sub x0, x0, #1",
        "bl {nested}",
        "ldp x29, x30, [sp], #16",
        "ret",
        "2:",
        "mov x0, x2",
        "mov x9, x1",
        "mov x1, x30",
        "ldr x2, [x29]",
        "blr x9",
        "ldp x29, x30, [sp], #16",
        "ret",
        nested = sym nested,
    );
}

extern "C" fn numbers(count: u64, ip: usize, frame: usize) {
    use super::ours::points::numbers;
    let caller = Caller { ip, frame };
    for n in 0..count {
        let n = black_box(n);
        event_at!(caller, numbers, n, n, n, n);
    }
}

/// Writes so many events, each with a stack deeper than any call stack here.
pub(crate) fn events(count: u64) {
    nested(DEPTH, numbers, count);
}

/// A trace of its own, with one context.
pub(crate) struct InContext<'a> {
    ours: &'a Ours,
    slot: usize,
}

impl<'a> InContext<'a> {
    pub(crate) fn new(ours: &'a Ours, name: &str) -> Self {
        ours.trace(0);
        let slot = ours.add(&[(0, 0, "*"), (1, LTT_RULE_CONTEXT, name)]);
        let in_context = Self { ours, slot };
        events(1);
        in_context.check(name);
        in_context
    }

    /// Checks that the event has what it is to have.
    fn check(&self, name: &str) {
        let seen: Vec<Seen> = self.ours.events(self.slot);
        let contexts = &seen.last().expect("an event").contexts;
        let frames = name
            .strip_prefix("callstack:")
            .map(|frames| frames.parse().expect("a number"));
        let expected = frames.map_or(8, |frames: usize| 4 + 8 * frames);
        assert_eq!(contexts.len(), expected, "{name}: {contexts:x?}");
    }

    pub(crate) fn read(&self) {
        self.ours.read_slot(self.slot);
    }
}

impl Drop for InContext<'_> {
    fn drop(&mut self) {
        self.ours.remove(self.slot);
        self.ours.trace(1);
    }
}
