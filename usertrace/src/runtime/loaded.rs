//! Callsites come and go with libraries, while events are written and updates happen.

use std::sync::atomic::{Ordering, fence};

use super::current::updater;
use super::init::init;
use super::registry;
use super::shared::shared;
use super::signals::SignalMaskGuard;
use super::state::StateGuard;
use super::update::Updater;
use crate::control::{self, Change};
use crate::event::{Callsite, Section};
use crate::probe;

/// Adds the callsites of a section, unless they are there, and says how many of its entries are no
/// callsites that can be described: these are taken out.
///
/// Not to be called from a signal handler.
///
/// # Safety
/// The entries must be callsites, whose texts are where they say, until [`unregister`] returns.
pub(crate) unsafe fn register(section: Section) -> usize {
    let modules = &shared().modules;
    if modules.find(section).is_some() {
        return 0;
    }
    // SAFETY: the section is there, with entries of callsites, as this function's caller promises.
    let unsound = unsafe { section.take_unsound() };
    init();
    modules.add(section, None);
    // SAFETY: the section is there, with entries of callsites, as this function's caller promises.
    probe::connect_more(unsafe { section.callsites() });
    if let Some(updater) = updater() {
        // Who is at an update at this moment may not see the module: the traces that want its
        // events are to have them from now on.
        with_lock(&updater, |_| ());
    }
    // SAFETY: the section is there, with entries of callsites, as this function's caller promises.
    control::tell(Change::Appeared, unsafe { section.callsites() });
    unsound
}

/// Takes the callsites of a section out, and says whether nobody looks at them any more.
///
/// Does nothing where the process is about to end. Not to be called from a signal handler.
pub(crate) fn unregister(section: Section) -> bool {
    let shared = shared();
    if shared.exiting.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let module = shared.modules.find(section);
    let Some(module) = module.filter(|module| module.close(section)) else {
        // If another thread takes it out at this moment, that one may still look at it.
        while shared.modules.is_leaving(section) {
            std::thread::yield_now();
        }
        return true;
    };
    shared.departures.fetch_add(1, Ordering::Relaxed);
    // With the one in `once`, and that store: who makes the state sees that the module was closed,
    // or this sees the state, and waits for who looks at modules with its lock.
    fence(Ordering::SeqCst);
    if let Some(updater) = updater() {
        with_lock(&updater, |guard| {
            // SAFETY: the section is there until this function returns.
            unsafe { updater.keep_ids(guard, section) };
        });
    }
    registry::wait();
    // SAFETY: the section is there until this returns.
    control::tell(Change::Disappeared, unsafe { section.callsites() });
    module.free();
    true
}

/// An event that this process can write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declared {
    /// Its metadata, as in the header `linux/ltt.h`, without the id: `PROVIDER:NAME LOGLEVEL[ TYPE
    /// FIELD[;TYPE FIELD]…]`.
    pub description: String,
    /// Some trace wants it.
    pub enabled: bool,
}

impl Declared {
    /// `PROVIDER:NAME`
    #[must_use]
    pub fn name(&self) -> &str {
        self.description.split(' ').next().unwrap_or_default()
    }
}

/// The events that the program and its libraries declare.
///
/// Not to be called from a signal handler.
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

/// Does something while no update is made.
fn with_lock(updater: &Updater, body: impl FnOnce(&mut StateGuard<'_>)) {
    let mut body = Some(body);
    while body.is_some() {
        let held = SignalMaskGuard::new();
        updater.state.locked(|guard| {
            if let Some(body) = body.take() {
                body(guard);
            }
            // What was asked for meanwhile.
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
    use crate::event::{Entry, declare};

    /// Of two threads that take out the same callsites, neither is told that nobody looks at them
    /// while the other one waits for somebody who does.
    #[test]
    fn callsites_are_gone_for_all_who_take_them_out() {
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
        // SAFETY: the callsite and its entry stay.
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
        // Time for the one that does not wait, if there is one.
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
