//! Parses an expression into its program, with a stack of operators instead of recursion.

use core::ops::Range;

use crate::error::{ErrorKind, ParseError};
use crate::limits::{MAX_DEPTH, MAX_TEXT};
use crate::number::Number;
use crate::operator::{Binary, Comparison, Unary};
use crate::program::{Expression, Step, Wide, small_integer, wide_number};
use crate::reference_kind::ReferenceKind;
use crate::token::{Lexer, Role, Symbol, Token};

impl Expression {
    /// Parses an expression. Keep its text: [`evaluate`](Self::evaluate) and
    /// [`references`](Self::references) read it.
    ///
    /// # Errors
    /// If the text is no expression, or exceeds one of the limits of this crate.
    pub fn parse(text: &[u8]) -> Result<Self, ParseError> {
        let mut workspace = Workspace::new();
        workspace.parse(text).copied()
    }
}

/// Memory of a parser, for callers with little stack. An expression stays in it until the next one.
///
/// It has C layout, and all zeros are a valid one. So it can be part of memory that is mapped.
#[derive(Debug)]
#[repr(C)]
pub struct Workspace {
    program: Expression,
    pending: Stack<Pending, MAX_PENDING>,
    operands: Stack<Operand, MAX_DEPTH>,
}

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}

impl Workspace {
    /// An empty workspace.
    #[must_use]
    pub fn new() -> Self {
        let none = Pending {
            kind: PendingKind::Open,
            start: 0,
            end: 0,
        };
        let nothing = Operand {
            kind: Kind::Any,
            start: 0,
            end: 0,
            step: 0,
        };
        Self {
            program: Expression::empty(),
            pending: Stack::new(none),
            operands: Stack::new(nothing),
        }
    }

    /// Parses an expression, see [`Expression::parse`].
    ///
    /// # Errors
    /// As those of `Expression::parse`.
    pub fn parse(&mut self, text: &[u8]) -> Result<&Expression, ParseError> {
        if text.len() > MAX_TEXT {
            return Err(ParseError::new(ErrorKind::TooLong, MAX_TEXT..text.len()));
        }
        self.program.clear();
        self.pending.len = 0;
        self.operands.len = 0;
        let mut parser = Parser {
            text,
            lexer: Lexer::new(text),
            program: &mut self.program,
            pending: &mut self.pending,
            operands: &mut self.operands,
        };
        parser.parse()?;
        Ok(&self.program)
    }
}

/// How many operators and parentheses may wait for their right side.
const MAX_PENDING: usize = 64;

/// An operator or parenthesis that waits for its right side.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Pending {
    kind: PendingKind,
    start: u16,
    end: u16,
}

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum PendingKind {
    Open,
    Unary(Unary),
    /// With the place of its skip, if it has one.
    Binary(Binary, u8),
}

/// The kind of a value of the program, as far as the parser knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Kind {
    /// A field, which may have any kind.
    Any,
    /// A result or a constant.
    Number,
    /// A constant float.
    Float,
    /// A constant text.
    Text,
}

/// A value of the program: where it stands in the text, and where its steps start.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Operand {
    kind: Kind,
    start: u16,
    end: u16,
    step: u8,
}

impl Operand {
    fn place(&self) -> Range<usize> {
        self.start.into()..self.end.into()
    }
}

struct Parser<'a, 'w> {
    text: &'a [u8],
    lexer: Lexer<'a>,
    program: &'w mut Expression,
    pending: &'w mut Stack<Pending, MAX_PENDING>,
    operands: &'w mut Stack<Operand, MAX_DEPTH>,
}

impl Parser<'_, '_> {
    fn parse(&mut self) -> Result<(), ParseError> {
        loop {
            self.value()?;
            if self.operators()? {
                self.program.finish();
                return Ok(());
            }
        }
    }

    /// Parses up to the end of a value, with the prefixes before it.
    fn value(&mut self) -> Result<(), ParseError> {
        loop {
            let (token, place) = self.lexer.next()?;
            match token {
                Token::Name => return self.reference(ReferenceKind::Field, place),
                Token::Scope(kind) => return self.reference(kind, place),
                Token::Integer(integer) => {
                    let number =
                        i64::try_from(integer).map_or(Number::Unsigned(integer), Number::Signed);
                    return self.number(number, place);
                }
                Token::Float(float) => return self.number(Number::Float(float), place),
                Token::Text => {
                    let start = place.start as u16 + 1;
                    let length = (place.len() as u16).saturating_sub(2);
                    return self.operand(Kind::Text, Step::text(start, length), place);
                }
                Token::Symbol(Symbol {
                    unary: Some(unary), ..
                }) => {
                    self.wait(PendingKind::Unary(*unary), place)?;
                }
                Token::Symbol(Symbol {
                    role: Role::Open, ..
                }) => {
                    self.wait(PendingKind::Open, place)?;
                }
                _ => {
                    return Err(ParseError::new(
                        ErrorKind::ExpectedValue(token.found()),
                        place,
                    ));
                }
            }
        }
    }

