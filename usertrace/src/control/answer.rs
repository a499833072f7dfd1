//! Text in memory that is there: what a signal handler can put together.

use std::fmt::{self, Display, Write};

use super::protocol::VERSION;

/// What was written so far. What there is no room for is left out as a whole.
#[derive(Debug)]
pub(super) struct Text<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(room: &'a mut [u8]) -> Self {
        Self { room, len: 0 }
    }

    /// What has so many bytes already.
    pub(super) fn after(room: &'a mut [u8], len: usize) -> Self {
        Self { room, len }
    }

    /// Appends something, or nothing of it.
    pub(super) fn push(&mut self, what: fmt::Arguments<'_>) -> fmt::Result {
        let before = self.len;
        self.write_fmt(what).inspect_err(|_| self.len = before)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(super) fn get(self) -> &'a [u8] {
        &self.room[..self.len]
    }

    pub(super) fn bytes(&self) -> &[u8] {
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

/// A packet that says what is wrong.
pub(super) fn error<'a>(room: &'a mut [u8], what: &dyn Display) -> &'a [u8] {
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
    fn what_does_not_fit_is_left_out() {
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
