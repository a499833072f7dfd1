//! Where events are declared: one static for each, found through a section of the program.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use usertrace_sys::description::is_event;
use usertrace_sys::limits::{CHANNELS, SLOTS};
use usertrace_sys::uapi::{LTT_CHANNEL_MAIN, LTT_META_MAX};

use crate::writer::{Channel, Route};

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

impl Loglevel {
    /// All of them, by their numbers.
    const ALL: [Self; 15] = [
        Self::Emergency,
        Self::Alert,
        Self::Critical,
        Self::Error,
        Self::Warning,
        Self::Notice,
        Self::Info,
        Self::DebugSystem,
        Self::DebugProgram,
        Self::DebugProcess,
        Self::DebugModule,
        Self::DebugUnit,
        Self::DebugFunction,
        Self::DebugLine,
        Self::Debug,
    ];

    /// The one that has this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// A bit of [`Callsite::mask`] beyond those of the slots: after `fork`, this process must get
/// buffers of its own first.
pub(crate) const ATTACH: u32 = 1 << 31;

/// Another one: the event calls probes. It goes the long way then.
pub(crate) const PROBED: u32 = 1 << 30;

/// And another one: a trace wants to know where in the program the event is. It goes the long way,
/// too.
pub(crate) const HERE: u32 = 1 << 29;

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
    /// The short way, if there is one slot and its rings are of CPUs. First, so that one register
    /// has both addresses.
    route: Route,
    /// The event's id in each slot's trace; 0: not described there.
    ids: [AtomicU16; SLOTS],
    /// A bit for each slot whose trace wants the event, [`ATTACH`], [`PROBED`], and [`HERE`].
    mask: AtomicU32,
    /// The channel that the event goes to in each slot's trace, and [`UNWANTED`].
    channels: [AtomicU8; SLOTS],
    description: Text,
    /// A bit for each probe that the event calls.
    probes: AtomicU64,
}

