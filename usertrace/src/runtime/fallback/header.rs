//! What the processes of a pool and its daemons tell each other.
//!
//! All of it is atomic, and whatever a traced program may write there harms nothing but its own
//! events (A11).

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use usertrace_sys::uapi::LTT_COMM_LEN;

use crate::os::futex;
use crate::writer::ReaderWakeup;

/// Processes of a pool that can be traced at once: the one that made it, and those that it forked.
pub(super) const PROCESSES: usize = 64;

/// How the first daemon tells the program that it has left its files and its terminal.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Left {
    /// Not 0: it has. A futex that processes share.
    left: AtomicU32,
    /// Not 0: somebody waits until the daemons have ended, by a file that they hold.
    awaited: AtomicU32,
}

impl Left {
    /// Says so. `awaited`: whether the daemons hold such a file.
    pub(super) fn tell(&self, awaited: bool) {
        self.awaited.store(awaited.into(), Ordering::Relaxed);
        // Pairs with the load in `is_over`: whoever sees this may rely on `awaited`.
        self.left.store(1, Ordering::Release);
        futex::wake(&self.left, u32::MAX >> 1);
    }

    pub(super) fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) != 0
    }

    /// Waits for a moment.
    pub(super) fn wait(&self) {
        futex::wait(&self.left, 0, Some(Duration::from_millis(20)));
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) != 0
    }
}

/// At the start of the pool. Zeros, and the first entry, are how it begins.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    /// Wakes the worker. Its `readers` are the watchdog and the worker.
    pub(super) worker_wakeup: ReaderWakeup,
    /// Not 0: somebody has begun to replace both daemons.
    pub(super) rescued: AtomicU32,
    /// The daemons leave: nobody may begin to write.
    pub(super) closed: AtomicU32,
    /// Forks that began, minus those whose child has arrived here.
    pub(super) forks: AtomicU32,
    /// Processes that were not traced, as there was no entry for them.
    pub(super) refused: AtomicU32,
    /// Why the output cannot be written at present: an error number, or 0.
    pub(super) error: AtomicI32,
    pub(super) left: Left,
    /// How often a process that found no entry asked the watchdog to look who has ended.
    pub(super) wanted: AtomicU32,
    /// Which of these requests the watchdog has looked since.
    pub(super) looked: AtomicU32,
    /// Grows with each slot that is freed: a futex that processes share.
    pub(super) freed: AtomicU32,
    /// How often a process that ends asked for everything to be written.
    pub(super) asked: AtomicU32,
    /// Up to which of these requests the worker has tried to: a futex that processes share.
    pub(super) answered: AtomicU32,
    pub(super) entries: [Entry; PROCESSES],
}

/// One process.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    /// 0: free. [`Entry::SPENT`]: to be used no more. Otherwise a process id, with [`Entry::LIVE`]
    /// once all is there, and [`Entry::LEFT`] once the watchdog knows that the process has ended.
    state: AtomicU64,
    /// When it came, in ns since 1970.
    pub(super) start: AtomicU64,
    comm: [AtomicU64; LTT_COMM_LEN / 8],
    /// How often it asked for what it wrote to be read.
    pub(super) asked: AtomicU32,
    /// Not 0: it ends, and the daemons end with it: its trace is to be completed before.
    pub(super) ends: AtomicU32,
    /// Where `state` says that the process is in another PID namespace than the daemons: its inode,
    /// or [`Self::UNKNOWN`].
    namespace: AtomicU64,
}

const _: () = assert!(size_of::<Header>() <= 4096);

impl Entry {
    const LIVE: u64 = 1 << 32;
    const SPENT: u64 = 1 << 33;
    /// The id holds in another PID namespace than that of the daemons.
    const ELSEWHERE: u64 = 1 << 34;
    const LEFT: u64 = 1 << 35;
    /// As [`Self::namespace`].
    pub(super) const UNKNOWN: u64 = u64::MAX;

    fn state_of(pid: u32, namespace: u64) -> u64 {
        let elsewhere = if namespace == 0 { 0 } else { Self::ELSEWHERE };
        u64::from(pid) | elsewhere
    }

