//! What all copies of this crate in one process have together.
//!
//! A program that has events and runs under a library to preload has two copies of this crate, and
//! one that loads several such libraries has more. They share the state, the list of modules, and
//! the fallback, so that all is done once: each slot is acknowledged when nobody at all is in it
//! any more (A9). For that, a library that expects others defines the symbol `usertrace_shared`
//! ([`share!`](crate::share)); the dynamic linker leads all to the first one. Copies that lay out
//! their memory differently, as those of another version do, or those that find no such symbol,
//! stay on their own.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(feature = "fallback")]
use super::fallback::{Fallback, LEN as FAST_LEN};
use super::hash::hash;
use super::modules::Modules;
use super::registry_lock::RegistryState;
use super::state::State;
use super::wanted::Wanted;
use crate::context::Apps;
use crate::control::Control;
use crate::event::Callsite;
use crate::probe::Table;

/// What is shared.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C)]
pub struct Shared {
    /// Must stay the first.
    layout: u64,
    pub(super) state: AtomicPtr<State>,
    pub(super) modules: Modules,
    /// The fallback, a `Fallback`.
    pub(super) fast: AtomicPtr<c_void>,
    /// Not 0: the process is about to end.
    pub(super) exiting: AtomicU32,
    /// Not 0: this process is to write nothing.
    pub(super) paused: AtomicU32,
    /// Which events it writes, if somebody said so.
    pub(super) wanted: Wanted,
    /// Not 0: it was said that the environment asks for no control channel that there can be.
    pub(crate) said: AtomicU32,
    /// Goes up when a module goes.
    pub(super) departures: AtomicU32,
    /// The registry's lock; NULL: there never was a probe or a control channel.
    pub(super) registry: AtomicPtr<RegistryState>,
    /// Contexts that the program defines.
    pub(crate) apps: Apps,
    /// The last number that a state got for its `stamp`.
    pub(super) stamps: AtomicU64,
    /// NULL: there never was a probe.
    pub(crate) probes: AtomicPtr<Table>,
    /// The control channel; NULL: there never was one.
    pub(crate) control: AtomicPtr<Control>,
}

#[cfg(not(feature = "fallback"))]
const FAST_LEN: usize = 0;

/// Where fields of a structure are.
macro_rules! offsets {
    ($type:ty: $($field:ident),*) => {
        [$(std::mem::offset_of!($type, $field).to_le_bytes()),*].as_flattened()
    };
}

/// Says how a copy lays out what is shared: its version, lengths, and where fields are.
const LAYOUT: u64 = hash(&[
    concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).as_bytes(),
    &size_of::<State>().to_le_bytes(),
    &size_of::<Shared>().to_le_bytes(),
    &size_of::<RegistryState>().to_le_bytes(),
    &size_of::<Table>().to_le_bytes(),
    &size_of::<Control>().to_le_bytes(),
    &size_of::<Callsite>().to_le_bytes(),
    &FAST_LEN.to_le_bytes(),
    offsets!(State: channels, slots, attached, info, contexts, visitors, wanted_seen),
    offsets!(Shared: state, modules, fast, wanted, registry, apps, probes, control),
]);

// All of it has the layout that C has, which does not depend on the compiler's version: the lint
// refuses a type here that contains another one. Nobody calls these.
#[deny(improper_ctypes)]
#[allow(dead_code, reason = "the compiler looks at the types")]
unsafe extern "C" {
    fn has_layout_of_state(_: *const State);
    fn has_layout_of_shared(_: *const Shared);
    fn has_layout_of_registry(_: *const RegistryState);
    fn has_layout_of_probes(_: *const Table);
    fn has_layout_of_control(_: *const Control);
    fn has_layout_of_callsites(_: *const Callsite);
    #[cfg(feature = "fallback")]
    fn has_layout_of_fallback(_: *const Fallback);
}

impl Shared {
    /// One that nothing is in.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it is for a static")]
    pub const fn new() -> Self {
        Self {
            layout: LAYOUT,
            state: AtomicPtr::new(std::ptr::null_mut()),
            modules: Modules::new(),
            fast: AtomicPtr::new(std::ptr::null_mut()),
            exiting: AtomicU32::new(0),
            paused: AtomicU32::new(0),
            wanted: Wanted::new(),
            said: AtomicU32::new(0),
            departures: AtomicU32::new(0),
            registry: AtomicPtr::new(std::ptr::null_mut()),
            apps: Apps::new(),
            stamps: AtomicU64::new(0),
            probes: AtomicPtr::new(std::ptr::null_mut()),
            control: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Another number each time, for [`State::renew_threads`].
    pub(super) fn next_stamp(&self) -> u64 {
        // Relaxed: threads compare stamps, and nothing else depends on them.
        self.stamps.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Where it is, if nobody else has one.
static OWN: Shared = Shared::new();

/// What the copies of this process share.
pub(crate) fn shared() -> &'static Shared {
    let place: *const Shared;
    // SAFETY: reads an entry of the global offset table, which is 0 if nobody defines the symbol.
    let found = unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            ".weak usertrace_shared",
            "mov {place}, qword ptr [rip + usertrace_shared@GOTPCREL]",
            place = out(reg) place,
            options(pure, readonly, nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            ".weak usertrace_shared",
            "adrp {place}, :got:usertrace_shared",
            "ldr {place}, [{place}, :got_lo12:usertrace_shared]",
            place = out(reg) place,
            options(pure, readonly, nostack, preserves_flags),
        );
        // Of another version's, only the first word is where it is looked for.
        (!place.is_null() && (*place.cast::<u64>()) == LAYOUT).then(|| &*place)
    };
    found.unwrap_or(&OWN)
}

/// What a place of what is shared leads to, or what `map` makes there first: it stays.
pub(crate) fn once<T>(
    place: &AtomicPtr<T>,
    map: impl FnOnce() -> Option<NonNull<T>>,
) -> Option<NonNull<T>> {
    // Acquire pairs with the store below.
    let found = NonNull::new(place.load(Ordering::Acquire));
    if found.is_some() {
        return found;
    }
    let new = map()?;
    let none = std::ptr::null_mut();
    // Release, of what was made, and SeqCst, as the fence in `unregister` says. If another thread
    // was first, what was made here stays, unused.
    match place.compare_exchange(none, new.as_ptr(), Ordering::SeqCst, Ordering::Acquire) {
        Ok(_) => Some(new),
        Err(other) => NonNull::new(other),
    }
}

/// Defines the symbol by which all copies of the crate `usertrace` in a process find each other.
/// For libraries that are preloaded, or linked by others: once in each.
#[macro_export]
macro_rules! share {
    () => {
        #[doc(hidden)]
        #[used]
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "a name for the linker")]
        static usertrace_shared: $crate::runtime::Shared = $crate::runtime::Shared::new();
    };
}
