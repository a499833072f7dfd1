//! Makes text from untrusted sources safe for terminals.

/// Replaces control characters in a text. A process or a file may have any name, and people read
/// names in a terminal, one event per line.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
