//! A line of the control channel.

use super::{Contexts, DescriptionError, Event, cmdline, line};

/// What a process described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Description {
    /// An event.
    Event(Event),
    /// What the payloads of a channel begin with.
    Contexts(Contexts),
    /// The command line of the process: arguments with spaces between them, and cut if it is long.
    Cmdline(String),
}

impl Description {
    /// Parses a description, with or without the NUL at its end.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse(line: &[u8]) -> Result<Self, DescriptionError> {
        let line = line::text(line)?;
        if Contexts::is_described_by(line) {
            return Contexts::parse(line).map(Self::Contexts);
        }
        if cmdline::is_described_by(line) {
            return cmdline::parse(line).map(Self::Cmdline);
        }
        Event::of_line(line).map(Self::Event)
    }

    /// As it is parsed.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Event(event) => event.line(),
            Self::Contexts(contexts) => contexts.line(),
            Self::Cmdline(text) => cmdline::line(text),
        }
    }
}
