//! Corrections of hosts' clocks.

/// Binary digits of a drift's fraction.
const DRIFT_BITS: u32 = 60;
/// Range of a drift: from half of the speed to twice the speed.
const DRIFTS: (f64, f64) = (-0.5, 1.0);

/// Converts times of a host's clock to those of the reference host. It is linear, and keeps the
/// order of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// This time of the host's clock is `to`.
    from: i64,
    to: i64,
    /// Speed of the reference clock relative to the host's, minus 1, in units of 2^-60.
    drift: i64,
}

impl Correction {
    /// Maps `from` to `to`, and a second of the host's clock to `1 + drift` seconds. A drift out of
    /// range is limited to -0.5 and 1.
    #[must_use]
    pub fn new(from: i64, to: i64, drift: f64) -> Self {
        let (least, most) = DRIFTS;
        let drift = (drift.clamp(least, most) * (1u64 << DRIFT_BITS) as f64) as i64;
        Self { from, to, drift }
    }

    /// Corrects a time, in ns since 1970. Times out of range saturate.
    #[inline]
    #[must_use]
    pub fn apply(&self, ns: i64) -> i64 {
        // At most 2^64 * 2^60, so nothing overflows. The shift rounds down, and a drift is larger
        // than -1: a later time never becomes an earlier one.
        let since = i128::from(ns) - i128::from(self.from);
        let drifted = (since * i128::from(self.drift)) >> DRIFT_BITS;
        limited(i128::from(self.to) + since + drifted)
    }

    /// The host's time at a corrected one, within some ns. Times out of range saturate.
    #[must_use]
    pub fn invert(&self, ns: i64) -> i64 {
        let since = i128::from(ns) - i128::from(self.to);
        let drift = self.drift();
        let drifted = since as f64 * (-drift / (1.0 + drift));
        limited(i128::from(self.from) + since + drifted as i128)
    }

    /// A time, and what it becomes.
    pub(crate) fn anchor(&self) -> (i64, i64) {
        (self.from, self.to)
    }

    /// Seconds that the reference clock gains in a second of the host's clock.
    #[must_use]
    pub fn drift(&self) -> f64 {
        self.drift as f64 / (1u64 << DRIFT_BITS) as f64
    }
}

impl Default for Correction {
    /// Changes nothing.
    fn default() -> Self {
        Self::new(0, 0, 0.0)
    }
}

fn limited(ns: i128) -> i64 {
    ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_at_the_limits_saturate() {
        for drift in [-9.0, -0.5, 0.0, 1e-3, 1.0, f64::NAN, f64::INFINITY] {
            for from in [i64::MIN, 0, i64::MAX] {
                for to in [i64::MIN, 0, i64::MAX] {
                    let correction = Correction::new(from, to, drift);
                    assert_eq!(correction.apply(from), to);
                    assert_eq!(correction.invert(to), from);
                    let (least, most) = (correction.apply(i64::MIN), correction.apply(i64::MAX));
                    assert!(least <= to && to <= most);
                }
            }
        }
    }

    proptest! {
        /// Corrected streams stay sorted, and corrections can be inverted.
        #[test]
        fn order_of_times_is_kept(
            from: i64, to: i64, drift in -0.5..1.0, ns: i64, later in 0..1_000_000i64,
        ) {
            let correction = Correction::new(from, to, drift);
            prop_assert!(correction.apply(ns) <= correction.apply(ns.saturating_add(later)));
            let near = from.saturating_add(later);
            prop_assert!((correction.invert(correction.apply(near)) - near).abs() <= 4);
        }

        /// The default changes no time.
        #[test]
        fn default_is_no_correction(ns: i64) {
            prop_assert_eq!(Correction::default().apply(ns), ns);
        }
    }
}
