//! The outcomes of a run.

use std::fmt;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command ended with status 0.
    Passed,
    /// The command ended with this status; 128 + N if signal N killed it.
    Failed(u8),
    /// The harness, QEMU, or a stream of the guest is broken: nothing is known about the command.
    Infra(String),
    /// The kernel panicked.
    Panicked(String),
    /// The guest showed no sign of life for too long.
    Hung(String),
    /// The guest lived, but the command was not over in time.
    TimedOut(String),
    /// The command ended, but the kernel reported an error of its own.
    Splat(String),
}

impl Outcome {
    /// The status of `scripts/guest`. If a command itself exits with one of 120 to 124, the outcome
    /// file tells the difference. So does standard error, which names an outcome only if it is not
    /// the command's own.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed(code) => *code,
            Self::Infra(_) => 120,
            Self::Panicked(_) => 121,
            Self::Hung(_) => 122,
            Self::TimedOut(_) => 123,
            Self::Splat(_) => 124,
        }
    }

    /// Whether the status is the command's own.
    #[must_use]
    pub fn is_commands_own(&self) -> bool {
        matches!(self, Self::Passed | Self::Failed(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "passed"),
            Self::Failed(code) => write!(f, "failed: status {code}"),
            Self::Infra(why) => write!(f, "broken harness: {why}"),
            Self::Panicked(why) => write!(f, "kernel panic: {why}"),
            Self::Hung(why) => write!(f, "hang: {why}"),
            Self::TimedOut(why) => write!(f, "timeout: {why}"),
            Self::Splat(why) => write!(f, "kernel splat: {why}"),
        }
    }
}