impl Callsite {
    /// Made by [`tracepoint!`](crate::tracepoint), which also makes the description: a line as in
    /// the header `linux/ltt.h`, without the id.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        provider: &'static str,
        name: &'static str,
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
            "a description has a character that it cannot have"
        );
        assert!(
            ID_ROOM + description.len() < LTT_META_MAX,
            "the event has too many fields"
        );
        Self::described(description)
    }

    pub(crate) const fn described(description: &'static str) -> Self {
        Self {
            mask: AtomicU32::new(0),
            route: Route::none(),
            ids: [const { AtomicU16::new(0) }; SLOTS],
            channels: [const { AtomicU8::new(UNWANTED | LTT_CHANNEL_MAIN as u8) }; SLOTS],
            description: Text::new(description),
            probes: AtomicU64::new(0),
        }
    }

    /// Gives a callsite that C made its description.
    ///
    /// # Safety
    /// It must be a callsite that is not registered, and nobody else do this meanwhile.
    #[doc(hidden)]
    pub unsafe fn set_description(callsite: *mut Self, description: &'static str) {
        // SAFETY: the callsite is there, and nobody describes it yet, as this function's caller
        // promises. What the event path reads is left alone.
        unsafe { (&raw mut (*callsite).description).write(Text::new(description)) };
    }

    /// Some trace wants the event, or a probe.
    #[inline(always)]
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.mask.load(Ordering::Relaxed) != 0
    }

    /// Not 0: some trace wants the event, or a probe.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn wanted(&self) -> u32 {
        self.mask()
    }

    /// Who declares it: the part before the colon.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.full_name().split(':').next().unwrap_or_default()
    }

    /// Its name: the part after the colon.
    #[must_use]
    pub fn name(&self) -> &str {
        self.full_name().split(':').nth(1).unwrap_or_default()
    }

    /// How important it is.
    #[must_use]
    pub fn loglevel(&self) -> Loglevel {
        let level = self.description().split(' ').nth(1);
        // A description without one is not taken in.
        level
            .and_then(|level| Loglevel::from_number(level.parse().ok()?))
            .unwrap_or(Loglevel::Info)
    }

    /// Its metadata, as in the header `linux/ltt.h`, without the id.
    #[must_use]
    pub fn description(&self) -> &str {
        self.description.get()
    }

    #[inline(always)]
    pub(crate) fn mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    /// Which traces want the event; it goes the long way.
    pub(crate) fn set_mask(&self, mask: u32) {
        self.route.clear();
        // Probes come and go meanwhile.
        let update = |before| Some(before & PROBED | mask);
        // Release pairs with the fence in the event path: who sees a slot's bit sees the channels
        // and the id in that slot.
        let _ = self
            .mask
            .fetch_update(Ordering::Release, Ordering::Relaxed, update);
    }

    /// Lets the event go the short way, if no probe wants it.
    ///
    /// # Safety
    /// As [`Route::set`]'s.
    pub(crate) unsafe fn set_route(&self, channel: &Channel, id: u16) {
        // SAFETY: the channel stays, as this function's caller promises.
        unsafe { self.route.set(channel, id) };
        // Pairs with the one in `set_probes`: either this sees the bit, or that one clears the
        // route after this.
        fence(Ordering::SeqCst);
        if self.mask() & PROBED != 0 {
            self.route.clear();
        }
    }

    /// The probes that the event calls: a bit for each.
    pub(crate) fn probes(&self) -> u64 {
        // With `set_probes`: who enters a probe, and then still sees its bit, is seen by who took
        // the bit out.
        self.probes.load(Ordering::SeqCst)
    }

    /// Likewise. Where none is left, an update brings the short way back.
    pub(crate) fn set_probes(&self, probes: u64) {
        // SeqCst, as `probes` says; and who sees the mask's bit sees these.
        self.probes.store(probes, Ordering::SeqCst);
        if probes == 0 {
            self.mask.fetch_and(!PROBED, Ordering::Relaxed);
            return;
        }
        // Release pairs with the fence in the event path.
        self.mask.fetch_or(PROBED, Ordering::Release);
        // Pairs with the one in `set_route`.
        fence(Ordering::SeqCst);
        self.route.clear();
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
        usize::from(self.channels[slot].load(Ordering::Relaxed)) % CHANNELS
    }

    /// Likewise; nothing if the slot's trace does not want the event.
    pub(crate) fn wanted_channel(&self, slot: usize) -> Option<usize> {
        let channel = self.channels[slot].load(Ordering::Relaxed);
        (channel & UNWANTED == 0).then(|| usize::from(channel) % CHANNELS)
    }

    /// A slot's trace wants the event.
    pub(crate) fn is_wanted(&self, slot: usize) -> bool {
        self.wanted_channel(slot).is_some()
    }

    /// The channel that the event is to go to in a slot's trace; nothing if that does not want it.
    pub(crate) fn set_channel(&self, slot: usize, channel: Option<usize>) {
        let channel = channel.map_or(UNWANTED | LTT_CHANNEL_MAIN as u8, |channel| channel as u8);
        // Relaxed: who sees an older one writes as before. That a channel is open, its own fields
        // say.
        self.channels[slot].store(channel, Ordering::Relaxed);
    }

    /// The event goes nowhere in a slot's trace, and is not described there.
    pub(crate) fn forget(&self, slot: usize) {
        self.ids[slot].store(0, Ordering::Relaxed);
        self.set_channel(slot, None);
    }

    /// `PROVIDER:NAME`
    pub(crate) fn full_name(&self) -> &str {
        self.description().split(' ').next().unwrap_or_default()
    }

    /// It is one that can be described: a callsite that C made may be anything.
    pub(crate) fn is_sound(&self) -> bool {
        is_sound(self.description.bytes())
    }
}

/// Whether this describes an event so that readers understand it.
pub(crate) fn is_sound(description: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(description) else {
        return false;
    };
    let mut words = text.splitn(3, ' ');
    let name = words.next().and_then(|name| name.split_once(':'));
    let level = words.next().and_then(|level| level.parse::<u32>().ok());
    name.is_some_and(|(provider, name)| is_name(provider) && is_name(name))
        && level.is_some_and(|level| level <= Loglevel::Debug as u32)
        && is_line(text)
        && is_event(text)
}

