//! The thread that wrote an event.

use usertrace_reader::{Event, Value, Values, value};

/// The thread of an event, by its context or its ring.
pub(crate) fn thread(event: &Event<'_>) -> Option<i64> {
    let contexts = event.stream.contexts.as_deref().unwrap_or_default();
    let of_context = contexts.iter().position(|field| field.name == "vtid");
    let of_context = of_context.and_then(|n| value::integer(contexts, n, event.contexts));
    let packet = &event.stream.packet;
    let of_ring = || {
        let n = packet.iter().position(|field| field.name == "tid")?;
        // 0 means several threads.
        value::integer(packet, n, event.packet).filter(|&tid| tid != 0)
    };
    of_context.or_else(of_ring).map(u64::cast_signed)
}

/// The name of that thread, if it is a context.
pub(crate) fn thread_name<'a>(event: &Event<'a>) -> Option<&'a [u8]> {
    let contexts = event.stream.contexts.as_deref().unwrap_or_default();
    let mut values = Values::new(contexts, event.contexts);
    values.find_map(|(field, value)| match value {
        Value::Text(name) if field.name == "procname" => Some(name),
        _ => None,
    })
}
