//! What the processes of a pool and its daemons tell each other.
//!
//! All of it is atomic, and whatever a traced program may write there harms nothing but its own events (A11).

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use usertrace_sys::uapi::LTT_COMM_LEN;

use crate::writer::Doorbell;

/// Processes of a pool that can be traced at once: the one that made it, and those that it forked.
pub(super) const PROCESSES: usize = 64;

/// At the start of the pool. Zeros, and the first entry, are how it begins.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    /// Wakes the worker. Its `readers` are the guardian and the worker.
    pub(super) doorbell: Doorbell,
    /// Not 0: somebody has begun to replace both daemons.
    pub(super) rescued: AtomicU32,
    /// The daemons leave: nobody may begin to write.
    pub(super) closed: AtomicU32,
    /// Forks that began, minus those whose child has arrived here.
    pub(super) forks: AtomicU32,
    /// Processes for which there was no entry.
    pub(super) refused: AtomicU32,
    /// Why the output cannot be written at present: an error number, or 0.
    pub(super) error: AtomicI32,
    pub(super) entries: [Entry; PROCESSES],
}

/// One process.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    /// 0: free. [`Entry::SPENT`]: to be used no more. Otherwise a process id, with [`Entry::LIVE`] once all is there.
    state: AtomicU64,
    /// When it came, in ns since 1970.
    pub(super) start: AtomicU64,
    comm: [AtomicU64; LTT_COMM_LEN / 8],
    /// How often it asked for what it wrote to be read.
    pub(super) asked: AtomicU32,
    reserved: AtomicU32,
    reserved1: AtomicU64,
}

const _: () = assert!(size_of::<Header>() <= 4096);

impl Entry {
    const LIVE: u64 = 1 << 32;
    const SPENT: u64 = 1 << 33;

    /// Takes a free entry.
    pub(super) fn claim(&self, pid: u32) -> bool {
        // SeqCst: see `closed`'s use.
        self.state
            .compare_exchange(0, pid.into(), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Says that the process is there.
    pub(super) fn publish(&self, pid: u32, start: u64, comm: [u8; LTT_COMM_LEN]) {
        self.start.store(start, Ordering::Relaxed);
        for (word, bytes) in self.comm.iter().zip(comm.chunks_exact(8)) {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        self.asked.store(0, Ordering::Relaxed);
        // Pairs with the load in `process`.
        self.state
            .store(u64::from(pid) | Self::LIVE, Ordering::Release);
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

    /// Name of the process.
    pub(super) fn comm(&self) -> [u8; LTT_COMM_LEN] {
        let mut comm = [0; LTT_COMM_LEN];
        for (bytes, word) in comm.chunks_exact_mut(8).zip(&self.comm) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        comm
    }
}
