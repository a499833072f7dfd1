//! Reads single contexts of an event, for conditions.

use super::sink::Sink;
use super::values::Values;
use super::{Apps, Kind};
use crate::event::{Frame, Place};
use crate::writer::{Readers, Remembered, Rseq};

/// Where the values of an event's contexts come from.
#[derive(Debug)]
pub(crate) struct ContextSources<'a> {
    pub(crate) apps: fn() -> &'static Apps,
    /// The caches of threads.
    pub(crate) readers: &'a Readers,
    pub(crate) rseq: Option<Rseq>,
    /// Changes each time that threads must query their contexts again.
    pub(crate) stamp: u64,
    /// The event's address.
    pub(crate) ip: usize,
}

/// The bytes of a value that is compared; none of a call stack.
#[derive(Default)]
struct Bytes {
    bytes: [u8; Remembered::NAME_LEN],
    len: usize,
}

impl Sink for Bytes {
    type Mark = usize;

    fn append(&mut self, part: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + part.len()) {
            place.copy_from_slice(part);
            self.len += part.len();
        }
    }

    fn append_numbers<T>(&mut self, _: &[T], _: impl Fn(&T) -> Option<u64>) -> bool {
        true
    }

    fn mark(&self) -> usize {
        self.len
    }

    fn back_to(&mut self, mark: usize) {
        self.len = mark;
    }
}

/// The value of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextValue {
    Number(u64),
    /// A name, which ends before a NUL.
    Name([u8; Remembered::NAME_LEN]),
}

impl ContextSources<'_> {
    /// The value of a context. Asks the kernel if the thread does not have it in its cache.
    pub(crate) fn value(&self, kind: Kind) -> ContextValue {
        let asked;
        let thread = match self.readers.cache() {
            Some(thread) => thread,
            None => {
                asked = Remembered::default();
                &asked
            }
        };
        let values = Values {
            apps: self.apps,
            thread,
            walks: None,
            rseq: self.rseq,
            stamp: self.stamp,
            place: Place::new(self.ip, Frame::Pointer(0)),
            code: None,
        };
        let mut value = Bytes::default();
        values.append(kind, &mut value);
        let bytes = value.bytes;
        match kind {
            Kind::Procname => ContextValue::Name(bytes),
            // Numbers have 4 or 8 bytes in native byte order, which is little-endian on all
            // supported processors.
            _ => ContextValue::Number(u64::from_le_bytes(*bytes.first_chunk().unwrap_or(&[0; 8]))),
        }
    }
}
