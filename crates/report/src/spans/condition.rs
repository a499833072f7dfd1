//! Chooses spans by their fields.

use std::collections::HashMap;
use std::str::FromStr;

use usertrace_reader::{
    Binding, Condition, Declared, Enumeration, Field, Number, Occurrence, ProcessOf, Trace, Value,
};
use usertrace_ring::schema::{FieldType, Integer, Scalar};

use super::tree::{Part, Tree};

/// Most kinds of spans, by their fields, whose bindings are kept.
const MAX_BINDINGS: usize = 1 << 14;

const U64: FieldType = FieldType::Scalar(Scalar::Integer(Integer {
    len: 8,
    signed: false,
    hex: false,
    big_endian: false,
}));

/// What every span has, besides its own fields.
const OF_ALL: [(&str, FieldType); 4] = [
    ("duration_ns", U64),
    ("busy_ns", U64),
    ("idle_ns", U64),
    ("name", FieldType::Str),
];

/// What a condition can know of a span that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) name: &'a str,
    pub(super) duration: i64,
    pub(super) busy: i64,
    pub(super) parts: &'a [Part],
    /// The contexts of its `.new`.
    pub(super) contexts: &'a [u8],
    pub(super) trace: Option<&'a Trace>,
}

/// A condition on spans, bound to their fields.
#[derive(Debug)]
pub(super) struct SpanCondition {
    condition: Condition,
    /// By the classes of the events that brought the fields.
    bound: HashMap<Vec<u32>, (Vec<Field>, Binding)>,
}

impl SpanCondition {
    pub(super) fn new(condition: Condition) -> Self {
        Self {
            condition,
            bound: HashMap::new(),
        }
    }

    pub(super) fn holds(&mut self, facts: &Facts<'_>) -> bool {
        // The latest value of a field comes first, and is found first.
        let parts = || facts.parts.iter().rev();
        let key: Vec<u32> = parts().map(|part| part.class.number).collect();
        let contexts = facts.parts.first().map(|part| &part.class.contexts[..]);
        let contexts = contexts.unwrap_or_default();
        if self.bound.len() >= MAX_BINDINGS && !self.bound.contains_key(&key) {
            self.bound.clear();
        }
        let (fields, binding) = self.bound.entry(key).or_insert_with(|| {
            let own = parts().flat_map(|part| part.own().0.iter().cloned());
            let of_all = OF_ALL.map(|(name, kind)| Field {
                name: name.to_owned(),
                kind,
                length_name: None,
            });
            let fields: Vec<Field> = own.chain(of_all).collect();
            let declared = Declared {
                packet: &[],
                contexts,
                fields: &fields,
            };
            let binding = self.condition.bind(&declared);
            (fields, binding)
        });
        let mut payload: Vec<u8> = Vec::new();
        for part in parts() {
            payload.extend_from_slice(part.own().1);
        }
        let idle = facts.duration.saturating_sub(facts.busy);
        for ns in [facts.duration, facts.busy, idle] {
            payload.extend(ns.max(0).to_ne_bytes());
        }
        payload.extend_from_slice(facts.name.as_bytes());
        payload.push(0);
        let process = match facts.trace {
            Some(trace) => ProcessOf::Trace(trace.metadata()),
            None => ProcessOf::Process(0, ""),
        };
        let occurrence = Occurrence {
            declared: Declared {
                packet: &[],
                contexts,
                fields,
            },
            packet: &[],
            contexts: facts.contexts,
            payload: &payload,
            process,
        };
        self.condition.holds(binding, &occurrence)
    }

    /// What to say of the names that no span has.
    pub(super) fn unknown_names(&self) -> Vec<String> {
        let bindings = self.bound.values().map(|(_, binding)| binding);
        self.condition.unknown_names(bindings)
    }
}

/// The value of a field as text: `FIELD=VALUE`.
///
/// A span has it if one of its fields, or of the fields of its events, has this name and this
/// value. Integers are decimal, or hexadecimal with `0x`; of an enumeration, the label or the
/// number counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldText {
    name: String,
    value: String,
}

impl FromStr for FieldText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self {
                name: name.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("a field and its value are written FIELD=VALUE".to_owned()),
        }
    }
}

impl FieldText {
    pub(super) fn is_in(&self, tree: &Tree) -> bool {
        let parts = |part: &Part| {
            part.values()
                .any(|(field, value)| field.name == self.name && self.is_value(value))
        };
        tree.spans.iter().any(|span| {
            let events = span.events.iter().flat_map(Part::with_end);
            span.fields.iter().chain(events).any(parts)
        })
    }

    fn is_value(&self, value: Value<'_>) -> bool {
        match value {
            Value::Text(text) => text == self.value.as_bytes(),
            Value::Scalar(value) => self.is_number(value),
            Value::Enum(value) => self.is_enumeration(value),
            Value::List(_) => false,
        }
    }

    fn is_enumeration(&self, value: Enumeration<'_>) -> bool {
        value.names().any(|name| name == self.value)
            || self.is_number(Number::Integer(value.kind, value.bits))
    }

    fn is_number(&self, value: Number) -> bool {
        let wanted = &self.value[..];
        match value {
            Number::Integer(kind, bits) => {
                let value = match kind.signed {
                    true => i128::from(bits.cast_signed()),
                    false => i128::from(bits),
                };
                let above = 64 - 8 * u32::from(kind.len.clamp(1, 8));
                match wanted.strip_prefix("0x") {
                    // A negative number is printed with the bits that its type has.
                    Some(hex) => u64::from_str_radix(hex, 16) == Ok(bits << above >> above),
                    None => wanted.parse() == Ok(value),
                }
            }
            Number::Bool(byte) => match wanted {
                "true" => byte != 0,
                "false" => byte == 0,
                _ => wanted.parse() == Ok(byte),
            },
            Number::F32(number) => wanted.parse() == Ok(number),
            Number::F64(number) => wanted.parse() == Ok(number),
        }
    }
}
