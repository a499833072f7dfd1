//! An event of a trace.

use crate::metadata::{EventClass, StreamClass};
use crate::trace::Trace;

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The trace that it is in.
    pub trace: &'a Trace,
    /// The class of its stream.
    pub stream: &'a StreamClass,
    /// What it is.
    pub class: &'a EventClass,
    /// Nanoseconds since 1970.
    pub ns: i64,
    /// What its packet says of whose it is: [`StreamClass::packet`].
    pub packet: &'a [u8],
    /// Its contexts: [`StreamClass::contexts`].
    pub contexts: &'a [u8],
    /// Its fields: [`EventClass::fields`].
    pub payload: &'a [u8],
}

impl Event<'_> {
    /// Finds an event of this name in its process, which may be declared in another chunk of the
    /// recording only. Gives whether it was asked for.
    #[must_use]
    pub fn other(&self, name: &str) -> Option<bool> {
        let events = self.stream.events();
        let here = events.iter().find(|event| event.name == name);
        let elsewhere = || self.trace.declared_elsewhere.get(name).copied();
        here.map(EventClass::is_wanted).or_else(elsewhere)
    }
}
