//! How to get from a frame to that of its caller.

/// What an address of a rule is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The frame's canonical address: the stack pointer of its caller, after the call.
    Cfa,
    StackPointer,
    FramePointer,
}

/// Where a frame has saved a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) base: Base,
    /// In words.
    pub(super) offset: i16,
}

/// The rule of an unwind table for an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableRule {
    /// Whether the canonical address is relative to the frame pointer, not to the stack pointer.
    pub(super) is_by_frame: bool,
    /// In words.
    pub(super) offset: i32,
    /// Whether the canonical address is stored there.
    pub(super) is_indirect: bool,
    /// None: the frame has not changed it.
    pub(super) frame_pointer: Option<Saved>,
    pub(super) return_address: Saved,
    /// Whether a signal interrupted the caller, instead of a call.
    pub(super) is_signal: bool,
}

/// How to get from a frame to that of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// There is no caller.
    End,
    /// By the frame pointer: there is no table, or none that says more.
    FramePointer,
    Table(TableRule),
}

const END: u64 = 1;
const FRAME_POINTER: u64 = 2;
const TABLE: u64 = 3;

/// Bits of the canonical address's offset.
const OFFSET_BITS: u32 = 23;
/// Places in the word: flags, bases, and the offsets.
const BY_FRAME: u32 = 2;
const INDIRECT: u32 = 3;
const SIGNAL: u32 = 4;
const FRAME_BASE: u32 = 5;
const RETURN_BASE: u32 = 7;
const OFFSET: u32 = 9;
const FRAME_OFFSET: u32 = 32;
const RETURN_OFFSET: u32 = 48;
const _: () = assert!(OFFSET + OFFSET_BITS == FRAME_OFFSET);

impl Rule {
    /// The rule as a word, which is never 0. None if an offset is too long.
    pub(super) fn word(self) -> Option<u64> {
        let rule = match self {
            Self::End => return Some(END),
            Self::FramePointer => return Some(FRAME_POINTER),
            Self::Table(rule) => rule,
        };
        let unused = i32::BITS - OFFSET_BITS;
        if rule.offset << unused >> unused != rule.offset {
            return None;
        }
        let base = |saved: Saved| match saved.base {
            Base::Cfa => 1,
            Base::StackPointer => 2,
            Base::FramePointer => 3,
        };
        let offset = u64::from(rule.offset.cast_unsigned() << unused >> unused);
        let saved = |saved: Saved| u64::from(saved.offset.cast_unsigned());
        Some(
            TABLE
                | u64::from(rule.is_by_frame) << BY_FRAME
                | u64::from(rule.is_indirect) << INDIRECT
                | u64::from(rule.is_signal) << SIGNAL
                | rule.frame_pointer.map_or(0, base) << FRAME_BASE
                | base(rule.return_address) << RETURN_BASE
                | offset << OFFSET
                | rule.frame_pointer.map_or(0, saved) << FRAME_OFFSET
                | saved(rule.return_address) << RETURN_OFFSET,
        )
    }

    /// The rule of a word; none if it is not one of [`Rule::word`].
    #[inline]
    pub(super) fn of_word(word: u64) -> Option<Self> {
        match word & 3 {
            END => return Some(Self::End),
            FRAME_POINTER => return Some(Self::FramePointer),
            TABLE => {}
            _ => return None,
        }
        let saved = |base: u32, offset: u32| {
            let base = match word >> base & 3 {
                1 => Base::Cfa,
                2 => Base::StackPointer,
                3 => Base::FramePointer,
                _ => return None,
            };
            let offset = (word >> offset) as i16;
            Some(Saved { base, offset })
        };
        let unused = i32::BITS - OFFSET_BITS;
        Some(Self::Table(TableRule {
            is_by_frame: word >> BY_FRAME & 1 != 0,
            is_indirect: word >> INDIRECT & 1 != 0,
            is_signal: word >> SIGNAL & 1 != 0,
            frame_pointer: saved(FRAME_BASE, FRAME_OFFSET),
            return_address: saved(RETURN_BASE, RETURN_OFFSET)?,
            offset: ((word >> OFFSET) as i32) << unused >> unused,
        }))
    }
}

