//! F2: programs that nobody here wrote do the same with the library as without it, where there is nothing to trace
//! with as well as where there is; and D: with the fallback.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::Traces;

/// The library, in a directory whose name `LD_PRELOAD` can hold: it has neither spaces nor colons.
fn library() -> (tempfile::TempDir, PathBuf) {
    let name = "libusertrace_malloc.so";
    let directory = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let path = directory.join(name);
    assert!(path.exists(), "{} was not built", path.display());
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let link = directory.path().join(name);
    std::os::unix::fs::symlink(path, &link).unwrap();
    (directory, link)
}

/// Runs a program without the library, with it, and with it and the fallback; returns what came out each time.
fn both(command: &mut Command) -> Output {
    let without = command.env_remove("LD_PRELOAD").output().unwrap();
    let (_directory, library) = library();
    let with = command.env("LD_PRELOAD", library).output().unwrap();
    assert_same(&with, &without);
    let traces = Traces::new();
    let traced = traces.of(command).output();
    assert_same(&traced.unwrap(), &without);
    let read = traces.read();
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    assert!(String::from_utf8_lossy(&read.stdout).contains("libc:malloc:"));
    command
        .env_remove("USERTRACE_BACKEND")
        .env_remove("USERTRACE_OUTPUT");
    with
}

fn assert_same(with: &Output, without: &Output) {
    assert_eq!(
        with.status,
        without.status,
        "{}",
        String::from_utf8_lossy(&with.stderr)
    );
    assert_eq!(
        String::from_utf8_lossy(&with.stderr),
        String::from_utf8_lossy(&without.stderr)
    );
    assert_eq!(with.stdout, without.stdout);
}

/// Compiles a C program.
fn compile(directory: &Path, source: &str) -> PathBuf {
    let (file, program) = (directory.join("program.c"), directory.join("program"));
    std::fs::write(&file, source).unwrap();
    let status = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-Wall", "-pthread", "-o"])
        .args([&program, &file])
        .args(["-ldl"])
        .status()
        .expect("a C compiler");
    assert!(status.success());
    program
}

#[test]
fn coreutils_and_a_shell() {
    both(Command::new("ls").args(["-la", "/usr/lib"]));
    both(Command::new("ls").arg("/no/such/directory"));
    both(Command::new("bash").args([
        "-c",
        "a=(); for i in {1..2000}; do a+=($i); done; echo ${#a[@]} $(echo sub; (echo subsub)); ls / | sort | wc -l; exit 3",
    ]));
}

#[test]
fn a_database() {
    let script = "create table t(a integer primary key, b text);
        with recursive n(x) as (select 1 union all select x + 1 from n where x < 5000)
        insert into t select x, hex(x * 7919) from n;
        create index i on t(b);
        select count(*), sum(length(b)), max(b) from t where b > '3';";
    let output = both(Command::new("sqlite3").args([":memory:", script]));
    assert!(
        output.status.success(),
        "the sqlite3 command must be installed to run this test"
    );
    assert!(!output.stdout.is_empty());
}

#[test]
fn threads_fork_exec_and_libraries() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), include_str!("program.c"));
    let output = both(&mut Command::new(program));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "child 0\nexec\nlibrary 1\nthreads 0\n"
    );
}
