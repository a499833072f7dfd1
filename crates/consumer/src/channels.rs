//! The names of the channels that every trace has.

/// The channel that describes events.
pub const CONTROL: &str = "control";

/// The channel of events that no other one takes.
pub const MAIN: &str = "main";
