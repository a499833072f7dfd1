//! Calls of functions: `usertrace view --calls`, and the page's tree (E8, F1).

use std::path::Path;
use std::process::{Command, Output};

use usertrace_ctf::StreamWriter;
use usertrace_testing::processes::shop_trace;

use crate::report::{inner, no_complaints, open};

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

/// The rows of the page's tree: level, and cells.
fn rows(browser: &mut usertrace_testing::browser::Browser) -> Vec<String> {
    let rows = browser.text(
        "[...document.querySelectorAll('#calls-tree tbody tr')].map(row => \
         `${row.getAttribute('aria-level')} ${[...row.cells].map(cell => cell.textContent).join(' ')}`.trim()).join('\\n')",
    );
    rows.lines().map(str::to_owned).collect()
}

/// The page has a tree of the calls of all threads: total and own time, calls, and what is missing.
///
/// Requirements: E8, F1
#[test]
fn page_has_a_tree_of_calls() {
    let directory = tempfile::tempdir().unwrap();
    let events = [
        (0, 51, '<', 0xf, 0xf0),
        (1000, 51, '>', 0xa, 0xa0),
        (1100, 51, '>', 0xb, 0xb0),
        (1150, 52, '>', 0xa, 0xa0),
        (1300, 51, '<', 0xb, 0xb0),
        (1400, 51, '>', 0xb, 0xb1),
        (1500, 51, '>', 0xc, 0xc0),
        (1550, 52, '<', 0xa, 0xa0),
        (1700, 51, '<', 0xc, 0xc0),
        // It leaves 0xb without an exit.
        (2000, 51, '<', 0xa, 0xa0),
        // It is open at the end.
        (2100, 51, '>', 0xd, 0xd0),
        (2200, 51, '-', 0, 0),
        (2200, 51, '<', 0xff, 0xf0),
    ];
    write(directory.path(), "@1 u32 vtid", &events);
    let mut browser = open(directory.path(), &["."]);
    let notes = inner(&mut browser, "calls-notes");
    assert!(notes.contains("2 calls had no exit"), "{notes}");
    assert!(notes.contains("2 functions returned"), "{notes}");
    let closed = [
        "1 ▾ shop (7) 1.5 µs",
        "2 ▸ 0xa 1.4 µs 600 ns 2 700 ns 93.3%",
        "2 0xd 100 ns 100 ns 1 100 ns 6.7%",
    ];
    assert_eq!(rows(&mut browser), closed);
    let in_a = "3 ▸ 0xb 800 ns 600 ns 2 400 ns 57.1%";
    let in_b = "4 0xc 200 ns 200 ns 1 200 ns 25.0%";
    browser.value("document.getElementById('calls').scrollIntoView(), Calls.select(Calls.roots[0].index, true)");
    browser.press("ArrowDown");
    browser.press("ArrowRight");
    assert_eq!(rows(&mut browser)[2], in_a);
    browser.press("ArrowLeft");
    assert_eq!(rows(&mut browser), closed);
    // A search opens the callers.
    browser.press("/");
    for key in "0xc".chars() {
        browser.press(&key.to_string());
    }
    let found = rows(&mut browser);
    assert_eq!(found[3], in_b, "{found:?}");
    assert_eq!(
        inner(&mut browser, "calls-found"),
        "1 places, 200 ns in themselves"
    );
    browser.press("Enter");
    assert_eq!(
        browser.text("document.activeElement.cells[0].textContent"),
        "0xc"
    );
    no_complaints(&browser);
}
