//! Clocks of traces of this host, with what the kernel knows of its time of day.

use std::sync::LazyLock;

use usertrace_ctf::Clock;
use usertrace_os::time;
use usertrace_sys::uapi::LttClockSync;

/// The error of the time of day when this process needed it first. It stays the same, as metadata
/// that viewers have read must not change.
static ERROR: LazyLock<Option<u64>> = LazyLock::new(time::error);

/// The clock of traces of this boot of this host, see [`Clock::new`].
pub(crate) fn host_clock(start: &LttClockSync, others: &[LttClockSync]) -> Clock {
    Clock::new(start, others).of_this_boot().with_error(*ERROR)
}