    /// Parses what may stand after a value, up to an operator that wants another one. Whether the
    /// expression ends here.
    fn operators(&mut self) -> Result<bool, ParseError> {
        loop {
            let (token, place) = self.lexer.next()?;
            let kind = match token {
                Token::End => return self.end(place).map(|()| true),
                Token::Symbol(Symbol { role, .. }) => match role {
                    Role::Binary(binary) => return self.binary(*binary, place).map(|()| false),
                    Role::Close => {
                        self.close(place)?;
                        continue;
                    }
                    Role::Arithmetic => ErrorKind::Arithmetic,
                    Role::SingleEquals => ErrorKind::SingleEquals,
                    _ => ErrorKind::ExpectedOperator(token.found()),
                },
                _ => ErrorKind::ExpectedOperator(token.found()),
            };
            return Err(ParseError::new(kind, place));
        }
    }

    fn end(&mut self, place: Range<usize>) -> Result<(), ParseError> {
        self.reduce(0)?;
        if let Some(open) = self.pending.pop() {
            let place = open.start.into()..open.end.into();
            return Err(ParseError::new(ErrorKind::Unclosed, place));
        }
        match self.operands.pop() {
            Some(operand) => check_condition(&operand),
            None => Err(ParseError::new(ErrorKind::TooDeep, place)),
        }
    }

    fn close(&mut self, place: Range<usize>) -> Result<(), ParseError> {
        self.reduce(0)?;
        let Some(open) = self.pending.pop() else {
            return Err(ParseError::new(ErrorKind::Unopened, place));
        };
        if let Some(operand) = self.operands.last_mut() {
            operand.start = open.start;
            operand.end = place.end as u16;
        }
        Ok(())
    }

    fn binary(&mut self, binary: Binary, place: Range<usize>) -> Result<(), ParseError> {
        self.reduce(binary.precedence())?;
        let skip = self.program.step_count() as u8;
        let step = match binary {
            Binary::And => Some(Step::SkipIfFalse(0)),
            Binary::Or => Some(Step::SkipIfTrue(0)),
            Binary::Compare(_) | Binary::Bitwise(_) => None,
        };
        if let Some(step) = step {
            if let Some(operand) = self.operands.last_mut() {
                check_condition(operand)?;
            }
            self.push(step, &place)?;
        }
        self.wait(PendingKind::Binary(binary, skip), place)
    }

    /// Parses the rest of a reference whose first token stands at `place`.
    fn reference(&mut self, kind: ReferenceKind, place: Range<usize>) -> Result<(), ParseError> {
        let start = place.start;
        let mut end = place.end;
        let mut needs_name = kind != ReferenceKind::Field;
        loop {
            let mut lexer = self.lexer;
            // The caller goes on there, and finds an error after the reference again.
            let role = match lexer.next() {
                Ok((Token::Symbol(symbol), _)) => Some(symbol.role),
                _ => None,
            };
            end = match role {
                Some(Role::Dot) => name(&mut lexer)?,
                _ if needs_name => {
                    return Err(ParseError::new(ErrorKind::UnknownScope, start..end));
                }
                Some(Role::OpenBracket) => index(&mut lexer)?,
                _ => break,
            };
            needs_name = false;
            self.lexer = lexer;
        }
        let place = start..end;
        match self.program.reference(kind, start, self.text, end - start) {
            Some(reference) => self.operand(Kind::Any, Step::Load(reference), place),
            None => Err(ParseError::new(ErrorKind::TooManyReferences, place)),
        }
    }

    fn number(&mut self, number: Number, place: Range<usize>) -> Result<(), ParseError> {
        let kind = if matches!(number, Number::Float(_)) {
            Kind::Float
        } else {
            Kind::Number
        };
        let step = self.program.step_count();
        self.push_number(number, &place)?;
        self.add_operand(kind, step, place)
    }

    fn push_number(&mut self, number: Number, place: &Range<usize>) -> Result<(), ParseError> {
        let (wide, bits) = match number {
            Number::Signed(number) => match Step::small(number) {
                Some(small) => return self.push(small, place),
                None => (Wide::Signed, number.cast_unsigned()),
            },
            Number::Unsigned(number) | Number::Bits(number) => (Wide::Unsigned, number),
            Number::Float(number) => (Wide::Float, number.to_bits()),
        };
        for step in Step::wide(wide, bits) {
            self.push(step, place)?;
        }
        Ok(())
    }

