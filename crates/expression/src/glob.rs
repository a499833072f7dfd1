//! Compares a text with a pattern.

/// The pattern between the quotes of a constant text.
pub(crate) trait Pattern: Copy {
    /// A byte of it. `None` at its end and after it.
    fn byte(self, at: usize) -> Option<u8>;
}

impl Pattern for &[u8] {
    #[inline]
    fn byte(self, at: usize) -> Option<u8> {
        self.get(at).copied()
    }
}

/// Whether a text is what a pattern describes: `*` is any bytes, `\` makes the next byte plain.
///
/// Each retry starts one byte further in the text, so there are at most (length of the pattern) ×
/// (length of the text) comparisons.
#[inline]
pub(crate) fn matches(pattern: impl Pattern, mut byte: impl FnMut(usize) -> Option<u8>) -> bool {
    let (mut at, mut text_at) = (0, 0);
    // After the last `*`: the rest of the pattern, and where the text may continue.
    let mut retry = None;
    loop {
        let (plain, next) = match pattern.byte(at) {
            Some(b'*') => {
                at += 1;
                if pattern.byte(at).is_none() {
                    return true;
                }
                retry = Some((at, text_at));
                continue;
            }
            Some(b'\\') => match pattern.byte(at + 1) {
                Some(plain) => (Some(plain), at + 2),
                None => (Some(b'\\'), at + 1),
            },
            Some(plain) => (Some(plain), at + 1),
            None => (None, at),
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
