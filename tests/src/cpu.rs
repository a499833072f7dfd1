//! Which CPU a test runs on.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the calling thread on one CPU, so that its events are in one ring.
///
/// # Panics
/// If there is no such CPU.
pub fn pin(cpu: usize) {
    assert!(try_pin(cpu), "CPU {cpu} exists");
}

/// Like [`pin`], but returns false if the CPU does not exist.
///
/// # Panics
/// If the number is too large for a CPU set.
pub fn try_pin(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu).expect("a number of a CPU");
    sched_setaffinity(Pid::from_raw(0), &set).is_ok()
}
