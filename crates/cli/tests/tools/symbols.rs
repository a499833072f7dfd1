//! Names of code addresses: `view`, `export --json` and `leaks` (F1, F7).

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use usertrace_testing::RingWriter;
use usertrace_testing::compiled::{Compiled, LEAK_C, LEAK_CPP, LEAK_RUST, compile};

use super::ctf::{at, identity, ring, write};

/// Where the program is loaded if it is position-independent.
const BASE: u64 = 0x5555_5555_0000;

/// Runs the command. Nothing is downloaded.
fn usertrace(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.args(arguments).current_dir(directory);
    command.env("TZ", "UTC").env_remove("DEBUGINFOD_URLS");
    command.env("DEBUGINFOD_CACHE_PATH", "/nonexistent");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A trace of a program, by events at 100 ns, 200 ns and so on.
struct TracedProgram {
    control: RingWriter,
    main: RingWriter,
    base: u64,
    time: u64,
}

/// Contexts of the events, and how their values are written.
#[derive(Clone, Copy, PartialEq)]
enum Contexts {
    None,
    Ip,
    Callstack,
    /// With the thread.
    Thread,
}

impl TracedProgram {
    fn new(program: &Compiled, contexts: Contexts) -> Self {
        let mut control = ring(0);
        let base = match program.lowest {
            0 => BASE,
            lowest => lowest,
        };
        let mut lines = vec![
            "1 libc:malloc 6 u64 size;x64 ptr".to_owned(),
            "2 libc:free 6 x64 ptr".to_owned(),
            "3 libc:realloc 6 x64 in_ptr;u64 size;x64 ptr".to_owned(),
            "4 function:entry 6 x64 function;x64 call_site".to_owned(),
            "5 libc:posix_memalign 6 u64 alignment;u64 size;s32 result;x64 ptr".to_owned(),
            "6 function:exit 6 x64 function;x64 call_site".to_owned(),
        ];
        match contexts {
            Contexts::None => {}
            Contexts::Ip => lines.push("@1 x64 ip".to_owned()),
            Contexts::Callstack => lines.push("@1 x64 ip;x64[] callstack".to_owned()),
            Contexts::Thread => lines.push("@1 u32 vtid;x64 ip;x64[] callstack".to_owned()),
        }
        lines.push(program.loaded_at(base));
        for line in lines {
            assert!(control.meta(at(1), &line), "{line}");
        }
        Self {
            control,
            main: ring(0),
            base,
            time: 10_000,
        }
    }

    /// Writes an event with a call stack, of distances from the program's start.
    fn event(&mut self, contexts: Contexts, id: u16, stack: &[u64], fields: &[u8]) {
        let mut payload = Vec::new();
        let ip = stack.first().map_or(0, |offset| self.base + offset);
        match contexts {
            Contexts::None => {}
            Contexts::Ip => {
                payload.extend(ip.to_le_bytes());
            }
            Contexts::Callstack | Contexts::Thread => {
                if contexts == Contexts::Thread {
                    payload.extend(51u32.to_le_bytes());
                }
                payload.extend(ip.to_le_bytes());
                payload.extend((stack.len() as u32).to_le_bytes());
                for offset in stack {
                    payload.extend((self.base + offset).to_le_bytes());
                }
            }
        }
        payload.resize(payload.len().next_multiple_of(8), 0);
        payload.extend(fields);
        assert!(self.main.event(id, at(self.time), &payload));
        self.time += 100;
    }

    fn malloc(&mut self, contexts: Contexts, stack: &[u64], size: u64, ptr: u64) {
        let fields = [size.to_le_bytes(), ptr.to_le_bytes()].concat();
        self.event(contexts, 1, stack, &fields);
    }

    fn free(&mut self, contexts: Contexts, ptr: u64) {
        self.event(contexts, 2, &[], &ptr.to_le_bytes());
    }

    fn write(&self, directory: &Path) {
        self.write_as(directory, 42);
    }

    /// The trace of a process with this id.
    fn write_as(&self, directory: &Path, pid: u32) {
        std::fs::create_dir_all(directory).unwrap();
        let main = [self.main.clone()];
        write(directory, identity("shop", pid), &self.control, &main);
    }
}

/// A program that allocated 10 blocks of 100 bytes, and freed 7 of them.
fn leaking(program: &Compiled, contexts: Contexts) -> TracedProgram {
    let mut traced = TracedProgram::new(program, contexts);
    // Of the instruction behind the label.
    let stack = [program.here + 1, program.there + 1];
    for n in 0..10 {
        traced.malloc(contexts, &stack, 100, 0x1000 * (n + 1));
    }
    for n in 0..7 {
        traced.free(contexts, 0x1000 * (n + 1));
    }
    // Another one, of the caller.
    traced.malloc(contexts, &[program.there], 20, 0x9_0000);
    traced
}

/// The events about modules have no lines, and `--symbols never` prints the same as `babeltrace2`.
///
/// Requirements: E8, F1
#[test]
fn view_names_the_functions_of_each_event() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    let contexts = Contexts::Callstack;
    let mut traced = TracedProgram::new(&program, contexts);
    traced.malloc(
        contexts,
        &[program.here, program.there, 1 << 40],
        24,
        0xabc0,
    );
    let entry = [traced.base + program.here, traced.base + program.there];
    traced.event(
        contexts,
        4,
        &[program.there],
        &entry.map(u64::to_le_bytes).concat(),
    );
    traced.event(contexts, 2, &[], &0u64.to_le_bytes());
    let traces = directory.path().join("traces");
    traced.write(&traces);
    let output = usertrace(&traces, &["view", "."]);
    assert_eq!(text(&output.stderr), "");
    let source = directory.path().join("shop.c");
    let source = source.to_str().unwrap();
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    let expected = [
        format!("    at leak ({source}:5) [inlined]"),
        format!("    at work ({source}:11)"),
        format!("    at main ({source}:16)"),
        format!("    at {:#x}", traced.base + (1 << 40)),
    ];
    assert_eq!(lines[1..5], expected, "{lines:#?}");
    assert!(lines[5].contains("function:entry"), "{lines:#?}");
    assert_eq!(lines[6], format!("    at main ({source}:16)"));
    // The start of a function is looked up as it is.
    assert_eq!(
        lines[7],
        format!("    function: leak ({source}:6) in work ({source}:11)")
    );
    assert_eq!(lines[8], format!("    call_site: main ({source}:16)"));
    assert_eq!(lines.len(), 10, "{lines:#?}");
    let plain = usertrace(&traces, &["view", "--symbols", "never", "."]);
    let (expected, _) = usertrace_testing::babeltrace::printed(&traces, "UTC");
    assert_eq!(
        without_delta(text(&plain.stdout)),
        without_delta(text(&expected))
    );
    let kept: Vec<&str> = lines
        .into_iter()
        .filter(|line| !line.starts_with("    "))
        .collect();
    assert_eq!(text(&plain.stdout).lines().collect::<Vec<_>>(), kept);
    // Only the events about modules that belong to what is selected matter, whatever it is.
    let selected = usertrace(
        &traces,
        &["view", "-e", "libc:malloc", "--last", "1ms", "."],
    );
    assert_eq!(text(&selected.stdout).lines().count(), 5, "{selected:?}");
    let modules = usertrace(&traces, &["view", "--modules", "."]);
    let modules = text(&modules.stdout);
    assert!(
        modules.contains("lttng_ust_statedump:bin_info: {"),
        "{modules}"
    );
    let directory = usertrace(&traces, &["view", "--debug-dir", "nothing", "."]);
    assert_eq!(directory.status.code(), Some(1));
    assert!(
        text(&directory.stderr).contains("--debug-dir \"nothing\""),
        "{directory:?}"
    );
}

