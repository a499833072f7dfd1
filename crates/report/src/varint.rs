//! Varints: variable-length numbers as in Protocol Buffers, also used in the page of `report`.

/// Appends a number: seven bits per byte, the lowest first.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_seven_bits_in_a_byte() {
        let bytes = |n| {
            let mut out = Vec::new();
            put(&mut out, n);
            out
        };
        assert_eq!(bytes(0x7f), [0x7f]);
        assert_eq!(bytes(0x80), [0x80, 1]);
        assert_eq!(bytes(u64::MAX).len(), 10);
    }
}
