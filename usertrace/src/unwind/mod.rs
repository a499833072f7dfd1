//! Steps from the frame of a function to that of its caller: by the unwind tables of loaded
//! objects, or by the frame pointer. Async-signal-safe: allocates nothing, takes no lock.
//!
//! `table.rs` finds the rule of an instruction, `cache.rs` remembers it, and `rule.rs` is what they
//! have in common. `registers.rs` applies it to a frame; `walk.rs` does so for the frames of a
//! stack, apart from those that `last_walk.rs` remembers. `stack_memo.rs` remembers whole stacks,
//! and `hints.rs` how they are found. `code_memo.rs` has what is remembered for all threads.
//! `spread.rs` chooses places for all of that.
//! Rules are data of loaded files, and memory of the stack may contain anything. So the caller says
//! what memory may be read.

mod addresses;
mod cache;
mod code_memo;
mod hints;
mod known_memory;
mod last_walk;
mod registers;
mod rule;
mod spread;
mod stack_memo;
mod step;
mod table;
mod told_stack;
mod walk;

pub(crate) use self::addresses::Addresses;
use self::code_memo::CODE;
pub(crate) use self::known_memory::KnownMemory;
pub(crate) use self::last_walk::{LastWalk, Walks};
pub(crate) use self::registers::{Registers, StackMemory};
use self::rule::{PlainRule, Rule};
pub(crate) use self::stack_memo::StackMemo;
pub(crate) use self::told_stack::{Start, still};
pub(crate) use self::walk::append_callers;
use crate::os::linker;

/// Whether there are tables: the dynamic linker can tell the object of an address.
pub(crate) fn has_tables() -> bool {
    linker::can_find_object()
}

/// The rule of the instruction at an address, as of the last of `changes` changes to loaded code.
fn rule_at(address: usize, changes: u32) -> Rule {
    let remembered = CODE.rules.get(address, changes).and_then(Rule::of_word);
    remembered.unwrap_or_else(|| look_up(address, changes))
}

/// The same, if it is remembered and plain.
#[inline(always)]
fn plain_rule_at(address: usize, changes: u32) -> Option<PlainRule> {
    PlainRule::of_word(CODE.rules.get(address, changes)?)
}

#[cold]
#[inline(never)]
fn look_up(address: usize, changes: u32) -> Rule {
    let found = linker::find_unwind_tables(address, |tables| table::find(address, &tables));
    let rule = found.flatten().unwrap_or(Rule::FramePointer);
    CODE.rules.put(address, changes, rule);
    rule
}
