//! The leaks of real programs, with the functions that are to blame.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use usertrace_reader::{Item, Reader, Selection};
use usertrace_report::leaks::{LeakTable, Leaks, Moment};
use usertrace_report::stacks::SymbolOptions;
use usertrace_testing::compiled::{Compiled, LEAK_C, LEAK_CPP, LEAK_RUST, compile};
use usertrace_tests_preload::{Libraries, Traces, compile_with};

/// Runs a program until its end, with the call stacks of its allocations.
fn record(command: &mut Command) -> (Traces, Output) {
    let traces = Traces::new();
    let libraries = Libraries::all();
    let command = libraries.of(command).env("USERTRACE_CONTEXTS", "callstack");
    let output = traces.of(command).output().unwrap();
    traces.wait();
    (traces, output)
}

/// What is in use at the end.
fn leaks(directory: &Path, debug_dirs: &[&Path]) -> LeakTable {
    leaks_and_doubts(directory, debug_dirs).0
}

/// The same, and what may be wrong with it.
fn leaks_and_doubts(directory: &Path, debug_dirs: &[&Path]) -> (LeakTable, Vec<String>) {
    let selection = Selection {
        modules: true,
        ..Selection::default()
    };
    let mut reader = Reader::open(&[directory.to_owned()], selection).unwrap();
    let mut leaks = Leaks::new(SymbolOptions {
        debug_dirs: debug_dirs.iter().map(|path| PathBuf::from(*path)).collect(),
        debuginfod: false,
    });
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => leaks.event(&event),
            other => panic!("{other:?}"),
        }
    }
    (leaks.table(Moment::End), leaks.doubts())
}

/// The functions that are to blame, with the last part of the file and the line, and their bytes,
/// as far as they are in the program's source.
fn blamed(table: &LeakTable) -> Vec<(String, u64)> {
    let leaks = table.leaks.iter().filter_map(|leak| {
        let frame = leak.to_blame()?;
        let file = frame.file.as_deref()?.rsplit('/').next()?;
        let is_own = file.starts_with("shop.") || file.starts_with("source.");
        let line = frame.line?;
        is_own.then(|| (format!("{} {file}:{line}", frame.function), leak.bytes))
    });
    leaks.collect()
}

/// Checks which function leaks the two bytes of a program.
fn check(program: &Compiled, debug_dirs: &[&Path], expected: &str) {
    let (traces, output) = record(&mut Command::new(&program.path));
    assert!(output.status.success(), "{output:?}");
    let table = leaks(traces.path(), debug_dirs);
    assert_eq!(blamed(&table), [(expected.to_owned(), 2)], "{table:#?}");
}

/// In C, C++ and Rust, wherever the program is loaded.
///
/// Requirements: F1
#[test]
fn culprits_are_named_in_each_language() {
    for (source, arguments, expected) in [
        (LEAK_C, &[][..], "leak shop.c:5"),
        (LEAK_C, &["-no-pie"], "leak shop.c:5"),
        (
            LEAK_CPP,
            &[],
            "shop::Cart::leak<unsigned int>(unsigned int) shop.cc:7",
        ),
        (LEAK_RUST, &[], "shop::shop::leak shop.rs:6"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        check(&compile(directory.path(), source, arguments), &[], expected);
    }
}

/// Requirements: F1
#[test]
fn culprits_of_stripped_programs_are_named_by_debug_files() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    let debug = program.split();
    let place = directory.path().join("symbols").join(program.debug_path());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::rename(debug, place).unwrap();
    check(
        &program,
        &[&directory.path().join("symbols")],
        "leak shop.c:5",
    );
}

const PLUGIN: &str = "
#include <stdlib.h>
__attribute__((noinline)) void leak_in_plugin(void)
{
    void *volatile p = malloc(4321);
    (void)p;
}
";

/// Closes the library that leaks, allocates in another process, and is killed.
const HOST: &str = r#"
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept, *volatile of_parent;

__attribute__((noinline)) static void leak_in_child(void) { kept = malloc(77); kept = NULL; }

int main(int argc, char **argv)
{
    of_parent = malloc(1000);
    void *handle = dlopen(argv[1], RTLD_NOW);
    if (argc != 2 || !handle) return 1;
    ((void (*)(void))dlsym(handle, "leak_in_plugin"))();
    dlclose(handle);
    pid_t child = fork();
    if (child == 0) {
        free(of_parent);
        leak_in_child();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    free(of_parent);
    raise(SIGKILL);
    return 0;
}
"#;

/// Requirements: A5, F1
#[test]
fn leaks_of_closed_libraries_children_and_killed_programs_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id"];
    let plugin = compile_with(directory.path(), "plugin.so", PLUGIN, &options);
    let options = ["-g", "-O1", "-Wl,--build-id"];
    let program = compile_with(directory.path(), "program", HOST, &options);
    let (traces, output) = record(Command::new(program).arg(plugin));
    assert!(!output.status.success(), "{output:?}");
    let table = leaks(traces.path(), &[]);
    let expected = [
        ("leak_in_plugin source.c:5".to_owned(), 4321),
        ("leak_in_child source.c:10".to_owned(), 77),
    ];
    assert_eq!(blamed(&table), expected, "{table:#?}");
    let pids: Vec<_> = ["leak_in_plugin", "leak_in_child"]
        .iter()
        .map(|function| {
            let leak = table.leaks.iter().find(|leak| {
                let blamed = leak.to_blame();
                blamed.is_some_and(|frame| frame.function == *function)
            });
            leak.unwrap().owner.pid.unwrap()
        })
        .collect();
    assert_ne!(pids[0], pids[1]);
}

/// A server whose children free what they have from their parents, and leak.
const SERVER: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept, *volatile config, *volatile of_child;

__attribute__((noinline)) static void serve(void) { kept = malloc(77); kept = NULL; }

static void wait_for(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) _exit(1);
}

int main(void)
{
    config = malloc(1000);
    for (volatile int n = 0; n < 3; n++) {
        pid_t child = fork();
        if (child == 0) {
            of_child = malloc(300);
            serve();
            pid_t grandchild = fork();
            if (grandchild == 0) {
                free(of_child);
                free(config);
                serve();
                _exit(0);
            }
            wait_for(grandchild);
            of_child = realloc(of_child, 600);
            config = realloc(config, 2000);
            free(of_child);
            free(config);
            _exit(0);
        }
        wait_for(child);
    }
    free(config);
    return 0;
}
"#;

/// Each child is blamed for its own blocks, its parents for none of them, and no free is unknown.
///
/// Requirements: A5, F1
#[test]
fn forking_servers_blame_each_child() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-g", "-O1", "-Wl,--build-id"];
    let program = compile_with(directory.path(), "program", SERVER, &options);
    let (traces, output) = record(&mut Command::new(program));
    assert!(output.status.success(), "{output:?}");
    let (table, doubts) = leaks_and_doubts(traces.path(), &[]);
    let blamed = blamed(&table);
    assert_eq!(blamed.len(), 6, "{table:#?}");
    for (place, bytes) in blamed {
        assert!(place.starts_with("serve ") && bytes == 77, "{table:#?}");
    }
    let pids = table.leaks.iter().filter(|leak| leak.bytes == 77);
    let pids: std::collections::HashSet<_> = pids.map(|leak| leak.owner.pid).collect();
    assert_eq!(pids.len(), 6, "{table:#?}");
    assert_eq!(doubts, [""; 0]);
}
