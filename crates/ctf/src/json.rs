//! Writes the `metadata` file of CTF 2 (CTF2-SPEC-2.0): a sequence of JSON texts (RFC 7464), each
//! between a record separator and the end of its line. Like TSDL, it grows by appending.

use std::fmt::Write as _;

use usertrace_ring::schema::{Element, Event, FieldType, Integer, Label, Scalar};
use usertrace_sys::printable;

use crate::Clock;
use crate::description::{
    self, CLOCK, CLOCK_DESCRIPTION, Class, Kind, Member, Role, Value, format_uuid, string_literal,
};

/// Namespace of the attributes of `babeltrace2`.
pub const READER_NAMESPACE: &str = "babeltrace.org,2020";
const WRITER_NAMESPACE: &str = "usertrace";

/// Names of log levels, by number. In CTF 2, they are an attribute of `babeltrace2`.
pub const LOGLEVELS: [&str; 15] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "info",
    "debug:system",
    "debug:program",
    "debug:process",
    "debug:module",
    "debug:unit",
    "debug:function",
    "debug:line",
    "debug",
];

/// Everything before the classes of streams.
pub(super) fn preamble(uuid: &[u8; 16], environment: Vec<(&str, Value)>, clock: &Clock) -> String {
    let bytes: Vec<_> = uuid.iter().map(u8::to_string).collect();
    let bytes = bytes.join(",");
    let environment: Vec<_> = environment
        .into_iter()
        .map(|(name, value)| match value {
            Value::Number(number) => format!("{}:{number}", string_literal(name)),
            Value::Text(value) => format!("{}:{}", string_literal(name), string_literal(&value)),
        })
        .collect();
    let preamble = format!("\"type\":\"preamble\",\"version\":2,\"uuid\":[{bytes}]");
    let trace = format!(
        "\"type\":\"trace-class\",\"uid\":{},\"environment\":{{{}}},\"packet-header-field-class\":{}",
        string_literal(&format_uuid(uuid)),
        environment.join(","),
        structure(&description::packet_header(), ""),
    );
    let boot = clock.boot().map(|boot| {
        let uid = string_literal(&format_uuid(&boot));
        format!("\"uid\":{uid},")
    });
    let precision = clock
        .error()
        .map(|cycles| format!("\"precision\":{cycles},"));
    let clock = format!(
        "\"type\":\"clock-class\",\"id\":{name},\"name\":{name},{}\"description\":{},\"frequency\":{},{}\
         \"origin\":\"unix-epoch\",\"offset-from-origin\":{{\"seconds\":{},\"cycles\":{}}}",
        boot.unwrap_or_default(),
        string_literal(CLOCK_DESCRIPTION),
        clock.freq(),
        precision.unwrap_or_default(),
        clock.offset_s(),
        clock.offset(),
        name = string_literal(CLOCK),
    );
    [preamble, trace, clock]
        .map(|text| fragment(&text))
        .concat()
}

/// A class of streams.
pub(super) fn class(class: &Class) -> String {
    let mut text = format!(
        "\"type\":\"data-stream-class\",\"id\":{},\"default-clock-class-id\":{},\"packet-context-field-class\":{},\
         \"event-record-header-field-class\":{}",
        class.id(),
        string_literal(CLOCK),
        structure(&class.packet(), ""),
        structure(&description::event_header(), ""),
    );
    if let Some(contexts) = class.contexts() {
        let contexts = structure(&contexts, "event-record-common-context");
        let _ = write!(
            text,
            ",\"event-record-common-context-field-class\":{contexts}"
        );
    }
    fragment(&text)
}

/// An event, for streams of this class.
pub(super) fn event(event: &Event, class: &Class) -> String {
    let mut text = format!(
        "\"type\":\"event-record-class\",\"data-stream-class-id\":{},\"id\":{},\"name\":{}",
        class.id(),
        event.id,
        string_literal(&event.name),
    );
    let loglevel = LOGLEVELS.get(event.loglevel as usize);
    let attributes: Vec<_> = [
        (
            READER_NAMESPACE,
            "log-level",
            loglevel.map(|name| (*name).to_owned()),
        ),
        (WRITER_NAMESPACE, "format", event.format.clone()),
    ]
    .into_iter()
    .filter_map(|(of, name, value)| {
        Some(format!(
            "{}:{{{}:{}}}",
            string_literal(of),
            string_literal(name),
            string_literal(&value?)
        ))
    })
    .collect();
    if !attributes.is_empty() {
        let _ = write!(text, ",\"attributes\":{{{}}}", attributes.join(","));
    }
    let fields = structure(&description::members(&event.fields), "event-record-payload");
    let _ = write!(text, ",\"payload-field-class\":{fields}");
    fragment(&text)
}

fn fragment(members: &str) -> String {
    format!("\u{1e}{{{members}}}\n")
}

