//! Formats text into memory of the caller, without allocating. Async-signal-safe.

use std::fmt::{self, Display, Write};

use crate::protocol::VERSION;

/// A text in a buffer of the caller. An item that does not fit is omitted as a whole.
#[derive(Debug)]
pub struct Text<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Text<'a> {
    /// An empty text in `room`.
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, len: 0 }
    }

    /// A text that consists of the first `len` bytes of `room`.
    pub fn after(room: &'a mut [u8], len: usize) -> Self {
        Self { room, len }
    }

    /// Appends an item, or nothing.
    ///
    /// # Errors
    /// If the item does not fit.
    pub fn push(&mut self, what: fmt::Arguments<'_>) -> fmt::Result {
        let before = self.len;
        self.write_fmt(what).inspect_err(|_| self.len = before)
    }

    /// Length of the text in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shortens the text to `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Ends the text, and returns its bytes.
    #[must_use]
    pub fn get(self) -> &'a [u8] {
        &self.room[..self.len]
    }

    /// The bytes of the text so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.room.get_mut(self.len..self.len + text.len());
        room.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Formats an error packet; without its text if that does not fit.
pub fn error<'a>(room: &'a mut [u8], what: &dyn Display) -> &'a [u8] {
    let mut text = Text::new(room);
    if text.push(format_args!("{VERSION}error {what}")).is_err() {
        let _ = text.push(format_args!("{VERSION}error"));
    }
    text.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_do_not_fit_are_omitted() {
        let mut room = [0; 10];
        let mut text = Text::new(&mut room);
        assert!(text.push(format_args!("{}-{}", 12, "abc")).is_ok());
        assert!(text.push(format_args!("{}{}", 1, "23456")).is_err());
        assert!(text.push(format_args!("7890")).is_ok());
        assert!(text.push(format_args!("1")).is_err());
        assert_eq!(text.get(), b"12-abc7890");
        assert_eq!(error(&mut room, &"too long for it"), b"1 error");
    }
}
