//! Contexts of events of programs in C and C++ (F7).

use std::path::Path;
use std::process::Command;

use usertrace_testing::c_library::succeed;
use usertrace_tests_preload::Traces;

use crate::build::build;
use crate::events::source;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("contexts_from_c_by_gcc", || {
        contexts(&["gcc", "-std=gnu11", "-O2"])
    }),
    ("contexts_from_c_without_optimisation", || {
        contexts(&["clang-19", "-std=gnu11", "-O0"])
    }),
    ("contexts_from_cpp_by_clang", || {
        contexts(&["clang++-19", "-x", "c++", "-std=c++17", "-O2"]);
    }),
];

/// Requirements: F7
fn contexts(compiler: &[&str]) {
    // Without frame pointers, unwind tables lead to the caller.
    for frames in ["-fno-omit-frame-pointer", "-fomit-frame-pointer"] {
        contexts_of(&[compiler, &[frames]].concat());
    }
}

fn contexts_of(compiler: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("contexts");
    build(compiler, &[&source("contexts.c")], &program);
    let traces = Traces::new();
    let mut command = Command::new(&program);
    command.env("USERTRACE_CONTEXTS", "vtid ip app.request callstack:3");
    let printed = succeed(&traces.of(&mut command).output().unwrap());
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("0 -1 -1 -1"));
    let words: Vec<_> = lines.next().unwrap().split(' ').collect();
    let (serve, symbols) = (hex(words[0]), symbols(&program));
    let loaded_at = serve - symbols.iter().find(|(_, name)| name == "serve").unwrap().0;
    let events = traces.read().events;
    assert_eq!(events.len(), 2);
    for (event, request) in events.iter().zip([17, 18]) {
        assert_eq!(event.field("app_request"), request);
        assert_eq!(event.field("vtid").to_string(), words[1]);
        // The address is in the function, or in a cold part that the compiler split off.
        let at = event.address("ip") - loaded_at;
        let function_of = |at: u64| &symbols.iter().rfind(|(start, _)| *start <= at).unwrap().1[..];
        let function = function_of(at);
        assert!(["serve", "serve.cold"].contains(&function), "{function}");
        let frame = |n| {
            let frame = event.element("callstack", n)?;
            Some(hex(frame.trim_start_matches("0x")))
        };
        assert_eq!(frame(0), Some(event.address("ip")));
        // The function that the macro generates is left out, and the event's function comes once.
        let caller = function_of(frame(1).unwrap().wrapping_sub(loaded_at + 1));
        assert_eq!(caller, "main");
    }
    assert_ne!(events[0].address("ip"), events[1].address("ip"));
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

/// Functions of a program, by address, without what C++ adds to their names.
fn symbols(program: &Path) -> Vec<(u64, String)> {
    let printed = Command::new("nm").args(["-n", "-C"]).arg(program).output();
    let printed = succeed(&printed.unwrap());
    let lines = printed.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
        let plain = name.replace("()", "");
        (!address.is_empty()).then(|| (hex(address), plain))
    });
    lines.collect()
}
