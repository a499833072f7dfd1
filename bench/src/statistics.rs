//! Medians and quantiles: on a busy machine, a mean shows how busy it was.

/// The quantile of some values; 0 if there are none. `part`: from 0 to 1.
#[must_use]
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1)) as f64 * part;
    sorted.get(at.round() as usize).copied().unwrap_or_default()
}

/// The median of some values; 0 if there are none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Ratios of batches that ran next to each other.
#[must_use]
pub fn ratios(times: &[f64], to: &[f64]) -> Vec<f64> {
    times.iter().zip(to).map(|(time, to)| time / to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ignore_outliers() {
        assert_eq!(median(&[3.0, 1.0, 1000.0]), 3.0);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(quantile(&[4.0, 1.0, 2.0, 3.0, 5.0], 0.25), 2.0);
        assert_eq!(quantile(&[4.0, 1.0], 1.0), 4.0);
    }
}
