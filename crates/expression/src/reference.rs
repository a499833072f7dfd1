//! References of an expression to fields and contexts of an event.

use core::fmt;
use core::ops::Range;

use crate::reference_kind::ReferenceKind;
use crate::token::{Lexer, Role, Token};

/// A field or context that an expression refers to.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'a> {
    kind: ReferenceKind,
    written: &'a [u8],
}

impl<'a> Reference<'a> {
    pub(crate) fn new(kind: ReferenceKind, written: &'a [u8]) -> Self {
        Self { kind, written }
    }

    /// Where the value comes from.
    pub fn kind(&self) -> ReferenceKind {
        self.kind
    }

    /// The reference as the expression has it, with `$ctx.` or `$app.`.
    pub fn written(&self) -> &'a [u8] {
        self.written
    }

    /// Names and indexes, from the outermost name inwards. `$ctx` and `$app` are not among them.
    pub fn segments(&self) -> Segments<'a> {
        let mut lexer = Lexer::new(self.written);
        if self.kind != ReferenceKind::Field {
            let _scope = lexer.next();
        }
        Segments {
            lexer,
            text: self.written,
        }
    }

    /// Whether both name the same value, however they are written.
    pub(crate) fn is_same(&self, other: &Reference<'_>) -> bool {
        self.kind == other.kind && self.segments().eq(other.segments())
    }
}

/// Written for messages: names are ASCII, as the parser checked.
impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(self.written).unwrap_or_default())
    }
}

/// A part of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// The name of a field, of a member of a structure, or of a context.
    Name(&'a [u8]),
    /// An index of an array, from 0.
    Index(u64),
}

/// Iterates over the parts of a [`Reference`].
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    lexer: Lexer<'a>,
    text: &'a [u8],
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        loop {
            let (token, place): (Token, Range<usize>) = self.lexer.next().ok()?;
            match token {
                Token::Name => return self.text.get(place).map(Segment::Name),
                Token::Integer(index) => return Some(Segment::Index(index)),
                Token::Symbol(symbol) => match symbol.role {
                    Role::Dot | Role::OpenBracket | Role::CloseBracket => {}
                    _ => return None,
                },
                _ => return None,
            }
        }
    }
}
