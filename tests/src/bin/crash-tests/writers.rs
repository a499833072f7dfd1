//! The memory of a guest at each instruction of a program that writes an event (A10, C7), for rings
//! of each scope, mode and state. A debugger steps the guest, and its memory, which is a file, is
//! extracted at each instruction. Committed events are there, uncommitted ones are not, and a
//! single instruction makes the difference.

use std::collections::BTreeMap;

use usertrace_tests::instants::{Kind, writers as words};
use usertrace_tests::program;
use usertrace_vm::Registers;

use crate::stopped_guest::{KERNEL, StoppedGuest, Threads, vmlinux};
use crate::symbols::{Function, Functions, address};

const MEMORY_MIB: u64 = 192;
/// Scope and mode of the rings, and the kinds of events that are stepped through. The others would
/// take most of the time, as programs are not optimised for tests.
const PLANS: &[(&str, &[Kind])] = &[
    (
        "cpu:flight",
        &[
            Kind::First,
            Kind::Ordinary,
            Kind::Long,
            Kind::AtEnd,
            Kind::Full,
            Kind::AfterFull,
            Kind::Interrupted,
            Kind::InterruptedAtEnd,
        ],
    ),
    ("global:discard", &[Kind::Ordinary, Kind::AtEnd, Kind::Full]),
];
/// All plans, for `USERTRACE_SWEEP`.
const ALL_PLANS: &[(&str, &[Kind])] = &[
    ("cpu:flight", &Kind::ALL),
    ("cpu:discard", &Kind::ALL),
    ("cpu:block", &Kind::ALL),
    ("mm_cid:flight", &Kind::ALL),
    ("mm_cid:discard", &Kind::ALL),
    ("mm_cid:block", &Kind::ALL),
    ("thread:flight", &Kind::ALL),
    ("thread:discard", &Kind::ALL),
    ("thread:block", &Kind::ALL),
    ("global:flight", &Kind::ALL),
    ("global:discard", &Kind::ALL),
    ("global:block", &Kind::ALL),
];
/// How often a signal interrupts an ordinary event, and one that begins a sub-buffer, and by how
/// many instructions it comes earlier each time.
const SIGNALS: [(usize, usize); 2] = [(30, 1), (15, 9)];
const ALL_SIGNALS: [(usize, usize); 2] = [(120, 1), (120, 3)];
/// How many instructions after the commit the first signal comes, if there are so many.
const AFTER: usize = 4;
/// The largest stack.
const STACK: u64 = 1 << 20;
/// The kernel's instructions that return to programs: from system calls, and from all else.
const RETURNS: [&str; 2] = [
    "entry_SYSRETQ_unsafe_stack",
    "swapgs_restore_regs_and_return_to_usermode",
];
/// The most instructions from there to the program.
const RETURN: u32 = 64;
/// How many of some fifty events of a plan QEMU may run past.
const MOST_PASSED: usize = 2;
/// The instruction `syscall`.
const SYSCALL: u64 = 0x050f;
/// The flag with which the processor traps after each instruction.
const TRAP_FLAG: u32 = 1 << 8;

/// Requirements: A10, C7
pub(crate) fn memory_at_each_instruction_of_writers() {
    let (plans, signals) = match std::env::var_os("USERTRACE_SWEEP") {
        None => (PLANS, SIGNALS),
        Some(_) => (ALL_PLANS, ALL_SIGNALS),
    };
    let mut sweep = Sweep::boot(plans, signals);
    while let Some(event) = sweep.next() {
        // Events that went the same way.
        let like = if event.plan.ends_with("block") {
            [Kind::Ordinary, Kind::AtEnd]
        } else {
            [Kind::AfterFull, Kind::Full]
        };
        match event.kind {
            _ if !event.is_gone_through => sweep.pass(&event),
            Kind::Interrupted => sweep.interrupt(&event, like[0], signals[0].1),
            Kind::InterruptedAtEnd => sweep.interrupt(&event, like[1], signals[1].1),
            _ => sweep.walk(&event),
        }
    }
    sweep.guest.end();
    for ((plan, kind), seen) in &sweep.seen {
        println!("{plan} {kind:?}: {seen}");
    }
    println!("QEMU passed the end of {} events", sweep.passed);
    assert!(sweep.passed as usize <= MOST_PASSED * plans.len());
    for (plan, gone_through) in plans {
        for kind in Kind::ALL {
            let what = format!("{plan} {kind:?}");
            let seen = sweep.seen.get(&(*plan, kind));
            let seen = seen.unwrap_or_else(|| panic!("{what}: never"));
            // Where it was full, and nothing is overwritten or read.
            let is_lost = plan.ends_with("discard") && kind >= Kind::Full;
            assert!(
                if is_lost { seen.recorded } else { seen.lost } == 0,
                "{what}: {seen}"
            );
            let is_walked = gone_through.contains(&kind) && kind < Kind::Interrupted;
            assert_eq!(seen.commits.is_empty(), !is_walked, "{what}: {seen}");
            let is_interrupted = gone_through.contains(&kind) && kind >= Kind::Interrupted;
            assert_eq!(
                seen.interrupted * 2 > seen.events,
                is_interrupted,
                "{what}: {seen}"
            );
        }
    }
}

