//! The program that an expression becomes: steps in postfix order.

use core::fmt;
use core::ops::Range;

use crate::limits::{MAX_REFERENCES, MAX_STEPS};
use crate::number::Number;
use crate::operator::{Bitwise, Comparison, Unary};
use crate::reference::Reference;
use crate::reference_kind::ReferenceKind;

/// A parsed expression: plain data that refers to its text, which the caller keeps.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Expression {
    steps: [Step; MAX_STEPS],
    /// Kind (2 bits), start (13) and length (13) in the text.
    references: [u32; MAX_REFERENCES],
    step_count: u8,
    reference_count: u8,
    depth: u8,
}

impl Expression {
    /// The fields and contexts that the expression refers to, each once. An evaluation calls
    /// [`Source::value`](crate::Source::value) with their positions. `text` is the parsed text.
    pub fn references<'a>(&self, text: &'a [u8]) -> impl Iterator<Item = Reference<'a>> + use<'a> {
        let count = usize::from(self.reference_count);
        self.references
            .into_iter()
            .take(count)
            .map(|packed| unpack_reference(packed, text))
    }

    pub(crate) fn empty() -> Self {
        Self {
            steps: [Step::And; MAX_STEPS],
            references: [0; MAX_REFERENCES],
            step_count: 0,
            reference_count: 0,
            depth: 0,
        }
    }

    #[inline]
    pub(crate) fn steps(&self) -> &[Step] {
        self.steps
            .get(..usize::from(self.step_count))
            .unwrap_or_default()
    }

    /// How many values wait at most.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.depth.into()
    }

    /// Completes a program whose steps are final.
    pub(crate) fn finish(&mut self) {
        let (mut depth, mut deepest) = (0_u8, 0);
        for step in self.steps() {
            depth = match step {
                Step::Load(_)
                | Step::Less(..)
                | Step::LessEqual(..)
                | Step::Greater(..)
                | Step::GreaterEqual(..)
                | Step::Equal(..)
                | Step::NotEqual(..)
                | Step::Small(_)
                | Step::Wide(..)
                | Step::Text(_) => depth.saturating_add(1),
                Step::Compare(_) | Step::Bitwise(_) | Step::And | Step::Or => {
                    depth.saturating_sub(1)
                }
                Step::Data(_) | Step::Unary(_) | Step::SkipIfFalse(_) | Step::SkipIfTrue(_) => {
                    depth
                }
            };
            deepest = deepest.max(depth);
        }
        self.depth = deepest;
    }

    /// Removes all steps and references.
    pub(crate) fn clear(&mut self) {
        (self.step_count, self.reference_count, self.depth) = (0, 0, 0);
    }

    /// Appends a step. `None` if there is no room.
    pub(crate) fn push(&mut self, step: Step) -> Option<()> {
        *self.steps.get_mut(usize::from(self.step_count))? = step;
        self.step_count += 1;
        Some(())
    }

    pub(crate) fn step_count(&self) -> usize {
        self.step_count.into()
    }

    pub(crate) fn truncate(&mut self, count: usize) {
        self.step_count = self.step_count.min(u8::try_from(count).unwrap_or(u8::MAX));
    }

    pub(crate) fn replace(&mut self, at: usize, step: Step) {
        if let Some(slot) = self.steps.get_mut(at) {
            *slot = step;
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
        f.debug_list().entries(self.steps()).finish()
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

/// The type of a constant of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wide {
    Signed,
    Unsigned,
    Float,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    /// Pushes the value of a reference.
    Load(u8),
    // Compare a reference with a constant, and push the answer. Most comparisons are of this form,
    // so they get by with one step.
    Less(u8, i16),
    LessEqual(u8, i16),
    Greater(u8, i16),
    GreaterEqual(u8, i16),
    Equal(u8, i16),
    NotEqual(u8, i16),
    /// Pushes a constant between -2^23 and 2^23, in the order of the CPU's bytes.
    Small([u8; 3]),
    /// Pushes a constant whose upper 16 bits are here. Two steps [`Data`](Self::Data) follow.
    Wide(Wide, u16),
    /// 24 bits of a constant, the upper half first.
    Data([u8; 3]),
    /// Pushes a constant text: the start and length of what is between its quotes, 12 bits each.
    Text([u8; 3]),
    Compare(Comparison),
    Bitwise(Bitwise),
    Unary(Unary),
    /// Skips steps if the top value is false, or goes on and leaves it for `And`.
    SkipIfFalse(u8),
    SkipIfTrue(u8),
    And,
    Or,
}

const _: () = assert!(size_of::<Step>() == 4);

/// Steps as words: the number of their kind in the lowest byte, operands above.
impl Step {
    pub(crate) fn to_word(self) -> u32 {
        let plain = |kind: u8| u32::from_le_bytes([kind, 0, 0, 0]);
        let byte = |kind: u8, byte: u8| u32::from_le_bytes([kind, byte, 0, 0]);
        let three = |kind: u8, [a, b, c]: [u8; 3]| u32::from_le_bytes([kind, a, b, c]);
        let half = |kind: u8, low: u8, upper: u16| {
            let [a, b] = upper.to_le_bytes();
            u32::from_le_bytes([kind, low, a, b])
        };
        match self {
            Self::Load(reference) => byte(0, reference),
            Self::Less(reference, number) => half(1, reference, number.cast_unsigned()),
            Self::LessEqual(reference, number) => half(2, reference, number.cast_unsigned()),
            Self::Greater(reference, number) => half(3, reference, number.cast_unsigned()),
            Self::GreaterEqual(reference, number) => half(4, reference, number.cast_unsigned()),
            Self::Equal(reference, number) => half(5, reference, number.cast_unsigned()),
            Self::NotEqual(reference, number) => half(6, reference, number.cast_unsigned()),
            Self::Small(number) => three(7, number),
            Self::Wide(wide, upper) => half(8, wide as u8, upper),
            Self::Data(data) => three(9, data),
            Self::Text(place) => three(10, place),
            Self::Compare(comparison) => byte(11, comparison as u8),
            Self::Bitwise(operator) => byte(12, operator as u8),
            Self::Unary(operator) => byte(13, operator as u8),
            Self::SkipIfFalse(count) => byte(14, count),
            Self::SkipIfTrue(count) => byte(15, count),
            Self::And => plain(16),
            Self::Or => plain(17),
        }
    }

    /// The step of a word. Other words end a program as [`Data`](Self::Data) does.
    #[inline]
    pub(crate) fn from_word(word: u32) -> Self {
        let [kind, a, b, c] = word.to_le_bytes();
        let (upper, number) = (u16::from_le_bytes([b, c]), i16::from_le_bytes([b, c]));
        let end = Self::Data([0; 3]);
        match kind {
            0 => Self::Load(a),
            1 => Self::Less(a, number),
            2 => Self::LessEqual(a, number),
            3 => Self::Greater(a, number),
            4 => Self::GreaterEqual(a, number),
            5 => Self::Equal(a, number),
            6 => Self::NotEqual(a, number),
            7 => Self::Small([a, b, c]),
            8 => match a {
                0 => Self::Wide(Wide::Signed, upper),
                1 => Self::Wide(Wide::Unsigned, upper),
                2 => Self::Wide(Wide::Float, upper),
                _ => end,
            },
            9 => Self::Data([a, b, c]),
            10 => Self::Text([a, b, c]),
            11 => Comparison::ALL
                .get(usize::from(a))
                .map_or(end, |of| Self::Compare(*of)),
            12 => Bitwise::ALL
                .get(usize::from(a))
                .map_or(end, |of| Self::Bitwise(*of)),
            13 => Unary::ALL
                .get(usize::from(a))
                .map_or(end, |of| Self::Unary(*of)),
            14 => Self::SkipIfFalse(a),
            15 => Self::SkipIfTrue(a),
            16 => Self::And,
            17 => Self::Or,
            _ => end,
        }
    }
}

/// The lower three bytes of a number.
fn pack(number: u32) -> [u8; 3] {
    let [a, b, c, _] = number.to_le_bytes();
    [a, b, c]
}

#[inline]
fn unpack([a, b, c]: [u8; 3]) -> u32 {
    u32::from_le_bytes([a, b, c, 0])
}

impl Step {
    /// A step that pushes an integer, if one is enough.
    pub(crate) fn small(number: i64) -> Option<Self> {
        let limit = 1 << 23;
        let is_small = (-limit..limit).contains(&number);
        is_small.then(|| Self::Small(pack(number as u32)))
    }

    /// The steps that push a constant of 64 bits.
    pub(crate) fn wide(wide: Wide, bits: u64) -> [Self; 3] {
        let data = |shift: u32| Self::Data(pack((bits >> shift) as u32));
        [Self::Wide(wide, (bits >> 48) as u16), data(24), data(0)]
    }

    pub(crate) fn text(start: u16, length: u16) -> Self {
        Self::Text(pack(u32::from(start) << 12 | u32::from(length)))
    }

    /// The step that compares a reference with a constant, if one is enough.
    pub(crate) fn compare(comparison: Comparison, reference: u8, small: [u8; 3]) -> Option<Self> {
        let number = i16::try_from(small_integer(small)).ok()?;
        Some(match comparison {
            Comparison::Less => Self::Less(reference, number),
            Comparison::LessEqual => Self::LessEqual(reference, number),
            Comparison::Greater => Self::Greater(reference, number),
            Comparison::GreaterEqual => Self::GreaterEqual(reference, number),
            Comparison::Equal => Self::Equal(reference, number),
            Comparison::NotEqual => Self::NotEqual(reference, number),
        })
    }
}

/// The number of [`Step::Small`].
#[inline]
pub(crate) fn small_integer(packed: [u8; 3]) -> i64 {
    i64::from((unpack(packed) << 8).cast_signed() >> 8)
}

/// The number of a [`Step::Wide`] with the two steps after it.
#[inline]
pub(crate) fn wide_number(wide: Wide, upper: u16, middle: [u8; 3], lower: [u8; 3]) -> Number {
    let (middle, lower) = (u64::from(unpack(middle)), u64::from(unpack(lower)));
    let bits = u64::from(upper) << 48 | middle << 24 | lower;
    match wide {
        Wide::Signed => Number::Signed(bits.cast_signed()),
        Wide::Unsigned => Number::Unsigned(bits),
        Wide::Float => Number::Float(f64::from_bits(bits)),
    }
}

/// The place of [`Step::Text`].
#[inline]
pub(crate) fn text_place(packed: [u8; 3]) -> Range<usize> {
    let packed = unpack(packed) as usize;
    let (start, length) = (packed >> 12, packed & 0xfff);
    start..start + length
}
