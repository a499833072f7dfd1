//! Parses the `metadata` file of CTF 2: the part of its JSON that [`ctf`](usertrace_ctf) writes.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use usertrace_ctf::{LOGLEVELS, READER_NAMESPACE, RECORD_SEPARATOR};
use usertrace_ring::schema::{FieldType, Integer, Label, Scalar};

use crate::declarations::{
    Declarations, Member, Shape, Type, fields, is_hex, number_len, parse_uuid,
};
use crate::field::Field;
use crate::metadata::{EnvValue, Metadata};
use crate::token::ParseError;

const BYTE_ORDERS: [&str; 2] = if cfg!(target_endian = "little") {
    ["little-endian", "big-endian"]
} else {
    ["big-endian", "little-endian"]
};

/// Parses the file.
pub(super) fn parse(text: &[u8]) -> Result<Metadata, ParseError> {
    let (mut declared, mut line, mut cut) = (Declarations::default(), 1, None);
    for fragment in text.split(|&byte| byte == RECORD_SEPARATOR).skip(1) {
        let error = |what: String, is_at_end| ParseError {
            line,
            what,
            is_at_end,
        };
        // A number may be truncated, so a fragment without the end of its line is incomplete,
        // whatever it is.
        let Some(fragment) = fragment.strip_suffix(b"\n") else {
            if declared.is_enough() {
                cut = Some(line);
                break;
            }
            let what = "it ends in the middle of a declaration".to_owned();
            return Err(error(what, true));
        };
        let parsed = serde_json::from_slice(fragment).map_err(|error| error.to_string());
        let declared_it = parsed.and_then(|fragment| declare(&mut declared, fragment));
        declared_it.map_err(|what| error(what, false))?;
        line += 1 + fragment.iter().filter(|&&byte| byte == b'\n').count();
    }
    declared.end(cut).map_err(|what| ParseError {
        line,
        what,
        is_at_end: true,
    })
}

