//! Synchronized clocks.

use super::matching::Matched;
use super::placement::{Contradiction, Pairs, Placed, Placement};
use crate::host::Corrections;
use crate::hosts::Hosts;

/// Clocks that were synchronized.
#[derive(Debug)]
pub struct Synchronization {
    /// The corrections, for a [`Selection`].
    pub corrections: Corrections,
    /// All hosts, in the order of their first traces.
    pub hosts: Vec<HostSync>,
    /// How many events there were.
    pub matched: Matched,
    /// Pairs of hosts, by index, between which messages contradict each other or the corrections.
    pub(super) contradictions: Vec<Contradiction>,
}

/// What is known of a host's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSync {
    /// Its name for people.
    pub name: String,
    /// Whether and how its times were corrected.
    pub state: State,
}

/// How the times of a host were corrected.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// All times are those of this host.
    Reference,
    /// They were corrected.
    Corrected {
        /// Ns by which its clock was ahead of the reference, in the middle of its traces.
        ahead: i64,
        /// Seconds that it gained in a second.
        gain: f64,
        /// Largest error that is left, in ns. None if it is unknown.
        error: Option<u64>,
        /// Index of the host with which it exchanged messages.
        neighbour: usize,
        /// Whether that host's messages limit the correction from both sides.
        is_accurate: bool,
        /// Number of messages from that host, and to it.
        messages: [u64; 2],
    },
    /// No messages connect it to the reference.
    Unreached,
}

impl Synchronization {
    pub(super) fn new(
        hosts: &Hosts,
        spans: &[(i64, i64)],
        pairs: &Pairs,
        matched: Matched,
        placement: Placement,
    ) -> Self {
        let state = |index: usize, placed: &Option<Placed>| match placed {
            None => State::Unreached,
            Some(placed) => match placed.neighbour {
                None => State::Reference,
                Some(neighbour) => corrected(placed, spans[index], index, neighbour, pairs),
            },
        };
        let places = placement.hosts.iter().enumerate();
        let states = places.map(|(index, placed)| state(index, placed));
        let mut corrections = Corrections::default();
        for (host, placed) in hosts.all.iter().zip(&placement.hosts) {
            if let Some(placed) = placed.as_ref().filter(|placed| placed.neighbour.is_some()) {
                for id in &host.ids {
                    corrections.insert(id.clone(), placed.correction);
                }
            }
        }
        Self {
            hosts: hosts
                .all
                .iter()
                .zip(states)
                .map(|(host, state)| HostSync {
                    name: host.name.clone(),
                    state,
                })
                .collect(),
            corrections,
            matched,
            contradictions: placement.contradictions,
        }
    }
}

/// The state of a host that was corrected.
fn corrected(
    placed: &Placed,
    (begin, end): (i64, i64),
    host: usize,
    neighbour: usize,
    pairs: &Pairs,
) -> State {
    let middle = i64::midpoint(begin, end);
    let messages = pairs.get(&(host.min(neighbour), host.max(neighbour)));
    let messages = messages.map_or([0, 0], |messages| match neighbour < host {
        true => [messages.nr_from, messages.nr_to],
        false => [messages.nr_to, messages.nr_from],
    });
    let drift = placed.correction.drift();
    State::Corrected {
        ahead: middle.saturating_sub(placed.correction.apply(middle)),
        gain: -drift / (1.0 + drift),
        error: placed.error.map(|error| error.ceil() as u64),
        neighbour,
        is_accurate: placed.is_accurate,
        messages,
    }
}
