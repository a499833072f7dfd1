//! Callsites as the linker gathers them: a section of pointers, in each program and each library.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::callsite::Callsite;

/// What the section `usertrace_callsites` consists of.
///
/// Atomic so that all entries come into a writable section, as the dynamic linker relocates them;
/// and so that one can be taken out that is none.
#[doc(hidden)]
#[derive(Debug)]
#[repr(transparent)]
pub struct Entry(AtomicPtr<Callsite>);

impl Entry {
    /// An entry for a callsite.
    #[must_use]
    pub const fn new(callsite: &'static Callsite) -> Self {
        Self(AtomicPtr::new(std::ptr::from_ref(callsite).cast_mut()))
    }
}

/// The entries of one program or library, `start` up to `stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) start: *const Entry,
    pub(crate) stop: *const Entry,
}

impl Section {
    /// Its entries.
    ///
    /// # Safety
    /// They must be there for as long as `'a`.
    unsafe fn entries<'a>(self) -> &'a [Entry] {
        let len = (self.stop.addr() - self.start.addr()) / size_of::<Entry>();
        if len == 0 {
            // There may be no section at all.
            return &[];
        }
        // SAFETY: the entries are there for `'a`, as this function's caller promises.
        unsafe { std::slice::from_raw_parts(self.start, len) }
    }

    /// Its callsites.
    ///
    /// # Safety
    /// All entries must be of callsites, or NULL, and stay for as long as `'a`.
    pub(crate) unsafe fn callsites<'a>(self) -> impl Iterator<Item = &'a Callsite> {
        // SAFETY: they are there for `'a`, as this function's caller promises.
        let entries = unsafe { self.entries() };
        // SAFETY: an entry is of a callsite, or NULL, as this function's caller promises. Relaxed:
        // who registered the section published its entries.
        entries
            .iter()
            .filter_map(|entry| unsafe { entry.0.load(Ordering::Relaxed).as_ref() })
    }

    /// Takes out the entries of callsites that cannot be described, and says how many these are.
    ///
    /// # Safety
    /// As [`callsites`](Self::callsites), but of a callsite nothing need be right but its place and
    /// that of its text.
    pub(crate) unsafe fn take_unsound(self) -> usize {
        let mut unsound = 0;
        // SAFETY: the section is there, as this function's caller promises.
        for entry in unsafe { self.entries() } {
            // SAFETY: what an entry leads to is there, as this function's caller promises.
            let callsite = unsafe { entry.0.load(Ordering::Relaxed).as_ref() };
            if callsite.is_some_and(|callsite| !callsite.is_sound()) {
                entry.0.store(std::ptr::null_mut(), Ordering::Relaxed);
                unsound += 1;
            }
        }
        unsound
    }
}

/// Makes the section exist in a program that declares no event.
#[used]
#[unsafe(link_section = "usertrace_callsites")]
static NONE: Entry = Entry(AtomicPtr::new(std::ptr::null_mut()));

// The linker makes these symbols, in each program and in each library for itself; they enclose the
// section. Hidden: no library must find those of another one.
std::arch::global_asm!(
    ".hidden __start_usertrace_callsites",
    ".hidden __stop_usertrace_callsites"
);

unsafe extern "C" {
    #[link_name = "__start_usertrace_callsites"]
    static START: Entry;
    #[link_name = "__stop_usertrace_callsites"]
    static STOP: Entry;
}

/// That of the program, or of the library if this crate is linked into one.
pub(crate) fn own() -> Section {
    Section {
        start: &raw const START,
        stop: &raw const STOP,
    }
}
