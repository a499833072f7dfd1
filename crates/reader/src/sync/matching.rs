//! Matches events of a message by their keys.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};

use super::fit::Messages;
use super::rule::{Events, SyncRule};
use crate::event::Event;
use crate::field::Field;
use crate::value::{Number, Value, Values};

/// Most messages of which an event is missing so far.
pub(super) const MAX_PENDING: usize = 1 << 18;

/// What an event of a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Send,
    Receive,
    Call,
}

/// An event of a message: its host, and its time there.
type Seen = (usize, i64);

/// The events of a message so far.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Sent(Seen),
    Received(Seen),
    /// Two sends or two receives have the same key, so nobody knows which one the other event
    /// belongs to.
    Repeated(Role),
    /// Up to three events of a call.
    Call([Seen; 3], u8),
}

/// A rule for an event, as its class declares it.
#[derive(Clone, Debug)]
struct Use {
    rule: usize,
    role: Role,
    /// The place of each key.
    keys: Vec<Place>,
}

/// Where a value is: the index of a field, or of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Field(usize),
    Context(usize),
}

/// How many events there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Events that send, or that belong to a call.
    pub sends: u64,
    /// Events that receive.
    pub receives: u64,
    /// Messages between two hosts.
    pub messages: u64,
    /// Messages within one host.
    pub local: u64,
    /// Events whose key another event of the same kind had, before the message was complete.
    pub repeated: u64,
    /// Only messages of one in this many keys were used. The rest did not fit into memory.
    pub one_in: u64,
}

/// Matches the events of messages.
#[derive(Debug)]
pub(super) struct Matcher<'a> {
    rules: &'a [SyncRule],
    /// By trace, class of streams, and event id.
    uses: HashMap<(usize, u32, u16), Vec<Use>>,
    /// By rule and hash of the keys.
    pending: HashMap<(u8, u128), Pending>,
    /// Most entries of `pending`.
    most: usize,
    /// Hashes above this one are ignored.
    threshold: u64,
    /// Messages between each two hosts. The lower one's times are on the x axis.
    pub(super) pairs: HashMap<(usize, usize), Messages>,
    pub(super) matched: Matched,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(rules: &'a [SyncRule], most: usize) -> Self {
        Self {
            rules,
            uses: HashMap::new(),
            pending: HashMap::new(),
            most,
            threshold: u64::MAX,
            pairs: HashMap::new(),
            matched: Matched {
                one_in: 1,
                ..Matched::default()
            },
        }
    }

    /// Adds an event of a host.
    pub(super) fn event(&mut self, host: usize, event: &Event<'_>) {
        let place = (event.trace.number(), event.stream.id, event.class.id);
        let rules = self.rules;
        let uses = self.uses.entry(place).or_insert_with(|| uses(rules, event));
        // It is put back below.
        let uses = std::mem::take(uses);
        for used in &uses {
            let hash = hash(event, &used.keys);
            self.count(used.role);
            if (hash >> 64) as u64 <= self.threshold {
                self.add((used.rule as u8, hash), used.role, (host, event.ns));
            }
        }
        self.uses.insert(place, uses);
    }

    fn count(&mut self, role: Role) {
        match role {
            Role::Send | Role::Call => self.matched.sends += 1,
            Role::Receive => self.matched.receives += 1,
        }
    }

    fn add(&mut self, key: (u8, u128), role: Role, seen: Seen) {
        let next = match (self.pending.remove(&key), role) {
            (None, Role::Send) => Pending::Sent(seen),
            (None, Role::Receive) => Pending::Received(seen),
            (None, Role::Call) => Pending::Call([seen; 3], 1),
            (Some(Pending::Sent(sent)), Role::Receive) => return self.message(sent, seen),
            (Some(Pending::Received(received)), Role::Send) => return self.message(seen, received),
            (Some(Pending::Repeated(known)), role) if known != role => {
                self.matched.repeated += 1;
                return;
            }
            (Some(Pending::Call(all, 3)), _) => return self.call([all[0], all[1], all[2], seen]),
            (Some(Pending::Call(mut all, count)), _) => {
                if let Some(place) = all.get_mut(usize::from(count)) {
                    *place = seen;
                }
                Pending::Call(all, count + 1)
            }
            (Some(_), role) => {
                self.matched.repeated += 1;
                Pending::Repeated(role)
            }
        };
        self.pending.insert(key, next);
        while self.pending.len() > self.most && self.threshold > 0 {
            // Both events of a message have the same hash, so this keeps whole messages, of the
            // whole time.
            self.threshold /= 2;
            self.matched.one_in = self.matched.one_in.saturating_mul(2);
            let threshold = self.threshold;
            self.pending
                .retain(|(_, hash), _| (hash >> 64) as u64 <= threshold);
        }
    }

    fn message(&mut self, sent: Seen, received: Seen) {
        if sent.0 == received.0 {
            self.matched.local += 1;
            return;
        }
        self.matched.messages += 1;
        let (x, y) = if sent.0 < received.0 {
            (sent, received)
        } else {
            (received, sent)
        };
        let messages = self.pairs.entry((x.0, y.0)).or_default();
        messages.add(x.1, y.1, x == sent);
    }

    /// Takes the four events of a call: two of each host. Those of the caller are around those of
    /// the other host, so the time between them is longer. That holds whatever the clocks show.
    fn call(&mut self, all: [Seen; 4]) {
        let host = all[0].0;
        let times = |of_first: bool| -> Vec<Seen> {
            let mut of_host: Vec<Seen> = all
                .into_iter()
                .filter(|&(other, _)| (other == host) == of_first)
                .collect();
            of_host.sort_unstable();
            of_host
        };
        let (one, other) = (times(true), times(false));
        let (&[a, b], &[c, d]) = (&one[..], &other[..]) else {
            match other.is_empty() {
                true => self.matched.local += 1,
                false => self.matched.repeated += 4,
            }
            return;
        };
        let length = |begin: Seen, end: Seen| i128::from(end.1) - i128::from(begin.1);
        if c.0 != d.0 {
            self.matched.repeated += 4;
        } else if length(a, b) >= length(c, d) {
            self.message(a, c);
            self.message(d, b);
        } else {
            self.message(c, a);
            self.message(b, d);
        }
    }
}

