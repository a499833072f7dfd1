//! Contexts that a process defines, or that its traces ask for: a table that all copies of this
//! crate share.

use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

/// Number of entries.
const PLACES: usize = 64;

/// Longest name: the kernel's limit, minus the prefix `app.`.
pub(super) const NAME_MAX: usize = 27;

/// An entry.
#[derive(Debug)]
#[repr(C)]
struct App {
    state: AtomicU32,
    /// The name; shorter ones end with a NUL.
    name: [AtomicU8; NAME_MAX],
    /// The function that returns the value, or NULL.
    read: AtomicPtr<()>,
}

/// The states of an entry: free, its name is being stored, or named for the rest of the process's
/// life.
const FREE: u32 = 0;
const TAKEN: u32 = 1;
const NAMED: u32 = 2;

/// The table of entries.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Apps([App; PLACES]);

/// True if a context can have this name.
pub(super) fn is_name(name: &str) -> bool {
    is_name_bytes(name.as_bytes())
}

fn is_name_bytes(name: &[u8]) -> bool {
    for byte in name {
        if !byte.is_ascii_alphanumeric() && *byte != b'_' {
            return false;
        }
    }
    !name.is_empty() && name.len() <= NAME_MAX
}

impl App {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            name: [const { AtomicU8::new(0) }; NAME_MAX],
            read: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Calls `each` with the bytes of the name. (Plain loops, here and below: this runs on signal
    /// stacks, and in debug builds each iterator adapter takes stack.)
    fn each_byte(&self, mut each: impl FnMut(u8)) {
        for byte in &self.name {
            match byte.load(Ordering::Relaxed) {
                0 => return,
                byte => each(byte),
            }
        }
    }

    fn is_called(&self, name: &[u8]) -> bool {
        for (at, byte) in self.name.iter().enumerate() {
            let expected = if at < name.len() { name[at] } else { 0 };
            if byte.load(Ordering::Relaxed) != expected {
                return false;
            }
        }
        name.len() <= NAME_MAX
    }

    /// Returns the state; waits while another thread stores the name. That takes a few stores,
    /// which no signal interrupts.
    fn state(&self) -> u32 {
        loop {
            // Pairs with the store in `find`: a thread that sees NAMED sees the name.
            match self.state.load(Ordering::Acquire) {
                TAKEN => std::hint::spin_loop(),
                state => return state,
            }
        }
    }
}

impl Apps {
    pub(crate) const fn new() -> Self {
        Self([const { App::new() }; PLACES])
    }

    /// Finds the entry of a context by its name, or reserves one. None if the name is invalid, or
    /// if no entry is free. Signals must be blocked.
    pub(super) fn find(&self, name: &[u8]) -> Option<u8> {
        if !is_name_bytes(name) {
            return None;
        }
        for (place, app) in self.0.iter().enumerate() {
            let took = app.state() == FREE
                && app
                    .state
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if took {
                for (at, byte) in name.iter().enumerate() {
                    app.name[at].store(*byte, Ordering::Relaxed);
                }
                // Pairs with the load in `state`.
                app.state.store(NAMED, Ordering::Release);
            }
            if app.state() == NAMED && app.is_called(name) {
                return Some(place as u8);
            }
        }
        None
    }

    /// Calls `each` with the bytes of an entry's name.
    pub(super) fn each_byte(&self, place: u8, each: impl FnMut(u8)) {
        self.0[usize::from(place) % PLACES].each_byte(each);
    }

    /// Sets the function that returns the values of the context at `place`.
    pub(super) fn define(&self, place: u8, read: extern "C" fn() -> u64) {
        // Pairs with the load in `value`: data that the function needs was stored before.
        self.0[usize::from(place) % PLACES]
            .read
            .store(read as *mut (), Ordering::Release);
    }

    /// The value of the context at `place` for the calling thread; 0 if it is undefined.
    pub(super) fn value(&self, place: u8) -> u64 {
        let read = self.0[usize::from(place) % PLACES]
            .read
            .load(Ordering::Acquire);
        if read.is_null() {
            return 0;
        }
        // SAFETY: only `define` stores a pointer here: a function of this type, which stays mapped
        // (contract of `context::define`).
        let read = unsafe { std::mem::transmute::<*mut (), extern "C" fn() -> u64>(read) };
        read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn seven() -> u64 {
        7
    }

    #[test]
    fn names_have_one_entry_each() {
        let apps = Apps::new();
        let place = apps.find(b"a").unwrap();
        assert_eq!(apps.find(b"b"), Some(place + 1));
        assert_eq!(apps.find(b"a"), Some(place));
        assert_eq!(apps.value(place), 0);
        apps.define(place, seven);
        assert_eq!((apps.value(place), apps.value(place + 1)), (7, 0));
        for bad in [&b""[..], b"a.b", b"a b", b"\xff", &[b'a'; NAME_MAX + 1]] {
            assert_eq!(apps.find(bad), None);
        }
        let long = [b'a'; NAME_MAX];
        let place = apps.find(&long).unwrap();
        let mut name = Vec::new();
        apps.each_byte(place, |byte| name.push(byte));
        assert_eq!(name, long);
    }

    #[test]
    fn entries_run_out() {
        let apps = Apps::new();
        for n in 0..PLACES {
            assert_eq!(apps.find(format!("n{n}").as_bytes()), Some(n as u8));
        }
        assert_eq!(apps.find(b"more"), None);
        assert_eq!(apps.find(b"n63"), Some(63));
    }

    #[test]
    fn threads_find_the_same_entry() {
        let apps = Apps::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..PLACES {
                        apps.find(format!("n{n}").as_bytes()).unwrap();
                    }
                });
            }
        });
        assert_eq!(apps.find(b"more"), None);
    }
}
