//! Programs that fork, execute, end and change their rights: no committed event is lost.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::run::{Run, assert_success};
use super::trace;
use usertrace_testing::babeltrace;

fn numbers(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

/// The numbers of each thread's events, in all processes of a run.
fn all_threads(run: &Run) -> Vec<(u32, Vec<u64>)> {
    let mut found: Vec<_> = run
        .directories()
        .iter()
        .flat_map(|directory| trace::read(directory).threads())
        .collect();
    found.sort();
    found
}

/// Requirements: D1
pub(crate) fn library_is_ready_before_main() {
    let run = Run::new();
    run.success("before_main", &[]);
    let threads = run.trace().threads();
    assert_eq!(threads[&1], [0]);
    assert_eq!(threads[&2], [0]);
}

/// With a ring for each thread, each thread has a stream that is named after it and readable.
///
/// Requirements: A8, D6, F1
pub(crate) fn each_thread_has_a_readable_stream() {
    for (rings, streams) in [("thread", 4..=4), ("cpu", 1..=256)] {
        let run = Run::new();
        run.success("threads", &[("USERTRACE_RINGS", rings)]);
        let trace = run.trace();
        assert!(
            streams.contains(&trace.streams.len()),
            "{:?}",
            trace.streams
        );
        assert_eq!(trace.threads().len(), 4);
        for numbers_of_thread in trace.threads().values() {
            assert_eq!(*numbers_of_thread, numbers(0..1000));
        }
        let read = babeltrace::lines(run.path());
        assert_eq!((read.lines.len(), read.discarded), (4000, 0));
    }
}

/// A program may have threads, which may hold any lock, before the library is set up.
pub(crate) fn threads_may_run_before_the_library_starts() {
    for _ in 0..20 {
        let run = Run::new();
        run.success("threads_before", &[]);
        let found = all_threads(&run);
        assert_eq!(found.len(), 5);
        assert_eq!(
            found
                .iter()
                .map(|(_, numbers)| numbers.len())
                .sum::<usize>(),
            4010
        );
    }
}

/// The events of an ended thread are written, and another thread takes its ring.
///
/// Requirements: D1
pub(crate) fn rings_of_ended_threads_serve_others() {
    let run = Run::new();
    run.success("many_threads", &[("USERTRACE_RINGS", "thread")]);
    let trace = run.trace();
    let threads = trace.threads();
    assert_eq!(threads.len(), 200);
    assert!(threads.values().all(|seen| *seen == numbers(0..10)));
    assert_eq!(trace.discarded, 0);
}

/// Requirements: A5
pub(crate) fn children_have_their_own_traces() {
    for rings in ["cpu", "thread"] {
        let run = Run::new();
        run.success("fork", &[("USERTRACE_RINGS", rings)]);
        let mut found = Vec::new();
        for directory in run.directories() {
            let threads = trace::read(&directory).threads();
            assert_eq!(threads.len(), 1, "{threads:?}");
            found.extend(threads);
        }
        found.sort();
        let expected = [1, 2, 3, 4].map(|depth| (depth, numbers(0..1000)));
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], [(9, numbers(0..5))]);
    }
}

/// Requirements: A5
pub(crate) fn children_are_traced_without_fork_handlers() {
    let run = Run::new();
    run.success("fork_without_handlers", &[]);
    let found = all_threads(&run);
    assert_eq!(found, [(1, numbers(0..20)), (2, numbers(0..10))]);
}

/// If the first thread ends, the other threads' events belong to the same process.
///
/// Requirements: A10
pub(crate) fn end_of_the_first_thread_keeps_the_trace() {
    let run = Run::new();
    run.success("first_thread_ends", &[]);
    let found = all_threads(&run);
    assert_eq!(found, [(1, numbers(0..10)), (2, numbers(0..100))]);
}

/// A signal handler forks in the middle of an event; the child goes on with its parent's event.
///
/// Requirements: A5, F2
pub(crate) fn signal_handler_may_fork() {
    for rings in ["cpu", "thread"] {
        let run = Run::new();
        let sizes = [
            ("USERTRACE_SUBBUF_SIZE", "4096"),
            ("USERTRACE_RINGS", rings),
        ];
        run.success("signal_forks", &sizes);
        let directories = run.directories();
        assert!(directories.len() > 1);
        for directory in directories {
            for (thread, numbers) in trace::read(&directory).threads() {
                assert!(thread == 1 || thread == 2);
                assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
            }
        }
    }
}

/// Events before `exec` are written while the new program still runs, and no daemon stays for that
/// program.
pub(crate) fn events_before_exec_are_written() {
    let run = Run::new();
    let mut child = run.start("exec", &[]);
    // The executed program reports that it runs, and waits for its input.
    let mut there = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut there)
        .unwrap();
    assert_eq!(run.trace().threads()[&1], numbers(0..1000));
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_success(output.status, &output.stderr);
}

/// The daemons stay for a child whose parent has ended.
pub(crate) fn daemons_stay_for_an_orphaned_child() {
    let run = Run::new();
    run.success("daemonize", &[]);
    let found = all_threads(&run);
    assert_eq!(found, [(1, numbers(0..100)), (2, numbers(0..200))]);
}

