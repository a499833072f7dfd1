//! The fallback's daemons, running and killed: each committed event is written once (A10).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout};

use super::output::send_request;
use super::run::Run;
use super::trace;
use super::victims::Random;
use usertrace_testing::counts::counts;
use usertrace_testing::wait::{self, until};

struct Steps {
    run: Run,
    child: Child,
    output: BufReader<ChildStdout>,
    daemons: [i32; 2],
    /// The session of the daemons and of their replacements.
    session: i32,
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    !matches!(state, None | Some(b'Z' | b'X'))
}

fn kill(pid: i32) {
    // SAFETY: the signal goes to a daemon of the program that this test started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    until("a killed daemon is gone", || !is_alive(pid));
}

impl Steps {
    fn start(variables: &[(&str, &str)]) -> Self {
        let run = Run::new();
        let mut child = run.start("steps", variables);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let mut pids = line.split_whitespace().map(|pid| pid.parse().unwrap());
        let daemons = [pids.next().unwrap(), pids.next().unwrap()];
        Self {
            run,
            child,
            output,
            daemons,
            session: session(daemons[0]).expect("the watchdog lives"),
        }
    }

    /// The living daemons: watchdog and worker.
    fn now(&self) -> [i32; 2] {
        let comm = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm"));
        let own = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let ours = comm(pid).is_ok_and(|comm| comm == "usertrace-fast\n")
                && session(pid) == Some(self.session)
                && is_alive(pid);
            ours.then_some(pid)
        });
        let mut own: Vec<i32> = own.collect();
        own.sort();
        own.resize(2, 0);
        [own[0], own[1]]
    }

    /// The program's CPU time in user space, in clock ticks.
    fn processor_time(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace().nth(11).unwrap().parse().unwrap()
    }

    /// Waits until the daemons have made a trace.
    fn until_written(&self) {
        until("the daemons write", || {
            !trace::directories(self.run.path()).is_empty()
        });
    }

    /// Waits until both daemons live, and returns their process IDs.
    fn until_both_live(&self) -> [i32; 2] {
        wait::until_some("two daemons live", || {
            let daemons = self.now();
            daemons.iter().all(|pid| *pid != 0).then_some(daemons)
        })
    }

    /// Ends the program, and compares its traces with its own counts.
    fn check(mut self) {
        self.child.stdin.take().unwrap().write_all(b"q").unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        let mut words = rest.split_whitespace().map(|word| word.parse::<u64>());
        let (Some(Ok(written)), Some(Ok(lost))) = (words.next(), words.next()) else {
            panic!("{rest}");
        };
        let trace = self.run.trace();
        for (thread, numbers) in trace.threads() {
            let count = numbers.len() as u64;
            let wrong = (0..count).find(|&n| numbers[n as usize] != n);
            assert!(
                wrong.is_none(),
                "thread {thread}: gaps or repetitions from event {wrong:?} of {count} on"
            );
        }
        assert_eq!(
            (trace.events.len() as u64, trace.discarded),
            (written, lost)
        );
    }
}

/// The session of a process.
fn session(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(3)?.parse().ok()
}

const SMALL: &[(&str, &str)] = &[
    ("USERTRACE_SUBBUF_SIZE", "4096"),
    ("USERTRACE_SUBBUF_COUNT", "4"),
];

fn sizes(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    [SMALL, more].concat()
}

/// Returns the inodes of the shared anonymous memory that a process maps.
fn shared_memory(pid: u32) -> BTreeSet<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let shared = maps.lines().filter(|line| line.contains(" rw-s "));
    // The kernel shows shared anonymous memory under this name.
    let anonymous = shared.filter(|line| line.ends_with("/dev/zero (deleted)"));
    let inode = |line: &str| line.split_whitespace().nth(4).unwrap().to_owned();
    anonymous.map(inode).collect()
}

/// The program shares the memory of its rings with both daemons, which end after the program.
///
/// Requirements: D1
pub(crate) fn daemons_share_the_rings_until_the_program_ends() {
    let steps = Steps::start(SMALL);
    let daemons = steps.daemons;
    let rings = shared_memory(steps.child.id());
    assert!(!rings.is_empty());
    for daemon in daemons {
        assert_eq!(shared_memory(daemon as u32), rings);
    }
    // A program without events would leave no trace.
    steps.until_written();
    steps.check();
    until("the daemons end", || {
        !daemons.iter().any(|&daemon| is_alive(daemon))
    });
}

