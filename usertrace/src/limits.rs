//! What this library has room for. How much there is, the kernel tells: what is beyond, this
//! library does not write.

/// Slots, the first ones.
pub(crate) const SLOTS: usize = 16;

/// Channels in a trace, the first ones.
pub(crate) const CHANNELS: usize = 16;

/// Bytes of rules.
pub(crate) const RULES_LEN: usize = 4080;

const _: () = assert!(SLOTS <= usertrace_sys::uapi::LTT_MAX_TRACES);
const _: () = assert!(CHANNELS <= usertrace_sys::uapi::LTT_MAX_CHANNELS);
