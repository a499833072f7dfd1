//! How writers wake a reader that sleeps until there is something to read.

use std::sync::atomic::{AtomicU32, Ordering};

use usertrace_sys::Mode;

use crate::os::futex;

/// Lies in memory that the writers and the reader share. All zeros: nobody sleeps, and the reader
/// is there.
///
/// A writer makes a system call only if the reader sleeps, and at most one for each sub-buffer; if
/// the reader dozes, only for those that it must not let wait. To wake another process costs a
/// writer as much as a thousand events.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Doorbell {
    /// Grows each time that it is rung. The reader sleeps on it: a futex that processes share.
    pub rung: AtomicU32,
    /// Not 0: the reader sleeps, or is about to. [`Self::DOZES`]: not for long.
    pub sleeping: AtomicU32,
    /// Not 0: there is no reader, and nobody must wait for one.
    pub gone: AtomicU32,
    /// Not 0: the reader cannot store what it would read at present, and nobody must wait until it
    /// can.
    pub stuck: AtomicU32,
    /// The reader's processes, as robust futexes: the kernel says here when one died. 0: it does
    /// not tell. Any of them replaces the other one.
    pub readers: [AtomicU32; 2],
}

impl Doorbell {
    /// Of [`Self::sleeping`]: the reader sleeps until it is woken.
    pub const SLEEPS: u32 = 1;
    /// Of [`Self::sleeping`]: the reader looks again soon.
    pub const DOZES: u32 = 2;

    /// There is no reader.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        self.gone.load(Ordering::Relaxed) != 0
            || self
                .readers
                .iter()
                .all(|reader| reader.load(Ordering::Relaxed) & libc::FUTEX_OWNER_DIED != 0)
    }

    /// A writer that waits for this reader can expect room.
    pub(crate) fn makes_room(&self) -> bool {
        !self.is_deserted() && self.stuck.load(Ordering::Relaxed) == 0
    }

    /// Tells the reader that there is something. Async-signal-safe; leaves `errno` alone.
    pub fn ring(&self) {
        self.tell(false);
    }

    /// `can_wait`: a reader that dozes finds it soon enough by itself.
    fn tell(&self, can_wait: bool) {
        // SeqCst, as is all here: either the reader, which says that it sleeps before it looks at
        // `rung` for the last time, sees that it was rung, or this sees that it sleeps.
        self.rung.fetch_add(1, Ordering::SeqCst);
        match self.sleeping.load(Ordering::SeqCst) {
            0 => {}
            Self::DOZES if can_wait => {}
            _ => futex::wake(&self.rung, 1),
        }
    }
}

/// Tells the reader of a ring that a sub-buffer was filled: `used` bytes of it are not consumed, of
/// `size`.
///
/// Async-signal-safe; leaves `errno` alone.
pub(super) fn filled(doorbell: &Doorbell, mode: Mode, used: u64, size: u64) {
    // A ring that overwrites is read when somebody asks for that. In its first lap, pages are made
    // for it.
    if mode == Mode::Overwrite && used > size {
        return;
    }
    doorbell.tell(used < size / 2);
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

    /// Whether a reader that sleeps so is woken by a ring that has so many bytes of 16 unread is
    /// what is expected.
    fn check(how: u32, mode: Mode, used: u64, expected: bool) {
        let doorbell = Doorbell::default();
        let (tid, woken) = (AtomicU32::new(0), AtomicU32::new(0));
        doorbell.sleeping.store(how, Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tid.store(thread::id(), Ordering::SeqCst);
                futex::wait(&doorbell.rung, 0, None);
                woken.store(1, Ordering::SeqCst);
            });
            while tid.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            wait_until_asleep(tid.load(Ordering::SeqCst));
            filled(&doorbell, mode, used, 16);
            let rung = u32::from(mode != Mode::Overwrite || used <= 16);
            assert_eq!(doorbell.rung.load(Ordering::SeqCst), rung);
            if expected {
                // For ever, if nobody wakes it.
                while woken.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
            } else {
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(woken.load(Ordering::SeqCst), 0, "{how} {mode:?} {used}");
                futex::wake(&doorbell.rung, 1);
            }
        });
    }

    #[test]
    fn a_reader_is_woken_when_it_must_be() {
        check(Doorbell::SLEEPS, Mode::Discard, 2, true);
        check(Doorbell::DOZES, Mode::Discard, 7, false);
        check(Doorbell::DOZES, Mode::Discard, 8, true);
        check(Doorbell::DOZES, Mode::Block, 16, true);
        check(Doorbell::SLEEPS, Mode::Overwrite, 2, true);
        check(Doorbell::SLEEPS, Mode::Overwrite, 17, false);
    }
}
