//! Random filter expressions, and an evaluator that walks their tree, with which the answers of
//! others are compared. It shares no code with `usertrace-expression`, computes in 128 bits, and
//! matches globs with a table.

use proptest::prelude::*;
use proptest::sample::select;
use usertrace_expression::{Answer, Field, Integer};

/// Numbers whose comparisons are likely to differ where something is wrong.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    63,
    64,
    65_535,
    65_536,
    (1 << 23) - 1,
    1 << 23,
    1 << 53,
    (1 << 53) + 1,
    i64::MAX as u64,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - 1,
    u64::MAX,
];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UnaryOp {
    Plus,
    Minus,
    Not,
    BitNot,
}

#[derive(Clone, Debug)]
pub enum Tree {
    /// An index into the names of the fields.
    Field(usize),
    /// With a choice of how it is written.
    Integer(u64, u8),
    Float(f64),
    Text(Vec<Piece>),
    Unary(UnaryOp, Box<Tree>),
    Binary(&'static str, Box<Tree>, Box<Tree>),
    /// Parentheses that are not necessary.
    Group(Box<Tree>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece {
    Star,
    Byte(u8),
}

#[derive(Clone, Debug)]
pub enum Given {
    Missing,
    Signed(i64),
    Unsigned(u64),
    Bool(bool),
    Float(f64),
    Text(Vec<u8>),
    Enumeration(Integer, Vec<Vec<u8>>),
}

impl Given {
    pub fn field<'a>(&'a self, labels: &'a [&'a [u8]]) -> Field<'a> {
        match self {
            Self::Missing => Field::Missing,
            Self::Signed(number) => Field::Signed(*number),
            Self::Unsigned(number) => Field::Unsigned(*number),
            Self::Bool(value) => Field::Bool(*value),
            Self::Float(number) => Field::Float(*number),
            Self::Text(text) => Field::Text(text),
            Self::Enumeration(number, _) => Field::Enumeration(*number, labels),
        }
    }

    pub fn labels(&self) -> Vec<&[u8]> {
        match self {
            Self::Enumeration(_, labels) => labels.iter().map(Vec::as_slice).collect(),
            _ => Vec::new(),
        }
    }
}

/// From the table in lttng-enable-event(1), where 1 binds most tightly.
pub const OPERATORS: [(&str, u8); 13] = [
    ("<<", 2),
    (">>", 2),
    ("&", 3),
    ("^", 4),
    ("|", 5),
    ("<", 6),
    ("<=", 6),
    (">", 6),
    (">=", 6),
    ("==", 7),
    ("!=", 7),
    ("&&", 8),
    ("||", 9),
];

fn precedence(tree: &Tree) -> u8 {
    match tree {
        Tree::Binary(operator, ..) => {
            OPERATORS
                .iter()
                .find(|(known, _)| known == operator)
                .expect("a known operator")
                .1
        }
        Tree::Unary(..) => 1,
        _ => 0,
    }
}

/// Writes a tree with the parentheses that it needs.
pub fn print(tree: &Tree, fields: &[&str], out: &mut Vec<u8>) {
    let inner = |tree: &Tree, limit: u8, out: &mut Vec<u8>| {
        let needs_group = precedence(tree) > limit;
        out.extend(needs_group.then_some(b'('));
        print(tree, fields, out);
        out.extend(needs_group.then_some(b')'));
    };
    match tree {
        Tree::Field(index) => out.extend(fields[*index].bytes()),
        Tree::Integer(number, style) => out.extend(
            match style % 4 {
                0 => format!("{number}"),
                1 => format!("{number:#x}"),
                2 => format!("0{number:o}"),
                _ => format!("{number}uLL"),
            }
            .bytes(),
        ),
        Tree::Float(number) => out.extend(format!("{number:?}").bytes()),
        Tree::Text(pieces) => {
            out.push(b'"');
            for piece in pieces {
                match piece {
                    Piece::Star => out.push(b'*'),
                    Piece::Byte(byte) => {
                        out.extend(b"*\\\"".contains(byte).then_some(b'\\'));
                        out.push(*byte);
                    }
                }
            }
            out.push(b'"');
        }
        Tree::Unary(operator, child) => {
            out.push(match operator {
                UnaryOp::Plus => b'+',
                UnaryOp::Minus => b'-',
                UnaryOp::Not => b'!',
                UnaryOp::BitNot => b'~',
            });
            inner(child, 1, out);
        }
        Tree::Binary(operator, left, right) => {
            let limit = precedence(tree);
            inner(left, limit, out);
            out.extend(format!(" {operator} ").bytes());
            inner(right, limit - 1, out);
        }
        Tree::Group(child) => inner(child, 0, out),
    }
}

