//! User-space tracing into buffers that the kernel owns.

pub mod context;
pub mod control;
mod errno;
pub mod event;
#[cfg(feature = "fake")]
#[doc(hidden)]
pub mod fake;
pub mod probe;
pub mod runtime;
mod unload;
pub mod writer;

pub use event::{Callsite, Loglevel, Outcome};
pub use runtime::{
    Declared, Report, Status, callsites, finalise, init, initialise, report, stats, status, switch,
};
pub use usertrace_sys::{Errno, clock};
