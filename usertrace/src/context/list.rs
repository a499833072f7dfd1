//! The contexts that a channel has.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use usertrace_sys::uapi::LTT_MAX_CONTEXTS;

use super::Kind;

/// The contexts of a channel, in the order in which they are in its payloads. All zeros: none.
///
/// Changed only while the channel is closed, and nobody is in it.
#[derive(Debug, Default)]
pub(crate) struct List {
    len: AtomicU32,
    codes: [AtomicU8; LTT_MAX_CONTEXTS],
}

impl List {
    /// Makes it these. What is more than a channel can have is left out.
    pub(crate) fn set(&self, kinds: impl Iterator<Item = Kind>) {
        let mut len = 0;
        for (kind, code) in kinds.zip(&self.codes) {
            // Relaxed: the channel is opened after this.
            code.store(kind.code(), Ordering::Relaxed);
            len += 1;
        }
        self.len.store(len, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.len.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let len = self.len.load(Ordering::Relaxed) as usize;
        let codes = self.codes.iter().take(len);
        codes.filter_map(|code| Kind::of_code(code.load(Ordering::Relaxed)))
    }
}