/// Finds the rules for an event of this class.
fn uses(rules: &[SyncRule], event: &Event<'_>) -> Vec<Use> {
    let name = &event.class.name;
    let contexts = event.stream.contexts.as_deref().unwrap_or_default();
    let role = |rule: &SyncRule| match &rule.events {
        Events::Message { send, .. } if send == name => Some(Role::Send),
        Events::Message { receive, .. } if receive == name => Some(Role::Receive),
        Events::Call(call) if call == name => Some(Role::Call),
        _ => None,
    };
    let uses = rules.iter().enumerate().filter_map(|(index, rule)| {
        let role = role(rule)?;
        let keys = rule.keys.iter();
        let keys: Option<_> = keys
            .map(|key| place(&event.class.fields, contexts, key))
            .collect();
        Some(Use {
            rule: index,
            role,
            keys: keys?,
        })
    });
    uses.collect()
}

/// Where an event has the value of this name. Fields come before contexts.
fn place(fields: &[Field], contexts: &[Field], name: &str) -> Option<Place> {
    let position = |fields: &[Field]| fields.iter().position(|field| field.name == name);
    position(fields)
        .map(Place::Field)
        .or_else(|| position(contexts).map(Place::Context))
}

/// Whether an event of this class has the value of this name.
pub(super) fn has(fields: &[Field], contexts: &[Field], name: &str) -> bool {
    place(fields, contexts, name).is_some()
}

/// A hash of the values at these places. Equal numbers have one hash, whatever their types.
fn hash(event: &Event<'_>, keys: &[Place]) -> u128 {
    let contexts = event.stream.contexts.as_deref().unwrap_or_default();
    // Without random keys, so that each run uses the same messages.
    let mut hashers = [DefaultHasher::new(), DefaultHasher::new()];
    hashers[1].write_u8(1);
    let mut write = |bytes: &[u8]| {
        for hasher in &mut hashers {
            hasher.write(bytes);
        }
    };
    for key in keys {
        let (mut values, index) = match *key {
            Place::Field(index) => (Values::new(&event.class.fields, event.payload), index),
            Place::Context(index) => (Values::new(contexts, event.contexts), index),
        };
        match values.nth(index).map(|(_, value)| value) {
            None => write(b"n"),
            Some(Value::Scalar(number)) => write(&number_bytes(number)),
            Some(Value::Enum(of)) => {
                write(&number_bytes(Number::Integer(of.kind, of.bits)));
            }
            Some(Value::Text(text)) => {
                write(b"t");
                write(&(text.len() as u64).to_le_bytes());
                write(text);
            }
            Some(Value::List(list)) => {
                let mut count = 0u64;
                write(b"l");
                for number in list {
                    write(&number_bytes(number));
                    count += 1;
                }
                write(&count.to_le_bytes());
            }
        }
    }
    let [high, low] = hashers.map(|hasher| u128::from(hasher.finish()));
    high << 64 | low
}

/// A number as bytes: its kind and its value.
fn number_bytes(number: Number) -> [u8; 17] {
    let (kind, value) = match number {
        Number::Integer(kind, bits) if kind.signed => (b'i', i128::from(bits.cast_signed())),
        Number::Integer(_, bits) => (b'i', i128::from(bits)),
        Number::Bool(byte) => (b'i', i128::from(byte)),
        Number::F32(number) => (b'f', i128::from(f64::from(number).to_bits())),
        Number::F64(number) => (b'f', i128::from(number.to_bits())),
    };
    let mut bytes = [kind; 17];
    bytes[1..].copy_from_slice(&value.to_le_bytes());
    bytes
}