/// A text that stays, in the way of C.
#[derive(Debug)]
#[repr(C)]
struct Text {
    start: *const u8,
    len: usize,
}

// SAFETY: it is as good as a `&'static [u8]`.
unsafe impl Send for Text {}
// SAFETY: likewise.
unsafe impl Sync for Text {}

impl Text {
    const fn new(text: &'static str) -> Self {
        Self {
            start: text.as_ptr(),
            len: text.len(),
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: made from a `&'static str`, or by C for as long as the callsite is registered.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    fn get(&self) -> &str {
        // SAFETY: made from a `str`, or by C and found to be one when it was registered.
        unsafe { std::str::from_utf8_unchecked(self.bytes()) }
    }
}

// What the event path reads lies in one cache line.
const _: () = assert!(std::mem::offset_of!(Callsite, channels) + SLOTS <= 64);

/// What names of providers, events and probes are made of.
pub(crate) const fn is_name_byte(byte: u8) -> bool {
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
        let other = matches!(
            bytes[at],
            b' ' | b':' | b';' | b'[' | b']' | b'{' | b'}' | b'=' | b',' | b'%'
        );
        if !is_name_byte(bytes[at]) && !other {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::{Geometry, Prefault, Wakeup};
    use usertrace_sys::{Mode, Protocol, Scope};

    #[repr(align(4096))]
    #[derive(Clone)]
    struct Page(#[allow(dead_code, reason = "for its length")] [u8; 4096]);

    /// E4: an event that a slot's trace does not want has no channel there, whoever saw an older
    /// mask.
    #[test]
    fn what_is_not_wanted_has_no_channel() {
        let callsite = Callsite::new("test", "wanted", "test:wanted 6");
        assert_eq!(callsite.wanted_channel(3), None);
        callsite.set_channel(3, Some(5));
        assert_eq!(
            (callsite.channel(3), callsite.wanted_channel(3)),
            (5, Some(5))
        );
        callsite.forget(3);
        assert_eq!(callsite.wanted_channel(3), None);
    }

    /// One of one ring.
    fn channel() -> &'static Channel {
        let memory = Vec::leak(vec![Page([0; 4096]); 3]).as_mut_ptr();
        let channel: &'static Channel = Box::leak(Box::default());
        let geometry = Geometry {
            buffers: memory.wrapping_add(1).cast(),
            control: memory.cast(),
            control_stride: 128,
            subbuf_size: 4096,
            subbuf_count: 2,
            nr_rings: 1,
            scope: Scope::Cpu,
            mode: Mode::Discard,
            protocol: Protocol::Rseq,
            wakeup: Wakeup::None,
            prefault: Prefault::Never,
            contexts: false,
            clock: crate::clock::Source::Processor,
            visits: None,
        };
        // SAFETY: the memory is as the geometry says, and stays.
        unsafe { channel.open(&geometry) }.unwrap();
        channel
    }

    /// B2: from the instant on at which a probe is activated, the short way would pass it by;
    /// nothing else needs to happen first, and no update that is under way brings it back.
    #[test]
    fn b2_what_calls_a_probe_goes_the_long_way_at_once() {
        let (channel, callsite) = (channel(), Callsite::new("a", "b", "a:b 6"));
        // SAFETY: the channel stays.
        let set_route = || unsafe { callsite.set_route(channel, 16) };
        let is_short = || callsite.route().channel().is_some();
        callsite.set_mask(1);
        set_route();
        assert!(is_short());
        callsite.set_probes(1 << 5);
        assert!(!is_short());
        assert_eq!(callsite.mask(), 1 | PROBED);
        set_route();
        assert!(!is_short());
        callsite.set_probes(0);
        assert_eq!(callsite.mask(), 1);
        set_route();
        assert!(is_short());
    }
}