type Plans = &'static [(&'static str, &'static [Kind])];

/// An event that is about to be written.
struct Event {
    plan: &'static str,
    kind: Kind,
    is_gone_through: bool,
    entry: Registers,
    /// The return address: the event is written when the program is there.
    back: u64,
}

/// The trace's contents at one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Observation {
    /// Recorded events that the program has not counted yet, and lost ones.
    recorded: u64,
    lost: u64,
    /// Records that were reserved, but not committed.
    unfinished: u64,
}

impl Observation {
    fn is_done(&self) -> bool {
        self.recorded + self.lost > 0
    }
}

/// A summary of all events of a kind.
#[derive(Debug, Default)]
struct KindSummary {
    events: u64,
    looks: u64,
    recorded: u64,
    lost: u64,
    /// The instructions that committed, and how often.
    commits: BTreeMap<String, u64>,
    /// How many events a signal interrupted.
    interrupted: u64,
    /// The instructions of the last event, up to a few after the commit.
    path: Vec<u64>,
}

impl std::fmt::Display for KindSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            events,
            looks,
            recorded,
            lost,
            commits,
            interrupted,
            path: _,
        } = self;
        write!(
            f,
            "{events} events, {looks} looks, {recorded} recorded, {lost} lost, {interrupted} interrupted"
        )?;
        for (place, times) in commits {
            write!(f, "; {times} by {place}")?;
        }
        Ok(())
    }
}

struct Sweep {
    guest: StoppedGuest,
    plans: Plans,
    /// The program's functions, at their addresses.
    program: Functions,
    /// The addresses at which the kernel returns to programs.
    returns: [u64; 2],
    seen: BTreeMap<(&'static str, Kind), KindSummary>,
    /// Whether the guest is stopped where the next event is about to be written.
    is_at_next: bool,
    /// How many events QEMU ran past.
    passed: u32,
}

impl Sweep {
    fn boot(plans: Plans, signals: [(usize, usize); 2]) -> Self {
        let mut arguments = vec!["--signals".to_owned()];
        arguments.extend(signals.map(|(times, _)| times.to_string()));
        arguments.push("--".to_owned());
        arguments.extend(plans.iter().map(|(plan, _)| (*plan).to_owned()));
        let guest = StoppedGuest::boot(MEMORY_MIB, "", "stepped-writer", &arguments);
        let program = Functions::of(&program::path("stepped-writer"), |_| true);
        let name = "stepped_writer::stepped_function";
        let stepped_function = program.iter().find(|function| function.name == name);
        let linked = stepped_function
            .expect("the function that is looked at")
            .start;
        let program = program.moved(guest.word(words::STEPPED_FUNCTION).wrapping_sub(linked));
        let returns = RETURNS.map(|name| address(&vmlinux(), name));
        let mut sweep = Self {
            guest,
            plans,
            program,
            returns,
            seen: BTreeMap::new(),
            is_at_next: false,
            passed: 0,
        };
        let place = sweep.guest.word(words::STEPPED_FUNCTION);
        sweep.break_at(place, true);
        sweep.guest.tell("go");
        sweep
    }

    /// Runs to the next event that is stepped through, if there is one.
    fn next(&mut self) -> Option<Event> {
        let entry = if std::mem::take(&mut self.is_at_next) {
            self.registers()
        } else {
            self.run()
        };
        let place = self.guest.word(words::STEPPED_FUNCTION);
        assert_eq!(entry.rip, place, "it stops at an event");
        let Some(kind) = Kind::of(self.guest.word(words::KIND)) else {
            self.break_at(place, false);
            return None;
        };
        let (plan, gone_through) = self.plans[self.guest.word(words::PLAN) as usize];
        let back = self.guest.debugger.read(entry.rsp).expect("its stack");
        self.seen.entry((plan, kind)).or_default().events += 1;
        Some(Event {
            plan,
            kind,
            is_gone_through: gone_through.contains(&kind),
            entry,
            back,
        })
    }

    fn break_at(&mut self, address: u64, is_set: bool) {
        let done = self.guest.debugger.set_breakpoint(address, is_set);
        done.expect("a breakpoint");
    }

    fn registers(&mut self) -> Registers {
        self.guest.debugger.registers().expect("registers")
    }