/// Requirements: A10, D5
pub(crate) fn no_way_to_end_loses_an_event() {
    for (name, status) in [
        ("exit_at_once", "exit status: 0"),
        ("abort", "signal: 6 (SIGABRT)"),
        ("segfault", "signal: 11 (SIGSEGV)"),
        ("killed", "signal: 9 (SIGKILL)"),
    ] {
        for rings in ["cpu", "thread"] {
            let run = Run::new();
            let output = run.output(name, &[("USERTRACE_RINGS", rings)]);
            let ended = output.status.to_string();
            assert_eq!(ended.trim_end_matches(" (core dumped)"), status);
            assert_eq!(
                run.trace().threads()[&1],
                numbers(0..1000),
                "{name} {rings}"
            );
        }
    }
}

fn assert_all_but_lost(run: &Run) {
    let mut first = run
        .directories()
        .iter()
        .flat_map(|directory| trace::read(directory).threads())
        .collect::<Vec<_>>();
    first.sort();
    assert_eq!(first.len(), 2);
    assert_eq!(first[0], (1, numbers(0..20_000)));
    assert_eq!(first[1], (2, numbers(0..100)));
}

/// Programs that close all descriptors, or may open none.
///
/// Requirements: F2
pub(crate) fn closed_descriptors_do_no_harm() {
    for name in ["close_all", "no_files"] {
        let run = Run::new();
        run.success(name, &[]);
        assert_all_but_lost(&run);
    }
}

/// Requirements: F2
pub(crate) fn lost_permissions_do_no_harm() {
    // SAFETY: `geteuid` takes no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    for name in ["chroot", "setuid"] {
        let run = Run::new();
        run.success(name, &[]);
        assert_all_but_lost(&run);
    }
}

/// A program is not disturbed if system calls are refused, whether from the start or later.
///
/// Requirements: F2, F3
pub(crate) fn refused_system_calls_do_no_harm() {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        let run = Run::new();
        let text = run.success("seccomp", &[("ERRNO", &errno.to_string())]);
        assert_eq!(text, "");
        assert_all_but_lost(&run);
    }
    // In a separate namespace, where the system allows that.
    let run = Run::new();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "true"]);
    if command.status().is_ok_and(|status| status.success()) {
        let inner = run.command("ten", &[]);
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user"])
            .arg(inner.get_program());
        for (name, value) in inner.get_envs() {
            command.env(name, value.unwrap());
        }
        assert!(command.status().unwrap().success());
        assert_eq!(run.trace().threads()[&1], numbers(0..10));
    }
}

/// Short-lived children come and go faster than slots are freed, so they wait for one. If the disk
/// is slow for seconds, a trace in `discard` mode may lose some, and reports how many.
pub(crate) fn short_lived_children_wait_for_slots() {
    for mode in ["discard", "block"] {
        let run = Run::new();
        let said = run.success("some_children", &[("USERTRACE_MODE", mode)]);
        let traced: Vec<u32> = said.lines().map(|n| n.parse().unwrap()).collect();
        let threads: Vec<u32> = all_threads(&run)
            .into_iter()
            .map(|(thread, _)| thread)
            .collect();
        assert_eq!(threads, traced, "{mode}");
        let log = std::fs::read_to_string(run.path().join("usertrace.log"));
        let lost = 301 - traced.len();
        assert!(
            lost == 0 || lost < 50 && mode == "discard",
            "{mode}: {lost} lost"
        );
        match lost {
            0 => assert!(log.is_err(), "{log:?}"),
            _ => assert!(log.unwrap().contains(&format!(": {lost} process"))),
        }
    }
}

/// A process without a slot waits until the watchdog has looked for ended processes, however late
/// that is.
pub(crate) fn late_exit_detection_loses_no_child() {
    let run = Run::new();
    // In this mode nothing is lost, even if the disk is slow.
    run.success("unnoticed", &[("USERTRACE_MODE", "block")]);
    let threads: Vec<u32> = all_threads(&run)
        .into_iter()
        .map(|(thread, _)| thread)
        .collect();
    assert_eq!(threads, (0..=64).collect::<Vec<u32>>());
}

/// A family of processes has 64 slots.
pub(crate) fn processes_without_slot_are_reported() {
    let run = Run::new();
    assert_eq!(run.success("crowd", &[]), "7\n");
    assert_eq!(run.directories().len(), 64);
    let log = std::fs::read_to_string(run.path().join("usertrace.log")).unwrap();
    assert!(log.contains(": 7 processes were not traced"), "{log}");
}

/// The rings take at most an eighth of the limit, and the report says so.
pub(crate) fn rings_respect_the_limit_of_address_space() {
    for limit in [400 << 20, 64 << 20] {
        let run = Run::new();
        let mut command = run.command("address_space", &[]);
        // SAFETY: between fork and exec, the child makes one system call and touches no shared
        // state.
        unsafe {
            command.pre_exec(move || {
                let limit = libc::rlimit {
                    rlim_cur: limit,
                    rlim_max: limit,
                };
                match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let output = command.output().unwrap();
        assert_success(output.status, &output.stderr);
        let text = String::from_utf8(output.stdout).unwrap();
        let (len, report) = text.split_once(' ').unwrap();
        let len: u64 = len.parse().unwrap();
        assert!(len > 0 && len <= limit / 8, "{text}");
        let expected = format!("rings limited to {len} bytes by RLIMIT_AS");
        assert!(report.contains(&expected), "{text}");
        assert_eq!(run.trace().events.len(), 10);
    }
    let run = Run::new();
    assert!(!run.success("report", &[]).contains("RLIMIT_AS"));
}
