//! The arguments of a probe.

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

/// Bytes of a long payload that a probe gets.
pub const PAYLOAD_MAX: usize = 1024;

/// The record that a probe gets: `struct usertrace_record` in C.
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
        // SAFETY: `call_with` took both fields from a `str` that outlives the record.
        unsafe {
            let bytes =
                std::slice::from_raw_parts(self.description.cast::<u8>(), self.description_len);
            std::str::from_utf8_unchecked(bytes)
        }
    }

    /// The payload: the fields, as described, and up to 7 zeros. Of a long payload these are the
    /// first [`PAYLOAD_MAX`] bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        // SAFETY: `call_with` took both fields from a slice that outlives the record.
        unsafe { std::slice::from_raw_parts(self.payload, self.payload_len) }
    }

    /// The length of the whole payload, in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a record is not a collection")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// A probe's function; `data` is the value that it was registered with.
pub type Call = extern "C" fn(record: &Record<'_>, data: *mut c_void);
