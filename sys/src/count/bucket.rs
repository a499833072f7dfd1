//! The buckets of a histogram: powers of two.

use crate::uapi::LTT_COUNT_BUCKETS;

/// The bucket of a value, given as 64 bits. `signed` says whether the field is.
///
/// Bucket 0 has values up to 0, bucket `n` those from `2^(n-1)` and below `2^n`. Values from `2^62`
/// are in the last one.
#[inline]
#[must_use]
pub fn bucket_of(value: u64, signed: bool) -> usize {
    let is_negative = signed && value.cast_signed() < 0;
    let bits = (u64::BITS - value.leading_zeros()) as usize;
    if is_negative {
        0
    } else {
        bits.min(LTT_COUNT_BUCKETS - 1)
    }
}

/// The highest value in a bucket. None for the last one, which has no limit.
#[must_use]
pub fn highest_of_bucket(bucket: usize) -> Option<u64> {
    (bucket < LTT_COUNT_BUCKETS - 1).then(|| (1 << bucket) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_one_bucket() {
        for (value, expected) in [
            (i64::MIN, 0),
            (-1, 0),
            (0, 0),
            (1, 1),
            (2, 2),
            (3, 2),
            (4, 3),
        ] {
            assert_eq!(bucket_of(value.cast_unsigned(), true), expected, "{value}");
        }
        assert_eq!(bucket_of(i64::MAX.cast_unsigned(), true), 63);
        assert_eq!(bucket_of(u64::MAX, false), 63);
        for bucket in 0..63 {
            let highest = highest_of_bucket(bucket).unwrap();
            assert_eq!(bucket_of(highest, false), bucket);
            assert_eq!(bucket_of(highest + 1, true), bucket + 1);
        }
        assert_eq!(highest_of_bucket(63), None);
    }
}
