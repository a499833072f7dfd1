//! What call stacks are weighed by.

/// What a profile adds up for each call stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weight {
    /// Events.
    #[default]
    Events,
    /// Bytes that events are about: the sizes of allocations, or what field `bytes`, `size` or
    /// `len` says.
    Bytes,
    /// Time between events that begin and end something in a thread, without that of what is
    /// within it, in ns.
    Time,
    /// Bytes of allocations that are not released at the end.
    Live,
    /// Bytes of allocations that were in use when their process had the most in use.
    Peak,
}

impl Weight {
    /// All weights.
    pub const ALL: [Self; 5] = [
        Self::Events,
        Self::Bytes,
        Self::Time,
        Self::Live,
        Self::Peak,
    ];

    /// Its name, in options and in pages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Bytes => "bytes",
            Self::Time => "time",
            Self::Live => "live",
            Self::Peak => "peak",
        }
    }
}

/// A weight of each kind, by [`Weight`].
pub(crate) type Weights = [u64; Weight::ALL.len()];

/// Adds weights to others.
pub(crate) fn add(to: &mut Weights, more: &Weights) {
    for (to, more) in to.iter_mut().zip(more) {
        *to = to.saturating_add(*more);
    }
}
