//! Splits a text into tokens.

use core::ops::Range;

use crate::error::{ErrorKind, Found, ParseError};
use crate::numeral::{self, Numeral};
use crate::operator::{Binary, Bitwise, Comparison, Unary};
use crate::reference_kind::ReferenceKind;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token {
    End,
    Name,
    /// `$ctx` or `$app`.
    Scope(ReferenceKind),
    Integer(u64),
    Float(f64),
    /// With its quotes.
    Text,
    Symbol(&'static Symbol),
    Byte(u8),
}

impl Token {
    pub(crate) fn found(self) -> Found {
        match self {
            Self::End => Found::End,
            Self::Name | Self::Scope(_) => Found::Name,
            Self::Integer(_) | Self::Float(_) => Found::Number,
            Self::Text => Found::Text,
            Self::Symbol(symbol) => Found::Symbol(symbol.text),
            Self::Byte(byte) => Found::Byte(byte),
        }
    }
}

/// An operator or other punctuation.
#[derive(Debug, PartialEq)]
pub(crate) struct Symbol {
    text: &'static str,
    pub(crate) unary: Option<Unary>,
    pub(crate) role: Role,
}

/// The meaning of a symbol after a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    Binary(Binary),
    Arithmetic,
    SingleEquals,
    Open,
    Close,
    Dot,
    OpenBracket,
    CloseBracket,
    /// Nothing: the symbol stands before values only.
    Prefix,
}

const fn symbol(text: &'static str, role: Role) -> Symbol {
    Symbol {
        text,
        unary: None,
        role,
    }
}

const fn prefix(text: &'static str, unary: Unary, role: Role) -> Symbol {
    Symbol {
        text,
        unary: Some(unary),
        role,
    }
}

const fn compare(text: &'static str, comparison: Comparison) -> Symbol {
    symbol(text, Role::Binary(Binary::Compare(comparison)))
}

const fn bitwise(text: &'static str, bitwise: Bitwise) -> Symbol {
    symbol(text, Role::Binary(Binary::Bitwise(bitwise)))
}

/// A symbol that is the start of another one stands after it.
static SYMBOLS: [Symbol; 25] = [
    symbol("&&", Role::Binary(Binary::And)),
    symbol("||", Role::Binary(Binary::Or)),
    compare("==", Comparison::Equal),
    compare("!=", Comparison::NotEqual),
    compare("<=", Comparison::LessEqual),
    compare(">=", Comparison::GreaterEqual),
    bitwise("<<", Bitwise::ShiftLeft),
    bitwise(">>", Bitwise::ShiftRight),
    compare("<", Comparison::Less),
    compare(">", Comparison::Greater),
    bitwise("&", Bitwise::And),
    bitwise("^", Bitwise::Xor),
    bitwise("|", Bitwise::Or),
    prefix("!", Unary::Not, Role::Prefix),
    prefix("~", Unary::BitNot, Role::Prefix),
    prefix("+", Unary::Plus, Role::Arithmetic),
    prefix("-", Unary::Minus, Role::Arithmetic),
    symbol("*", Role::Arithmetic),
    symbol("/", Role::Arithmetic),
    symbol("%", Role::Arithmetic),
    symbol("=", Role::SingleEquals),
    symbol("(", Role::Open),
    symbol(")", Role::Close),
    symbol("[", Role::OpenBracket),
    symbol("]", Role::CloseBracket),
];

/// Apart from [`SYMBOLS`], as a number may start with it.
static DOT: Symbol = symbol(".", Role::Dot);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The next token and its place.
    pub(crate) fn next(&mut self) -> Result<(Token, Range<usize>), ParseError> {
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n');
        self.at += self.rest().iter().take_while(is_blank).count();
        let start = self.at;
        let (token, length) = self.token()?;
        self.at = start + length;
        Ok((token, start..self.at))
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn token(&self) -> Result<(Token, usize), ParseError> {
        let rest = self.rest();
        Ok(match rest {
            [] => (Token::End, 0),
            [b'"' | b'\'', ..] => (Token::Text, self.text_length()?),
            [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => self.number()?,
            [b'.', ..] => (Token::Symbol(&DOT), 1),
            [b'$', ..] => self.scope()?,
            [b'A'..=b'Z' | b'a'..=b'z' | b'_', ..] => (Token::Name, name_length(rest)),
            [byte, ..] => SYMBOLS
                .iter()
                .find(|symbol| rest.starts_with(symbol.text.as_bytes()))
                .map_or((Token::Byte(*byte), 1), |symbol| {
                    (Token::Symbol(symbol), symbol.text.len())
                }),
        })
    }

    fn error(&self, kind: ErrorKind, from: usize, length: usize) -> ParseError {
        let start = self.at + from;
        ParseError::new(kind, start..start + length)
    }

    fn number(&self) -> Result<(Token, usize), ParseError> {
        let length = numeral::length(self.rest());
        let run = self.rest().get(..length).unwrap_or_default();
        match numeral::parse(run) {
            Ok(Numeral::Integer(integer)) => Ok((Token::Integer(integer), length)),
            Ok(Numeral::Float(float)) => Ok((Token::Float(float), length)),
            Err(kind) => Err(self.error(kind, 0, length)),
        }
    }

    fn scope(&self) -> Result<(Token, usize), ParseError> {
        let name = self.rest().get(1..).unwrap_or_default();
        let length = name_length(name);
        let kind = match name.get(..length) {
            Some(b"ctx") => ReferenceKind::Context,
            Some(b"app") => ReferenceKind::Application,
            _ => return Err(self.error(ErrorKind::UnknownScope, 0, 1 + length)),
        };
        Ok((Token::Scope(kind), 1 + length))
    }

    /// The length of a text with its quotes. Checks its characters and escapes.
    fn text_length(&self) -> Result<usize, ParseError> {
        let rest = self.rest();
        let quote = rest.first();
        let mut at = 1;
        loop {
            at += match rest.get(at..).unwrap_or_default() {
                [] => return Err(self.error(ErrorKind::UnterminatedText, 0, rest.len())),
                [byte, ..] if Some(byte) == quote => return Ok(at + 1),
                [b'\\', b'*' | b'\\' | b'"' | b'\'', ..] => 2,
                [b'\\', escaped @ ..] => {
                    let length = 1 + escaped.len().min(1);
                    return Err(self.error(ErrorKind::UnknownEscape, at, length));
                }
                [byte, ..] if byte.is_ascii_control() && *byte != b'\t' => {
                    return Err(self.error(ErrorKind::ControlCharacter, at, 1));
                }
                _ => 1,
            };
        }
    }
}

/// LTTng allows `:` in names, for `$app.PROVIDER:NAME`.
fn name_length(text: &[u8]) -> usize {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    text.iter().take_while(is_part).count()
}
