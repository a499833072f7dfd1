//! `dlopen` and instrumented functions depend on their caller: tests with programs compiled here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::babeltrace::Read;
use usertrace_tests_preload::{Libraries, Traces, compile_with};

const PLUGIN: &str = "
int answer(void) { return ANSWER; }
";

/// A program that loads its arguments, in order, and prints what it got. `NAME:` makes library NAME
/// load the rest by its function `load`.
const LOADER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void *load(const char *name) { void *volatile handle = dlopen(name, RTLD_NOW); return handle; }

int main(int argc, char **argv)
{
    for (int n = 1; n < argc; n++) {
        char *name = argv[n], *colon = strchr(name, ':');
        void *(*by)(const char *) = load, *handle;
        int (*answer)(void);

        if (colon) {
            *colon = 0;
            handle = dlopen(name, RTLD_NOW);
            by = handle ? (void *(*)(const char *))dlsym(handle, "load") : load;
            name = colon + 1;
        }
        handle = by(name);
        if (!handle) {
            printf("%s\n", dlerror());
            continue;
        }
        answer = (int (*)(void))dlsym(handle, "answer");
        printf("%s %d\n", name, answer ? answer() : 0);
        /* So that the next one is searched for. */
        dlclose(handle);
    }
    return 0;
}
"#;

/// Directories of libraries, and the answer of those in each. Both have a library of each name.
const PLACES: [(&str, u32); 2] = [("own", 1), ("other", 2)];

/// Linker options that change which libraries an object loads.
const RUNPATH: &str = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/other";
const RPATH: &str = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/other";
const NO_DEFAULT: &str = "-Wl,-z,nodefaultlib";

/// Builds a program that searches in `own`, if anywhere. The libraries that it is linked with are
/// beside it.
fn program(directory: &Path, linked: &[(&str, &str)], options: &[&str]) -> PathBuf {
    for (place, answer) in PLACES {
        let place = directory.join(place);
        fs::create_dir_all(&place).unwrap();
        let answer = format!("-DANSWER={answer}");
        for name in ["libplugin.so", "libmore.so"] {
            let _ = compile_with(&place, name, PLUGIN, &["-shared", "-fPIC", &answer]);
        }
    }
    let libraries = linked.iter().map(|(name, option)| {
        let library = compile_with(directory, name, LOADER, &["-shared", "-fPIC", option]);
        library.to_str().unwrap().to_owned()
    });
    let libraries: Vec<_> = libraries.collect();
    let mut options = options.to_vec();
    options.push("-Wl,--no-as-needed");
    options.extend(libraries.iter().map(String::as_str));
    compile_with(directory, "program", LOADER, &options)
}

/// Asserts that the program prints the same with the library as without. Returns the output and the
/// trace.
fn both(libraries: &Libraries, command: &mut Command) -> (String, Read) {
    let without = command.env_remove("LD_PRELOAD").output().unwrap();
    let traces = Traces::new();
    let with = traces.of(libraries.of(command)).output().unwrap();
    assert_eq!(
        (with.status, &with.stdout),
        (without.status, &without.stdout)
    );
    assert_eq!(
        String::from_utf8_lossy(&with.stderr),
        String::from_utf8_lossy(&without.stderr)
    );
    (String::from_utf8(with.stdout).unwrap(), traces.read())
}

fn names(read: &Read, wanted: &str) -> Vec<String> {
    let events = read.events.iter().filter(|event| event.name == wanted);
    events.map(|event| event.text("name").to_owned()).collect()
}

const NONE: &str = "cannot open shared object file: No such file or directory";

#[test]
fn dlopen_searches_on_behalf_of_its_caller() {
    let directory = tempfile::tempdir().unwrap();
    let own_path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/own";
    let program = program(directory.path(), &[], &[own_path]);
    let options = ["-shared", "-fPIC", RUNPATH];
    let by = compile_with(directory.path(), "by.so", LOADER, &options);
    let by = by.to_str().unwrap();
    let (plugin, none) = ("libplugin.so", "libnone.so");
    let [other, own] = ["$ORIGIN/other/libplugin.so", "$ORIGIN/own/libplugin.so"];
    let mut command = Command::new(&program);
    command.args([plugin, other]);
    command.args([format!("{by}:{plugin}"), format!("{by}:{own}")]);
    let (output, read) = both(&Libraries::new(&["dl"]), command.args([none, "libm.so.6"]));
    assert_eq!(
        output,
        format!("{plugin} 1\n{other} 2\n{plugin} 2\n{own} 1\n{none}: {NONE}\nlibm.so.6 0\n")
    );
    // All calls make a request event. If the caller matters, there is no result; for a path, it
    // does not.
    assert_eq!(
        names(&read, "dl:dlopen_req"),
        [plugin, other, by, plugin, by, own, none, "libm.so.6"]
    );
    assert_eq!(names(&read, "dl:dlopen"), [by, by]);
}

