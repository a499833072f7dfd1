//! Registers and unregisters the call sites of modules, while events are written and updates run.

use std::sync::atomic::{Ordering, fence};

use super::current::updater;
use super::init::init;
use super::registry;
use super::shared::shared;
use super::state::StateGuard;
use super::update::Updater;
use crate::control::{self, Change};
use crate::event::{Callsite, Section};
use crate::os::signal::SignalMaskGuard;
use crate::probe;

/// Adds the call sites of a section, unless they were added before. Returns how many of its entries
/// have invalid descriptions; these entries are removed.
///
/// Signal handlers must not call this.
///
/// # Safety
/// The entries must be call sites with valid pointers to their texts, until [`unregister`] returns.
pub(crate) unsafe fn register(section: Section) -> usize {
    let modules = &shared().modules;
    if modules.find(section).is_some() {
        return 0;
    }
    // SAFETY: the contract of this function: the entries are call sites that stay until
    // `unregister`.
    let invalid = unsafe { section.remove_invalid() };
    init();
    modules.add(section, None);
    // SAFETY: the contract of this function: the entries are call sites that stay until
    // `unregister`.
    probe::connect_more(unsafe { section.callsites() });
    if let Some(updater) = updater() {
        // An update in progress may have missed the module. Run another one, so that the traces
        // that want its events get them from now on.
        with_lock(&updater, |_| ());
    }
    // SAFETY: the contract of this function: the entries are call sites that stay until
    // `unregister`.
    control::report_change(Change::Appeared, unsafe { section.callsites() });
    invalid
}

/// Removes the call sites of a section. Returns true if no thread uses them any more.
///
/// Signal handlers must not call this.
pub(crate) fn unregister(section: Section) -> bool {
    let shared = shared();
    if shared.exiting.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let module = shared.modules.find(section);
    let Some(module) = module.filter(|module| module.close(section)) else {
        // If another thread is removing it, that thread may still use it.
        while shared.modules.is_leaving(section) {
            std::thread::yield_now();
        }
        return true;
    };
    shared.departures.fetch_add(1, Ordering::Relaxed);
    // Pairs with the compare-exchange in `once`. Either the thread that creates a state sees that
    // the module was closed, or this thread sees the state, and waits for the holder of its lock.
    fence(Ordering::SeqCst);
    if let Some(updater) = updater() {
        with_lock(&updater, |guard| {
            // SAFETY: the caller keeps the section mapped until this function returns.
            unsafe { updater.keep_ids(guard, section) };
        });
    }
    registry::wait();
    // SAFETY: the caller keeps the section mapped until this function returns.
    control::report_change(Change::Disappeared, unsafe { section.callsites() });
    module.free();
    true
}

/// An event type that this process can write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declared {
    /// Its metadata, as in the header `linux/ltt.h`, without the id: `PROVIDER:NAME LOGLEVEL[ TYPE
    /// FIELD[;TYPE FIELD]…]`.
    pub description: String,
    /// True if a trace wants it.
    pub enabled: bool,
}

impl Declared {
    /// `PROVIDER:NAME`
    #[must_use]
    pub fn name(&self) -> &str {
        self.description.split(' ').next().unwrap_or_default()
    }
}

/// Lists the events that the program and its libraries declare.
///
/// Signal handlers must not call this.
#[must_use]
pub fn callsites() -> Vec<Declared> {
    let declared = |callsite: &Callsite| Declared {
        description: callsite.description().to_owned(),
        enabled: callsite.is_enabled(),
    };
    let mut list = Vec::new();
    let modules = &shared().modules;
    match updater() {
        Some(updater) => with_lock(&updater, |guard| {
            list.extend(guard.callsites(modules).map(declared));
        }),
        None => {
            registry::open();
            if let Some(held) = registry::hold() {
                list.extend(registry::callsites(&held).map(declared));
            }
        }
    }
    list
}

/// Runs `body` with the state's lock, while no update runs.
fn with_lock(updater: &Updater, body: impl FnOnce(&mut StateGuard<'_>)) {
    let mut body = Some(body);
    while body.is_some() {
        let held = SignalMaskGuard::new();
        updater.state.locked(|guard| {
            if let Some(body) = body.take() {
                body(guard);
            }
            // Do the updates that were requested meanwhile.
            if updater.state.is_attached() {
                updater.run(guard);
            }
        });
        drop(held);
        if body.is_some() {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Entry;
    use crate::runtime::declare;

    /// If two threads unregister the same call sites, neither returns while another thread still
    /// uses them.
    #[test]
    fn concurrent_unregistration_waits_for_users() {
        use std::sync::atomic::AtomicU32;
        use std::time::{Duration, Instant};

        static GONE: AtomicU32 = AtomicU32::new(0);
        let callsite = declare("loaded:gone 5").unwrap();
        let entries: &'static [Entry] = Box::leak(Box::new([Entry::new(callsite)]));
        let section = || {
            let entries = entries.as_ptr_range();
            Section {
                start: entries.start,
                stop: entries.end,
            }
        };
        // SAFETY: the call site and its entry are leaked.
        assert_eq!(unsafe { register(section()) }, 0);
        registry::open();
        let held = registry::hold().unwrap();
        let threads = [(); 2].map(|()| {
            std::thread::spawn(move || {
                let entries = entries.as_ptr_range();
                assert!(unregister(Section {
                    start: entries.start,
                    stop: entries.end,
                }));
                GONE.fetch_add(1, Ordering::Relaxed);
            })
        });
        while shared().modules.find(section()).is_some() {
            std::thread::yield_now();
        }
        // Gives a thread that wrongly does not wait time to show.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            assert_eq!(GONE.load(Ordering::Relaxed), 0);
            std::thread::yield_now();
        }
        drop(held);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(!shared().modules.is_leaving(section()));
    }
}