/// Returns how often a process has gone to sleep.
fn sleeps(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// Waits until the worker sleeps without a timeout. A dozing worker wakes up every millisecond.
fn until_asleep(worker: u32) {
    until("the worker sleeps", || {
        let before = sleeps(worker);
        std::thread::sleep(std::time::Duration::from_millis(100));
        sleeps(worker) == before
    });
}

/// The worker sleeps until a writer tells it of a full sub-buffer, and then writes it. It writes
/// the rest when SIGKILL ends the program.
///
/// Requirements: D5
pub(crate) fn full_subbuffer_is_written_while_the_program_runs() {
    const FULL: usize = (4096 - 64) / 24;
    let run = Run::new();
    // With rings of threads, the watchdog would wake the worker from time to time.
    let mut child = run.start("on_one_cpu", &sizes(&[("USERTRACE_RINGS", "cpu")]));
    #[expect(clippy::unbuffered_bytes, reason = "`send_request` reads the rest")]
    let bytes = child.stdout.as_mut().unwrap().bytes();
    let line: Vec<u8> = bytes
        .map(Result::unwrap)
        .take_while(|&byte| byte != b'\n')
        .collect();
    until_asleep(String::from_utf8(line).unwrap().parse().unwrap());
    for _ in 0..FULL + 10 {
        send_request(&mut child, b'e');
    }
    let events = || {
        let directories = trace::directories(run.path());
        let mut written = directories
            .iter()
            .filter(|path| path.join("metadata").exists());
        written
            .next()
            .map_or(0, |path| trace::read_unfinished(path).events.len())
    };
    until("the ring is full", || events() >= FULL);
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(run.trace().events.len(), FULL + 10);
}

/// Returns the values in a process's `/proc/PID/io`, by their names.
fn io(pid: u32) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let lines = text.lines().map(|line| line.split_once(": ").unwrap());
    lines
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// The kernel charges the worker's writes to the worker, not to the program. Nor do the program's
/// times of children contain the worker's time.
///
/// Requirements: F10
pub(crate) fn writing_is_not_charged_to_the_program() {
    let run = Run::new();
    let mut child = run.start("much", &[("USERTRACE_MODE", "block")]);
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let worker = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    // A record: one word of header, a thread, a number, and padding.
    let least = 200_000 * 24;
    until("the worker has written", || io(worker)["wchar"] >= least);
    let of_program = io(child.id());
    assert!(of_program["wchar"] < 4096, "{of_program:?}");
    assert_eq!(of_program["write_bytes"], 0, "{of_program:?}");
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<_> = fields.split(' ').collect();
    assert_eq!(fields[13..15], ["0", "0"], "times of children: {stat}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(run.trace().events.len(), 200_000);
}

pub(crate) fn killed_worker_is_replaced() {
    for rings in ["cpu", "thread"] {
        let steps = Steps::start(&sizes(&[("USERTRACE_RINGS", rings)]));
        steps.until_written();
        kill(steps.daemons[1]);
        steps.until_both_live();
        steps.check();
    }
}

pub(crate) fn killed_watchdog_is_replaced() {
    let steps = Steps::start(SMALL);
    steps.until_written();
    kill(steps.daemons[0]);
    steps.until_both_live();
    // The new watchdog detects the end of the program.
    steps.check();
}

/// Daemons are killed at random instants, in any order, and so are their replacements.
pub(crate) fn repeatedly_killed_daemons_lose_no_event() {
    let mut random = Random::new();
    for mode in ["discard", "block"] {
        let steps = Steps::start(&sizes(&[("USERTRACE_MODE", mode)]));
        for _ in 0..counts(20, 60) {
            let daemons = steps.until_both_live();
            std::thread::sleep(std::time::Duration::from_micros(random.below(5000)));
            kill(daemons[random.below(2) as usize]);
        }
        steps.check();
    }
}

/// The program goes on, and writes the contents of the rings when it exits.
pub(crate) fn events_survive_death_of_both_daemons() {
    let steps = Steps::start(&[("USERTRACE_SUBBUF_SIZE", "1M")]);
    // Stop both first, so that neither can replace the other.
    for pid in steps.daemons {
        // SAFETY: the signal goes to a daemon of the program that this test started.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
    }
    steps.daemons.into_iter().for_each(kill);
    assert_eq!(steps.now(), [0, 0]);
    // The program writes more events. No daemon reads them, so the rings must have room.
    std::thread::sleep(std::time::Duration::from_millis(20));
    steps.check();
}

/// Without a reader, a program in `block` mode goes on, and counts its losses.
///
/// Requirements: D7
pub(crate) fn blocking_ends_when_daemons_are_dead() {
    let mut steps = Steps::start(&sizes(&[("USERTRACE_MODE", "block")]));
    steps.until_written();
    for pid in steps.daemons {
        // SAFETY: the signal goes to a daemon of the program that this test started.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
    }
    let mut before = 0;
    until("the program waits", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = steps.processor_time();
        std::mem::replace(&mut before, now) == now
    });
    steps.daemons.into_iter().for_each(kill);
    // The program retries lost events forever, so the test kills it in the end.
    until("the program goes on", || {
        steps.processor_time() >= before + 5
    });
    assert_eq!(steps.child.try_wait().unwrap(), None);
    steps.child.kill().unwrap();
    steps.child.wait().unwrap();
}
