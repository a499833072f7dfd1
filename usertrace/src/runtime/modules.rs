//! The modules of a process: its program and the libraries with call sites, including those that
//! come and go by `dlopen` and `dlclose`.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::state::State;
use crate::event::{Callsite, Entry, Section};

/// Modules per chunk. The first chunk is static; more are allocated.
const CHUNK: usize = 32;

/// The entry of one program or library.
///
/// All zeros is a free entry.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Module {
    /// NULL: the entry is free. [`taken`]: it is being filled or emptied.
    start: AtomicPtr<Entry>,
    stop: AtomicPtr<Entry>,
    /// The place where the module's copy of this crate keeps the state's address; NULL if the
    /// module uses that of another module.
    state: AtomicPtr<AtomicPtr<State>>,
}

/// The value of `start` while an entry is being filled or emptied.
fn taken() -> *mut Entry {
    std::ptr::without_provenance_mut(align_of::<Entry>())
}

impl Module {
    const fn new() -> Self {
        Self {
            start: AtomicPtr::new(std::ptr::null_mut()),
            stop: AtomicPtr::new(std::ptr::null_mut()),
            state: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn section(&self) -> Option<Section> {
        // Pairs with the store in `add`.
        let start = self.start.load(Ordering::Acquire);
        (!start.is_null() && start != taken()).then(|| Section {
            start,
            stop: self.stop.load(Ordering::Relaxed),
        })
    }

    /// Reserves the entry, if it is free.
    fn take(&self) -> bool {
        let (free, taken) = (std::ptr::null_mut(), taken());
        // Acquire pairs with the store in `free`: no thread uses the previous module any more.
        self.start
            .compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Hides the module from threads that do not use it already. Returns true if this call did so.
    pub(super) fn close(&self, section: Section) -> bool {
        let start = section.start.cast_mut();
        // SeqCst, as the fence in `unregister` says.
        self.start
            .compare_exchange(start, taken(), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Frees the entry of a closed module that no thread uses any more.
    pub(super) fn free(&self) {
        // Pairs with `take`.
        self.start.store(std::ptr::null_mut(), Ordering::Release);
    }
}

#[derive(Debug)]
#[repr(C)]
struct Chunk {
    modules: [Module; CHUNK],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Self {
        Self {
            modules: [const { Module::new() }; CHUNK],
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Chunk> {
        // SAFETY: chunks that `grow` stores are never freed. Acquire pairs with that store.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The next chunk; allocates it if there is none.
    fn grow(&self) -> &'static Chunk {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(Chunk::new()));
        let none = std::ptr::null_mut();
        // Release pairs with the load in `next`. The failure order is acquire, as in `next`.
        match self
            .next
            .compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: the list owns the chunk now, and never frees it.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: `new` was never published, and `other` is never freed.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }
}

/// The list of all modules.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Modules {
    first: Chunk,
    /// Incremented when a module is added.
    generation: AtomicU32,
}

impl Modules {
    pub(super) const fn new() -> Self {
        Self {
            first: Chunk::new(),
            generation: AtomicU32::new(0),
        }
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        std::iter::successors(Some(&self.first), |chunk| chunk.next())
    }

    fn modules(&self) -> impl Iterator<Item = &Module> {
        self.chunks().flat_map(|chunk| &chunk.modules)
    }

    /// A number that changes when modules are added.
    pub(super) fn generation(&self) -> u32 {
        // Pairs with `add`: a thread that sees the number also sees the module.
        self.generation.load(Ordering::Acquire)
    }

    /// Adds a module, unless it was added before.
    pub(super) fn add(&self, section: Section, state: Option<&'static AtomicPtr<State>>) {
        let state = state.map_or(std::ptr::null_mut(), |state| {
            std::ptr::from_ref(state).cast_mut()
        });
        if let Some(module) = self.find(section) {
            // A probe may have added the module before there was a state.
            if !state.is_null() {
                module.state.store(state, Ordering::Relaxed);
            }
            return;
        }
        let mut chunk = &self.first;
        let module = loop {
            if let Some(module) = chunk.modules.iter().find(|module| module.take()) {
                break module;
            }
            chunk = chunk.grow();
        };
        module.state.store(state, Ordering::Relaxed);
        module
            .stop
            .store(section.stop.cast_mut(), Ordering::Relaxed);
        // Pairs with the load in `section`.
        module
            .start
            .store(section.start.cast_mut(), Ordering::Release);
        // Pairs with `generation`.
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(super) fn find(&self, section: Section) -> Option<&Module> {
        self.modules()
            .find(|module| module.section().is_some_and(|found| found == section))
    }

    /// True if a thread is removing this module.
    pub(super) fn is_leaving(&self, section: Section) -> bool {
        let is_it = |module: &Module| {
            // Pairs with `free`: the other thread has finished. `stop` keeps its value until the
            // entry gets another module. If that has the same `stop`, it is being added, and this
            // ends soon.
            module.start.load(Ordering::Acquire) == taken()
                && module.stop.load(Ordering::Relaxed) == section.stop.cast_mut()
        };
        self.modules().any(is_it)
    }

    /// Iterates over all call sites.
    ///
    /// # Safety
    /// No module may go during the iteration. That holds while the caller holds the lock of the
    /// state or the registry, and in a process with one thread.
    pub(super) unsafe fn callsites(&self) -> impl Iterator<Item = &Callsite> {
        let sections = self.modules().filter_map(Module::section);
        // SAFETY: the contract of this function keeps the modules loaded, and that of `register`
        // makes their entries valid.
        sections.flat_map(|section| unsafe { section.callsites() })
    }

    /// Gives the state's address to all copies of this crate.
    pub(super) fn set_state(&self, state: *mut State) {
        for module in self.modules() {
            // SAFETY: the pointer is NULL or to a static of the module in this entry.
            if let Some(place) = unsafe { module.state.load(Ordering::Relaxed).as_ref() } {
                // Pairs with the load in `state`.
                place.store(state, Ordering::Release);
            }
        }
    }
}
