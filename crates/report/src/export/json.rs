//! Writes events as JSON, one object per line.
//!
//! Most JSON parsers convert numbers to double precision, with 53 significant bits. So 64-bit
//! integers and all times are decimal strings, as in Protobuf's JSON, and no digit is lost. Whether
//! a field is a string depends on its type, not on its value, so it is the same in all lines.

use std::io::Write as _;

use usertrace_ring::schema::Integer;

use usertrace_reader::quoted::{self, Special};
use usertrace_reader::{Event, Field, LossKind, Lost, Number, Trace, Value, Values};
use usertrace_symbols::{Area, NamedField};

/// Writes events and losses as JSON.
///
/// | field of CTF | JSON |
/// |---|---|
/// | integer of up to 32 bits | number |
/// | integer of 64 bits | string of its digits |
/// | integer that is shown in hexadecimal | string, `0x` and its digits |
/// | floating point | the number with all its digits, or `"NaN"`, `"Infinity"`, `"-Infinity"` |
/// | `bool` | number: traces have it as an integer of 8 bits |
/// | text | string; if it is not UTF-8, an object of `text`, with U+FFFD for invalid bytes, and `hex`, all its bytes |
/// | enumeration | an object of `labels`, all that match the value, and `value` |
/// | array, sequence | array |
///
/// With symbols, a field `X` that holds code addresses is followed by `X_frames`: an array of
/// objects with `address`, `function`, and, if known, `file`, `line` and `inlined`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl Json {
    /// A writer without state.
    #[must_use]
    pub fn new() -> Self {
        Self
    }

    /// Appends an event's line.
    pub fn event(&mut self, out: &mut Vec<u8>, event: &Event<'_>) {
        self.named_event(out, event, &[]);
    }

    /// Appends an event's line. Behind each field in `named` is a key with `_frames` in its name.
    pub fn named_event(&mut self, out: &mut Vec<u8>, event: &Event<'_>, named: &[NamedField<'_>]) {
        out.extend_from_slice(b"{\"time\":\"");
        decimal(out, event.ns);
        out.push(b'"');
        origin(out, event.trace);
        out.extend_from_slice(b",\"event\":");
        string(out, event.class.name.as_bytes());
        if let Some(loglevel) = event.class.loglevel {
            out.extend_from_slice(b",\"loglevel\":");
            decimal(out, loglevel);
        }
        if !event.stream.packet.is_empty() {
            out.extend_from_slice(b",\"packet\":");
            fields(out, &event.stream.packet, event.packet, &[], None);
        }
        if let Some(contexts) = &event.stream.contexts {
            out.extend_from_slice(b",\"context\":");
            fields(out, contexts, event.contexts, named, Some(Area::Context));
        }
        out.extend_from_slice(b",\"fields\":");
        let of_event = &event.class.fields;
        fields(out, of_event, event.payload, named, Some(Area::Payload));
        out.extend_from_slice(b"}\n");
    }

    /// Appends the line of a loss.
    pub fn lost(&mut self, out: &mut Vec<u8>, lost: &Lost, trace: &Trace) {
        out.extend_from_slice(b"{\"time\":\"");
        decimal(out, lost.end);
        out.push(b'"');
        origin(out, trace);
        let (what, count) = match lost.kind {
            LossKind::Events(count) => ("events", count),
            LossKind::Packets(count) => ("packets", count),
        };
        let _ = write!(
            out,
            ",\"lost\":\"{what}\",\"count\":\"{count}\",\"since\":\"{}\",\"file\":",
            lost.begin
        );
        let file = lost.path.file_name().unwrap_or_default();
        text(out, file.as_encoded_bytes());
        out.extend_from_slice(b"}\n");
    }
}

/// Appends the origin of an event: host, process and trace, if known.
fn origin(out: &mut Vec<u8>, trace: &Trace) {
    let metadata = trace.metadata();
    for (key, name) in [
        (&b",\"host\":"[..], "hostname"),
        (b",\"process\":", "procname"),
    ] {
        if let Some(value) = metadata.env_text(name) {
            out.extend_from_slice(key);
            string(out, value.as_bytes());
        }
    }
    if let Some(pid) = metadata.pid() {
        out.extend_from_slice(b",\"pid\":");
        decimal(out, pid);
    }
    if let Some(name) = metadata.env_text("trace_name") {
        out.extend_from_slice(b",\"trace\":");
        string(out, name.as_bytes());
    }
}

