//! Servers and threaded programs with all libraries (F2): the same results, no additional child or
//! descriptor, and consistent events.

use std::io::Read as _;
use std::process::{Command, Stdio};

use usertrace_testing::babeltrace::{self, Read};
use usertrace_tests::malloc_audit::MallocAudit;
use usertrace_tests::running::Running;
use usertrace_tests::{lock_audit, redis};
use usertrace_tests_preload::{Libraries, Traces};

/// Makes a program wait for its reader, so that everything is recorded.
fn without_loss<'a>(traces: &Traces, command: &'a mut Command) -> &'a mut Command {
    traces.of(command).env("USERTRACE_MODE", "block")
}

/// The trace of the process of this name, or the first of several. None of it was lost.
fn read(traces: &Traces, name: &str) -> Read {
    traces.wait();
    let processes = traces.processes();
    // NAME-PID-START
    let named = processes.iter().filter_map(|path| {
        let file = path.file_name()?.to_str()?;
        let (_, start) = file.strip_prefix(name)?.rsplit_once('-')?;
        Some((start.parse::<u64>().ok()?, path))
    });
    let (_, path) = named
        .min()
        .unwrap_or_else(|| panic!("no {name} in {processes:?}"));
    let read = babeltrace::read(path);
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    read
}

#[test]
#[ignore = "full tier: long, and redis_server_is_shown is traced in the same way"]
fn redis_server_under_load() {
    const REQUESTS: u64 = 3000;
    let without = redis::serve(REQUESTS, |_| {});
    let libraries = Libraries::all();
    let with = redis::serve(REQUESTS, |command| {
        libraries.of(command);
    });
    assert_eq!(with, without);
    let traces = Traces::new();
    let traced = redis::serve(REQUESTS, |command| {
        without_loss(&traces, libraries.of(command));
    });
    assert_eq!(traced, without);
    let read = read(&traces, "redis");
    let audit = MallocAudit::of(&read.events);
    println!("{} events, {audit:?}", read.events.len());
    assert!(audit.allocated > 10_000);
    assert_eq!(audit.from_before, 0);
    assert!(lock_audit::completed_waits(&read) > 100);
}

const PYTHON: &str = r#"
import ctypes, hashlib, os, queue, threading, zlib, time

def work(numbers, done, seen):
    while (n := numbers.get()) is not None:
        data = (str(n) * 50).encode()
        done.put((n, hashlib.sha256(data).hexdigest(), len(zlib.compress(data * 40))))
    with seen:
        seen.count += 1
        seen.notify_all()

numbers, done, seen = queue.Queue(10), queue.Queue(), threading.Condition()
seen.count = 0
threads = [threading.Thread(target=work, args=(numbers, done, seen)) for _ in range(6)]
for thread in threads:
    thread.start()
for n in range(600):
    numbers.put(n)
for _ in threads:
    numbers.put(None)
with seen:
    seen.wait_for(lambda: seen.count == len(threads))
for thread in threads:
    thread.join()
results = sorted(done.get() for _ in range(600))
print(hashlib.sha256(repr(results).encode()).hexdigest())
print(ctypes.CDLL("libm.so.6").abs(-5), ctypes.CDLL(None).abs(-6))
try:
    ctypes.CDLL("libnone.so")
except OSError as error:
    print(error)
child = os.fork()
if child == 0:
    os._exit(7)
print(os.waitpid(child, 0)[1])
# A thread that was joined may still be listed for a moment.
end = time.monotonic() + 120
while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end:
    time.sleep(0.01)
print(sorted(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
print(open("/proc/self/task/%d/children" % os.getpid()).read())
"#;

/// Runs Python with each object in a block of its own from the C library.
fn python(prepare: impl FnOnce(&mut Command)) -> String {
    // Use the distribution's Python: others may be scripts that search for one.
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-c", PYTHON])
        .env("PYTHONMALLOC", "malloc")
        .env("PYTHONHASHSEED", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    prepare(&mut command);
    let mut program = Running::start(&mut command);
    let status = program.wait();
    let (mut output, mut errors) = (String::new(), String::new());
    // The output fits into a pipe.
    let _ = program.0.stdout.take().unwrap().read_to_string(&mut output);
    let _ = program.0.stderr.take().unwrap().read_to_string(&mut errors);
    assert!(status.success() && errors.is_empty(), "{status}: {errors}");
    output
}

#[test]
fn python_with_threads() {
    let without = python(|_| {});
    let libraries = Libraries::all();
    assert_eq!(
        python(|command| {
            libraries.of(command);
        }),
        without
    );
    let traces = Traces::new();
    let traced = python(|command| {
        without_loss(&traces, libraries.of(command));
    });
    assert_eq!(traced, without);
    let read = read(&traces, "python3");
    let audit = MallocAudit::of(&read.events);
    println!("{} events, {audit:?}", read.events.len());
    assert!(audit.allocated > 50_000);
    assert_eq!(audit.from_before, 0);
    assert!(lock_audit::completed_waits(&read) > 100);
    assert!(
        read.events
            .iter()
            .any(|event| event.name == "dl:dlopen_req")
    );
}
