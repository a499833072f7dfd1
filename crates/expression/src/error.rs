//! Why a text is no expression, and where.

use core::fmt;
use core::ops::Range;

use crate::limits::{MAX_REFERENCES, MAX_STEPS, MAX_TEXT};

/// Why a text is no expression, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    kind: ErrorKind,
    start: u32,
    end: u32,
}

impl ParseError {
    pub(crate) fn new(kind: ErrorKind, place: Range<usize>) -> Self {
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            kind,
            start: offset(place.start),
            end: offset(place.end),
        }
    }

    /// The bytes of the text that are wrong. Empty at the end of the text.
    pub fn place(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl core::error::Error for ParseError {}

/// The kind of an error in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is longer than [`MAX_TEXT`].
    TooLong,
    /// A field, constant or `(` must stand here.
    ExpectedValue(Found),
    /// An operator or the end must stand here.
    ExpectedOperator(Found),
    /// A name must stand after `.`.
    ExpectedName(Found),
    /// A number must stand after `[`.
    ExpectedIndex(Found),
    /// A `]` must stand after an index.
    ExpectedBracket(Found),
    /// `$` stands before a name other than `ctx` and `app`, or no `.` follows these.
    UnknownScope,
    /// A `(` has no `)`.
    Unclosed,
    /// A `)` has no `(`.
    Unopened,
    /// A text has no closing quote.
    UnterminatedText,
    /// A `\` in a text stands before a character that needs none.
    UnknownEscape,
    /// A text has a control character.
    ControlCharacter,
    /// Digits that make no number, such as `09` or `12ab`.
    InvalidNumber,
    /// An integer outside of 64 bits, or a float that is infinite.
    NumberTooLarge,
    /// `+`, `-`, `*`, `/` or `%` between two values.
    Arithmetic,
    /// `=` instead of `==`.
    SingleEquals,
    /// A constant text with `<`, `<=`, `>` or `>=`.
    OrderedText,
    /// A constant text compared with a number.
    TextWithNumber,
    /// Two constant texts compared.
    ConstantTexts,
    /// A constant text with an operator that needs a number.
    TextAsNumber,
    /// A constant text where a condition must stand.
    TextAsCondition,
    /// A constant float with a bit operator.
    FloatBits,
    /// More than [`MAX_STEPS`].
    TooManySteps,
    /// More than [`MAX_REFERENCES`].
    TooManyReferences,
    /// More parentheses or operators inside each other than an evaluation has room for.
    TooDeep,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::TooLong => {
                return write!(f, "the expression is longer than {MAX_TEXT} bytes");
            }
            Self::ExpectedValue(found) => return write!(f, "expected a value, found {found}"),
            Self::ExpectedOperator(found) => {
                return write!(f, "expected an operator, found {found}");
            }
            Self::ExpectedName(found) => {
                return write!(f, "expected a name after \".\", found {found}");
            }
            Self::ExpectedIndex(found) => {
                return write!(f, "expected an index after \"[\", found {found}");
            }
            Self::ExpectedBracket(found) => return write!(f, "expected \"]\", found {found}"),
            Self::TooManySteps => {
                return write!(f, "the expression has more than {MAX_STEPS} steps");
            }
            Self::TooManyReferences => {
                return write!(f, "the expression has more than {MAX_REFERENCES} fields");
            }
            Self::UnknownScope => "expected \"$ctx.NAME\" or \"$app.NAME\"",
            Self::Unclosed => "\"(\" has no \")\"",
            Self::Unopened => "\")\" has no \"(\"",
            Self::UnterminatedText => "the text has no closing quote",
            Self::UnknownEscape => r#"unknown escape in a text (known: \*, \\, \", \')"#,
            Self::ControlCharacter => "control character in a text (\"*\" matches any)",
            Self::InvalidNumber => "invalid number",
            Self::NumberTooLarge => "the number is too large",
            Self::Arithmetic => "arithmetic is not supported",
            Self::SingleEquals => "unknown operator \"=\" (use \"==\")",
            Self::OrderedText => "text compares with \"==\" and \"!=\" only",
            Self::TextWithNumber => "cannot compare text with a number",
            Self::ConstantTexts => "both sides of the comparison are constant text",
            Self::TextAsNumber => "expected a number, found text",
            Self::TextAsCondition => "expected a condition, found text",
            Self::FloatBits => "bit operators take integers, found a float",
            Self::TooDeep => "the expression is nested too deeply",
        };
        f.write_str(text)
    }
}

/// A token that stands where the parser expected another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// The end of the text.
    End,
    /// A name.
    Name,
    /// A number.
    Number,
    /// A text in quotes.
    Text,
    /// An operator or a parenthesis.
    Symbol(&'static str),
    /// A byte that starts nothing.
    Byte(u8),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::End => f.write_str("the end"),
            Self::Name => f.write_str("a name"),
            Self::Number => f.write_str("a number"),
            Self::Text => f.write_str("text"),
            Self::Symbol(symbol) => write!(f, "\"{symbol}\""),
            Self::Byte(byte @ b'!'..=b'~') => write!(f, "\"{}\"", char::from(byte)),
            Self::Byte(byte @ ..0x80) => write!(f, "byte {byte:#04x}"),
            Self::Byte(_) => f.write_str("a character outside of ASCII"),
        }
    }
}
