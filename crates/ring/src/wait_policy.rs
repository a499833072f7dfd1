//! How long readers wait for writers that reserved and did not commit.

use std::time::{Duration, Instant};

/// What a reader does at a record that its writer may still complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Stops before the record.
    Wait,
    /// Stops before a record at or above `below`. Counts a record below it as lost, and goes on.
    GiveUp {
        /// A position in the ring, see [`StallDetector`].
        below: u64,
    },
    /// No writer is left: counts every incomplete record as lost.
    Last,
}

impl WaitPolicy {
    /// Whether the reader stops at an incomplete record at `position`.
    pub(super) fn waits_at(self, position: u64) -> bool {
        match self {
            Self::Wait => true,
            Self::GiveUp { below } => position >= below,
            Self::Last => false,
        }
    }
}

/// Detects that a reader has waited too long at one position.
///
/// A debugger, higher-priority threads or a page fault may delay a writer for long. Waiting loses
/// no events while the ring has room.
#[derive(Clone, Copy, Debug, Default)]
pub struct StallDetector {
    since: Option<(u64, Instant)>,
}

impl StallDetector {
    /// How long to wait before a reader gives up.
    pub const LIMIT: Duration = Duration::from_secs(10);

    /// Whether the reader has been stuck at `position` for longer than [`LIMIT`](Self::LIMIT). The
    /// reader reports whether it is `stuck`, that is, whether waiting longer does harm.
    pub fn has_timed_out(&mut self, position: u64, stuck: bool, now: Instant) -> bool {
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

    /// The policy for a ring that is read while it is written. If half of the ring (`ring_size`
    /// bytes) has lain between `position` and `head` for too long, the reader gives up incomplete
    /// records in the older half.
    pub fn policy(&mut self, position: u64, head: u64, ring_size: u64, now: Instant) -> WaitPolicy {
        let below = head.saturating_sub(ring_size / 2);
        if self.has_timed_out(position, position < below, now) {
            WaitPolicy::GiveUp { below }
        } else {
            WaitPolicy::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn reader_gives_up_when_half_full_for_long() {
        let start = Instant::now();
        let mut stall = StallDetector::default();
        let mut at =
            |position, head, seconds| stall.policy(position, head, 1000, start + SECOND * seconds);
        // The ring has room: the reader waits forever.
        assert_eq!(at(0, 500, 0), WaitPolicy::Wait);
        assert_eq!(at(0, 500, 1000), WaitPolicy::Wait);
        // Half full from here on.
        assert_eq!(at(0, 501, 1001), WaitPolicy::Wait);
        assert_eq!(at(0, 700, 1011), WaitPolicy::Wait);
        assert_eq!(at(0, 701, 1012), WaitPolicy::GiveUp { below: 201 });
        // Progress restarts the timeout.
        assert_eq!(at(8, 801, 1013), WaitPolicy::Wait);
        assert_eq!(at(8, 801, 1023), WaitPolicy::Wait);
        assert_eq!(at(8, 801, 1024), WaitPolicy::GiveUp { below: 301 });
        // So does a moment with room.
        assert_eq!(at(400, 801, 1025), WaitPolicy::Wait);
        assert_eq!(at(400, 1001, 1036), WaitPolicy::Wait);
        assert_eq!(at(400, 1001, 1047), WaitPolicy::GiveUp { below: 501 });
    }

    #[test]
    fn clock_may_step_back() {
        let start = Instant::now() + SECOND * 100;
        let mut stall = StallDetector::default();
        assert!(!stall.has_timed_out(0, true, start));
        assert!(!stall.has_timed_out(0, true, start - SECOND * 50));
        assert!(stall.has_timed_out(0, true, start + SECOND * 11));
    }

    #[test]
    fn policies_wait_at_and_above_their_limit() {
        for (policy, below, at) in [
            (WaitPolicy::Wait, true, true),
            (WaitPolicy::GiveUp { below: 100 }, false, true),
            (WaitPolicy::Last, false, false),
        ] {
            assert_eq!(
                (policy.waits_at(99), policy.waits_at(100)),
                (below, at),
                "{policy:?}"
            );
        }
    }
}
