//! Statistics of durations: exact sums and extremes, and a histogram for percentiles.

/// Significant bits of a histogram bucket. The error of a percentile is 1/32 at most.
const BITS: u32 = 5;

/// The durations of one pair, in ns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations {
    pub(crate) count: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    sum: u128,
    buckets: Vec<u64>,
}

impl Durations {
    pub(crate) fn add(&mut self, ns: u64) {
        self.min = if self.count == 0 {
            ns
        } else {
            self.min.min(ns)
        };
        self.max = self.max.max(ns);
        self.count += 1;
        self.sum += u128::from(ns);
        let bucket = bucket(ns);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }

    pub(crate) fn mean(&self) -> u64 {
        (self.sum / u128::from(self.count.max(1))) as u64
    }

    /// The duration that `percent` of all do not exceed. The result is the upper end of its bucket,
    /// or the maximum.
    pub(crate) fn percentile(&self, percent: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && *count > 0 {
                return end(bucket).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(ns: u64) -> usize {
    let above = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    ((above as usize) << BITS) + (ns >> above) as usize
}

/// The longest duration in a bucket.
fn end(bucket: usize) -> u64 {
    let above = (bucket >> BITS).saturating_sub(1) as u32;
    let mantissa = (bucket - ((above as usize) << BITS)) as u128;
    (((mantissa + 1) << above) - 1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_in_its_bucket() {
        let mut last = 0;
        for ns in (0..100_000).chain((20..64).flat_map(|n| [(1u64 << n) - 1, 1 << n, 3 << (n - 2)]))
        {
            let bucket = bucket(ns);
            assert!(end(bucket) >= ns && end(bucket) - ns <= ns / 32, "{ns}");
            if ns < 100_000 {
                assert!(bucket == last || bucket == last + 1);
                last = bucket;
            }
        }
        assert_eq!(end(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn a_percentile_is_near_the_exact_one() {
        let mut durations = Durations::default();
        for ns in (1..=10_000u64).rev() {
            durations.add(ns * 7);
        }
        assert_eq!(
            (durations.min, durations.max, durations.count),
            (7, 70_000, 10_000)
        );
        assert_eq!(durations.mean(), 35_003);
        let p99 = durations.percentile(99);
        assert!((69_300..=69_300 + 69_300 / 32).contains(&p99), "{p99}");
        assert_eq!(durations.percentile(100), 70_000);
    }
}
