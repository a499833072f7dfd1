//! Events of spans, by class.

use usertrace_reader::{Event, Field, Values};

use super::role::Role;

/// What is known of a class of events that belong to spans.
#[derive(Debug)]
pub struct Class {
    pub(crate) number: u32,
    pub(crate) role: Role,
    /// How many of its first fields are ids of spans.
    ids: usize,
    /// The name of the span, or of the event in it, as `PROVIDER:NAME`.
    pub name: String,
    /// The log level, as in syslog.
    pub loglevel: Option<u32>,
    /// All fields, of which the first ones are ids of spans.
    pub(crate) all_fields: Vec<Field>,
    pub(crate) contexts: Vec<Field>,
}

impl Class {
    /// `None`: the event does not belong to spans.
    pub(crate) fn of(number: u32, event: &Event<'_>) -> Option<Self> {
        let (role, name) = Role::of(event)?;
        Some(Self::new(number, event, role, role.ids(), name))
    }

    /// The class of an event that has no ids of spans, and happens in the one that its thread is
    /// in.
    pub(crate) fn of_thread(number: u32, event: &Event<'_>) -> Self {
        Self::new(number, event, Role::InSpan, 0, &event.class.name)
    }

    fn new(number: u32, event: &Event<'_>, role: Role, ids: usize, name: &str) -> Self {
        Self {
            number,
            role,
            ids,
            name: name.to_owned(),
            loglevel: event.class.loglevel,
            all_fields: event.class.fields.clone(),
            contexts: event.stream.contexts.clone().unwrap_or_default(),
        }
    }

    /// The fields that the program wrote, and their bytes in a payload.
    #[must_use]
    pub fn own<'a>(&'a self, payload: &'a [u8]) -> (&'a [Field], &'a [u8]) {
        // The ids are integers of 64 bits.
        let bytes = payload.get(self.ids * size_of::<u64>()..);
        let bytes = bytes.unwrap_or_default();
        (self.all_fields.get(self.ids..).unwrap_or_default(), bytes)
    }

    /// The fields that the program wrote, with their values.
    #[must_use]
    pub fn values<'a>(&'a self, payload: &'a [u8]) -> Values<'a> {
        let (fields, bytes) = self.own(payload);
        Values::new(fields, bytes)
    }
}
