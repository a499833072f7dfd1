//! Says in words how clocks were synchronized.

use super::matching::Matched;
use super::outcome::{HostSync, State, Synchronization};
use super::placement::Contradiction;
use super::rule::SyncRule;
use crate::duration::duration;
use crate::field::Field;

/// Most fields that a message lists.
const MAX_NAMES: usize = 20;

/// The fields and contexts of an event.
pub(super) fn names(fields: &[Field], contexts: &[Field]) -> String {
    let all = fields.iter().chain(contexts);
    let names: Vec<&str> = all.map(|field| &*field.name).collect();
    match names.len() {
        0 => "no fields".to_owned(),
        1..=MAX_NAMES => names.join(", "),
        count => format!(
            "{} and {} more",
            names[..MAX_NAMES].join(", "),
            count - MAX_NAMES
        ),
    }
}

/// Why no message was matched.
pub(super) fn no_message(rules: &[SyncRule], matched: &Matched) -> String {
    let rules: Vec<String> = rules.iter().map(|rule| format!("\"{rule}\"")).collect();
    let Matched {
        sends,
        receives,
        local,
        repeated,
        ..
    } = matched;
    format!(
        "no message of {} was sent by one host and received by another: \
         {sends} events send, {receives} receive, {local} messages stay in one host, \
         {repeated} events repeat a key",
        rules.join(", ")
    )
}

impl Synchronization {
    /// Says of each host how its times were corrected, and which error is left.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let hosts = 0..self.hosts.len();
        let mut lines: Vec<String> = hosts.map(|host| self.line(host)).collect();
        // The reference first, whose times all are.
        let is_reference = |host: &HostSync| host.state == State::Reference;
        if let Some(reference) = self.hosts.iter().position(is_reference) {
            let line = lines.remove(reference);
            lines.insert(0, line);
        }
        let contradictions = self.contradictions.iter();
        lines.extend(contradictions.map(|contradiction| self.between(contradiction)));
        if self.matched.one_in > 1 {
            lines.push(format!(
                "synchronized by 1 in {} messages: for more, too many wait for their second event",
                self.matched.one_in
            ));
        }
        if self.matched.repeated > 0 {
            lines.push(format!(
                "{} events of messages were passed over, as another one has the same key",
                self.matched.repeated
            ));
        }
        lines
    }

    fn name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("", |host| &host.name)
    }

    fn line(&self, host: usize) -> String {
        let name = self.name(host);
        let State::Corrected {
            ahead,
            gain,
            error,
            neighbour,
            is_accurate,
            messages: [from, to],
        } = self.hosts[host].state
        else {
            return match self.hosts[host].state {
                State::Reference => format!("host \"{name}\": its clock is the reference"),
                _ => format!("host \"{name}\": not corrected, as no messages connect it"),
            };
        };
        let offset = match ahead {
            0.. => format!("{} ahead", duration(ahead.unsigned_abs())),
            _ => format!("{} behind", duration(ahead.unsigned_abs())),
        };
        let other = self.name(neighbour);
        let left = match (error, is_accurate) {
            (Some(error), _) => format!("correct to ±{}", duration(error)),
            (None, true) => format!("error unknown, as that of \"{other}\" is"),
            (None, false) => "approximate: error unknown, as messages go one way only".to_owned(),
        };
        format!(
            "host \"{name}\": clock was {offset}, drift {:+.3} ppm; now {left} \
             ({from} messages from \"{other}\", {to} to it)",
            // Without a negative zero.
            (gain * 1e9).round() / 1e3 + 0.0
        )
    }

    fn between(&self, contradiction: &Contradiction) -> String {
        let (one, other) = contradiction.hosts;
        let by = duration(contradiction.by.ceil() as u64);
        let (one, other) = (self.name(one), self.name(other));
        match contradiction.is_unused {
            true => format!(
                "messages between \"{one}\" and \"{other}\" contradict each other by {by} or more, \
                 and were not used: their key may repeat, or a clock was set"
            ),
            false => format!(
                "messages between \"{one}\" and \"{other}\" contradict those of other hosts: \
                 some are received up to {by} before they are sent"
            ),
        }
    }

    /// Why no host was corrected.
    pub(super) fn contradiction(&self) -> String {
        let all = self.contradictions.iter();
        let all: Vec<String> = all.map(|of| self.between(of)).collect();
        match all.is_empty() {
            true => "the times of the messages are out of range".to_owned(),
            false => all.join("; "),
        }
    }
}
