//! Programs and libraries that have tracepoints, probes, or both.
//!
//! Tracepoints have the probes of their own module; else those of another one, whichever comes
//! first. Probes that another module uses stay for good, so that no thread is in code that is
//! unloaded.

use std::collections::BTreeMap;

use usertrace::event::{self, Entry};

use super::describe::describe;
use super::provider::{Name, Probe, Tracepoint};
use crate::events::count_bad;

/// The tracepoints of a module that found their probes at the same time.
struct Batch {
    entries: Box<[Entry]>,
    /// Where the entries' callsites have them.
    _descriptions: Vec<Box<str>>,
}

impl Batch {
    fn register(&self) {
        let entries = self.entries.as_ptr_range();
        // SAFETY: they stay until `unregister`, as the tracepoints do, and what they refer to.
        count_bad(unsafe { event::register(entries.start, entries.end) });
    }

    /// Nobody looks at it any more.
    fn unregister(&self) -> bool {
        let entries = self.entries.as_ptr_range();
        event::unregister(entries.start, entries.end)
    }
}

/// What a module is known by: where its tracepoints and its probes are.
pub(super) type Place = (*const *mut Tracepoint, *const *const Probe);

pub(super) struct Module {
    place: Place,
    tracepoints: &'static [*mut Tracepoint],
    probes: BTreeMap<Name, &'static Probe>,
    levels: BTreeMap<Name, i32>,
    pin: unsafe extern "C" fn(),
    batches: Vec<Batch>,
}

// SAFETY: what it refers to stays until it is dropped, and is used with the lock held.
unsafe impl Send for Module {}

impl Module {
    /// # Safety
    /// All of it must be there until this is dropped, and probes until then, or for good if `pin`
    /// was called.
    pub(super) unsafe fn new(
        place: Place,
        tracepoints: &'static [*mut Tracepoint],
        all: &'static [*const Probe],
        pin: unsafe extern "C" fn(),
    ) -> Self {
        let (mut probes, mut levels) = (BTreeMap::new(), BTreeMap::new());
        for probe in all {
            // SAFETY: the section has pointers to probes, which are not moved.
            let probe = unsafe { &**probe };
            if probe.class().is_some() {
                probes.entry(probe.name()).or_insert(probe);
            } else {
                levels.insert(probe.name(), probe.level);
            }
        }
        Self {
            place,
            tracepoints,
            probes,
            levels,
            pin,
            batches: Vec::new(),
        }
    }

    /// An event's probe, and its log level.
    fn find(&self, name: Name) -> Option<(&'static Probe, i32)> {
        let probe = *self.probes.get(&name)?;
        Some((probe, *self.levels.get(&name).unwrap_or(&probe.level)))
    }
}

pub(super) struct Modules(Vec<Module>);

impl Modules {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn has(&self, place: Place) -> bool {
        self.0.iter().any(|module| module.place == place)
    }

    pub(super) fn add(&mut self, module: Module) {
        self.0.push(module);
        for index in 0..self.0.len() {
            if let Some(batch) = self.matched(index) {
                batch.register();
                self.0[index].batches.push(batch);
            }
        }
    }

    /// The tracepoints of a module that had no probes, and have now.
    fn matched(&self, index: usize) -> Option<Batch> {
        let (mut entries, mut descriptions) = (Vec::new(), Vec::new());
        for &tracepoint in self.0[index].tracepoints {
            // SAFETY: it is there as long as the module.
            let at = unsafe { &*tracepoint };
            if at.is_matched() {
                continue;
            }
            let Some((probe, level)) = self.find(index, at.name()) else {
                continue;
            };
            let (Some(class), Some(description)) = (probe.class(), describe(probe, level)) else {
                count_bad(1);
                continue;
            };
            let description = description.into_boxed_str();
            // SAFETY: it was not matched, and the lock is held. The text stays as long as the
            // entry.
            entries.push(unsafe {
                let text = &*std::ptr::from_ref(&*description);
                Tracepoint::set(tracepoint, class, text)
            });
            descriptions.push(description);
        }
        (!entries.is_empty()).then(|| Batch {
            entries: entries.into_boxed_slice(),
            _descriptions: descriptions,
        })
    }

    fn find(&self, index: usize, name: Name) -> Option<(&'static Probe, i32)> {
        self.0[index].find(name).or_else(|| {
            let mut others = self.0.iter();
            let (other, found) = others.find_map(|other| Some((other, other.find(name)?)))?;
            // SAFETY: `usertrace_lttng_register` was given it.
            unsafe { (other.pin)() };
            Some(found)
        })
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.0.retain_mut(|module| {
            if module.place != place {
                return true;
            }
            // At the end of the process, all stays as it is.
            module.batches.retain(|batch| !batch.unregister());
            !module.batches.is_empty()
        });
    }
}
