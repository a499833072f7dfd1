//! Probes: functions that get the records of events, in the program itself, whether these are traced or not.
//!
//! A probe is registered under a name, by the program, by one of its libraries, or from a library that is loaded on
//! command ([`load`]), and may be unloaded again ([`unload`]). It is connected to events by their names, and the connection is then activated; both are undone,
//! too. A connection is made by a pattern (`shop:*`), and holds for events that are declared later as well; what undoes
//! it has the same pattern.
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
//! An event that calls a probe goes the long way; others cost what they did before. Where a process has 64 probes and 256
//! connections, there is no room for more.
//!
//! A probe is called wherever events are: in any thread, in signal handlers, inside `malloc`. So it may do what a signal
//! handler may, and wait for nobody. It is called before the event is written. An event in a probe, or in a signal handler
//! that interrupts it, does not call that probe again in this thread; it is written, and calls others. When
//! [`deactivate`], [`disconnect`] or [`unregister`] returns, no other thread is in the probe by way of these events.
//!
//! A child of `fork` has all probes and connections of its parent.

mod load;
mod table;
mod visits;

use std::ffi::{c_char, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use self::table::PROBES;
use self::visits::Refusal;
use crate::errno;
use crate::event::{Callsite, Cursor};
use crate::runtime::refresh;
use crate::runtime::walk::{self, Held};
use crate::writer::Payload;

pub use self::load::{Declaration, LoadError, UnloadError, load, unload};
pub(crate) use self::table::{Item, Table};
pub(crate) use self::visits::Visits;

/// Bytes of a long payload that a probe gets.
pub const PAYLOAD_MAX: usize = 1024;

/// What a probe gets: `struct usertrace_record` in C.
#[derive(Debug)]
#[repr(C)]
pub struct Record<'a> {
    description: *const c_char,
    description_len: usize,
    payload: *const u8,
    payload_len: usize,
    len: usize,
    lifetime: PhantomData<&'a [u8]>,
}

impl Record<'_> {
    /// The event's metadata, as in the header `linux/ltt.h`, without the id:
    /// `PROVIDER:NAME LOGLEVEL[ TYPE FIELD[;TYPE FIELD]…]`.
    #[must_use]
    pub fn description(&self) -> &str {
        // SAFETY: `call` made it of a `str`.
        unsafe {
            let bytes =
                std::slice::from_raw_parts(self.description.cast::<u8>(), self.description_len);
            std::str::from_utf8_unchecked(bytes)
        }
    }

    /// The fields, as the description says; up to 7 zeros may follow. Of a long payload these are the first
    /// [`PAYLOAD_MAX`] bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        // SAFETY: `call` made it of a slice.
        unsafe { std::slice::from_raw_parts(self.payload, self.payload_len) }
    }

    /// How many bytes the whole payload has.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a record is no collection")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// A probe's function: it is called with what was given when it was registered.
pub type Call = extern "C" fn(record: &Record<'_>, data: *mut c_void);

/// Why probes cannot be changed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No name of a probe: 1 to 64 letters, digits, and `_ . -`.
    Name,
    /// No names of events.
    Pattern,
    /// There is a probe of that name.
    Exists,
    /// There is no probe of that name.
    NoProbe,
    /// It is connected to these events, by that very pattern.
    Connected,
    /// It is not connected to events by that very pattern.
    NotConnected,
    /// There are 64 probes, or 256 connections.
    Full,
    /// There is no memory.
    Memory,
    /// This thread is in the middle of such a change.
    Busy,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "a probe's name has 1 to 64 letters, digits, and _ . -",
            Self::Pattern => "events are named by letters, digits, and _ . - : * ?",
            Self::Exists => "there is a probe of that name",
            Self::NoProbe => "there is no such probe",
            Self::Connected => "the probe is connected to these events",
            Self::NotConnected => "the probe is not connected to events by that name",
            Self::Full => "there is no room for another one",
            Self::Memory => "no memory",
            Self::Busy => "probes are being changed",
        })
    }
}

