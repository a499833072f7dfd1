//! Finds events that begin or end a slice in one thread.

use usertrace_reader::Event;
use usertrace_ring::schema::{FieldType, Scalar};

use crate::pair_names;

/// The role of an event in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceRole {
    Begin,
    End,
    Neither,
}

/// The role of an event, and the name of its slice. An event has a role only if its counterpart
/// exists, as `is_event` says, and its slices stay in one thread.
pub(super) fn slice_role(name: &str, is_event: &dyn Fn(&str) -> bool) -> (SliceRole, String) {
    let (role, begin) = match pair_names::begin_of(name, is_event) {
        Some(begin) => (SliceRole::End, begin),
        None if pair_names::end_of(name, is_event).is_some() => (SliceRole::Begin, name.to_owned()),
        None => (SliceRole::Neither, String::new()),
    };
    match role {
        SliceRole::Begin | SliceRole::End if !pair_names::is_async(&begin) => {
            (role, pair_names::stem(&begin).to_owned())
        }
        _ => (SliceRole::Neither, name.to_owned()),
    }
}

/// Whether an event with this stem is of a function that its first field has the address of: all
/// functions share one event.
pub(super) fn is_of_function(event: &Event<'_>, stem: &str) -> bool {
    let is_address = |kind: &FieldType| matches!(kind, FieldType::Scalar(Scalar::Integer(kind)) if kind.hex && kind.len == 8);
    let first = event.class.fields.first();
    let provider = event.class.name.split(':').next();
    first.is_some_and(|field| is_address(&field.kind)) && provider == Some(stem)
}

/// The open slices of a thread.
#[derive(Debug, Default)]
pub(super) struct Stack {
    open: Vec<u64>,
}

/// Maximum depth, beyond that of real stacks: ends may be missing forever.
const MAX_DEPTH: usize = 4096;

impl Stack {
    /// Begins a slice. Returns false if there are too many.
    pub(super) fn begin(&mut self, what: u64) -> bool {
        let has_room = self.open.len() < MAX_DEPTH;
        if has_room {
            self.open.push(what);
        }
        has_room
    }

    /// The slice that began last.
    pub(super) fn innermost(&self) -> Option<u64> {
        self.open.last().copied()
    }

    /// Ends a slice, and slices within it that lack their own ends. Returns the number of the
    /// latter, or `None` if the slice is not open.
    pub(super) fn end(&mut self, what: u64) -> Option<usize> {
        let at = self.open.iter().rposition(|&open| open == what)?;
        let within = self.open.len() - at - 1;
        self.open.truncate(at);
        Some(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begin_and_end_share_the_slice_name() {
        let events = [
            "sys:read_entry",
            "sys:read_exit",
            "span.new",
            "span.close",
            "x:exit",
        ];
        let is_event = |name: &str| events.contains(&name);
        for (name, expected) in [
            ("sys:read_entry", (SliceRole::Begin, "sys:read")),
            ("sys:read_exit", (SliceRole::End, "sys:read")),
            ("span.new", (SliceRole::Neither, "span.new")),
            ("span.close", (SliceRole::Neither, "span.close")),
            ("x:exit", (SliceRole::Neither, "x:exit")),
        ] {
            let (role, called) = slice_role(name, &is_event);
            assert_eq!((role, called.as_str()), expected, "{name}");
        }
    }

    #[test]
    fn outer_ends_close_inner_slices() {
        let mut stack = Stack::default();
        assert_eq!(stack.end(1), None);
        for what in [1, 2, 1, 3] {
            assert!(stack.begin(what));
        }
        assert_eq!(stack.end(1), Some(1));
        assert_eq!(stack.end(3), None);
        assert_eq!(stack.end(1), Some(1));
        assert_eq!(stack.end(2), None);
        assert!((0..MAX_DEPTH).all(|_| stack.begin(5)));
        assert!(!stack.begin(6));
        assert_eq!(stack.end(6), None);
    }
}
