//! Quoted strings with escaped characters.

/// First byte of U+0080 to U+009F in UTF-8: control characters of two bytes, which some terminals
/// obey.
const C1: u8 = 0xc2;

/// A character that must be escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A byte.
    Byte(u8),
    /// A control character U+0080 to U+009F, as two bytes. The second is also the low byte of its
    /// code point.
    C1([u8; 2]),
}

/// Appends a text between quotes. Calls `escape` for bytes that `is_special` selects, and for
/// control characters of two bytes.
#[inline]
pub fn append(
    out: &mut Vec<u8>,
    mut text: &[u8],
    is_special: impl Fn(u8) -> bool,
    escape: impl Fn(&mut Vec<u8>, Special),
) {
    out.push(b'"');
    let stops = |byte: &u8| is_special(*byte) || *byte == C1;
    while let Some(at) = text.iter().position(stops) {
        let (plain, rest) = text.split_at(at);
        out.extend_from_slice(plain);
        text = match *rest {
            [C1, second @ 0x80..=0x9f, ref rest @ ..] => {
                escape(out, Special::C1([C1, second]));
                rest
            }
            // Part of another character, or of a truncated text.
            [C1, ref rest @ ..] => {
                out.push(C1);
                rest
            }
            [byte, ref rest @ ..] => {
                escape(out, Special::Byte(byte));
                rest
            }
            [] => break,
        };
    }
    out.extend_from_slice(text);
    out.push(b'"');
}
