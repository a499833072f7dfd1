//! The registers of a frame, and those of its caller.

use super::rule::{Base, PlainRule, Rule, Saved, TableRule};
use super::{has_tables, plain_rule_at, rule_at};

/// Return addresses below are none: the kernel maps nothing there.
const FIRST_ADDRESS: usize = 65536;
/// On AArch64, the upper bits of a return address may be a signature.
const ADDRESS_BITS: u32 = 48;
const WORD: usize = size_of::<usize>();
/// A frame pointer that is not known, and leads nowhere.
const UNKNOWN: usize = usize::MAX;

/// Memory of stacks that a walk may read.
pub(crate) trait StackMemory {
    /// The word at an address; none if it must not be read.
    fn word(&mut self, address: usize) -> Option<usize>;
    /// Whether the walk may go on with a frame that begins there. `is_signal`: a signal led to the
    /// frame before, which may have been on another stack.
    fn enter(&mut self, stack_pointer: usize, is_signal: bool) -> bool;
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
    pub(crate) fn returned_to(
        ip: usize,
        stack_pointer: usize,
        frame_pointer: Option<usize>,
        changes: u32,
        memory: &mut impl StackMemory,
    ) -> Option<Self> {
        // It has called a function of the library, which left this below.
        let behind_call = memory.word(stack_pointer.checked_sub(WORD)?)?;
        let at = behind_call
            .checked_sub(1)
            .filter(|&at| at >= FIRST_ADDRESS)?;
        let Rule::Table(rule) = rule_at(at, changes) else {
            return None;
        };
        if rule.is_by_frame || rule.is_indirect || rule.is_signal {
            return None;
        }
        let inner = Self {
            ip: behind_call,
            stack_pointer,
            frame_pointer: frame_pointer.unwrap_or(UNKNOWN),
            is_interrupted: false,
            is_limit: false,
        };
        // Its caller's frame pointer is known, wherever it has been saved.
        let rule = TableRule {
            frame_pointer: None,
            ..rule
        };
        let outer = inner.by_table(rule, memory)?;
        (outer.ip == ip && memory.enter(outer.stack_pointer, false)).then_some(outer)
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

    /// The registers of the caller, as of the last of `changes` changes to loaded code. None at the
    /// end of the stack, and where it cannot be followed.
    #[inline(always)]
    pub(crate) fn caller(self, changes: u32, memory: &mut impl StackMemory) -> Option<Self> {
        let plain = match self.is_limit || self.ip == 0 {
            true => None,
            false => plain_rule_at(self.rule_address(), changes),
        };
        match plain {
            Some(rule) => self.by_plain_rule(rule, memory),
            None => self.by_any_rule(changes, memory),
        }
    }

    /// Where the rule of the frame is looked up: the instruction behind a call may belong to
    /// another function.
    #[inline(always)]
    fn rule_address(self) -> usize {
        self.ip - usize::from(!self.is_interrupted)
    }

    #[inline(always)]
    fn by_plain_rule(self, rule: PlainRule, memory: &mut impl StackMemory) -> Option<Self> {
        let base = match rule.is_by_frame {
            true => self.frame_pointer,
            false => self.stack_pointer,
        };
        let canonical = base.wrapping_add_signed(rule.offset * WORD as isize);
        let ip = without_signature(memory.word(canonical.wrapping_sub(WORD))?);
        let frame_pointer = match rule.frame_pointer {
            Some(offset) => memory.word(canonical.wrapping_add_signed(offset * WORD as isize))?,
            None => self.frame_pointer,
        };
        let is_frame =
            canonical > self.stack_pointer && ip >= FIRST_ADDRESS && memory.enter(canonical, false);
        is_frame.then_some(Self {
            ip,
            stack_pointer: canonical,
            frame_pointer,
            is_interrupted: false,
            is_limit: false,
        })
    }

    #[inline(never)]
    fn by_any_rule(self, changes: u32, memory: &mut impl StackMemory) -> Option<Self> {
        let is_known = self.ip != 0 && has_tables();
        let rule = match is_known {
            true => rule_at(self.rule_address(), changes),
            false => Rule::FramePointer,
        };
        let (caller, is_signal) = match rule {
            Rule::End => return None,
            Rule::Table(rule) if rule.is_by_frame || !self.is_limit => {
                (self.by_table(rule, memory)?, rule.is_signal)
            }
            Rule::Table(_) | Rule::FramePointer => (self.by_frame_pointer(memory)?, false),
        };
        let is_above = is_signal || caller.stack_pointer > self.stack_pointer;
        let is_frame =
            is_above && caller.ip >= FIRST_ADDRESS && memory.enter(caller.stack_pointer, is_signal);
        is_frame.then_some(caller)
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
        Some(Self {
            ip: without_signature(ip),
            stack_pointer: frame.checked_add(2 * WORD)?,
            frame_pointer: next,
            is_interrupted: false,
            is_limit: cfg!(target_arch = "aarch64"),
        })
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

fn without_signature(address: usize) -> usize {
    address & ((1 << ADDRESS_BITS) - 1)
}
