//! Contents of a trace's `metadata` file, independent of its language.

use std::collections::BTreeSet;

use usertrace_ring::schema::{Contexts, Element, Field, FieldType};
use usertrace_sys::Scope;
use usertrace_sys::printable;

use crate::{Clock, Crash, TraceInfo, TraceOrigin};

/// Highest log level that readers know: those of `lttng-ust`, from emergency to debug.
const MAX_LOGLEVEL: u32 = 14;

/// Name of the clock.
pub(super) const CLOCK: &str = "ltt";
/// Description of the clock.
pub(super) const CLOCK_DESCRIPTION: &str =
    "Clock of the trace, which the kernel's clocks are derived from";

/// With [`CREATED`], identifies all traces of a process, such as those in the chunks of a
/// recording.
pub const PROCESS_NUMBER: &str = "process_number";
/// Creation time of the trace session that the process belongs to.
pub const CREATED: &str = "trace_creation_datetime";

/// A value of the trace's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(i64),
    Text(String),
}

/// The environment: origin and writer of a trace.
pub(super) fn environment(
    info: &TraceInfo,
    cmdline: Option<&str>,
    crash: Option<Crash>,
    clock: &Clock,
) -> Vec<(&'static str, Value)> {
    let text = |text: &str| Value::Text(printable(text));
    // The manifest only has numbers there.
    let version = |part: &str| Value::Number(part.parse().unwrap_or(0));
    let created = crate::info::date(clock.unix_ns(clock.start()));
    let domain = match &info.origin {
        TraceOrigin::Process { .. } => "ust",
        TraceOrigin::Kernel { .. } => "kernel",
    };
    let mut values = vec![
        ("domain", text(domain)),
        ("tracer_name", text("usertrace")),
        ("tracer_major", version(env!("CARGO_PKG_VERSION_MAJOR"))),
        ("tracer_minor", version(env!("CARGO_PKG_VERSION_MINOR"))),
        ("architecture_bit_width", Value::Number(64)),
        ("trace_name", text(&info.trace_name)),
        (CREATED, text(&created)),
    ];
    values.extend(match &info.origin {
        TraceOrigin::Process { name, pid, process } => [
            ("tracer_buffering_scheme", text("pid")),
            ("tracer_buffering_id", Value::Number((*pid).into())),
            ("procname", text(name)),
            ("vpid", Value::Number((*pid).into())),
            (PROCESS_NUMBER, Value::Number(process.cast_signed())),
        ]
        .to_vec(),
        TraceOrigin::Kernel { release, version } => [
            ("sysname", text("Linux")),
            ("kernel_release", text(release)),
            ("kernel_version", text(version)),
        ]
        .to_vec(),
    });
    if let Some(cmdline) = cmdline {
        values.push(("cmdline", text(cmdline)));
    }
    if let Some(hostname) = &info.hostname {
        values.push(("hostname", text(hostname)));
    }
    if let Some(crash) = crash {
        values.push(("origin", text("dump")));
        if crash.may_be_forged {
            values.push(("may_be_forged", Value::Number(1)));
        }
        if let Some(time) = crash.time.filter(|&time| time >= 0) {
            values.push(("crash_time", Value::Number(time)));
        }
        let known = [
            ("crash_ns", crash.unix_ns(clock)),
            ("crash_cpu", crash.cpu.map(i64::from)),
            ("crash_thread", crash.thread.map(i64::from)),
        ];
        let known = known.into_iter();
        values.extend(known.filter_map(|(name, value)| Some((name, Value::Number(value?)))));
    }
    values
}

/// The log level, if readers know it.
pub(super) fn loglevel(loglevel: u32) -> Option<u32> {
    (loglevel <= MAX_LOGLEVEL).then_some(loglevel)
}

/// What the streams of a class have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Events of the process.
    Events,
    /// The states of counters.
    Counts,
    /// The modules of the process.
    Modules,
}

/// A class of streams: those of channels of one scope without contexts, those of one channel with
/// contexts, those of channels that count, or the one about modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) scope: Scope,
    pub(super) contexts: Option<Contexts>,
    pub(super) content: Content,
}

