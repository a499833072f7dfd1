//! Call stacks of real programs for as many events as in an hour, and what they cost beside
//! heaptrack, which walks a stack for each allocation, but not for `free` (F7).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use usertrace_testing::babeltrace;
use usertrace_tests::redis;
use usertrace_tests::running::Running;
use usertrace_tests_preload::Traces;

/// Requests of an hour at a thousand per second, in nine kinds.
const REQUESTS: u64 = 400_000;

/// Makes a program write its stacks to a flight recorder, as files of all would be large.
fn flight<'a>(traces: &Traces, preload: &str, command: &'a mut Command) -> &'a mut Command {
    traces
        .of(command.env("LD_PRELOAD", preload))
        .env("USERTRACE_MODE", "overwrite")
        .env("USERTRACE_CONTEXTS", "callstack")
}

/// The longest call stack, and how many events there are at the end.
fn deepest(traces: &Traces) -> (usize, usize) {
    traces.wait();
    let (mut deepest, mut count) = (0, 0);
    for process in traces.processes() {
        for event in &babeltrace::read(&process).events {
            let depth = (0..16).take_while(|&n| event.element("callstack", n).is_some());
            deepest = deepest.max(depth.count());
            count += 1;
        }
    }
    (deepest, count)
}

/// Requirements: F7
#[test]
#[ignore = "full tier: minutes of load"]
fn redis_has_stacks_for_an_hour_of_requests() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let (traces, preload) = (Traces::new(), optimised(directory.path()));
    let _ = redis::serve(REQUESTS, |command| {
        // Further threads wait for work by running. The requests would take hours so.
        flight(&traces, &preload, command).args(["--io-threads", "1"]);
    });
    // Debian builds it without frame pointers.
    let (deepest, count) = deepest(&traces);
    assert!(deepest > 5 && count > 1000, "{deepest} {count}");
}

const PYTHON: &str = r#"
import json, sys
class Node:
    def __init__(self, n):
        self.name, self.children, self.data = "node%d" % n, [], {"n": n, "text": str(n) * 3}
def build(depth, n):
    node = Node(n)
    if depth:
        for i in range(4):
            node.children.append(build(depth - 1, n * 4 + i))
    return node
def walk(node):
    return sum(walk(child) for child in node.children) + len(node.data["text"])
total = 0
for _ in range(int(sys.argv[1])):
    total += walk(build(6, 1))
    total += len(json.dumps([{"a": i, "b": [str(i)] * 3} for i in range(4000)]))
print(total)
"#;

const THREADS: &str = r#"
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct Node {
    std::string name;
    std::vector<std::unique_ptr<Node>> children;
    std::map<int, std::string> data;
};

__attribute__((noinline)) static std::unique_ptr<Node> build(int depth, long n)
{
    auto node = std::make_unique<Node>();
    node->name = "a node with a rather long name " + std::to_string(n);
    for (int i = 0; i < 3; i++) node->data[i] = node->name + std::to_string(i);
    if (depth)
        for (int i = 0; i < 4; i++) node->children.push_back(build(depth - 1, n * 4 + i));
    return node;
}

int main(int, char **argv)
{
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([rounds = atoi(argv[1])] {
            for (int i = 0; i < rounds; i++) build(6, i);
        });
    for (auto &thread : threads) thread.join();
}
"#;

fn python(rounds: u32) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", PYTHON]).arg(rounds.to_string());
    command.env("PYTHONMALLOC", "malloc");
    command
}

/// Compiles the program as distributions do: without frame pointers.
fn threads(directory: &Path) -> PathBuf {
    let (source, program) = (directory.join("source.cc"), directory.join("program"));
    std::fs::write(&source, THREADS).unwrap();
    let mut compiler = Command::new("c++");
    let compiler = compiler.args(["-O2", "-pthread", "-o"]);
    let status = compiler.args([&program, &source]).status();
    assert!(status.expect("a C++ compiler").success());
    program
}

