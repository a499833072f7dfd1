//! All fields as one text.

use std::fmt::{self, Write};

use tracing_core::field::{Field, Visit};

/// `NAME=VALUE`, with spaces between them.
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
        // Only a value can fail here: what it has written until then stays.
        let _ = write!(self.0, "{space}{}={value:?}", field.name());
    }
}
