//! Synchronizes the clocks of several hosts by the messages between them.
//!
//! It reads the traces once, for the events that send and receive messages. From these it computes
//! a [`Correction`](crate::Correction) for each host, which [`Selection`] has for a second pass.
//!
//! ```no_run
//! use usertrace_reader::sync::{SyncRule, synchronize};
//! use usertrace_reader::{Reader, Selection};
//!
//! let directories = ["traces".into()];
//! let rule: SyncRule = "net:send=net:recv:id".parse()?;
//! let synchronized = synchronize(&directories, &[rule])?;
//! for line in synchronized.lines() {
//!     eprintln!("{line}");
//! }
//! let selection = Selection {
//!     corrections: synchronized.corrections,
//!     ..Selection::default()
//! };
//! let reader = Reader::open(&directories, selection)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod describe;
mod fit;
mod hull;
mod matching;
mod outcome;
mod placement;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;

use usertrace_sys::filter::Patterns;
use usertrace_sys::printable;

use crate::hosts::Hosts;
use crate::merge::{Item, Reader};
use crate::metadata::StreamClass;
use crate::{ReadError, Selection};
pub use matching::Matched;
use matching::{MAX_PENDING, Matcher};
pub use outcome::{HostSync, State, Synchronization};
pub use rule::SyncRule;

/// Why clocks cannot be synchronized.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The traces cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There are more rules than can be.
    #[error(
        "--sync is given {count} times, but at most {} times is possible",
        rule::MAX_RULES
    )]
    TooMany {
        /// Number of rules.
        count: usize,
    },
    /// There is nothing to synchronize.
    #[error("cannot synchronize clocks: all traces are of one host, \"{host}\"")]
    OneHost {
        /// The host.
        host: String,
    },
    /// No trace declares an event.
    #[error("cannot synchronize clocks: no trace has the event \"{event}\"")]
    UnknownEvent {
        /// The event.
        event: String,
    },
    /// An event has no such field.
    #[error(
        "cannot synchronize clocks: the event \"{event}\" has no field \"{field}\"; it has {known}"
    )]
    UnknownField {
        /// The event.
        event: String,
        /// The field.
        field: String,
        /// Its fields and contexts.
        known: String,
    },
    /// No message was matched.
    #[error("cannot synchronize clocks: {0}")]
    NoMessage(String),
    /// The messages contradict each other.
    #[error("cannot synchronize clocks: {0}")]
    Contradictory(String),
}

impl SyncError {
    /// Whether the rules are wrong, rather than what the traces have.
    #[must_use]
    pub fn is_wrong_rule(&self) -> bool {
        use SyncError::{OneHost, TooMany, UnknownEvent, UnknownField};
        matches!(
            self,
            OneHost { .. } | TooMany { .. } | UnknownEvent { .. } | UnknownField { .. }
        )
    }
}

/// Reads traces in or below these directories, and synchronizes the clocks of their hosts.
///
/// What cannot be read is passed over: reading the traces again will report it.
///
/// # Errors
/// If a directory cannot be read, a rule does not fit the traces, or no two hosts can be
/// synchronized.
pub fn synchronize(roots: &[PathBuf], rules: &[SyncRule]) -> Result<Synchronization, SyncError> {
    synchronize_within(roots, rules, MAX_PENDING)
}

/// `most`: limit of the messages that are kept while one of their events is missing.
fn synchronize_within(
    roots: &[PathBuf],
    rules: &[SyncRule],
    most: usize,
) -> Result<Synchronization, SyncError> {
    if rules.len() > rule::MAX_RULES {
        let count = rules.len();
        return Err(SyncError::TooMany { count });
    }
    let names: BTreeSet<&str> = rules.iter().flat_map(SyncRule::names).collect();
    let selection = Selection {
        // Not the names: a pattern must be shorter than a name may be.
        events: Patterns::new(&["*"]).ok(),
        ..Selection::default()
    };
    let mut reader = Reader::open(roots, selection)?;
    reader.select(|name| names.contains(name));
    let hosts = Hosts::of(reader.traces());
    if let [host] = &hosts.all[..] {
        let host = host.name.clone();
        return Err(SyncError::OneHost { host });
    }
    check(rules, &reader)?;
    let spans: Vec<(i64, i64)> = (0..hosts.all.len())
        .map(|host| reader.span_of(|trace| hosts.of_trace.get(trace) == Some(&host)))
        .map(Option::unwrap_or_default)
        .collect();
    let mut matcher = Matcher::new(rules, most);
    while let Some(item) = reader.next() {
        if let Item::Event(event) = item
            && let Some(&host) = hosts.of_trace.get(event.trace.number())
        {
            matcher.event(host, &event);
        }
    }
    let Matcher { pairs, matched, .. } = matcher;
    if pairs.is_empty() {
        return Err(SyncError::NoMessage(describe::no_message(rules, &matched)));
    }
    let placement = placement::place(&pairs, &spans);
    let synchronized = Synchronization::new(&hosts, &spans, &pairs, matched, placement);
    let is_corrected = |host: &HostSync| matches!(host.state, State::Corrected { .. });
    match synchronized.hosts.iter().any(is_corrected) {
        true => Ok(synchronized),
        false => Err(SyncError::Contradictory(synchronized.contradiction())),
    }
}

/// Checks that the events and fields of all rules exist.
fn check(rules: &[SyncRule], reader: &Reader) -> Result<(), SyncError> {
    let declared = || {
        let traces = reader.traces().iter();
        let classes = traces.flat_map(|trace| trace.metadata().classes());
        classes.flat_map(|class: &StreamClass| {
            let contexts = class.contexts.as_deref().unwrap_or_default();
            class.events().iter().map(move |event| (event, contexts))
        })
    };
    for (rule, name) in rules
        .iter()
        .flat_map(|rule| rule.names().map(move |name| (rule, name)))
    {
        let mut is_known = false;
        let mut missing = None;
        for (event, contexts) in declared().filter(|(event, _)| event.name == *name) {
            let has = |key: &&String| matching::has(&event.fields, contexts, key);
            match rule.keys.iter().find(|key| !has(key)) {
                // Another class of the same name may have it.
                Some(key) => missing = missing.or(Some((key, &event.fields, contexts))),
                None => is_known = true,
            }
        }
        match missing {
            _ if is_known => {}
            None => {
                let event = printable(name);
                return Err(SyncError::UnknownEvent { event });
            }
            Some((key, fields, contexts)) => {
                return Err(SyncError::UnknownField {
                    event: printable(name),
                    field: printable(key),
                    known: describe::names(fields, contexts),
                });
            }
        }
    }
    Ok(())
}
