//! Programs of other projects behave the same with the libraries as without, untraced and with the
//! fallback (D, F2).

use std::path::Path;
use std::process::{Command, Output};

use usertrace_testing::babeltrace::Read;
use usertrace_tests_preload::{Libraries, Traces, compile};

/// Runs a program without libraries, with them, and with them and the fallback. Asserts that
/// results are the same. Returns the output and the trace.
fn all_ways(libraries: &Libraries, command: &mut Command) -> (Output, Read) {
    let without = command.env_remove("LD_PRELOAD").output().unwrap();
    let with = libraries.of(command).output().unwrap();
    assert_same(&with, &without);
    let traces = Traces::new();
    let traced = traces.of(command).output();
    assert_same(&traced.unwrap(), &without);
    command
        .env_remove("USERTRACE_BACKEND")
        .env_remove("USERTRACE_OUTPUT");
    (with, traces.read())
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

fn count(read: &Read, name: &str) -> usize {
    let events = read.events.iter();
    events.filter(|event| event.name == name).count()
}

#[test]
fn coreutils_and_a_shell() {
    let libraries = Libraries::all();
    for command in [
        Command::new("ls").args(["-la", "/usr/lib"]),
        Command::new("ls").arg("/no/such/directory"),
        Command::new("bash").args([
            "-c",
            "a=(); for i in {1..2000}; do a+=($i); done; echo ${#a[@]} $(echo sub; (echo subsub))
            ls / | sort | wc -l; exit 3",
        ]),
    ] {
        let (_, read) = all_ways(&libraries, command);
        assert!(count(&read, "libc:malloc") > 0);
    }
}

/// A library saves the command line before it attaches the process.
///
/// Requirements: E6
#[test]
fn the_trace_has_the_command_line() {
    for libraries in [Libraries::new(&["malloc"]), Libraries::all()] {
        let traces = Traces::new();
        let mut command = Command::new("ls");
        let output = traces
            .of(libraries.of(command.arg("/usr")))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        traces.wait();
        let processes = traces.processes();
        assert_eq!(processes.len(), 1, "{processes:?}");
        let metadata = std::fs::read_to_string(processes[0].join("metadata")).unwrap();
        assert!(metadata.contains("cmdline = \"ls /usr\";"), "{metadata}");
    }
}

#[test]
fn a_database() {
    let script = "create table t(a integer primary key, b text);
        with recursive n(x) as (select 1 union all select x + 1 from n where x < 5000)
        insert into t select x, hex(x * 7919) from n;
        create index i on t(b);
        select count(*), sum(length(b)), max(b) from t where b > '3';";
    let mut command = Command::new("sqlite3");
    let (output, read) = all_ways(&Libraries::all(), command.args([":memory:", script]));
    assert!(
        output.status.success(),
        "the sqlite3 command must be installed to run this test"
    );
    assert!(!output.stdout.is_empty());
    assert!(count(&read, "libc:malloc") > 0 && count(&read, "pthread:mutex_lock_acq") > 0);
}

/// Runs the C program alone and with other allocators, before and after our libraries.
fn threads_fork_exec(libraries: &Libraries) -> Read {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), include_str!("program.c"));
    let (output, read) = all_ways(libraries, &mut Command::new(program));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "child 0\nexec\nlibrary 1\nlocks 0\nthreads 0\n"
    );
    read
}

#[test]
fn threads_fork_exec_and_libraries() {
    let read = threads_fork_exec(&Libraries::all());
    for name in [
        "libc:malloc",
        "pthread:create",
        "pthread:start",
        "pthread:join_done",
        "pthread:cond_wait_acq",
        "dl:dlopen",
        "dl:dlclose",
    ] {
        assert!(count(&read, name) > 0, "no {name}");
    }
    // Including the cancelled thread.
    assert_eq!(count(&read, "pthread:end"), count(&read, "pthread:start"));
    // A thread that is cancelled while it waits has only the first event.
    assert!(count(&read, "pthread:cond_wait_req") > count(&read, "pthread:cond_wait_acq"));
}

/// An allocator after our library gets its calls from ours; with one before it, ours gets no calls.
fn with_an_allocator(names: &[&str]) {
    let directories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"].map(Path::new);
    let paths = directories.iter().flat_map(|directory| {
        let paths = names.iter().map(|name| directory.join(name));
        paths.collect::<Vec<_>>()
    });
    let path = paths.into_iter().find(|path| path.exists());
    let path =
        path.unwrap_or_else(|| panic!("one of {names:?} must be installed to run this test"));
    let path = path.as_path();
    let read = threads_fork_exec(&Libraries::all().with_behind(path));
    assert!(count(&read, "libc:malloc") > 0);
    let read = threads_fork_exec(&Libraries::all().with_before(path));
    assert_eq!(count(&read, "libc:malloc"), 0);
    assert!(count(&read, "pthread:create") > 0);
}

#[test]
fn with_jemalloc() {
    with_an_allocator(&["libjemalloc.so.2"]);
}

#[test]
#[ignore = "full tier: long, and jemalloc is tried"]
fn with_tcmalloc() {
    with_an_allocator(&["libtcmalloc_minimal.so.4"]);
}

#[test]
#[ignore = "full tier: long, and jemalloc is tried"]
fn with_mimalloc() {
    with_an_allocator(&["libmimalloc.so.2", "libmimalloc.so.3"]);
}

/// Asks for nothing once both libraries have written an event; it is killed if it does.
const FILTERED: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void both(void)
{
    void *volatile memory = malloc(123);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    free(memory);
}

int main(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };
    both();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 2;
    for (int i = 0; i < 10; i++) both();
    return 0;
}
"#;

/// The copies of two libraries do not take a thread's cached contexts from each other: each event
/// would ask the kernel again, and a program that has forbidden these calls would be killed.
///
/// Requirements: F7
#[test]
fn threads_keep_their_contexts_in_each_copy() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = compile(directory.path(), FILTERED);
    let (libraries, traces) = (Libraries::new(&["malloc", "pthread"]), Traces::new());
    let mut command = Command::new(program);
    command.env("USERTRACE_CONTEXTS", "vpid,vtid,procname");
    let output = traces.of(libraries.of(&mut command)).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = traces.read();
    assert_eq!(count(&read, "pthread:mutex_unlock"), 11);
    assert!(count(&read, "libc:malloc") >= 11);
}
