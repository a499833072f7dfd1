//! Contexts, from a program's settings to the output of a reader (F7).

use std::sync::atomic::AtomicU64;

use usertrace::{Outcome, event};

use super::filter;
use super::run::Run;
use usertrace_testing::babeltrace;

usertrace::tracepoint! {
    mod pair {
        provider: "test",
        name: "pair",
        loglevel: Info,
        fields: { vtid: u8, text: str },
    }
}

/// The program: prints its numbers.
pub(crate) fn write() {
    static REQUEST: AtomicU64 = AtomicU64::new(0xffff_ffff_ffff_fff0);
    usertrace::context!("request", &REQUEST).unwrap();
    let tid = std::thread::Builder::new()
        .name("a \"thread\"".into())
        .spawn(|| {
            for text in ["", "text", &"l".repeat(3000)] {
                assert_eq!(event!(pair, 7, text), Outcome::Recorded);
            }
            // SAFETY: `gettid` takes no pointers.
            unsafe { libc::gettid() }
        })
        .unwrap()
        .join()
        .unwrap();
    print!("{} {tid}", std::process::id());
}

/// Requirements: F7
pub(crate) fn contexts_are_read_as_written() {
    // Rings of both protocols, and a context with the name of a field.
    for rings in ["cpu", "thread"] {
        let run = Run::new();
        let contexts = (
            "USERTRACE_CONTEXTS",
            "vpid vtid,procname, app.request app.none",
        );
        let printed = run.success("contexts", &[("USERTRACE_RINGS", rings), contexts]);
        let (pid, tid) = printed.split_once(' ').unwrap();
        run.wait();
        let lines = babeltrace::lines(run.path()).lines;
        assert_eq!(lines.len(), 3);
        for (line, text) in lines.iter().zip(["", "text", &"l".repeat(3000)]) {
            let expected = format!(
                " }}, {{ vpid = {pid}, vtid = {tid}, procname = \"a \\\"thread\\\"\", \
                 app_request = 18446744073709551600, app_none = 0 }}, \
                 {{ vtid = 7, text = \"{text}\" }}"
            );
            assert!(line.ends_with(&expected), "{rings}: {line} {expected}");
        }
    }
    // An unknown context is reported, and does not block.
    for (names, bad) in [
        ("vtid tid", "tid"),
        ("app.a.b", "app.a.b"),
        ("vtid,\u{1}", "\\x01"),
    ] {
        let run = Run::new();
        let text = run.success("report", &[("USERTRACE_CONTEXTS", names)]);
        let expected =
            format!("no fallback: no context is called \"{bad}\", or there are too many\n");
        assert_eq!(text, expected);
    }
}

/// The program: is killed if it asks for the values of contexts after its start.
pub(crate) fn write_in_sandbox() {
    let calls = [
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_prctl,
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_stat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
    ];
    usertrace::init();
    filter::refuse(calls, libc::SECCOMP_RET_KILL_PROCESS);
    for text in ["first", "last"] {
        assert_eq!(event!(pair, 7, text), Outcome::Recorded);
    }
}

/// A program that filters its system calls, as sshd and chronyd do, is not killed for a thread's
/// numbers and its call stack: the library has asked for those of the thread that it started in.
///
/// Requirements: F7
pub(crate) fn numbers_are_known_before_a_program_filters_its_calls() {
    let run = Run::new();
    let contexts = "vpid vtid ip callstack";
    run.success("sandbox", &[("USERTRACE_CONTEXTS", contexts)]);
    run.wait();
    let lines = babeltrace::lines(run.path()).lines;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("text = \"last\""), "{lines:?}");
}
