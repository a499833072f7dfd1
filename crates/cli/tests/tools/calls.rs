//! `usertrace view --calls`: calls of functions with indentation (E8).

use std::path::Path;
use std::process::{Command, Output};

use usertrace_ctf::StreamWriter;
use usertrace_testing::processes::shop_trace;

fn view(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.arg("view").args(arguments).arg(".");
    command.current_dir(directory).output().unwrap()
}

/// Writes calls: time, thread, `>` or `<` for an entry or an exit, function, and call site. `-` is
/// another event.
fn write(directory: &Path, contexts: &str, events: &[(u64, u32, char, u64, u64)]) {
    let declared = [
        "1 function:entry 12 x64 function;x64 call_site",
        "2 function:exit 12 x64 function;x64 call_site",
        "3 shop:tick 6 u32 n",
    ];
    let (_trace, mut stream) = shop_trace(&directory.join("shop"), "web1", contexts, &declared);
    for &(time, thread, kind, function, site) in events {
        let addresses = [function.to_ne_bytes(), site.to_ne_bytes()].concat();
        let mut event = |id, payload: &[u8]| write_event(&mut stream, id, time, thread, payload);
        match kind {
            '>' => event(1, &addresses),
            '<' => event(2, &addresses),
            _ => event(3, &7u32.to_ne_bytes()),
        }
    }
    stream.finish().unwrap();
}

fn write_event(stream: &mut StreamWriter, id: u16, time: u64, thread: u32, payload: &[u8]) {
    stream
        .event(id, 1_000_000 + time, &thread.to_ne_bytes(), payload)
        .unwrap();
}

/// A call without others is one line, others are two, with their durations at their exits. Threads
/// have indentation of their own, and missing exits and entries are said.
///
/// Requirements: E8
#[test]
fn calls_are_indented() {
    let directory = tempfile::tempdir().unwrap();
    let events = [
        (0, 51, '<', 0xf, 0xf0),
        (100, 51, '>', 0xa, 0xa0),
        (110, 51, '>', 0xb, 0xb0),
        (120, 51, '<', 0xb, 0xb0),
        // Another thread comes between an entry and its exit.
        (130, 51, '>', 0xb, 0xb1),
        (140, 52, '>', 0xc, 0xc0),
        (150, 51, '<', 0xb, 0xb1),
        (1150, 52, '<', 0xc, 0xc0),
        (1160, 51, '-', 0, 0),
        // It leaves two functions by an exception.
        (1170, 51, '>', 0xd, 0xd0),
        (1180, 51, '>', 0xe, 0xe0),
        (2100, 51, '<', 0xa, 0xa0),
        (2200, 51, '>', 0xa, 0xa0),
    ];
    write(directory.path(), "@1 u32 vtid", &events);
    let output = view(directory.path(), &["--calls"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "# DURATION        TID   FUNCTION
           [      51] | } /* 0xf: its entry is missing */
           [      51] | 0xa() {
     10 ns [      51] |   0xb();
           [      51] |   0xb() {
           [      52] | 0xc() {
     20 ns [      51] |   } /* 0xb */
  1.010 µs [      52] | } /* 0xc */
           [      51] |   /* shop:tick: { cpu_id = 0 }, { vtid = 51 }, { n = 7 } */
           [      51] |   0xd() {
           [      51] |     0xe() {
           [      51] |     } /* 0xe: left without an exit */
           [      51] |   } /* 0xd: left without an exit */
  2.000 µs [      51] | } /* 0xa */
           [      51] | 0xa() {
"
    );
}

/// Without thread ids, it says that calls may be mixed.
#[test]
fn mixed_threads_are_said() {
    let directory = tempfile::tempdir().unwrap();
    let events = [(1, 51, '>', 0xa, 0xa0), (2, 52, '<', 0xa, 0xa0)];
    write(directory.path(), "@1 u32 number", &events);
    let output = view(directory.path(), &["--calls"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("record --context vtid tells them apart"),
        "{said}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("      1 ns [       ?] | 0xa();\n"), "{text}");
}
