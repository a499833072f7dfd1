//! How recorders find the fallback's daemons, and what they ask of them.

use std::ffi::CStr;

/// The name of the daemons, the watchdog and the worker.
pub const DAEMON: &CStr = c"usertrace-fast";

/// The signal that has a worker write what is in the rings, and look for another
/// [`TraceLocation`](super::TraceLocation).
pub const WRITE_NOW: libc::c_int = libc::SIGUSR2;
