//! The messages of OTLP in its JSON encoding: `opentelemetry/proto/trace/v1/trace.proto` and what
//! it uses.
//!
//! Names are in lower camel case, ids are hexadecimal, and integers of 64 bits are strings.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use usertrace_reader::{Field, Number, Value, Values};

use crate::export::code_place::CodePlace;
pub(super) use crate::spans::ids::Ids;

/// A line of a file: a batch of spans of one process and one instrumentation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TracesData<'a> {
    pub(super) resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceSpans<'a> {
    pub(super) resource: Resource<'a>,
    pub(super) scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Debug, Serialize)]
pub(super) struct Resource<'a> {
    pub(super) attributes: &'a [KeyValue],
}

#[derive(Debug, Serialize)]
pub(super) struct ScopeSpans<'a> {
    pub(super) scope: Scope<'a>,
    pub(super) spans: &'a [Span],
}

#[derive(Debug, Serialize)]
pub(super) struct Scope<'a> {
    pub(super) name: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    #[serde(flatten, with = "HexIds")]
    pub(super) ids: Ids,
    #[serde(serialize_with = "hex16", skip_serializing_if = "is_zero")]
    pub(super) parent_span_id: u64,
    pub(super) name: String,
    pub(super) kind: u32,
    #[serde(serialize_with = "nanoseconds")]
    pub(super) start_time_unix_nano: i64,
    #[serde(serialize_with = "nanoseconds")]
    pub(super) end_time_unix_nano: i64,
    pub(super) attributes: Vec<KeyValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<SpanEvent>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) dropped_events_count: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(serialize_with = "links")]
    pub(super) links: Vec<Ids>,
}

/// How ids are written.
#[derive(Serialize)]
#[serde(remote = "Ids", rename_all = "camelCase")]
struct HexIds {
    #[serde(serialize_with = "hex32")]
    trace_id: u128,
    #[serde(serialize_with = "hex16")]
    span_id: u64,
}

fn links<S: Serializer>(links: &[Ids], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Link<'a>(#[serde(with = "HexIds")] &'a Ids);
    to.collect_seq(links.iter().map(Link))
}

/// `SPAN_KIND_INTERNAL`.
pub(super) const INTERNAL: u32 = 1;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpanEvent {
    #[serde(serialize_with = "nanoseconds")]
    pub(super) time_unix_nano: i64,
    pub(super) name: String,
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct KeyValue {
    pub(super) key: String,
    pub(super) value: AnyValue,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) enum AnyValue {
    #[serde(rename = "stringValue")]
    String(String),
    #[serde(rename = "boolValue")]
    Bool(bool),
    /// The digits of an integer that fits into 64 bits with a sign.
    #[serde(rename = "intValue")]
    Int(String),
    /// A finite number.
    #[serde(rename = "doubleValue")]
    Double(f64),
    #[serde(rename = "arrayValue")]
    Array { values: Vec<AnyValue> },
}

fn hex16<S: Serializer>(id: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{id:016x}"))
}

fn hex32<S: Serializer>(id: &u128, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{id:032x}"))
}

/// OTLP has no times before 1970.
fn nanoseconds<S: Serializer>(ns: &i64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&(*ns).max(0))
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// Escapes DEL and C1 control characters: JSON does not require that, but some terminals interpret
/// them.
struct Printable;

impl Formatter for Printable {
    fn write_string_fragment<W>(&mut self, to: &mut W, mut fragment: &str) -> io::Result<()>
    where
        W: Write + ?Sized,
    {
        let is_special = |c| matches!(c, '\u{7f}'..='\u{9f}');
        while let Some(at) = fragment.find(is_special) {
            let (plain, rest) = fragment.split_at(at);
            to.write_all(plain.as_bytes())?;
            let mut chars = rest.chars();
            for c in chars.by_ref().take(1) {
                write!(to, "\\u{:04x}", u32::from(c))?;
            }
            fragment = chars.as_str();
        }
        to.write_all(fragment.as_bytes())
    }
}

impl TracesData<'_> {
    /// Appends the message as a line.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let before = out.len();
        let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Printable);
        match self.serialize(&mut serializer) {
            Ok(()) => out.push(b'\n'),
            // It cannot fail: a vector takes everything, and all keys are text.
            Err(_) => out.truncate(before),
        }
    }
}

