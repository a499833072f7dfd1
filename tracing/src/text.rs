//! All fields as one text.

use std::fmt::{self, Write};

use tracing_core::field::{Field, Visit};

/// Fields as `NAME=VALUE`, separated by spaces.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        // Only the value's own formatting can fail; keep what it has written.
        let _ = write!(self.0, "{space}{}={value:?}", field.name());
    }
}
