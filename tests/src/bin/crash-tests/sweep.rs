//! The memory of a guest at each kernel instruction that changes the crash directory (C7, A10). A
//! debugger steps its one processor, and the memory, which is a file, is extracted at each
//! instruction.

use std::collections::HashMap;

use usertrace_tests::instants::words;
use usertrace_vm::Registers;

use crate::stepped::Stepped;
use crate::stopped_guest::KERNEL;

/// How often each instruction is checked, and each function stepped through for each caller, unless
/// `USERTRACE_SWEEP` says so. With that variable, all functions of the tracer are checked.
const OFTEN: u32 = 1;
/// How often a function may begin again after enough walks: it may have another caller.
const AGAIN: u32 = 8;
/// How many instructions of other functions are stepped through: QEMU drops its translations when
/// it runs freely again.
const OTHERS: u32 = 12;
/// The size of a kernel stack.
const STACK: u64 = 16 << 10;

/// Functions of the kernel that change what a dump has.
const FUNCTIONS: &[&str] = &[
    "<ltt_main::directory::Entry>::publish",
    "<ltt_main::directory::Entry as core::ops::drop::Drop>::drop",
    "<ltt_main::page_tree::PageTree>::make_word",
    "<ltt_main::page_tree::PageTree>::free",
    "core::ptr::drop_in_place::<ltt_main::page_tree::PageTree>",
    "<ltt_main::buffer::Buffer>::show",
    "<ltt_main::buffer::Buffer>::note_roots",
    "<ltt_main::buffer::Buffer>::fault",
    "<ltt_main::buffer::Buffer>::take_away",
    "<ltt_main::buffer::Buffer>::hide",
    "ltt_main::trace::remove_buffer",
    "<ltt_main::trace::Trace>::fix_channels",
    "<ltt_main::trace::Trace>::set_active",
    "ltt_main::dead::trim",
    "ltt_trace_create",
    "ltt_trace_destroy",
];

/// Requirements: A10, C7
pub(crate) fn memory_at_each_instruction_of_directory_changes() {
    let mut sweep = Sweep::boot();
    while !sweep.is_over() {
        let mut at = sweep.run();
        // One walk may end where another task's begins.
        while sweep.is_of_interest(at.rip) && sweep.begin(&at) {
            at = sweep.walk(at);
        }
    }
    let steps = sweep.steps;
    let seen = sweep.guest.end();
    println!("{steps} instructions: {seen:#?}");
    for function in FUNCTIONS {
        assert!(
            seen.functions.contains_key(*function),
            "never in {function}"
        );
    }
    assert!(seen.with_brief > 0 && seen.without_brief > 0, "{seen:?}");
}

struct Sweep {
    guest: Stepped,
    /// Whether all functions of the tracer are of interest.
    all: bool,
    often: u32,
    until: u64,
    steps: u64,
    /// The last caller of each function: each caller publishes another kind of entry.
    callers: HashMap<u64, u64>,
    /// How often each instruction was checked, and each function begun, by caller.
    looked: HashMap<(u64, u64), u32>,
    begun: HashMap<(u64, u64), u32>,
    /// How often each function with a breakpoint began again.
    again: HashMap<u64, u32>,
}

impl Sweep {
    /// Boots the guest, which stops where a function that is of interest begins.
    fn boot() -> Self {
        let often = std::env::var("USERTRACE_SWEEP").map(|text| {
            text.parse()
                .expect("USERTRACE_SWEEP: how often, as a number")
        });
        let guest = Stepped::boot();
        let often_enough = *often.as_ref().unwrap_or(&OFTEN);
        let mut sweep = Self {
            all: often.is_ok(),
            often: often_enough,
            until: guest.guest.word(words::TURNS) + u64::from(often_enough),
            guest,
            steps: 0,
            callers: HashMap::new(),
            looked: HashMap::new(),
            begun: HashMap::new(),
            again: HashMap::new(),
        };
        let starts: Vec<_> = sweep.guest.kernel.iter().map(|of| of.start).collect();
        for start in starts {
            if sweep.is_of_interest(start) {
                sweep.break_at(start, true);
                sweep.again.insert(start, 0);
            }
        }
        sweep
    }

