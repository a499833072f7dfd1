//! The table of a process's probes and their connections.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use usertrace_sys::filter::matches;

use super::error::Error;
use super::record::Call;
use crate::event::{Callsite, is_name_byte};
use crate::runtime::registry_lock::RegistryGuard;

/// Probes at a time: a bit for each in a call site.
pub(super) const PROBES: usize = u64::BITS as usize;

/// Connections at a time.
const CONNECTIONS: usize = 256;

/// Libraries of probes at a time.
const LIBRARIES: usize = 64;

/// Bytes of a probe's name.
const NAME_LEN: usize = 64;

/// Bytes of a pattern of events.
const PATTERN_LEN: usize = 256;

/// The table of probes. All zeros is an empty one. It lies in memory that `fork` copies, so a child
/// inherits it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table {
    /// The part that the event path reads.
    pub(super) entries: [Entry; PROBES],
    /// Number of calls skipped, because too many calls were in progress.
    pub(super) skipped: AtomicU64,
    lists: UnsafeCell<Lists>,
}

// SAFETY: all fields are atomic but the lists, which only the lock's holder can reach.
unsafe impl Sync for Table {}

/// The function of a probe. It does not change while a call site has the probe's bit, or a thread
/// executes the probe.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    /// A [`Call`].
    pub(super) call: AtomicPtr<c_void>,
    pub(super) data: AtomicPtr<c_void>,
}

/// The names and connections of probes, which the lock of [`crate::runtime::registry_lock`]
/// protects.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Lists {
    probes: [Named; PROBES],
    connections: [Connection; CONNECTIONS],
    /// The handles of libraries that were loaded on command; 0: free.
    libraries: [usize; LIBRARIES],
}

#[derive(Debug)]
#[repr(C)]
struct Named {
    /// Empty: there is no probe.
    name: Text<NAME_LEN>,
    /// It is being removed: a thread waits for its calls to end.
    is_going: bool,
    /// The handle of the library that lists it, if that was loaded on command; else 0.
    library: usize,
}

/// A connection of a probe to events, by a pattern of names.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Connection {
    /// Empty: there is no connection.
    pattern: Text<PATTERN_LEN>,
    probe: usize,
    is_active: bool,
}

/// A short text.
#[derive(Debug)]
#[repr(C)]
struct Text<const LEN: usize> {
    len: usize,
    bytes: [u8; LEN],
}

impl<const LEN: usize> Text<LEN> {
    fn set(&mut self, text: &str) -> Option<()> {
        self.bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        self.len = text.len();
        Some(())
    }

