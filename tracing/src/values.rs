//! Values of fields, collected into a payload.

use std::fmt::{self, Write};

use tracing_core::field::{Field, Visit};
use usertrace::__private::{self, Buffer, Payload as _, Scratch, record_parts, record_words};
use usertrace::Callsite;

/// Limit of values in a layout; an event with more is written as text.
const MAX_VALUES: usize = 32;

/// A value's field, as an index of the call site's fields, and its type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Type(u16);

#[derive(Clone, Copy)]
enum Kind {
    Signed,
    Unsigned,
    Float,
    Bool,
    Text,
}

impl Type {
    const KIND_BITS: u32 = 3;

    /// `None` for a field whose index is too large.
    #[inline(always)]
    fn new(field: &Field, kind: Kind) -> Option<Self> {
        let index = field.index();
        let is_small = index < 1 << (u16::BITS - Self::KIND_BITS);
        is_small.then_some(Self((index as u16) << Self::KIND_BITS | kind as u16))
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0 >> Self::KIND_BITS)
    }

    /// The type's name in descriptions.
    pub(crate) fn name(self) -> &'static str {
        const NAMES: [(Kind, &str); 5] = [
            (Kind::Signed, "s64"),
            (Kind::Unsigned, "u64"),
            (Kind::Float, "f64"),
            (Kind::Bool, "bool"),
            (Kind::Text, "str"),
        ];
        let kind = self.0 & ((1 << Self::KIND_BITS) - 1);
        let found = NAMES.iter().find(|(known, _)| *known as u16 == kind);
        found.map_or("", |(_, name)| name)
    }
}

/// The values of a record, in the order of their arrival.
pub(crate) struct Values<'a> {
    payload: Payload<'a>,
    types: [Type; MAX_VALUES],
    /// Number of values; more than `MAX_VALUES` means too many.
    count: usize,
}

impl<'a> Values<'a> {
    /// Starts a payload with the ids of spans.
    #[inline(always)]
    pub(crate) fn new(room: &'a mut Scratch, spans: &[u64]) -> Self {
        let mut values = Self {
            payload: Payload::Short(Buffer::new(room)),
            types: [Type::default(); MAX_VALUES],
            count: 0,
        };
        spans.iter().for_each(|span| values.push::<u64>(*span));
        values
    }

    /// Appends a value that belongs to no field of the call site.
    #[inline(always)]
    pub(crate) fn push<F: __private::Field + ?Sized>(&mut self, value: F::Argument<'_>) {
        F::append(value, &mut self.payload);
    }

    /// The types of the values; `None` if there are too many.
    #[inline(always)]
    pub(crate) fn types(&self) -> Option<&[Type]> {
        self.types.get(..self.count)
    }

    /// Writes the values as an event.
    #[inline(always)]
    pub(crate) fn record(self, callsite: &Callsite) {
        // The traces count losses; `tracing` has no way to handle them.
        let _ = match self.payload {
            Payload::Short(mut buffer) => record_words(callsite, buffer.words()),
            Payload::Long(bytes) => record_parts(callsite, &[&bytes]),
        };
    }

    #[inline(always)]
    fn add_type(&mut self, field: &Field, kind: Kind) {
        match (self.types.get_mut(self.count), Type::new(field, kind)) {
            (Some(room), Some(of_field)) => {
                *room = of_field;
                self.count += 1;
            }
            _ => self.count = MAX_VALUES + 1,
        }
    }

    #[inline(always)]
    fn value<F: __private::Field + ?Sized>(
        &mut self,
        field: &Field,
        kind: Kind,
        value: F::Argument<'_>,
    ) {
        self.add_type(field, kind);
        self.push::<F>(value);
    }
}

impl Visit for Values<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.value::<i64>(field, Kind::Signed, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.value::<u64>(field, Kind::Unsigned, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.value::<f64>(field, Kind::Float, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value::<bool>(field, Kind::Bool, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.value::<str>(field, Kind::Text, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_type(field, Kind::Text);
        let mut text = Formatted {
            payload: &mut self.payload,
            has_ended: false,
        };
        // Only the value's own formatting can fail; keep what it has written.
        let _ = write!(text, "{value:?}");
        self.payload.append(&[0]);
    }
}

/// A payload, on the stack as long as it fits.
enum Payload<'a> {
    Short(Buffer<'a>),
    Long(Vec<u8>),
}

impl Payload<'_> {
    #[cold]
    #[inline(never)]
    fn append_long(&mut self, bytes: &[u8]) {
        match self {
            Self::Short(buffer) => *self = Self::Long([buffer.bytes(), bytes].concat()),
            Self::Long(all) => all.extend_from_slice(bytes),
        }
    }
}

impl __private::Payload for Payload<'_> {
    #[inline(always)]
    fn append(&mut self, bytes: &[u8]) {
        match self {
            Self::Short(buffer) if buffer.has_room(bytes.len()) => buffer.append(bytes),
            _ => self.append_long(bytes),
        }
    }

    #[inline(always)]
    fn append_text(&mut self, text: &[u8]) {
        match self {
            Self::Short(buffer) if buffer.has_room(text.len() + 1) => buffer.append_text(text),
            _ => {
                self.append_long(text.split(|byte| *byte == 0).next().unwrap_or(text));
                self.append_long(&[0]);
            }
        }
    }
}

/// A writer of text in pieces, which stops at the first NUL.
struct Formatted<'a, 'b> {
    payload: &'a mut Payload<'b>,
    has_ended: bool,
}

impl Write for Formatted<'_, '_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if !self.has_ended {
            let end = piece.find('\0');
            self.has_ended = end.is_some();
            self.payload
                .append(&piece.as_bytes()[..end.unwrap_or(piece.len())]);
        }
        Ok(())
    }
}
