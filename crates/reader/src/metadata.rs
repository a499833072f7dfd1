//! What a trace's `metadata` file says.

use std::sync::Arc;

use usertrace_sys::printable;

use crate::field::{Field, Length};

/// What a trace says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub(super) uuid: [u8; 16],
    pub(super) clock: Clock,
    pub(super) env: Vec<(String, EnvValue)>,
    /// Shared with other traces, see [`SharedClasses`](super::shared_classes::SharedClasses).
    pub(super) classes: Arc<Vec<StreamClass>>,
    /// The last declaration is cut short.
    pub(super) cut: Option<usize>,
}

/// A value of the trace's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

/// How the clock of a trace runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    freq: u64,
    /// Nanoseconds since 1970 at 0 cycles.
    at_zero: i64,
}

/// A class of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamClass {
    /// Its number.
    pub id: u32,
    /// What packets say of whose they are.
    pub packet: Vec<Field>,
    pub(super) packet_len: usize,
    /// What events begin with: their contexts, if they have some.
    pub contexts: Option<Vec<Field>>,
    pub(super) contexts_len: Length,
    /// By their ids.
    events: Vec<EventClass>,
    /// Of each id that is low enough, the place in `events`, and 1.
    places: Vec<u16>,
}

/// A kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventClass {
    /// Its id in its process.
    pub id: u16,
    /// `PROVIDER:NAME`.
    pub name: String,
    /// Its log level, if it is one that readers know.
    pub loglevel: Option<u32>,
    /// Its fields.
    pub fields: Vec<Field>,
    pub(super) len: Length,
    /// Was it asked for?
    pub(super) is_wanted: bool,
}

impl Clock {
    /// None: it does not run, or is of too long ago.
    pub(super) fn new(freq: u64, offset_s: i64, offset: u64) -> Option<Self> {
        let at_zero = offset_s.checked_mul(1_000_000_000)?;
        let is_good = freq != 0 && offset < freq;
        let at_zero = is_good.then(|| at_zero.checked_add(ns_of(freq, offset) as i64))??;
        Some(Self { freq, at_zero })
    }

    /// Nanoseconds since 1970. None: beyond what 64 bits can say.
    ///
    /// It is `babeltrace2`'s arithmetic, rounding included: after some months of clock, the last
    /// digits differ from the exact ones, and what is printed is to be the same everywhere.
    #[inline]
    #[must_use]
    pub fn ns(&self, cycles: u64) -> Option<i64> {
        let ns = i64::try_from(ns_of(self.freq, cycles)).ok()?;
        self.at_zero.checked_add(ns).filter(|_| ns != i64::MAX)
    }
}

#[inline]
fn ns_of(freq: u64, cycles: u64) -> u64 {
    if freq == 1_000_000_000 {
        cycles
    } else {
        // What is too large becomes the largest number.
        (1e9 * cycles as f64 / freq as f64) as u64
    }
}

impl EventClass {
    /// Was it asked for?
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }
}

impl Metadata {
    /// What stands before the names of a trace's events.
    pub(crate) fn head(&self) -> String {
        let mut parts: Vec<String> = ["hostname", "procname"]
            .into_iter()
            .filter_map(|name| self.env_text(name).map(str::to_owned))
            .collect();
        if let Some(EnvValue::Number(pid)) = self.env("vpid") {
            parts.push(format!("({pid})"));
        }
        if parts.is_empty() {
            return String::new();
        }
        parts.join(":") + " "
    }

    /// Takes control characters out of all names. Whoever wrote the trace chose them, and they are
    /// printed as they are.
    pub(super) fn make_printable(&mut self) {
        let mut texts: Vec<&mut String> = Vec::new();
        for (name, value) in &mut self.env {
            texts.push(name);
            if let EnvValue::Text(text) = value {
                texts.push(text);
            }
        }
        fn names(field: &mut Field) -> impl Iterator<Item = &mut String> {
            [Some(&mut field.name), field.length_name.as_mut()]
                .into_iter()
                .flatten()
        }
        for class in Arc::make_mut(&mut self.classes) {
            let contexts = class.contexts.iter_mut().flatten();
            let fields = class.packet.iter_mut().chain(contexts);
            texts.extend(fields.flat_map(names));
            for event in &mut class.events {
                texts.push(&mut event.name);
                texts.extend(event.fields.iter_mut().flat_map(names));
            }
        }
        for text in texts {
            if text.contains(char::is_control) {
                *text = printable(text);
            }
        }
    }
}

