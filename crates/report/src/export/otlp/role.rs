//! What an event does to spans, by its name and fields.

use usertrace_reader::Event;
use usertrace_ring::schema::{FieldType, Scalar};

use crate::export::pairs::{SliceRole, slice_role};

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A span of `tracing` is made.
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
    /// Something happens in a span of `tracing`.
    InSpan,
    /// The thread begins a span, or ends it.
    Begin,
    End,
    /// It has nothing to do with spans.
    None,
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
    /// The role of an event, and the name of the span.
    pub(super) fn of(event: &Event<'_>) -> (Self, String) {
        let name = &event.class.name[..];
        if begins_with(event, &["span"]) {
            for (end, role, ids) in OF_TRACING {
                let Some(span) = name.strip_suffix(end) else {
                    continue;
                };
                let is_made = || event.other(&format!("{span}.new")) == Some(true);
                if begins_with(event, ids) && is_made() {
                    return (role, short(span));
                }
            }
            return (Self::InSpan, short(name));
        }
        let is_event = |name: &str| event.other(name) == Some(true);
        match slice_role(name, &is_event) {
            (SliceRole::Begin, stem) => (Self::Begin, short(&stem)),
            (SliceRole::End, stem) => (Self::End, short(&stem)),
            (SliceRole::Neither, _) => (Self::None, String::new()),
        }
    }

    /// How many ids of spans come before the fields.
    pub(super) fn ids(self) -> usize {
        match self {
            Self::New | Self::Follows => 2,
            Self::Record | Self::Enter | Self::Exit | Self::Close | Self::InSpan => 1,
            Self::Begin | Self::End | Self::None => 0,
        }
    }
}

/// The name without its provider, which is the scope.
fn short(name: &str) -> String {
    name.split_once(':')
        .map_or(name, |(_, name)| name)
        .to_owned()
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