/// A JSON object as pairs, in their order.
#[derive(Debug, Default)]
struct Named<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names<T>(Vec<(String, T)>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Named<T>, A::Error> {
                while let Some(entry) = map.next_entry()? {
                    self.0.push(entry);
                }
                Ok(Named(self.0))
            }
        }
        from.deserialize_map(Names(Vec::new()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum EnvJson {
    Number(i64),
    Text(String),
}

#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
enum Fragment {
    Preamble {
        version: u32,
        uuid: [u8; 16],
    },
    TraceClass {
        uid: String,
        environment: Named<EnvJson>,
        packet_header_field_class: Class,
    },
    ClockClass {
        id: String,
        #[serde(rename = "name")]
        _name: String,
        #[serde(rename = "description")]
        _description: String,
        frequency: u64,
        origin: String,
        offset_from_origin: Offset,
        uid: Option<String>,
        precision: Option<u64>,
    },
    DataStreamClass {
        id: u32,
        default_clock_class_id: String,
        packet_context_field_class: Class,
        event_record_header_field_class: Class,
        event_record_common_context_field_class: Option<Class>,
    },
    EventRecordClass {
        data_stream_class_id: u32,
        id: u16,
        name: String,
        #[serde(default)]
        attributes: Named<serde_json::Map<String, serde_json::Value>>,
        payload_field_class: Class,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Offset {
    seconds: i64,
    cycles: u64,
}

/// A class of fields.
#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
enum Class {
    FixedLengthUnsignedInteger {
        length: u64,
        byte_order: String,
        alignment: u64,
        #[serde(default = "ten")]
        preferred_display_base: u64,
        #[serde(default)]
        mappings: Named<Vec<(u64, u64)>>,
        #[serde(default)]
        roles: Vec<String>,
    },
    FixedLengthSignedInteger {
        length: u64,
        byte_order: String,
        alignment: u64,
        #[serde(default = "ten")]
        preferred_display_base: u64,
        #[serde(default)]
        mappings: Named<Vec<(i64, i64)>>,
    },
    FixedLengthFloatingPointNumber {
        length: u64,
        byte_order: String,
        alignment: u64,
    },
    NullTerminatedString {},
    StaticLengthString {
        length: u64,
    },
    DynamicLengthString {
        length_field_location: Location,
    },
    StaticLengthBlob {
        length: u64,
        roles: Vec<String>,
    },
    StaticLengthArray {
        length: u64,
        element_field_class: Box<Class>,
    },
    DynamicLengthArray {
        length_field_location: Location,
        element_field_class: Box<Class>,
    },
    Structure {
        member_classes: Vec<MemberClass>,
    },
}

fn ten() -> u64 {
    10
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct MemberClass {
    name: String,
    field_class: Class,
}

/// Location of a number.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Location {
    origin: String,
    path: Vec<String>,
}

fn declare(declared: &mut Declarations, fragment: Fragment) -> Result<(), String> {
    if declared.uuid().is_none() && !matches!(fragment, Fragment::Preamble { .. }) {
        return Err("it does not begin with a preamble".to_owned());
    }
    match fragment {
        Fragment::Preamble { version: 2, uuid } => declared.trace(uuid),
        Fragment::Preamble { version, .. } => Err(format!("version {version} of CTF")),
        Fragment::TraceClass {
            uid,
            environment,
            packet_header_field_class,
        } => declare_trace(declared, &uid, environment, packet_header_field_class),
        Fragment::ClockClass {
            id,
            frequency,
            origin,
            offset_from_origin: Offset { seconds, cycles },
            uid,
            precision,
            ..
        } => match &origin[..] {
            "unix-epoch" => {
                declared.clock(id, frequency, seconds, cycles)?;
                declared.clock_quality(uid, precision);
                Ok(())
            }
            _ => Err(format!("a clock of origin {origin:?}")),
        },
        Fragment::DataStreamClass {
            id,
            default_clock_class_id,
            packet_context_field_class,
            event_record_header_field_class,
            event_record_common_context_field_class,
        } => {
            if !declared.is_clock(&default_clock_class_id) {
                return Err(format!("unknown clock {default_clock_class_id:?}"));
            }
            let packet = packet_members(packet_context_field_class)?;
            check_event_header(event_record_header_field_class)?;
            let contexts = event_record_common_context_field_class
                .map(|class| fields_of(members(class)?, "event-record-common-context"));
            declared.stream(id, fields_of(packet, "")?, contexts.transpose()?)
        }
        Fragment::EventRecordClass {
            data_stream_class_id,
            id,
            name,
            attributes,
            payload_field_class,
        } => {
            let loglevel = loglevel(&attributes)?;
            let fields = fields_of(members(payload_field_class)?, "event-record-payload")?;
            declared.event(data_stream_class_id, id, name, loglevel, fields)
        }
    }
}

fn declare_trace(
    declared: &mut Declarations,
    uid: &str,
    environment: Named<EnvJson>,
    packet_header: Class,
) -> Result<(), String> {
    if parse_uuid(uid) != declared.uuid() {
        return Err(format!("the trace is called {uid:?}"));
    }
    let mut header = members(packet_header)?;
    take_format_members(
        &mut header,
        &[
            ("magic", 4, "packet-magic-number"),
            ("uuid", 16, "metadata-stream-uuid"),
            ("stream_id", 4, "data-stream-class-id"),
            ("stream_instance_id", 8, "data-stream-id"),
        ],
    )?;
    check_no_more(&header)?;
    let values = environment.0.into_iter().map(|(name, value)| {
        let value = match value {
            EnvJson::Number(number) => EnvValue::Number(number),
            EnvJson::Text(text) => EnvValue::Text(text),
        };
        (name, value)
    });
    declared.environment(values);
    Ok(())
}

/// The members of a packet's context that follow those of the format.
fn packet_members(context: Class) -> Result<Vec<MemberClass>, String> {
    let mut packet = members(context)?;
    take_format_members(
        &mut packet,
        &[
            ("timestamp_begin", 8, "default-clock-timestamp"),
            ("timestamp_end", 8, "packet-end-default-clock-timestamp"),
            ("content_size", 8, "packet-content-length"),
            ("packet_size", 8, "packet-total-length"),
            ("packet_seq_num", 8, "packet-sequence-number"),
            (
                "events_discarded",
                8,
                "discarded-event-record-counter-snapshot",
            ),
        ],
    )?;
    Ok(packet)
}

fn check_event_header(header: Class) -> Result<(), String> {
    let mut header = members(header)?;
    take_format_members(
        &mut header,
        &[
            ("id", 2, "event-record-class-id"),
            ("timestamp", 6, "default-clock-timestamp"),
        ],
    )?;
    check_no_more(&header)
}

/// The log level among the attributes of an event.
fn loglevel(
    attributes: &Named<serde_json::Map<String, serde_json::Value>>,
) -> Result<Option<u32>, String> {
    let attributes = attributes.0.iter();
    let mut levels = attributes
        .filter(|(of, _)| of == READER_NAMESPACE)
        .filter_map(|(_, attributes)| attributes.get("log-level")?.as_str());
    let level = levels.next().map(|level| {
        let known = LOGLEVELS.iter().position(|known| *known == level);
        known.ok_or_else(|| format!("log level {level:?}"))
    });
    Ok(level.transpose()?.map(|level| level as u32))
}

fn members(structure: Class) -> Result<Vec<MemberClass>, String> {
    match structure {
        Class::Structure { member_classes } => Ok(member_classes),
        _ => Err("fields that are no structure".to_owned()),
    }
}

/// Removes the leading members, which must be these, with their lengths in bytes and their roles.
/// An event's id is aligned to a word, and so is the event.
fn take_format_members(
    members: &mut Vec<MemberClass>,
    expected: &[(&str, u64, &str)],
) -> Result<(), String> {
    let rest = members.split_off(members.len().min(expected.len()));
    let first = std::mem::replace(members, rest);
    let is = |member: &MemberClass, &(name, len, role): &(&str, u64, &str)| {
        let roles = match &member.field_class {
            Class::StaticLengthBlob { length: 16, roles } if len == 16 => roles,
            Class::FixedLengthUnsignedInteger {
                length,
                byte_order,
                alignment,
                roles,
                ..
            } if *length == 8 * len
                && byte_order == BYTE_ORDERS[0]
                && *alignment == if name == "id" { 64 } else { 8 } =>
            {
                roles
            }
            _ => return false,
        };
        member.name == name && *roles == [role]
    };
    let mut pairs = first.iter().zip(expected);
    if first.len() == expected.len() && pairs.all(|(member, expected)| is(member, expected)) {
        return Ok(());
    }
    let names: Vec<_> = expected.iter().map(|(name, ..)| *name).collect();
    Err(format!("a header other than of {}", names.join(", ")))
}

fn check_no_more(rest: &[MemberClass]) -> Result<(), String> {
    match rest.first() {
        None => Ok(()),
        Some(member) => Err(format!("{} in a header", member.name)),
    }
}

/// Converts members to fields. `origin` names the structure that they are in.
fn fields_of(members: Vec<MemberClass>, origin: &str) -> Result<Vec<Field>, String> {
    let members = members.into_iter().map(|member| {
        let (kind, shape) = type_of(member.field_class, origin)
            .map_err(|what| format!("{} is {what}", member.name))?;
        Ok(Member {
            line: 0,
            name: member.name,
            kind,
            shape,
        })
    });
    let members = members.collect::<Result<_, String>>()?;
    fields(members, |name| name).map_err(|(_, what)| what)
}

fn type_of(class: Class, origin: &str) -> Result<(Type, Shape), String> {
    let of_sequence = |location: Location| match <[String; 1]>::try_from(location.path) {
        Ok([name]) if location.origin == origin => Ok(Shape::Sequence(name)),
        _ => Err("as long as something elsewhere says"),
    };
    let one = |kind| Ok((Type::Field(kind), Shape::Single));
    match class {
        Class::FixedLengthUnsignedInteger {
            length,
            byte_order,
            alignment,
            preferred_display_base,
            mappings,
            roles,
        } => {
            if !roles.is_empty() {
                return Err(format!("a field for {roles:?}"));
            }
            let layout = (length, &byte_order[..], alignment);
            one(integer(false, layout, preferred_display_base, mappings)?)
        }
        Class::FixedLengthSignedInteger {
            length,
            byte_order,
            alignment,
            preferred_display_base,
            mappings,
        } => {
            let layout = (length, &byte_order[..], alignment);
            one(integer(true, layout, preferred_display_base, mappings)?)
        }
        Class::FixedLengthFloatingPointNumber {
            length,
            byte_order,
            alignment,
        } => match layout((length, &byte_order, alignment))? {
            (len @ (4 | 8), false) => one(FieldType::Scalar(Scalar::Float { len })),
            _ => Err("a floating point number of a strange kind".to_owned()),
        },
        Class::NullTerminatedString {} => one(FieldType::Str),
        Class::StaticLengthString { length } => Ok((Type::Char, Shape::Array(length.into()))),
        Class::DynamicLengthString {
            length_field_location,
        } => Ok((Type::Char, of_sequence(length_field_location)?)),
        Class::StaticLengthArray {
            length,
            element_field_class,
        } => Ok((element(*element_field_class)?, Shape::Array(length.into()))),
        Class::DynamicLengthArray {
            length_field_location,
            element_field_class,
        } => {
            let shape = of_sequence(length_field_location)?;
            Ok((element(*element_field_class)?, shape))
        }
        Class::StaticLengthBlob { .. } | Class::Structure { .. } => {
            Err("of a strange type".to_owned())
        }
    }
}

/// The type of an array's elements: a number.
fn element(class: Class) -> Result<Type, String> {
    match type_of(class, "")? {
        (kind @ Type::Field(FieldType::Scalar(_)), Shape::Single) => Ok(kind),
        _ => Err("an array of something strange".to_owned()),
    }
}

/// Length in bytes, and whether the byte order is not the native one.
fn layout((bits, order, alignment): (u64, &str, u64)) -> Result<(u8, bool), String> {
    let len = number_len(bits).ok_or_else(|| format!("a number of {bits} bits"))?;
    if alignment != 8 {
        return Err(format!("aligned to {alignment} bits"));
    }
    match BYTE_ORDERS.iter().position(|known| *known == order) {
        Some(0) => Ok((len, false)),
        // A big-endian machine has no such field.
        Some(1) if order == "big-endian" => Ok((len, true)),
        _ => Err(format!("of byte order {order:?}")),
    }
}

fn integer<T: Into<i128>>(
    signed: bool,
    format: (u64, &str, u64),
    base: u64,
    mappings: Named<Vec<(T, T)>>,
) -> Result<FieldType, String> {
    let (len, big_endian) = layout(format)?;
    let hex = is_hex(base).ok_or_else(|| format!("an integer of base {base}"))?;
    let integer = Integer {
        len,
        signed,
        hex,
        big_endian,
    };
    let mut labels = Vec::new();
    for (name, ranges) in mappings.0 {
        for (first, last) in ranges {
            let (first, last) = (first.into(), last.into());
            if first > last {
                return Err(format!("labelled {name:?} for nothing"));
            }
            let name = name.clone();
            labels.push(Label { name, first, last });
        }
    }
    Ok(match labels.is_empty() {
        true => FieldType::Scalar(Scalar::Integer(integer)),
        false => FieldType::Enum(integer, labels),
    })
}