    /// Takes a free entry. `namespace`: that of the id, or 0 if it is the daemons'.
    pub(super) fn claim(&self, pid: u32, namespace: u64) -> bool {
        // What is known before all is there: whose id this is not.
        let state = Self::state_of(pid, namespace);
        // SeqCst: see `closed`'s use.
        self.state
            .compare_exchange(0, state, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Says that the process is there.
    pub(super) fn publish(&self, pid: u32, namespace: u64, start: u64, comm: [u8; LTT_COMM_LEN]) {
        self.start.store(start, Ordering::Relaxed);
        self.namespace.store(namespace, Ordering::Relaxed);
        self.ends.store(0, Ordering::Relaxed);
        for (word, bytes) in self.comm.iter().zip(comm.chunks_exact(8)) {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        self.asked.store(0, Ordering::Relaxed);
        // Pairs with the load in `process`.
        self.state.store(
            Self::state_of(pid, namespace) | Self::LIVE,
            Ordering::Release,
        );
    }

    /// Says that the process has ended, so that the worker is about to free the entry.
    pub(super) fn leave(&self, pid: u32) {
        // SeqCst: see `looked`'s use. Not if the entry was freed, or is another one's.
        let left = |state: u64| (state as u32 == pid).then_some(state | Self::LEFT);
        let _ = self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, left);
    }

    /// The process has ended, and the entry is not free yet.
    pub(super) fn is_left(&self) -> bool {
        self.state.load(Ordering::SeqCst) & Self::LEFT != 0
    }

    /// Gives the entry back.
    pub(super) fn free(&self) {
        // Pairs with the claim of the next one: what was written for this process is behind.
        self.state.store(0, Ordering::Release);
    }

    /// Lets nobody have the entry any more.
    pub(super) fn spend(&self) {
        self.state.store(Self::SPENT, Ordering::Relaxed);
    }

    /// Nobody has the entry.
    pub(super) fn is_unused(&self) -> bool {
        matches!(self.state.load(Ordering::SeqCst), 0 | Self::SPENT)
    }

    /// The id of the process that has the entry, and whether all is there.
    pub(super) fn process(&self) -> Option<(u32, bool)> {
        let state = self.state.load(Ordering::Acquire);
        let used = state != 0 && state != Self::SPENT;
        used.then_some((state as u32, state & Self::LIVE != 0))
    }

    /// Inode of the PID namespace in which the id of [`Self::process`] holds; 0: that of the
    /// daemons.
    /// [`Self::UNKNOWN`]: another one, and the process cannot say which, or has not yet.
    pub(super) fn namespace(&self) -> u64 {
        // Pairs with the store in `publish`.
        let state = self.state.load(Ordering::Acquire);
        match (state & Self::ELSEWHERE != 0, state & Self::LIVE != 0) {
            (false, _) => 0,
            (true, false) => Self::UNKNOWN,
            (true, true) => self.namespace.load(Ordering::Relaxed),
        }
    }

    /// Name of the process.
    pub(super) fn comm(&self) -> [u8; LTT_COMM_LEN] {
        let mut comm = [0; LTT_COMM_LEN];
        for (bytes, word) in comm.chunks_exact_mut(8).zip(&self.comm) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        comm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever looks at an entry that is not whole yet does not take the id for one of its own.
    #[test]
    fn an_id_of_another_namespace_is_never_taken_for_an_own_one() {
        // SAFETY: zeros are a free entry.
        let entry: Entry = unsafe { std::mem::zeroed() };
        assert!(entry.claim(1, 77));
        assert_eq!(entry.process(), Some((1, false)));
        assert_eq!(entry.namespace(), Entry::UNKNOWN);
        entry.publish(1, 77, 0, [0; LTT_COMM_LEN]);
        assert_eq!((entry.process(), entry.namespace()), (Some((1, true)), 77));
        entry.free();
        // The next one's, before that is whole.
        assert!(entry.claim(2, 0));
        assert_eq!((entry.process(), entry.namespace()), (Some((2, false)), 0));
        entry.publish(2, 0, 0, [0; LTT_COMM_LEN]);
        assert_eq!((entry.process(), entry.namespace()), (Some((2, true)), 0));
        // Of who has it, and nobody else.
        entry.leave(1);
        assert!(!entry.is_left());
        entry.leave(2);
        assert!(entry.is_left());
        assert_eq!((entry.process(), entry.namespace()), (Some((2, true)), 0));
        entry.spend();
        assert!(!entry.is_left());
        assert_eq!((entry.process(), entry.namespace()), (None, 0));
    }
}