/// Search settings of a linked library apply to that library's calls only, and not to those of
/// libraries that it loads.
#[test]
fn dlopen_searches_on_behalf_of_a_library() {
    let [found, none] = ["libplugin.so 2".to_owned(), format!("libplugin.so: {NONE}")];
    let [default, no_default] = ["libm.so.6 0".to_owned(), format!("libm.so.6: {NONE}")];
    for (option, plugin, default) in [
        (RUNPATH, &found, &default),
        (RPATH, &found, &default),
        (NO_DEFAULT, &none, &no_default),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let program = program(directory.path(), &[("first.so", option)], &[]);
        let more = directory.path().join("other/libmore.so");
        let more = [
            "-shared",
            "-fPIC",
            "-L",
            more.parent().unwrap().to_str().unwrap(),
            "-lmore",
        ];
        let options = [&["-Wl,--no-as-needed"], &more[..]].concat();
        let needs = compile_with(directory.path(), "needs.so", "int needs;", &options);
        let [first, needs] = [program.with_file_name("first.so"), needs];
        let [first, needs] = [&first, &needs].map(|path| path.to_str().unwrap());
        let mut command = Command::new(&program);
        command.args(["libplugin.so", "libm.so.6", needs].map(|name| format!("{first}:{name}")));
        let (output, _) = both(&Libraries::new(&["dl"]), command.arg("libmore.so"));
        let needs = format!("libmore.so: {NONE}");
        assert_eq!(
            output,
            format!("{plugin}\n{default}\n{needs}\nlibmore.so: {NONE}\n")
        );
    }
}

/// In a program without a search path, results by name are seen.
#[test]
fn results_independent_of_the_caller_are_seen() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile_with(directory.path(), "program", LOADER, &[]);
    let plugin = ["-shared", "-fPIC", "-DANSWER=3"];
    let plugin = compile_with(directory.path(), "plugin.so", PLUGIN, &plugin);
    let plugin = plugin.to_str().unwrap();
    let mut command = Command::new(&program);
    let (output, read) = both(&Libraries::all(), command.args([plugin, "libm.so.6"]));
    assert_eq!(output, format!("{plugin} 3\nlibm.so.6 0\n"));
    let paths: Vec<_> = read
        .events
        .iter()
        .filter(|event| event.name == "dl:dlopen")
        .map(|event| (event.address("base") != 0, event.text("path").to_owned()))
        .collect();
    assert_eq!(paths.len(), 2);
    assert_eq!(paths[0], (true, plugin.to_owned()));
    assert!(paths[1].0 && paths[1].1.ends_with("/libm.so.6"));
}

const INSTRUMENTED: &str = r#"
#include <stdio.h>

__attribute__((noinline)) int inner(int n) { return n + 1; }
__attribute__((noinline)) int outer(int n) { return inner(n) + inner(n); }

__attribute__((no_instrument_function)) int main(void)
{
    printf("%d %p %p\n", outer(1), (void *)inner, (void *)outer);
    return 0;
}
"#;

#[test]
fn instrumented_functions_are_events() {
    let directory = tempfile::tempdir().unwrap();
    // Link at a fixed address, so that two runs print the same.
    let flags = ["-finstrument-functions", "-no-pie"];
    let program = compile_with(directory.path(), "program", INSTRUMENTED, &flags);
    let (output, read) = both(&Libraries::all(), &mut Command::new(program));
    let mut words = output.split_whitespace();
    assert_eq!(words.next(), Some("4"));
    let [inner, outer] = [(); 2].map(|()| {
        let word = words.next().unwrap().trim_start_matches("0x");
        u64::from_str_radix(word, 16).unwrap()
    });
    let events = read.events.iter().filter_map(|event| {
        let name = event.name.strip_prefix("function:")?;
        Some((name, event.address("function")))
    });
    let expected = [
        ("entry", outer),
        ("entry", inner),
        ("exit", inner),
        ("entry", inner),
        ("exit", inner),
        ("exit", outer),
    ];
    assert_eq!(events.collect::<Vec<_>>(), expected);
    let sites = read
        .events
        .iter()
        .filter(|event| event.name == "function:entry");
    let sites: Vec<_> = sites.map(|event| event.address("call_site")).collect();
    assert!(sites[1] > outer && sites[2] > sites[1], "{sites:x?}");
}
