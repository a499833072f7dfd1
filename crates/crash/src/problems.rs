//! What was wrong with a dump.

use std::fmt::Display;

use serde::Serialize;

use usertrace_sys::printable;

/// What could not be read, and where. There may be more of it than anybody wants to read: messages
/// beyond a limit are counted only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The first ones.
    pub messages: Vec<String>,
    /// All of them.
    pub count: u64,
}

impl Problems {
    /// Messages that are kept.
    const LIMIT: usize = 100;

    /// One more.
    pub fn add(&mut self, message: impl Display) {
        self.count += 1;
        if self.messages.len() < Self::LIMIT {
            // They go to terminals, and a dump may have any name in it.
            self.messages.push(printable(&message.to_string()));
        }
    }

    /// Was there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