/// `babeltrace2` has printed the events about modules before.
fn without_delta(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| {
        let (time, rest) = line.split_once(") ").unwrap();
        format!("{} {rest}", time.split_once('(').unwrap().0)
    });
    lines.collect()
}

/// A key beside each field with addresses has the functions.
///
/// Requirements: F1
#[test]
fn json_has_frames_beside_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &["-no-pie"]);
    let contexts = Contexts::Callstack;
    let mut traced = TracedProgram::new(&program, contexts);
    traced.malloc(contexts, &[program.here, program.there], 24, 0xabc0);
    let traces = directory.path().join("traces");
    traced.write(&traces);
    let export = |arguments: &[&str]| -> Value {
        let output = usertrace(
            &traces,
            &[&["export", "--json"], arguments, &["."]].concat(),
        );
        assert_eq!(text(&output.stderr), "");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let named = export(&[]);
    let source = directory.path().join("shop.c");
    let here = format!("0x{:X}", traced.base + program.here);
    let there = format!("0x{:X}", traced.base + program.there);
    let frames = serde_json::json!([
        {"address": here, "function": "leak", "file": source, "line": 5, "inlined": true},
        {"address": here, "function": "work", "file": source, "line": 11},
        {"address": there, "function": "main", "file": source, "line": 16},
    ]);
    let context = &named["context"];
    assert_eq!(context["callstack"], serde_json::json!([here, there]));
    assert_eq!(context["callstack_frames"], frames);
    assert_eq!(context["ip"], Value::from(here));
    assert_eq!(
        context["ip_frames"].as_array().unwrap()[..],
        frames.as_array().unwrap()[..2]
    );
    let mut plain = named;
    for key in ["callstack_frames", "ip_frames"] {
        plain["context"].as_object_mut().unwrap().remove(key);
    }
    assert_eq!(export(&["--symbols", "never"]), plain);
}

