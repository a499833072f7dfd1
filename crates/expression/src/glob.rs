//! Compares a text with a pattern.

/// Whether a text is what a pattern describes: `*` is any bytes, `\` makes the next byte plain.
///
/// Each retry starts one byte further in the text, so there are at most (length of the pattern) ×
/// (length of the text) comparisons.
#[inline]
pub(crate) fn matches(pattern: &[u8], mut byte: impl FnMut(usize) -> Option<u8>) -> bool {
    let (mut at, mut text_at) = (0, 0);
    // After the last `*`: the rest of the pattern, and where the text may continue.
    let mut retry = None;
    loop {
        let (plain, next) = match pattern.get(at..).unwrap_or_default() {
            [b'*'] => return true,
            [b'*', ..] => {
                at += 1;
                retry = Some((at, text_at));
                continue;
            }
            [b'\\', plain, ..] => (Some(*plain), at + 2),
            [plain, ..] => (Some(*plain), at + 1),
            [] => (None, at),
        };
        let found = byte(text_at);
        if found == plain {
            if found.is_none() {
                return true;
            }
            (at, text_at) = (next, text_at + 1);
            continue;
        }
        match retry {
            // At the end of the text, a later start leaves still less of it.
            Some((rest, start)) if found.is_some() => {
                (at, text_at) = (rest, start + 1);
                retry = Some((at, text_at));
            }
            _ => return false,
        }
    }
}
