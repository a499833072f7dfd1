//! Metadata that were sent, and what to send when the file has changed.

use usertrace_ctf::{SIGNATURE, complete_declarations};
use usertrace_relay::PART;

/// What to do so that the relay has the present metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// Nothing.
    None,
    /// Append what is behind this offset.
    Append(usize),
    /// Send all of it instead.
    Replace,
    /// A live session takes no replacement. Append what is behind this offset, where declarations
    /// go on, and correct what is before later.
    AppendAndCorrect(usize),
}

/// Remembers which metadata were sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentMetadata {
    len: usize,
    sum: u64,
    /// Length and checksum of the part behind the clock's declaration.
    body_len: usize,
    body_sum: u64,
}

impl Default for SentMetadata {
    /// Nothing was sent.
    fn default() -> Self {
        Self {
            len: 0,
            sum: sum(&[]),
            body_len: 0,
            body_sum: sum(&[]),
        }
    }
}

impl SentMetadata {
    /// Compares metadata with what was sent, and takes them for sent. None: a live session cannot
    /// have them.
    pub(super) fn update(&mut self, text: &[u8], is_live: bool) -> Option<Update> {
        let update = self.compare(text, is_live)?;
        let body = body(text);
        *self = Self {
            len: text.len(),
            sum: sum(text),
            body_len: body.len(),
            body_sum: sum(body),
        };
        Some(update)
    }

    fn compare(&self, text: &[u8], is_live: bool) -> Option<Update> {
        let is_extension = |text: &[u8], len: usize, of: u64| {
            let begin = text.get(..len);
            begin.is_some_and(|begin| sum(begin) == of)
        };
        if is_extension(text, self.len, self.sum) {
            return Some(match text.len() == self.len {
                true => Update::None,
                false => Update::Append(self.len),
            });
        }
        if !is_live {
            return Some(Update::Replace);
        }
        let body = body(text);
        is_extension(body, self.body_len, self.body_sum)
            .then(|| Update::AppendAndCorrect(text.len() - body.len() + self.body_len))
    }
}

/// The part behind the declarations of environment and clock, which may be rewritten.
fn body(text: &[u8]) -> &[u8] {
    let clock = find(text, CLOCK).map_or(text, |(_, behind)| behind);
    find(clock, CLOCK_END).map_or(clock, |(_, behind)| behind)
}

const CLOCK: &[u8] = b"\nclock {\n";
const CLOCK_END: &[u8] = b"\n};\n";

/// Splits declarations that a live session appends to metadata into pieces for viewers.
///
/// `babeltrace2` expects the signature at the start of each piece. Without it, 2.0.4 compares
/// uninitialised variables: it goes on, or stops with "Invalid metadata version"
/// (`ctf_metadata_decoder_append_content`, in `decoder.c`). A piece must not end within a
/// declaration, either.
pub(super) fn pieces(mut declarations: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(move || {
        let room = declarations.len().min(PART - SIGNATURE.len());
        let len = match complete_declarations(&declarations[..room]).len() {
            // One that is longer comes with all behind it.
            0 => declarations.len(),
            len => len,
        };
        let (piece, rest) = declarations.split_at(len);
        declarations = rest;
        (!piece.is_empty()).then(|| [SIGNATURE.as_bytes(), piece].concat())
    })
}

/// The metadata with the clock of the session, which becomes that of these metadata if it has none
/// yet. Each process measures the processor's counter itself, and knows it better with time.
/// Viewers need one clock for all, so that an event is not before an earlier one of another trace.
pub(super) fn with_clock(text: &[u8], session: &mut Option<Vec<u8>>) -> Vec<u8> {
    let Some((before, behind)) = find(text, CLOCK) else {
        return text.to_vec();
    };
    let Some((clock, rest)) = find(behind, CLOCK_END) else {
        return text.to_vec();
    };
    let session = session.get_or_insert_with(|| clock.to_vec());
    let [ours, common] = [clock, &session[..]].map(clock_frequency);
    if !is_similar(ours, common) {
        // Another clock.
        return text.to_vec();
    }
    [before, CLOCK, session, CLOCK_END, rest].concat()
}

/// Whether two frequencies may be measurements of the same clock.
fn is_similar(a: Option<u64>, b: Option<u64>) -> bool {
    let (Some(a), Some(b)) = (a, b) else {
        return false;
    };
    a.abs_diff(b) <= a / 100
}

