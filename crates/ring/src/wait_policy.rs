//! How long to wait for writers.

use std::time::{Duration, Instant};

/// What a reader does about a record that its writer may still complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Waits for it: reads no further.
    Wait,
    /// Waits for it if it is at or above this position. One below is lost, and counted.
    GiveUp {
        /// See [`Stall`].
        below: u64,
    },
    /// Nobody writes any more, nor ever will.
    Last,
}

impl Patience {
    /// Is something at `position` waited for?
    pub(super) fn waits_at(self, position: u64) -> bool {
        match self {
            Self::Wait => true,
            Self::GiveUp { below } => position >= below,
            Self::Last => false,
        }
    }
}

/// Decides when a reader has waited long enough at one place of a ring.
///
/// A writer may be kept from completing a record for long: by a debugger, by threads of higher
/// priority, by a page that must be read from a disk. Nothing is lost by waiting for it while the
/// ring has room.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stall {
    since: Option<(u64, Instant)>,
}

impl Stall {
    /// How long to wait.
    pub const LIMIT: Duration = Duration::from_secs(10);

    /// A reader stands at `position`, and `stuck` says whether waiting there does harm. Has that
    /// been so, without progress, for longer than [`LIMIT`](Self::LIMIT)?
    pub fn is_over(&mut self, position: u64, stuck: bool, now: Instant) -> bool {
        if !stuck {
            self.since = None;
            return false;
        }
        match self.since {
            Some((at, since)) if at == position => {
                now.saturating_duration_since(since) > Self::LIMIT
            }
            _ => {
                self.since = Some((position, now));
                false
            }
        }
    }

    /// For a ring that is read as it is written: is half of a ring of `ring_size` bytes between
    /// `position` and `head`, and has it been so for too long, then what is in the older half is
    /// not waited for.
    pub fn patience(&mut self, position: u64, head: u64, ring_size: u64, now: Instant) -> Patience {
        let below = head.saturating_sub(ring_size / 2);
        if self.is_over(position, position < below, now) {
            Patience::GiveUp { below }
        } else {
            Patience::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_reader_gives_up_when_the_ring_was_half_full_for_long() {
        let start = Instant::now();
        let mut stall = Stall::default();
        let mut at = |position, head, seconds| {
            stall.patience(position, head, 1000, start + SECOND * seconds)
        };
        // There is room: no matter how long.
        assert_eq!(at(0, 500, 0), Patience::Wait);
        assert_eq!(at(0, 500, 1000), Patience::Wait);
        // It is half full from here on.
        assert_eq!(at(0, 501, 1001), Patience::Wait);
        assert_eq!(at(0, 700, 1011), Patience::Wait);
        assert_eq!(at(0, 701, 1012), Patience::GiveUp { below: 201 });
        // Progress: the time begins again.
        assert_eq!(at(8, 801, 1013), Patience::Wait);
        assert_eq!(at(8, 801, 1023), Patience::Wait);
        assert_eq!(at(8, 801, 1024), Patience::GiveUp { below: 301 });
        // It was not full for a moment.
        assert_eq!(at(400, 801, 1025), Patience::Wait);
        assert_eq!(at(400, 1001, 1036), Patience::Wait);
        assert_eq!(at(400, 1001, 1047), Patience::GiveUp { below: 501 });
    }

    #[test]
    fn a_clock_that_steps_back_does_no_harm() {
        let start = Instant::now() + SECOND * 100;
        let mut stall = Stall::default();
        assert!(!stall.is_over(0, true, start));
        assert!(!stall.is_over(0, true, start - SECOND * 50));
        assert!(stall.is_over(0, true, start + SECOND * 11));
    }

    #[test]
    fn what_is_below_is_not_waited_for() {
        for (patience, below, at) in [
            (Patience::Wait, true, true),
            (Patience::GiveUp { below: 100 }, false, true),
            (Patience::Last, false, false),
        ] {
            assert_eq!(
                (patience.waits_at(99), patience.waits_at(100)),
                (below, at),
                "{patience:?}"
            );
        }
    }
}
