//! Writes the `metadata` file of CTF 1.8 (TSDL), like `lttng-ust` does.

use std::fmt::Write as _;

use usertrace_ring::schema::{Element, Event, FieldType, Integer, Label, Scalar};

use crate::Clock;
use crate::description::{
    self, CLOCK, CLOCK_DESCRIPTION, Class, Kind, Member, Role, Value, format_uuid, string_literal,
};

/// Start of the metadata: a comment.
pub const SIGNATURE: &str = "/* CTF 1.8 */\n";

/// Type of a string's elements.
const CHAR: &str = "integer { size = 8; align = 8; signed = false; encoding = UTF8; }";

/// Everything before the classes of streams.
pub(super) fn preamble(uuid: &[u8; 16], environment: Vec<(&str, Value)>, clock: &Clock) -> String {
    let byte_order = if cfg!(target_endian = "little") {
        "le"
    } else {
        "be"
    };
    let mut text = format!(
        "{SIGNATURE}
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;

trace {{
	major = 1;
	minor = 8;
	uuid = \"{uuid}\";
	byte_order = {byte_order};
	packet.header := {header};
}};

env {{
",
        uuid = format_uuid(uuid),
        header = structure(&description::packet_header()),
    );
    for (name, value) in environment {
        let _ = match value {
            Value::Number(number) => writeln!(text, "\t{name} = {number};"),
            Value::Text(value) => writeln!(text, "\t{name} = {};", string_literal(&value)),
        };
    }
    // As lttng-ust has it: traces of one id have one clock.
    let boot = clock
        .boot()
        .map(|boot| format!("\tuuid = \"{}\";\n", format_uuid(&boot)));
    let precision = clock
        .error()
        .map(|cycles| format!("\tprecision = {cycles};\n"));
    let _ = write!(
        text,
        "}};

clock {{
	name = {name};
{boot}	description = {description};
	freq = {freq};
{precision}	offset_s = {offset_s};
	offset = {offset};
	absolute = true;
}};

typealias integer {{
	size = 64; align = 8; signed = false;
	map = clock.{CLOCK}.value;
}} := ltt_time_t;
typealias integer {{ size = 16; align = {id_align}; signed = false; }} := ltt_event_id_t;
typealias integer {{
	size = 48; align = 8; signed = false;
	map = clock.{CLOCK}.value;
}} := ltt_event_time_t;
",
        name = string_literal(CLOCK),
        boot = boot.unwrap_or_default(),
        description = string_literal(CLOCK_DESCRIPTION),
        freq = clock.freq(),
        precision = precision.unwrap_or_default(),
        offset_s = clock.offset_s(),
        offset = clock.offset(),
        id_align = Role::EventId.alignment(),
    );
    text
}

/// A class of streams.
pub(super) fn class(class: &Class) -> String {
    let mut text = format!(
        "\nstream {{\n\tid = {};\n\tpacket.context := {};\n\tevent.header := {};\n",
        class.id(),
        structure(&class.packet()),
        structure(&description::event_header()),
    );
    if let Some(contexts) = class.contexts() {
        let _ = writeln!(text, "\tevent.context := {};", structure(&contexts));
    }
    text + "};\n"
}

/// An event, for streams of this class.
pub(super) fn event(event: &Event, class: &Class) -> String {
    let mut text = format!(
        "\nevent {{\n\tname = {};\n\tid = {};\n\tstream_id = {};\n",
        string_literal(&event.name),
        event.id,
        class.id()
    );
    if let Some(loglevel) = description::loglevel(event.loglevel) {
        let _ = writeln!(text, "\tloglevel = {loglevel};");
    }
    if let Some(format) = &event.format {
        // A comment, as `babeltrace2` warns of every attribute for it.
        let _ = writeln!(
            text,
            "\t/* format = {} */",
            string_literal(format).replace("*/", "* /")
        );
    }
    let fields = structure(&description::members(&event.fields));
    let _ = write!(text, "\tfields := {fields};\n}};\n");
    text
}

fn structure(members: &[Member<'_>]) -> String {
    let mut text = String::from("struct {\n");
    for member in members {
        let _ = writeln!(text, "\t\t{};", declaration(member));
    }
    text + "\t}"
}

fn declaration(member: &Member<'_>) -> String {
    // Readers drop the leading underscore, which keeps the name apart from keywords.
    let name = format!("_{}", member.name);
    match &member.kind {
        Kind::Own(Role::Uuid) => format!("uint8_t {}[{}]", member.name, Role::Uuid.len()),
        Kind::Own(Role::EventId) => format!("ltt_event_id_t {}", member.name),
        Kind::Own(Role::EventTime) => format!("ltt_event_time_t {}", member.name),
        Kind::Own(role) if role.is_time() => format!("ltt_time_t {}", member.name),
        Kind::Own(role) => format!("uint{}_t {}", 8 * role.len(), member.name),
        Kind::Length => format!("uint32_t {name}"),
        Kind::Sequence(of, len) => format!("{} {name}[_{len}]", element(*of)),
        Kind::Field(kind) => match kind {
            FieldType::Scalar(kind) => format!("{} {name}", scalar(*kind)),
            FieldType::Str => format!("string {{ encoding = UTF8; }} {name}"),
            FieldType::Enum(kind, labels) => {
                let labels: Vec<_> = labels.iter().map(enumerator).collect();
                let (kind, labels) = (integer(*kind), labels.join(", "));
                format!("enum : {kind} {{ {labels} }} {name}")
            }
            FieldType::Array(of, len) => format!("{} {name}[{len}]", element(*of)),
            FieldType::Sequence(_) => unreachable!("it is a Kind::Sequence"),
        },
    }
}

fn element(kind: Element) -> String {
    match kind {
        Element::Scalar(kind) => scalar(kind),
        Element::Char => CHAR.to_owned(),
    }
}

fn scalar(kind: Scalar) -> String {
    match kind {
        Scalar::Integer(kind) => integer(kind),
        Scalar::Float { len } => {
            let (exponent, mantissa) = if len == 4 { (8, 24) } else { (11, 53) };
            format!("floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = 8; }}")
        }
        Scalar::Bool => "uint8_t".to_owned(),
    }
}

fn integer(kind: Integer) -> String {
    format!(
        "integer {{ size = {}; align = 8; signed = {}; base = {};{} }}",
        u32::from(kind.len) * 8,
        kind.signed,
        if kind.hex { 16 } else { 10 },
        if kind.big_endian {
            " byte_order = be;"
        } else {
            ""
        },
    )
}

fn enumerator(label: &Label) -> String {
    let (name, first, last) = (string_literal(&label.name), label.first, label.last);
    if first == last {
        format!("{name} = {first}")
    } else {
        format!("{name} = {first} ... {last}")
    }
}
