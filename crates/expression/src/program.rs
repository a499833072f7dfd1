//! The program that an expression becomes: words in postfix order.

use core::fmt;

use crate::limits::{MAX_REFERENCES, MAX_STEPS};
use crate::operator::{Bitwise, Comparison, Unary};
use crate::reference::Reference;
use crate::reference_kind::ReferenceKind;

/// A parsed expression: plain data that refers to its text, which the caller keeps.
#[derive(Clone, Copy)]
pub struct Expression {
    words: [u32; MAX_STEPS],
    /// Kind (2 bits), start (13) and length (13) in the text.
    references: [u32; MAX_REFERENCES],
    word_count: u8,
    reference_count: u8,
    depth: u8,
}

impl Expression {
    /// The fields and contexts that the expression refers to, each once. Their positions are what
    /// [`Source::value`](crate::Source::value) is called with. `text` is the one that was parsed.
    pub fn references<'a>(&self, text: &'a [u8]) -> impl Iterator<Item = Reference<'a>> + use<'a> {
        let count = usize::from(self.reference_count);
        self.references
            .into_iter()
            .take(count)
            .map(|packed| unpack_reference(packed, text))
    }

    pub(crate) fn empty() -> Self {
        Self {
            words: [0; MAX_STEPS],
            references: [0; MAX_REFERENCES],
            word_count: 0,
            reference_count: 0,
            depth: 0,
        }
    }

    #[inline]
    pub(crate) fn words(&self) -> &[u32] {
        self.words
            .get(..usize::from(self.word_count))
            .unwrap_or_default()
    }

    /// How many values wait at most.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.depth.into()
    }

    /// Completes a program whose words are final.
    pub(crate) fn finish(mut self) -> Self {
        let (mut depth, mut deepest) = (0_u8, 0);
        let mut words = self.words().iter();
        while let Some(word) = words.next() {
            match Step::decode(*word) {
                Some(Step::Wide(_)) => {
                    depth = depth.saturating_add(1);
                    let _number = words.nth(1);
                }
                Some(
                    Step::Load(_) | Step::CompareReference(..) | Step::Small(_) | Step::Text(..),
                ) => depth = depth.saturating_add(1),
                Some(Step::Compare(_) | Step::Bitwise(_) | Step::And | Step::Or) => {
                    depth = depth.saturating_sub(1);
                }
                Some(Step::Unary(_) | Step::SkipIfFalse(_) | Step::SkipIfTrue(_)) | None => {}
            }
            deepest = deepest.max(depth);
        }
        self.depth = deepest;
        self
    }

    /// Appends a word. `None` if there is no room.
    pub(crate) fn push(&mut self, word: u32) -> Option<()> {
        *self.words.get_mut(usize::from(self.word_count))? = word;
        self.word_count += 1;
        Some(())
    }

    pub(crate) fn word_count(&self) -> usize {
        self.word_count.into()
    }

    pub(crate) fn truncate(&mut self, count: usize) {
        self.word_count = self.word_count.min(u8::try_from(count).unwrap_or(u8::MAX));
    }

    pub(crate) fn replace(&mut self, at: usize, word: u32) {
        if let Some(slot) = self.words.get_mut(at) {
            *slot = word;
        }
    }

    /// The position of a reference among the different ones. `None` if there is no room.
    pub(crate) fn reference(
        &mut self,
        kind: ReferenceKind,
        start: usize,
        text: &[u8],
        length: usize,
    ) -> Option<u8> {
        let packed = (kind as u32) << 26 | (start as u32 & 0x1fff) << 13 | length as u32 & 0x1fff;
        let new = unpack_reference(packed, text);
        let known = self.references(text).position(|known| known.is_same(&new));
        if let Some(known) = known {
            return u8::try_from(known).ok();
        }
        *self.references.get_mut(usize::from(self.reference_count))? = packed;
        self.reference_count += 1;
        Some(self.reference_count - 1)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        let mut words = self.words().iter();
        while let Some(word) = words.next() {
            let step = Step::decode(*word);
            list.entry(&step);
            if matches!(step, Some(Step::Wide(_))) {
                list.entries(words.by_ref().take(2));
            }
        }
        list.finish()
    }
}

fn unpack_reference(packed: u32, text: &[u8]) -> Reference<'_> {
    let kind = match packed >> 26 {
        0 => ReferenceKind::Field,
        1 => ReferenceKind::Context,
        _ => ReferenceKind::Application,
    };
    let start = (packed >> 13 & 0x1fff) as usize;
    let length = (packed & 0x1fff) as usize;
    Reference::new(kind, text.get(start..start + length).unwrap_or_default())
}