/// Requirements: F7
#[test]
#[ignore = "full tier: ten million events each"]
fn programs_have_stacks_for_an_hour_of_allocations() {
    // At 3,000 allocations and releases per second.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let preload = optimised(directory.path());
    let mut threaded = Command::new(threads(directory.path()));
    threaded.arg("32");
    // The threads' functions are 14 at the most.
    for (mut command, depth) in [(python(40), 16), (threaded, 14)] {
        let traces = Traces::new();
        let command = flight(&traces, &preload, command.stdin(Stdio::null()));
        let output = command.output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
        let (deepest, count) = deepest(&traces);
        assert!(deepest == depth && count > 1000, "{deepest} {count}");
    }
}

/// The processor time of what `run` starts, in seconds. This process must have no other children.
fn processor_time(run: impl FnOnce()) -> f64 {
    let used = || {
        // SAFETY: plain data, which the call fills in.
        unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
            let seconds = |time: libc::timeval| {
                (Duration::from_secs(time.tv_sec as u64)
                    + Duration::from_micros(time.tv_usec as u64))
                .as_secs_f64()
            };
            seconds(usage.ru_utime) + seconds(usage.ru_stime)
        }
    };
    let before = used();
    run();
    used() - before
}

/// Runs a program to its end.
fn finish(mut command: Command, prepare: &dyn Fn(&mut Command)) {
    prepare(&mut command);
    let status = Running::start(command.stdout(Stdio::null()).stdin(Stdio::null())).wait();
    assert!(status.success(), "{command:?}: {status}");
}

/// Builds the libraries with optimisation, and returns the value of `LD_PRELOAD`. Paths in it must
/// have neither blanks nor colons.
fn optimised(directory: &Path) -> String {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let cargo = cargo
        .args(["build", "--quiet", "--release", "--locked"])
        .args(["--package", "usertrace-preload-malloc"])
        .args(["--package", "usertrace-preload-dl", "--target-dir"])
        .arg(target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    assert!(cargo.status().expect("cargo").success());
    let links = ["malloc", "dl"].map(|name| {
        let name = format!("libusertrace_{name}.so");
        let link = directory.join(&name);
        std::os::unix::fs::symlink(target.join("release").join(name), &link).unwrap();
        link.into_os_string().into_string().unwrap()
    });
    links.join(":")
}

/// The processor time of the program is compared: the machine may be busy. heaptrack writes to a
/// file, without the process that interprets it.
///
/// Requirements: F7
#[test]
#[ignore = "full tier: programs under heaptrack"]
fn a_stack_costs_less_than_heaptracks() {
    let heaptrack = ["/usr/lib/heaptrack", "/usr/lib/x86_64-linux-gnu/heaptrack"]
        .map(|directory| Path::new(directory).join("libheaptrack_preload.so"));
    let Some(heaptrack) = heaptrack.iter().find(|path| path.exists()) else {
        eprintln!("skipped: the package heaptrack is not installed");
        return;
    };
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = threads(directory.path());
    let preload = optimised(directory.path());
    let threaded = || {
        let mut command = Command::new(&program);
        command.arg("14");
        command
    };
    type Run<'a> = &'a dyn Fn(&dyn Fn(&mut Command));
    let programs: [(&str, Run<'_>); 3] = [
        ("python", &|prepare| finish(python(12), prepare)),
        ("threads", &|prepare| finish(threaded(), prepare)),
        // Its clients are the same each time.
        ("redis", &|prepare| {
            let _ = redis::serve(REQUESTS / 4, |command| {
                prepare(command.args(["--io-threads", "1"]));
            });
        }),
    ];
    for (name, run) in programs {
        let alone = processor_time(|| run(&|_| {}));
        let traces = Traces::new();
        let ours = processor_time(|| {
            run(&|command| {
                flight(&traces, &preload, command);
            });
        });
        traces.wait();
        let file = directory.path().join(format!("heaptrack-{name}"));
        let theirs = processor_time(|| {
            run(&|command| {
                command.env("LD_PRELOAD", heaptrack);
                command.env("DUMP_HEAPTRACK_OUTPUT", &file);
            });
        });
        // Neither walks a stack for `free`.
        let share = (ours - alone) / (theirs - alone);
        println!(
            "{name}: {alone:.2} s alone, {ours:.2} s with stacks, {theirs:.2} s under heaptrack: \
             {:.2} of its time, {share:.2} of what it adds",
            ours / theirs,
        );
        assert!(share < 1.0, "{share}");
    }
}
