//! The interface between recorders and the fallback's daemons.

use std::ffi::CStr;

/// Process name of the daemons, the watchdog and the worker.
pub const DAEMON: &CStr = c"usertrace-fast";

/// Signal that makes a worker write what is in the rings, and look for another
/// [`TraceLocation`](super::TraceLocation).
pub const WRITE_NOW: libc::c_int = libc::SIGUSR2;
