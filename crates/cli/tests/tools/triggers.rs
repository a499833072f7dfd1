//! `usertrace trigger` and `usertrace wait`, and the daemon's answers to triggers, with plain files
//! in place of the control file system. The tests in the guest let programs fire triggers.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use usertrace_testing::wait;

const FIRED: &str = "3 matched 9 fired 0 suppressed 0 last 4711 1795762605416403206\n\
                     17 matched 0 fired 0 suppressed 0 last 0 0\n";

/// A control file system with a trace `web` that has two triggers.
fn root() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("abi", "version 2\n"),
        ("web/stats", "version 1\ngeneration 7\n"),
        ("web/start", "0\n"),
        ("web/allocate", "0\n"),
        ("web/filter", "shop:*\nshop:served if status >\n"),
        (
            "web/triggers",
            "3 shop:error if code == 7 then snapshot\n17 shop:tick then notify once\n",
        ),
        ("web/fired", FIRED),
    ] {
        let path = directory.path().join("root").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for channel in ["main", "control"] {
        fs::create_dir(directory.path().join("root/web").join(channel)).unwrap();
    }
    directory
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command
        .args(arguments)
        .args(["--root", "root"])
        .current_dir(directory)
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null());
    command
}

/// Runs the command, and returns its status, output, and messages.
fn usertrace(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(directory, arguments).output().unwrap();
    let [said, messages] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    (output.status.code(), said, messages)
}

/// Lets triggers fire: replaces a text in the file by one of the same length. The file is never
/// empty for a reader.
fn fire(directory: &Path, before: &str, after: &str) {
    assert_eq!(before.len(), after.len());
    let path = directory.join("root/web/fired");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(before), "{text}");
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(text.replacen(before, after, 1).as_bytes())
        .unwrap();
}

fn read(directory: &Path, file: &str) -> String {
    fs::read_to_string(directory.join("root/web").join(file)).unwrap()
}

