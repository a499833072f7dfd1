//! Events of a trace.

use crate::metadata::{EventClass, StreamClass};
use crate::trace::Trace;

/// An event, with references to its trace and its class.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The trace that it is in.
    pub trace: &'a Trace,
    /// The class of its stream.
    pub stream: &'a StreamClass,
    /// The class of the event.
    pub class: &'a EventClass,
    /// Nanoseconds since 1970.
    pub ns: i64,
    /// The context of its packet: [`StreamClass::packet`].
    pub packet: &'a [u8],
    /// Its contexts: [`StreamClass::contexts`].
    pub contexts: &'a [u8],
    /// Its fields: [`EventClass::fields`].
    pub payload: &'a [u8],
}

impl Event<'_> {
    /// Finds an event of this name in the same process. Another chunk of the recording may declare
    /// it. Returns whether it is selected.
    #[must_use]
    pub fn other(&self, name: &str) -> Option<bool> {
        let events = self.stream.events();
        let here = events.iter().find(|event| event.name == name);
        let elsewhere = || self.trace.declared_elsewhere.get(name).copied();
        here.map(EventClass::is_wanted).or_else(elsewhere)
    }
}
