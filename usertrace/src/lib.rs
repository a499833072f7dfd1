//! User-space tracing into buffers that the kernel owns.

pub mod clock;
#[cfg(feature = "tools")]
pub mod crash;
#[cfg(feature = "tools")]
pub mod ctf;
#[cfg(feature = "tools")]
pub mod metadata;
#[cfg(feature = "tools")]
pub mod ring;
pub mod writer;