impl KeyValue {
    pub(super) fn text(key: &str, value: &str) -> Self {
        Self {
            key: key.to_owned(),
            value: AnyValue::String(value.to_owned()),
        }
    }

    pub(super) fn integer(key: &str, value: i64) -> Self {
        Self {
            key: key.to_owned(),
            value: AnyValue::Int(value.to_string()),
        }
    }
}

/// Adds an attribute whose key is not there yet.
pub(super) fn add_new(to: &mut Vec<KeyValue>, attribute: KeyValue) {
    if to.iter().all(|known| known.key != attribute.key) {
        to.push(attribute);
    }
}

/// Adds where the code is that an event is about, by OpenTelemetry's conventions for code.
pub(super) fn add_code(to: &mut Vec<KeyValue>, place: &CodePlace<'_>) {
    if let Some(frame) = place.function {
        add_new(to, KeyValue::text("code.function.name", &frame.function));
        if let Some(file) = &frame.file {
            add_new(to, KeyValue::text("code.file.path", file));
        }
        if let Some(line) = frame.line {
            add_new(to, KeyValue::integer("code.line.number", line.into()));
        }
    }
    if !place.stack.is_empty() {
        let lines: Vec<String> = place
            .stack
            .iter()
            .map(|frame| format!("at {frame:#}"))
            .collect();
        add_new(to, KeyValue::text("code.stacktrace", &lines.join("\n")));
    }
}

/// Adds fields as attributes, except the first ones. A key that is there already gets `prefix` in
/// front.
pub(super) fn add_fields(
    to: &mut Vec<KeyValue>,
    fields: &[Field],
    bytes: &[u8],
    without: usize,
    prefix: &str,
) {
    for (field, value) in Values::new(fields, bytes).skip(without) {
        let is_taken = to.iter().any(|known| known.key == field.name);
        let key = match is_taken {
            true => format!("{prefix}{}", field.name),
            false => field.name.clone(),
        };
        // Keys are unique: of more fields with one name, the first counts.
        if !is_taken || to.iter().all(|known| known.key != key) {
            to.push(KeyValue {
                key,
                value: value_of(value),
            });
        }
    }
}

pub(super) fn value_of(value: Value<'_>) -> AnyValue {
    match value {
        Value::Scalar(value) => number(value),
        Value::Text(text) => AnyValue::String(String::from_utf8_lossy(text).into_owned()),
        Value::Enum(value) => {
            let labels: Vec<_> = value.names().collect();
            match &labels[..] {
                [] => number(Number::Integer(value.kind, value.bits)),
                labels => AnyValue::String(labels.join(", ")),
            }
        }
        Value::List(elements) => AnyValue::Array {
            values: elements.map(number).collect(),
        },
    }
}

fn number(value: Number) -> AnyValue {
    let double = |number: f64| match number.is_finite() {
        true => AnyValue::Double(number),
        // Most readers of JSON have no such numbers.
        false => AnyValue::String(number.to_string()),
    };
    match value {
        Number::Integer(kind, bits) if kind.signed => AnyValue::Int(bits.cast_signed().to_string()),
        Number::Integer(_, bits) => match i64::try_from(bits) {
            Ok(_) => AnyValue::Int(bits.to_string()),
            Err(_) => AnyValue::String(bits.to_string()),
        },
        Number::Bool(byte @ 0..=1) => AnyValue::Bool(byte == 1),
        // A hostile program's.
        Number::Bool(byte) => AnyValue::Int(byte.to_string()),
        Number::F32(number) => double(number.into()),
        Number::F64(number) => double(number),
    }
}
