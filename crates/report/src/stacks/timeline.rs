//! Keeps when the weights of call stacks came, in bounded memory: in bins that become longer as the
//! trace does.

use std::collections::HashMap;

/// Maximum number of bins with a weight, of all stacks together.
const MAX: usize = 1 << 20;
/// The first length of a bin: 2 to the power of it, in ns.
const SHIFT: u32 = 10;

/// Weights by bin, and by the number of their sum.
#[derive(Debug)]
pub(crate) struct Timeline {
    shift: u32,
    bins: HashMap<(u64, u32), u64, ahash::RandomState>,
    max: usize,
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new(MAX)
    }
}

impl Timeline {
    fn new(max: usize) -> Self {
        Self {
            shift: SHIFT,
            bins: HashMap::default(),
            max,
        }
    }

    pub(crate) fn add(&mut self, time: u64, number: u32, weight: u64) {
        let weight_there = self.bins.entry((time >> self.shift, number)).or_default();
        *weight_there = weight_there.saturating_add(weight);
        // Longer bins are as many, if there is one of each number already.
        while self.bins.len() > self.max && self.shift < u64::BITS - 1 {
            self.shift += 1;
            for ((bin, number), weight) in std::mem::take(&mut self.bins) {
                let weight_there = self.bins.entry((bin >> 1, number)).or_default();
                *weight_there = weight_there.saturating_add(weight);
            }
        }
    }

    /// The length of a bin, in ns.
    pub(crate) fn bin(&self) -> u64 {
        1 << self.shift
    }

    /// Time, number and weight of all bins, in order of time.
    pub(crate) fn sorted(&self) -> Vec<(u64, u32, u64)> {
        let bins = self.bins.iter();
        let mut all: Vec<_> = bins
            .map(|(&(bin, number), &weight)| (bin << self.shift, number, weight))
            .collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept_in_longer_bins() {
        let mut timeline = Timeline::new(100);
        for n in 0..10_000u64 {
            timeline.add(n * 1000, (n % 3) as u32, 2);
        }
        let all = timeline.sorted();
        assert!(all.len() <= 100 && all.len() > 30, "{}", all.len());
        assert_eq!(all.iter().map(|bin| bin.2).sum::<u64>(), 20_000);
        assert!(all.windows(2).all(|two| two[0].0 <= two[1].0));
        let last = all.last().unwrap().0;
        assert!((9_999_000 - timeline.bin()..=9_999_000).contains(&last));
        // More numbers than bins.
        for n in 0..200 {
            timeline.add(5, n, 1);
        }
        assert_eq!(
            timeline.sorted().iter().map(|bin| bin.2).sum::<u64>(),
            20_200
        );
    }
}
