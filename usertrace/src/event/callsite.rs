//! Where events are declared: one static for each, found through a section of the program.

use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, Ordering};

use usertrace_sys::uapi::{LTT_CHANNEL_MAIN, LTT_MAX_CHANNELS, LTT_MAX_TRACES, LTT_META_MAX};

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

/// A bit of a callsite's channel: it goes to none. Who has seen an older mask finds main below it.
const UNWANTED: u8 = 1 << 7;

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
    /// The channel that the event goes to in each slot's trace, and [`UNWANTED`].
    channels: [AtomicU8; LTT_MAX_TRACES],
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
            channels: [const { AtomicU8::new(UNWANTED | LTT_CHANNEL_MAIN as u8) }; LTT_MAX_TRACES],
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

    /// The channel that the event goes to in a slot's trace. It need not be one that is open.
    #[inline(always)]
    pub(crate) fn channel(&self, slot: usize) -> usize {
        usize::from(self.channels[slot].load(Ordering::Relaxed)) % LTT_MAX_CHANNELS
    }

    /// A slot's trace wants the event.
    pub(crate) fn is_wanted(&self, slot: usize) -> bool {
        self.channels[slot].load(Ordering::Relaxed) & UNWANTED == 0
    }

    /// The channel that the event is to go to in a slot's trace; nothing if that does not want it.
    pub(crate) fn set_channel(&self, slot: usize, channel: Option<usize>) {
        let channel = channel.map_or(UNWANTED | LTT_CHANNEL_MAIN as u8, |channel| channel as u8);
        // Relaxed: who sees an older one writes as before. That a channel is open, its own fields say.
        self.channels[slot].store(channel, Ordering::Relaxed);
    }

    /// The event goes nowhere in a slot's trace, and is not described there.
    pub(crate) fn forget(&self, slot: usize) {
        self.ids[slot].store(0, Ordering::Relaxed);
        self.set_channel(slot, None);
    }

    /// `PROVIDER:NAME`
    pub(crate) fn full_name(&self) -> &'static str {
        self.description.split(' ').next().unwrap_or_default()
    }
}

// What the event path reads lies in one cache line.
const _: () = assert!(std::mem::offset_of!(Callsite, channels) + LTT_MAX_TRACES <= 64);

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
