//! What remains possible on a kernel that is locked down, as by Secure Boot.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use usertrace_testing::babeltrace;
use usertrace_tests::program;
use usertrace_vm::{Outcome, Streams, target_dir};

use crate::package::{guest, image, said, sh, signing_key};

const LEVELS: [&str; 2] = ["integrity", "confidentiality"];

/// Memory for traces that the next boot finds.
const RESERVE: &str = "reserve_mem=16M:4096:ltt nokaslr";

/// Makes a trace that is active.
const TRACE: &str = "mkdir /sys/kernel/ltt/crash; echo 1 >/sys/kernel/ltt/crash/start;";

/// How many events the program that panics the kernel writes before.
const EVENTS: usize = 2000;

fn option(level: &str) -> String {
    format!("lockdown={level}")
}

/// Parts of the names of guest tests: of the control file system, programs, and consumers. None of
/// them looks into the kernel's memory.
const GUEST_TESTS: &str =
    "only_traces_can sixteen_traces info_follows_traces second_recorder snapshot_has filter";

/// The control file system, the areas and consumers work as without lockdown. `confidentiality`
/// forbids what shows more of the kernel: its memory, and its own events.
pub(crate) fn leaves_tracing_as_it_is() {
    let script = r#"
        mount -t securityfs securityfs /sys/kernel/security
        mount -t tracefs tracefs /sys/kernel/tracing
        grep -o '\[.*\]' /sys/kernel/security/lockdown
        "$1" record -q -o /tmp/traces -- "$2" --events 2000
        "$1" view /tmp/traces | wc -l
        mkdir /sys/kernel/ltt/mine; echo 1 >/sys/kernel/ltt/mine/start; "$2" --events 100
        "$1" extract /proc/kcore -o /tmp/kcore && echo "kernel memory: allowed" || :
        "$1" record -q --kernel sched:sched_switch -o /tmp/events -- "$2" --events 1 &&
            echo "kernel events: allowed" || :
        export USERTRACE_TEST_SCALE=40; rmdir /sys/kernel/ltt/mine
    "#;
    let script = format!("{script} for part in {GUEST_TESTS}; do \"$3\" $part; done");
    let [usertrace, numbered, guest_tests] =
        ["usertrace", "numbered", "guest-tests"].map(program::path);
    for level in LEVELS {
        let arguments = [&*usertrace, &*numbered, &*guest_tests];
        let run = sh(&option(level), &script, &arguments);
        assert_eq!(run.outcome, Outcome::Passed, "{level}: {}", said(&run));
        let stdout = String::from_utf8_lossy(&run.stdout);
        let has = |line: &str| stdout.lines().any(|said| said == line);
        assert!(has(&format!("[{level}]")), "{stdout}");
        assert!(has("2000"), "{level}: {stdout}");
        let is_lax = level == "integrity";
        for what in ["kernel memory: allowed", "kernel events: allowed"] {
            assert_eq!(has(what), is_lax, "{level}: {what}: {}", said(&run));
        }
    }
}

/// After a reset, `integrity` lets the previous boot's traces be read. `confidentiality` does not,
/// and the command says why.
///
/// Requirements: C7
pub(crate) fn previous_boot_is_readable_unless_confidential() {
    let machine = tempfile::tempdir().expect("a directory");
    let [numbered, usertrace] = ["numbered", "usertrace"].map(program::path);
    let boot = |options: &str, script: &str| {
        guest(image())
            .memory_file(machine.path().join("memory"))
            .append(RESERVE)
            .append(options)
            .out(machine.path().join("out"))
            .command(words(
                script,
                &numbered,
                usertrace.to_str().expect("a path"),
            ))
            .run(Streams::capture())
            .expect("a guest")
    };
    let events = EVENTS;
    let crash = boot(
        "",
        &format!("{TRACE} exec \"$1\" --panic --events {events}"),
    );
    let has_panicked = matches!(crash.outcome, Outcome::Panicked(_));
    assert!(has_panicked, "{}", said(&crash));
    let extract = "\"$2\" extract --previous-boot -o /out/$LEVEL";
    for level in LEVELS {
        let run = boot(&option(level), &format!("LEVEL={level}; {extract}"));
        let stderr = String::from_utf8_lossy(&run.stderr);
        if level == "integrity" {
            assert_eq!(run.outcome, Outcome::Passed, "{}", said(&run));
            let traces = machine.path().join("out").join(level);
            assert_eq!(babeltrace::read(&traces).events.len(), EVENTS);
        } else {
            assert_eq!(run.outcome, Outcome::Failed(1), "{}", said(&run));
            assert!(stderr.contains("locked down (confidentiality)"), "{stderr}");
        }
    }
}

