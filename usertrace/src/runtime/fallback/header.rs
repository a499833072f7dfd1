//! The header of the pool: state that the traced processes and the daemons share.
//!
//! All of it is atomic. A traced program may store anything there, which harms nothing but its own
//! events (A11).

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use usertrace_sys::uapi::LTT_COMM_LEN;

use crate::os::futex;
use crate::writer::ReaderWakeup;

/// Most processes of a pool that can be traced at the same time: the one that made it, and those
/// that it forked.
pub(super) const PROCESSES: usize = 64;

/// Whether the first daemon has detached from the program's files and terminal.
#[derive(Debug)]
#[repr(C)]
pub(super) struct DetachState {
    /// Not 0: it has. A futex on which the program waits.
    done: AtomicU32,
    /// Not 0: `usertrace record` waits until the daemons have ended, by a file that they lock.
    awaited: AtomicU32,
}

impl DetachState {
    /// Tells the program that the daemon has detached. `awaited`: whether the daemons lock such a
    /// file.
    pub(super) fn set_done(&self, awaited: bool) {
        self.awaited.store(awaited.into(), Ordering::Relaxed);
        // Pairs with the load in `is_done`: a process that sees this sees `awaited`, too.
        self.done.store(1, Ordering::Release);
        futex::wake(&self.done, u32::MAX >> 1);
    }

    /// Whether the daemon has detached.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) != 0
    }

    /// Waits until the daemon has detached, for a moment at most.
    pub(super) fn wait(&self) {
        futex::wait(&self.done, 0, Some(Duration::from_millis(20)));
    }

    /// Whether `usertrace record` waits for the end of the daemons.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) != 0
    }
}

/// The start of the pool. At first it is zeros, except for the first entry.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    /// Wakes the worker. Its `readers` are the watchdog and the worker.
    pub(super) worker_wakeup: ReaderWakeup,
    /// Not 0: a process has begun to replace both daemons.
    pub(super) rescued: AtomicU32,
    /// Not 0: the daemons end, and no process may begin to write.
    pub(super) closed: AtomicU32,
    /// Forks that began, minus those whose child has arrived here.
    pub(super) forks: AtomicU32,
    /// Processes that were not traced, as there was no entry for them.
    pub(super) refused: AtomicU32,
    /// Why the output cannot be written at present: an error number, or 0.
    pub(super) error: AtomicI32,
    pub(super) detach: DetachState,
    /// How often a process without a free entry asked the watchdog to look which processes have
    /// ended.
    pub(super) wanted: AtomicU32,
    /// The number of these requests that the watchdog has handled.
    pub(super) looked: AtomicU32,
    /// Number of slots that were freed: a futex for processes without a free entry.
    pub(super) freed: AtomicU32,
    /// How often a process at its end asked the worker to write all its events.
    pub(super) asked: AtomicU32,
    /// The number of these requests that the worker has handled: a futex for these processes.
    pub(super) answered: AtomicU32,
    pub(super) entries: [Entry; PROCESSES],
}

/// The entry of one process.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    /// 0: free. [`Entry::SPENT`]: never to be used again. Otherwise a process id, with
    /// [`Entry::LIVE`] when the entry is complete, and [`Entry::ENDED`] when the watchdog knows
    /// that the process has ended.
    state: AtomicU64,
    /// When the process took the entry, in ns since 1970.
    pub(super) start: AtomicU64,
    comm: [AtomicU64; LTT_COMM_LEN / 8],
    /// How often the process asked the worker to read its rings.
    pub(super) asked: AtomicU32,
    /// Not 0: the process ends, and the daemons end with it. The worker completes its trace before.
    pub(super) ends: AtomicU32,
    /// Inode of the process's PID namespace, or [`Self::UNKNOWN`]. Valid if `state` has
    /// [`Entry::ELSEWHERE`].
    namespace: AtomicU64,
}

const _: () = assert!(size_of::<Header>() <= 4096);

impl Entry {
    const LIVE: u64 = 1 << 32;
    const SPENT: u64 = 1 << 33;
    /// The id is one of another PID namespace than the daemons'.
    const ELSEWHERE: u64 = 1 << 34;
    const ENDED: u64 = 1 << 35;
    /// A value of [`Self::namespace`]: not known.
    pub(super) const UNKNOWN: u64 = u64::MAX;

    fn state_of(pid: u32, namespace: u64) -> u64 {
        let elsewhere = if namespace == 0 { 0 } else { Self::ELSEWHERE };
        u64::from(pid) | elsewhere
    }

    /// Takes the entry if it is free. `namespace`: the PID namespace of the id; 0: the daemons'
    /// own.
    pub(super) fn claim(&self, pid: u32, namespace: u64) -> bool {
        // An incomplete entry already shows that the id is not one of the daemons' namespace.
        let state = Self::state_of(pid, namespace);
        // SeqCst: see `closed`'s use.
        self.state
            .compare_exchange(0, state, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Completes the entry of a process.
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

    /// Marks that the process has ended: the worker is about to free the entry.
    pub(super) fn mark_ended(&self, pid: u32) {
        // SeqCst: see the use of `looked`. Nothing happens if the entry is free, or another
        // process's.
        let ended = |state: u64| (state as u32 == pid).then_some(state | Self::ENDED);
        let _ = self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, ended);
    }

    /// Whether the process has ended, and the entry is not free yet.
    pub(super) fn has_ended(&self) -> bool {
        self.state.load(Ordering::SeqCst) & Self::ENDED != 0
    }

    /// Frees the entry.
    pub(super) fn free(&self) {
        // Pairs with the claim of the next process: all stores for this one happened before.
        self.state.store(0, Ordering::Release);
    }

    /// Takes the entry out of use for ever.
    pub(super) fn spend(&self) {
        self.state.store(Self::SPENT, Ordering::Relaxed);
    }

    /// Whether no process has the entry.
    pub(super) fn is_unused(&self) -> bool {
        matches!(self.state.load(Ordering::SeqCst), 0 | Self::SPENT)
    }

    /// The id of the process that has the entry, and whether the entry is complete.
    pub(super) fn process(&self) -> Option<(u32, bool)> {
        let state = self.state.load(Ordering::Acquire);
        let used = state != 0 && state != Self::SPENT;
        used.then_some((state as u32, state & Self::LIVE != 0))
    }

    /// Inode of the PID namespace of [`Self::process`]'s id; 0: the daemons' own.
    /// [`Self::UNKNOWN`]: another one, which the process does not know, or has not stored yet.
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

    /// A daemon never takes the id of an incomplete entry for one of its own namespace.
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
        // The next process's entry, before it is complete.
        assert!(entry.claim(2, 0));
        assert_eq!((entry.process(), entry.namespace()), (Some((2, false)), 0));
        entry.publish(2, 0, 0, [0; LTT_COMM_LEN]);
        assert_eq!((entry.process(), entry.namespace()), (Some((2, true)), 0));
        // Only the process that has the entry can be marked.
        entry.mark_ended(1);
        assert!(!entry.has_ended());
        entry.mark_ended(2);
        assert!(entry.has_ended());
        assert_eq!((entry.process(), entry.namespace()), (Some((2, true)), 0));
        entry.spend();
        assert!(!entry.has_ended());
        assert_eq!((entry.process(), entry.namespace()), (None, 0));
    }
}