/// A rule as most are: the return address lies right below the canonical address, and the frame
/// pointer nearby, if it was saved.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainRule {
    pub(super) is_by_frame: bool,
    /// In words.
    pub(super) offset: isize,
    /// In words from the canonical address.
    pub(super) frame_pointer: Option<isize>,
}

impl PlainRule {
    /// The rule of a word; none if it is not plain. Without the detour through [`Rule`], it stays
    /// in registers.
    #[inline(always)]
    pub(super) fn of_word(word: u64) -> Option<Self> {
        const MASK: u64 = 3
            | 1 << INDIRECT
            | 1 << SIGNAL
            | 2 << FRAME_BASE
            | 3 << RETURN_BASE
            | 0xffff << RETURN_OFFSET;
        const PLAIN: u64 = TABLE | 1 << RETURN_BASE | 0xffff << RETURN_OFFSET;
        if word & MASK != PLAIN {
            return None;
        }
        let unused = i32::BITS - OFFSET_BITS;
        let is_saved = word >> FRAME_BASE & 1 != 0;
        Some(Self {
            is_by_frame: word >> BY_FRAME & 1 != 0,
            offset: (((word >> OFFSET) as i32) << unused >> unused) as isize,
            frame_pointer: is_saved.then_some((word >> FRAME_OFFSET) as i16 as isize),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn saved() -> impl Strategy<Value = Saved> {
        const BASES: &[Base] = &[Base::Cfa, Base::StackPointer, Base::FramePointer];
        (prop::sample::select(BASES), any::<i16>())
            .prop_map(|(base, offset)| Saved { base, offset })
    }

    proptest! {
        #[test]
        fn rules_are_words(
            flags in any::<[bool; 3]>(),
            offset in -1 << (OFFSET_BITS - 1)..1 << (OFFSET_BITS - 1),
            frame_pointer in prop::option::of(saved()),
            return_address in saved(),
        ) {
            let [is_by_frame, is_indirect, is_signal] = flags;
            let rule = TableRule {
                is_by_frame, offset, is_indirect, frame_pointer, return_address, is_signal,
            };
            let rule = Rule::Table(rule);
            prop_assert_eq!(Rule::of_word(rule.word().unwrap()), Some(rule));
        }

        #[test]
        fn any_word_may_be_there(word: u64) {
            let _ = Rule::of_word(word);
            let _ = PlainRule::of_word(word);
        }

        /// Both ways to read a word agree.
        #[test]
        fn plain_rules_are_rules(
            flags in any::<[bool; 3]>(),
            offset in -1 << (OFFSET_BITS - 1)..1 << (OFFSET_BITS - 1),
            frame_pointer in prop::option::of(saved()),
            return_offset in -2..2i16,
        ) {
            let [is_by_frame, is_indirect, is_signal] = flags;
            let return_address = Saved { base: Base::Cfa, offset: return_offset };
            let rule = TableRule {
                is_by_frame, offset, is_indirect, frame_pointer, return_address, is_signal,
            };
            let plain = PlainRule::of_word(Rule::Table(rule).word().unwrap());
            let is_plain = !is_indirect && !is_signal && return_offset == -1
                && frame_pointer.is_none_or(|saved| saved.base == Base::Cfa);
            prop_assert_eq!(plain.is_some(), is_plain);
            if let Some(plain) = plain {
                prop_assert_eq!(plain.is_by_frame, is_by_frame);
                prop_assert_eq!(plain.offset, offset as isize);
                let saved = frame_pointer.map(|saved| saved.offset as isize);
                prop_assert_eq!(plain.frame_pointer, saved);
            }
        }
    }

    #[test]
    fn rules_without_a_table_are_words() {
        for rule in [Rule::End, Rule::FramePointer] {
            assert_eq!(Rule::of_word(rule.word().unwrap()), Some(rule));
        }
        assert_eq!(Rule::of_word(0), None);
        let return_address = Saved {
            base: Base::Cfa,
            offset: -1,
        };
        let far = |offset| {
            let rule = TableRule {
                is_by_frame: false,
                offset,
                is_indirect: false,
                frame_pointer: None,
                return_address,
                is_signal: false,
            };
            Rule::Table(rule).word()
        };
        assert!(far((1 << (OFFSET_BITS - 1)) - 1).is_some());
        assert_eq!(far(1 << (OFFSET_BITS - 1)), None);
    }
}
