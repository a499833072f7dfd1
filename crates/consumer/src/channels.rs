//! The names of the channels that every trace has.

/// The channel that describes events.
pub const CONTROL: &str = "control";

/// Prefix of the names of channels that count, which a number follows.
pub const COUNT: &str = "count";

/// The channel of events that no other one takes.
pub const MAIN: &str = "main";
