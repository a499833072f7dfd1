//! Which CPU a test runs on.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the calling thread on one CPU, so that its events are in one ring.
///
/// # Panics
/// If there is no such CPU.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).expect("a number of a CPU");
    sched_setaffinity(Pid::from_raw(0), &set).expect("that CPU exists");
}