/// Requirements: E1, E4
#[test]
fn triggers_are_listed() {
    let directory = root();
    let path = directory.path();
    fire(path, "last 0 0\n", "spent   \n");
    let (status, said, messages) = usertrace(path, &["trigger", "list", "web"]);
    assert_eq!((status, &messages[..]), (Some(0), ""));
    assert_eq!(
        said,
        "   N MATCHED FIRED SUPPRESSED  PID LAST                        TRIGGER
   3       9     0          0 4711 2026-11-27T06:56:45.416403Z shop:error if code == 7 then snapshot
  17       0     0          0    - -                           (spent) shop:tick then notify once\n"
    );
    let (status, said, _) = usertrace(path, &["trigger", "list", "--json", "web"]);
    assert_eq!(status, Some(0));
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(json[0]["time"], 1_795_762_605_416_403_206u64);
    assert_eq!(json[1]["spent"], true);
    assert_eq!(json[1]["text"], "shop:tick then notify once");
    let (status, said, _) = usertrace(path, &["status", "web"]);
    assert_eq!(status, Some(3), "it is not active");
    for line in [
        "  trigger 3 shop:error if code == 7 then snapshot (fired 0 times)\n",
        "  trigger 17 shop:tick then notify once (fired 0 times, spent)\n",
        "  ! programs cannot use the rule \"shop:served if status >\": expected a value, found the end\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let (_, said, _) = usertrace(path, &["doctor"]);
    assert!(
        said.contains("--  conditions    trace \"web\": programs cannot use"),
        "{said}"
    );
    let (status, _, messages) = usertrace(path, &["trigger", "list", "db"]);
    assert_eq!(status, Some(1));
    assert!(messages.contains("there is no trace root/db"), "{messages}");
}

/// A wrong line is refused before anything is written.
///
/// Requirements: E1, E4
#[test]
fn triggers_are_checked_and_written() {
    let directory = root();
    let path = directory.path();
    let before = read(path, "triggers");
    for (wrong, place) in [
        (
            "shop:error if code = 7 then stop",
            "  shop:error if code = 7 then stop\n                     ^",
        ),
        (
            "shop:error then explode",
            "  shop:error then explode\n                  ^^^^^^^",
        ),
    ] {
        for arguments in [
            &["trigger", "add", "web", "shop:tick then stop", wrong][..],
            &["start", "web", "--trigger", wrong],
            &["record", "--trigger", wrong, "--", "true"],
        ] {
            let (status, _, messages) = usertrace(path, arguments);
            assert_eq!(status, Some(2), "{messages}");
            assert!(messages.contains(place), "{place}\n{messages}");
        }
    }
    assert_eq!(read(path, "triggers"), before);
    fs::write(path.join("root/web/triggers"), "").unwrap();
    let text = "shop:error if code == 7 then start once";
    let (status, _, messages) = usertrace(path, &["trigger", "add", "web", text]);
    assert_eq!(status, Some(0), "{messages}");
    assert_eq!(read(path, "triggers"), text);
    assert!(
        messages.contains("trace \"web\" is allocated now"),
        "{messages}"
    );
    assert_eq!(read(path, "allocate"), "1\n");
    fs::write(path.join("root/web/triggers"), &before).unwrap();
    let (status, _, messages) = usertrace(path, &["trigger", "remove", "web", "3", "4"]);
    assert_eq!(status, Some(1));
    assert!(
        messages.contains("trace \"web\" has no trigger 4: it has 3, 17"),
        "{messages}"
    );
    assert_eq!(read(path, "triggers"), before);
    assert_eq!(usertrace(path, &["trigger", "remove", "web"]).0, Some(2));
    assert_eq!(
        usertrace(path, &["trigger", "remove", "web", "17"]).0,
        Some(0)
    );
    assert!(read(path, "triggers").starts_with("remove 17"));
    fs::write(path.join("root/web/triggers"), "").unwrap();
    assert_eq!(
        usertrace(path, &["trigger", "remove", "web", "--all"]).0,
        Some(0)
    );
    assert_eq!(read(path, "triggers"), "0");
}

/// Requirements: F3
#[test]
fn kernel_without_buffers_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, instead) in [
        (&["trigger", "list", "web"][..], "PATTERN if EXPR"),
        (&["wait", "web"], "view --follow"),
        (
            &[
                "record",
                "-o",
                "out",
                "--trigger",
                "a then stop",
                "--",
                "true",
            ],
            "PATTERN if EXPR",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        let output = command
            .args(arguments)
            .current_dir(directory.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
        assert!(
            said.contains("usertrace doctor") && said.contains(instead),
            "{said}"
        );
    }
    assert!(!directory.path().join("out").exists());
}

/// A `usertrace wait` that has read the counts.
fn waiting(directory: &Path, arguments: &[&str]) -> Child {
    let mut command = command(directory, &[&["wait"], arguments].concat());
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let opened = || {
        let files = fs::read_dir(format!("/proc/{}/fd", child.id()))
            .into_iter()
            .flatten();
        let mut files = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.any(|file| file.ends_with("web/fired"))
    };
    wait::until("it waits", opened);
    // It reads the file right after it has opened that.
    std::thread::sleep(std::time::Duration::from_millis(200));
    child
}

/// Its status, output and messages.
fn ended(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().unwrap();
    let [said, messages] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    (output.status.code(), said, messages)
}

/// Requirements: E1, E4
#[test]
fn wait_ends_when_a_trigger_fires() {
    let directory = root();
    let path = directory.path();
    let any = waiting(path, &["web"]);
    let other = waiting(path, &["web", "--trigger", "17", "--timeout", "2"]);
    let more = waiting(path, &["web", "--count", "3", "--json"]);
    fire(path, "fired 0", "fired 1");
    let line = "2026-11-27T06:56:45.416403Z trigger 3, process 4711, fired 1 time: shop:error if code == 7 then \
                snapshot\n";
    assert_eq!(ended(any), (Some(0), line.to_owned(), String::new()));
    let (status, said, messages) = ended(other);
    assert_eq!((status, &said[..]), (Some(3), ""), "{messages}");
    assert!(
        messages.contains("no trigger of trace \"web\" fired in time"),
        "{messages}"
    );
    fire(path, "fired 1", "fired 5");
    let (status, said, messages) = ended(more);
    assert_eq!(status, Some(0), "{messages}");
    let new: Vec<_> = said
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["new"].as_u64())
        .collect();
    assert_eq!(new, [Some(1), Some(4)], "{said}");
}