impl std::error::Error for Error {}

/// Registers a probe. Not to be called from a signal handler.
///
/// # Errors
/// When the name is none, or taken, or there is no room.
///
/// # Safety
/// The function must be there, and may be called with `data` in any thread, until [`unregister`] returns.
pub unsafe fn register(name: &str, call: Call, data: *mut c_void) -> Result<(), Error> {
    // SAFETY: the caller's promise.
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
fn opened() -> Result<(&'static Table, Held), Error> {
    let table = table::open().ok_or(Error::Memory)?;
    walk::open().ok_or(Error::Memory)?;
    Ok((table, walk::hold().ok_or(Error::Busy)?))
}

/// Takes a probe out, with all its connections. Afterwards nobody is in it, but the calling thread if it called this there.
///
/// # Errors
/// When there is no such probe.
pub fn unregister(name: &str) -> Result<(), Error> {
    let table = table::table().ok_or(Error::NoProbe)?;
    let mut held = walk::hold().ok_or(Error::Busy)?;
    let probe = table.lists(&mut held).remove(name)?;
    apply(table, &mut held);
    drop(held);
    refresh();
    wait(probe);
    let mut held = walk::hold().ok_or(Error::Busy)?;
    table.lists(&mut held).free(probe);
    Ok(())
}

/// Connects a probe to events: by the name `PROVIDER:NAME`, in which `*` is any characters, and `?` one. Says how many such
/// events there are now. They call it when the connection is active. Async-signal-safe, as are the others below.
///
/// # Errors
/// When there is no such probe, or the connection is there, or there is no room.
pub fn connect(events: &str, probe: &str) -> Result<usize, Error> {
    let table = table::table().ok_or(Error::NoProbe)?;
    let mut held = walk::hold().ok_or(Error::Busy)?;
    table.lists(&mut held).connect(events, probe)?;
    Ok(table::count(events, held.callsites()))
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
    table::table().map_or(0, |table| table.skipped.load(Ordering::Relaxed))
}

fn change(events: &str, name: &str, active: Option<bool>) -> Result<usize, Error> {
    let table = table::table().ok_or(Error::NoProbe)?;
    let mut held = walk::hold().ok_or(Error::Busy)?;
    let probe = table.lists(&mut held).change(events, name, active)?;
    apply(table, &mut held);
    let count = table::count(events, held.callsites());
    drop(held);
    // Gives the short way back to events that call none any more.
    refresh();
    if active != Some(true) {
        wait(probe);
    }
    Ok(count)
}

/// Tells all callsites which probes they call.
fn apply(table: &Table, held: &mut Held) {
    // The lists are only looked at, and the callsites have nothing of them.
    let lists: *const table::Lists = table.lists(held);
    for callsite in held.callsites() {
        // SAFETY: the lock is held.
        let probes = unsafe { &*lists }.of(callsite);
        if callsite.probes() != probes {
            callsite.set_probes(probes);
        }
    }
}

/// Events came: connections may be about them.
pub(crate) fn connect_more<'a>(events: impl Iterator<Item = &'a Callsite>) {
    if let Some(table) = table::table()
        && let Some(mut held) = walk::hold()
    {
        let lists = table.lists(&mut held);
        events.for_each(|event| event.set_probes(lists.of(event)));
    }
}

/// Looks at each probe and connection. Async-signal-safe.
pub(crate) fn each(mut body: impl FnMut(Item<'_>)) {
    if let Some(table) = table::table()
        && let Some(mut held) = walk::hold()
    {
        table.lists(&mut held).items().for_each(&mut body);
    }
}

fn wait(probe: usize) {
    if let Some(desk) = walk::desk() {
        desk.visits.wait(probe);
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
    let (Some(table), Some(desk)) = (table::table(), walk::desk()) else {
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
        match desk.visits.enter(probe) {
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
