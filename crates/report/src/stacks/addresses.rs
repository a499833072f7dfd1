//! Reads the call stack of an event.

use usertrace_reader::{Event, Number, Value, Values};

/// Appends the addresses of an event's call stack, from the innermost one: those of context
/// `callstack`, or else that of context `ip`.
pub(super) fn append(addresses: &mut Vec<u64>, event: &Event<'_>) {
    let contexts = event.stream.contexts.as_deref().unwrap_or_default();
    let mut ip = None;
    for (field, value) in Values::new(contexts, event.contexts) {
        match (&field.name[..], value) {
            ("callstack", Value::List(elements)) => {
                addresses.extend(elements.filter_map(|element| match element {
                    Number::Integer(_, bits) => Some(bits),
                    _ => None,
                }));
            }
            ("ip", Value::Scalar(Number::Integer(_, bits))) => ip = Some(bits),
            _ => {}
        }
    }
    if addresses.is_empty() {
        addresses.extend(ip.filter(|&ip| ip != 0));
    }
}
