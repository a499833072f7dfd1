//! Text from elsewhere, as a terminal may have it.

/// The text without control characters. A process, or a file, may have any name, and people read it
/// in a terminal, one event on a line.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
