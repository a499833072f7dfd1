//! State that all copies of this crate in one process share.
//!
//! A program that has events and runs under a preload library has two copies of this crate; with
//! several such libraries it has more. They share the state, the list of modules, and the fallback,
//! so that each operation is done once: a slot is acknowledged only when no thread of any copy is
//! in it (A9). A library that expects other copies defines the symbol `usertrace_shared`
//! ([`share!`](crate::share)); the dynamic linker resolves it to the first definition for all. A
//! copy stays on its own if it finds no such symbol, or one with another memory layout, as of
//! another version.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(feature = "fallback")]
use super::fallback::{Fallback, LEN as FAST_LEN};
use super::hash::hash;
use super::modules::Modules;
use super::object_log::ObjectLog;
use super::process_rules::ProcessRules;
use super::registry_lock::RegistryState;
use super::state::State;
use crate::context::Apps;
use crate::control::Control;
use crate::event::Callsite;
use crate::probe::Table;

/// The state that copies share.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C)]
pub struct Shared {
    /// Must stay the first field.
    layout: u64,
    pub(super) state: AtomicPtr<State>,
    /// The fallback; the type is `Fallback`.
    pub(super) fast: AtomicPtr<c_void>,
    /// Not 0: the process is about to end.
    pub(super) exiting: AtomicU32,
    /// Not 0: tracing of this process is paused.
    pub(super) paused: AtomicU32,
    /// Not 0: the process has reported what is wrong with its environment.
    pub(super) reported: AtomicU32,
    /// Incremented when a module goes.
    pub(super) departures: AtomicU32,
    /// The registry's lock; NULL before the first probe or control channel.
    pub(super) registry: AtomicPtr<RegistryState>,
    /// The last stamp that a state got.
    pub(super) stamps: AtomicU64,
    /// The table of probes; NULL before the first probe.
    pub(crate) probes: AtomicPtr<Table>,
    /// The control channel; NULL before the first one.
    pub(crate) control: AtomicPtr<Control>,
    /// The log of loaded objects; NULL before the first walk.
    pub(super) objects: AtomicPtr<ObjectLog>,
    pub(super) modules: Modules,
    // Most processes write to none of these, which would cost each of them memory.
    /// Contexts that the program defines.
    pub(crate) apps: Apps,
    /// The rules that a control channel set for this process.
    pub(super) process_rules: ProcessRules,
}

#[cfg(not(feature = "fallback"))]
const FAST_LEN: usize = 0;

/// The offsets of fields of a structure, as bytes.
macro_rules! offsets {
    ($type:ty: $($field:ident),*) => {
        [$(std::mem::offset_of!($type, $field).to_le_bytes()),*].as_flattened()
    };
}

/// Identifies the layout of the shared memory: a hash of the version, sizes, and field offsets.
const LAYOUT: u64 = hash(&[
    concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).as_bytes(),
    &size_of::<State>().to_le_bytes(),
    &size_of::<Shared>().to_le_bytes(),
    &size_of::<RegistryState>().to_le_bytes(),
    &size_of::<Table>().to_le_bytes(),
    &size_of::<Control>().to_le_bytes(),
    &size_of::<ObjectLog>().to_le_bytes(),
    &size_of::<Callsite>().to_le_bytes(),
    &FAST_LEN.to_le_bytes(),
    offsets!(State: channels, slots, attached, info, contexts, readers, process_rules_seen),
    offsets!(Shared: state, modules, fast, process_rules, registry, apps, probes, control, objects),
]);

// All shared types have C layout, which does not depend on the compiler's version. These
// declarations make the lint reject a type that contains one without. They are never called.
#[deny(improper_ctypes)]
#[allow(dead_code, reason = "the compiler checks the types")]
unsafe extern "C" {
    fn has_layout_of_state(_: *const State);
    fn has_layout_of_shared(_: *const Shared);
    fn has_layout_of_registry(_: *const RegistryState);
    fn has_layout_of_probes(_: *const Table);
    fn has_layout_of_control(_: *const Control);
    fn has_layout_of_objects(_: *const ObjectLog);
    fn has_layout_of_callsites(_: *const Callsite);
    #[cfg(feature = "fallback")]
    fn has_layout_of_fallback(_: *const Fallback);
}

impl Shared {
    /// An empty instance.
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
            process_rules: ProcessRules::new(),
            reported: AtomicU32::new(0),
            departures: AtomicU32::new(0),
            registry: AtomicPtr::new(std::ptr::null_mut()),
            apps: Apps::new(),
            stamps: AtomicU64::new(0),
            probes: AtomicPtr::new(std::ptr::null_mut()),
            control: AtomicPtr::new(std::ptr::null_mut()),
            objects: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// A new stamp for [`State::renew_threads`].
    pub(super) fn next_stamp(&self) -> u64 {
        // Relaxed: threads only compare stamps.
        self.stamps.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The instance of this copy, if no module defines a shared one.
static OWN: Shared = Shared::new();

/// The shared state: that of the symbol, or else this copy's own.
pub(crate) fn shared() -> &'static Shared {
    let place: *const Shared;
    // SAFETY: reads an entry of the global offset table, which is 0 if no module defines the
    // symbol.
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
        // Only the first word has the same place in all versions.
        (!place.is_null() && (*place.cast::<u64>()) == LAYOUT).then(|| &*place)
    };
    found.unwrap_or(&OWN)
}

/// Returns the object that `place` points to, and creates it with `map` if there is none. The
/// object is never unmapped.
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
    // Release publishes the new object; SeqCst, as the fence in `unregister` says. If another
    // thread was first, the new object stays unused.
    match place.compare_exchange(none, new.as_ptr(), Ordering::SeqCst, Ordering::Acquire) {
        Ok(_) => Some(new),
        Err(other) => NonNull::new(other),
    }
}

/// Defines the symbol by which all copies of the crate `usertrace` in a process find each other.
/// Use it once in each library that is preloaded, or that programs link.
#[macro_export]
macro_rules! share {
    () => {
        #[doc(hidden)]
        #[used]
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "a name for the linker")]
        static usertrace_shared: $crate::__private::Shared = $crate::__private::Shared::new();
    };
}
