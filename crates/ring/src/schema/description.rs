//! A line of the control channel.

use usertrace_sys::uapi::LTT_META_MAX;

use super::{Contexts, DescriptionError, Event, cmdline};

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
        let line = line.strip_suffix(&[0]).unwrap_or(line);
        if line.len() >= LTT_META_MAX {
            return Err(DescriptionError::TooLong);
        }
        let line = std::str::from_utf8(line).map_err(|_| DescriptionError::NotText)?;
        if line.chars().any(char::is_control) {
            return Err(DescriptionError::NotText);
        }
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
