//! Compares the Rust side of the ABI with the headers as a C compiler reads them: each size, the
//! offset and size of each field, and each constant.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use usertrace_sys::crash::*;
use usertrace_sys::uapi::*;

/// Numbers that both languages must agree on: the C expression, and the value in Rust.
type Facts = Vec<(String, u64)>;

/// The size of the pointee of a pointer that is never dereferenced.
fn size_behind<T>(_: *const T) -> u64 {
    size_of::<T>() as u64
}

/// Adds the size of a structure, and the offset and the size of each of its fields.
macro_rules! structure {
    ($facts:ident, $rust:ident = $c:literal { $($field:ident),+ $(,)? }) => {{
        let value = <$rust>::default();
        // Without `..`: a field that is missing in the list does not compile.
        let $rust { $($field: _),+ } = value;
        $facts.push((concat!("sizeof(struct ", $c, ")").into(), size_of::<$rust>() as u64));
        $(
            let field = stringify!($field);
            $facts.push((
                format!("offsetof(struct {}, {field})", $c),
                std::mem::offset_of!($rust, $field) as u64,
            ));
            $facts.push((
                format!("sizeof(((struct {} *)0)->{field})", $c),
                size_behind(&raw const value.$field),
            ));
        )+
    }};
}

macro_rules! constants {
    ($facts:ident: $($name:ident),+ $(,)?) => {
        $($facts.push((stringify!($name).into(), u64::from_ne_bytes(widen($name.to_ne_bytes())))));+
    };
}

fn widen<const N: usize>(bytes: [u8; N]) -> [u8; 8] {
    let mut wide = [0; 8];
    if cfg!(target_endian = "little") {
        wide[..N].copy_from_slice(&bytes);
    } else {
        wide[8 - N..].copy_from_slice(&bytes);
    }
    wide
}

fn facts() -> Facts {
    let mut f = Facts::new();
    structure!(f, LttAbi = "ltt_abi" {
        size, version, features, nr_alloc_tracebuf, nr_ltt_update, nr_ltt_switch, reserved,
    });
    structure!(f, LttTracebuf = "ltt_tracebuf" {
        buffers, buffers_len, control, control_len, info, info_len, signo, flags,
        buffers_stride, control_stride, nr_slots, status,
    });
    structure!(f, LttInfoSlot = "ltt_info_slot" { generation, active, filter, nr_channels, reserved });
    structure!(f, LttInfo = "ltt_info" {
        magic, version, seq, size, generation, active, nr_cpus, nr_slots, nr_channels, slot_offset,
        slot_stride, trace_offset, trace_stride, filter_offset, filter_stride, channel_offset,
        channel_stride, rules_size, reserved,
    });
    structure!(f, LttInfoChannel = "ltt_info_channel" {
        name, buffers_offset, control_offset, subbuf_size, subbuf_count, nr_rings, control_stride,
        scope, mode, protocol, filter, cell_size, reserved,
    });
    structure!(f, LttInfoTrace = "ltt_info_trace" {
        name, generation, clock, reserved0, clock_freq, reserved,
    });
    structure!(f, LttInfoFilter = "ltt_info_filter" { generation, len, reserved });
    structure!(f, LttInfoRule = "ltt_info_rule" { channel, flags, len });
    structure!(f, LttRingControl = "ltt_ring_control" {
        head, lost, time, ids, claimed, owner, waiters, readers, reserved, reserved0, consumed, reserved1,
    });
    structure!(f, LttSubbuf = "ltt_subbuf" {
        position, time, lost, cpu, magic, base, committed, contiguous, busy, takes,
    });
    structure!(f, LttCountState = "ltt_count_state" { sum_low, sum_high, min, max, bucket });
    structure!(f, LttCountCell = "ltt_count_cell" { count, id, key_len, key, state, histogram });
    structure!(f, LttClockSync = "ltt_clock_sync" { cycles, monotonic, realtime, freq });
    structure!(f, LttFileInfo = "ltt_file_info" {
        size, flags, pid, uid, start_time, process, trace_generation, comm, clock, channel_index,
        start, now, sunk, reserved, trace, channel,
    });
    structure!(f, LttRingPositions = "ltt_ring_positions" { head, lost, claimed, consumed });
    structure!(f, LttPositions = "ltt_positions" { rings, nr_rings, flags, stride, reserved });
    structure!(f, LttConsume = "ltt_consume" { ring, reserved, position });
    structure!(f, LttEndSubbuf = "ltt_end_subbuf" { ring, reserved });
    structure!(f, LttCrashReserved = "ltt_crash_reserved" {
        magic, start, size, boot, sum, reserved, root,
    });
    structure!(f, LttCrashRoot = "ltt_crash_root" {
        magic, version, page_size, entry_size, clock, sum, directory, boot,
    });
    structure!(f, LttCrashPage = "ltt_crash_page" { magic, next, reserved });
    structure!(f, LttCrashTrace = "ltt_crash_trace" {
        generation, name, slot, active, start, clock, clock_unstable,
    });
    structure!(f, LttCrashChannel = "ltt_crash_channel" { trace, index, reserved, channel });
    structure!(f, LttCrashProcess = "ltt_crash_process" {
        process, start_time, pid, uid, dead, reserved, comm,
    });
    structure!(f, LttCrashTree = "ltt_crash_tree" { root, pages, depth, reserved });
    structure!(f, LttCrashBuffer = "ltt_crash_buffer" { process, trace, buffers, control });
    structure!(f, LttCrashEntry = "ltt_crash_entry" { kind, reserved, serial, words });

    constants!(f: LTT_ABI_VERSION, LTT_MAX_TRACES, LTT_MAX_CHANNELS, LTT_NAME_LEN, LTT_COMM_LEN,
        PR_LTT_GET_ABI, LTT_INFO_MAGIC, LTT_TRACEBUF_SIZE_VER2, LTT_TRACEBUF_LIMITED,
        LTT_CLOCK_MONOTONIC, LTT_FILE_CLOCK_UNSTABLE, LTT_FILE_INFO_SIZE_VER2,
        LTT_RING_POSITIONS_SIZE_VER2, LTT_POSITIONS_SIZE_VER2, LTT_CONSUME_SIZE_VER2,
        LTT_END_SUBBUF_SIZE_VER2, LTT_CLOCK_TSC, LTT_CLOCK_CNTVCT,
        LTT_CLOCK_TIME, LTT_SCOPE_CPU, LTT_SCOPE_THREAD, LTT_SCOPE_GLOBAL, LTT_SCOPE_MM_CID, LTT_MODE_DISCARD,
        LTT_MODE_OVERWRITE, LTT_MODE_BLOCK, LTT_PROTOCOL_RSEQ, LTT_PROTOCOL_SHARED, LTT_CHANNEL_CONTROL,
        LTT_CHANNEL_MAIN, LTT_RULE_REFUSE, LTT_RULE_CONTEXT, LTT_MAX_CONTEXTS,
        LTT_CALLSTACK_MAX,
        LTT_RULE_ACCEPT_IF, LTT_RULE_REFUSE_IF, LTT_RULE_EXPR, LTT_RULE_TRIGGER, LTT_RULE_VALUE, LTT_RULE_KEY,
        LTT_MAX_TRIGGERS, LTT_MODE_COUNT, LTT_PROTOCOL_COUNT, LTT_COUNT_PROBES, LTT_COUNT_BUCKETS,
        LTT_COUNT_BUCKET_SHIFT, LTT_COUNT_KEY_MAX, LTT_COUNT_KEY_NUMBER, LTT_COUNT_CELL_PLAIN,
        LTT_COUNT_CELL_VALUE, LTT_EXPR_MAX, LTT_EXPR_DEPTH,
        LTT_SUBBUF_MAGIC, LTT_PLACE_TAKEN, LTT_PLACE_LAP_SHIFT, LTT_ID_BITS, LTT_ID_NONE, LTT_ID_MIN, LTT_ID_MAX,
        LTT_ID_LOST, LTT_LOST_WORD, LTT_ID_META, LTT_ID_LONG, LTT_ID_TIME, LTT_ID_PAD, LTT_LONG_LEN_MASK, LTT_LONG_ID_SHIFT,
        LTT_LONG_ID_MASK, LTT_LONG_DONE, LTT_LONG_BUSY, LTT_META_MAX, LTT_FILE_DEAD,
        LTT_FILE_STOPPED, LTT_FILE_REMOVED, LTT_IOC_INFO, LTT_IOC_POSITIONS, LTT_IOC_CONSUME,
        LTT_IOC_END_SUBBUF, LTT_RING_ALL,
        LTT_CRASH_MAGIC, LTT_CRASH_PAGE_MAGIC, LTT_CRASH_RESERVED_MAGIC, LTT_CRASH_VERSION, LTT_CRASH_FREE, LTT_CRASH_TRACE,
        LTT_CRASH_CHANNEL, LTT_CRASH_PROCESS, LTT_CRASH_BUFFER, LTT_CRASH_PRESENT, LTT_CRASH_LOST,
        LTT_CRASH_ADDRESS);
    f
}

