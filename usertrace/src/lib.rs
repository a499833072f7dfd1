//! User-space tracing into buffers that the kernel owns.

pub mod clock;
#[cfg(feature = "tools")]
pub mod consumer;
#[cfg(feature = "tools")]
pub mod crash;
#[cfg(feature = "tools")]
pub mod ctf;
pub mod event;
#[cfg(feature = "fake")]
#[doc(hidden)]
pub mod fake;
#[cfg(feature = "tools")]
pub mod metadata;
#[cfg(feature = "tools")]
pub mod ring;
pub mod runtime;
pub mod writer;

pub use event::{Callsite, Loglevel, Outcome, callsites};
pub use runtime::{Status, init, stats, status, switch};
pub use usertrace_sys::Errno;
pub use writer::RECORD_MAX;
