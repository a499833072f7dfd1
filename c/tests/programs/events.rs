//! Events of programs in C11 and C++17, by GCC and Clang, static ones too.

use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::babeltrace::{Printed, Read};
use usertrace_testing::c_library::succeed;
use usertrace_tests_preload::Traces;

use crate::build::{build, build_static};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("every_field_type_from_c_by_gcc", || {
        dynamic(&["gcc", "-std=c11", "-O2"])
    }),
    ("every_field_type_from_c_by_clang", || {
        dynamic(&["clang-19", "-std=c11", "-O2"])
    }),
    ("every_field_type_without_optimisation", || {
        dynamic(&["gcc", "-std=gnu17", "-O0"])
    }),
    ("every_field_type_from_cpp_by_gcc", || {
        dynamic(&["g++", "-x", "c++", "-std=c++17", "-O2"])
    }),
    ("every_field_type_from_cpp_by_clang", || {
        dynamic(&["clang++-19", "-x", "c++", "-std=c++17", "-O2"]);
    }),
    ("static_binary_needs_no_dlopen", a_static_binary),
    ("nothing_is_evaluated_without_a_trace", without_a_trace),
    ("undescribable_events_are_counted", bad_events),
    ("texts_and_bytes_of_each_length", each_length),
    ("status_names_the_back_end", status),
];

pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// The events of `fields.c`, as `babeltrace2` prints them.
const EXPECTED: &[&str] = &[
    "test:unsigned: { a = 255, b = 65535, c = 4294967295, d = 18446744073709551615 }",
    "test:signed: { a = -128, b = -32768, c = -2147483648, d = -9223372036854775808 }",
    "test:hexadecimal: { a = 0xF1, b = 0xF2, c = 0xF3, d = 0xF4, e = 0xF5 }",
    "test:network: { a = 80, b = 0x1020304, c = -2 }",
    "test:floating: { a = 1.5, b = -2.25, c = 1 }",
    "test:texts: { a = \"abc\", _b_length = 3, b = \"def\", c = \"(null)\" }",
    "test:many: { a = [ [0] = 1, [1] = 2, [2] = 65535 ], _b_length = 2, b = [ [0] = -1, [1] = 7 ], \
     _c_length = 1, c = [ [0] = 0.5 ], d = [ [0] = 1, [1] = 0 ] }",
    "test:many: { a = [ [0] = 1, [1] = 2, [2] = 65535 ], _b_length = 0, b = [ ], _c_length = 0, c = [ ], \
     d = [ [0] = 1, [1] = 0 ] }",
    "test:enumeration: { a = ( \"Busy\" : container = 2 ), b = ( \"Low\" : container = -3 ) }",
    "test:longest: { a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8 }",
    "test:nothing: { }",
    "test:shared: { n = 10 }",
    "test:shared: { n = -1 }",
    "test:size: { text = \"argument\" }",
    "test:shared: { n = 1 }",
];

/// Events with the CPU taken out.
fn events(read: &Read) -> Vec<String> {
    let event = |event: &Printed| {
        let (_, fields) = event.fields.split_once("}, ").unwrap();
        format!("{}: {fields}", event.name)
    };
    read.events.iter().map(event).collect()
}

fn run(program: &Path) {
    let traces = Traces::new();
    let output = traces.of(Command::new(program).arg("argument")).output();
    // Written, lost, stopped at the right event; one trace, all described, one lost, none bad.
    assert_eq!(succeed(&output.unwrap()), "1 2 1 1 0 1 0\n1 0\n");
    let read = traces.read();
    let metadata = std::fs::read_to_string(traces.processes()[0].join("metadata")).unwrap();
    let cmdline = format!("cmdline = \"{} argument\";", program.display());
    assert!(metadata.contains(&cmdline), "{metadata}");
    assert_eq!(read.discarded, 1);
    let events = events(&read);
    for (event, expected) in events.iter().zip(EXPECTED) {
        assert_eq!(event, expected);
    }
    assert_eq!(events.len(), EXPECTED.len());
}

/// Requirements: F7
fn dynamic(compiler: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("fields");
    build(
        compiler,
        &[&source("fields.c"), &source("other.c")],
        &program,
    );
    run(&program);
}

/// Requirements: F2, F7
fn a_static_binary() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("fields");
    build_static(
        &["gcc", "-O2"],
        &[&source("fields.c"), &source("other.c")],
        &program,
    );
    run(&program);
}

