//! A hash that is the same in all copies of this crate, and that the compiler can evaluate.

/// The 64-bit FNV-1a hash of the concatenated parts.
pub(super) const fn hash(parts: &[&[u8]]) -> u64 {
    let (mut hash, mut part) = (0xcbf2_9ce4_8422_2325u64, 0);
    while part < parts.len() {
        let mut at = 0;
        while at < parts[part].len() {
            hash = (hash ^ parts[part][at] as u64).wrapping_mul(0x100_0000_01b3);
            at += 1;
        }
        part += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of the authors' test suite (draft-eastlake-fnv).
    #[test]
    fn it_is_fnv_1a() {
        assert_eq!(hash(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(&[b"a"]), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(&[b"foo", b"bar"]), 0x8594_4171_f739_67e8);
    }
}
