//! Providers that are not linked with their program, and libraries with providers of their own.

use std::path::PathBuf;
use std::process::Command;

use usertrace_testing::c_library::succeed;
use usertrace_tests::lttng::events;
use usertrace_tests_preload::Traces;

use crate::INSTALLED;
use crate::build::{COMPILERS, build, sources};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("preloaded_providers_record_events", preloaded),
    ("providers_can_be_loaded_and_unloaded", come_and_go),
    ("two_libraries_may_have_the_same_provider", same_provider),
];

/// Options to build a library.
const LIBRARY: &[&str] = &["-shared", "-fPIC"];

struct Built {
    directory: tempfile::TempDir,
}

impl Built {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir_in("/tmp").unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn library(&self, name: &str, args: &[&str]) -> PathBuf {
        let path = self.path(name);
        build(COMPILERS[0].1, &[LIBRARY, args].concat(), &path);
        path
    }

    /// Builds a program that is linked with neither its provider nor the library, as LTTng-UST
    /// allows.
    fn program(&self, args: &[&str]) -> PathBuf {
        let path = self.path("program");
        let headers = INSTALLED.prefix().join("include/usertrace/lttng-ust");
        let output = Command::new("gcc")
            .current_dir(sources())
            .args(["-Wall", "-Wextra", "-Werror", "-I."])
            .arg("-DTRACEPOINT_PROBE_DYNAMIC_LINKAGE")
            .arg(format!("-I{}", headers.display()))
            .args(args)
            .arg("-ldl")
            .arg("-o")
            .arg(&path)
            .output()
            .unwrap();
        succeed(&output);
        path
    }
}

/// Runs a program, which must print `output`, and returns the events.
fn run(program: &mut Command, output: &str) -> Vec<String> {
    let traces = Traces::new();
    let said = traces
        .of(program)
        .env("LD_LIBRARY_PATH", INSTALLED.prefix().join("lib"))
        .output();
    assert_eq!(succeed(&said.unwrap()), output);
    traces.wait();
    if traces.processes().is_empty() {
        return Vec::new();
    }
    events(traces.path())
}

/// Requirements: F7
fn preloaded() {
    let built = Built::new();
    let program = built.program(&["loop.c", "define.c"]);
    let provider = built.library("provider.so", &["probes.c"]);
    assert_eq!(run(&mut Command::new(&program), "0\n"), [""; 0]);
    let mut with_provider = Command::new(&program);
    with_provider.env("LD_PRELOAD", &provider);
    assert_eq!(
        run(&mut with_provider, "1\n"),
        ["(4) test_classes:first: { n = 0x1 }"]
    );
    // Without the library, the program runs untraced.
    let output = Command::new(&program).output().unwrap();
    assert_eq!(succeed(&output), "0\n");
}

/// A thread writes events constantly, while their provider is loaded and unloaded.
///
/// Requirements: B1, F7
fn come_and_go() {
    let built = Built::new();
    let program = built.program(&["-pthread", "load.c", "define.c"]);
    let provider = built.library("provider.so", &["probes.c"]);
    let written = run(Command::new(program).arg(provider).arg("100"), "100\n");
    assert!(!written.is_empty());
    for event in written {
        assert_eq!(event, "(13) test_classes:second: { n = 0x7 }");
    }
}

/// Each library has its own tracepoints and probes; one is unloaded while the other stays.
///
/// Requirements: B1, F7
fn same_provider() {
    let built = Built::new();
    let hidden = [
        "-DLTTNG_UST_TRACEPOINT_HIDDEN_DEFINITION",
        "-DLTTNG_UST_TRACEPOINT_PROVIDER_HIDDEN_DEFINITION",
        "-fvisibility=hidden",
        "library.c",
        "define.c",
        "probes.c",
    ];
    let one = built.library("one.so", &[&hidden[..], &["-DNUMBER=1"]].concat());
    let two = built.library("two.so", &[&hidden[..], &["-DNUMBER=2"]].concat());
    let program = built.path("program");
    build(COMPILERS[0].1, &["libraries.c", "-ldl"], &program);
    let written = run(Command::new(program).arg(one).arg(two), "done\n");
    let numbers = [1, 2, 1, 2, 1, 2];
    assert_eq!(
        written,
        numbers.map(|n| format!("(4) test_classes:first: {{ n = 0x{n} }}"))
    );
}