/// Requirements: F3, F7
fn without_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("fields");
    build(
        &["gcc", "-O2"],
        &[&source("fields.c"), &source("other.c")],
        &program,
    );
    let output = Command::new(&program)
        .env("USERTRACE_BACKEND", "off")
        .output();
    let printed = succeed(&output.unwrap());
    let (status, rest) = printed.split_once('\n').unwrap();
    assert!(status.len() == 11, "{status}");
    // `ENXIO`: the process has no buffers.
    assert_eq!(rest, "0 0 1 0 0 0 0\n0 -6\n");
}

/// The header assembles short payloads, and the library takes longer ones in parts. Lengths on both
/// sides of each limit work.
///
/// Requirements: F7
fn each_length() {
    let directory = tempfile::tempdir().unwrap();
    let (program, code) = (
        directory.path().join("lengths"),
        directory.path().join("lengths.c"),
    );
    let text = r#"
        #include <usertrace.h>
        #include <string.h>
        USERTRACE_EVENT(each, length, INFO, (u8, first), (str, text), (u16, n), (text, bytes), (u8, last));
        int main(void)
        {
            char text[1101] = "";

            for (int n = 0; n < 1100; n++) {
                if (n < 70 || (n > 230 && n < 270) || n > 490) {
                    usertrace(each, length, 1, text, n, text, n, 2);
                    /* Not of none: babeltrace2 shows those of the event before. */
                    usertrace(each, length, 1, text, n, "z", 1, 2);
                }
                text[n] = 'a' + n % 26;
            }
        }
    "#;
    std::fs::write(&code, text).unwrap();
    for compiler in [
        &["gcc", "-O2"][..],
        &["clang-19", "-O1"],
        &["gcc", "-O0", "-fsanitize=address,undefined"],
    ] {
        build(compiler, &[&code], &program);
        let traces = Traces::new();
        let mut command = Command::new(&program);
        // The reader is another process, and may start late.
        let output = traces
            .of(&mut command)
            .env("USERTRACE_MODE", "block")
            .output();
        assert_eq!(succeed(&output.unwrap()), "");
        let lengths = (0..1100usize).filter(|&n| n < 70 || (n > 230 && n < 270) || n > 490);
        let expected: Vec<_> = lengths
            .flat_map(|n| {
                let text: String = (0..n).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
                [&*text, "z"].map(|bytes| {
                    let len = bytes.len();
                    format!(
                        "each:length: {{ first = 1, text = \"{text}\", n = {n}, _bytes_length = {len}, \
                         bytes = \"{bytes}\", last = 2 }}"
                    )
                })
            })
            .collect();
        let found = events(&traces.read());
        for (event, expected) in found.iter().zip(&expected) {
            assert_eq!(event, expected);
        }
        assert_eq!(found.len(), expected.len());
    }
}

/// The text equals that of `usertrace::report`. `guest-tests` has the case of the kernel's buffers.
///
/// Requirements: F3, F7
fn status() {
    let directory = tempfile::tempdir().unwrap();
    let [program, code] = ["status", "status.c"].map(|name| directory.path().join(name));
    let text = r#"
        #include <usertrace.h>
        #include <stdio.h>
        #include <string.h>
        int main(void)
        {
            char text[4096], start[9];
            int failed = usertrace_init();
            size_t len = usertrace_status(text, sizeof(text));

            if (usertrace_status(start, sizeof(start)) != len || strlen(text) != len)
                return 1;
            printf("%d %s\n%s\n", failed, start, text);
        }
    "#;
    std::fs::write(&code, text).unwrap();
    build(&["gcc", "-O2"], &[&code], &program);
    let traces = Traces::new();
    let output = traces.of(&mut Command::new(&program)).output();
    let said = succeed(&output.unwrap());
    let [first, second] = said.lines().collect::<Vec<_>>()[..] else {
        panic!("{said}");
    };
    assert_eq!(first, "0 attached");
    let start = format!("attached, fast, to {}", traces.path().display());
    assert!(second.starts_with(&start), "{second}");
}

/// Requirements: F7
fn bad_events() {
    let directory = tempfile::tempdir().unwrap();
    let (program, code) = (directory.path().join("bad"), directory.path().join("bad.c"));
    let text = r#"
        #include <usertrace.h>
        #include <stdio.h>
        USERTRACE_EVENT(bad, labels, INFO, (enum, u8, a, "not a label=1"));
        USERTRACE_EVENT(bad, good, INFO, (enum, u8, a, "a_label=1"));
        int main(void)
        {
            int outcome = usertrace(bad, labels, 1);

            printf("%d %d %zu\n", outcome, usertrace(bad, good, 1), usertrace_bad_events());
        }
    "#;
    std::fs::write(&code, text).unwrap();
    build(&["gcc"], &[&code], &program);
    let traces = Traces::new();
    let output = traces.of(&mut Command::new(&program)).output();
    assert_eq!(succeed(&output.unwrap()), "0 1 1\n");
}
