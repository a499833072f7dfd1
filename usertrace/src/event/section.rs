//! The linker section of call sites: an array of pointers in each program and each library.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::callsite::Callsite;

/// An element of the section `usertrace_callsites`.
///
/// Atomic, so that all entries lie in a writable section, which the dynamic linker relocates, and
/// so that invalid entries can be removed.
#[doc(hidden)]
#[derive(Debug)]
#[repr(transparent)]
pub struct Entry(AtomicPtr<Callsite>);

impl Entry {
    /// Creates the entry of a call site.
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
    /// The entries of the section.
    ///
    /// # Safety
    /// The entries must stay mapped for `'a`.
    unsafe fn entries<'a>(self) -> &'a [Entry] {
        let len = (self.stop.addr() - self.start.addr()) / size_of::<Entry>();
        if len == 0 {
            // The section may be missing.
            return &[];
        }
        // SAFETY: the contract of this function: the entries stay mapped for `'a`.
        unsafe { std::slice::from_raw_parts(self.start, len) }
    }

    /// The call sites of the section.
    ///
    /// # Safety
    /// All entries must point to call sites, or be NULL, and stay valid for `'a`.
    pub(crate) unsafe fn callsites<'a>(self) -> impl Iterator<Item = &'a Callsite> {
        // SAFETY: the contract of this function: the entries stay mapped for `'a`.
        let entries = unsafe { self.entries() };
        // SAFETY: the contract of this function: each entry points to a call site, or is NULL.
        // Relaxed: the registration of the section published its entries.
        entries
            .iter()
            .filter_map(|entry| unsafe { entry.0.load(Ordering::Relaxed).as_ref() })
    }

    /// Removes the entries of call sites with invalid descriptions, and returns their number.
    ///
    /// # Safety
    /// As [`callsites`](Self::callsites), but descriptions need not be valid, only mapped.
    pub(crate) unsafe fn remove_invalid(self) -> usize {
        let mut invalid = 0;
        // SAFETY: the contract of this function: the section is mapped.
        for entry in unsafe { self.entries() } {
            // SAFETY: the contract of this function: an entry points to a mapped call site, or is
            // NULL.
            let callsite = unsafe { entry.0.load(Ordering::Relaxed).as_ref() };
            if callsite.is_some_and(|callsite| !callsite.is_valid()) {
                entry.0.store(std::ptr::null_mut(), Ordering::Relaxed);
                invalid += 1;
            }
        }
        invalid
    }
}

/// Makes the section exist in a program that declares no events.
#[used]
#[unsafe(link_section = "usertrace_callsites")]
static NONE: Entry = Entry(AtomicPtr::new(std::ptr::null_mut()));

// The linker defines these symbols in each program and each library; they enclose the section. They
// are hidden so that no library finds those of another one.
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

/// The section of the program, or of the library that this crate is linked into.
pub(crate) fn own() -> Section {
    Section {
        start: &raw const START,
        stop: &raw const STOP,
    }
}
