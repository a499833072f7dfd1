//! What this library has room for. How much there is, the kernel tells: what is beyond, this
//! library does not write.

/// Slots, the first ones.
pub const SLOTS: usize = 16;

/// Channels in a trace, the first ones.
pub const CHANNELS: usize = 16;

/// Bytes of rules.
pub const RULES_LEN: usize = 4080;

const _: () = assert!(SLOTS <= crate::uapi::LTT_MAX_TRACES);
const _: () = assert!(CHANNELS <= crate::uapi::LTT_MAX_CHANNELS);
