//! Numbers and names in a description.

/// A decimal number, of digits only.
pub(super) fn decimal(text: &str) -> Option<u32> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// A name of a field, or a part of an event's.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace)
}
