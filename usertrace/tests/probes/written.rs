//! The events that the scenario writes to a trace.

/// Number of events of each name, of the process and of its child.
pub(crate) const WRITTEN: [[(&str, usize); 2]; 2] = [
    [("test:number", 14), ("test:text", 3)],
    [("test:number", 2), ("test:text", 0)],
];