/// The frequency of the clock in metadata of CTF 1.8.
pub(super) fn frequency(text: &[u8]) -> Option<u64> {
    find(text, CLOCK).and_then(|(_, clock)| clock_frequency(clock))
}

/// The frequency that the declaration of a clock has.
pub(super) fn clock_frequency(clock: &[u8]) -> Option<u64> {
    clock_value(clock, b"\tfreq = ")?.parse().ok()
}

/// The name that the declaration of a clock has.
pub(super) fn clock_name(clock: &[u8]) -> Option<&str> {
    Some(clock_value(clock, b"\tname = ")?.trim_matches('"'))
}

fn clock_value<'a>(clock: &'a [u8], key: &[u8]) -> Option<&'a str> {
    let (_, value) = find(clock, key)?;
    let value = value.split(|byte| *byte == b';').next()?;
    std::str::from_utf8(value).ok()
}

/// What is before and behind a part of a text.
fn find<'a>(text: &'a [u8], part: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(part.len()).position(|of| of == part)?;
    Some((&text[..at], &text[at + part.len()..]))
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(freq: u64, body: &str) -> Vec<u8> {
        format!(
            "/* CTF 1.8 */\nenv {{\n\tx = \"y\";\n}};\n\nclock {{\n\tfreq = {freq};\n}};\n{body}"
        )
        .into_bytes()
    }

    #[test]
    fn changes_of_metadata_are_told_apart() {
        for is_live in [false, true] {
            let mut sent = SentMetadata::default();
            let first = text(5, "event 1");
            assert_eq!(frequency(&first), Some(5));
            assert_eq!(sent.update(&first, is_live), Some(Update::Append(0)));
            assert_eq!(sent.update(&first, is_live), Some(Update::None));
            let more = text(5, "event 1event 2");
            let update = sent.update(&more, is_live);
            assert_eq!(update, Some(Update::Append(first.len())));
            // The clock is known better, and there is another event.
            let better = text(50, "event 1event 2event 3");
            let expected = match is_live {
                false => Update::Replace,
                true => Update::AppendAndCorrect(better.len() - "event 3".len()),
            };
            assert_eq!(sent.update(&better, is_live), Some(expected));
            assert_eq!(sent.update(&better, is_live), Some(Update::None));
            let other = text(50, "other");
            let expected = (!is_live).then_some(Update::Replace);
            assert_eq!(sent.update(&other, is_live), expected);
        }
    }

    #[test]
    fn traces_of_a_live_session_have_one_clock() {
        let mut clock = None;
        let first = text(1000, "event 1");
        assert_eq!(with_clock(&first, &mut clock), first);
        assert_eq!(
            with_clock(&text(1001, "event 2"), &mut clock),
            text(1000, "event 2")
        );
        // Not the same clock.
        let other = text(5000, "event 3");
        assert_eq!(with_clock(&other, &mut clock), other);
        assert_eq!(with_clock(b"x", &mut clock), b"x");
    }

    /// Each piece can be read by itself, and nothing is lost.
    #[test]
    fn pieces_begin_as_metadata_do_and_end_with_declarations() {
        let event = |name: &str| format!("\nevent {{\n\tname = {name};\n}};\n");
        assert_eq!(pieces(b"").count(), 0);
        let few = [event("a"), event("b")].concat();
        let whole = format!("{SIGNATURE}{few}").into_bytes();
        assert_eq!(pieces(few.as_bytes()).collect::<Vec<_>>(), [whole]);
        let long = event(&"x".repeat(PART));
        let many = (0..5000).map(|n| event(&n.to_string())).collect::<String>() + &long;
        let mut all = String::new();
        for piece in pieces(many.as_bytes()) {
            let piece = std::str::from_utf8(&piece).unwrap();
            assert!(piece.len() <= PART || piece.ends_with(&long));
            let declarations = piece.strip_prefix(SIGNATURE).unwrap();
            assert!(declarations.starts_with("\nevent {") && declarations.ends_with("\n};\n"));
            all += declarations;
        }
        assert!(all == many);
    }

    #[test]
    fn metadata_without_a_clock_are_taken() {
        let mut sent = SentMetadata::default();
        assert_eq!(sent.update(b"", true), Some(Update::None));
        assert_eq!(sent.update(b"x", true), Some(Update::Append(0)));
        assert_eq!(frequency(b"\nclock {\n\tfreq = x;"), None);
    }
}
