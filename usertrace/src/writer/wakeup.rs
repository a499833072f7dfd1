//! How writers tell a reader that there is something to read.
//!
//! A reader that shares memory with the writers, as the fallback's worker does, sleeps on a futex
//! ([`ReaderWakeup`]). Readers of the kernel's buffers are woken by the kernel. [`WakeupMethod`]
//! says which of the two a channel uses.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use usertrace_sys::Mode;

use crate::os::futex;

/// How the writers of a channel wake its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeupMethod {
    /// Not at all: readers look by themselves, and writers do not wait for them.
    None,
    /// Through a futex, for each sub-buffer that is filled. It must stay mapped as long as the
    /// rings.
    Futex(*const ReaderWakeup),
    /// Through the kernel, only when a writer waits for room: it asks the kernel to switch the
    /// buffer at this address. The kernel sees by itself that a sub-buffer was filled.
    Switch(NonNull<u8>),
}

/// A futex on which a reader sleeps until there is something to read.
///
/// It lies in memory that the writers and the reader share. Zeros are valid: the reader is there
/// and does not sleep.
///
/// A writer makes a system call only if the reader sleeps, and at most one for each sub-buffer. If
/// the reader dozes, a writer wakes it only when it must not wait any longer. To wake another
/// process costs a writer as much as a thousand events.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ReaderWakeup {
    /// How often writers notified the reader, which sleeps on this futex.
    pub notifications: AtomicU32,
    /// Not 0: the reader sleeps, or is about to: [`Self::SLEEPS`] or [`Self::DOZES`].
    pub sleeping: AtomicU32,
    /// Not 0: there is no reader, and writers must not wait for one.
    pub gone: AtomicU32,
    /// Not 0: the reader cannot store what it would read at present. Writers must not wait until it
    /// can.
    pub stuck: AtomicU32,
    /// Ids of the reader's processes, as robust futexes: the kernel sets `FUTEX_OWNER_DIED` when
    /// one dies. 0: not known. Each process replaces the other one.
    pub readers: [AtomicU32; 2],
}

impl ReaderWakeup {
    /// Of [`Self::sleeping`]: the reader sleeps until it is woken.
    pub const SLEEPS: u32 = 1;
    /// Of [`Self::sleeping`]: the reader looks again soon.
    pub const DOZES: u32 = 2;

    /// Whether there is no reader: it said so, or both of its processes died.
    #[must_use]
    pub fn has_no_reader(&self) -> bool {
        self.gone.load(Ordering::Relaxed) != 0
            || self
                .readers
                .iter()
                .all(|reader| reader.load(Ordering::Relaxed) & libc::FUTEX_OWNER_DIED != 0)
    }

    /// Whether a writer that waits for this reader can expect room.
    pub(crate) fn can_make_room(&self) -> bool {
        !self.has_no_reader() && self.stuck.load(Ordering::Relaxed) == 0
    }

    /// Tells the reader that there is something to read, and wakes it if it sleeps or dozes.
    ///
    /// Async-signal-safe; leaves `errno` alone.
    pub fn notify(&self) {
        self.notify_if_needed(false);
    }

    /// Tells the reader that a sub-buffer was filled, of a ring in which `used` bytes of `size` are
    /// not consumed.
    ///
    /// Async-signal-safe; leaves `errno` alone.
    pub(super) fn subbuf_filled(&self, mode: Mode, used: u64, size: u64) {
        // A ring that overwrites is read on request only. In its first lap, the reader populates
        // pages for it.
        if mode == Mode::Overwrite && used > size {
            return;
        }
        self.notify_if_needed(used < size / 2);
    }

    /// `can_wait`: it is soon enough if a reader that dozes looks by itself.
    fn notify_if_needed(&self, can_wait: bool) {
        // SeqCst, as are the reader's accesses: the reader stores `sleeping` before it loads
        // `notifications` for the last time. Either it sees the addition, or this sees `sleeping`.
        self.notifications.fetch_add(1, Ordering::SeqCst);
        match self.sleeping.load(Ordering::SeqCst) {
            0 => {}
            Self::DOZES if can_wait => {}
            _ => futex::wake(&self.notifications, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::os::thread;

    /// Waits until a thread of this process sleeps.
    fn wait_until_asleep(tid: u32) {
        let path = format!("/proc/self/task/{tid}/stat");
        while !std::fs::read_to_string(&path)
            .unwrap()
            .rsplit_once(')')
            .unwrap()
            .1
            .starts_with(" S")
        {
            std::thread::yield_now();
        }
    }

    /// Checks whether a writer wakes a reader whose `sleeping` is `how`, when `used` of a ring's 16
    /// bytes are not consumed.
    fn check(how: u32, mode: Mode, used: u64, expected: bool) {
        let wakeup = ReaderWakeup::default();
        let (tid, woken) = (AtomicU32::new(0), AtomicU32::new(0));
        wakeup.sleeping.store(how, Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tid.store(thread::id(), Ordering::SeqCst);
                futex::wait(&wakeup.notifications, 0, None);
                woken.store(1, Ordering::SeqCst);
            });
            while tid.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            wait_until_asleep(tid.load(Ordering::SeqCst));
            wakeup.subbuf_filled(mode, used, 16);
            let expected_notifications = u32::from(mode != Mode::Overwrite || used <= 16);
            assert_eq!(
                wakeup.notifications.load(Ordering::SeqCst),
                expected_notifications
            );
            if expected {
                // Without a wakeup, this loops for ever.
                while woken.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
            } else {
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(woken.load(Ordering::SeqCst), 0, "{how} {mode:?} {used}");
                futex::wake(&wakeup.notifications, 1);
            }
        });
    }

    #[test]
    fn sleeping_readers_are_woken_and_dozing_ones_only_if_needed() {
        check(ReaderWakeup::SLEEPS, Mode::Discard, 2, true);
        check(ReaderWakeup::DOZES, Mode::Discard, 7, false);
        check(ReaderWakeup::DOZES, Mode::Discard, 8, true);
        check(ReaderWakeup::DOZES, Mode::Block, 16, true);
        check(ReaderWakeup::SLEEPS, Mode::Overwrite, 2, true);
        check(ReaderWakeup::SLEEPS, Mode::Overwrite, 17, false);
    }
}
