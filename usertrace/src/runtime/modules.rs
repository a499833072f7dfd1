//! The programs and libraries of a process that have callsites: also those that come and go by
//! `dlopen` and `dlclose`.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::state::State;
use crate::event::{Callsite, Entry, Section};

/// Modules that there is room for at first; more are allocated.
const CHUNK: usize = 32;

/// One program or library.
///
/// All zeros is one that is free.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Module {
    /// NULL: this is free; [`taken`]: it is being filled or emptied.
    start: AtomicPtr<Entry>,
    stop: AtomicPtr<Entry>,
    /// Where a copy of this crate keeps the state's address; NULL, if the module uses another
    /// one's.
    state: AtomicPtr<AtomicPtr<State>>,
}

/// Stands for the start of a section that is not there yet, or not any more.
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

    /// Takes a module that is free.
    fn take(&self) -> bool {
        let (free, taken) = (std::ptr::null_mut(), taken());
        // Acquire pairs with the store in `free`: nobody looks at the one that was here.
        self.start
            .compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Keeps everybody out who does not look at it already, and says whether this call did that.
    pub(super) fn close(&self, section: Section) -> bool {
        let start = section.start.cast_mut();
        // SeqCst, as the fence in `unregister` says.
        self.start
            .compare_exchange(start, taken(), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Gives it to the next one. It was closed, and nobody looks at it any more.
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
        // SAFETY: what `grow` stores there stays. Acquire pairs with that store.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The chunk after this one, which is made if there is none.
    fn grow(&self) -> &'static Chunk {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(Chunk::new()));
        let none = std::ptr::null_mut();
        // Release pairs with the load in `next`; acquire, as that has it.
        match self
            .next
            .compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: it stays from now on.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: nobody else has seen `new`; the other one stays.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }
}

/// All of them.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Modules {
    first: Chunk,
    /// Goes up when one comes.
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

    /// A number that is another one when modules came.
    pub(super) fn generation(&self) -> u32 {
        // Pairs with `add`: who sees the number sees the module.
        self.generation.load(Ordering::Acquire)
    }

    /// Adds a module, unless it is there.
    pub(super) fn add(&self, section: Section, state: Option<&'static AtomicPtr<State>>) {
        let state = state.map_or(std::ptr::null_mut(), |state| {
            std::ptr::from_ref(state).cast_mut()
        });
        if let Some(module) = self.find(section) {
            // What probes made known before there was a state.
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

    /// Whether somebody takes this module out at this moment.
    pub(super) fn is_leaving(&self, section: Section) -> bool {
        let is_it = |module: &Module| {
            // Pairs with `free`: what the other one did is done. The end stays as it was until the
            // place has another module, and if that has the same end, it will have come in a
            // moment.
            module.start.load(Ordering::Acquire) == taken()
                && module.stop.load(Ordering::Relaxed) == section.stop.cast_mut()
        };
        self.modules().any(is_it)
    }

    /// All callsites.
    ///
    /// # Safety
    /// None of the modules may go while this is used: that is so while the state's lock is held,
    /// and where there is one thread.
    pub(super) unsafe fn callsites(&self) -> impl Iterator<Item = &Callsite> {
        let sections = self.modules().filter_map(Module::section);
        // SAFETY: no module goes while this is used, as this function's caller promises; who added
        // the section promised that its entries are good.
        sections.flat_map(|section| unsafe { section.callsites() })
    }

    /// Tells all copies of this crate where the state is.
    pub(super) fn set_state(&self, state: *mut State) {
        for module in self.modules() {
            // SAFETY: a static of the module that is in this place.
            if let Some(place) = unsafe { module.state.load(Ordering::Relaxed).as_ref() } {
                // Pairs with the load in `state`.
                place.store(state, Ordering::Release);
            }
        }
    }
}