impl StreamClass {
    pub(super) fn new(
        id: u32,
        packet: Vec<Field>,
        packet_len: usize,
        contexts: Option<Vec<Field>>,
    ) -> Self {
        Self {
            id,
            packet,
            packet_len,
            contexts_len: Length::of(contexts.as_deref().unwrap_or_default()),
            contexts,
            events: Vec::new(),
            places: Vec::new(),
        }
    }

    pub(super) fn declare(&mut self, event: EventClass) {
        self.events.push(event);
    }

    /// All events are declared. Gives an id that was declared twice.
    pub(super) fn end(&mut self) -> Option<u16> {
        self.events.sort_by_key(|event| event.id);
        self.find_places();
        let mut pairs = self.events.windows(2);
        pairs
            .find(|pair| pair[0].id == pair[1].id)
            .map(|pair| pair[0].id)
    }

    /// The CPU that a packet of such a stream says that it is of.
    #[must_use]
    pub fn cpu(&self, packet: &[u8]) -> Option<u32> {
        let index = self
            .packet
            .iter()
            .position(|field| field.name == "cpu_id")?;
        u32::try_from(super::value::integer(&self.packet, index, packet)?).ok()
    }

    /// The event of this id.
    #[inline]
    #[must_use]
    pub fn event(&self, id: u16) -> Option<&EventClass> {
        match self.places.get(usize::from(id)) {
            Some(&place) => self.events.get(usize::from(place).wrapping_sub(1)),
            None => {
                let place = self.events.binary_search_by_key(&id, |event| event.id);
                self.events.get(place.ok()?)
            }
        }
    }

    /// All its events, by id.
    #[must_use]
    pub fn events(&self) -> &[EventClass] {
        &self.events
    }

    /// Makes `places`: as long as ids are dense, which those of the library are, and never much
    /// larger than the text that declared them.
    fn find_places(&mut self) {
        let end = self
            .events
            .last()
            .map_or(0, |event| usize::from(event.id) + 1);
        self.places.clear();
        if end <= 64 + 8 * self.events.len() {
            self.places.resize(end, 0);
            for (place, event) in (1..).zip(&self.events) {
                self.places[usize::from(event.id)] = place;
            }
        }
    }
}

impl Metadata {
    /// The trace's UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The trace's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A value of its environment.
    #[must_use]
    pub fn env(&self, name: &str) -> Option<&EnvValue> {
        let found = self.env.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }

    /// A text of its environment: `procname`, `hostname`, `trace_name` and others.
    #[must_use]
    pub fn env_text(&self, name: &str) -> Option<&str> {
        match self.env(name)? {
            EnvValue::Text(text) => Some(text),
            EnvValue::Number(_) => None,
        }
    }

    /// Whose events these are: the process's name, or `kernel` for the kernel's own.
    #[must_use]
    pub fn whose(&self) -> Option<&str> {
        let is_kernel = self.env_text("domain") == Some("kernel");
        self.env_text("procname")
            .or_else(|| is_kernel.then_some("kernel"))
    }

    /// The process's id.
    #[must_use]
    pub fn pid(&self) -> Option<i64> {
        match self.env("vpid")? {
            EnvValue::Number(pid) => Some(*pid),
            EnvValue::Text(_) => None,
        }
    }

    /// Its classes of streams.
    #[must_use]
    pub fn classes(&self) -> &[StreamClass] {
        &self.classes
    }

    /// Where the class of this number is.
    pub(super) fn class_index(&self, id: u32) -> Option<usize> {
        self.classes.iter().position(|class| class.id == id)
    }

    /// Says of each event whether it is asked for.
    pub(super) fn want(&mut self, mut is_wanted: impl FnMut(&str) -> bool) {
        let classes = Arc::make_mut(&mut self.classes).iter_mut();
        for event in classes.flat_map(|class| &mut class.events) {
            event.is_wanted = is_wanted(&event.name);
        }
    }
}
