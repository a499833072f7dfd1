//! Probes: functions in the program that get the records of its events, whether these are traced or
//! not.
//!
//! A probe has a name. The program, one of its libraries, or a library that is loaded on command
//! ([`load`], [`unload`]) registers it. It is then connected to events by a pattern of names
//! (`shop:*`), and the connection is activated. A connection also applies to events that are
//! declared later. The same pattern undoes it.
//!
//! ```
//! use std::ffi::c_void;
//! use usertrace::probe::{self, Record};
//!
//! extern "C" fn look(record: &Record<'_>, _: *mut c_void) {
//!     let _first = record.payload().first();
//! }
//!
//! // SAFETY: this program has the function for as long as it runs.
//! unsafe { probe::register("look", look, std::ptr::null_mut()) }?;
//! probe::connect("shop:*", "look")?;
//! probe::activate("shop:*", "look")?;
//! probe::unregister("look")?;
//! # Ok::<(), probe::Error>(())
//! ```
//!
//! An event that calls a probe takes the slow path; others cost what they did before. A process can
//! have 64 probes and 256 connections.
//!
//! A probe is called wherever events are written: in any thread, in signal handlers, inside
//! `malloc`. So it must be async-signal-safe, and must not wait. It is called before the event is
//! written. An event in a probe, or in a signal handler that interrupts it, does not call that
//! probe again in this thread; it is written, and calls other probes. When [`deactivate`],
//! [`disconnect`] or [`unregister`] returns, no other thread is executing the probe for these
//! events.
//!
//! A child of `fork` inherits all probes and connections.

mod error;
mod in_flight;
mod load;
mod record;
mod table;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use self::in_flight::Refusal;
use self::table::{Lists, PROBES};
use crate::os::errno;
use usertrace_sys::filter::matches;

use crate::event::Callsite;
use crate::os::fork_private;
use crate::runtime::current::refresh;
use crate::runtime::registry;
use crate::runtime::registry_lock::RegistryGuard;
use crate::runtime::shared::{once, shared};
use crate::writer::{Cursor, Payload};

pub use self::error::Error;
pub(crate) use self::in_flight::InFlight;
pub use self::load::{Declaration, LoadError, UnloadError, load, unload};
pub use self::record::{Call, PAYLOAD_MAX, Record};
pub(crate) use self::table::{Item, Table};

/// The table; none before the first probe.
fn table() -> Option<&'static Table> {
    // Acquire pairs with the store in `once`. SAFETY: a table that `once` stored is never unmapped.
    unsafe { shared().probes.load(Ordering::Acquire).as_ref() }
}

/// Returns the table, and creates it if there is none.
fn open() -> Option<&'static Table> {
    once(&shared().probes, fork_private::map_kept)?;
    table()
}

/// The number of events that match a pattern.
fn count<'a>(pattern: &str, events: impl Iterator<Item = &'a Callsite>) -> usize {
    let is = |event: &&Callsite| matches(pattern.as_bytes(), event.full_name().as_bytes());
    events.filter(is).count()
}

/// Registers a probe. Signal handlers must not call this.
///
/// # Errors
/// If the name is invalid or taken, or there is no room.
///
/// # Safety
/// The function must stay mapped, and be callable with `data` in any thread, until [`unregister`]
/// returns.
pub unsafe fn register(name: &str, call: Call, data: *mut c_void) -> Result<(), Error> {
    // SAFETY: the contract of this function is that of `register_of`.
    unsafe { register_of(name, call, data, 0) }
}

/// Registers a probe of a library that was loaded on command; `library` is its handle.
///
/// # Safety
/// As for [`register`].
unsafe fn register_of(
    name: &str,
    call: Call,
    data: *mut c_void,
    library: usize,
) -> Result<(), Error> {
    let (table, mut held) = opened()?;
    let probe = table.lists(&mut held).add(name, library)?;
    table.set(probe, call, data);
    Ok(())
}

/// Returns the table and its lock, and creates them if needed.
fn opened() -> Result<(&'static Table, RegistryGuard), Error> {
    let table = open().ok_or(Error::Memory)?;
    registry::open().ok_or(Error::Memory)?;
    Ok((table, registry::hold().ok_or(Error::Busy)?))
}

/// Removes a probe, with all its connections. Afterwards no thread executes it, except for the
/// calling thread if the probe made this call.
///
/// # Errors
/// If there is no such probe.
pub fn unregister(name: &str) -> Result<(), Error> {
    let table = table().ok_or(Error::NoProbe)?;
    let mut held = registry::hold().ok_or(Error::Busy)?;
    let probe = table.lists(&mut held).remove(name)?;
    apply(table, &mut held);
    drop(held);
    refresh();
    wait(probe);
    let mut held = registry::hold().ok_or(Error::Busy)?;
    table.lists(&mut held).free(probe);
    Ok(())
}

/// Connects a probe to the events whose name `PROVIDER:NAME` matches a pattern, in which `*` stands
/// for any characters, and `?` for one. Returns the number of such events now. They call the probe
/// when the connection is active. Async-signal-safe, as are the functions below.
///
/// # Errors
/// If there is no such probe, the connection exists, or there is no room.
pub fn connect(events: &str, probe: &str) -> Result<usize, Error> {
    let table = table().ok_or(Error::NoProbe)?;
    let mut held = registry::hold().ok_or(Error::Busy)?;
    table.lists(&mut held).connect(events, probe)?;
    Ok(count(events, registry::callsites(&held)))
}

