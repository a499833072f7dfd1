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
pub fn stack(event: &Event<'_>) -> impl Iterator<Item = u64> + use<> {
    let mut addresses = Vec::new();
    append_stack(event, &mut addresses);
    addresses.into_iter()
}

/// Appends the [call stack](stack) of an event.
#[inline]
pub fn append_stack(event: &Event<'_>, to: &mut Vec<u64>) {
    let fields = event.stream.contexts.as_deref().unwrap_or_default();
    append_stack_of(fields, event.contexts, to);
}

/// Appends the [call stack](stack) of an event with these contexts.
#[inline]
pub fn append_stack_of(fields: &[Field], contexts: &[u8], to: &mut Vec<u64>) {
    let index_of = |name: &str| fields.iter().position(|field| field.name == name);
    let list =
        index_of(CALLSTACK).and_then(|index| match Values::new(fields, contexts).nth(index)?.1 {
            Value::List(list) => Some(list),
            _ => None,
        });
    let before = to.len();
    match list {
        Some(list) => match list.words() {
            Some(words) => to.extend(words.take(MAX_FRAMES)),
            None => to.extend(list.take(MAX_FRAMES).filter_map(|number| match number {
                Number::Integer(_, bits) => Some(bits),
                _ => None,
            })),
        },
        None => {
            let ip = index_of(IP);
            to.extend(ip.and_then(|index| value::integer(fields, index, contexts)));
        }
    }
    if to[before..].contains(&0) {
        let mut kept = before;
        for at in before..to.len() {
            if to[at] != 0 {
                to[kept] = to[at];
                kept += 1;
            }
        }
        to.truncate(kept);
    }
}
