//! The memory of a guest at each instruction of what changes the directory in the kernel (C7, A10).
//! A debugger has its one processor go on instruction by instruction, and its memory, which lies in
//! a file, is extracted at each.

use std::collections::HashMap;

use usertrace_tests::instants::words;
use usertrace_vm::Registers;

use crate::stepped::Stepped;
use crate::stopped_guest::KERNEL;

/// How often each instruction is looked at, and each of those functions gone through, for each of
/// its callers, if `USERTRACE_SWEEP` does not say it; which has all functions of the tracer looked
/// at.
const OFTEN: u32 = 1;
/// How often more a function may begin that was gone through often enough: another caller may come.
const AGAIN: u32 = 8;
/// How long what they call is followed step by step: QEMU forgets all that it has translated when
/// it is to run freely again.
const OTHERS: u32 = 12;
/// How large a stack of the kernel is.
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

pub(crate) fn c7_a10_memory_at_each_instruction_of_the_directorys_changes() {
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
    /// All functions of the tracer are of interest.
    all: bool,
    often: u32,
    until: u64,
    steps: u64,
    /// Where each function was last called from: an entry that is published is another one for each
    /// caller.
    callers: HashMap<u64, u64>,
    /// How often each instruction was looked at, and each function begun, for each caller.
    looked: HashMap<(u64, u64), u32>,
    begun: HashMap<(u64, u64), u32>,
    /// How often each function where it stops began again.
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

    /// Runs to a breakpoint, also if it stands at one.
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

    /// Where the function that it is in was called from.
    fn caller(&mut self, at: &Registers) -> Option<u64> {
        let start = self.guest.kernel.at(at.rip)?.start;
        if at.rip == start {
            let caller = self.guest.guest.debugger.read(at.rsp).expect("its stack");
            self.callers.insert(start, caller);
        }
        self.callers.get(&start).copied()
    }

    /// It is here; says whether to go on step by step. If a function begins that was gone through
    /// often enough, nothing stops there any more, sooner or later.
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

    /// Looks at the memory, if this instruction was not looked at often enough.
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

    /// Goes on to where a function returns to, and looks at each instruction of interest on the
    /// way. Where it is then.
    fn walk(&mut self, entry: Registers) -> Registers {
        let mut at = entry;
        // Where the function returns to that is none of these, and how far it came.
        let mut other = None;
        // Another task may go on when this one waits: then that is the end of it here.
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

    /// Runs to where a function returns to that was called with this stack, or to what is of
    /// interest before.
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
