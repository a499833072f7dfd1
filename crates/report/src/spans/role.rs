//! What an event of the layer for `tracing` does to spans, by its name and fields.

use usertrace_reader::Event;
use usertrace_ring::schema::{FieldType, Scalar};

/// What an event does to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is made.
    New,
    /// It gets further fields.
    Record,
    /// It follows from another span.
    Follows,
    /// A thread enters it, or leaves it.
    Enter,
    Exit,
    /// It ends.
    Close,
    /// Something happens in it, or in none if its id is 0.
    InSpan,
}

/// Events of the layer for `tracing`: the end of their names, and how many ids of spans come before
/// their fields.
const OF_TRACING: [(&str, Role, &[&str]); 6] = [
    (".new", Role::New, &["span", "parent"]),
    (".record", Role::Record, &["span"]),
    (".follows", Role::Follows, &["span", "follows"]),
    (".enter", Role::Enter, &["span"]),
    (".exit", Role::Exit, &["span"]),
    (".close", Role::Close, &["span"]),
];

impl Role {
    /// The role of an event, and the name of its span, or of an event in a span.
    pub(crate) fn of<'a>(event: &Event<'a>) -> Option<(Self, &'a str)> {
        let name = &event.class.name[..];
        if !begins_with(event, &["span"]) {
            return None;
        }
        for (end, role, ids) in OF_TRACING {
            let Some(span) = name.strip_suffix(end) else {
                continue;
            };
            let is_made = || event.other(&format!("{span}.new")) == Some(true);
            if begins_with(event, ids) && is_made() {
                return Some((role, span));
            }
        }
        Some((Self::InSpan, name))
    }

    /// How many ids of spans come before the fields.
    pub(crate) fn ids(self) -> usize {
        match self {
            Self::New | Self::Follows => 2,
            Self::Record | Self::Enter | Self::Exit | Self::Close | Self::InSpan => 1,
        }
    }
}

/// Whether these are the names of the first fields, and all are unsigned integers of 64 bits.
fn begins_with(event: &Event<'_>, names: &[&str]) -> bool {
    let fields = &event.class.fields;
    fields.len() >= names.len()
        && fields.iter().zip(names).all(|(field, name)| {
            let is_id = matches!(
                field.kind,
                FieldType::Scalar(Scalar::Integer(kind)) if kind.len == 8 && !kind.signed
            );
            field.name == *name && is_id
        })
}
