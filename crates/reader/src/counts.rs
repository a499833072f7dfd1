//! Counters of channels that count, of which traces have states as events.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use usertrace_ctf::{COUNT_EVENT, PROCESS_NUMBER};

use crate::event::Event;
use crate::metadata::EnvValue;
use crate::value::{Number, Value, Values};

/// The counter of an event and key, of all processes and CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Name of the event. Empty for events that found no room in a table.
    pub event: String,
    /// Name of the channel.
    pub channel: String,
    /// Name of the key; empty if the channel has none.
    pub key_name: String,
    /// The key as text. Empty if the event has none.
    pub key: String,
    /// Name of the field with the values; empty if the channel has none.
    pub value_name: String,
    /// Number of events.
    pub count: u64,
    /// Number of values.
    pub values: u64,
    /// Sum of the values.
    pub sum: i128,
    /// The lowest value; 0 without values.
    pub min: i64,
    /// The highest value; 0 without values.
    pub max: i64,
    /// Number of values in each bucket, up to the last one that is used. Bucket 0 has values up to
    /// 0, bucket `n` those from `2^(n-1)` and below `2^n`, and bucket 63 all above, too.
    pub histogram: Vec<u64>,
}

impl Counter {
    /// The mean of the values, if there are any.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.values > 0).then(|| self.sum as f64 / self.values as f64)
    }

    /// Whether it counts events that found no room in a table.
    #[must_use]
    pub fn is_overflow(&self) -> bool {
        self.event.is_empty()
    }

    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        match (self.values, other.values) {
            (_, 0) => {}
            (0, _) => (self.min, self.max) = (other.min, other.max),
            _ => {
                self.min = self.min.min(other.min);
                self.max = self.max.max(other.max);
            }
        }
        self.values = self.values.saturating_add(other.values);
        self.sum = self.sum.saturating_add(other.sum);
        let len = self.histogram.len().max(other.histogram.len());
        self.histogram.resize(len, 0);
        for (bucket, more) in self.histogram.iter_mut().zip(&other.histogram) {
            *bucket = bucket.saturating_add(*more);
        }
    }
}

/// What tells counters of a trace apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    process: ProcessKey,
    cpu: u64,
    row: Row,
}

/// Identifies a process, also in traces of other readers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProcessKey {
    hostname: Option<String>,
    origin: Option<String>,
    trace: Option<String>,
    pid: Option<i64>,
    number: i64,
}

/// What tells sums of counters apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    channel: String,
    event: String,
    key: String,
    value_name: String,
    key_name: String,
}

/// Collects the states of counters: of each counter the latest one.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// With the times of the states, in ns since 1970.
    latest: BTreeMap<Place, (i64, Counter)>,
}

impl Counters {
    /// Adds an event, if it is the state of a counter. The order of events does not matter.
    /// Returns whether it is.
    pub fn add(&mut self, event: &Event<'_>) -> bool {
        if event.class.name != COUNT_EVENT {
            return false;
        }
        let Some((cpu, counter)) = counter_of(event) else {
            return false;
        };
        let metadata = event.trace.metadata();
        let text = |name| metadata.env_text(name).map(str::to_owned);
        let number = match metadata.env(PROCESS_NUMBER) {
            Some(EnvValue::Number(number)) => *number,
            _ => 0,
        };
        let process = ProcessKey {
            hostname: text("hostname"),
            origin: text("origin"),
            trace: text("trace_name"),
            pid: metadata.pid(),
            number,
        };
        let row = Row::of(&counter);
        match self.latest.entry(Place { process, cpu, row }) {
            Entry::Vacant(entry) => {
                entry.insert((event.ns, counter));
            }
            Entry::Occupied(mut entry) if entry.get().0 <= event.ns => {
                entry.insert((event.ns, counter));
            }
            Entry::Occupied(_) => {}
        }
        true
    }

    /// Whether there is no counter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    /// The sums over all processes and CPUs, those with the most events first.
    #[must_use]
    pub fn sums(&self) -> Vec<Counter> {
        let mut sums: BTreeMap<&Row, Counter> = BTreeMap::new();
        for (place, (_, counter)) in &self.latest {
            match sums.entry(&place.row) {
                Entry::Vacant(entry) => {
                    entry.insert(counter.clone());
                }
                Entry::Occupied(mut entry) => entry.get_mut().add(counter),
            }
        }
        let mut sums: Vec<_> = sums.into_values().collect();
        // Stable, so equal counts stay in the order of names.
        sums.sort_by_key(|counter| std::cmp::Reverse(counter.count));
        sums
    }
}

impl Row {
    fn of(counter: &Counter) -> Self {
        Self {
            channel: counter.channel.clone(),
            event: counter.event.clone(),
            key: counter.key.clone(),
            value_name: counter.value_name.clone(),
            key_name: counter.key_name.clone(),
        }
    }
}

/// The CPU and the counter of an event. None if a program has written an event of that name.
fn counter_of(event: &Event<'_>) -> Option<(u64, Counter)> {
    const FIELDS: usize = 12;
    let (mut cpu, mut counter) = (None, Counter::default());
    let mut found = 0;
    for (field, value) in Values::new(&event.class.fields, event.payload) {
        let text = || match value {
            Value::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        };
        let number = || match value {
            Value::Scalar(Number::Integer(_, bits)) => Some(bits),
            _ => None,
        };
        match field.name.as_str() {
            "event" => counter.event = text()?,
            "channel" => counter.channel = text()?,
            "cpu_id" => cpu = Some(number()?),
            "key_name" => counter.key_name = text()?,
            "key" => counter.key = text()?,
            "value_name" => counter.value_name = text()?,
            "count" => counter.count = number()?,
            "values" => counter.values = number()?,
            "sum" => counter.sum = number()?.cast_signed().into(),
            "min" => counter.min = number()?.cast_signed(),
            "max" => counter.max = number()?.cast_signed(),
            "histogram" => {
                let Value::List(list) = value else {
                    return None;
                };
                counter.histogram = list
                    .map(|number| match number {
                        Number::Integer(_, bits) => bits,
                        _ => 0,
                    })
                    .take(64)
                    .collect();
            }
            _ => continue,
        }
        found += 1;
    }
    cpu.filter(|_| found == FIELDS).map(|cpu| (cpu, counter))
}
