//! The call stack of an event.

use usertrace_reader::{Event, Field, Number, Value, Values, value};

/// Contexts with the call stack, and with the place of the event.
const CALLSTACK: &str = "callstack";
const IP: &str = "ip";

/// Maximum number of frames that are read of a stack. Recorded ones have up to 64.
pub(crate) const MAX_FRAMES: usize = 1024;

/// What a code address points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressKind {
    /// The instruction after a call, or after the place of an event. The call is before it, and
    /// the next instruction may belong to another line or another function.
    Return,
    /// The start of a function.
    Entry,
}

impl AddressKind {
    /// The kind of address in a field or context of this name. None if it holds no code address.
    #[must_use]
    pub fn of_field(name: &str) -> Option<Self> {
        match name {
            CALLSTACK | IP | "call_site" | "caller" => Some(Self::Return),
            "function" => Some(Self::Entry),
            _ => None,
        }
    }

    /// An address within the instruction that is meant.
    #[inline]
    #[must_use]
    pub fn instruction(self, address: u64) -> u64 {
        match self {
            Self::Return => address.wrapping_sub(1),
            Self::Entry => address,
        }
    }
}

/// The call stack of an event, from the innermost function outward: its context `callstack`, or
/// else `ip` alone. Empty without both. All are addresses of kind [`AddressKind::Return`].
///
/// Unknown addresses are 0, and are left out.
pub fn stack<'a>(event: &Event<'a>) -> impl Iterator<Item = u64> + use<'a> {
    let fields: &'a [Field] = event.stream.contexts.as_deref().unwrap_or_default();
    let index_of = |name: &str| fields.iter().position(|field| field.name == name);
    let list = index_of(CALLSTACK).and_then(|index| {
        match Values::new(fields, event.contexts).nth(index)?.1 {
            Value::List(list) => Some(list),
            _ => None,
        }
    });
    let single = match list {
        Some(_) => None,
        None => index_of(IP).and_then(|index| value::integer(fields, index, event.contexts)),
    };
    let addresses = list
        .into_iter()
        .flatten()
        .filter_map(|number| match number {
            Number::Integer(_, bits) => Some(bits),
            _ => None,
        });
    let addresses = addresses.take(MAX_FRAMES).chain(single);
    addresses.filter(|&address| address != 0)
}
