//! The registers of a frame, and those of its caller.

use super::known_memory::{KnownMemory, WORD};
use super::rule::{Base, PlainRule, Rule, Saved, TableRule};
use super::step::{Step, without_signature};
use super::{has_tables, plain_rule_at, rule_at};

/// Return addresses below are none: the kernel maps nothing there.
const FIRST_ADDRESS: usize = 65536;
/// A frame pointer that is not known, and leads nowhere.
const UNKNOWN: usize = usize::MAX;

/// Memory of stacks that a walk may read.
pub(crate) trait StackMemory {
    /// The word at an address; none if it must not be read.
    fn word(&mut self, address: usize) -> Option<usize>;
    /// Whether the walk may go on with a frame that begins there. `is_signal`: a signal led to the
    /// frame before, which may have been on another stack.
    fn enter(&mut self, stack_pointer: usize, is_signal: bool) -> bool;
    /// All memory that may be read, if it is known.
    fn known(&self) -> Option<KnownMemory>;
}

/// The registers of a frame that a walk needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    /// The address behind the call, or of the instruction that a signal interrupted.
    pub(crate) ip: usize,
    pub(crate) stack_pointer: usize,
    pub(crate) frame_pointer: usize,
    is_interrupted: bool,
    /// Whether the stack pointer is a lower limit only: on AArch64, frame pointers do not tell it.
    is_limit: bool,
}

impl Registers {
    /// The registers of the function that this is inlined into.
    #[inline(always)]
    pub(crate) fn current() -> Self {
        let (ip, stack_pointer, frame_pointer);
        // SAFETY: the instructions only copy registers, and load the address of the next one.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!(
                "lea {ip}, [rip]", "mov {sp}, rsp", "mov {fp}, rbp",
                ip = out(reg) ip, sp = out(reg) stack_pointer, fp = out(reg) frame_pointer,
                options(nomem, nostack, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!(
                "adr {ip}, .", "mov {sp}, sp", "mov {fp}, x29",
                ip = out(reg) ip, sp = out(reg) stack_pointer, fp = out(reg) frame_pointer,
                options(nomem, nostack, preserves_flags),
            );
        }
        Self {
            ip,
            stack_pointer,
            frame_pointer,
            is_interrupted: true,
            is_limit: false,
        }
    }