/// Generates numbers.
pub fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![4 => select(&NUMBERS[..]), 1 => any::<u64>(), 2 => 0..4_u64]
}

/// Generates floats that are not negative.
pub fn floats() -> impl Strategy<Value = f64> {
    let few = [
        0.0,
        0.5,
        1.0,
        64.0,
        9_007_199_254_740_992.0,
        9.3e18,
        1.9e19,
        1e300,
    ];
    prop_oneof![
        select(few.to_vec()),
        numbers().prop_map(|number| number as f64)
    ]
}

/// Generates texts.
pub fn texts() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(select(b"aab*\\\"\xc3".to_vec()), 0..5)
}

/// Generates constant texts.
pub fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        2 => Just(Piece::Star),
        3 => select(b"aab*\\\"\xc3".to_vec()).prop_map(Piece::Byte)
    ];
    prop::collection::vec(piece, 0..6)
}

/// Generates expressions over so many fields. Some are invalid.
pub fn trees(fields: usize) -> impl Strategy<Value = Tree> {
    let leaf = move || {
        prop_oneof![
            5 => (0..fields).prop_map(Tree::Field),
            4 => (numbers(), any::<u8>()).prop_map(|(number, style)| Tree::Integer(number, style)),
            1 => floats().prop_map(Tree::Float),
            2 => pieces().prop_map(Tree::Text),
        ]
    };
    let comparison = (leaf(), select(vec!["==", "!=", "<", ">="]), leaf()).prop_map(
        |(left, operator, right)| Tree::Binary(operator, Box::new(left), Box::new(right)),
    );
    let unary = [UnaryOp::Plus, UnaryOp::Minus, UnaryOp::Not, UnaryOp::BitNot];
    let mut operators: Vec<_> = OPERATORS.iter().map(|(operator, _)| *operator).collect();
    // Half of all operators are these two, as they skip steps.
    operators.extend(["&&", "||"].repeat(5));
    prop_oneof![1 => leaf(), 3 => comparison].prop_recursive(4, 20, 2, move |inner| {
        let binary = (inner.clone(), select(operators.clone()), inner.clone()).prop_map(
            |(left, operator, right)| Tree::Binary(operator, Box::new(left), Box::new(right)),
        );
        prop_oneof![
            2 => (select(unary.to_vec()), inner.clone())
                .prop_map(|(operator, child)| Tree::Unary(operator, Box::new(child))),
            1 => inner.prop_map(|child| Tree::Group(Box::new(child))),
            5 => binary,
        ]
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Any,
    Number,
    Float,
    Text,
}

fn constant(tree: &Tree) -> Option<i128> {
    match tree {
        Tree::Integer(number, _) => Some((*number).into()),
        Tree::Unary(UnaryOp::Plus, child) => constant(child),
        Tree::Unary(UnaryOp::Minus, child) => Some(-constant(child)?),
        Tree::Group(child) => constant(child),
        _ => None,
    }
}

/// The kind of a tree that the crate must accept. `None` if it must refuse it.
fn kind(tree: &Tree) -> Option<Kind> {
    Some(match tree {
        Tree::Field(_) => Kind::Any,
        Tree::Integer(..) => Kind::Number,
        Tree::Float(_) => Kind::Float,
        Tree::Text(_) => Kind::Text,
        Tree::Group(child) => kind(child)?,
        Tree::Unary(operator, child) => match (operator, kind(child)?) {
            (_, Kind::Text) | (UnaryOp::BitNot, Kind::Float) => return None,
            (UnaryOp::Plus | UnaryOp::Minus, Kind::Float) => Kind::Float,
            _ if constant(tree).is_some_and(|number| number < i64::MIN.into()) => return None,
            _ => Kind::Number,
        },
        Tree::Binary(operator, left, right) => {
            let kinds = [kind(left)?, kind(right)?];
            let (has_text, has_float) = (kinds.contains(&Kind::Text), kinds.contains(&Kind::Float));
            let is_fine = match *operator {
                "==" | "!=" => !has_text || kinds.contains(&Kind::Any),
                "<<" | ">>" | "&" | "^" | "|" => !has_text && !has_float,
                _ => !has_text,
            };
            if !is_fine {
                return None;
            }
            Kind::Number
        }
    })
}

/// Whether the crate must accept the tree as an expression.
pub fn is_valid(tree: &Tree) -> bool {
    kind(tree).is_some_and(|kind| kind != Kind::Text)
}

#[derive(Clone, Debug)]
enum Known {
    Unknown,
    /// With whether it is of an unsigned type.
    Integer(i128, bool),
    Bits(u64),
    Float(f64),
    Text(Vec<u8>),
    Pattern(Vec<Piece>),
    Enumeration(i128, bool, Vec<Vec<u8>>),
}

/// The answer that the crate must give.
pub fn evaluate(tree: &Tree, values: &[Given]) -> Answer {
    truth(&known(tree, values))
}

fn truth(known: &Known) -> Answer {
    match known {
        Known::Unknown | Known::Text(_) | Known::Pattern(_) => Answer::Unknown,
        Known::Integer(number, _) | Known::Enumeration(number, ..) => (*number != 0).into(),
        Known::Bits(bits) => (*bits != 0).into(),
        Known::Float(number) => (*number != 0.0).into(),
    }
}

fn from_answer(answer: Answer) -> Known {
    match answer {
        Answer::True => Known::Integer(1, false),
        Answer::False => Known::Integer(0, false),
        Answer::Unknown => Known::Unknown,
    }
}

fn in_64_bits(number: i128) -> Known {
    if i64::try_from(number).is_ok() {
        Known::Integer(number, false)
    } else if u64::try_from(number).is_ok() {
        Known::Integer(number, true)
    } else {
        Known::Unknown
    }
}

fn known(tree: &Tree, values: &[Given]) -> Known {
    match tree {
        Tree::Field(index) => match &values[*index] {
            Given::Missing => Known::Unknown,
            Given::Signed(number) => Known::Integer((*number).into(), false),
            Given::Unsigned(number) => Known::Integer((*number).into(), true),
            Given::Bool(value) => Known::Integer((*value).into(), false),
            Given::Float(number) => Known::Float(*number),
            Given::Text(text) => Known::Text(text.clone()),
            Given::Enumeration(Integer::Signed(number), labels) => {
                Known::Enumeration((*number).into(), false, labels.clone())
            }
            Given::Enumeration(Integer::Unsigned(number), labels) => {
                Known::Enumeration((*number).into(), true, labels.clone())
            }
        },
        Tree::Integer(number, _) => in_64_bits((*number).into()),
        Tree::Float(number) => Known::Float(*number),
        Tree::Text(pieces) => Known::Pattern(pieces.clone()),
        Tree::Group(child) => known(child, values),
        Tree::Unary(operator, child) => unary(*operator, known(child, values)),
        Tree::Binary(operator, left, right) => {
            binary(operator, known(left, values), known(right, values))
        }
    }
}

fn unary(operator: UnaryOp, value: Known) -> Known {
    if operator == UnaryOp::Not {
        return from_answer(match truth(&value) {
            Answer::True => Answer::False,
            Answer::False => Answer::True,
            Answer::Unknown => Answer::Unknown,
        });
    }
    let value = match value {
        Known::Enumeration(number, unsigned, _) => Known::Integer(number, unsigned),
        other => other,
    };
    match (operator, value) {
        (UnaryOp::Plus, value @ (Known::Integer(..) | Known::Bits(_) | Known::Float(_))) => value,
        (UnaryOp::Minus, Known::Integer(number, _)) => in_64_bits(-number),
        (UnaryOp::Minus, Known::Bits(bits)) => in_64_bits(-i128::from(bits as i64)),
        (UnaryOp::Minus, Known::Float(number)) => Known::Float(-number),
        (UnaryOp::BitNot, Known::Integer(number, _)) => Known::Bits(!(number as u64)),
        (UnaryOp::BitNot, Known::Bits(bits)) => Known::Bits(!bits),
        _ => Known::Unknown,
    }
}

fn binary(operator: &str, left: Known, right: Known) -> Known {
    match operator {
        "&&" => from_answer(match (truth(&left), truth(&right)) {
            (Answer::False, _) | (_, Answer::False) => Answer::False,
            (Answer::True, Answer::True) => Answer::True,
            _ => Answer::Unknown,
        }),
        "||" => from_answer(match (truth(&left), truth(&right)) {
            (Answer::True, _) | (_, Answer::True) => Answer::True,
            (Answer::False, Answer::False) => Answer::False,
            _ => Answer::Unknown,
        }),
        "<<" | ">>" | "&" | "^" | "|" => match (bits(&left), bits(&right)) {
            (Some(left), Some(right)) => bitwise(operator, left, right),
            _ => Known::Unknown,
        },
        _ => from_answer(compare(operator, &left, &right)),
    }
}

fn bits(value: &Known) -> Option<u64> {
    match value {
        Known::Integer(number, _) | Known::Enumeration(number, ..) => Some(*number as u64),
        Known::Bits(bits) => Some(*bits),
        _ => None,
    }
}

fn bitwise(operator: &str, left: u64, right: u64) -> Known {
    Known::Bits(match operator {
        "<<" if right < 64 => ((u128::from(left)) << right) as u64,
        ">>" if right < 64 => left >> right,
        "&" => left & right,
        "^" => left ^ right,
        "|" => left | right,
        _ => return Known::Unknown,
    })
}

/// A side of a comparison as a number: exact, or a float.
fn number(value: &Known, other: &Known) -> Option<Result<i128, f64>> {
    let other_is_unsigned = matches!(
        other,
        Known::Integer(_, true) | Known::Enumeration(_, true, _)
    );
    Some(match value {
        Known::Integer(number, _) | Known::Enumeration(number, ..) => Ok(*number),
        Known::Bits(bits) if other_is_unsigned => Ok((*bits).into()),
        Known::Bits(bits) => Ok((*bits as i64).into()),
        Known::Float(number) => Err(*number),
        _ => return None,
    })
}

fn compare(operator: &str, left: &Known, right: &Known) -> Answer {
    if let (Some(left), Some(right)) = (number(left, right), number(right, left)) {
        let float = |number: Result<i128, f64>| number.map_or_else(|float| float, |n| n as f64);
        return match (left, right) {
            (Ok(left), Ok(right)) => ordered(operator, left, right),
            _ => ordered(operator, float(left), float(right)),
        }
        .into();
    }
    let equal = match (left, right) {
        (Known::Text(text), Known::Pattern(pieces))
        | (Known::Pattern(pieces), Known::Text(text)) => glob(pieces, text),
        (Known::Text(left), Known::Text(right)) => left == right,
        (Known::Enumeration(_, _, labels), Known::Pattern(pieces))
        | (Known::Pattern(pieces), Known::Enumeration(_, _, labels)) => {
            labels.iter().any(|label| glob(pieces, label))
        }
        (Known::Enumeration(_, _, labels), Known::Text(text))
        | (Known::Text(text), Known::Enumeration(_, _, labels)) => labels.contains(text),
        _ => return Answer::Unknown,
    };
    match operator {
        "==" => equal.into(),
        "!=" => (!equal).into(),
        _ => Answer::Unknown,
    }
}

fn ordered<T: PartialOrd>(operator: &str, left: T, right: T) -> bool {
    match operator {
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        ">=" => left >= right,
        "==" => left == right,
        _ => left != right,
    }
}

/// Fills the table of which starts of the pattern match which starts of the text.
pub fn glob(pieces: &[Piece], text: &[u8]) -> bool {
    let mut row = vec![false; text.len() + 1];
    row[0] = true;
    for piece in pieces {
        let mut next = vec![false; text.len() + 1];
        for at in 0..=text.len() {
            next[at] = match piece {
                Piece::Star => row[at] || at > 0 && next[at - 1],
                Piece::Byte(byte) => at > 0 && row[at - 1] && text[at - 1] == *byte,
            };
        }
        row = next;
    }
    row[text.len()]
}
