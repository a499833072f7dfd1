//! Problems of a dump, as text.

use std::fmt::Display;

use serde::Serialize;

use usertrace_sys::printable;

/// What could not be read, and where. Messages beyond a limit are only counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The first messages.
    pub messages: Vec<String>,
    /// Number of all problems.
    pub count: u64,
}

impl Problems {
    /// Maximum number of messages.
    const LIMIT: usize = 100;

    /// Adds a message.
    pub fn add(&mut self, message: impl Display) {
        self.count += 1;
        if self.messages.len() < Self::LIMIT {
            // Messages go to terminals, and a dump may contain control characters.
            self.messages.push(printable(&message.to_string()));
        }
    }

    /// Whether there are no problems.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
