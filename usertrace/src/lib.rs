//! User-space tracing into buffers that the kernel owns.

#[cfg(feature = "fast")]
mod chunk;
pub mod clock;
#[cfg(feature = "tools")]
pub mod consumer;
pub mod context;
pub mod control;
#[cfg(test)]
#[path = "../../tests/src/counts.rs"]
#[allow(unreachable_pub, reason = "other tests use it, too")]
mod counts;
#[cfg(feature = "tools")]
pub mod crash;
mod errno;
pub mod event;
#[cfg(feature = "tools")]
pub mod export;
#[cfg(feature = "fake")]
#[doc(hidden)]
pub mod fake;
mod limits;
pub mod probe;
#[cfg(feature = "tools")]
mod quoted;
#[cfg(feature = "tools")]
pub mod reader;
#[cfg(feature = "tools")]
pub mod report;
pub mod runtime;
#[cfg(feature = "tools")]
pub mod top;
mod unload;
#[cfg(feature = "tools")]
mod varint;
pub mod writer;

pub use event::{Callsite, Loglevel, Outcome};
pub use runtime::{
    Declared, Report, Status, callsites, finalise, init, initialise, report, stats, status, switch,
};
pub use usertrace_sys::Errno;