    fn operand(&mut self, kind: Kind, step: Step, place: Range<usize>) -> Result<(), ParseError> {
        let at = self.program.step_count();
        self.push(step, &place)?;
        self.add_operand(kind, at, place)
    }

    fn add_operand(
        &mut self,
        kind: Kind,
        step: usize,
        place: Range<usize>,
    ) -> Result<(), ParseError> {
        let (start, end) = (place.start as u16, place.end as u16);
        let operand = Operand {
            kind,
            start,
            end,
            step: step as u8,
        };
        let error = ParseError::new(ErrorKind::TooDeep, place);
        self.operands.push(operand).ok_or(error)?;
        Ok(())
    }

    fn push(&mut self, step: Step, place: &Range<usize>) -> Result<(), ParseError> {
        let error = || ParseError::new(ErrorKind::TooManySteps, place.clone());
        self.program.push(step).ok_or_else(error)
    }

    fn wait(&mut self, kind: PendingKind, place: Range<usize>) -> Result<(), ParseError> {
        let pending = Pending {
            kind,
            start: place.start as u16,
            end: place.end as u16,
        };
        self.pending
            .push(pending)
            .ok_or(ParseError::new(ErrorKind::TooDeep, place))
    }

    /// Completes the waiting operators that bind at least as tightly as `precedence`, up to a `(`.
    fn reduce(&mut self, precedence: u8) -> Result<(), ParseError> {
        while let Some(pending) = self.pending.last_mut().copied() {
            let place = pending.start.into()..pending.end.into();
            match pending.kind {
                PendingKind::Open => break,
                PendingKind::Binary(binary, _) if binary.precedence() < precedence => break,
                PendingKind::Binary(binary, skip) => self.complete(binary, skip.into(), place)?,
                PendingKind::Unary(unary) => self.complete_unary(unary, place)?,
            }
            let _completed = self.pending.pop();
        }
        Ok(())
    }

    fn complete_unary(&mut self, unary: Unary, place: Range<usize>) -> Result<(), ParseError> {
        let Some(operand) = self.operands.pop() else {
            return Err(ParseError::new(ErrorKind::TooDeep, place));
        };
        let error = match (unary, operand.kind) {
            (Unary::Not, Kind::Text) => Some(ErrorKind::TextAsCondition),
            (_, Kind::Text) => Some(ErrorKind::TextAsNumber),
            (Unary::BitNot, Kind::Float) => Some(ErrorKind::FloatBits),
            _ => None,
        };
        if let Some(kind) = error {
            return Err(ParseError::new(kind, operand.place()));
        }
        let whole = place.start..operand.end.into();
        let step = usize::from(operand.step);
        match (unary, self.constant(&operand)) {
            (Unary::Plus, Some(_)) => {}
            (Unary::Minus, Some(number)) => {
                let error = || ParseError::new(ErrorKind::NumberTooLarge, whole.clone());
                self.program.truncate(step);
                self.push_number(number.negated().ok_or_else(error)?, &whole)?;
            }
            _ => self.push(Step::Unary(unary), &place)?,
        }
        let kind = match (unary, operand.kind) {
            (Unary::Plus | Unary::Minus, Kind::Float) => Kind::Float,
            _ => Kind::Number,
        };
        self.add_operand(kind, step, whole)
    }

    fn complete(
        &mut self,
        binary: Binary,
        skip: usize,
        place: Range<usize>,
    ) -> Result<(), ParseError> {
        let (Some(right), Some(left)) = (self.operands.pop(), self.operands.pop()) else {
            return Err(ParseError::new(ErrorKind::TooDeep, place));
        };
        match binary {
            Binary::Compare(comparison) => {
                check_comparison(comparison, &left, &right)?;
                self.push_comparison(comparison, &left, &right, &place)?;
            }
            Binary::Bitwise(bitwise) => {
                check_bits(&left)?;
                check_bits(&right)?;
                self.push(Step::Bitwise(bitwise), &place)?;
            }
            Binary::And | Binary::Or => {
                check_condition(&right)?;
                let is_and = binary == Binary::And;
                self.push(if is_and { Step::And } else { Step::Or }, &place)?;
                let skipped = (self.program.step_count() - skip - 1) as u8;
                let step = if is_and {
                    Step::SkipIfFalse(skipped)
                } else {
                    Step::SkipIfTrue(skipped)
                };
                self.program.replace(skip, step);
            }
        }
        self.add_operand(
            Kind::Number,
            left.step.into(),
            left.start.into()..right.end.into(),
        )
    }

