//! Parsed metadata of a trace.

use std::sync::Arc;

use usertrace_ctf::{UNUSED_EVENT, is_module_event};
use usertrace_sys::printable;

use crate::binding::Binding;
use crate::correction::Correction;
use crate::field::{Field, Length};

/// Frequency of a clock that counts nanoseconds.
const NS: u64 = 1_000_000_000;

/// The metadata of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub(super) uuid: [u8; 16],
    pub(super) clock: Clock,
    /// Unique id of the clock, which traces of one boot of a machine share.
    pub(super) clock_uid: Option<String>,
    pub(super) env: Vec<(String, EnvValue)>,
    /// Shared with other traces, see [`SharedClasses`](super::shared_classes::SharedClasses).
    pub(super) classes: Arc<Vec<StreamClass>>,
    /// Line at which the last declaration is cut short.
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

/// The clock of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    freq: u64,
    /// The frequency, or 0 if times are corrected: the fast path then needs no other comparison.
    rate: u64,
    /// Nanoseconds since 1970 at 0 cycles.
    at_zero: i64,
    /// Largest error of the clock in ns, if the trace says it.
    precision: Option<u64>,
    /// Makes times comparable with those of other hosts.
    correction: Correction,
}

/// A class of streams, with the events that they may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamClass {
    /// Its number.
    pub id: u32,
    /// Context of packets: the owner of the ring.
    pub packet: Vec<Field>,
    pub(super) packet_len: usize,
    /// Contexts at the start of each event, if there are any.
    pub contexts: Option<Vec<Field>>,
    pub(super) contexts_len: Length,
    /// Sorted by id.
    events: Vec<EventClass>,
    /// For low ids, the index into `events` plus 1; 0 for none.
    places: Vec<u16>,
    /// See [`StreamClass::is_about_modules`].
    is_about_modules: bool,
}

/// A class of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventClass {
    /// Its id in its process.
    pub id: u16,
    /// `PROVIDER:NAME`.
    pub name: String,
    /// Its log level, if readers know it.
    pub loglevel: Option<u32>,
    /// Its fields.
    pub fields: Vec<Field>,
    pub(super) len: Length,
    /// It is selected.
    pub(super) is_wanted: bool,
    /// Where its values are that the condition of the selection refers to.
    pub(super) binding: Option<Binding>,
}

impl Clock {
    /// None if the frequency is 0, or the offset out of range.
    pub(super) fn new(freq: u64, offset_s: i64, offset: u64) -> Option<Self> {
        let at_zero = offset_s.checked_mul(1_000_000_000)?;
        let is_valid = freq != 0 && offset < freq;
        let at_zero = is_valid.then(|| at_zero.checked_add(ns_of(freq, offset) as i64))??;
        Some(Self {
            freq,
            rate: freq,
            at_zero,
            precision: None,
            correction: Correction::default(),
        })
    }

    /// Sets the precision, in cycles.
    pub(super) fn set_precision(&mut self, cycles: u64) {
        self.precision = Some(ns_of(self.freq, cycles));
    }

    /// Corrects all times from now on.
    pub(super) fn set_correction(&mut self, correction: Correction) {
        (self.rate, self.correction) = (0, correction);
    }

    /// Largest error of the clock in ns, if the trace says it.
    #[must_use]
    pub fn precision(&self) -> Option<u64> {
        self.precision
    }

    /// Corrects a time in ns since 1970 that the trace has as such, for example in its environment.
    #[must_use]
    pub fn corrected(&self, ns: i64) -> i64 {
        match self.rate {
            0 => self.correction.apply(ns),
            _ => ns,
        }
    }

    /// Converts cycles to nanoseconds since 1970. None if the result is out of range.
    ///
    /// This is the arithmetic of `babeltrace2`, with its rounding: after months of clock, the last
    /// digits differ from the exact ones, but both programs print the same.
    #[inline]
    #[must_use]
    pub fn ns(&self, cycles: u64) -> Option<i64> {
        let ns = match self.rate {
            NS => cycles,
            0 => return self.corrected_ns(cycles),
            rate => scaled(rate, cycles),
        };
        self.since_zero(ns)
    }

    #[cold]
    fn corrected_ns(&self, cycles: u64) -> Option<i64> {
        let ns = ns_of(self.freq, cycles);
        Some(self.correction.apply(self.since_zero(ns)?))
    }

    #[inline]
    fn since_zero(&self, ns: u64) -> Option<i64> {
        let ns = i64::try_from(ns).ok()?;
        self.at_zero.checked_add(ns).filter(|_| ns != i64::MAX)
    }
}

fn ns_of(freq: u64, cycles: u64) -> u64 {
    match freq {
        NS => cycles,
        freq => scaled(freq, cycles),
    }
}

#[inline]
fn scaled(freq: u64, cycles: u64) -> u64 {
    // The cast saturates.
    (1e9 * cycles as f64 / freq as f64) as u64
}

impl EventClass {
    /// Whether it is selected.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }
}

impl Metadata {
    /// The text before the event names of this trace.
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

    /// Replaces control characters in all names. The trace's author chose the names, and a terminal
    /// may obey such characters.
    pub(super) fn make_printable(&mut self) {
        let mut texts: Vec<&mut String> = self.clock_uid.iter_mut().collect();
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
            is_about_modules: false,
        }
    }

    pub(super) fn declare(&mut self, event: EventClass) {
        self.events.push(event);
    }

    /// Ends the declarations. Returns an id that was declared twice.
    pub(super) fn end(&mut self) -> Option<u16> {
        self.events.sort_by_key(|event| event.id);
        self.find_places();
        let names = self.events.iter().map(|event| &*event.name);
        // Each class also declares an event that never occurs.
        let mut names = names.filter(|name| *name != UNUSED_EVENT).peekable();
        self.is_about_modules = names.peek().is_some() && names.all(is_module_event);
        let mut pairs = self.events.windows(2);
        pairs
            .find(|pair| pair[0].id == pair[1].id)
            .map(|pair| pair[0].id)
    }

    /// Whether its events describe the modules that the process has loaded. They are none of the
    /// program's events.
    #[inline]
    #[must_use]
    pub fn is_about_modules(&self) -> bool {
        self.is_about_modules
    }

    /// The CPU in the context of a packet.
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

    /// Fills `places` if the ids are dense, as those of the library are. It never gets much larger
    /// than the declarations.
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

    /// The unique id of the trace's clock. Traces of one boot of a machine share it.
    #[must_use]
    pub fn clock_uid(&self) -> Option<&str> {
        self.clock_uid.as_deref()
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

    /// Name of the owner of the events: the process, or `kernel`.
    #[must_use]
    pub fn owner_name(&self) -> Option<&str> {
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

    /// Index of the class with this number.
    pub(super) fn class_index(&self, id: u32) -> Option<usize> {
        self.classes.iter().position(|class| class.id == id)
    }

    /// Sets the binding of each event.
    pub(super) fn bind(&mut self, bind: impl Fn(&StreamClass, &EventClass) -> Binding) {
        for class in Arc::make_mut(&mut self.classes) {
            let bindings: Vec<_> = (class.events.iter())
                .map(|event| bind(class, event))
                .collect();
            for (event, binding) in class.events.iter_mut().zip(bindings) {
                event.binding = Some(binding);
            }
        }
    }

    /// Selects events by name.
    pub(super) fn select(&mut self, mut is_wanted: impl FnMut(&str) -> bool) {
        let classes = Arc::make_mut(&mut self.classes).iter_mut();
        for event in classes.flat_map(|class| &mut class.events) {
            event.is_wanted = is_wanted(&event.name);
        }
    }
}
