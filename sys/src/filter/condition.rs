//! Which conditions of a filter decide about an event.

/// How many conditions may decide about one event. An event with more is refused.
pub const MAX_CONDITIONS: usize = 7;

/// One condition that decides about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Condition(u16);

impl Condition {
    pub(super) fn new(number: u16, refuses: bool) -> Self {
        Self(number << 1 | u16::from(refuses))
    }

    /// The number of its expression, see [`Rules::each_expression`](super::Rules::each_expression).
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0 >> 1)
    }

    /// If it is true, the event is refused. Otherwise: if it is not true.
    #[must_use]
    pub fn refuses(self) -> bool {
        self.0 & 1 != 0
    }
}

/// The conditions of an event that a trace accepts otherwise. The trace gets the event if all of
/// them let it.
///
/// `PATTERN if EXPRESSION` accepts an event of which the expression is true, and refuses others,
/// whatever earlier rules say. `!PATTERN if EXPRESSION` refuses an event of which the expression is
/// true, and leaves others to the rules before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// `MAX_CONDITIONS + 1`: there are too many.
    len: u8,
    list: [Condition; MAX_CONDITIONS],
}

impl Conditions {
    pub(super) fn new() -> Self {
        Self {
            len: 0,
            list: [Condition::default(); MAX_CONDITIONS],
        }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn push(&mut self, condition: Condition) {
        if let Some(place) = self.list.get_mut(usize::from(self.len)) {
            *place = condition;
        }
        self.len = (self.len + 1).min(MAX_CONDITIONS as u8 + 1);
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The conditions; none if there are too many.
    #[must_use]
    pub fn list(&self) -> Option<&[Condition]> {
        self.list.get(..usize::from(self.len))
    }
}