    /// Runs to a breakpoint.
    fn run(&mut self) -> Registers {
        self.guest.debugger.run().expect("a breakpoint");
        self.registers()
    }

    /// Runs to this instruction, or to one of others where it stops.
    fn run_to(&mut self, address: u64, others: &[u64]) -> Registers {
        self.break_at(address, true);
        let at = self.run();
        self.break_at(address, false);
        let is_there = at.rip == address || others.contains(&at.rip);
        let (found, expected) = (self.name(at.rip), self.name(address));
        assert!(is_there, "it comes to {found}, not {expected}");
        at
    }

    /// Runs to the event's return address, or to others. Returns None if QEMU ran past that
    /// breakpoint, as it sometimes does: the guest is then stopped before the next event.
    fn run_back(&mut self, event: &Event, others: &[u64]) -> Option<Registers> {
        let next = self.guest.word(words::STEPPED_FUNCTION);
        let at = self.run_to(event.back, &[others, &[next]].concat());
        if at.rip != next {
            return Some(at);
        }
        self.is_at_next = true;
        self.passed += 1;
        let sight = self.look(event, &at);
        assert!(!sight.is_done() && sight.unfinished == 0, "{sight:?}");
        None
    }

    /// Steps one instruction of the program, with all that the kernel does for it.
    fn step(&mut self, event: &Event) -> Registers {
        self.guest.debugger.step().expect("a step");
        let at = self.registers();
        if at.rip < KERNEL {
            return at;
        }
        let returns = self.returns;
        returns.iter().for_each(|at| self.break_at(*at, true));
        let at = loop {
            self.run();
            let at = (0..RETURN).find_map(|_| {
                self.guest.debugger.step().expect("a step");
                Some(self.registers()).filter(|at| at.rip < KERNEL)
            });
            // Another thread may run.
            let is_it = |at: &Registers| at.rsp.abs_diff(event.entry.rsp) < STACK;
            if let Some(at) = at.filter(is_it) {
                break at;
            }
        };
        returns.iter().for_each(|at| self.break_at(*at, false));
        at
    }

    fn is_over(event: &Event, at: &Registers) -> bool {
        at.rip == event.back && at.rsp == event.entry.rsp + 8
    }

    /// Runs through the event, and checks the memory before and after.
    fn pass(&mut self, event: &Event) {
        let before = self.look(event, &event.entry);
        assert!(
            !before.is_done(),
            "{} {:?}: {before:?}",
            event.plan,
            event.kind
        );
        // It stands at a breakpoint.
        self.step(event);
        let Some(at) = self.run_back(event, &[]) else {
            return;
        };
        let after = self.look(event, &at);
        self.finish(event, after);
    }

    /// Steps through the event, and checks the memory at each instruction.
    fn walk(&mut self, event: &Event) {
        let mut at = event.entry;
        let (mut path, mut is_left) = (Vec::new(), AFTER);
        let mut before = self.look(event, &at);
        assert!(!before.is_done() && before.unfinished == 0, "{before:?}");
        while !Self::is_over(event, &at) {
            let last = at;
            at = self.step(event);
            let now = self.look(event, &at);
            if before.is_done() {
                self.check_monotonic(event, before, now);
            } else if now.is_done() {
                let place = self.name(last.rip);
                let seen = self.seen.entry((event.plan, event.kind)).or_default();
                *seen.commits.entry(place).or_default() += 1;
            }
            if !before.is_done() || is_left > 0 {
                is_left -= usize::from(before.is_done());
                path.push(last.rip);
            }
            before = now;
        }
        let seen = self.seen.entry((event.plan, event.kind)).or_default();
        seen.path = path;
        self.finish(event, before);
    }

    /// Checks that what was recorded stays recorded.
    fn check_monotonic(&self, event: &Event, before: Observation, now: Observation) {
        assert_eq!(
            (before.recorded, before.lost),
            (now.recorded, now.lost),
            "{} {:?}",
            event.plan,
            event.kind
        );
    }

    /// Checks the memory after the event.
    fn finish(&mut self, event: &Event, sight: Observation) {
        let what = format!("{} {:?}: {sight:?}", event.plan, event.kind);
        assert!(sight.is_done() && sight.unfinished == 0, "{what}");
        let seen = self.seen.entry((event.plan, event.kind)).or_default();
        seen.recorded += sight.recorded;
        seen.lost += sight.lost;
    }

