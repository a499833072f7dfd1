//! Filter expressions such as `status >= 500 && path == "/api/*"`, in LTTng's filter syntax.
//!
//! The tools use this crate to choose events of a trace, and traced programs use it to choose the
//! events that they record. In a program, it runs in signal handlers and on text that other users
//! wrote. Therefore:
//! - Nothing allocates, panics or recurses. Text that is too long, too deep or too large is an
//!   error: see [`MAX_TEXT`], [`MAX_STEPS`], [`MAX_DEPTH`] and [`MAX_REFERENCES`].
//! - An [`Expression`] is plain data of less than 400 bytes. It refers to names and constant texts
//!   by their places in the text, which the caller keeps.
//! - An evaluation takes each step at most once. Only comparisons of texts loop: they take at most
//!   (length of the pattern) × (length of the text) comparisons of bytes.
//!
//! # Syntax and values
//! lttng-enable-event(1) describes the syntax, and `filter-parser.ypp` of lttng-tools has the
//! grammar. The bit operators bind more tightly than comparisons there, unlike in C:
//! `flags & 1 == 1` compares `flags & 1`.
//!
//! Integers compare exactly, also signed with unsigned ones. The result of a bit operator is 64
//! bits: it compares as an unsigned number with unsigned ones, and as a signed number with others.
//! A comparison with a float converts both sides to `f64`.
//!
//! A value that is missing, or a comparison of values that have no common kind, is
//! [`Answer::Unknown`]. Unknown follows Kleene's logic: `unknown && false` is false,
//! `unknown || true` is true, anything else with unknown is unknown. An event whose answer is
//! unknown does not match.
//!
//! # Example
//! ```
//! use usertrace_expression::{Expression, Field, Slices};
//!
//! let text = b"status >= 500 && path == \"/api/*\"";
//! let expression = Expression::parse(text).unwrap();
//! // In the order of `expression.references()`: status, path.
//! let fields = [Field::Unsigned(503), Field::Text(b"/api/users")];
//! assert!(expression.evaluate(text, &mut Slices(&fields)).is_match());
//! ```

#![no_std]
#![forbid(unsafe_code)]

mod answer;
mod caret;
mod compare;
mod compiled;
mod error;
mod evaluate;
mod first_test;
mod glob;
mod limits;
mod number;
mod numeral;
mod operator;
mod parser;
mod program;
mod reference;
mod reference_kind;
mod slices;
mod source;
mod token;

pub use answer::Answer;
pub use caret::WithCaret;
pub use compiled::{Words, evaluate_words, text_of_words};
pub use error::{ErrorKind, Found, ParseError};
pub use first_test::FirstTest;
pub use limits::{MAX_DEPTH, MAX_REFERENCES, MAX_STEPS, MAX_TEXT};
pub use parser::Workspace;
pub use program::Expression;
pub use reference::{Reference, Segment, Segments};
pub use reference_kind::ReferenceKind;
pub use slices::{Field, Slices};
pub use source::{Integer, Source, Value};
