//! What a probe is called with.

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

/// Bytes of a long payload that a probe gets.
pub const PAYLOAD_MAX: usize = 1024;

/// What a probe gets: `struct usertrace_record` in C.
#[derive(Debug)]
#[repr(C)]
pub struct Record<'a> {
    pub(super) description: *const c_char,
    pub(super) description_len: usize,
    pub(super) payload: *const u8,
    pub(super) payload_len: usize,
    pub(super) len: usize,
    pub(super) lifetime: PhantomData<&'a [u8]>,
}

impl Record<'_> {
    /// The event's metadata, as in the header `linux/ltt.h`, without the id:
    /// `PROVIDER:NAME LOGLEVEL[ TYPE FIELD[;TYPE FIELD]…]`.
    #[must_use]
    pub fn description(&self) -> &str {
        // SAFETY: `call` made it of a `str`.
        unsafe {
            let bytes =
                std::slice::from_raw_parts(self.description.cast::<u8>(), self.description_len);
            std::str::from_utf8_unchecked(bytes)
        }
    }

    /// The fields, as the description says; up to 7 zeros may follow. Of a long payload these are
    /// the first [`PAYLOAD_MAX`] bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        // SAFETY: `call` made it of a slice.
        unsafe { std::slice::from_raw_parts(self.payload, self.payload_len) }
    }

    /// How many bytes the whole payload has.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a record is no collection")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// A probe's function: it is called with what was given when it was registered.
pub type Call = extern "C" fn(record: &Record<'_>, data: *mut c_void);
