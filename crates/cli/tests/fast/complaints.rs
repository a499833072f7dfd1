//! Invalid values of variables: each is reported once on standard error, and once in the log.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::run::{Run, VARIABLE};
use usertrace_testing::babeltrace;

/// The program: runs others, in process groups of their own.
pub(crate) fn family() {
    for _ in 0..2 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child.env(VARIABLE, "report").process_group(0).status();
        assert!(status.unwrap().success());
    }
}

const BAD: &[(&str, &str, &str)] = &[
    ("USERTRACE_BACKEND", "slow", "auto, kernel, fast or off"),
    ("USERTRACE_SUBBUF_SIZE", "3", "powers of two"),
    ("USERTRACE_SUBBUF_SIZE", "lots", "a number of bytes"),
    ("USERTRACE_SUBBUF_COUNT", "0", "powers of two"),
    ("USERTRACE_MODE", "bogus", "discard, overwrite or block"),
    ("USERTRACE_CTF", "3", "1.8 or 2"),
    ("USERTRACE_RINGS", "core", "cpu or thread"),
    ("USERTRACE_PREFAULT", "some", "all"),
    ("USERTRACE_SIGNAL", "9", "a signal"),
    ("USERTRACE_CONTROL", "on", "thread, signal"),
    ("USERTRACE_CONTEXTS", "foo", "no context"),
    ("USERTRACE_FILTER", "[", "no pattern"),
];

/// The log's lines.
fn log(run: &Run) -> Vec<String> {
    let log = fs::read_to_string(run.path().join("usertrace.log")).unwrap_or_default();
    log.lines().map(str::to_owned).collect()
}

/// Requirements: F2, F3
pub(crate) fn invalid_variable_is_reported_once() {
    for &(name, value, reason) in BAD {
        for quiet in [false, true] {
            let run = Run::new();
            let mut variables = vec![(name, value)];
            variables.extend(quiet.then_some(("USERTRACE_QUIET", "1")));
            let output = run.output("report", &variables);
            assert!(output.status.success(), "{output:?}");
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(
                stderr.lines().count(),
                usize::from(!quiet),
                "{name}: {stderr}"
            );
            let log = log(&run);
            assert_eq!(log.len(), 1, "{name}: {log:?}");
            let lines = stderr.lines().chain(log.iter().map(String::as_str));
            for line in lines {
                let is_it = line.contains(name) && line.contains(&format!("\"{value}\""));
                let is_it =
                    is_it || line.contains("USERTRACE_SUBBUF_SIZE or USERTRACE_SUBBUF_COUNT");
                assert!(is_it && line.contains(reason), "{line}");
            }
        }
    }
    let run = Run::new();
    let output = run.output("report", &[("USERTRACE_FILTER", "a if x >")]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected = "USERTRACE_FILTER \"x >\": at byte 3, expected a value, found the end";
    assert!(stderr.contains(expected), "{stderr}");
    let run = Run::new();
    let output = run.output(
        "report",
        &[("USERTRACE_MODE", "block"), ("USERTRACE_FILTER", "a*")],
    );
    assert!(
        output.stderr.is_empty() && log(&run).is_empty(),
        "{output:?}"
    );
}

/// Neither children in other process groups nor several programs in one group repeat the report.
///
/// Requirements: F2, F3
pub(crate) fn process_family_reports_it_once() {
    let bad = [("USERTRACE_MODE", "bogus")];
    let run = Run::new();
    let output = run.output("family", &bad);
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    // Without traces, there is no log.
    let run = Run::new();
    let mut command = run.command("family", &[("USERTRACE_BACKEND", "slow")]);
    let output = command.env_remove("USERTRACE_OUTPUT").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");

    let run = Run::new();
    let report = run.command("report", &bad);
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\"; \"$0\"; :"]);
    command.arg(report.get_program());
    command.envs(
        report
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = command.process_group(0).output().unwrap();
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(log(&run).len(), 1);
}

/// If standard error is closed, full, or has no reader, the program neither waits nor dies.
///
/// Requirements: F2
pub(crate) fn reports_need_no_reader() {
    let run = Run::new();
    let closed = |command: &mut Command| {
        // SAFETY: between fork and exec, the child only closes a descriptor.
        unsafe {
            command.pre_exec(|| {
                libc::close(2);
                Ok(())
            });
        }
    };
    let (reader, writer) = std::io::pipe().unwrap();
    let full = OwnedFd::from(writer.try_clone().unwrap());
    // SAFETY: the descriptor is this test's pipe, and the buffer has the given length.
    unsafe {
        libc::fcntl(full.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        while libc::write(full.as_raw_fd(), [0u8; 4096].as_ptr().cast(), 4096) > 0 {}
        libc::fcntl(full.as_raw_fd(), libc::F_SETFL, 0);
    }
    let (gone, without_reader) = std::io::pipe().unwrap();
    drop(gone);
    for (n, stderr) in [
        Stdio::null(),
        Stdio::from(full),
        Stdio::from(without_reader),
    ]
    .into_iter()
    .enumerate()
    {
        let mut command = run.command("ten", &[("USERTRACE_MODE", "bogus")]);
        if n == 0 {
            closed(&mut command);
        }
        let status = command.stderr(stderr).status().unwrap();
        assert!(status.success(), "{n}: {status}");
    }
    drop((reader, writer));
}

/// `USERTRACE_FILTER` takes the same patterns as `record -e`.
///
/// Requirements: E4, F3
pub(crate) fn filter_variable_takes_patterns_of_record() {
    for (filter, expected) in [
        ("test:done", &["done"][..]),
        ("end", &["end"]),
        ("!numbers,!many,!names,!done", &["end"]),
        ("1 !test:numbers !many !names !d*", &["end"]),
        ("0 done", &["done"]),
        (
            "done,numbers if d == 5 && type == \"Busy\"",
            &["numbers", "done"],
        ),
        (
            "many if _g_length >= 3 && k == \"te*\" && g[2] > 0",
            &["many", "many"],
        ),
        ("!* if $ctx.vpid > 0\ndone", &["done"]),
        ("names if data == \"text\"\n!names if SIZE == 6", &[]),
    ] {
        let run = Run::new();
        run.success("fields", &[("USERTRACE_FILTER", filter)]);
        run.wait();
        if expected.is_empty() {
            assert!(run.directories().is_empty(), "{filter}");
            continue;
        }
        let lines = babeltrace::lines(run.path()).lines;
        let names: Vec<_> = lines
            .iter()
            .map(|line| {
                line.split(" test:")
                    .nth(1)
                    .unwrap()
                    .split(':')
                    .next()
                    .unwrap()
            })
            .collect();
        assert_eq!(names, expected, "{filter}");
    }
}
