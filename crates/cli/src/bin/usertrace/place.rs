//! Prints the functions at the code addresses of an event, in lines below it.

use std::fmt::Write as _;

use usertrace_symbols::{Area, Frame, NamedField};

const CALLSTACK: &str = "callstack";
const IP: &str = "ip";

/// Appends lines that begin with four spaces: a call stack as a line for each function, any other
/// field as one line with its name.
pub(crate) fn append(out: &mut Vec<u8>, named: &[NamedField<'_>]) {
    let is_context =
        |field: &&NamedField<'_>, name| field.area == Area::Context && field.name == name;
    let has_callstack = named.iter().any(|field| is_context(&field, CALLSTACK));
    let mut text = String::new();
    for field in named {
        // A call stack begins with the place of the event.
        if has_callstack && is_context(&field, IP) {
            continue;
        }
        let frames = field.frames.iter().flat_map(|(_, frames)| frames.iter());
        if is_context(&field, CALLSTACK) {
            for frame in frames {
                let _ = writeln!(text, "    at {frame:#}");
            }
        } else {
            let frames: Vec<String> = frames.map(Frame::to_string).collect();
            let _ = writeln!(text, "    {}: {}", field.name, frames.join(" in "));
        }
    }
    out.extend_from_slice(text.as_bytes());
}
