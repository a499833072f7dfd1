//! What traces know about the libraries of a process.

use std::process::Command;

use usertrace_testing::babeltrace;
use usertrace_tests_preload::{Libraries, Traces, compile_with};

const PLUGIN: &str = "
#include <stdlib.h>
__attribute__((noinline)) void leak_in_plugin(void) { void *volatile p = malloc(4321); (void)p; }
";

/// Loads a library, calls it, closes it; several times.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) void leak_in_program(void) { void *volatile p = malloc(1234); (void)p; }

int main(int argc, char **argv)
{
    leak_in_program();
    for (int n = 0; n < atoi(argv[2]); n++) {
        void *handle = dlopen(argv[1], RTLD_NOW);
        if (!handle) return 1;
        ((void (*)(void))dlsym(handle, "leak_in_plugin"))();
        dlclose(handle);
    }
    return argc != 3;
}
"#;

fn traced(libraries: &Libraries, times: u32) -> (tempfile::TempDir, Traces, String) {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id"];
    let plugin = compile_with(directory.path(), "plug in.so", PLUGIN, &options);
    let options = ["-g", "-O1", "-Wl,--build-id"];
    let program = compile_with(directory.path(), "program", PROGRAM, &options);
    let traces = Traces::new();
    let mut command = Command::new(program);
    let command = libraries
        .of(&mut command)
        .env("USERTRACE_CONTEXTS", "vpid ip");
    command.arg(&plugin).arg(times.to_string());
    let output = traces.of(command).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (directory, traces, plugin.to_str().unwrap().to_owned())
}

fn modules(traces: &Traces) -> Vec<babeltrace::Printed> {
    traces.wait();
    babeltrace::modules(traces.path())
}

/// The program and its libraries come first; then what `dlopen` and `dlclose` change.
///
/// Requirements: E6, F1
#[test]
fn libraries_are_described_as_they_come_and_go() {
    let (directory, traces, plugin) = traced(&Libraries::all(), 3);
    let events = modules(&traces);
    let paths = |name: &str| -> Vec<(u64, &str)> {
        let events = events.iter().filter(|event| event.name == name);
        events
            .map(|event| (event.address("baddr"), event.text("path")))
            .collect()
    };
    let first = paths("lttng_ust_statedump:bin_info");
    let program = directory.path().join("program");
    let has = |name: &str| first.iter().any(|(_, path)| path.ends_with(name));
    assert!(
        has(program.to_str().unwrap()) && has("libc.so.6") && has("libusertrace_malloc.so"),
        "{first:?}"
    );
    assert!(!has(&plugin), "{first:?}");
    let loads = paths("lttng_ust_lib:load");
    assert_eq!(
        loads.iter().filter(|(_, path)| *path == plugin).count(),
        3,
        "{loads:?}"
    );
    let (base, _) = loads.iter().find(|(_, path)| *path == plugin).unwrap();
    let unloads = events
        .iter()
        .filter(|event| event.name == "lttng_ust_lib:unload");
    assert_eq!(
        unloads
            .filter(|event| event.address("baddr") == *base)
            .count(),
        3
    );
    let build_id = events
        .iter()
        .find(|event| event.name == "lttng_ust_lib:build_id" && event.address("baddr") == *base);
    let build_id = build_id.expect("a build ID");
    let expected = Command::new("readelf")
        .args(["-n", &plugin])
        .output()
        .unwrap();
    let expected = String::from_utf8(expected.stdout).unwrap();
    let (_, expected) = expected.split_once("Build ID: ").unwrap();
    let expected = expected.split_whitespace().next().unwrap();
    let bytes = (0..64).map_while(|n| build_id.element("build_id", n));
    let bytes = bytes.map(|text| u8::from_str_radix(text.trim_start_matches("0x"), 16).unwrap());
    assert_eq!(
        bytes.map(|byte| format!("{byte:02x}")).collect::<String>(),
        expected
    );
}

/// The debug-info filter of `babeltrace2` names the callers, also in a library that is gone.
///
/// Requirements: F1, F7
#[test]
fn babeltrace_names_the_callers() {
    // Without the library that sees `dlopen`, the address of an event leads to the plugin.
    for libraries in [Libraries::all(), Libraries::new(&["malloc"])] {
        let (_directory, traces, _) = traced(&libraries, 2);
        traces.wait();
        for events in babeltrace::with_debug_info(traces.path()) {
            for (size, function, count) in
                [(1234, "leak_in_program", 1), (4321, "leak_in_plugin", 2)]
            {
                let mallocs = events.iter().filter(|event| event.name == "libc:malloc");
                let fields = mallocs.filter(|event| event.field("size") == size);
                let fields: Vec<_> = fields.map(|event| &event.fields).collect();
                assert_eq!(fields.len(), count);
                let is_named =
                    |fields: &&String| fields.contains(function) && fields.contains("source.c:");
                assert!(fields.iter().all(is_named), "{fields:?}");
            }
        }
    }
}

/// A program that never stops loading fills a bounded log, and runs on.
///
/// Requirements: A3, E6
#[test]
fn changes_are_bounded() {
    let (_directory, traces, plugin) = traced(&Libraries::all(), 3000);
    let events = modules(&traces);
    let loads = events
        .iter()
        .filter(|event| event.name == "lttng_ust_lib:load");
    let loads = loads.filter(|event| event.text("path") == plugin).count();
    assert!((500..2048).contains(&loads), "{loads}");
    let mallocs = traces.read().events;
    let mallocs = mallocs.iter().filter(|event| event.name == "libc:malloc");
    assert_eq!(
        mallocs.filter(|event| event.field("size") == 4321).count(),
        3000
    );
}