/// Requirements: E1, E4
#[test]
fn wait_that_cannot_end_is_an_error() {
    let directory = root();
    let path = directory.path();
    for (arguments, message) in [
        (&["wait", "db"][..], "there is no trace"),
        (
            &["wait", "web", "--trigger", "4"],
            "has no trigger 4: it has 3, 17",
        ),
    ] {
        let (status, _, messages) = usertrace(path, arguments);
        assert_eq!(status, Some(1));
        assert!(messages.contains(message), "{messages}");
    }
    for arguments in [&["--count", "0"][..], &["--timeout", "soon"]] {
        let arguments = [&["wait", "web"], arguments].concat();
        assert_eq!(usertrace(path, &arguments).0, Some(2));
    }
    let timeout = usertrace(path, &["wait", "web", "--timeout", "0"]);
    assert_eq!(timeout.0, Some(3), "{timeout:?}");
    // One that fires once and then is spent.
    let other = waiting(path, &["web", "--trigger", "17", "--count", "2"]);
    fire(
        path,
        "fired 0 suppressed 0 last 0 0",
        "fired 1 suppressed 0 spent   ",
    );
    let (status, said, messages) = ended(other);
    assert_eq!((status, said.lines().count()), (Some(1), 1), "{messages}");
    assert!(
        messages.contains("each was to fire once, and has"),
        "{messages}"
    );
}

/// Requirements: E1, E4
#[test]
fn wait_ends_with_its_trigger() {
    let directory = root();
    let path = directory.path();
    let spent = "3 matched 9 fired 0 suppressed 0 last 4711 1795762605416403206\n\
                 17 matched 1 fired 1 suppressed 0 last 5 1 spent\n";
    fs::write(path.join("root/web/fired"), spent).unwrap();
    let (status, _, messages) = usertrace(path, &["wait", "web", "--trigger", "17"]);
    assert_eq!(status, Some(1));
    assert!(
        messages.contains("each was to fire once, and has"),
        "{messages}"
    );
    let timeout = usertrace(path, &["wait", "web", "--timeout", "0"]);
    assert_eq!(timeout.0, Some(3), "trigger 3 can fire: {timeout:?}");
    let child = waiting(path, &["web"]);
    fire(path, "17 matched", "x7 matched");
    fire(path, "3 matched", "x matched");
    let (status, _, messages) = ended(child);
    assert_eq!(status, Some(1));
    assert!(
        messages.contains("trace \"web\" has no triggers"),
        "{messages}"
    );
    fs::write(path.join("root/web/fired"), FIRED).unwrap();
    let child = waiting(path, &["web"]);
    fs::remove_dir_all(path.join("root/web")).unwrap();
    let (status, _, messages) = ended(child);
    assert_eq!(status, Some(1));
    assert!(messages.contains("trace \"web\" was removed"), "{messages}");
}

/// What fired before the daemon came is answered once, also by the next daemon.
///
/// Requirements: C5
#[test]
fn daemon_answers_what_fired() {
    let directory = root();
    let path = directory.path();
    fire(path, "fired 0", "fired 2");
    let daemon = |log: &str| {
        let arguments = ["daemon", "--only-triggers", "--output", "out"];
        let mut command = command(path, &arguments);
        command
            .stderr(File::create(path.join(log)).unwrap())
            .spawn()
            .unwrap()
    };
    let said = |log: &str| fs::read_to_string(path.join(log)).unwrap();
    let mut first = daemon("first");
    let answer = "usertrace: web: no snapshot: no process has written events\n";
    wait::until("it answers", || said("first").contains(answer));
    end(&mut first);
    let mut second = daemon("second");
    // Nothing is to come, so let it have some rounds.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    end(&mut second);
    assert!(!said("second").contains("snapshot"), "{}", said("second"));
    fire(path, "fired 2", "fired 3");
    let mut third = daemon("third");
    wait::until("it answers", || said("third").contains(answer));
    end(&mut third);
    assert!(!path.join("out/web").exists(), "nothing is recorded");
}

fn end(daemon: &mut Child) {
    let pid = daemon.id().cast_signed();
    // SAFETY: the signal goes to a child that was not waited for.
    let sent = unsafe { libc::kill(pid, libc::SIGTERM) };
    assert_eq!(sent, 0);
    assert!(daemon.wait().unwrap().success());
}