/// A constant of 64 bits, which the two words after its step hold, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wide {
    Signed,
    Unsigned,
    Float,
}

/// One step of a program, as a word holds it: the kind in the upper 8 bits, arguments below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Pushes the value of a reference.
    Load(u8),
    /// Compares a reference with a constant between -2^16 and 2^16, and pushes the answer. Most
    /// comparisons are of this form, so they get by with one step.
    CompareReference(Comparison, u8, i32),
    /// Pushes a constant between -2^23 and 2^23.
    Small(i32),
    Wide(Wide),
    /// Pushes a constant text: the start and length of what is between its quotes.
    Text(u16, u16),
    Compare(Comparison),
    Bitwise(Bitwise),
    Unary(Unary),
    /// Skips steps if the top value is false, or goes on and leaves it for `And`.
    SkipIfFalse(u8),
    SkipIfTrue(u8),
    And,
    Or,
}

impl Step {
    const SMALL: i32 = 1 << 23;
    const TINY: i32 = 1 << 16;

    pub(crate) fn small(number: i64) -> Option<Self> {
        let small = i32::try_from(number).ok()?;
        (-Self::SMALL..Self::SMALL)
            .contains(&small)
            .then_some(Self::Small(small))
    }

    pub(crate) fn compare_reference(
        comparison: Comparison,
        reference: u8,
        number: i32,
    ) -> Option<Self> {
        (-Self::TINY..Self::TINY)
            .contains(&number)
            .then_some(Self::CompareReference(comparison, reference, number))
    }

    pub(crate) fn encode(self) -> u32 {
        let (kind, argument) = match self {
            Self::Load(reference) => (0, reference.into()),
            Self::CompareReference(comparison, reference, number) => {
                let number = number as u32 & 0x1_ffff;
                (
                    1,
                    (comparison as u32) << 21 | u32::from(reference & 15) << 17 | number,
                )
            }
            Self::Small(number) => (2, number as u32 & 0xff_ffff),
            Self::Wide(wide) => (3, wide as u32),
            Self::Text(start, length) => (4, u32::from(start) << 12 | u32::from(length)),
            Self::Compare(comparison) => (5, comparison as u32),
            Self::Bitwise(bitwise) => (6, bitwise as u32),
            Self::Unary(unary) => (7, unary as u32),
            Self::SkipIfFalse(count) => (8, count.into()),
            Self::SkipIfTrue(count) => (9, count.into()),
            Self::And => (10, 0),
            Self::Or => (11, 0),
        };
        kind << 24 | argument
    }

    /// The step of a word. `None` for a word that `encode` does not make.
    #[inline]
    pub(crate) fn decode(word: u32) -> Option<Self> {
        let low = word as u8;
        Some(match word >> 24 {
            0 => Self::Load(low),
            1 => Self::CompareReference(
                comparison((word >> 21) as u8 & 7)?,
                (word >> 17) as u8 & 15,
                (word << 15).cast_signed() >> 15,
            ),
            2 => Self::Small((word << 8).cast_signed() >> 8),
            3 => Self::Wide(match low {
                0 => Wide::Signed,
                1 => Wide::Unsigned,
                _ => Wide::Float,
            }),
            4 => Self::Text((word >> 12) as u16 & 0xfff, word as u16 & 0xfff),
            5 => Self::Compare(comparison(low)?),
            6 => Self::Bitwise(match low {
                0 => Bitwise::ShiftLeft,
                1 => Bitwise::ShiftRight,
                2 => Bitwise::And,
                3 => Bitwise::Xor,
                _ => Bitwise::Or,
            }),
            7 => Self::Unary(match low {
                0 => Unary::Plus,
                1 => Unary::Minus,
                2 => Unary::Not,
                _ => Unary::BitNot,
            }),
            8 => Self::SkipIfFalse(low),
            9 => Self::SkipIfTrue(low),
            10 => Self::And,
            11 => Self::Or,
            _ => return None,
        })
    }
}

#[inline]
fn comparison(code: u8) -> Option<Comparison> {
    Some(match code {
        0 => Comparison::Less,
        1 => Comparison::LessEqual,
        2 => Comparison::Greater,
        3 => Comparison::GreaterEqual,
        4 => Comparison::Equal,
        5 => Comparison::NotEqual,
        _ => return None,
    })
}
