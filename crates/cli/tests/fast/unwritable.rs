//! Traces that cannot be written: no program waits for them, and the error is reported.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::disk::Disk;
use super::run::{Run, VARIABLE, assert_success};
use super::{filter, trace};
use usertrace_testing::wait::until;

/// A program that writes more than its rings hold, in `block` mode.
fn flood(run: &Run, variables: &[(&str, &str)]) -> Command {
    let sizes = [
        ("USERTRACE_MODE", "block"),
        ("USERTRACE_SUBBUF_SIZE", "4096"),
        ("USERTRACE_SUBBUF_COUNT", "2"),
    ];
    run.command("events", &[&sizes, variables].concat())
}

/// Asserts that the program went on, and lost the events that found no room in the rings.
fn assert_lost(output: &Output) {
    assert_success(output.status, &output.stderr);
    let lost: u64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap();
    assert!(lost > 0);
}

/// In `block` mode, writers do not wait for a reader that cannot store what it reads.
pub(crate) fn blocking_ends_when_output_is_unwritable() {
    let run = Run::new();
    let in_the_way = run.path().join("file");
    fs::write(&in_the_way, "in the way").unwrap();
    let place = in_the_way.to_str().unwrap();
    let output = flood(&run, &[("USERTRACE_OUTPUT", place)])
        .output()
        .unwrap();
    assert_lost(&output);
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!("usertrace: cannot write traces to \"{place}\": ");
    assert!(
        said.starts_with(&expected) && said.lines().count() == 1,
        "{said:?}"
    );

    let variables = [("USERTRACE_OUTPUT", place), ("USERTRACE_QUIET", "1")];
    let output = flood(&run, &variables).output().unwrap();
    assert_lost(&output);
    assert!(output.stderr.is_empty());
}

/// The daemons inherit a filter that refuses the system calls they need, or kills them for these.
pub(crate) fn daemons_may_be_refused_or_killed_by_a_filter() {
    for action in [
        libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        libc::SECCOMP_RET_KILL_PROCESS,
    ] {
        let run = Run::new();
        let directory = run.path().join("not/there");
        let mut command = flood(&run, &[("USERTRACE_OUTPUT", directory.to_str().unwrap())]);
        // SAFETY: between fork and exec, the child makes system calls only.
        unsafe {
            command.pre_exec(move || {
                filter::refuse([libc::SYS_mkdir, libc::SYS_mkdirat], action);
                Ok(())
            });
        }
        assert_lost(&command.output().unwrap());
        run.wait();
    }
}

/// An incomplete recording fails, and reports what is missing.
pub(crate) fn recording_fails_on_full_disk() {
    // SAFETY: `geteuid` takes no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let run = Run::new();
    let Some(disk) = Disk::new(&run, "256k") else {
        return;
    };
    let disk = disk.path();
    let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .args(["record", "-o"])
        .arg(disk.join("traces"))
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .env(VARIABLE, "events")
        .output()
        .unwrap();
    let read = Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .arg("view")
        .arg(disk.join("traces"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(!said.contains("nobody wrote an event"), "{said}");
    // The written part can be read, and the rest is reported.
    let said = String::from_utf8_lossy(&read.stderr);
    assert_eq!(read.status.code(), Some(3), "{said}");
    assert!(said.contains("incomplete"), "{said}");
    assert!(!read.stdout.is_empty());
}

/// A link in the directory of the traces does not make a program write to another file.
pub(crate) fn symbolic_links_are_not_followed() {
    let run = Run::new();
    let file = run.path().join("file");
    let other = run.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(&file, "as it was\n").unwrap();
    for name in ["usertrace.log", ".running"] {
        std::os::unix::fs::symlink(&file, other.join(name)).unwrap();
    }
    let variables = [
        ("USERTRACE_OUTPUT", other.to_str().unwrap()),
        ("USERTRACE_MODE", "bogus"),
    ];
    run.success("ten", &variables);
    until("there is a trace", || trace::directories(&other).len() == 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), "as it was\n");
}

/// A FIFO in place of a file of the traces blocks neither the program nor a daemon nor a reader.
pub(crate) fn fifo_blocks_no_process() {
    let usertrace = |run: &Run, arguments: &[&str]| {
        Command::new("timeout")
            .args(["60", env!("CARGO_BIN_EXE_usertrace")])
            .args(arguments)
            .current_dir(run.path())
            .output()
            .unwrap()
    };
    // A FIFO as the log: for invalid variables before `main`, and for write errors.
    let run = Run::new();
    let fifo = run.path().join("usertrace.log");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    run.success("ten", &[("USERTRACE_MODE", "bogus")]);
    let directory = run.directories().remove(0);
    // As the mark of an unfinished trace.
    mkfifo(&directory.join(".unfinished"), Mode::S_IRWXU).unwrap();
    let read = usertrace(&run, &["view", "."]);
    assert_success(read.status, &read.stderr);
    assert_eq!(read.stdout.split(|&byte| byte == b'\n').count(), 11);

    // As the lock file by which a recorder waits for daemons.
    let run = Run::new();
    let other = run.path().join("other");
    fs::create_dir(&other).unwrap();
    mkfifo(&other.join(".running"), Mode::S_IRWXU).unwrap();
    run.success("ten", &[("USERTRACE_OUTPUT", other.to_str().unwrap())]);
    // As the metadata.
    run.success("ten", &[]);
    let metadata = run.directories().remove(0).join("metadata");
    fs::remove_file(&metadata).unwrap();
    mkfifo(&metadata, Mode::S_IRWXU).unwrap();
    let read = usertrace(&run, &["view", "."]);
    assert_eq!(read.status.code(), Some(3));
    let said = String::from_utf8(read.stderr).unwrap();
    assert!(said.contains("no metadata"), "{said}");
    assert!(!said.contains("incomplete"), "{said}");
    // As the program to run, and as a script's interpreter.
    let fifo = run.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let script = run.path().join("script");
    fs::write(&script, format!("#!{}\n", fifo.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for program in ["./fifo", "./script"] {
        let recorded = usertrace(&run, &["record", "-q", "-o", "recorded", "--", program]);
        assert_eq!(recorded.status.code(), Some(126), "{recorded:?}");
    }

    // As a stream, when a snapshot copies it.
    let run = Run::new();
    let mut child = run.start("switches", &[]);
    super::output::send_request(&mut child, b'e');
    super::output::send_request(&mut child, b's');
    until("there is a trace", || {
        !trace::directories(run.path()).is_empty()
    });
    mkfifo(
        &trace::directories(run.path())[0].join("main_77"),
        Mode::S_IRWXU,
    )
    .unwrap();
    let copied = usertrace(&run, &["snapshot", ".", "-o", "copy"]);
    assert_success(copied.status, &copied.stderr);
    assert_eq!(trace::directories(&run.path().join("copy")).len(), 1);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    run.wait();
}
