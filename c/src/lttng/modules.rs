//! Programs and libraries with tracepoints, probes, or both.
//!
//! Tracepoints use the probes of their own module, or else those of the first other module that has
//! them. Probes that another module uses stay loaded for good, so that no thread runs in unloaded
//! code.

use std::collections::BTreeMap;

use usertrace::__private::{self, Entry};

use super::describe::describe;
use super::provider::{Name, Probe, Tracepoint};
use crate::events::count_bad;

/// Tracepoints of a module that got their probes at the same time.
struct Batch {
    entries: Box<[Entry]>,
    /// Owns the descriptions that the entries' call sites refer to.
    _descriptions: Vec<Box<str>>,
}

impl Batch {
    fn register(&self) {
        let entries = self.entries.as_ptr_range();
        // SAFETY: the entries, their tracepoints and descriptions stay until `unregister`.
        count_bad(unsafe { __private::register(entries.start, entries.end) });
    }

    /// Unregisters the entries. True: they may be freed.
    fn unregister(&self) -> bool {
        let entries = self.entries.as_ptr_range();
        __private::unregister(entries.start, entries.end)
    }
}

/// Identifies a module: the addresses of its tracepoints and its probes.
pub(super) type ModuleKey = (*const *mut Tracepoint, *const *const Probe);

pub(super) struct Module {
    key: ModuleKey,
    tracepoints: &'static [*mut Tracepoint],
    probes: BTreeMap<Name, &'static Probe>,
    levels: BTreeMap<Name, i32>,
    pin: unsafe extern "C" fn(),
    batches: Vec<Batch>,
}

// SAFETY: its pointers are valid until it is dropped, and are used with the lock of `MODULES`.
unsafe impl Send for Module {}

impl Module {
    /// # Safety
    /// Tracepoints and probes must stay until this is dropped, and probes for good if `pin` was
    /// called.
    pub(super) unsafe fn new(
        key: ModuleKey,
        tracepoints: &'static [*mut Tracepoint],
        all: &'static [*const Probe],
        pin: unsafe extern "C" fn(),
    ) -> Self {
        let (mut probes, mut levels) = (BTreeMap::new(), BTreeMap::new());
        for probe in all {
            // SAFETY: the section has valid pointers to probes, as the caller of `new` guarantees.
            let probe = unsafe { &**probe };
            if probe.class().is_some() {
                probes.entry(probe.name()).or_insert(probe);
            } else {
                levels.insert(probe.name(), probe.level);
            }
        }
        Self {
            key,
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

    pub(super) fn has(&self, key: ModuleKey) -> bool {
        self.0.iter().any(|module| module.key == key)
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

    /// Matches a module's tracepoints that had no probe until now.
    fn matched(&self, index: usize) -> Option<Batch> {
        let (mut entries, mut descriptions) = (Vec::new(), Vec::new());
        for &tracepoint in self.0[index].tracepoints {
            // SAFETY: tracepoints stay as long as their module is registered.
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
            // SAFETY: `pin` is the module's function, which `usertrace_lttng_register` received.
            unsafe { (other.pin)() };
            Some(found)
        })
    }

    pub(super) fn remove(&mut self, key: ModuleKey) {
        self.0.retain_mut(|module| {
            if module.key != key {
                return true;
            }
            // `unregister` refuses at the end of the process; entries stay then.
            module.batches.retain(|batch| !batch.unregister());
            !module.batches.is_empty()
        });
    }
}
