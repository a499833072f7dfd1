//! How a program serves its control channel.

/// How requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the handler of this signal.
    Signal(i32),
    /// By a thread.
    Thread,
}
