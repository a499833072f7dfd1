//! Expressions as words, for memory that changes while it is read.
//!
//! A traced program keeps its conditions in a table that an update replaces while other threads
//! evaluate. The threads find out afterwards that the table has changed. Meanwhile they may see
//! words of several expressions, or any others: an evaluation of any words ends, and never panics.

use core::ops::Range;

use crate::answer::Answer;
use crate::evaluate::{Constants, evaluate};
use crate::glob::Pattern;
use crate::program::{Expression, Step};
use crate::source::Source;

/// The words of a [compiled](Expression::compile) expression.
pub trait Words: Copy {
    /// A word. Any value if there is none at that position.
    fn word(self, at: usize) -> u32;
}

/// The first word: the number of steps, the depth, and the length of the text.
const HEAD: usize = 1;

const LEN_SHIFT: u32 = 16;

impl Expression {
    /// The expression as words, for [`evaluate_words`]. `text` is the parsed text.
    pub fn compile<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = u32> + use<'a> {
        // At most 4096, 16, and 64.
        let (len, depth, count) = (text.len() as u32, self.depth() as u32, self.step_count());
        let head = len << LEN_SHIFT | depth << 8 | count as u32;
        let steps = self.steps().iter().map(|step| step.to_word());
        let bytes = text.chunks(4).map(|chunk| {
            let mut word = [0; 4];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            u32::from_le_bytes(word)
        });
        core::iter::once(head).chain(steps).chain(bytes)
    }
}

/// Whether an event matches. `words` are those of [`Expression::compile`]; with others, the answer
/// means nothing.
#[inline]
pub fn evaluate_words<S: Source>(words: impl Words, source: &mut S) -> Answer {
    let (steps, depth, text) = parts(words);
    evaluate(steps, depth, text, source)
}

/// The text of a compiled expression. `words` are those of [`Expression::compile`]; with others, it
/// has any bytes, less than 65,536.
pub fn text_of_words(words: impl Words) -> impl Iterator<Item = u8> {
    let (_, _, text) = parts(words);
    (0..).map_while(move |at| text.byte(at))
}

/// The steps, the depth, and the text.
#[inline]
fn parts<W: Words>(words: W) -> (StepWords<W>, usize, TextWords<W>) {
    let head = words.word(0);
    let [count, depth, ..] = head.to_le_bytes();
    let end = HEAD + usize::from(count);
    let steps = StepWords {
        words,
        next: HEAD,
        end,
    };
    let text = TextWords {
        words,
        start: 4 * end,
        len: (head >> LEN_SHIFT) as usize,
    };
    (steps, depth.into(), text)
}

#[derive(Clone, Copy)]
struct StepWords<W> {
    words: W,
    next: usize,
    end: usize,
}

impl<W: Words> Iterator for StepWords<W> {
    type Item = Step;

    #[inline]
    fn next(&mut self) -> Option<Step> {
        self.nth(0)
    }

    #[inline]
    fn nth(&mut self, n: usize) -> Option<Step> {
        let at = self.next.saturating_add(n).min(self.end);
        if at == self.end {
            self.next = self.end;
            return None;
        }
        self.next = at + 1;
        Some(Step::from_word(self.words.word(at)))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}

impl<W: Words> ExactSizeIterator for StepWords<W> {}

/// Bytes of words, from byte `start` on.
#[derive(Clone, Copy)]
struct TextWords<W> {
    words: W,
    start: usize,
    len: usize,
}

impl<W: Words> Pattern for TextWords<W> {
    #[inline]
    fn byte(self, at: usize) -> Option<u8> {
        if at >= self.len {
            return None;
        }
        let at = self.start + at;
        let word = self.words.word(at / 4).to_le_bytes();
        word.get(at % 4).copied()
    }
}

impl<W: Words> Constants for TextWords<W> {
    type Literal = Self;

    #[inline]
    fn literal(&self, place: Range<usize>) -> Option<Self> {
        (place.end <= self.len).then(|| Self {
            start: self.start + place.start,
            len: place.len(),
            ..*self
        })
    }
}
