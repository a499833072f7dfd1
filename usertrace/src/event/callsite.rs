//! Where events are declared: one static for each, found through a section of the program.

use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering};

use usertrace_sys::uapi::{LTT_MAX_TRACES, LTT_META_MAX};

use crate::writer::Route;

/// How important an event is, as `syslog` and LTTng number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Loglevel {
    Emergency = 0,
    Alert = 1,
    Critical = 2,
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
    DebugSystem = 7,
    DebugProgram = 8,
    DebugProcess = 9,
    DebugModule = 10,
    DebugUnit = 11,
    DebugFunction = 12,
    DebugLine = 13,
    Debug = 14,
}

/// A bit of [`Callsite::mask`] beyond those of the slots: after `fork`, this process must get buffers of its own first.
pub(crate) const ATTACH: u32 = 1 << 31;

/// Room in a description for the id that goes in front of it.
const ID_ROOM: usize = "65535 ".len();

/// The static part of an event.
///
/// What the event path reads comes first, and lies in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Callsite {
    /// The event's id in each slot's trace; 0: not described there.
    ids: [AtomicU16; LTT_MAX_TRACES],
    /// A bit for each slot whose trace wants the event, and [`ATTACH`].
    mask: AtomicU32,
    /// The short way, if there is one slot and its rings are of CPUs.
    route: Route,
    provider: &'static str,
    name: &'static str,
    loglevel: Loglevel,
    description: &'static str,
}

impl Callsite {
    /// Made by [`tracepoint!`](crate::tracepoint), which also makes the description: a line as in the header
    /// `linux/ltt.h`, without the id.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        provider: &'static str,
        name: &'static str,
        loglevel: Loglevel,
        description: &'static str,
    ) -> Self {
        assert!(
            is_name(provider),
            "a provider's name has letters, digits, and _ . - only"
        );
        assert!(
            is_name(name),
            "an event's name has letters, digits, and _ . - only"
        );
        assert!(
            is_line(description),
            "a field's name has letters, digits and _ only"
        );
        assert!(
            ID_ROOM + description.len() < LTT_META_MAX,
            "the event has too many fields"
        );
        Self {
            mask: AtomicU32::new(0),
            route: Route::none(),
            ids: [const { AtomicU16::new(0) }; LTT_MAX_TRACES],
            provider,
            name,
            loglevel,
            description,
        }
    }

    /// Some trace wants the event.
    #[inline(always)]
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.mask.load(Ordering::Relaxed) != 0
    }

    /// Who declares it: the part before the colon.
    #[must_use]
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// Its name: the part after the colon.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How important it is.
    #[must_use]
    pub fn loglevel(&self) -> Loglevel {
        self.loglevel
    }

    /// Its metadata, as in the header `linux/ltt.h`, without the id.
    #[must_use]
    pub fn description(&self) -> &'static str {
        self.description
    }

    #[inline(always)]
    pub(crate) fn mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    /// Who wants the event; it goes the long way.
    pub(crate) fn set_mask(&self, mask: u32) {
        self.route.clear();
        // Pairs with the fence in the event path: who sees a slot's bit sees the channels and the id in that slot.
        self.mask.store(mask, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    #[inline(always)]
    pub(crate) fn id(&self, slot: usize) -> &AtomicU16 {
        &self.ids[slot]
    }
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

const fn is_name(name: &str) -> bool {
    let (bytes, mut at) = (name.as_bytes(), 0);
    while at < bytes.len() {
        if !is_name_byte(bytes[at]) {
            return false;
        }
        at += 1;
    }
    !bytes.is_empty()
}

const fn is_line(line: &str) -> bool {
    let (bytes, mut at) = (line.as_bytes(), 0);
    while at < bytes.len() {
        if !is_name_byte(bytes[at]) && !matches!(bytes[at], b' ' | b':' | b';') {
            return false;
        }
        at += 1;
    }
    true
}

/// What the section `usertrace_callsites` consists of.
///
/// Atomic only so that all entries come into a writable section: the dynamic linker relocates them.
#[doc(hidden)]
#[derive(Debug)]
#[repr(transparent)]
pub struct Entry(AtomicPtr<()>);

impl Entry {
    /// An entry for a callsite.
    #[must_use]
    pub const fn new(callsite: &'static Callsite) -> Self {
        Self(AtomicPtr::new(
            std::ptr::from_ref(callsite).cast_mut().cast(),
        ))
    }
}

/// Makes the section exist in a program that declares no event.
#[used]
#[unsafe(link_section = "usertrace_callsites")]
static NONE: Entry = Entry(AtomicPtr::new(std::ptr::null_mut()));

// The linker makes these symbols, in each program and in each library for itself; they enclose the section.
// Hidden: no library must find those of another one.
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

/// The events that this program declares, or this library if the crate is linked into one.
pub fn callsites() -> impl Iterator<Item = &'static Callsite> {
    let (start, stop) = (&raw const START, &raw const STOP);
    let entries = (stop.addr() - start.addr()) / size_of::<Entry>();
    (0..entries).filter_map(move |n| {
        // SAFETY: all that lies between the symbols are entries, `tracepoint!`'s and `NONE`; those that are not NULL
        // were made from a static.
        unsafe {
            (*start.add(n))
                .0
                .load(Ordering::Relaxed)
                .cast::<Callsite>()
                .as_ref()
        }
    })
}