    fn get(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// An item of the table, for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A probe: its name.
    Probe(&'a str),
    /// A connection: the pattern of events, the probe's name, and whether it is active.
    Connection(&'a str, &'a str, bool),
}

fn is_name(name: &str) -> bool {
    (1..=NAME_LEN).contains(&name.len()) && name.bytes().all(is_name_byte)
}

fn is_pattern(pattern: &str) -> bool {
    let good = |byte: u8| is_name_byte(byte) || b":*?".contains(&byte);
    (1..=PATTERN_LEN).contains(&pattern.len()) && pattern.bytes().all(good)
}

impl Table {
    /// The part that the lock protects.
    #[allow(clippy::mut_from_ref, reason = "the lock makes access exclusive")]
    pub(super) fn lists<'a>(&'a self, _: &'a mut RegistryGuard) -> &'a mut Lists {
        // SAFETY: there is one lock, whose guard is borrowed exclusively for `'a`.
        unsafe { &mut *self.lists.get() }
    }

    /// Sets the function of a new probe.
    pub(super) fn set(&self, probe: usize, call: Call, data: *mut c_void) {
        let entry = &self.entries[probe];
        // Relaxed: the store of a call site's bit, which comes later, publishes these.
        entry.call.store(call as *mut c_void, Ordering::Relaxed);
        entry.data.store(data, Ordering::Relaxed);
    }
}

impl Lists {
    fn find(&self, name: &str) -> Result<usize, Error> {
        let is = |probe: &Named| probe.name.get() == name && !probe.is_going;
        let found = self.probes.iter().position(is);
        found.filter(|_| !name.is_empty()).ok_or(Error::NoProbe)
    }

    /// Reserves an entry for a new probe.
    pub(super) fn add(&mut self, name: &str, library: usize) -> Result<usize, Error> {
        if !is_name(name) {
            return Err(Error::Name);
        }
        if self.probes.iter().any(|probe| probe.name.get() == name) {
            return Err(Error::Exists);
        }
        let free = self.probes.iter().position(|probe| probe.name.len == 0);
        let place = free.ok_or(Error::Full)?;
        self.probes[place].name.set(name).ok_or(Error::Name)?;
        self.probes[place].library = library;
        Ok(place)
    }

    /// Adds a library that was loaded on command; one entry for each `load`.
    pub(super) fn add_library(&mut self, library: usize) -> Result<(), Error> {
        let free = self.libraries.iter_mut().find(|place| **place == 0);
        *free.ok_or(Error::Full)? = library;
        Ok(())
    }

    pub(super) fn has_library(&self, library: usize) -> bool {
        self.libraries.contains(&library)
    }

    /// Removes a library; returns true if it was there.
    pub(super) fn remove_library(&mut self, library: usize) -> bool {
        let found = self.libraries.iter_mut().find(|place| **place == library);
        found.map(|place| *place = 0).is_some()
    }

    /// A probe of a library that no thread is removing yet.
    pub(super) fn probe_of(&self, library: usize) -> Option<&str> {
        let is =
            |probe: &&Named| probe.library == library && probe.name.len != 0 && !probe.is_going;
        self.probes.iter().find(is).map(|probe| probe.name.get())
    }

    /// Removes a probe's connections; its entry stays reserved until [`free`](Self::free).
    pub(super) fn remove(&mut self, name: &str) -> Result<usize, Error> {
        let probe = self.find(name)?;
        self.probes[probe].is_going = true;
        for connection in &mut self.connections {
            if connection.probe == probe {
                connection.pattern.len = 0;
            }
        }
        Ok(probe)
    }

    pub(super) fn free(&mut self, probe: usize) {
        self.probes[probe].name.len = 0;
        self.probes[probe].is_going = false;
        self.probes[probe].library = 0;
    }

    fn connection(&mut self, events: &str, probe: usize) -> Option<&mut Connection> {
        self.connections
            .iter_mut()
            .find(|found| found.probe == probe && found.pattern.get() == events)
            .filter(|_| !events.is_empty())
    }

    pub(super) fn connect(&mut self, events: &str, name: &str) -> Result<usize, Error> {
        if !is_pattern(events) {
            return Err(Error::Pattern);
        }
        let probe = self.find(name)?;
        if self.connection(events, probe).is_some() {
            return Err(Error::Connected);
        }
        let mut all = self.connections.iter_mut();
        let free = all.find(|connection| connection.pattern.len == 0);
        let connection = free.ok_or(Error::Full)?;
        connection.pattern.set(events).ok_or(Error::Pattern)?;
        connection.probe = probe;
        connection.is_active = false;
        Ok(probe)
    }

    /// Activates or deactivates a connection; none in `active` removes it.
    pub(super) fn change(
        &mut self,
        events: &str,
        name: &str,
        active: Option<bool>,
    ) -> Result<usize, Error> {
        let probe = self.find(name)?;
        let connection = self.connection(events, probe).ok_or(Error::NotConnected)?;
        match active {
            Some(active) => connection.is_active = active,
            None => connection.pattern.len = 0,
        }
        Ok(probe)
    }

    /// The probes that an event calls: a bit for each.
    pub(super) fn of(&self, callsite: &Callsite) -> u64 {
        let name = callsite.full_name().as_bytes();
        let wants = |connection: &&Connection| {
            connection.is_active && matches(connection.pattern.get().as_bytes(), name)
        };
        let all = self
            .connections
            .iter()
            .filter(|found| found.pattern.len != 0);
        all.filter(wants)
            .fold(0, |bits, connection| bits | 1 << connection.probe)
    }

    /// Iterates over all probes and connections.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let probes = self.probes.iter().map(|probe| probe.name.get());
        let probes = probes.filter(|name| !name.is_empty()).map(Item::Probe);
        let used = self
            .connections
            .iter()
            .filter(|found| found.pattern.len != 0);
        probes.chain(used.map(|found| {
            let probe = self.probes[found.probe].name.get();
            Item::Connection(found.pattern.get(), probe, found.is_active)
        }))
    }
}
