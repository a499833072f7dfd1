//! Servers and threaded programs under all libraries at once (F2): the same results, no child and no descriptor more,
//! and events that add up.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use usertrace_tests::babeltrace::{self, Read};
use usertrace_tests::balance::Balance;
use usertrace_tests_preload::{Libraries, Traces};

/// Much longer than anything here takes: who has not ended by then, hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a program that runs is to look the same.
#[derive(Debug, PartialEq, Eq)]
struct Looks {
    descriptors: usize,
    children: usize,
    threads: usize,
}

impl Looks {
    fn of(pid: u32) -> Self {
        let entries = |name: &str| fs::read_dir(format!("/proc/{pid}/{name}")).unwrap().count();
        let children = fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .map(|task| {
                let children = fs::read_to_string(task.unwrap().path().join("children"));
                children.unwrap().split_whitespace().count()
            });
        Self {
            descriptors: entries("fd"),
            children: children.sum(),
            threads: entries("task"),
        }
    }
}

/// Killed if it has not ended.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Everything is recorded: a program waits for its reader.
fn without_loss<'a>(traces: &Traces, command: &'a mut Command) -> &'a mut Command {
    traces.of(command).env("USERTRACE_MODE", "block")
}

/// What the process of this name wrote, the first one if there are several; none of it was lost.
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

/// Of each thread, what it began to wait for, it got, if the program was not ended meanwhile.
fn assert_waits_end(read: &Read) {
    let mut waiting = std::collections::HashMap::new();
    let mut waits = 0;
    for event in &read.events {
        let Some(name) = event.name.strip_prefix("pthread:") else {
            continue;
        };
        if let Some(what) = name.strip_suffix("_req") {
            let before = waiting.insert(event.address("thread"), what.to_owned());
            assert_eq!(before, None, "{event:?}");
        } else if let Some(what) = name.strip_suffix("_acq").or(name.strip_suffix("_done")) {
            let before = waiting.remove(&event.address("thread"));
            assert_eq!(before.as_deref(), Some(what), "{event:?}");
            waits += 1;
        }
    }
    assert!(waits > 100, "{waits}");
}

/// The server of a socket has not closed all that it had accepted. Theirs have its name, as the listening one has.
fn has_clients(socket: &Path) -> bool {
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let socket = socket.to_str().unwrap();
    table.lines().filter(|line| line.ends_with(socket)).count() > 1
}

/// Has `redis-server` under load; what is in it then, and how it looked before and after.
fn redis(prepare: impl FnOnce(&mut Command)) -> (String, Looks, Looks) {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let socket = directory.path().join("socket");
    // One program under two names. The package with the other name starts a server of the system's.
    let mut command = Command::new("redis-check-rdb");
    command
        .arg0("redis-server")
        .args(["--port", "0", "--save", "", "--enable-debug-command", "yes"])
        .args(["--io-threads", "3", "--io-threads-do-reads", "yes", "--dir"])
        .args([directory.path(), Path::new("--unixsocket"), &socket])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    prepare(&mut command);
    let mut server = Running(
        command
            .spawn()
            .expect("the package redis-tools must be installed to run this test"),
    );
    let ask = |arguments: &[&str]| {
        let command = ["redis-cli", "-s", socket.to_str().unwrap()];
        let output = Command::new("timeout")
            .arg("60")
            .args(command)
            .args(arguments)
            .output();
        let output = output.unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    };
    until("the server", || {
        ask(&["ping"]).filter(|answer| answer == "PONG\n")
    });
    let pid = server.0.id();
    let looks = || {
        until("the clients' end", || {
            (!has_clients(&socket)).then(|| Looks::of(pid))
        })
    };
    let before = looks();
    let load = Command::new("timeout")
        .args(["100", "redis-benchmark", "-q", "-n", "3000"])
        .args(["-c", "30", "-P", "4", "-s"])
        .arg(&socket)
        .args(["-t", "set,get,incr,lpush,rpop,sadd,hset,zadd,mset"])
        .output()
        .unwrap();
    assert!(load.status.success(), "{load:?}");
    let questions: [&[&str]; 4] = [
        &["dbsize"],
        &["debug", "digest"],
        &["get", "counter:__rand_int__"],
        &["llen", "mylist"],
    ];
    let answers = questions
        .map(|question| ask(question).expect("an answer"))
        .concat();
    let after = looks();
    let _ = ask(&["shutdown", "nosave"]);
    let status = until("the server's end", || server.0.try_wait().unwrap());
    assert!(status.success(), "{status}");
    (answers, before, after)
}

#[test]
fn redis_server_under_load() {
    let without = redis(|_| {});
    let libraries = Libraries::all();
    let with = redis(|command| {
        libraries.of(command);
    });
    assert_eq!(with, without);
    let traces = Traces::new();
    let traced = redis(|command| {
        without_loss(&traces, libraries.of(command));
    });
    assert_eq!(traced, without);
    let read = read(&traces, "redis");
    let balance = Balance::of(&read.events);
    println!("{} events, {balance:?}", read.events.len());
    assert!(balance.given > 10_000);
    assert_eq!(balance.from_before, 0);
    assert_waits_end(&read);
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
end = time.monotonic() + 10
while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end:
    time.sleep(0.01)
print(sorted(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
print(open("/proc/self/task/%d/children" % os.getpid()).read())
"#;

/// Runs it; each of its objects is a block of the C library's.
fn python(prepare: impl FnOnce(&mut Command)) -> String {
    // The distribution's: others may be scripts that look for one.
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-c", PYTHON])
        .env("PYTHONMALLOC", "malloc")
        .env("PYTHONHASHSEED", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    prepare(&mut command);
    let mut program = Running(command.spawn().expect("python3"));
    let status = until("its end", || program.0.try_wait().unwrap());
    let (mut output, mut errors) = (String::new(), String::new());
    // It prints less than a pipe holds.
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
    let balance = Balance::of(&read.events);
    println!("{} events, {balance:?}", read.events.len());
    assert!(balance.given > 50_000);
    assert_eq!(balance.from_before, 0);
    assert_waits_end(&read);
    assert!(
        read.events
            .iter()
            .any(|event| event.name == "dl:dlopen_req")
    );
}
