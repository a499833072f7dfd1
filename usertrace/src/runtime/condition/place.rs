//! Where an event has the values that a condition refers to.
//!
//! The rules are those of `--where` in the crate `usertrace-reader`, `condition.rs`: a condition
//! chooses the same events here and there.

use usertrace_expression::{Reference, ReferenceKind, Segment};
use usertrace_sys::description::{self, Element, Integer, Scalar, Type};

use crate::context::{Apps, Kind};

/// The words of a place in the table.
pub(super) const PLACE_WORDS: usize = 3;

/// Variable fields that stand before a field which a condition can refer to.
pub(super) const STEPS_MAX: usize = 255;

/// The size of the largest payload that places are resolved in.
const PAYLOAD_MAX: usize = 1 << 24;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The event has no such value.
    Missing,
    Field {
        part: Part,
        /// The fields of variable length before it.
        steps: u8,
        /// Bytes after the last of these, or from the start of the payload.
        at: u32,
    },
    Context(Kind),
    /// The name of the host: its words in the table, and bytes.
    Host {
        at: u16,
        len: u16,
    },
}

/// What a condition wants of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Number(Scalar),
    /// A NUL-terminated text.
    Text,
    /// The place of the labels in the description.
    Enumeration {
        of: Integer,
        at: u16,
        len: u16,
    },
    /// A text of at most that many bytes.
    Array {
        len: u16,
    },
    /// A text whose length comes first.
    Sequence,
    /// The number of a sequence's elements.
    Count,
    Element {
        of: Scalar,
        index: u32,
    },
}

/// A field of variable length that stands before others, with the bytes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes after the step before this one, or from the start of the payload.
    pub(super) before: u32,
    /// The size of the sequence's elements; 0: it is a text.
    pub(super) element: u8,
}

impl Step {
    pub(super) fn to_word(self) -> u32 {
        self.before << 8 | u32::from(self.element)
    }

    #[inline]
    pub(super) fn from_word(word: u32) -> Self {
        Self {
            before: word >> 8,
            element: word as u8,
        }
    }
}

const SIGNED: u8 = 1 << 2;
const BIG_ENDIAN: u8 = 1 << 3;
const FLOAT_32: u8 = 1 << 4;
const FLOAT_64: u8 = FLOAT_32 + 1;
const BOOL: u8 = FLOAT_32 + 2;

pub(super) fn integer_code(of: Integer) -> u8 {
    of.len.max(1).ilog2() as u8
        | if of.signed { SIGNED } else { 0 }
        | if of.big_endian { BIG_ENDIAN } else { 0 }
}

#[inline]
pub(super) fn integer_of(code: u8) -> Integer {
    Integer {
        len: 1 << (code & 3),
        signed: code & SIGNED != 0,
        hex: false,
        big_endian: code & BIG_ENDIAN != 0,
    }
}

fn scalar_code(of: Scalar) -> u8 {
    match of {
        Scalar::Integer(of) => integer_code(of),
        Scalar::Float { len: 4 } => FLOAT_32,
        Scalar::Float { .. } => FLOAT_64,
        Scalar::Bool => BOOL,
    }
}

#[inline]
fn scalar_of(code: u8) -> Scalar {
    match code {
        FLOAT_32 => Scalar::Float { len: 4 },
        FLOAT_64 => Scalar::Float { len: 8 },
        BOOL => Scalar::Bool,
        code => Scalar::Integer(integer_of(code)),
    }
}

impl Place {
    pub(super) fn to_words(self) -> [u32; PLACE_WORDS] {
        let head = |tag, code, steps| u32::from_le_bytes([tag, code, steps, 0]);
        let pair = |at: u16, len: u16| u32::from(at) << 16 | u32::from(len);
        match self {
            Self::Missing => [0; PLACE_WORDS],
            Self::Context(kind) => [head(1, kind.code(), 0), 0, 0],
            Self::Host { at, len } => [head(2, 0, 0), 0, pair(at, len)],
            Self::Field { part, steps, at } => {
                let (tag, code, more) = match part {
                    Part::Number(of) => (3, scalar_code(of), 0),
                    Part::Text => (4, 0, 0),
                    Part::Enumeration { of, at, len } => (5, integer_code(of), pair(at, len)),
                    Part::Array { len } => (6, 0, u32::from(len)),
                    Part::Sequence => (7, 0, 0),
                    Part::Count => (8, 0, 0),
                    Part::Element { of, index } => (9, scalar_code(of), index),
                };
                [head(tag, code, steps), at, more]
            }
        }
    }

