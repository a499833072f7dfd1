//! All types of fields, from the macro to the output of a reader (B1).

use usertrace::{Outcome, event, marker};

use super::run::Run;
use usertrace_testing::babeltrace;

const LEN: usize = 3;

usertrace::tracepoint! {
    mod numbers {
        provider: "test",
        name: "numbers",
        loglevel: Info,
        fields: {
            a: u16be, b: i32be, c: x64be, d: usize, e: isize, f: ptr,
            r#type: enum i8 { Idle = 0, Busy = 1..=3, "not: \"known\"" = -128..=-1, r#else = 3 },
        },
    }
}

usertrace::tracepoint! {
    mod many {
        provider: "test",
        name: "many",
        loglevel: Info,
        fields: {
            a: [u8; 6], b: [i16; super::LEN], c: [bool; 2], d: [f64; 1], e: [u16be; 2], f: [ptr; 1],
            g: [u32], h: bytes, i: [x16be], j: [f32], k: str, l: enum u32be { "" = 4294967295 },
        },
    }
}

usertrace::tracepoint! {
    /// Fields whose names equal those of other fields' lengths, or names that the macro uses
    /// itself.
    #[allow(non_snake_case)]
    mod names {
        provider: "test",
        name: "names",
        loglevel: Info,
        fields: {
            data: str, words: [u8], words_length: u32, _x: u8, x: u8,
            payload: u8, SIZE: u8, WORDS: u8, VARIABLE: bool,
        },
    }
}

fn recorded(outcome: Outcome) {
    // The filter may exclude some events.
    let is_filtered = std::env::var_os("USERTRACE_FILTER").is_some();
    assert!(outcome == Outcome::Recorded || is_filtered && outcome == Outcome::Off);
}

/// The program: writes events with all types of fields.
pub(crate) fn write() {
    let address = std::ptr::without_provenance(0xabc0);
    for state in [3, -128, 4] {
        recorded(event!(numbers, 0x1234, -2, 0xabcd, 5, -6, address, state));
    }
    // Both paths: payloads assembled on the stack, and long records filled in the ring.
    for len in [0, 3, 700] {
        let words: Vec<u32> = (1_000_000..).take(len).collect();
        let bytes: Vec<u8> = words.iter().map(|word| *word as u8).collect();
        recorded(event!(
            many,
            &[1, 2, 3, 4, 5, 6],
            &[-1, 0, i16::MAX],
            &[true, false],
            &[0.5],
            &[0x1234, 80],
            &[address],
            &words,
            &bytes,
            &[0xabcd],
            &[],
            "text",
            u32::MAX,
        ));
    }
    recorded(event!(names, "text", &[7], 2, 3, 4, 5, 6, 7, true));
    // Each marker is a separate event.
    let done = 3;
    recorded(marker!("test", "done", "{done} of {{{all}}}", done: u8 = done, all: [u16] = &[7]));
    recorded(marker!("test", "end", "*/ \"the\" end"));
}

fn list(values: impl Iterator<Item = String>) -> String {
    let values: Vec<_> = (0..)
        .zip(values)
        .map(|(n, value): (u32, _)| format!("[{n}] = {value}"))
        .collect();
    match values.is_empty() {
        true => "[ ]".to_owned(),
        false => format!("[ {} ]", values.join(", ")),
    }
}

/// Requirements: B1
pub(crate) fn each_field_type_is_read_as_written() {
    let run = Run::new();
    run.success("fields", &[]);
    let directories = run.directories();
    let read = babeltrace::lines(run.path());
    let mut expected = Vec::new();
    for state in [
        r#"( "Busy", "else" : container = 3 )"#,
        r#"( "not: \"known\"" : container = -128 )"#,
        "( <unknown> : container = 4 )",
    ] {
        expected.push(format!(
            "test:numbers: {{ cpu_id = 0 }}, {{ a = 4660, b = -2, c = 0xABCD, d = 5, e = -6, f = 0xABC0, type = {state} }}"
        ));
    }
    for len in [0, 3, 700usize] {
        let words = list((1_000_000..).take(len).map(|n: u32| n.to_string()));
        let bytes = list((1_000_000..).take(len).map(|n: u32| (n as u8).to_string()));
        expected.push(format!(
            "test:many: {{ cpu_id = 0 }}, {{ \
             a = [ [0] = 1, [1] = 2, [2] = 3, [3] = 4, [4] = 5, [5] = 6 ], \
             b = [ [0] = -1, [1] = 0, [2] = 32767 ], c = [ [0] = 1, [1] = 0 ], d = [ [0] = 0.5 ], \
             e = [ [0] = 4660, [1] = 80 ], f = [ [0] = 0xABC0 ], \
             _g_length = {len}, g = {words}, _h_length = {len}, h = {bytes}, \
             _i_length = 1, i = [ [0] = 0xABCD ], _j_length = 0, j = [ ], k = \"text\", \
             l = ( \"\" : container = 4294967295 ) }}"
        ));
    }
    expected.push(
        "test:names: { cpu_id = 0 }, { data = \"text\", _words_length_2 = 1, words = [ [0] = 7 ], words_length = 2, \
         _x = 3, x_2 = 4, payload = 5, SIZE = 6, WORDS = 7, VARIABLE = 1 }"
            .to_owned(),
    );
    expected.push(
        "test:done: { cpu_id = 0 }, { done = 3, _all_length = 1, all = [ [0] = 7 ] }".to_owned(),
    );
    expected.push("test:end: { cpu_id = 0 }, { }".to_owned());
    let lines: Vec<String> = read.lines.iter().map(|line| on_first_cpu(line)).collect();
    for (line, expected) in lines.iter().zip(&expected) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.len(), expected.len());
    // The metadata has the text of markers.
    let metadata = std::fs::read_to_string(directories[0].join("metadata")).unwrap();
    for format in ["\"{done} of {{{all}}}\"", r#""* / \"the\" end""#] {
        assert_eq!(
            metadata
                .matches(&format!("/* format = {format} */"))
                .count(),
            1,
            "{format}"
        );
    }
}

/// A line from the event's name on, with its CPU replaced by the first.
fn on_first_cpu(line: &str) -> String {
    let (_, event) = line.split_once(" test:").expect("one of these events");
    let (before, rest) = event.split_once("cpu_id = ").expect("a ring of a CPU");
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("test:{before}cpu_id = 0{rest}")
}