/// The harness arms the crash kernel by `kexec_file_load`, and the kernel wants a signature.
pub(crate) fn refuses_an_unsigned_crash_kernel() {
    for level in LEVELS {
        let run = guest(image())
            .crash(true)
            .append(&option(level))
            .command(["true"])
            .run(Streams::capture())
            .expect("a guest");
        let Outcome::Infra(why) = &run.outcome else {
            panic!("{level}: {}", said(&run));
        };
        assert!(
            why.contains("kexec_file_load") && why.contains("Operation not permitted"),
            "{level}: {why}"
        );
    }
}

/// The kernel's image, signed with the key whose certificate the kernel has.
fn signed() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(target_dir()).expect("a directory");
    let to = directory.path().join("bzImage.signed");
    let key = signing_key();
    let output = Command::new("sbsign")
        .arg("--key")
        .arg(&key)
        .arg("--cert")
        .arg(&key)
        .arg("--output")
        .args([&to, &image()])
        .output()
        .expect("sbsign (Debian package sbsigntool) must be there to run this test");
    assert!(output.status.success(), "{output:?}");
    (directory, to)
}

/// With a signed image the whole way works: load, panic, dump, extraction.
///
/// Requirements: C7
pub(crate) fn signed_crash_kernel_saves_traces() {
    let (_directory, image) = signed();
    for level in LEVELS {
        let out = tempfile::tempdir().expect("a directory");
        let events = EVENTS.to_string();
        let script = format!("{TRACE} exec \"$1\" --panic --events \"$2\"");
        let numbered = program::path("numbered");
        let run = guest(image.clone())
            .crash(true)
            // The kernel of a distribution is larger than the harness's own.
            .crash_memory_mib(256)
            .append(&option(level))
            .out(out.path())
            .command(words(&script, &numbered, &events))
            .run(Streams::capture())
            .expect("a guest");
        assert!(
            matches!(run.outcome, Outcome::Panicked(_)),
            "{level}: {}",
            said(&run)
        );
        let Some(Ok(dump)) = &run.dump else {
            panic!("{level}: no dump: {}", said(&run));
        };
        let traces = out.path().join("traces");
        extract(dump, &traces);
        assert_eq!(babeltrace::read(&traces).events.len(), EVENTS, "{level}");
    }
}

/// The command that runs a script with two arguments, of which `numbered` is the first.
fn words(script: &str, numbered: &Path, second: &str) -> [OsString; 6] {
    let numbered = numbered.as_os_str();
    let [sh, options, second] = ["sh", "-ec", second].map(OsString::from);
    [
        sh.clone(),
        options,
        script.into(),
        sh,
        numbered.into(),
        second,
    ]
}

fn extract(dump: &Path, to: &Path) {
    let output = Command::new(program::path("usertrace"))
        .arg("extract")
        .args([dump, Path::new("-o"), to])
        .output()
        .expect("usertrace");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// `usertrace doctor` says why no crash kernel is loaded.
pub(crate) fn doctor_explains_what_it_forbids() {
    let script =
        "mount -t securityfs securityfs /sys/kernel/security 2>/dev/null || :\n\"$1\" doctor";
    let usertrace = program::path("usertrace");
    for level in LEVELS {
        let options = format!("{} crashkernel=128M", option(level));
        let run = sh(&options, script, &[&usertrace]);
        assert_eq!(run.outcome, Outcome::Passed, "{level}: {}", said(&run));
        let stdout = String::from_utf8_lossy(&run.stdout);
        let expected = format!("only a signed one can be (lockdown: {level})");
        assert!(stdout.contains(&expected), "{level}: {stdout}");
    }
    let run = sh("crashkernel=128M", script, &[&usertrace]);
    let stdout = String::from_utf8_lossy(&run.stdout);
    assert!(stdout.contains("kdump-config load"), "{stdout}");
}
