//! Programs of others behave the same with and without the preload libraries, except for the trace
//! (F2).

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use usertrace_testing::babeltrace::{self, Read};
use usertrace_tests::control::Trace;
use usertrace_tests::guest::scaled;
use usertrace_tests::libraries::Libraries;
use usertrace_tests::malloc_audit::MallocAudit;
use usertrace_tests::record::{self, Recorder};
use usertrace_tests::{lock_audit, program, redis};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    preloading_without_a_trace_does_not_change_a_program,
    library_loaded_later_describes_its_events,
];

pub(crate) const ON_ONE_KERNEL: &[Case] = cases![
    tracing_does_not_change_sqlite3,
    tracing_does_not_change_ls,
    tracing_does_not_change_a_shell_and_its_children,
    all_libraries_do_not_change_python_with_threads,
    all_libraries_do_not_change_redis_server_under_load,
];

/// Standard output, standard error and the status.
fn result(output: &Output) -> (String, String, Option<i32>) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
        output.status.code(),
    )
}

/// Runs the command by itself and under `usertrace record` with libraries, in an empty directory
/// each, and compares.
fn compare_with(options: &[&str], command: &[&str]) -> Read {
    let run = |before: Option<&Path>| {
        let place = tempfile::tempdir().expect("a directory");
        let mut whole = match before {
            Some(trace) => {
                let mut record = record::command(options, trace);
                record.arg("--").arg(command[0]);
                record
            }
            None => Command::new(command[0]),
        };
        let output = whole
            .args(&command[1..])
            .current_dir(place.path())
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let mut files: Vec<_> = fs::read_dir(place.path())
            .expect("a directory")
            .map(|entry| {
                let entry = entry.expect("an entry");
                (entry.file_name(), fs::read(entry.path()).ok())
            })
            .collect();
        files.sort();
        (result(&output), files)
    };
    let traces = tempfile::tempdir().expect("a directory");
    let trace = traces.path().join("trace");
    let plain = run(None);
    assert_eq!(run(Some(&trace)), plain, "{command:?}");
    let read = babeltrace::read(&trace);
    assert!(read.events.iter().any(|event| event.name == "libc:malloc"));
    assert!(read.events.iter().any(|event| event.name == "libc:free"));
    read
}

/// Like [`compare_with`], with the library of the malloc family.
fn compare(command: &[&str]) -> Read {
    let read = compare_with(&["--malloc"], command);
    let mut names = read.events.iter().map(|event| &event.name);
    assert!(names.all(|name| name.starts_with("libc:")));
    read
}

const SQL: &str = "
    create table t(id integer primary key, name text, value real);
    create index by_name on t(name);
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 500)
        insert into t select i, 'name ' || (i * 7919 % 500), i / 3.0 from n;
    select count(*), sum(id), round(avg(value), 3) from t;
    select name, count(*) from t group by name order by name limit 5;
    delete from t where id % 2;
    select count(*) from t where name > 'name 3';
";

/// Requirements: F2
fn tracing_does_not_change_sqlite3() {
    let read = compare(&["sqlite3", "-batch", "db", SQL]);
    assert!(read.events.len() > 1000, "{} events", read.events.len());
    assert_eq!(read.discarded, 0);
    assert!(MallocAudit::of(&read.events).allocated > 1000);
}

const PYTHON: &str = "
import ctypes, hashlib, queue, threading
numbers, done = queue.Queue(5), queue.Queue()
def work():
    while (n := numbers.get()) is not None:
        done.put((n, hashlib.sha256(str(n).encode() * 1000).hexdigest()))
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[numbers.put(n) for n in [*range(200), None, None, None, None]]
[thread.join() for thread in threads]
print(sorted(done.get() for _ in range(200)), ctypes.CDLL('libm.so.6').abs(-3))
";

/// Requirements: F2
fn all_libraries_do_not_change_python_with_threads() {
    let libraries = ["--malloc", "--pthread", "--dl", "--function"];
    let room = ["--subbuf-size", "1M", "--subbuf-count", "16"];
    let options = [libraries.as_slice(), &room].concat();
    let read = compare_with(&options, &["/usr/bin/python3", "-c", PYTHON]);
    assert_eq!(read.discarded, 0);
    assert!(MallocAudit::of(&read.events).allocated > 1000);
    for name in ["pthread:create", "pthread:mutex_lock_acq", "dl:dlopen_req"] {
        assert!(
            read.events.iter().any(|event| event.name == name),
            "no {name}"
        );
    }
}

/// Requirements: F2
fn all_libraries_do_not_change_redis_server_under_load() {
    let requests = scaled(500);
    let without = redis::serve(requests, |_| {});
    let libraries = Libraries::all();
    let trace = Trace::create("redis");
    // No event is missing: the server waits for the recorder, which has attached by the time that a
    // ring is full.
    trace.set_geometry("main", 1 << 18, 16);
    trace.write("main/mode", "block").expect("mode");
    trace.start();
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let recorder = Recorder::start(&trace, &output);
    let traced = redis::serve(requests, |command| {
        libraries.of(command);
    });
    assert_eq!(traced, without);
    recorder.finish(&trace);
    let read = babeltrace::read(&output);
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    let audit = MallocAudit::of(&read.events);
    println!("{} events, {audit:?}", read.events.len());
    assert!(audit.allocated > requests);
    assert_eq!(audit.from_before, 0);
    assert!(lock_audit::completed_waits(&read) > 100);
}

/// Requirements: F2
fn tracing_does_not_change_ls() {
    compare(&["ls", "-la", "/usr/share/perl5", "/etc"]);
    compare(&["ls", "/does/not/exist"]);
}

/// Requirements: F2
fn tracing_does_not_change_a_shell_and_its_children() {
    let script = "for i in 1 2 3; do (echo $i; seq $i) | sort -r; done; ls -d /usr /etc; exit 3";
    compare(&["sh", "-c", script]);
    compare(&[
        "bash",
        "-c",
        "x=$(seq 1 200); echo ${#x}; cat <(echo sub); kill -0 $$ && exit 5",
    ]);
}

/// Requirements: F2
fn preloading_without_a_trace_does_not_change_a_program() {
    let library = Libraries::new(&["malloc"]);
    for command in [["sqlite3", ":memory:", SQL], ["ls", "-l", "/etc"]] {
        let mut plain = Command::new(command[0]);
        plain.args(&command[1..]).stdin(Stdio::null());
        let mut preloaded = Command::new(command[0]);
        library
            .of(&mut preloaded)
            .args(&command[1..])
            .stdin(Stdio::null());
        let (plain, preloaded) = (
            plain.output().expect("it runs"),
            preloaded.output().expect("it runs"),
        );
        assert_eq!(result(&preloaded), result(&plain));
    }
}

/// The library's copy of the crate shares the rings with the program's copy, and both use one
/// numbering of events.
///
/// Requirements: E6
fn library_loaded_later_describes_its_events() {
    let (program, library) = (
        program::path("numbered"),
        program::path("libusertrace_malloc.so"),
    );
    let (_, read) = record::run(&[
        program.as_os_str(),
        "--events".as_ref(),
        "10".as_ref(),
        "--library".as_ref(),
        library.as_ref(),
    ]);
    assert_eq!(read.discarded, 0);
    let count = |name: &str| {
        let events = read.events.iter();
        events.filter(|event| event.name == name).count()
    };
    assert_eq!(count("test:numbered"), 10);
    assert!(count("libc:malloc") >= 1 && count("libc:free") >= 1);
}