/// A trace of calls and of an allocation in them, and the path of the source.
fn calling(directory: &Path) -> (TracedProgram, Compiled, String) {
    let program = compile(directory, LEAK_C, &[]);
    let contexts = Contexts::Thread;
    let mut traced = TracedProgram::new(&program, contexts);
    let call = [traced.base + program.here, traced.base + program.there];
    let call = call.map(u64::to_le_bytes).concat();
    traced.event(contexts, 4, &[program.there], &call);
    traced.malloc(
        contexts,
        &[program.here, program.there, 1 << 40],
        24,
        0xabc0,
    );
    traced.event(contexts, 6, &[program.there], &call);
    // Nothing is known there.
    traced.malloc(contexts, &[1 << 40], 8, 0xdef0);
    traced.write(&directory.join("traces"));
    let source = directory.join("shop.c").to_str().unwrap().to_owned();
    (traced, program, source)
}

/// Perfetto's trace processor finds the source of each event, its frames, and slices that are named
/// after functions.
///
/// Requirements: E8, F1
#[test]
fn perfetto_names_code() {
    let directory = tempfile::tempdir().unwrap();
    let (traced, program, source) = calling(directory.path());
    let ask = |arguments: &[&str]| {
        let start = ["export", "--perfetto", "-o", "out", "traces"];
        let output = usertrace(directory.path(), &[&start[..], arguments].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        let queries = [
            "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
            "select name, dur from slice order by ts",
            "select s.name, a.key, a.display_value from slice s join args a using (arg_set_id) \
             where a.key glob 'source*' or a.key glob '*frames*' order by s.ts, a.key",
        ];
        let out = directory.path().join("out");
        usertrace_testing::tools::trace_processor(&out, &queries)
    };
    let row = |row: &Vec<Value>| {
        let cells = row.iter().map(|cell| cell.as_str().unwrap_or("-"));
        cells.collect::<Vec<_>>().join(" ")
    };
    let rows = |rows: &[Vec<Value>]| rows.iter().map(row).collect::<Vec<_>>();
    let named = ask(&[]);
    assert!(named[0].is_empty(), "{named:?}");
    assert_eq!(
        rows(&named[1]),
        ["leak 200", "libc:malloc 0", "libc:malloc 0"]
    );
    let outside = traced.base + (1 << 40);
    let expected = [
        format!("leak debug.call_site_frames[0] main ({source}:16)"),
        format!("leak debug.context.callstack_frames[0] main ({source}:16)"),
        format!("leak debug.context.ip_frames[0] main ({source}:16)"),
        format!("leak debug.function_frames[0] leak ({source}:6) [inlined]"),
        format!("leak debug.function_frames[1] work ({source}:11)"),
        format!("leak source_location.file_name {source}"),
        "leak source_location.function_name leak".to_owned(),
        "leak source_location.line_number 6".to_owned(),
        format!("libc:malloc debug.context.callstack_frames[0] leak ({source}:5) [inlined]"),
        format!("libc:malloc debug.context.callstack_frames[1] work ({source}:11)"),
        format!("libc:malloc debug.context.callstack_frames[2] main ({source}:16)"),
        format!("libc:malloc debug.context.callstack_frames[3] {outside:#x}"),
        format!("libc:malloc debug.context.ip_frames[0] leak ({source}:5) [inlined]"),
        format!("libc:malloc debug.context.ip_frames[1] work ({source}:11)"),
        format!("libc:malloc source_location.file_name {source}"),
        "libc:malloc source_location.function_name leak".to_owned(),
        "libc:malloc source_location.line_number 5".to_owned(),
    ];
    assert_eq!(rows(&named[2]), expected);
    let plain = ask(&["--symbols", "never"]);
    let first = format!("function 0x{:X} 200", traced.base + program.here);
    assert_eq!(rows(&plain[1]), [&first, "libc:malloc 0", "libc:malloc 0"]);
    assert!(plain[2].is_empty(), "{plain:?}");
}

/// Spans have OpenTelemetry's attributes for code.
///
/// Requirements: E8, F1
#[test]
fn otlp_names_code() {
    let directory = tempfile::tempdir().unwrap();
    let (.., source) = calling(directory.path());
    let export = |arguments: &[&str]| -> Value {
        let start = ["export", "--otlp", "traces"];
        let output = usertrace(directory.path(), &[&start[..], arguments].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        line["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone()
    };
    let of_code = |span: &Value| -> Vec<Value> {
        let all = span["attributes"].as_array().unwrap().iter();
        let is_of_code = |of: &&Value| of["key"].as_str().unwrap().starts_with("code.");
        all.filter(is_of_code).cloned().collect()
    };
    let span = export(&[]);
    assert_eq!(span["name"], "leak");
    let expected = serde_json::json!([
        {"key": "code.function.name", "value": {"stringValue": "leak"}},
        {"key": "code.file.path", "value": {"stringValue": source}},
        {"key": "code.line.number", "value": {"intValue": "6"}},
        {"key": "code.stacktrace", "value": {"stringValue": format!("at main ({source}:16)")}},
    ]);
    assert_eq!(Value::from(of_code(&span)), expected);
    let plain = export(&["--symbols", "never"]);
    assert_eq!(plain["name"], "function");
    assert!(of_code(&plain).is_empty(), "{plain}");
}

/// DuckDB groups by functions and lines, of the place of an event and of call stacks.
///
/// Requirements: E8, F1
#[test]
fn tables_name_code() {
    let directory = tempfile::tempdir().unwrap();
    let (traced, _, source) = calling(directory.path());
    let ask = |arguments: &[&str], queries: &[&str]| {
        let start = ["export", "--parquet", "out", "traces"];
        let output = usertrace(directory.path(), &[&start[..], arguments].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        usertrace_testing::tools::duckdb(directory.path(), queries)
    };
    let malloc = "from 'out/*/*/event=libc%3Amalloc/*.parquet' order by time";
    let entry = "from 'out/*/*/event=function%3Aentry/*.parquet'";
    let of_ip = format!("select ctx_ip_function, ctx_ip_file, ctx_ip_line::int {malloc}");
    let of_stack =
        format!("select ctx_callstack_function, ctx_callstack_file, ctx_callstack_line {malloc}");
    let of_call = format!(
        "select function_function, function_line::int, call_site_function, call_site_line::int {entry}"
    );
    let outside = format!("{:#x}", traced.base + (1 << 40));
    let named = ask(&[], &[&of_ip, &of_stack, &of_call]);
    let expected = serde_json::json!([
        [["leak", source, 5], [null, null, null]],
        [
            [
                ["leak", "work", "main", outside],
                [source, source, source, ""],
                [5, 11, 16, 0]
            ],
            [[], [], []],
        ],
        [["leak", 6, "main", 16]],
    ]);
    assert_eq!(serde_json::to_value(named).unwrap(), expected);
    let columns = format!(
        "select count(*)::int from (describe select * {malloc}) where column_name like '%!_function' escape '!'"
    );
    let plain = ask(&["--symbols", "never"], &[&columns]);
    assert_eq!(
        serde_json::to_value(plain).unwrap(),
        serde_json::json!([[[0]]])
    );
}

/// `top` counts the events of each line of the program.
///
/// Requirements: E7, F1
#[test]
fn top_counts_places() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    leaking(&program, Contexts::Callstack).write(&directory.path().join("traces"));
    let source = directory.path().join("shop.c");
    let source = source.to_str().unwrap();
    let rows = |arguments: &[&str]| -> Vec<(Value, Value, Value)> {
        let start = ["top", "--json", "-n", "1", "-i", "0.05", "--sort", "event"];
        let output = usertrace(directory.path(), &[&start, arguments, &["traces"]].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        let interval: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(interval["problems"], serde_json::json!([]));
        let rows = interval["rows"].as_array().unwrap().iter();
        let row = |row: &Value| {
            (
                row["event"].clone(),
                row["place"].clone(),
                row["total"].clone(),
            )
        };
        rows.map(row).collect()
    };
    let expected = [
        ("libc:free".into(), Value::Null, 7.into()),
        (
            "libc:malloc".into(),
            format!("leak ({source}:6)").into(),
            10.into(),
        ),
        (
            "libc:malloc".into(),
            format!("main ({source}:16)").into(),
            1.into(),
        ),
    ];
    assert_eq!(rows(&["--places"]), expected);
    let chosen = rows(&["--places", "-e", "libc:malloc", "--where", "size < 50"]);
    assert_eq!(chosen, expected[2..]);
    let plain = [
        ("libc:free".into(), Value::Null, 7.into()),
        ("libc:malloc".into(), Value::Null, 11.into()),
    ];
    assert_eq!(rows(&[]), plain);
}

/// A child of `fork` frees what it has from its parent without a message, and is blamed for its own
/// blocks only. Another program at other addresses is no relative.
///
/// Requirements: E7, F1
#[test]
fn leaks_of_children_are_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    let contexts = Contexts::Callstack;
    let leak = [program.here, program.there];
    let mut parent = TracedProgram::new(&program, contexts);
    for ptr in 1..=4 {
        parent.malloc(contexts, &[program.there], 1000, ptr << 12);
    }
    let lines = |base: u64| {
        let mut child = TracedProgram::new(&program, contexts);
        if base != child.base {
            child.control.meta(at(2), &format!("-{:x}", child.base));
            child.control.meta(at(3), &program.loaded_at(base));
            child.base = base;
        }
        child.time = 20_000;
        child.malloc(contexts, &leak, 70, 0x9000);
        // Two of four copies, and one of its own.
        child.malloc(contexts, &leak, 7, 0xa000);
        for ptr in [0x1000, 0xa000, 0x2000] {
            child.free(contexts, ptr);
        }
        let traces = directory.path().join(format!("traces-{base:x}"));
        parent.write_as(&traces.join("parent"), 42);
        child.write_as(&traces.join("child"), 43);
        let traces = traces.to_str().unwrap();
        let output = usertrace(directory.path(), &["leaks", traces]);
        assert_eq!(output.status.code(), Some(0));
        let lines = text(&output.stdout).lines();
        let lines = lines.filter(|line| !line.starts_with("    ") && !line.is_empty());
        let short = |line: &str| match (line.split_once(" ("), line.rsplit_once("), ")) {
            (Some((what, _)), Some((_, process))) => format!("{what}, {process}"),
            _ => line.to_owned(),
        };
        let lines: Vec<String> = lines.map(short).collect();
        (lines, text(&output.stderr).to_owned())
    };
    let expected = [
        "4000 bytes in 4 blocks: main, shop (42)",
        "70 bytes in 1 block: leak, shop (43)",
        "total: 4070 bytes in 5 blocks not freed at the end",
    ];
    let (of_child, said) = lines(parent.base);
    assert_eq!(
        (&of_child[..], &said[..]),
        (&expected.map(str::to_owned)[..], "")
    );
    let (of_other, said) = lines(parent.base + (1 << 30));
    assert_eq!(of_other, expected);
    assert!(
        said.contains("2 blocks were freed whose allocation is not"),
        "{said}"
    );
}

/// The first line names the function that leaks, with its file and line, in each language and each
/// kind of program.
///
/// Requirements: F1
#[test]
fn leaks_names_the_culprit() {
    for (source, arguments, function, place) in [
        (LEAK_C, &[][..], "leak", "shop.c:6"),
        (LEAK_C, &["-no-pie"], "leak", "shop.c:6"),
        (LEAK_C, &["-shared", "-fPIC"], "leak", "shop.c:6"),
        (
            LEAK_CPP,
            &[],
            "shop::Cart::leak<unsigned int>(unsigned int)",
            "shop.cc:8",
        ),
        (LEAK_RUST, &[], "shop::shop::leak", "shop.rs:7"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), source, arguments);
        let traces = directory.path().join("traces");
        leaking(&program, Contexts::Callstack).write(&traces);
        let output = usertrace(directory.path(), &["leaks", "traces"]);
        assert_eq!(text(&output.stderr), "", "{function}");
        assert_eq!(output.status.code(), Some(0));
        let stdout = text(&output.stdout);
        let first = stdout.lines().next().unwrap();
        let is_right = first.starts_with(&format!("300 bytes in 3 blocks: {function} ("))
            && first.ends_with(&format!("{place}), shop (42)"));
        assert!(is_right, "{stdout}");
        assert!(stdout.contains("\n20 bytes in 1 block: "), "{stdout}");
        assert!(
            stdout.ends_with("total: 320 bytes in 4 blocks not freed at the end\n"),
            "{stdout}"
        );
    }
}

/// On a machine without the program, its debug file is sufficient.
///
/// Requirements: F1
#[test]
fn leaks_needs_only_the_debug_file() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    let traces = directory.path().join("traces");
    leaking(&program, Contexts::Callstack).write(&traces);
    let debug = program.split();
    let place = directory.path().join("symbols").join(program.debug_path());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::rename(debug, place).unwrap();
    std::fs::remove_file(&program.path).unwrap();
    let output = usertrace(
        directory.path(),
        &["leaks", "--debug-dir", "symbols", "traces"],
    );
    let stdout = text(&output.stdout);
    assert!(
        stdout.starts_with("300 bytes in 3 blocks: leak ("),
        "{output:?}"
    );
    // Without it, the module and the offset are left, and a message says what is missing.
    let output = usertrace(directory.path(), &["leaks", "traces"]);
    let unknown = format!(
        "300 bytes in 3 blocks: shop+{:#x}, shop (42)",
        program.here + 1
    );
    assert_eq!(text(&output.stdout).lines().next(), Some(&*unknown));
    assert!(
        text(&output.stderr).contains("no symbols of 1 module: shop"),
        "{output:?}"
    );
    // Another build at the same path is not used.
    let other = compile(directory.path(), LEAK_C, &["-DOTHER", "-O1"]);
    let output = usertrace(directory.path(), &["leaks", "traces"]);
    assert_eq!(text(&output.stdout).lines().next(), Some(&*unknown));
    for id in [other.build_id, program.build_id] {
        assert!(text(&output.stderr).contains(&id.unwrap()), "{output:?}");
    }
}

/// A library may have been closed before the end, and another one may be at its addresses.
///
/// Requirements: F1
#[test]
fn leaks_of_closed_libraries_are_named() {
    let [closed, later] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let library = compile(closed.path(), LEAK_C, &["-shared", "-fPIC"]);
    let source = LEAK_C.replace("leak", "other");
    let other = compile(later.path(), &source, &["-shared", "-fPIC"]);
    let contexts = Contexts::Callstack;
    let mut traced = TracedProgram::new(&library, contexts);
    traced.malloc(contexts, &[library.here, library.there], 300, 0x1000);
    traced.control.meta(at(10_050), &format!("-{BASE:x}"));
    traced.control.meta(at(10_051), &other.loaded_at(BASE));
    traced.malloc(contexts, &[other.here, other.there], 200, 0x2000);
    let traces = closed.path().join("traces");
    traced.write(&traces);
    let output = usertrace(&traces, &["leaks", "."]);
    let stdout = text(&output.stdout);
    assert!(
        stdout.starts_with("300 bytes in 1 block: leak ("),
        "{output:?}"
    );
    assert!(
        stdout.contains("\n200 bytes in 1 block: other ("),
        "{output:?}"
    );
}

/// Without call stacks, the place of the allocation is counted.
///
/// Requirements: F1
#[test]
fn leaks_uses_ip_without_a_call_stack() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    let traces = directory.path().join("traces");
    leaking(&program, Contexts::Ip).write(&traces);
    let output = usertrace(&traces, &["leaks", "."]);
    let stdout = text(&output.stdout);
    assert!(
        stdout.starts_with("300 bytes in 3 blocks: leak ("),
        "{output:?}"
    );
}