    /// Whether this is an integer, or what counts as one: a bool or an enumeration.
    pub(super) fn is_integer(&self) -> bool {
        let Self::Field { part, .. } = self else {
            return false;
        };
        matches!(
            part,
            Part::Number(Scalar::Integer(_) | Scalar::Bool) | Part::Enumeration { .. }
        )
    }

    /// Whether events can be counted apart by this: an integer, a text or a context.
    pub(super) fn is_key(&self) -> bool {
        self.is_integer()
            || match self {
                Self::Context(_) => true,
                Self::Field { part, .. } => {
                    matches!(part, Part::Text | Part::Array { .. } | Part::Sequence)
                }
                Self::Missing | Self::Host { .. } => false,
            }
    }

    #[inline]
    pub(super) fn from_words([head, at, more]: [u32; PLACE_WORDS]) -> Self {
        let [tag, code, steps, _] = head.to_le_bytes();
        let (upper, lower) = ((more >> 16) as u16, more as u16);
        let part = match tag {
            1 => return Kind::of_code(code).map_or(Self::Missing, Self::Context),
            2 => {
                return Self::Host {
                    at: upper,
                    len: lower,
                };
            }
            3 => Part::Number(scalar_of(code)),
            4 => Part::Text,
            5 => Part::Enumeration {
                of: integer_of(code),
                at: upper,
                len: lower,
            },
            6 => Part::Array { len: lower },
            7 => Part::Sequence,
            8 => Part::Count,
            9 => Part::Element {
                of: scalar_of(code),
                index: more,
            },
            _ => return Self::Missing,
        };
        Self::Field { part, steps, at }
    }

    /// Finds what a reference names in the event with this description. The name of the host
    /// stands at the words that `host` says.
    ///
    /// Signals must be blocked, as for [`Kind::of_name`].
    pub(super) fn resolve(
        reference: &Reference<'_>,
        description: &str,
        apps: &Apps,
        host: Option<(u16, u16)>,
    ) -> Self {
        let Some(name) = Name::of(reference) else {
            return Self::Missing;
        };
        match reference.kind() {
            ReferenceKind::Field => name.field(description).unwrap_or(Self::Missing),
            // Contexts are no arrays.
            _ if name.index.is_some() => Self::Missing,
            ReferenceKind::Application => name.context(true, apps),
            ReferenceKind::Context if name.is(b"hostname") => {
                host.map_or(Self::Missing, |(at, len)| Self::Host { at, len })
            }
            ReferenceKind::Context => name.context(false, apps),
        }
    }
}

/// A name that a reference is, and an index.
struct Name<'r, 'a> {
    reference: &'r Reference<'a>,
    index: Option<u32>,
}

impl<'r, 'a> Name<'r, 'a> {
    /// None if it cannot name anything: events have neither structures nor arrays in arrays.
    fn of(reference: &'r Reference<'a>) -> Option<Self> {
        let mut index = None;
        for segment in reference.segments() {
            match (segment, index) {
                (Segment::Name(_), None) => {}
                (Segment::Index(number), None) => index = Some(u32::try_from(number).ok()?),
                _ => return None,
            }
        }
        Some(Self { reference, index })
    }

    /// The bytes of the name, which may contain dots.
    fn bytes(&self) -> impl Iterator<Item = u8> {
        let mut segments = self.reference.segments();
        let mut segment: &[u8] = &[];
        let mut is_first = true;
        std::iter::from_fn(move || {
            loop {
                if let Some((first, rest)) = segment.split_first() {
                    segment = rest;
                    return Some(*first);
                }
                let Segment::Name(next) = segments.next()? else {
                    return None;
                };
                segment = next;
                if !std::mem::replace(&mut is_first, false) {
                    return Some(b'.');
                }
            }
        })
    }

    fn is(&self, name: &[u8]) -> bool {
        self.bytes().eq(name.iter().copied())
    }

    fn context(&self, of_application: bool, apps: &Apps) -> Place {
        // `app.` and the longest name of a context.
        let mut room = [0; 256];
        let prefix: &[u8] = if of_application { b"app." } else { b"" };
        let mut len = 0;
        for byte in prefix.iter().copied().chain(self.bytes()) {
            let Some(place) = room.get_mut(len) else {
                return Place::Missing;
            };
            *place = byte;
            len += 1;
        }
        let name: &[u8] = match &room[..len] {
            b"tid" => b"vtid",
            b"pid" => b"vpid",
            name => name,
        };
        match Kind::of_name(name, apps) {
            // It is no single value.
            None | Some(Kind::Callstack(_)) => Place::Missing,
            Some(kind) => Place::Context(kind),
        }
    }

