//! The static part of events: a call site for each declaration, found through a section of the
//! program.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use usertrace_sys::description::is_event;
use usertrace_sys::limits::{CHANNELS, SLOTS};
use usertrace_sys::uapi::{LTT_CHANNEL_MAIN, LTT_META_MAX};

use super::flagged_route::{FlaggedAction, FlaggedRoute};
use crate::writer::{Channel, Route};

/// The log level of an event, with the numbers of `syslog` and LTTng.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
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
    /// All levels, indexed by number.
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

    /// The level with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// A bit of [`Callsite::mask`] above those of the slots: after `fork`, this process must get its
/// own buffers first.
pub(crate) const ATTACH: u32 = 1 << 31;

/// A bit of [`Callsite::mask`]: the event calls probes, and takes the slow path.
pub(crate) const PROBED: u32 = 1 << 30;

/// A bit of [`Callsite::mask`]: a trace wants the event's address. The event takes the slow path.
pub(crate) const WANTS_IP: u32 = 1 << 29;

/// A bit of [`Callsite::mask`]: the conditions of a trace decide about the event. It takes the slow
/// path.
pub(crate) const CONDITIONAL: u32 = 1 << 28;

/// A bit of [`Callsite::mask`]: the event may fire triggers. It takes the slow path.
pub(crate) const TRIGGERING: u32 = 1 << 27;

/// A bit of [`Callsite::mask`]: a trace counts the event. It takes the slow path.
pub(crate) const COUNTED: u32 = 1 << 26;

/// A bit of a call site's channel: the trace does not want the event. The bits below are main, for
/// threads that saw an older mask.
const UNWANTED: u8 = 1 << 7;

/// Bytes reserved for the id that precedes a description.
const ID_ROOM: usize = "65535 ".len();

/// The static part of an event.
///
/// The fields that the event path reads come first, in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Callsite {
    /// The fast path, if one slot wants the event and its rings are per CPU. First, so that one
    /// register addresses both the route and the call site.
    route: Route,
    /// The event's id in each slot's trace; 0: not described there.
    ids: [AtomicU16; SLOTS],
    /// A bit for each slot whose trace wants the event, [`ATTACH`], [`PROBED`], [`WANTS_IP`],
    /// [`CONDITIONAL`], [`TRIGGERING`] and [`COUNTED`].
    mask: AtomicU32,
    /// The channel that the event goes to in each slot's trace, or [`UNWANTED`].
    channels: [AtomicU8; SLOTS],
    /// What replaces the route of an event that is counted, or has conditions. It takes what was
    /// padding, so the size is the same for libraries that do not know it.
    flagged_route: FlaggedRoute,
    description: Text,
    /// A bit for each probe that the event calls.
    probes: AtomicU64,
    /// Where each slot's trace has the conditions of the event, and what it counts the event by; 0:
    /// it has none of these. They take what was padding, too.
    decisions: [AtomicU16; SLOTS],
    /// Where the table of conditions has the triggers that the event may fire; 0: there are none.
    /// It takes what was padding, too.
    triggers: AtomicU16,
}

