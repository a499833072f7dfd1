//! The list of a channel's contexts.

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use usertrace_sys::uapi::LTT_MAX_CONTEXTS;

use super::Kind;

/// The contexts of a channel, in the order of its payloads. All zeros is an empty list.
///
/// It changes only while the channel is closed and quiescent.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct List {
    len: AtomicU16,
    /// The longest call stack in the list; 0: none.
    frames: AtomicU16,
    codes: [AtomicU8; LTT_MAX_CONTEXTS],
}

impl List {
    /// Appends a context, unless the list is full.
    pub(crate) fn push(&self, kind: Kind) {
        let len = self.len.load(Ordering::Relaxed);
        if let Some(code) = self.codes.get(len as usize) {
            // Relaxed: the channel is opened after this.
            code.store(kind.code(), Ordering::Relaxed);
            self.len.store(len + 1, Ordering::Relaxed);
            if let Kind::Callstack(frames) = kind {
                let longest = self.frames().max(usize::from(frames));
                self.frames.store(longest as u16, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn clear(&self) {
        // A store of what is there would cost most processes a page.
        if !self.is_empty() {
            self.len.store(0, Ordering::Relaxed);
            self.frames.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// The longest call stack in the list; 0: none.
    #[inline(always)]
    pub(crate) fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed).into()
    }

    /// Whether a call stack is the only context.
    #[inline(always)]
    pub(crate) fn is_callstack_alone(&self) -> bool {
        self.frames() > 0 && self.len.load(Ordering::Relaxed) == 1
    }

    /// True if the events of the channel need their place.
    pub(crate) fn wants_place(&self) -> bool {
        self.has(Kind::Ip) || self.frames() > 0
    }

    /// True if the list contains the context.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.kinds().any(|other| other == kind)
    }

    /// The contexts.
    #[inline(always)]
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let len = self.len.load(Ordering::Relaxed) as usize;
        let codes = self.codes[..len.min(LTT_MAX_CONTEXTS)].iter();
        codes.filter_map(|code| Kind::of_code(code.load(Ordering::Relaxed)))
    }
}
