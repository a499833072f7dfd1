//! Kills a worker at each of its system calls, from the start of a child to the end of the program
//! (A10).

use std::io::{BufRead as _, BufReader, Write as _};

use usertrace::fake::process::{child, wait};

use super::programs::{daemons, write};
use super::run::{Run, assert_success};
use super::trace;
use usertrace_testing::babeltrace;
use usertrace_testing::counts::counts;

/// Distance between system calls at which one run of the test kills the worker.
const STRIDE: u64 = 5;

/// The program: a process and a child that write an event each. Prints the worker's id, and waits
/// before it forks.
pub(crate) fn one_child() {
    write(0, 0..1);
    println!("{}", daemons()[1]);
    std::io::stdin().read_line(&mut String::new()).unwrap();
    assert_eq!(wait(child(|| assert_eq!(write(1, 0..1), 0))), 0);
}

/// Whatever the worker was doing, each event is written once, and each trace can be read.
///
/// Requirements: A5, A10
pub(crate) fn worker_killed_at_any_system_call_is_replaced() {
    // The full tier tests all calls; other runs test different ones each time.
    let stride = counts(STRIDE, 1);
    let first = 1 + u64::from(std::process::id()) % stride;
    let mut stops = (first..).step_by(stride as usize);
    while stops.next().is_some_and(|stop| is_killed_at(stop, None)) {}
}

/// Wiping takes several system calls, one for each place.
///
/// Requirements: A5, A10
pub(crate) fn worker_killed_while_wiping_is_replaced() {
    let mut stops = 1..;
    while stops
        .next()
        .is_some_and(|stop| is_killed_at(stop, Some(libc::SYS_madvise)))
    {}
}

/// Kills the worker at this stop, counting all stops or only those in `call`, and checks the
/// traces. False: the worker ended before, or this process may not trace it.
fn is_killed_at(stop: u64, call: Option<libc::c_long>) -> bool {
    let run = Run::new();
    let mut program = run.start("one_child", &[]);
    let mut worker = String::new();
    let output = BufReader::new(program.stdout.take().unwrap()).read_line(&mut worker);
    assert!(output.unwrap() > 0);
    let worker = Traced::seize(worker.trim().parse().unwrap());
    program.stdin.take().unwrap().write_all(b"\n").unwrap();
    let was_killed = worker.is_some_and(|worker| worker.kill_at(stop, call));
    let output = program.wait_with_output().unwrap();
    assert_success(output.status, &output.stderr);
    let directories = run.directories();
    let mut threads: Vec<_> = directories
        .iter()
        .flat_map(|directory| trace::read(directory).threads())
        .collect();
    threads.sort();
    // `babeltrace2` also checks the declarations in the metadata.
    assert_eq!(
        babeltrace::lines(run.path()).lines.len(),
        2,
        "killed at {stop}"
    );
    assert_eq!(threads, [(0, vec![0]), (1, vec![0])], "killed at {stop}");
    was_killed
}

/// A process under ptrace, which stops at the beginning and end of each system call.
struct Traced(i32);

impl Traced {
    /// `None`: this process may not trace it (Yama, or a sandbox).
    fn seize(pid: i32) -> Option<Self> {
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        // SAFETY: PTRACE_SEIZE accesses no memory of this process.
        let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options as usize) };
        let traced = Self(pid);
        if done != 0 {
            let error = std::io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            return None;
        }
        traced.request(libc::PTRACE_INTERRUPT, 0);
        assert!(traced.wait().is_some());
        Some(traced)
    }

    /// Runs the process up to stop number `stop`, from 1 on, and kills it. Counts all stops or only
    /// those in `call`. False: the process ended before.
    fn kill_at(self, stop: u64, call: Option<libc::c_long>) -> bool {
        let (mut stops, mut signal) = (0, 0);
        while stops < stop {
            self.request(libc::PTRACE_SYSCALL, signal);
            signal = 0;
            match self.wait() {
                None => return false,
                Some(stopped) if stopped == libc::SIGTRAP | 0x80 => {
                    stops += u64::from(call.is_none_or(|call| self.call() == Some(call)));
                }
                Some(libc::SIGTRAP) => {}
                Some(other) => signal = other,
            }
        }
        // SAFETY: the signal goes to a daemon of the program that this test started.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        while self.wait().is_some() {}
        true
    }

    /// The system call in which the process stopped.
    fn call(&self) -> Option<libc::c_long> {
        let text = std::fs::read_to_string(format!("/proc/{}/syscall", self.0)).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok()
    }

    fn request(&self, request: libc::c_uint, data: i32) {
        // SAFETY: callers pass only requests that access no memory of this process.
        let done = unsafe { libc::ptrace(request, self.0, 0, data as usize) };
        assert_eq!(done, 0, "ptrace: {}", std::io::Error::last_os_error());
    }

    /// The signal that stopped it; `None` if it has ended.
    fn wait(&self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: `status` has room for the number that the kernel writes.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        assert_eq!(waited, self.0);
        libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status))
    }
}