    fn is_over(&self) -> bool {
        self.guest.guest.word(words::TURNS) >= self.until
    }

    fn is_of_interest(&self, place: u64) -> bool {
        let name = self.guest.kernel.at(place).map(|function| &*function.name);
        name.is_some_and(|name| self.all || FUNCTIONS.contains(&name))
    }

    fn break_at(&mut self, address: u64, is_set: bool) {
        let done = self.guest.guest.debugger.set_breakpoint(address, is_set);
        done.expect("a breakpoint");
    }

    fn registers(&mut self) -> Registers {
        self.guest.guest.debugger.registers().expect("registers")
    }

    /// Runs to the next breakpoint, also from one.
    fn run(&mut self) -> Registers {
        self.step();
        self.guest.guest.debugger.run().expect("a breakpoint");
        self.registers()
    }

    fn step(&mut self) -> Registers {
        self.steps += 1;
        self.guest.guest.debugger.step().expect("a step");
        self.registers()
    }

    /// The caller of the current function.
    fn caller(&mut self, at: &Registers) -> Option<u64> {
        let start = self.guest.kernel.at(at.rip)?.start;
        if at.rip == start {
            let caller = self.guest.guest.debugger.read(at.rsp).expect("its stack");
            self.callers.insert(start, caller);
        }
        self.callers.get(&start).copied()
    }

    /// Decides whether to step from here. Removes the breakpoint of a function that was walked
    /// often enough.
    fn begin(&mut self, at: &Registers) -> bool {
        let caller = self.caller(at).unwrap_or_default();
        let Some(again) = self.again.get_mut(&at.rip) else {
            return true;
        };
        let begun = self.begun.entry((caller, at.rip)).or_default();
        *begun += 1;
        if *begun <= self.often {
            return true;
        }
        *again += 1;
        if *again == AGAIN * self.often {
            self.break_at(at.rip, false);
        }
        false
    }

    /// Checks the memory, unless this instruction was checked often enough.
    fn look(&mut self, at: &Registers) {
        let caller = self.caller(at).unwrap_or_default();
        let Some(function) = self.guest.kernel.at(at.rip) else {
            return;
        };
        let name = function.name.clone();
        let looked = self.looked.entry((caller, at.rip)).or_default();
        if *looked < self.often {
            *looked += 1;
            self.guest.look(&name, at.rip);
        }
    }

    /// Steps to the return address of a function, and checks the memory at each instruction of
    /// interest on the way. Returns the registers there.
    fn walk(&mut self, entry: Registers) -> Registers {
        let mut at = entry;
        // The return address of a function that is not of interest, and its steps so far.
        let mut other = None;
        // If this task waits and another one runs, the walk ends.
        let is_here = |at: &Registers| at.rsp <= entry.rsp && entry.rsp - at.rsp < STACK;
        while is_here(&at) {
            if self.is_of_interest(at.rip) {
                other = None;
                self.look(&at);
                at = self.step();
                continue;
            }
            let (back, stack, steps) = other.get_or_insert_with(|| {
                let back = self.guest.guest.debugger.read(at.rsp).expect("its stack");
                (back, at.rsp, 0)
            });
            *steps += 1;
            at = if *steps > OTHERS && *back >= KERNEL {
                let (back, stack) = (*back, *stack);
                self.run_to(back, stack)
            } else {
                self.step()
            };
        }
        at
    }

    /// Runs to the return address of a function that was called with this stack, or to a breakpoint
    /// before.
    fn run_to(&mut self, address: u64, stack: u64) -> Registers {
        self.break_at(address, true);
        let at = loop {
            let at = self.run();
            let is_back = at.rip == address && at.rsp == stack + 8;
            let is_elsewhere = at.rsp.abs_diff(stack) >= STACK;
            if is_back || is_elsewhere || self.is_of_interest(at.rip) {
                break at;
            }
        };
        self.break_at(address, false);
        at
    }
}
