//! Lost events and packets, with the periods in which they were lost.

use usertrace_reader::{LossKind, Lost};

/// Maximum number of losses in a report.
const MAX: usize = 4096;

/// A loss in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) process: u32,
    pub(super) cpu: Option<u32>,
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) events: u64,
    pub(super) packets: u64,
}

impl Loss {
    fn add(&mut self, other: &Self) {
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
        self.events = self.events.saturating_add(other.events);
        self.packets = self.packets.saturating_add(other.packets);
    }
}

/// All losses. If there are too many, neighbours are merged; the counts stay exact.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) all: Vec<Loss>,
    pub(super) events: u64,
    pub(super) packets: u64,
}

impl Losses {
    /// Adds a loss of the process with this number.
    pub(super) fn add(&mut self, lost: &Lost, process: u32) {
        let (events, packets) = match lost.kind {
            LossKind::Events(n) => (n, 0),
            LossKind::Packets(n) => (0, n),
        };
        self.events = self.events.saturating_add(events);
        self.packets = self.packets.saturating_add(packets);
        self.all.push(Loss {
            process,
            cpu: lost.cpu,
            begin: lost.begin,
            end: lost.end,
            events,
            packets,
        });
        if self.all.len() > 2 * MAX {
            self.merge();
        }
    }

    /// Merges pairs of consecutive losses in the same rings.
    fn merge(&mut self) {
        self.all
            .sort_by_key(|loss| (loss.process, loss.cpu, loss.begin));
        let mut kept: Vec<Loss> = Vec::with_capacity(MAX);
        let mut is_pair = false;
        for loss in self.all.drain(..) {
            match kept.last_mut() {
                Some(last) if !is_pair && (last.process, last.cpu) == (loss.process, loss.cpu) => {
                    last.add(&loss);
                    is_pair = true;
                }
                _ => {
                    kept.push(loss);
                    is_pair = false;
                }
            }
        }
        self.all = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements: E7
    #[test]
    fn merged_losses_keep_exact_counts() {
        let mut losses = Losses::default();
        for n in 0..100_000u64 {
            let lost = Lost {
                path: "main_0".into(),
                trace: 0,
                cpu: Some((n % 2) as u32),
                kind: if n % 10 == 0 {
                    LossKind::Packets(2)
                } else {
                    LossKind::Events(n)
                },
                begin: n as i64,
                end: n as i64 + 1,
            };
            losses.add(&lost, (n % 3) as u32);
        }
        let sum = |of: fn(&Loss) -> u64| losses.all.iter().map(of).sum::<u64>();
        assert_eq!(
            sum(|loss| loss.events),
            (0..100_000u64).filter(|n| n % 10 != 0).sum::<u64>()
        );
        assert_eq!(
            (sum(|loss| loss.events), sum(|loss| loss.packets)),
            (losses.events, losses.packets)
        );
        assert_eq!(losses.packets, 20_000);
        assert!(losses.all.len() <= 2 * MAX);
        assert_eq!(losses.all.iter().map(|loss| loss.end).max(), Some(100_000));
    }
}