/// A structure. `origin` is its name in the locations of sequence lengths.
fn structure(members: &[Member<'_>], origin: &str) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|member| {
            let (name, class) = (
                string_literal(&member.name),
                member_class(&member.kind, origin),
            );
            format!("{{\"name\":{name},\"field-class\":{class}}}")
        })
        .collect();
    let members = members.join(",");
    format!("{{\"type\":\"structure\",\"member-classes\":[{members}]}}")
}

fn member_class(kind: &Kind<'_>, origin: &str) -> String {
    match kind {
        Kind::Own(role) => own(*role),
        Kind::Length => integer(UINT32, ""),
        Kind::Sequence(of, len) => {
            let location = format!(
                "\"length-field-location\":{{\"origin\":{},\"path\":[{}]}}",
                string_literal(origin),
                string_literal(len)
            );
            several("dynamic", *of, &location)
        }
        Kind::Field(kind) => match kind {
            FieldType::Scalar(kind) => scalar(*kind),
            FieldType::Str => "{\"type\":\"null-terminated-string\"}".to_owned(),
            FieldType::Enum(kind, labels) => integer(*kind, &mappings(labels)),
            FieldType::Array(of, len) => several("static", *of, &format!("\"length\":{len}")),
            FieldType::Sequence(_) => unreachable!("it is a Kind::Sequence"),
        },
    }
}

const UINT32: Integer = Integer {
    len: 4,
    signed: false,
    hex: false,
    big_endian: false,
};

fn own(role: Role) -> String {
    let name = match role {
        Role::Uuid => {
            let len = role.len();
            return format!(
                "{{\"type\":\"static-length-blob\",\"length\":{len},\"roles\":[\"metadata-stream-uuid\"]}}"
            );
        }
        Role::Magic => "packet-magic-number",
        Role::Class => "data-stream-class-id",
        Role::Instance => "data-stream-id",
        Role::Begin | Role::EventTime => "default-clock-timestamp",
        Role::End => "packet-end-default-clock-timestamp",
        Role::ContentSize => "packet-content-length",
        Role::PacketSize => "packet-total-length",
        Role::PacketNumber => "packet-sequence-number",
        Role::Discarded => "discarded-event-record-counter-snapshot",
        Role::Owner => return integer(UINT32, ""),
        Role::EventId => "event-record-class-id",
    };
    let layout = layout(role.len() as u8, false, role.alignment());
    format!("{{\"type\":\"fixed-length-unsigned-integer\",{layout},\"roles\":[\"{name}\"]}}")
}

/// An array or a sequence of this length.
fn several(kind: &str, of: Element, length: &str) -> String {
    match of {
        Element::Char => format!("{{\"type\":\"{kind}-length-string\",{length}}}"),
        Element::Scalar(of) => format!(
            "{{\"type\":\"{kind}-length-array\",{length},\"element-field-class\":{}}}",
            scalar(of)
        ),
    }
}

fn scalar(kind: Scalar) -> String {
    match kind {
        Scalar::Integer(kind) => integer(kind, ""),
        Scalar::Float { len } => {
            let layout = layout(len, false, 8);
            format!("{{\"type\":\"fixed-length-floating-point-number\",{layout}}}")
        }
        // Readers would show a boolean differently than in CTF 1.8.
        Scalar::Bool => integer(Integer { len: 1, ..UINT32 }, ""),
    }
}

fn layout(len: u8, big_endian: bool, alignment: u32) -> String {
    let order = if big_endian || cfg!(target_endian = "big") {
        "big-endian"
    } else {
        "little-endian"
    };
    let bits = 8 * u32::from(len);
    format!("\"length\":{bits},\"byte-order\":\"{order}\",\"alignment\":{alignment}")
}

/// `more`: further properties, each after a comma.
fn integer(kind: Integer, more: &str) -> String {
    let sign = if kind.signed { "signed" } else { "unsigned" };
    let base = if kind.hex {
        ",\"preferred-display-base\":16"
    } else {
        ""
    };
    let layout = layout(kind.len, kind.big_endian, 8);
    format!("{{\"type\":\"fixed-length-{sign}-integer\",{layout}{base}{more}}}")
}

/// Labels, each once, with all of its ranges.
fn mappings(labels: &[Label]) -> String {
    let mut ranges: Vec<(String, Vec<String>)> = Vec::new();
    for label in labels {
        let name = printable(&label.name);
        let range = format!("[{},{}]", label.first, label.last);
        match ranges.iter_mut().find(|(known, _)| *known == name) {
            Some((_, ranges)) => ranges.push(range),
            None => ranges.push((name, vec![range])),
        }
    }
    let mappings: Vec<_> = ranges
        .iter()
        .map(|(name, ranges)| format!("{}:[{}]", string_literal(name), ranges.join(",")))
        .collect();
    format!(",\"mappings\":{{{}}}", mappings.join(","))
}