    fn push_comparison(
        &mut self,
        comparison: Comparison,
        left: &Operand,
        right: &Operand,
        place: &Range<usize>,
    ) -> Result<(), ParseError> {
        let one_step = match (self.only_step(left, right.step), self.last_step(right)) {
            (Some(Step::Load(reference)), Some(Step::Small(number))) => {
                Step::compare(comparison, reference, number)
            }
            (Some(Step::Small(number)), Some(Step::Load(reference))) => {
                Step::compare(comparison.mirrored(), reference, number)
            }
            _ => None,
        };
        if one_step.is_some() {
            self.program.truncate(left.step.into());
        }
        self.push(one_step.unwrap_or(Step::Compare(comparison)), place)
    }

    /// The step of an operand that has a single one, and ends before `end`.
    fn only_step(&self, operand: &Operand, end: u8) -> Option<Step> {
        let is_single = u32::from(operand.step) + 1 == end.into();
        let step = self.program.steps().get(usize::from(operand.step));
        step.filter(|_| is_single).copied()
    }

    /// The step of the last operand of the program, if it has a single one.
    fn last_step(&self, operand: &Operand) -> Option<Step> {
        self.only_step(operand, self.program.step_count() as u8)
    }

    /// The number of the last operand of the program, if it is a constant.
    fn constant(&self, operand: &Operand) -> Option<Number> {
        match *self.program.steps().get(usize::from(operand.step)..)? {
            [Step::Small(number)] => Some(Number::Signed(small_integer(number))),
            [
                Step::Wide(wide, upper),
                Step::Data(middle),
                Step::Data(lower),
            ] => Some(wide_number(wide, upper, middle, lower)),
            _ => None,
        }
    }
}

/// Parses the name after a `.`. Returns where it ends.
fn name(lexer: &mut Lexer<'_>) -> Result<usize, ParseError> {
    match lexer.next()? {
        (Token::Name, place) => Ok(place.end),
        (token, place) => Err(ParseError::new(
            ErrorKind::ExpectedName(token.found()),
            place,
        )),
    }
}

/// Parses the index after a `[`, and the `]`. Returns where it ends.
fn index(lexer: &mut Lexer<'_>) -> Result<usize, ParseError> {
    match lexer.next()? {
        (Token::Integer(_), _) => {}
        (token, place) => {
            return Err(ParseError::new(
                ErrorKind::ExpectedIndex(token.found()),
                place,
            ));
        }
    }
    match lexer.next()? {
        (
            Token::Symbol(Symbol {
                role: Role::CloseBracket,
                ..
            }),
            place,
        ) => Ok(place.end),
        (token, place) => Err(ParseError::new(
            ErrorKind::ExpectedBracket(token.found()),
            place,
        )),
    }
}

fn check_condition(operand: &Operand) -> Result<(), ParseError> {
    match operand.kind {
        Kind::Text => Err(ParseError::new(ErrorKind::TextAsCondition, operand.place())),
        _ => Ok(()),
    }
}

fn check_bits(operand: &Operand) -> Result<(), ParseError> {
    let kind = match operand.kind {
        Kind::Text => ErrorKind::TextAsNumber,
        Kind::Float => ErrorKind::FloatBits,
        Kind::Any | Kind::Number => return Ok(()),
    };
    Err(ParseError::new(kind, operand.place()))
}

fn check_comparison(
    comparison: Comparison,
    left: &Operand,
    right: &Operand,
) -> Result<(), ParseError> {
    let whole = left.start.into()..right.end.into();
    let (text, other) = match (left.kind, right.kind) {
        (Kind::Text, _) => (left, right),
        (_, Kind::Text) => (right, left),
        _ => return Ok(()),
    };
    let (kind, place) = match (comparison, other.kind) {
        (Comparison::Equal | Comparison::NotEqual, Kind::Any) => return Ok(()),
        (Comparison::Equal | Comparison::NotEqual, Kind::Text) => (ErrorKind::ConstantTexts, whole),
        (Comparison::Equal | Comparison::NotEqual, _) => (ErrorKind::TextWithNumber, whole),
        _ => (ErrorKind::OrderedText, text.place()),
    };
    Err(ParseError::new(kind, place))
}

/// A stack of fixed size.
#[derive(Debug)]
#[repr(C)]
struct Stack<T, const SIZE: usize> {
    slots: [T; SIZE],
    len: usize,
}

impl<T: Copy, const SIZE: usize> Stack<T, SIZE> {
    fn new(filler: T) -> Self {
        Self {
            slots: [filler; SIZE],
            len: 0,
        }
    }

    /// `None` if there is no room.
    fn push(&mut self, value: T) -> Option<()> {
        *self.slots.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<T> {
        let value = self.last_mut().copied()?;
        self.len -= 1;
        Some(value)
    }

    fn last_mut(&mut self) -> Option<&mut T> {
        self.slots.get_mut(self.len.checked_sub(1)?)
    }
}