/// Undoes [`connect`], whether the connection is active or not.
///
/// # Errors
/// If there is no such probe or connection.
pub fn disconnect(events: &str, probe: &str) -> Result<usize, Error> {
    change(events, probe, None)
}

/// Activates a connection: its events call the probe.
///
/// # Errors
/// If there is no such probe or connection.
pub fn activate(events: &str, probe: &str) -> Result<usize, Error> {
    change(events, probe, Some(true))
}

/// Deactivates a connection, which stays.
///
/// # Errors
/// If there is no such probe or connection.
pub fn deactivate(events: &str, probe: &str) -> Result<usize, Error> {
    change(events, probe, Some(false))
}

/// Number of calls skipped since the program's start because 256 calls were in progress.
#[must_use]
pub fn skipped() -> u64 {
    table().map_or(0, |table| table.skipped.load(Ordering::Relaxed))
}

fn change(events: &str, name: &str, active: Option<bool>) -> Result<usize, Error> {
    let table = table().ok_or(Error::NoProbe)?;
    let mut held = registry::hold().ok_or(Error::Busy)?;
    let probe = table.lists(&mut held).change(events, name, active)?;
    apply(table, &mut held);
    let count = count(events, registry::callsites(&held));
    drop(held);
    // Restores the fast path of events that call no probe any more.
    refresh();
    if active != Some(true) {
        wait(probe);
    }
    Ok(count)
}

/// Sets the probes of all call sites.
fn apply(table: &Table, held: &mut RegistryGuard) {
    // The lists are only read, and call sites hold no reference to them.
    let lists: *const Lists = table.lists(held);
    for callsite in registry::callsites(held) {
        // SAFETY: `held` is the lock's guard, so no other reference to the lists exists.
        let probes = unsafe { &*lists }.of(callsite);
        if callsite.probes() != probes {
            callsite.set_probes(probes);
        }
    }
}

/// Applies existing connections to new events.
pub(crate) fn connect_more<'a>(events: impl Iterator<Item = &'a Callsite>) {
    if let Some(table) = table()
        && let Some(mut held) = registry::hold()
    {
        let lists = table.lists(&mut held);
        events.for_each(|event| event.set_probes(lists.of(event)));
    }
}

/// Calls `body` for each probe and connection. Async-signal-safe.
pub(crate) fn each(mut body: impl FnMut(Item<'_>)) {
    if let Some(table) = table()
        && let Some(mut held) = registry::hold()
    {
        table.lists(&mut held).items().for_each(&mut body);
    }
}

fn wait(probe: usize) {
    if let Some(state) = registry::state() {
        state.in_flight.wait(probe);
    }
}

/// Calls the probes of an event.
pub(crate) fn call(callsite: &Callsite, payload: Payload<'_>) {
    match payload {
        Payload::Words(words) => {
            let len = size_of_val(words);
            // SAFETY: the bytes of `words`.
            let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), len) };
            call_with(callsite, bytes, len);
        }
        Payload::Made { len, fill } => call_made(callsite, len, fill),
    }
}

/// A function of its own, so that only long payloads need this much stack.
#[inline(never)]
fn call_made(callsite: &Callsite, len: usize, fill: &dyn Fn(&mut Cursor<'_>)) {
    let mut room = [MaybeUninit::<u8>::uninit(); PAYLOAD_MAX];
    let start = room.as_mut_ptr().cast::<u8>();
    let there = len.min(PAYLOAD_MAX);
    // SAFETY: `there` is at most the length of `room`.
    let mut cursor = unsafe { Cursor::new(start, there) };
    fill(&mut cursor);
    cursor.finish();
    // SAFETY: `fill` and `finish` initialised all `there` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(start, there) };
    call_with(callsite, bytes, len);
}

fn call_with(callsite: &Callsite, payload: &[u8], len: usize) {
    let (Some(table), Some(state)) = (table(), registry::state()) else {
        return;
    };
    let description = callsite.description();
    let record = Record {
        description: description.as_ptr().cast(),
        description_len: description.len(),
        payload: payload.as_ptr(),
        payload_len: payload.len(),
        len,
        lifetime: PhantomData,
    };
    // Events preserve `errno`, even if their probes do not.
    let _errno = errno::keep();
    for probe in (0..PROBES).filter(|probe| callsite.probes() & 1 << probe != 0) {
        match state.in_flight.enter(probe) {
            // From here on, a thread that removes the probe waits for this one, or this one sees
            // here that its bit is gone.
            Ok(_guard) if callsite.probes() & 1 << probe != 0 => {
                let entry = &table.entries[probe];
                let call = entry.call.load(Ordering::Relaxed);
                // SAFETY: `Table::set` stored a `Call` before any call site had the bit.
                let call: Call = unsafe { std::mem::transmute(call) };
                call(&record, entry.data.load(Ordering::Relaxed));
            }
            Ok(_) | Err(Refusal::Inside) => {}
            Err(Refusal::Full) => {
                table.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
