//! User-space tracing into buffers that the kernel owns.

#[cfg(feature = "tools")]
pub mod metadata;
#[cfg(feature = "tools")]
pub mod ring;
