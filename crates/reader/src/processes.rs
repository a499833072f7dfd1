//! Recognizes traces of the same process. A recording that rotates has one trace in each of its
//! chunks.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use usertrace_ctf::{CREATED, PROCESS_NUMBER};

use crate::metadata::{EnvValue, Metadata};

/// Tolerance for the creation time. Two chunks may round it differently, as the clock's frequency
/// is known better later. Traces of another boot, or of another machine without a name, differ by
/// more.
const ROUNDING_NS: u128 = 1000;

/// Identifies a process, together with the creation time of its trace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    hostname: Option<String>,
    origin: Option<String>,
    trace: String,
    pid: i64,
    number: i64,
}

impl Key {
    /// None if the trace lacks some of it. It then is a process of its own.
    fn of(metadata: &Metadata) -> Option<Self> {
        let text = |name| metadata.env_text(name).map(str::to_owned);
        let &EnvValue::Number(number) = metadata.env(PROCESS_NUMBER)? else {
            return None;
        };
        Some(Self {
            hostname: text("hostname"),
            origin: text("origin"),
            trace: text("trace_name")?,
            pid: metadata.pid()?,
            number,
        })
    }
}

/// Numbers processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// For each key, creation times in ns since 1970, and process numbers.
    known: HashMap<Key, Vec<(u128, usize)>>,
    count: usize,
}

impl Processes {
    /// Returns the number of the process of a trace, from 0 on.
    pub(super) fn number(&mut self, metadata: &Metadata) -> usize {
        let created = metadata.env_text(CREATED).and_then(ns);
        let Some((key, created)) = Key::of(metadata).zip(created) else {
            return self.add();
        };
        let next = self.count;
        let known = self.known.entry(key).or_default();
        let same = known
            .iter()
            .find(|(other, _)| other.abs_diff(created) <= ROUNDING_NS);
        if let Some(&(_, number)) = same {
            return number;
        }
        known.push((created, next));
        self.add()
    }

    fn add(&mut self) -> usize {
        self.count += 1;
        self.count - 1
    }
}

/// Parses a date as nanoseconds since 1970.
fn ns(date: &str) -> Option<u128> {
    let time = humantime::parse_rfc3339(date).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_nanos())
}
