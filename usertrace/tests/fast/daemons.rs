//! Daemons that are killed: what was committed is written, once (A10).

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout};

use super::run::Run;
use super::victims::Random;

struct Steps {
    run: Run,
    child: Child,
    output: BufReader<ChildStdout>,
    daemons: [i32; 2],
    /// Theirs, and of those that replace them.
    session: i32,
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    !matches!(state, None | Some(b'Z' | b'X'))
}

fn kill(pid: i32) {
    // SAFETY: a daemon that this test's program started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    while is_alive(pid) {
        std::thread::yield_now();
    }
}

fn sleep(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
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
            session: session(daemons[0]).expect("the guardian lives"),
        }
    }

    /// The daemons that live now, by role.
    fn now(&self) -> [i32; 2] {
        let comm = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let own = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
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

    /// Ends the program, and compares what it wrote with its traces.
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
            assert!(
                numbers.iter().copied().eq(0..count),
                "thread {thread}: gaps or repetitions"
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
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
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

pub(crate) fn the_worker_is_replaced() {
    for rings in ["cpu", "thread"] {
        let steps = Steps::start(&sizes(&[("USERTRACE_RINGS", rings)]));
        sleep(20);
        kill(steps.daemons[1]);
        sleep(20);
        steps.check();
    }
}

pub(crate) fn the_guardian_is_replaced() {
    let steps = Steps::start(SMALL);
    sleep(20);
    kill(steps.daemons[0]);
    sleep(20);
    // The end of the program is noticed by another one.
    steps.check();
}

/// At any instant of their work, in any order, and each anew.
pub(crate) fn either_one_again_and_again() {
    let mut random = Random::new();
    for mode in ["discard", "block"] {
        let steps = Steps::start(&sizes(&[("USERTRACE_MODE", mode)]));
        for _ in 0..60 {
            let daemons = loop {
                let daemons = steps.now();
                if daemons.iter().all(|pid| *pid != 0) {
                    break daemons;
                }
                std::thread::yield_now();
            };
            std::thread::sleep(std::time::Duration::from_micros(random.below(5000)));
            kill(daemons[random.below(2) as usize]);
        }
        steps.check();
    }
}

/// The program goes on, and when it exits, what is left in the rings is written.
pub(crate) fn both_are_killed() {
    let steps = Steps::start(&[("USERTRACE_SUBBUF_SIZE", "1M")]);
    sleep(20);
    // Neither is to have the time to replace the other one.
    for pid in steps.daemons {
        // SAFETY: daemons that this test's program started.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
    }
    steps.daemons.into_iter().for_each(kill);
    assert_eq!(steps.now(), [0, 0]);
    sleep(20);
    steps.check();
}

/// D7: with nobody left to read, a program that waits goes on, and counts what is lost.
pub(crate) fn nobody_waits_for_the_dead() {
    let steps = Steps::start(&sizes(&[("USERTRACE_MODE", "block")]));
    sleep(20);
    for pid in steps.daemons {
        // SAFETY: daemons that this test's program started.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
    }
    sleep(20);
    steps.daemons.into_iter().for_each(kill);
    let mut child = steps.child;
    // Events that are lost are tried again, for ever: it is killed in the end.
    sleep(200);
    assert!(child.try_wait().unwrap().is_none());
    let busy = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace()
            .nth(11)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let before = busy();
    while busy() < before + 5 {
        sleep(10);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