#[test]
fn leaks_says_how_to_record() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    let [without, other] = ["without", "other"].map(|name| directory.path().join(name));
    leaking(&program, Contexts::None).write(&without);
    let mut traced = TracedProgram::new(&program, Contexts::Ip);
    traced.event(Contexts::Ip, 4, &[program.here], &[0; 16]);
    traced.write(&other);
    for (traces, what) in [(without, "who allocated"), (other, "no allocations")] {
        let output = usertrace(&traces, &["leaks", "."]);
        assert_eq!(output.status.code(), Some(1));
        let stderr = text(&output.stderr);
        let has_way = stderr.contains("usertrace record --malloc --context callstack");
        assert!(stderr.contains(what) && has_way, "{stderr}");
        assert_eq!(text(&output.stdout), "");
    }
}

/// The peak, `realloc`, failed allocations, freed blocks that are unknown, and losses.
///
/// Requirements: E7, F1
#[test]
fn leaks_counts_what_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    let contexts = Contexts::Callstack;
    let mut traced = TracedProgram::new(&program, contexts);
    let (leak, main) = ([program.here, program.there], [program.there]);
    traced.malloc(contexts, &main, 1000, 0x1000);
    traced.malloc(contexts, &leak, 70, 0x2000);
    // It grows, and moves.
    let fields = [0x2000u64, 80, 0x3000].map(u64::to_le_bytes).concat();
    traced.event(contexts, 3, &leak, &fields);
    // These fail.
    let fields = [0x3000u64, 1 << 50, 0].map(u64::to_le_bytes).concat();
    traced.event(contexts, 3, &leak, &fields);
    let failed = [
        &8u64.to_le_bytes()[..],
        &9u64.to_le_bytes(),
        &12u32.to_le_bytes(),
        &[1; 8],
    ];
    traced.event(contexts, 5, &leak, &failed.concat());
    traced.free(contexts, 0x1000);
    traced.free(contexts, 0x7777);
    let traces = directory.path().join("traces");
    traced.write(&traces);
    let lines = |arguments: &[&str]| {
        let output = usertrace(&traces, &[&["leaks"], arguments, &["."]].concat());
        assert_eq!(output.status.code(), Some(0));
        let stderr = text(&output.stderr);
        assert!(
            stderr.starts_with("usertrace: 1 block was freed"),
            "{stderr}"
        );
        let stdout = text(&output.stdout).lines();
        let stdout = stdout.filter(|line| !line.starts_with("    ") && !line.is_empty());
        stdout
            .map(|line| line.split(" (").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let end = [
        "80 bytes in 1 block: leak",
        "total: 80 bytes in 1 block not freed at the end",
    ];
    assert_eq!(lines(&[]), end);
    let peak = [
        "1000 bytes in 1 block: main",
        "80 bytes in 1 block: leak",
        "total: 1080 bytes in 2 blocks at the peak",
    ];
    assert_eq!(lines(&["--peak"]), peak);
    let top = [
        "1000 bytes in 1 block: main",
        "80 bytes in 1 block: 1 other call stack",
        "total: 1080 bytes in 2 blocks at the peak",
    ];
    assert_eq!(lines(&["--peak", "--top", "1"]), top);
    assert_eq!(lines(&["--peak", "--top", "0"]), peak);
    let output = usertrace(&traces, &["leaks", "--json", "--peak", "."]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["at"], "peak");
    assert_eq!(json["bytes"], "1080");
    let first = &json["leaks"][0];
    assert_eq!(
        (&first["function"], &first["line"]),
        (&"main".into(), &16.into())
    );
    assert_eq!(
        (&first["bytes"], &first["blocks"]),
        (&"1000".into(), &"1".into())
    );
    assert_eq!(
        (&first["process"], &first["pid"]),
        (&"shop".into(), &42.into())
    );
    assert_eq!(json["leaks"][1]["stack"][1]["function"], "work");
    assert_eq!(json["doubts"].as_array().unwrap().len(), 1);
    // Lost events make the result doubtful.
    traced.main.lost = 3;
    traced.malloc(contexts, &leak, 1, 0x8888);
    let lost = directory.path().join("lost");
    traced.write(&lost);
    let output = usertrace(&lost, &["leaks", "."]);
    assert!(
        text(&output.stderr).contains("may be wrong: 3 events were lost"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(3));
}

/// Files that `debuginfod`'s client has in its cache, or fetches.
///
/// Requirements: F1
#[test]
fn debug_files_come_from_debuginfod() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    let traces = directory.path().join("traces");
    leaking(&program, Contexts::Callstack).write(&traces);
    let debug = program.split();
    let id = program.build_id.unwrap();
    let tools = directory.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let client = tools.join("debuginfod-find");
    let asked = directory.path().join("asked");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >>{}\necho {}\n",
        asked.display(),
        debug.display()
    );
    std::fs::write(&client, script).unwrap();
    std::fs::set_permissions(&client, std::fs::Permissions::from_mode(0o755)).unwrap();
    let cache = directory.path().join("cache");
    let leaks = |urls: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        command
            .args(["leaks", "traces"])
            .current_dir(directory.path());
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", tools.display()));
        command.env("DEBUGINFOD_CACHE_PATH", &cache);
        command.env("DEBUGINFOD_URLS", urls);
        let output = command.output().unwrap();
        text(&output.stdout).lines().next().unwrap().to_owned()
    };
    // No server is configured.
    assert!(leaks("").starts_with("300 bytes in 3 blocks: shop+0x"));
    assert!(!asked.exists());
    // Each build ID is asked for once.
    assert!(leaks("http://localhost").starts_with("300 bytes in 3 blocks: leak ("));
    assert_eq!(
        std::fs::read_to_string(&asked).unwrap(),
        format!("debuginfo {id}\n")
    );
    let cached = cache.join(&id).join("debuginfo");
    std::fs::create_dir_all(cached.parent().unwrap()).unwrap();
    // An empty file says that no server has it.
    std::fs::write(&cached, "").unwrap();
    assert!(leaks("").starts_with("300 bytes in 3 blocks: shop+0x"));
    std::fs::rename(&debug, &cached).unwrap();
    assert!(leaks("").starts_with("300 bytes in 3 blocks: leak ("));
}
