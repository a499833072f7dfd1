//! What traces know about the libraries of a process.

use std::ffi::{OsStr, OsString};
use std::path::Path;
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

/// Moves the debug information of a library without a build ID to a file beside it, to which the
/// library has a link. Returns the CRC of that file.
fn split(plugin: &Path) -> u32 {
    let debug = plugin.with_extension("debug");
    let run = |program: &str, arguments: &[&OsStr]| {
        let status = Command::new(program).args(arguments).status();
        assert!(status.expect(program).success());
    };
    let [library, debug_file] = [plugin, &debug].map(Path::as_os_str);
    run(
        "objcopy",
        &["--only-keep-debug".as_ref(), library, debug_file],
    );
    run("strip", &["-g".as_ref(), library]);
    let mut link = OsString::from("--add-gnu-debuglink=");
    link.push(&debug);
    run("objcopy", &[&link, library]);
    crc32fast::hash(&std::fs::read(&debug).unwrap())
}

/// Calls a library that it is linked with, and loads another one.
const LINKED: &str = r#"
#include <dlfcn.h>

extern void leak_in_plugin(void);

int main(int argc, char **argv)
{
    leak_in_plugin();
    void *handle = dlopen(argv[1], RTLD_NOW);
    if (argc != 2 || !handle) return 1;
    ((void (*)(void))dlsym(handle, "leak_in_plugin"))();
    return 0;
}
"#;

/// The debug links of libraries are described, and lead `babeltrace2` to lines. (It ignores those
/// of libraries that come later.) The links are read where libraries are loaded, but not where an
/// event's address leads to a library.
///
/// Requirements: E6, F1
#[test]
fn debug_links_are_described() {
    for (libraries, sees_loads) in [
        (Libraries::all(), true),
        (Libraries::new(&["malloc"]), false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let options = ["-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id=none"];
        let plugin = compile_with(directory.path(), "plugin.so", PLUGIN, &options);
        let crc = split(&plugin);
        let loaded = directory.path().join("loaded.so");
        std::fs::copy(&plugin, &loaded).unwrap();
        let options = ["-O1", plugin.to_str().unwrap()];
        let program = compile_with(directory.path(), "program", LINKED, &options);
        let traces = Traces::new();
        let mut command = Command::new(program);
        let command = libraries
            .of(&mut command)
            .env("USERTRACE_CONTEXTS", "vpid ip");
        let output = traces.of(command.arg(&loaded)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let events = modules(&traces);
        for (path, prefix, load) in [
            (&plugin, "lttng_ust_statedump", "bin_info"),
            (&loaded, "lttng_ust_lib", "load"),
        ] {
            let path = path.to_str().unwrap();
            let described = events.iter().find(|event| {
                event.name == format!("{prefix}:{load}") && event.text("path") == path
            });
            let described = described.expect("a description");
            let has_link = sees_loads || load == "bin_info";
            assert_eq!(described.field("has_debug_link"), u64::from(has_link));
            assert_eq!(described.field("has_build_id"), 0);
            let base = described.address("baddr");
            let link = events.iter().find(|event| {
                event.name == format!("{prefix}:debug_link") && event.address("baddr") == base
            });
            assert_eq!(link.is_some(), has_link);
            if let Some(link) = link {
                assert_eq!(link.text("filename"), "plugin.debug");
                assert_eq!(link.address("crc"), u64::from(crc));
            }
        }
        for events in babeltrace::with_debug_info(traces.path()) {
            let mallocs = events.iter().filter(|event| event.name == "libc:malloc");
            let mut fields = mallocs.filter(|event| event.field("size") == 4321);
            let fields = &fields.next().unwrap().fields;
            assert!(fields.contains("source.c:"), "{fields}");
        }
    }
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

/// Loads libraries, forks, and exchanges them in the child.
const FORKING: &str = r#"
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    void *kept = dlopen(argv[1], RTLD_NOW), *closed = dlopen(argv[2], RTLD_NOW);
    int status;

    if (argc != 4 || !kept || !closed) return 1;
    dlclose(closed);
    pid_t child = fork();
    if (!child) {
        dlclose(kept);
        void *other = dlopen(argv[3], RTLD_NOW);
        if (!other) _exit(2);
        ((void (*)(void))dlsym(other, "leak_in_plugin"))();
        dlclose(other);
        _exit(0);
    }
    return waitpid(child, &status, 0) != child || status;
}
"#;

/// A child of `fork` describes what it has from its parent, and then its own changes.
///
/// Requirements: A5, E6
#[test]
fn children_describe_their_own_libraries() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-g", "-O1", "-shared", "-fPIC"];
    let library =
        |name: &str| compile_with(directory.path(), &format!("{name}.so"), PLUGIN, &options);
    let [kept, closed, own] = ["kept", "closed", "own"].map(library);
    let program = compile_with(directory.path(), "program", FORKING, &[]);
    let traces = Traces::new();
    let (libraries, mut command) = (Libraries::all(), Command::new(program));
    let command = libraries.of(&mut command).env("USERTRACE_CONTEXTS", "ip");
    let output = traces
        .of(command.args([&kept, &closed, &own]))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    traces.wait();
    let mut children = 0;
    for process in traces.processes() {
        let events = babeltrace::modules(&process);
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let is_own = |event: &&babeltrace::Printed| {
            event.name == "lttng_ust_lib:load" && event.text("path") == path(&own)
        };
        if events.iter().find(is_own).is_none() {
            continue;
        }
        children += 1;
        // Each base is loaded before it is unloaded, and once at a time.
        let mut loaded = std::collections::BTreeMap::new();
        let mut gone = Vec::new();
        for event in &events {
            let base = match &*event.name {
                "lttng_ust_statedump:bin_info" | "lttng_ust_lib:load" | "lttng_ust_lib:unload" => {
                    event.address("baddr")
                }
                _ => continue,
            };
            if event.name.ends_with("unload") {
                let path = loaded.remove(&base);
                gone.push(path.unwrap_or_else(|| panic!("{base:#x} is not loaded")));
            } else {
                let before = loaded.insert(base, event.text("path").to_owned());
                assert_eq!(before, None, "{base:#x}");
            }
        }
        assert!(
            gone.contains(&path(&kept)) && gone.contains(&path(&own)),
            "{gone:?}"
        );
        let has = |name: &str| loaded.values().any(|path| path.ends_with(name));
        assert!(
            has("libc.so.6") && has("/program") && !has("/kept.so"),
            "{loaded:?}"
        );
        // What its parent closed is not there.
        assert!(!gone.contains(&path(&closed)), "{gone:?}");
    }
    assert_eq!(children, 1);
}
