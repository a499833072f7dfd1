//! The result of an expression, in Kleene's logic.

/// The result of an expression for one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// The event does not match.
    False,
    /// The event lacks what decides it, so it does not match.
    Unknown,
    /// The event matches.
    True,
}

impl Answer {
    /// Whether the event is to be kept.
    #[inline]
    pub fn is_match(self) -> bool {
        self == Self::True
    }

    // The order False < Unknown < True makes Kleene's operations a minimum and a maximum.

    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        self.min(other)
    }

    #[inline]
    pub(crate) fn or(self, other: Self) -> Self {
        self.max(other)
    }

    #[inline]
    pub(crate) fn not(self) -> Self {
        match self {
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
            Self::True => Self::False,
        }
    }
}

impl From<bool> for Answer {
    #[inline]
    fn from(answer: bool) -> Self {
        if answer { Self::True } else { Self::False }
    }
}
