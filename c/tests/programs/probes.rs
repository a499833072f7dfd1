//! Probes of programs in C and C++ (B2, F7).

use std::process::Command;

use usertrace_testing::c_library::succeed;
use usertrace_tests_preload::Traces;

use crate::build::build;
use crate::events::source;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("probes_from_c_by_gcc", || {
        probes(&["gcc", "-std=gnu11", "-O2"])
    }),
    ("probes_from_cpp_by_clang", || {
        probes(&["clang++-19", "-x", "c++", "-std=c++17", "-O2"]);
    }),
];

/// Output of `probes.c`: numbers of events, or errors of `enum usertrace_probe_error`.
const PRINTED: &str = "\
registered: 0
names: -1 -1 -1 -1
twice: -2
none: -3 -3 -3 -3 -3
not connected: -3 -3 -3
patterns: -1 -1
full: 63 -4
connected: 2 -2
activated: 2
shop:served 6 u16 status;str path: 8 of 8 bytes, 2 1, data
OUTCOME
shop:served 6 u16 status;str path: 1024 of 2002 bytes, 4 3, data
OUTCOME
deactivated: 2
disconnected: 2 -3
in a handler: 1 1shop:closed 6 u32 n: 8 of 8 bytes, 1 0, data
1 1
unregistered: 0 -3
3 calls, 1 deep
";

/// Requirements: B2, F7
fn probes(compiler: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("probes");
    build(compiler, &[&source("probes.c")], &program);
    // Probes work whether a trace wants the events or not: `USERTRACE_RECORDED`, `USERTRACE_OFF`.
    let traces = Traces::new();
    let traced = traces.of(&mut Command::new(&program)).output().unwrap();
    assert_eq!(succeed(&traced), PRINTED.replace("OUTCOME", "1"));
    let untraced = Command::new(&program)
        .env("USERTRACE_BACKEND", "off")
        .output();
    assert_eq!(succeed(&untraced.unwrap()), PRINTED.replace("OUTCOME", "0"));
    // Probes do not remove events from the trace.
    let names: Vec<_> = traces
        .read()
        .events
        .into_iter()
        .map(|event| event.name)
        .collect();
    let served = names.iter().filter(|name| *name == "shop:served").count();
    let closed = names.iter().filter(|name| *name == "shop:closed").count();
    assert_eq!((served, closed, names.len()), (4, 3, 8));
}