fn decimal(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends fields as an object, as [`Json`] writes those of an event.
pub fn json_fields(out: &mut Vec<u8>, own: &[Field], bytes: &[u8]) {
    fields(out, own, bytes, &[], None);
}

/// Appends an object of fields, with the frames of those that are named in this area.
fn fields(
    out: &mut Vec<u8>,
    fields: &[Field],
    bytes: &[u8],
    named: &[NamedField<'_>],
    area: Option<Area>,
) {
    out.push(b'{');
    let mut is_first = true;
    for (field, value) in Values::new(fields, bytes) {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        string(out, field.name.as_bytes());
        out.push(b':');
        match value {
            Value::Scalar(value) => number(out, value),
            Value::Text(value) => text(out, value),
            Value::Enum(value) => {
                out.extend_from_slice(b"{\"labels\":[");
                for (n, name) in value.names().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    string(out, name.as_bytes());
                }
                out.extend_from_slice(b"],\"value\":");
                integer(out, value.kind, value.bits);
                out.push(b'}');
            }
            Value::List(elements) => {
                out.push(b'[');
                for (n, element) in elements.enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    number(out, element);
                }
                out.push(b']');
            }
        }
        let is_this =
            |named: &&NamedField<'_>| Some(named.area) == area && named.name == field.name;
        if let Some(named) = named.iter().find(is_this) {
            frames(out, named);
        }
    }
    out.push(b'}');
}

/// Appends a key with the functions at the addresses of a field.
fn frames(out: &mut Vec<u8>, named: &NamedField<'_>) {
    out.push(b',');
    string(out, format!("{}_frames", named.name).as_bytes());
    out.extend_from_slice(b":[");
    let all = named.frames.iter();
    let all = all.flat_map(|(address, frames)| frames.iter().map(move |frame| (address, frame)));
    for (n, (address, frame)) in all.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        let _ = write!(out, "{{\"address\":\"0x{address:X}\",\"function\":");
        string(out, frame.function.as_bytes());
        if let Some(file) = &frame.file {
            out.extend_from_slice(b",\"file\":");
            string(out, file.as_bytes());
        }
        if let Some(line) = frame.line {
            out.extend_from_slice(b",\"line\":");
            decimal(out, line);
        }
        if frame.is_inlined {
            out.extend_from_slice(b",\"inlined\":true");
        }
        out.push(b'}');
    }
    out.push(b']');
}

fn number(out: &mut Vec<u8>, number: Number) {
    match number {
        Number::Integer(kind, bits) => integer(out, kind, bits),
        Number::Bool(byte) => decimal(out, byte),
        // The exact value. The shortest decimal for single precision would be another double.
        Number::F32(number) => float(out, number.into()),
        Number::F64(number) => float(out, number),
    }
}

fn integer(out: &mut Vec<u8>, kind: Integer, bits: u64) {
    let is_text = kind.hex || kind.len == 8;
    if is_text {
        out.push(b'"');
    }
    if kind.hex {
        let above = 64 - 8 * u32::from(kind.len);
        let _ = write!(out, "0x{:X}", bits << above >> above);
    } else if kind.signed {
        decimal(out, bits.cast_signed());
    } else {
        decimal(out, bits);
    }
    if is_text {
        out.push(b'"');
    }
}

fn float(out: &mut Vec<u8>, number: f64) {
    let text = match number {
        _ if number.is_finite() => {
            // Debug output always has a fraction or an exponent, which distinguishes it from an
            // integer.
            let _ = write!(out, "{number:?}");
            return;
        }
        f64::INFINITY => "\"Infinity\"",
        f64::NEG_INFINITY => "\"-Infinity\"",
        _ => "\"NaN\"",
    };
    out.extend_from_slice(text.as_bytes());
}

/// Appends text that may not be UTF-8.
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    if std::str::from_utf8(bytes).is_ok() {
        return string(out, bytes);
    }
    out.extend_from_slice(b"{\"text\":");
    string(out, String::from_utf8_lossy(bytes).as_bytes());
    out.extend_from_slice(b",\"hex\":\"");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out.extend_from_slice(b"\"}");
}

/// Appends UTF-8 text. Also escapes DEL and C1 control characters: JSON does not require that, but
/// some terminals interpret them.
fn string(out: &mut Vec<u8>, text: &[u8]) {
    let is_special = |byte: u8| matches!(byte, 0..0x20 | b'"' | b'\\' | 0x7f);
    quoted::append(out, text, is_special, |out, special| match special {
        Special::Byte(byte @ (b'"' | b'\\')) => out.extend_from_slice(&[b'\\', byte]),
        Special::Byte(b'\n') => out.extend_from_slice(b"\\n"),
        Special::Byte(b'\t') => out.extend_from_slice(b"\\t"),
        Special::Byte(number) | Special::C1([_, number]) => {
            let _ = write!(out, "\\u{number:04x}");
        }
    });
}
