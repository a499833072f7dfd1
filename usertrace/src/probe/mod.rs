//! Probes: functions that get the records of events, in the program itself, whether these are
//! traced or not.
//!
//! A probe is registered under a name, by the program, by one of its libraries, or from a library
//! that is loaded on command ([`load`]), and may be unloaded again ([`unload`]). It is connected to
//! events by their names, and the connection is then activated; both are undone, too. A connection
//! is made by a pattern (`shop:*`), and holds for events that are declared later as well; what
//! undoes it has the same pattern.
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
//! An event that calls a probe goes the long way; others cost what they did before. Where a process
//! has 64 probes and 256 connections, there is no room for more.
//!
//! A probe is called wherever events are: in any thread, in signal handlers, inside `malloc`. So it
//! may do what a signal handler may, and wait for nobody. It is called before the event is written.
//! An event in a probe, or in a signal handler that interrupts it, does not call that probe again
//! in this thread; it is written, and calls others. When [`deactivate`], [`disconnect`] or
//! [`unregister`] returns, no other thread is in the probe by way of these events.
//!
//! A child of `fork` has all probes and connections of its parent.

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
use crate::errno;
use usertrace_sys::filter::matches;

use crate::event::{Callsite, Cursor};
use crate::runtime::current::refresh;
use crate::runtime::fork_private;
use crate::runtime::registry;
use crate::runtime::registry_lock::RegistryGuard;
use crate::runtime::shared::{once, shared};
use crate::writer::Payload;

pub use self::error::Error;
pub(crate) use self::in_flight::InFlight;
pub use self::load::{Declaration, LoadError, UnloadError, load, unload};
pub use self::record::{Call, PAYLOAD_MAX, Record};
pub(crate) use self::table::{Item, Table};

/// The table, if there ever was a probe.
fn table() -> Option<&'static Table> {
    // Acquire pairs with the store in `once`. SAFETY: what is stored there stays.
    unsafe { shared().probes.load(Ordering::Acquire).as_ref() }
}

/// Makes the table, if there is none.
fn open() -> Option<&'static Table> {
    once(&shared().probes, fork_private::map_kept)?;
    table()
}

/// How many of some events a pattern is about.
fn count<'a>(pattern: &str, events: impl Iterator<Item = &'a Callsite>) -> usize {
    let is = |event: &&Callsite| matches(pattern.as_bytes(), event.full_name().as_bytes());
    events.filter(is).count()
}

/// Registers a probe. Not to be called from a signal handler.
///
/// # Errors
/// When the name is none, or taken, or there is no room.
///
/// # Safety
/// The function must be there, and may be called with `data` in any thread, until [`unregister`]
/// returns.
pub unsafe fn register(name: &str, call: Call, data: *mut c_void) -> Result<(), Error> {
    // SAFETY: the function may be called with `data` until `unregister` returns, as this function's
    // caller promises.
    unsafe { register_of(name, call, data, 0) }
}

/// The same, of a library that was loaded on command: its handle.
///
/// # Safety
/// As [`register`]'s.
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

/// The table and its lock, also if there was none.
fn opened() -> Result<(&'static Table, RegistryGuard), Error> {
    let table = open().ok_or(Error::Memory)?;
    registry::open().ok_or(Error::Memory)?;
    Ok((table, registry::hold().ok_or(Error::Busy)?))
}

/// Takes a probe out, with all its connections. Afterwards nobody is in it, but the calling thread
/// if it called this there.
///
/// # Errors
/// When there is no such probe.
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

/// Connects a probe to events: by the name `PROVIDER:NAME`, in which `*` is any characters, and `?`
/// one. Says how many such events there are now. They call it when the connection is active.
/// Async-signal-safe, as are the others below.
///
/// # Errors
/// When there is no such probe, or the connection is there, or there is no room.
pub fn connect(events: &str, probe: &str) -> Result<usize, Error> {
    let table = table().ok_or(Error::NoProbe)?;
    let mut held = registry::hold().ok_or(Error::Busy)?;
    table.lists(&mut held).connect(events, probe)?;
    Ok(count(events, registry::callsites(&held)))
}

/// Undoes [`connect`], whether the connection is active or not.
///
/// # Errors
/// When there is no such probe or connection.
pub fn disconnect(events: &str, probe: &str) -> Result<usize, Error> {
    change(events, probe, None)
}

/// Has the events of a connection call the probe.
///
/// # Errors
/// When there is no such probe or connection.
pub fn activate(events: &str, probe: &str) -> Result<usize, Error> {
    change(events, probe, Some(true))
}

/// Undoes [`activate`]; the connection stays.
///
/// # Errors
/// When there is no such probe or connection.
pub fn deactivate(events: &str, probe: &str) -> Result<usize, Error> {
    change(events, probe, Some(false))
}

/// Calls that were left out since the program began, because 256 threads were in probes.
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
    // Gives the short way back to events that call none any more.
    refresh();
    if active != Some(true) {
        wait(probe);
    }
    Ok(count)
}

/// Tells all callsites which probes they call.
fn apply(table: &Table, held: &mut RegistryGuard) {
    // The lists are only looked at, and the callsites have nothing of them.
    let lists: *const Lists = table.lists(held);
    for callsite in registry::callsites(held) {
        // SAFETY: the lock is held.
        let probes = unsafe { &*lists }.of(callsite);
        if callsite.probes() != probes {
            callsite.set_probes(probes);
        }
    }
}

/// Events came: connections may be about them.
pub(crate) fn connect_more<'a>(events: impl Iterator<Item = &'a Callsite>) {
    if let Some(table) = table()
        && let Some(mut held) = registry::hold()
    {
        let lists = table.lists(&mut held);
        events.for_each(|event| event.set_probes(lists.of(event)));
    }
}

/// Looks at each probe and connection. Async-signal-safe.
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
            // SAFETY: the words' own memory.
            let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), len) };
            call_with(callsite, bytes, len);
        }
        Payload::Made { len, fill } => call_made(callsite, len, fill),
    }
}

/// Apart, so that only long payloads need so much of the stack.
#[inline(never)]
fn call_made(callsite: &Callsite, len: usize, fill: &dyn Fn(&mut Cursor<'_>)) {
    let mut room = [MaybeUninit::<u8>::uninit(); PAYLOAD_MAX];
    let start = room.as_mut_ptr().cast::<u8>();
    let there = len.min(PAYLOAD_MAX);
    // SAFETY: the room has so much.
    let mut cursor = unsafe { Cursor::new(start, there) };
    fill(&mut cursor);
    cursor.finish();
    // SAFETY: `finish` wrote what was not appended.
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
    // Events leave it alone, and so do their probes.
    let _errno = errno::keep();
    for probe in (0..PROBES).filter(|probe| callsite.probes() & 1 << probe != 0) {
        match state.in_flight.enter(probe) {
            // Who takes it out waits from here on, or it is seen here that it was taken out.
            Ok(_visit) if callsite.probes() & 1 << probe != 0 => {
                let entry = &table.entries[probe];
                let call = entry.call.load(Ordering::Relaxed);
                // SAFETY: a `Call`, stored before any callsite had the bit.
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