impl Class {
    /// Number of the class, as packets have it.
    pub(super) fn id(&self) -> u32 {
        match (self.content, &self.contexts) {
            (Content::Counts, _) => COUNT_CLASS,
            (Content::Modules, _) => MODULE_CLASS,
            (Content::Events, None) => plain_class(self.scope),
            (Content::Events, Some(contexts)) => class_of_channel(contexts.channel),
        }
    }

    /// Members of a packet's context.
    pub(super) fn packet(&self) -> Vec<Member<'static>> {
        let owner = match self.scope {
            Scope::Cpu => Some("cpu_id"),
            Scope::Thread => Some("tid"),
            Scope::Global => None,
            Scope::MmCid => Some("mm_cid"),
        };
        let of_packet = [
            ("timestamp_begin", Role::Begin),
            ("timestamp_end", Role::End),
            ("content_size", Role::ContentSize),
            ("packet_size", Role::PacketSize),
            ("packet_seq_num", Role::PacketNumber),
            ("events_discarded", Role::Discarded),
        ];
        let owner = owner.map(|name| (name, Role::Owner));
        of_packet.into_iter().chain(owner).map(own).collect()
    }

    /// Contexts at the start of each event.
    pub(super) fn contexts(&self) -> Option<Vec<Member<'_>>> {
        let contexts = self.contexts.as_ref()?;
        Some(members(&contexts.fields))
    }
}

/// Number of the class of channels that count. Above the numbers of scopes.
pub(super) const COUNT_CLASS: u32 = 8;
/// Number of the class of the stream about modules.
pub(super) const MODULE_CLASS: u32 = 9;

/// Number of the class of channels of a scope without contexts.
pub(super) fn plain_class(scope: Scope) -> u32 {
    scope as u32
}

/// Number of the class of a channel with contexts.
pub(super) fn class_of_channel(channel: u32) -> u32 {
    /// Above all classes without contexts.
    const FIRST: u32 = 16;
    FIRST.saturating_add(channel)
}

/// Header of a packet.
pub(super) fn packet_header() -> Vec<Member<'static>> {
    let header = [
        ("magic", Role::Magic),
        ("uuid", Role::Uuid),
        ("stream_id", Role::Class),
        ("stream_instance_id", Role::Instance),
    ];
    header.into_iter().map(own).collect()
}

/// Header of an event: the first word of a record, as in a ring (see `ltt.h`) of a little-endian
/// machine. All machines with a writer are little-endian.
pub(super) fn event_header() -> Vec<Member<'static>> {
    let header = [("id", Role::EventId), ("timestamp", Role::EventTime)];
    header.into_iter().map(own).collect()
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member<'a> {
    /// Name that readers show.
    pub(super) name: String,
    pub(super) kind: Kind<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// A member of the format itself.
    Own(Role),
    /// A field other than a sequence.
    Field(&'a FieldType),
    /// Length of the sequence behind it.
    Length,
    /// A sequence, and the name of the member with its length.
    Sequence(Element, String),
}

/// Role of a member of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Magic,
    /// The trace's UUID.
    Uuid,
    /// Numbers of the stream's class and of the stream.
    Class,
    Instance,
    /// Of a packet: its times, its sizes in bits, its number, and the discarded events up to its
    /// end.
    Begin,
    End,
    ContentSize,
    PacketSize,
    PacketNumber,
    Discarded,
    /// Owner of the ring. Readers show it.
    Owner,
    /// Id of an event.
    EventId,
    /// Low 48 bits of an event's time.
    EventTime,
}

impl Role {
    /// Length in bytes.
    pub(super) fn len(self) -> u32 {
        match self {
            Self::EventId => 2,
            Self::EventTime => 6,
            Self::Magic | Self::Class | Self::Owner => 4,
            Self::Uuid => 16,
            Self::Instance
            | Self::Begin
            | Self::End
            | Self::ContentSize
            | Self::PacketSize
            | Self::PacketNumber
            | Self::Discarded => 8,
        }
    }

    /// Alignment in bits.
    pub(super) fn alignment(self) -> u32 {
        match self {
            // It aligns the whole event.
            Self::EventId => 64,
            _ => 8,
        }
    }

    /// Whether it is a full time of the trace's clock.
    pub(super) fn is_time(self) -> bool {
        matches!(self, Self::Begin | Self::End)
    }
}

