//! Steps from frame to frame, from the inside out, by what a thread remembers of its last walk and
//! by rules.

use super::addresses::Addresses;
use super::last_walk::{Frames, Walks};
use super::registers::{Registers, StackMemory};
use super::step::Step;
use super::told_stack::Start;

/// How a walk and the last one belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    /// This many frames since the start are new; those of the last walk are further out.
    Not(usize),
    /// The walk is at this frame of the last one, and all frames inside are the walk's. The address
    /// is the same, so that the next frame may be.
    Same(usize),
    /// Likewise, but the last walk had another address there.
    Other(usize),
}

impl Met {
    fn at(number: usize, is_same: bool) -> Self {
        match is_same {
            true => Self::Same(number),
            false => Self::Other(number),
        }
    }
}

/// Appends the addresses of callers, from the inner to the outer ones, as long as there is room.
/// Passes each to `see` that the thread's last walk has not come to. Rules are as of the last of
/// `changes` changes to loaded code. Where there is no way from a frame, `mend` may have better
/// registers of it. If the walk has a beginning, and comes to an end, the thread may remember the
/// whole stack.
#[inline(always)]
pub(crate) fn append_callers<M: StackMemory>(
    start: Registers,
    (changes, walks, begin): (u32, Option<Walks<'_>>, Option<&Start>),
    memory: &mut M,
    addresses: &mut Addresses<'_>,
    mend: impl Fn(Registers, &mut M) -> Option<Registers>,
    mut see: impl FnMut(usize),
) {
    let mut last = walks.filter(|_| start.is_exact()).and_then(|walks| {
        walks
            .last
            .take(start.stack_pointer, memory.known()?.end(), changes)
    });
    let (mut registers, mut known) = (start, memory.known());
    let mut met = match &mut last {
        Some(last) => add(
            last,
            Met::Not(0),
            Step::untold(start.ip, start.stack_pointer),
        ),
        None => None,
    };
    let is_whole = loop {
        if let (Some(Met::Same(number)), Some(last), Some(known)) = (met, &last, known) {
            let number = last.follow(number, &mut registers, known, addresses);
            met = Some(Met::Same(number));
            if last.is_end(number) {
                break true;
            }
        }
        if !addresses.has_room() {
            break true;
        }
        let plain = known.and_then(|known| registers.plain_step(changes, known));
        let (caller, step) = match plain {
            Some(found) => found,
            // Apart: what a call stores in memory does not stay in registers.
            None => match other_step(registers, changes, memory, &mend) {
                Some(found) => {
                    known = memory.known();
                    found
                }
                None => {
                    let is_outermost = registers.is_outermost(changes);
                    if let (Some(Met::Same(at) | Met::Other(at)), Some(last)) = (met, &mut last) {
                        last.end(at, is_outermost);
                    }
                    break is_outermost;
                }
            },
        };
        registers = caller;
        see(registers.ip);
        addresses.push(registers.ip);
        if let (Some(before), Some(last)) = (met, &mut last) {
            // Otherwise, what follows is on another stack, or words do not tell it.
            let is_told = known.is_some() && registers.is_exact();
            met = match is_told {
                true => add(last, before, step),
                false => end(last, before),
            };
        }
    };
    let (Some(met), Some(last)) = (met, &mut last) else {
        return;
    };
    end(last, met);
    let number = match met {
        Met::Not(count) => count.saturating_sub(1),
        Met::Same(number) | Met::Other(number) => number,
    };
    // There may be other addresses than those of the walk.
    let is_whole = is_whole && addresses.get().len() == number + 1;
    let stacks = walks.and_then(|walks| walks.stacks);
    if let (true, Some(begin), Some(known), Some(stacks)) = (is_whole, begin, known, stacks) {
        stacks.remember(begin, known, last.up_to(number), || last.is_own());
    }
}

/// A step by any rule.
#[inline(never)]
fn other_step<M: StackMemory>(
    registers: Registers,
    changes: u32,
    memory: &mut M,
    mend: &impl Fn(Registers, &mut M) -> Option<Registers>,
) -> Option<(Registers, Step)> {
    let step = registers.any_step(changes, memory);
    step.or_else(|| mend(registers, memory)?.any_step(changes, memory))
}

/// Remembers a frame. None if no further ones can be.
#[inline(always)]
fn add(last: &mut Frames<'_>, met: Met, step: Step) -> Option<Met> {
    match met {
        Met::Not(count) => Some(match last.meet(count, step) {
            Some(is_same) => Met::at(count, is_same),
            None if last.add_new(count, step) => Met::Not(count + 1),
            None => Met::Other(last.replace(count, step)),
        }),
        Met::Same(number) | Met::Other(number) => {
            let is_same = last.replace_outer(number + 1, step)?;
            Some(Met::at(number + 1, is_same))
        }
    }
}

/// Remembers no further frames.
#[inline(always)]
fn end(last: &mut Frames<'_>, met: Met) -> Option<Met> {
    if let Met::Not(count) = met {
        last.replace_all(count);
    }
    None
}
