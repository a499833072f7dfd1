//! Keeps the worker off the processors that writers are on.
//!
//! The kernel may wake the worker where it slept before, and let it run there while another
//! processor has nothing to do: then the program waits for its reader. A ring of a CPU says where
//! its writers are.

use crate::os::thread;

/// A set of processors.
#[derive(Clone, Copy)]
struct Set(libc::cpu_set_t);

impl Set {
    /// The CPUs that this process may use; none if there are more than a set has room for.
    fn allowed() -> Option<Self> {
        // SAFETY: a set is plain data, and the kernel writes `size_of_val(&set)` bytes.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) == 0).then_some(Self(set))
        }
    }

    fn remove(&mut self, cpu: u32) {
        if cpu < libc::CPU_SETSIZE as u32 {
            // SAFETY: the number is inside the set.
            unsafe { libc::CPU_CLR(cpu as usize, &mut self.0) };
        }
    }

    fn is_empty(&self) -> bool {
        // SAFETY: reads the set.
        unsafe { libc::CPU_COUNT(&self.0) == 0 }
    }

    fn enter(&self) {
        // SAFETY: the kernel reads `size_of_val(&self.0)` bytes. If a filter forbids it, nothing
        // changes.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) };
    }
}

/// The CPUs that the worker may use.
pub(super) struct CpuAvoidance(Option<Set>);

impl CpuAvoidance {
    /// All CPUs that this process may use now.
    pub(super) fn new() -> Self {
        Self(Set::allowed())
    }

    /// Moves the worker to another CPU, if it runs on one on which events were just written, and
    /// there are others.
    pub(super) fn step(&self, busy: &[u32]) {
        // Not the C library's function: that relies on the thread's rseq area, which the kernel
        // does not update in daemons (`spawn.rs`).
        let here = thread::cpu();
        let Some(allowed) = self.0.filter(|_| busy.contains(&here)) else {
            return;
        };
        let mut idle = allowed;
        busy.iter().for_each(|&cpu| idle.remove(cpu));
        if idle.is_empty() { allowed } else { idle }.enter();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_leaves_a_busy_cpu_if_there_is_another_one() {
        std::thread::spawn(|| {
            let avoidance = CpuAvoidance::new();
            let here = || {
                // SAFETY: no memory is involved.
                unsafe { libc::sched_getcpu() as u32 }
            };
            let count = |set: &Set| {
                // SAFETY: reads the set.
                unsafe { libc::CPU_COUNT(&set.0) }
            };
            let all = Set::allowed().unwrap();
            if count(&all) < 2 {
                return;
            }
            for _ in 0..3 {
                // The kernel may move the thread in between, too.
                let busy = loop {
                    let busy = here();
                    avoidance.step(&[busy]);
                    // SAFETY: inside the set, which is read.
                    if !unsafe { libc::CPU_ISSET(busy as usize, &Set::allowed().unwrap().0) } {
                        break busy;
                    }
                };
                assert_ne!(here(), busy);
                assert_eq!(count(&Set::allowed().unwrap()), count(&all) - 1);
            }
            // Nowhere is better than here.
            let everywhere: Vec<u32> = (0..libc::CPU_SETSIZE as u32).collect();
            avoidance.step(&everywhere);
            assert_eq!(count(&Set::allowed().unwrap()), count(&all));
            // No writer runs.
            avoidance.step(&[]);
            assert_eq!(count(&Set::allowed().unwrap()), count(&all));
        })
        .join()
        .unwrap();
    }
}
