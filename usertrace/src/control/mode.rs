//! The mode in which a program serves its control channel.

/// How a program serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// In the handler of this signal.
    Signal(i32),
    /// In a thread of its own.
    Thread,
}