impl Callsite {
    /// Creates a call site; for [`tracepoint!`](crate::tracepoint), which also composes the
    /// description: a line as in the header `linux/ltt.h`, without the id.
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
            flagged_route: FlaggedRoute::none(),
            description: Text::new(description),
            probes: AtomicU64::new(0),
            decisions: [const { AtomicU16::new(0) }; SLOTS],
            triggers: AtomicU16::new(0),
        }
    }

    /// Sets the description of a call site that C defined.
    ///
    /// # Safety
    /// The call site must not be registered yet, and no other thread may set its description
    /// meanwhile.
    #[doc(hidden)]
    pub unsafe fn set_description(callsite: *mut Self, description: &'static str) {
        // SAFETY: the contract of this function: the call site is mapped, and not in use yet. The
        // fields of the event path stay unchanged.
        unsafe { (&raw mut (*callsite).description).write(Text::new(description)) };
    }

    /// True if a trace or a probe wants the event.
    #[inline(always)]
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.mask.load(Ordering::Relaxed) != 0
    }

    /// The event's mask; not 0 if a trace or a probe wants the event.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn wanted(&self) -> u32 {
        self.mask()
    }

    /// The provider: the part of the name before the colon.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.full_name().split(':').next().unwrap_or_default()
    }

    /// The event's name: the part after the colon.
    #[must_use]
    pub fn name(&self) -> &str {
        self.full_name().split(':').nth(1).unwrap_or_default()
    }

    /// The event's log level.
    #[must_use]
    pub fn loglevel(&self) -> Loglevel {
        let level = self.description().split(' ').nth(1);
        // Registration rejects a description without a level.
        level
            .and_then(|level| Loglevel::from_number(level.parse().ok()?))
            .unwrap_or(Loglevel::Info)
    }

    /// The event's metadata, as in the header `linux/ltt.h`, without the id.
    #[must_use]
    pub fn description(&self) -> &str {
        self.description.get()
    }

    #[inline(always)]
    pub(crate) fn mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    /// Sets the slots whose traces want the event, and clears its routes, so that it takes the slow
    /// path.
    pub(crate) fn set_mask(&self, mask: u32) {
        self.clear_routes();
        // Probes may be changed concurrently, so keep their bit.
        let update = |before| Some(before & PROBED | mask);
        // Release pairs with the fence in the event path: a thread that sees a slot's bit sees the
        // channels and the id in that slot.
        let _ = self
            .mask
            .fetch_update(Ordering::Release, Ordering::Relaxed, update);
    }

    /// Sets the route of the fast path, unless a probe wants the event.
    ///
    /// # Safety
    /// As for [`Route::set`].
    pub(crate) unsafe fn set_route(&self, channel: &Channel, id: u16) {
        // SAFETY: the contract of this function is that of `Route::set`.
        unsafe { self.route.set(channel, id) };
        self.clear_routes_if_probed();
    }

    /// Sets what replaces the route of an event with flags, unless a probe wants the event.
    pub(crate) fn set_flagged_route(&self, action: FlaggedAction) {
        self.flagged_route.set(action);
        self.clear_routes_if_probed();
    }

    fn clear_routes_if_probed(&self) {
        // Pairs with the fence in `set_probes`: either this sees the bit, or that thread clears the
        // routes after the store before this.
        fence(Ordering::SeqCst);
        if self.mask() & PROBED != 0 {
            self.clear_routes();
        }
    }

    /// Makes the event take the slow path.
    pub(crate) fn clear_routes(&self) {
        self.route.clear();
        self.flagged_route.clear();
    }

    /// The probes that the event calls: a bit for each.
    pub(crate) fn probes(&self) -> u64 {
        // SeqCst, with `set_probes`: if a thread enters a probe and still sees its bit, the thread
        // that removes the bit sees it in the probe.
        self.probes.load(Ordering::SeqCst)
    }

    /// Sets the probes that the event calls. After the last one is gone, an update restores the
    /// fast path.
    pub(crate) fn set_probes(&self, probes: u64) {
        // SeqCst, as `probes` says. A thread that sees the mask's bit sees these bits.
        self.probes.store(probes, Ordering::SeqCst);
        if probes == 0 {
            self.mask.fetch_and(!PROBED, Ordering::Relaxed);
            return;
        }
        // Release pairs with the fence in the event path.
        self.mask.fetch_or(PROBED, Ordering::Release);
        // Pairs with the fence in `clear_routes_if_probed`.
        fence(Ordering::SeqCst);
        self.clear_routes();
    }

    #[inline(always)]
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    #[inline(always)]
    pub(crate) fn flagged_route(&self) -> &FlaggedRoute {
        &self.flagged_route
    }

    #[inline(always)]
    pub(crate) fn id(&self, slot: usize) -> &AtomicU16 {
        &self.ids[slot]
    }

    /// The channel that the event goes to in a slot's trace. It may be closed.
    #[inline(always)]
    pub(crate) fn channel(&self, slot: usize) -> usize {
        usize::from(self.channels[slot].load(Ordering::Relaxed)) % CHANNELS
    }

    /// The channel that the event goes to in a slot's trace; none if that does not want it.
    pub(crate) fn wanted_channel(&self, slot: usize) -> Option<usize> {
        let channel = self.channels[slot].load(Ordering::Relaxed);
        (channel & UNWANTED == 0).then(|| usize::from(channel) % CHANNELS)
    }

    /// True if a slot's trace wants the event.
    pub(crate) fn is_wanted(&self, slot: usize) -> bool {
        self.wanted_channel(slot).is_some()
    }

    /// Sets the channel that the event goes to in a slot's trace; none: the trace does not want it.
    pub(crate) fn set_channel(&self, slot: usize, channel: Option<usize>) {
        let channel = channel.map_or(UNWANTED | LTT_CHANNEL_MAIN as u8, |channel| channel as u8);
        // Relaxed: a thread that sees an older value writes to the older channel. Whether a channel
        // is open, its own fields say.
        self.channels[slot].store(channel, Ordering::Relaxed);
    }

    /// The offset of the conditions that a slot's trace has for the event; 0: it has none.
    #[inline(always)]
    pub(crate) fn decision(&self, slot: usize) -> u16 {
        // Pairs with the store in `set_decision`: the conditions were stored before.
        self.decisions[slot].load(Ordering::Acquire)
    }

    pub(crate) fn set_decision(&self, slot: usize, decision: u16) {
        // Pairs with the load in `decision`.
        self.decisions[slot].store(decision, Ordering::Release);
    }

    /// The offset of the triggers that the event may fire; 0: there are none.
    #[inline]
    pub(crate) fn triggers(&self) -> u16 {
        // Pairs with the store in `set_triggers`: the triggers were stored before.
        self.triggers.load(Ordering::Acquire)
    }

    pub(crate) fn set_triggers(&self, triggers: u16) {
        // Pairs with the load in `triggers`.
        self.triggers.store(triggers, Ordering::Release);
    }

    /// Removes the event's channel, id and conditions in a slot's trace.
    pub(crate) fn forget(&self, slot: usize) {
        self.ids[slot].store(0, Ordering::Relaxed);
        self.set_channel(slot, None);
        self.set_decision(slot, 0);
    }

    /// `PROVIDER:NAME`
    pub(crate) fn full_name(&self) -> &str {
        self.description().split(' ').next().unwrap_or_default()
    }

    /// True if the description is valid. A call site that C defined may have any bytes there.
    pub(crate) fn is_valid(&self) -> bool {
        is_valid(self.description.bytes())
    }
}

