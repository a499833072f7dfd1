//! Numbers as bytes, bytes smaller, and those as text: what the page takes apart again.

/// How much `miniz_oxide` tries: more makes the page little smaller, and takes much longer.
const LEVEL: u8 = 2;

/// Appends a number, seven bits in each byte, the lowest ones first.
#[inline]
pub(super) fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The same bytes in fewer ones, as `DecompressionStream("deflate-raw")` reads them.
pub(super) fn deflate(bytes: &[u8]) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(bytes, LEVEL)
}

/// Bytes as text that no HTML is in.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            if n <= chunk.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * n)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let texts = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        for (len, text) in texts.iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..len]), *text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn numbers_have_seven_bits_in_a_byte() {
        let bytes = |n| {
            let mut out = Vec::new();
            number(&mut out, n);
            out
        };
        assert_eq!(bytes(0x7f), [0x7f]);
        assert_eq!(bytes(0x80), [0x80, 1]);
        assert_eq!(bytes(u64::MAX).len(), 10);
    }
}
