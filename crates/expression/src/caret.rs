//! Prints an expression with a caret under the place of an error.

use core::fmt::{self, Write};
use core::ops::Range;

use crate::error::ParseError;

/// How many bytes of the text are printed before and after the start of the place. A longer line
/// would be wrapped by a terminal, which parts the caret from its place.
const BEFORE: usize = 40;
const AFTER: usize = 36;

/// Prints an error, the text that it is about and a caret under the place.
///
/// Control characters and bytes that are not UTF-8 are printed as `U+FFFD`, tabs and line feeds as
/// spaces. Of a long text, the neighbourhood of the place is printed.
#[derive(Clone, Debug)]
pub struct WithCaret<'a, E> {
    error: &'a E,
    place: Range<usize>,
    text: &'a [u8],
}

impl<'a, E: fmt::Display> WithCaret<'a, E> {
    /// Prints an error about the bytes of a text at `place`, on three lines without a final line
    /// feed.
    pub fn new(error: &'a E, place: Range<usize>, text: &'a [u8]) -> Self {
        Self { error, place, text }
    }
}

impl ParseError {
    /// Prints the error, the text and a caret under the place, on three lines without a final
    /// line feed. `text` is the parsed text.
    pub fn with_caret<'a>(&'a self, text: &'a [u8]) -> WithCaret<'a, Self> {
        WithCaret::new(self, self.place(), text)
    }
}

impl<E: fmt::Display> fmt::Display for WithCaret<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        let start = place.start.min(self.text.len());
        let from = boundary(self.text, start.saturating_sub(BEFORE));
        let to = boundary(self.text, start.saturating_add(AFTER).min(self.text.len()));
        let end = place.end.clamp(start, to);
        let part = |from, to| self.text.get(from..to).unwrap_or_default();

        write!(f, "{}\n  ", self.error)?;
        let cut = if from > 0 { "…" } else { "" };
        f.write_str(cut)?;
        print(f, part(from, to))?;
        f.write_str(if to < self.text.len() {
            "…\n  "
        } else {
            "\n  "
        })?;
        let before = width(part(from, start)) + usize::from(from > 0);
        for _ in 0..before {
            f.write_char(' ')?;
        }
        for _ in 0..width(part(start, end)).max(1) {
            f.write_char('^')?;
        }
        Ok(())
    }
}

/// The last start of a character at or before `at`, as far as the text is UTF-8.
fn boundary(text: &[u8], at: usize) -> usize {
    let is_continuation = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let lowest = at.saturating_sub(3);
    (lowest..=at)
        .rev()
        .find(|at| !is_continuation(at))
        .unwrap_or(at)
}

fn print(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    characters(text).try_for_each(|character| f.write_char(character))
}

fn width(text: &[u8]) -> usize {
    characters(text).map(columns).sum()
}

/// The characters to print for a text, safe for a terminal.
fn characters(text: &[u8]) -> impl Iterator<Item = char> {
    text.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER);
        chunk.valid().chars().map(printable).chain(invalid)
    })
}

fn printable(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' => ' ',
        // Zero-width characters and those that change the direction of the line.
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{61c}'
        | '\u{ad}' => char::REPLACEMENT_CHARACTER,
        _ if character.is_control() => char::REPLACEMENT_CHARACTER,
        _ => character,
    }
}

/// How many columns a terminal takes for a character: an approximation of Unicode's tables.
fn columns(character: char) -> usize {
    match character {
        '\u{300}'..='\u{36f}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}
