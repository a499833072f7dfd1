//! The code that an event is about.

use usertrace_symbols::{Area, Frame, NamedField};

use crate::stacks::culprit;

/// The context with the call stack, and that with the place of the event.
const CALLSTACK: &str = "callstack";
const IP: &str = "ip";
/// The field with the function that a thread enters or leaves.
const FUNCTION: &str = "function";

/// What is known of the code that an event is about.
#[derive(Debug, Default)]
pub(super) struct CodePlace<'a> {
    /// The function to name: the one that the thread enters; or else the innermost one of the call
    /// stack that is not of an allocator, a container or a lock. None if it has no name.
    pub(super) function: Option<&'a Frame>,
    /// The call stack, from the innermost function. Empty if only the place of the event is known.
    pub(super) stack: Vec<&'a Frame>,
}

impl<'a> CodePlace<'a> {
    pub(super) fn of(named: &'a [NamedField<'_>]) -> Self {
        let find = |area, name| {
            let mut all = named.iter();
            all.find(|field| field.area == area && field.name == name)
        };
        let frames = |field: &'a NamedField<'_>| {
            let all = field.frames.iter();
            all.flat_map(|(_, frames)| frames.iter()).collect()
        };
        let stack: Vec<&Frame> = find(Area::Context, CALLSTACK)
            .map(frames)
            .unwrap_or_default();
        let place: Vec<&Frame> = match (find(Area::Payload, FUNCTION), find(Area::Context, IP)) {
            (Some(function), _) => frames(function),
            (None, _) if !stack.is_empty() => stack.clone(),
            (None, ip) => ip.map(frames).unwrap_or_default(),
        };
        let function = place.get(culprit(place.iter().copied())).copied();
        Self {
            function: function.filter(|frame| !frame.is_unknown),
            stack,
        }
    }
}