    /// The registers of the function that another one returns to, at `ip`: that one has this stack
    /// pointer, and began with this frame pointer, if that is known. None if it cannot be sure.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn returned_to(
        ip: usize,
        stack_pointer: usize,
        frame_pointer: Option<usize>,
        changes: u32,
        memory: &mut impl StackMemory,
    ) -> Option<Self> {
        // It has called a function of the library, which left this below.
        let behind_call = memory.word(stack_pointer.checked_sub(WORD)?)?;
        let frame_pointer = frame_pointer.unwrap_or(UNKNOWN);
        let inner = Self::of_caller(behind_call, stack_pointer, frame_pointer);
        if inner.ip < FIRST_ADDRESS {
            return None;
        }
        let at = inner.rule_address();
        let rule = plain_rule_at(at, changes).or_else(|| {
            // Looked up, it is remembered.
            let _ = rule_at(at, changes);
            plain_rule_at(at, changes)
        })?;
        // Its caller's frame pointer is known, wherever it has been saved.
        let rule = PlainRule {
            frame_pointer: None,
            ..rule
        };
        let (outer, _) = inner.by_plain_rule(rule, memory.known()?)?;
        (!rule.is_by_frame && outer.ip == ip).then_some(outer)
    }

    /// On AArch64, calls leave nothing on the stack.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn returned_to(
        _: usize,
        _: usize,
        _: Option<usize>,
        _: u32,
        _: &mut impl StackMemory,
    ) -> Option<Self> {
        None
    }

    /// Those of a function of which only the frame pointer is known. `low` is a lower limit of its
    /// stack pointer.
    pub(crate) fn of_frame(low: usize, frame_pointer: usize) -> Self {
        Self {
            ip: 0,
            stack_pointer: low,
            frame_pointer,
            is_interrupted: false,
            is_limit: true,
        }
    }

    /// The registers of a caller that words of the stack have told.
    #[inline(always)]
    pub(super) fn of_caller(ip: usize, stack_pointer: usize, frame_pointer: usize) -> Self {
        Self {
            ip,
            stack_pointer,
            frame_pointer,
            is_interrupted: false,
            is_limit: false,
        }
    }

    /// Whether the caller follows from the address, the stack pointer, and words of the stack.
    pub(super) fn is_exact(self) -> bool {
        self.ip != 0 && !self.is_interrupted && !self.is_limit
    }

    /// The registers of the caller, as of the last of `changes` changes to loaded code. None at the
    /// end of the stack, and where it cannot be followed.
    pub(crate) fn caller(self, changes: u32, memory: &mut impl StackMemory) -> Option<Self> {
        let plain = memory
            .known()
            .and_then(|known| self.plain_step(changes, known));
        let step = plain.or_else(|| self.any_step(changes, memory));
        step.map(|(caller, _)| caller)
    }

    /// Likewise, and how it was found; only if the rule is plain, and remembered.
    #[inline(always)]
    pub(super) fn plain_step(self, changes: u32, memory: KnownMemory) -> Option<(Self, Step)> {
        if self.is_limit || self.ip == 0 {
            return None;
        }
        let rule = plain_rule_at(self.rule_address(), changes)?;
        self.by_plain_rule(rule, memory)
    }

    /// Where the rule of the frame is looked up: the instruction behind a call may belong to
    /// another function.
    #[inline(always)]
    fn rule_address(self) -> usize {
        self.ip - usize::from(!self.is_interrupted)
    }

    #[inline(always)]
    fn by_plain_rule(self, rule: PlainRule, memory: KnownMemory) -> Option<(Self, Step)> {
        let base = match rule.is_by_frame {
            true => self.frame_pointer,
            false => self.stack_pointer,
        };
        let canonical = base.wrapping_add_signed(rule.offset * WORD as isize);
        let ip = without_signature(memory.word(canonical.wrapping_sub(WORD))?);
        if canonical <= self.stack_pointer || ip < FIRST_ADDRESS {
            return None;
        }
        let (frame_pointer, saved) = match rule.frame_pointer {
            Some(offset) => {
                let place = canonical.wrapping_add_signed(offset * WORD as isize);
                let value = memory.word(place)?;
                (value, Some((offset, value)))
            }
            None => (self.frame_pointer, None),
        };
        let by_frame = rule.is_by_frame.then_some(self.frame_pointer);
        let step = Step::told(ip, canonical, saved, by_frame);
        Some((Self::of_caller(ip, canonical, frame_pointer), step))
    }

    /// Likewise, by whatever rule.
    #[inline(never)]
    pub(super) fn any_step(
        self,
        changes: u32,
        memory: &mut impl StackMemory,
    ) -> Option<(Self, Step)> {
        let is_known = self.ip != 0 && has_tables();
        let rule = match is_known {
            true => rule_at(self.rule_address(), changes),
            false => Rule::FramePointer,
        };
        let (caller, is_signal, by_frame) = match rule {
            Rule::End => return None,
            Rule::Table(rule) if rule.is_by_frame || !self.is_limit => {
                (self.by_table(rule, memory)?, rule.is_signal, None)
            }
            Rule::Table(_) | Rule::FramePointer => {
                let caller = self.by_frame_pointer(memory)?;
                (caller, false, Some(self.frame_pointer))
            }
        };
        let is_above = is_signal || caller.stack_pointer > self.stack_pointer;
        let is_frame =
            is_above && caller.ip >= FIRST_ADDRESS && memory.enter(caller.stack_pointer, is_signal);
        let step = match by_frame {
            // The frame pointer's place is below the return address.
            Some(_) if caller.is_exact() => {
                let saved = Some((-2, caller.frame_pointer));
                Step::told(caller.ip, caller.stack_pointer, saved, by_frame)
            }
            _ => Step::untold(caller.ip, caller.stack_pointer),
        };
        is_frame.then_some((caller, step))
    }

    /// Whether the table of the instruction says that there is no caller.
    #[cold]
    pub(super) fn is_outermost(self, changes: u32) -> bool {
        self.is_exact() && rule_at(self.rule_address(), changes) == Rule::End
    }

    /// Whether only the frame pointer would lead to the caller, and it is not known.
    #[cold]
    pub(crate) fn lacks_frame_pointer(self, changes: u32) -> bool {
        self.frame_pointer == UNKNOWN
            && match rule_at(self.rule_address(), changes) {
                Rule::End => false,
                Rule::FramePointer => true,
                Rule::Table(rule) => {
                    let needs = |saved: Saved| saved.base == Base::FramePointer;
                    rule.is_by_frame
                        || needs(rule.return_address)
                        || rule.frame_pointer.is_some_and(needs)
                }
            }
    }

    /// With the frame pointer of another function.
    pub(crate) fn with_frame_pointer(self, of: Self) -> Self {
        let frame_pointer = of.frame_pointer;
        Self {
            frame_pointer,
            ..self
        }
    }

    fn by_frame_pointer(self, memory: &mut impl StackMemory) -> Option<Self> {
        let frame = self.frame_pointer;
        if frame < self.stack_pointer {
            return None;
        }
        let next = memory.word(frame)?;
        let ip = memory.word(frame.checked_add(WORD)?)?;
        let is_limit = cfg!(target_arch = "aarch64");
        let stack_pointer = frame.checked_add(2 * WORD)?;
        let caller = Self::of_caller(without_signature(ip), stack_pointer, next);
        Some(Self { is_limit, ..caller })
    }

    fn by_table(self, rule: TableRule, memory: &mut impl StackMemory) -> Option<Self> {
        let base = match rule.is_by_frame {
            true => self.frame_pointer,
            false => self.stack_pointer,
        };
        let place = base.wrapping_add_signed(rule.offset as isize * WORD as isize);
        let canonical = match rule.is_indirect {
            true => memory.word(place)?,
            false => place,
        };
        let mut load = |saved: Saved| {
            let base = match saved.base {
                Base::Cfa => canonical,
                Base::StackPointer => self.stack_pointer,
                Base::FramePointer => self.frame_pointer,
            };
            memory.word(base.wrapping_add_signed(isize::from(saved.offset) * WORD as isize))
        };
        Some(Self {
            ip: without_signature(load(rule.return_address)?),
            stack_pointer: canonical,
            frame_pointer: match rule.frame_pointer {
                Some(saved) => load(saved)?,
                None => self.frame_pointer,
            },
            is_interrupted: rule.is_signal,
            is_limit: false,
        })
    }
}