fn own((name, role): (&str, Role)) -> Member<'static> {
    Member {
        name: name.to_owned(),
        kind: Kind::Own(role),
    }
}

/// Converts fields to members of a structure. Each gets a unique name, and each sequence its length
/// before it.
pub(super) fn members(fields: &[Field]) -> Vec<Member<'_>> {
    let mut names = MemberNames::default();
    // Fields take their names first, so that they keep them beside those of lengths.
    let own: Vec<_> = fields.iter().map(|field| names.take(&field.name)).collect();
    let mut members = Vec::new();
    for (field, name) in fields.iter().zip(own) {
        let kind = match &field.kind {
            FieldType::Sequence(element) => {
                let len = names.take(&format!("_{}_length", field.name));
                members.push(Member {
                    name: len.clone(),
                    kind: Kind::Length,
                });
                Kind::Sequence(*element, len)
            }
            kind => Kind::Field(kind),
        };
        members.push(Member { name, kind });
    }
    members
}

/// The names of a structure's members.
#[derive(Debug, Default)]
struct MemberNames(BTreeSet<String>);

impl MemberNames {
    /// A unique name for a member, of letters, digits and underscores.
    fn take(&mut self, name: &str) -> String {
        let safe: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let mut unique = safe.clone();
        let mut number = 2;
        while self.has(&unique) {
            unique = format!("{safe}_{number}");
            number += 1;
        }
        self.0.insert(unique.clone());
        unique
    }

    /// Whether a reader could confuse a member of this name with another one.
    ///
    /// `babeltrace2` looks up a member of CTF 1.8 both with and without the underscore in front of
    /// each name.
    fn has(&self, name: &str) -> bool {
        let shorter = name.strip_prefix('_');
        self.0.contains(name)
            || self.0.contains(&format!("_{name}"))
            || shorter.is_some_and(|name| self.0.contains(name))
    }
}

/// A string literal of TSDL or JSON, without control characters.
pub(super) fn string_literal(text: &str) -> String {
    let text = printable(text).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

/// A UUID as metadata have it: in hexadecimal, with hyphens.
#[must_use]
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(string_literal("plain ü"), "\"plain ü\"");
        assert_eq!(
            string_literal("a\"b\\c\n1\u{85}"),
            "\"a\\\"b\\\\c\u{fffd}1\u{fffd}\""
        );
    }

    #[test]
    fn uuids_are_formatted() {
        let uuid = std::array::from_fn(|i| i as u8 * 0x11);
        assert_eq!(format_uuid(&uuid), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn field_names_are_unique_identifiers() {
        let mut names = MemberNames::default();
        let given = [
            "size", "size", "size_2", "a-b", "a+b", "ü", "int", "_int", "_x", "x", "__x",
        ];
        let expected = [
            "size", "size_2", "size_2_2", "a_b", "a_b_2", "_", "int", "_int_2", "_x", "x_2",
            "__x_2",
        ];
        assert_eq!(given.map(|name| names.take(name)), expected);
    }

    /// Requirements: B1
    #[test]
    fn sequences_follow_their_length() {
        let field = |name: &str, kind| Field {
            name: name.into(),
            kind,
        };
        let fields = [
            field("_x_length", FieldType::Str),
            field("x", FieldType::Sequence(Element::Char)),
        ];
        let members = members(&fields);
        let expected = [
            ("_x_length", Kind::Field(&fields[0].kind)),
            ("_x_length_2", Kind::Length),
            ("x", Kind::Sequence(Element::Char, "_x_length_2".into())),
        ];
        let expected = expected.map(|(name, kind)| Member {
            name: name.into(),
            kind,
        });
        assert_eq!(members, expected);
    }

    #[test]
    fn lengths_yield_to_field_names() {
        let field = |name: &str, kind| Field {
            name: name.into(),
            kind,
        };
        let fields = [
            field("data", FieldType::Sequence(Element::Char)),
            field("data_length", FieldType::Str),
        ];
        let names: Vec<_> = members(&fields)
            .into_iter()
            .map(|member| member.name)
            .collect();
        assert_eq!(names, ["_data_length_2", "data", "data_length"]);
    }
}
