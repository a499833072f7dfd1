//! User-space tracing into buffers that the kernel owns.

pub mod clock;
#[cfg(feature = "tools")]
pub mod consumer;
#[cfg(feature = "tools")]
pub mod crash;
#[cfg(feature = "fast")]
pub mod ctf;
pub mod event;
#[cfg(feature = "fake")]
#[doc(hidden)]
pub mod fake;
#[cfg(feature = "fast")]
pub mod metadata;
#[cfg(feature = "fast")]
pub mod ring;
pub mod runtime;
pub mod writer;

pub use event::{Callsite, Loglevel, Outcome, callsites};
pub use runtime::{Report, Status, init, report, stats, status, switch};
pub use usertrace_sys::Errno;
