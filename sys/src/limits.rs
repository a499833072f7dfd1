//! The capacities of this library. The kernel reports its own; the library does not use what
//! exceeds these.

/// Slots that the library uses: the first ones.
pub const SLOTS: usize = 16;

/// Channels of a trace that the library uses: the first ones.
pub const CHANNELS: usize = 16;

/// Bytes of rules of a trace.
pub const RULES_LEN: usize = 4080;

const _: () = assert!(SLOTS <= crate::uapi::LTT_MAX_TRACES);
const _: () = assert!(CHANNELS <= crate::uapi::LTT_MAX_CHANNELS);
