//! Makes the metadata of an event from its provider's header.

use std::ffi::CStr;

use usertrace_ring::schema::{Element, Event, Field, FieldType, Integer, Label, Scalar};

use super::provider::{self, Kind, Name, Probe};

/// Placeholder for the event's id in a trace; no id has more digits.
const ID: u16 = 65000;

/// The event's metadata, without the id. `None`: it cannot be described.
///
/// If the labels of enumerations make the text too long, they are left out.
pub(super) fn describe(probe: &Probe, level: i32) -> Option<String> {
    let class = probe.class()?;
    let fields = class.fields().iter().map(field).collect::<Option<_>>()?;
    let mut event = Event {
        id: ID,
        name: name(probe.name()),
        loglevel: level.try_into().ok()?,
        format: None,
        fields,
    };
    line(&event).or_else(|| {
        for field in &mut event.fields {
            if let FieldType::Enum(integer, _) = field.kind {
                field.kind = FieldType::Scalar(Scalar::Integer(integer));
            }
        }
        line(&event)
    })
}

fn name((provider, name): Name) -> String {
    format!("{}:{}", text(provider), text(name))
}

fn text(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// The description, if it is valid.
fn line(event: &Event) -> Option<String> {
    let line = event.line();
    Event::parse(line.as_bytes()).ok()?;
    let (_, line) = line.split_once(' ')?;
    Some(line.to_owned())
}

fn field(field: &provider::Field) -> Option<Field> {
    let kind = match field.kind()? {
        Kind::Integer => FieldType::Scalar(Scalar::Integer(integer(field)?)),
        Kind::Float => FieldType::Scalar(Scalar::Float { len: field.size }),
        Kind::String => FieldType::Str,
        Kind::Enum => enumeration(field)?,
        Kind::Array => FieldType::Array(element(field)?, field.count.try_into().ok()?),
        Kind::Sequence => FieldType::Sequence(element(field)?),
        Kind::ArrayText => FieldType::Array(Element::Char, field.count.try_into().ok()?),
        Kind::SequenceText => FieldType::Sequence(Element::Char),
    };
    Some(Field {
        name: text(field.name()),
        kind,
    })
}

/// The type of an integer. Signed numbers in hexadecimal are shown as unsigned.
fn integer(field: &provider::Field) -> Option<Integer> {
    matches!(field.size, 1 | 2 | 4 | 8).then(|| Integer {
        len: field.size,
        signed: field.is_signed() && !field.is_hex(),
        hex: field.is_hex(),
        big_endian: field.is_network() && field.size > 1,
    })
}

fn element(field: &provider::Field) -> Option<Element> {
    Some(Element::Scalar(Scalar::Integer(integer(field)?)))
}

/// The type of an enumeration. Labels outside the range of its integer are left out.
fn enumeration(field: &provider::Field) -> Option<FieldType> {
    let integer = integer(field)?;
    let bits = u32::from(integer.len) * 8;
    let (lowest, highest) = if integer.signed {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    let (mut labels, mut next) = (Vec::new(), 0);
    for label in field.labels() {
        let (first, last) = label.values().unwrap_or((next, next));
        next = last + 1;
        let (first, last) = (first.max(lowest), last.min(highest));
        if first <= last {
            let name = text(label.text());
            labels.push(Label { name, first, last });
        }
    }
    Some(if labels.is_empty() {
        FieldType::Scalar(Scalar::Integer(integer))
    } else {
        FieldType::Enum(integer, labels)
    })
}