fn header(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("include/linux")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Evaluates each expression with the C compiler.
fn compiled(expressions: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <linux/ltt.h>\n#include <linux/ltt_crash.h>\n\
         int main(void)\n{\n",
    );
    for expression in expressions {
        writeln!(
            source,
            "\tprintf(\"%s=%llu\\n\", \"{expression}\", (unsigned long long)({expression}));"
        )
        .unwrap();
    }
    source.push_str("\treturn 0;\n}\n");

    let directory = tempfile::tempdir().unwrap();
    let (file, program) = (
        directory.path().join("facts.c"),
        directory.path().join("facts"),
    );
    std::fs::write(&file, source).unwrap();
    let status = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=gnu11", "-Wall", "-Werror", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg("-o")
        .args([&program, &file])
        .status()
        .expect("a C compiler");
    assert!(status.success(), "the headers do not compile");
    let output = Command::new(&program).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let (expression, value) = line.rsplit_once('=').unwrap();
            (expression.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn rust_and_c_agree() {
    let rust = facts();
    let c = compiled(rust.iter().map(|(expression, _)| expression.clone()));
    for (expression, value) in &rust {
        assert_eq!(c.get(expression), Some(value), "{expression}");
    }
}

#[test]
fn rust_covers_the_headers() {
    let known: Vec<String> = facts()
        .into_iter()
        .map(|(expression, _)| expression)
        .collect();
    for line in (header("ltt.h") + &header("ltt_crash.h")).lines() {
        let mut words = line.split_whitespace();
        let wanted = match (words.next(), words.next(), words.next()) {
            (Some("#define"), Some(name), Some(_)) => name.to_owned(),
            (Some("struct"), Some(name), Some("{")) => format!("sizeof(struct {name})"),
            _ => continue,
        };
        assert!(known.contains(&wanted), "{wanted} has no Rust side");
    }
}
