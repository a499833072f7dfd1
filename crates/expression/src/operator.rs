//! Operators and their precedences, those of LTTng's grammar.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Unary {
    Plus,
    Minus,
    Not,
    BitNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Bitwise {
    ShiftLeft,
    ShiftRight,
    And,
    Xor,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Comparison {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

// In the order of their discriminants.

impl Unary {
    pub(crate) const ALL: [Self; 4] = [Self::Plus, Self::Minus, Self::Not, Self::BitNot];
}

impl Bitwise {
    pub(crate) const ALL: [Self; 5] = [
        Self::ShiftLeft,
        Self::ShiftRight,
        Self::And,
        Self::Xor,
        Self::Or,
    ];
}

impl Comparison {
    pub(crate) const ALL: [Self; 6] = [
        Self::Less,
        Self::LessEqual,
        Self::Greater,
        Self::GreaterEqual,
        Self::Equal,
        Self::NotEqual,
    ];

    /// The comparison whose result is the same with exchanged sides.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            Self::Equal | Self::NotEqual => self,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Binary {
    Bitwise(Bitwise),
    Compare(Comparison),
    And,
    Or,
}

impl Binary {
    /// How tightly the operator binds. Unary operators bind more tightly than binary ones.
    ///
    /// From lttng-enable-event(1) and lttng-tools' `filter-parser.ypp`. There, `&`, `^` and `|`
    /// stand above comparisons.
    pub(crate) fn precedence(self) -> u8 {
        match self {
            Self::Bitwise(Bitwise::ShiftLeft | Bitwise::ShiftRight) => 8,
            Self::Bitwise(Bitwise::And) => 7,
            Self::Bitwise(Bitwise::Xor) => 6,
            Self::Bitwise(Bitwise::Or) => 5,
            Self::Compare(Comparison::Equal | Comparison::NotEqual) => 3,
            Self::Compare(_) => 4,
            Self::And => 2,
            Self::Or => 1,
        }
    }
}
