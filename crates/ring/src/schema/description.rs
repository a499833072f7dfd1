//! Descriptions: the lines of the control channel.

use super::{Contexts, Counting, DescriptionError, Event, ModuleChange, cmdline, line};

/// A parsed description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Description {
    /// An event.
    Event(Event),
    /// The contexts of a channel.
    Contexts(Contexts),
    /// What a channel counts by.
    Counting(Counting),
    /// The command line of the process: arguments separated by spaces. A long one is truncated.
    Cmdline(String),
    /// A module that was loaded or unloaded.
    Module(ModuleChange),
}

impl Description {
    /// Parses a description, with or without the NUL at its end.
    ///
    /// # Errors
    /// If the line is not a description.
    pub fn parse(line: &[u8]) -> Result<Self, DescriptionError> {
        let line = line::text(line)?;
        if Contexts::is_described_by(line) {
            return Contexts::parse(line).map(Self::Contexts);
        }
        if Counting::is_described_by(line) {
            return Counting::parse(line).map(Self::Counting);
        }
        if cmdline::is_described_by(line) {
            return cmdline::parse(line).map(Self::Cmdline);
        }
        if ModuleChange::is_described_by(line) {
            return ModuleChange::parse(line).map(Self::Module);
        }
        Event::of_line(line).map(Self::Event)
    }

    /// Formats the description, see [`Description::parse`].
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Event(event) => event.line(),
            Self::Contexts(contexts) => contexts.line(),
            Self::Counting(counting) => counting.line(),
            Self::Cmdline(text) => cmdline::line(text),
            Self::Module(change) => change.line(),
        }
    }
}
