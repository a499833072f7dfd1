//! The text of a trace's `metadata` file (TSDL).

use std::collections::HashSet;
use std::fmt::Write as _;

use super::{Clock, Crash, TraceInfo, field};
use crate::metadata::{Contexts, Event, Field};
use crate::writer::Scope;

/// The log levels that readers know: those of `lttng-ust`, from emergency to debug.
const MAX_LOGLEVEL: u32 = 14;

/// Everything up to the classes of streams.
pub(super) fn preamble(
    uuid: &[u8; 16],
    info: &TraceInfo,
    crash: Option<Crash>,
    clock: &Clock,
) -> String {
    let uuid = format_uuid(uuid);
    let byte_order = if cfg!(target_endian = "little") {
        "le"
    } else {
        "be"
    };
    let mut text = format!(
        "/* CTF 1.8 */

typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;

trace {{
	major = 1;
	minor = 8;
	uuid = \"{uuid}\";
	byte_order = {byte_order};
	packet.header := struct {{
		uint32_t magic;
		uint8_t uuid[16];
		uint32_t stream_id;
		uint64_t stream_instance_id;
	}};
}};

env {{
	domain = \"ust\";
	tracer_name = \"usertrace\";
	tracer_major = {major};
	tracer_minor = {minor};
	tracer_buffering_scheme = \"pid\";
	tracer_buffering_id = {pid};
	architecture_bit_width = 64;
	trace_name = {trace_name};
	trace_creation_datetime = {created};
	procname = {procname};
	vpid = {pid};
",
        major = env!("CARGO_PKG_VERSION_MAJOR"),
        minor = env!("CARGO_PKG_VERSION_MINOR"),
        pid = info.pid,
        trace_name = string(&info.trace_name),
        created = string(&crate::ctf::trace::date(clock.unix_ns(clock.start()))),
        procname = string(&info.procname),
    );
    if let Some(hostname) = &info.hostname {
        let _ = writeln!(text, "\thostname = {};", string(hostname));
    }
    if let Some(crash) = crash {
        text.push_str("\torigin = \"dump\";\n");
        if let Some(time) = crash.time.filter(|&time| time >= 0) {
            let _ = writeln!(text, "\tcrash_time = {time};");
        }
    }
    let _ = write!(
        text,
        "}};

clock {{
	name = \"ltt\";
	description = \"Clock of the trace, which the kernel's clocks are derived from\";
	freq = {freq};
	offset_s = {offset_s};
	offset = {offset};
	absolute = true;
}};

typealias integer {{
	size = 64; align = 8; signed = false;
	map = clock.ltt.value;
}} := ltt_time_t;
",
        freq = clock.freq(),
        offset_s = clock.offset_s(),
        offset = clock.offset(),
    );
    text
}

/// A class of streams: those of channels of a scope without contexts, or those of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) scope: Scope,
    pub(super) contexts: Option<Contexts>,
}

impl Class {
    /// The number by which streams say that they are of this class.
    fn id(&self) -> u32 {
        let contexts = self.contexts.as_ref();
        contexts.map_or(plain_class(self.scope), |contexts| {
            class_of_channel(contexts.channel)
        })
    }
}

/// The number of the class of channels without contexts.
pub(super) fn plain_class(scope: Scope) -> u32 {
    scope as u32
}

/// The number of the class of a channel that has contexts.
pub(super) fn class_of_channel(channel: u32) -> u32 {
    /// Above all of those without.
    const FIRST: u32 = 16;
    FIRST.saturating_add(channel)
}

/// A class of streams.
pub(super) fn class(class: &Class) -> String {
    let mut contexts = String::new();
    if let Some(of_channel) = &class.contexts {
        contexts.push_str("\tevent.context := struct {\n");
        declare_fields(&mut contexts, &of_channel.fields);
        contexts.push_str("\t};\n");
    }
    format!(
        "
stream {{
	id = {id};
	packet.context := struct {{
		ltt_time_t timestamp_begin;
		ltt_time_t timestamp_end;
		uint64_t content_size;
		uint64_t packet_size;
		uint64_t packet_seq_num;
		uint64_t events_discarded;
{context}	}};
	event.header := struct {{
		uint16_t id;
		ltt_time_t timestamp;
	}};
{contexts}}};
",
        id = class.id(),
        context = match class.scope {
            Scope::Cpu => "\t\tuint32_t cpu_id;\n",
            Scope::Thread => "\t\tuint32_t tid;\n",
            Scope::Global => "",
            Scope::MmCid => "\t\tuint32_t mm_cid;\n",
        },
    )
}

/// An event, as it may be in streams of this class.
pub(super) fn event(event: &Event, class: &Class) -> String {
    let mut text = format!(
        "\nevent {{\n\tname = {};\n\tid = {};\n\tstream_id = {};\n",
        string(&event.name),
        event.id,
        class.id()
    );
    if event.loglevel <= MAX_LOGLEVEL {
        let _ = writeln!(text, "\tloglevel = {};", event.loglevel);
    }
    if let Some(format) = &event.format {
        // There is no attribute for it that `babeltrace2` does not warn of.
        let _ = writeln!(
            text,
            "\t/* format = {} */",
            string(format).replace("*/", "* /")
        );
    }
    text.push_str("\tfields := struct {\n");
    declare_fields(&mut text, &event.fields);
    text.push_str("\t};\n};\n");
    text
}

fn declare_fields(text: &mut String, fields: &[Field]) {
    let mut names = HashSet::new();
    for field in fields {
        field::declare(text, field, &mut names);
    }
}

fn format_uuid(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A string literal.
pub(super) fn string(text: &str) -> String {
    let mut literal = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => literal.extend(['\\', c]),
            // A process may have any name: readers print it to a terminal, one event on a line.
            c if c.is_control() => literal.push('\u{fffd}'),
            c => literal.push(c),
        }
    }
    literal.push('"');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(string("plain ü"), "\"plain ü\"");
        assert_eq!(
            string("a\"b\\c\n1\u{85}"),
            "\"a\\\"b\\\\c\u{fffd}1\u{fffd}\""
        );
    }

    #[test]
    fn a_uuid_is_written_as_such() {
        let uuid = std::array::from_fn(|i| i as u8 * 0x11);
        assert_eq!(format_uuid(&uuid), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