/// True if readers can parse this description of an event.
pub(crate) fn is_valid(description: &[u8]) -> bool {
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

/// A static string with C layout.
#[derive(Debug)]
#[repr(C)]
struct Text {
    start: *const u8,
    len: usize,
}

// SAFETY: it is equivalent to a `&'static [u8]`.
unsafe impl Send for Text {}
// SAFETY: it is equivalent to a `&'static [u8]`.
unsafe impl Sync for Text {}

impl Text {
    const fn new(text: &'static str) -> Self {
        Self {
            start: text.as_ptr(),
            len: text.len(),
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `new` had a `&'static str`, and C keeps its descriptions while their call sites
        // are registered.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    fn get(&self) -> &str {
        // SAFETY: `new` had a `str`; registration checked descriptions from C by `is_valid`.
        unsafe { std::str::from_utf8_unchecked(self.bytes()) }
    }
}

// The fields of the event path lie in one cache line.
const _: () = assert!(std::mem::offset_of!(Callsite, flagged_route) == 60);

// The size that C programs know.
const _: () = assert!(size_of::<Callsite>() == 128);

/// True for bytes that names of providers, events and probes may have.
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
    use crate::writer::{Geometry, Prefault, WakeupMethod};
    use usertrace_sys::{Mode, Protocol, Scope};

    #[repr(align(4096))]
    #[derive(Clone)]
    struct Page(#[allow(dead_code, reason = "for its length")] [u8; 4096]);

    /// An event that a slot's trace does not want has no channel there, even for threads that saw
    /// an older mask.
    ///
    /// Requirements: E4
    #[test]
    fn unwanted_events_have_no_channel() {
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

    /// A channel with one ring.
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
            wakeup: WakeupMethod::None,
            prefault: Prefault::Never,
            cell_size: 0,
            contexts: false,
            clock: crate::clock::Source::Processor,
            quiescence: None,
        };
        // SAFETY: the memory matches the geometry, and is leaked.
        unsafe { channel.open(&geometry) }.unwrap();
        channel
    }

    /// When a probe is activated, the event leaves the fast path at once. Nothing else needs to
    /// happen first, and no concurrent update brings it back.
    ///
    /// Requirements: B2
    #[test]
    fn probed_events_leave_the_fast_path_at_once() {
        let (channel, callsite) = (channel(), Callsite::new("a", "b", "a:b 6"));
        let set_route = || {
            // SAFETY: the channel is leaked.
            unsafe { callsite.set_route(channel, 16) };
            callsite.set_flagged_route(FlaggedAction::Test {
                slot: 0,
                decision: 1,
                target: None,
            });
        };
        let is_short = || {
            let has = callsite.route().channel().is_some();
            assert_eq!(callsite.flagged_route().word().is_some(), has);
            has
        };
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