    /// Finds a field of this name, or the count of a sequence.
    fn field(&self, description: &str) -> Option<Place> {
        let identifier = |byte: u8| {
            if byte.is_ascii_alphanumeric() {
                byte
            } else {
                b'_'
            }
        };
        let find = |is: &dyn Fn(&str, Type<'_>) -> bool| {
            fields(description).position(|(kind, name, _)| is(name, kind))
        };
        // Traces have `_` in place of characters that identifiers cannot have.
        let is_like = |name: &str| {
            let like = self.bytes().map(identifier);
            like.eq(name.bytes().map(identifier))
        };
        let is_count = |name: &str| {
            let count = (b"_".iter()).chain(name.as_bytes()).chain(b"_length");
            self.bytes().eq(count.copied())
        };
        let found =
            find(&|name, _| self.is(name.as_bytes())).or_else(|| find(&|name, _| is_like(name)));
        let (at, is_count) = match found {
            Some(at) => (at, false),
            None => {
                let is_sequence = |name: &str, kind: Type<'_>| {
                    matches!(kind, Type::Sequence(_)) && is_count(name)
                };
                (find(&is_sequence)?, true)
            }
        };
        self.place(description, at, is_count)
    }

    /// The place of the field with this index.
    fn place(&self, description: &str, field: usize, is_count: bool) -> Option<Place> {
        let (mut steps, mut at) = (0usize, 0usize);
        for (kind, _, _) in fields(description).take(field) {
            match step(kind) {
                Ok(len) => at = at.checked_add(len)?,
                Err(_) => (steps, at) = (steps + 1, 0),
            }
        }
        let (kind, _, labels) = fields(description).nth(field)?;
        let part = match (kind, self.index) {
            (Type::Sequence(_), None) if is_count => Part::Count,
            _ if is_count => return None,
            (Type::Scalar(of), None) => Part::Number(of),
            (Type::Str, None) => Part::Text,
            (Type::Enum(of, text), None) => Part::Enumeration {
                of,
                at: u16::try_from(labels).ok()?,
                len: u16::try_from(text.len()).ok()?,
            },
            (Type::Array(Element::Char, len), None) => Part::Array { len },
            (Type::Sequence(Element::Char), None) => Part::Sequence,
            (Type::Array(Element::Scalar(of), len), Some(index)) if index < len.into() => {
                at = at.checked_add(index as usize * of.size())?;
                Part::Number(of)
            }
            (Type::Sequence(Element::Scalar(of)), Some(index)) => Part::Element { of, index },
            _ => return None,
        };
        if steps > STEPS_MAX || at > PAYLOAD_MAX {
            return None;
        }
        Some(Place::Field {
            part,
            steps: steps as u8,
            at: at as u32,
        })
    }
}

/// The fields of variable length of an event, at most [`STEPS_MAX`], with the bytes before each.
pub(super) fn steps(description: &str) -> impl Iterator<Item = Step> {
    let mut before = 0usize;
    let step = move |kind| match step(kind) {
        Ok(len) => {
            before = before.saturating_add(len);
            None
        }
        Err(element) => Some(Step {
            // A field behind so many bytes is missing.
            before: std::mem::take(&mut before).min(PAYLOAD_MAX - 1) as u32,
            element,
        }),
    };
    fields(description)
        .map(|(kind, _, _)| kind)
        .filter_map(step)
        .take(STEPS_MAX)
}

/// The length of a field; or, if it is variable, the size of its elements, 0 for a text.
fn step(kind: Type<'_>) -> Result<usize, u8> {
    match kind {
        Type::Scalar(of) => Ok(of.size()),
        Type::Enum(of, _) => Ok(of.len.into()),
        Type::Array(of, len) => Ok(of.size() * usize::from(len)),
        Type::Str => Err(0),
        Type::Sequence(of) => Err(of.size() as u8),
    }
}

/// The fields of an event, with the places of labels in its description.
fn fields(description: &str) -> impl Iterator<Item = (Type<'_>, &str, usize)> {
    let text = description.splitn(3, ' ').nth(2);
    // The offset of the field in the description.
    let mut at = text.map_or(0, |text| description.len() - text.len());
    let text = text.into_iter().flat_map(|text| text.split(';'));
    text.filter_map(move |field| {
        let start = at;
        at += field.len() + 1;
        let (kind, name) = description::field(field).ok()?;
        let labels = match kind {
            Type::Enum(..) => start + field.find('{').map_or(0, |brace| brace + 1),
            _ => 0,
        };
        Some((kind, name, labels))
    })
}