    /// Interrupts the event by a signal: the first time after the instruction that committed an
    /// event of kind `like`, then earlier by `sooner` instructions each time. Checks the memory
    /// before and after the handler, and at the end.
    fn interrupt(&mut self, event: &Event, like: Kind, sooner: usize) {
        let earlier = self.seen[&(event.plan, event.kind)].events as usize - 1;
        let path = &self.seen[&(event.plan, like)].path;
        // Instructions in loops cannot be told apart.
        let is_single = |place: &&u64| path.iter().filter(|other| other == place).count() == 1;
        let mut places = path.iter().rev().filter(is_single);
        let Some(&place) = places
            .nth(earlier * sooner)
            .filter(|at| **at != event.entry.rip)
        else {
            return self.pass(event);
        };
        // It stands at a breakpoint.
        let mut at = self.step(event);
        if at.rip != place {
            self.break_at(place, true);
            let there = self.run_back(event, &[place]);
            self.break_at(place, false);
            let Some(there) = there else { return };
            at = there;
        }
        if Self::is_over(event, &at) {
            // This one had another way.
            let sight = self.look(event, &at);
            return self.finish(event, sight);
        }
        // The kernel is not trapped.
        while self.guest.debugger.read(at.rip).expect("its code") & 0xffff == SYSCALL {
            at = self.step(event);
        }
        let before = self.look(event, &at);
        let trapped = self.guest.debugger.set_eflags(at.eflags | TRAP_FLAG);
        trapped.expect("its flags are set");
        let handler = self.run_to(self.guest.word(words::ON_TRAP), &[]);
        let interrupted = self.look(event, &handler);
        let end = self.guest.debugger.read(handler.rsp).expect("its stack");
        let handled = self.guest.word(words::HANDLED) + self.guest.word(words::LOST);
        at = self.run_to(end, &[]);
        let now = self.guest.word(words::HANDLED) + self.guest.word(words::LOST);
        assert_eq!(now, handled + 1, "the signal handler's event is counted");
        let after = self.look(event, &at);
        let Some(at) = self.run_back(event, &[]) else {
            return;
        };
        let end = self.look(event, &at);
        self.seen
            .entry((event.plan, event.kind))
            .or_default()
            .interrupted += 1;
        for pair in [before, interrupted, after, end].windows(2) {
            if pair[0].is_done() {
                self.check_monotonic(event, pair[0], pair[1]);
            }
        }
        self.finish(event, end);
    }

    /// The function and offset of an instruction.
    fn name(&self, place: u64) -> String {
        match self.program.at(place) {
            Some(Function { name, start, .. }) => format!("{name}+{:#x}", place - start),
            None => format!("{place:#x}"),
        }
    }

    /// Extracts the memory.
    fn look(&mut self, event: &Event, at: &Registers) -> Observation {
        let what = format!(
            "{} {:?}, before {}",
            event.plan,
            event.kind,
            self.name(at.rip)
        );
        let extracted = self.guest.extract();
        let extraction = &extracted.extraction;
        assert!(
            extraction.problems.is_empty(),
            "{what}: {:?}",
            extraction.problems
        );
        let [trace] = &extraction.traces[..] else {
            panic!("{what}: not one trace: {extraction:?}");
        };
        let (mut threads, mut lost, mut unfinished) = (Threads::new(), 0, 0);
        if let [process, others @ ..] = &trace.processes[..] {
            assert!(others.is_empty(), "{what}: {others:?}");
            let bad = (process.damaged, process.corrupted, process.holes);
            assert_eq!(bad, (0, 0, 0), "{what}: {process:?}");
            threads = self.guest.numbers(&process.directory);
            (lost, unfinished) = (process.lost, process.unfinished);
        }
        for numbers in threads.values() {
            let next = |pair: &[u64]| pair[0] + 1 == pair[1];
            assert!(numbers.windows(2).all(next), "{what}: {numbers:?}");
        }
        let own = threads.get(&0).map_or(&[][..], |numbers| numbers);
        let oldest = self.guest.word(words::OLDEST);
        assert!(
            own.first().is_none_or(|first| *first <= oldest),
            "{what}: {oldest}, {own:?}"
        );
        // How many more events there are than the program counted.
        let more = |numbers: &[u64], counted: u64| {
            let found = numbers.last().map_or(0, |last| last + 1);
            let more = found.checked_sub(counted).filter(|more| *more <= 1);
            more.unwrap_or_else(|| panic!("{what}: {found} in the dump, {counted} counted"))
        };
        let recorded = more(own, self.guest.word(words::RECORDED));
        // The handler's events may have been overwritten.
        if let Some(numbers) = threads.get(&1) {
            more(numbers, self.guest.word(words::HANDLED));
        }
        let counted = self.guest.word(words::LOST);
        let lost = lost
            .checked_sub(counted)
            .filter(|more| recorded + *more <= 1);
        let lost = lost.unwrap_or_else(|| panic!("{what}: {trace:?}, {counted} counted as lost"));
        self.seen.entry((event.plan, event.kind)).or_default().looks += 1;
        Observation {
            recorded,
            lost,
            unfinished,
        }
    }
}
