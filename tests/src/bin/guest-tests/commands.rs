//! The commands of E1 to E4, typed in a shell.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use usertrace_tests::program;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![shell_commands_control_traces];

pub(crate) const ON_ONE_KERNEL: &[Case] = cases![
    traces_outlive_the_commands_that_create_them,
    doctor_reports_missing_rights,
    recordings_in_ctf_2_equal_those_in_ctf_1_8,
];

/// A session: commands after a dollar sign, and their expected output. `numbered` writes events of
/// 24 bytes, or of 32 in a ring that several threads write. The header of a sub-buffer has 64
/// bytes.
const SESSION: &str = r#"
$ mkdir mytrace
$ ls -d /sys/kernel/debug/ltt/mytrace
/sys/kernel/debug/ltt/mytrace
$ ls mytrace
allocate
control
filter
filter_mask
fired
main
start
stats
triggers
$ cat mytrace/start mytrace/filter mytrace/filter_mask
0
*
0xffffffff
$ mkdir mytrace/processes
$ mkdir mytrace/processes
mkdir: cannot create directory 'mytrace/processes': File exists
$ echo 65536 > mytrace/processes/subbuf_size
$ echo 8 > mytrace/processes/subbuf_count
$ echo 1 > mytrace/processes/flight
$ echo 1 > mytrace/processes/global
$ grep . mytrace/processes/*
mytrace/processes/filter:0
mytrace/processes/filter_mask:0xffffffff
mytrace/processes/flight:1
mytrace/processes/global:1
mytrace/processes/key:0
mytrace/processes/mode:overwrite
mytrace/processes/prefault:0
mytrace/processes/scope:global
mytrace/processes/subbuf_count:8
mytrace/processes/subbuf_size:65536
mytrace/processes/value:0
$ echo 1000 > mytrace/processes/subbuf_size
bash: line 1: echo: write error: Invalid argument
$ dmesg | tail -n 1 | sed 's/.*ltt: //'
mytrace/processes/subbuf_size: "1000" refused: -22
$ echo 1 > mytrace/allocate
$ cat mytrace/allocate mytrace/start
1
0
$ echo 4096 > mytrace/processes/subbuf_size
bash: line 1: echo: write error: Device or resource busy
$ mkdir mytrace/more
mkdir: cannot create directory 'mytrace/more': Device or resource busy
$ rmdir mytrace/processes
rmdir: failed to remove 'mytrace/processes': Device or resource busy
$ rmdir mytrace/main
rmdir: failed to remove 'mytrace/main': Operation not permitted
$ numbered 2; heads
$ echo 1 > mytrace/start
$ numbered 3; heads
main 136
$ echo 0 > mytrace/filter
$ cat mytrace/filter
0
$ numbered 5; heads
main 136
$ echo test:other > mytrace/filter
$ numbered 7; heads
main 136
$ echo test:numbered > mytrace/filter
$ cat mytrace/filter
test:other
test:numbered
$ numbered 11; heads
main 136
main 328
$ echo numbered > mytrace/processes/filter
$ numbered 13; heads
main 136
main 328
processes 480
$ echo 0 > mytrace/processes/flight
$ cat mytrace/processes/mode
discard
$ echo '!test:*' > mytrace/filter
$ numbered 17; heads
main 136
main 328
processes 480
$ echo 1 > mytrace/filter
$ echo 0x80 > mytrace/filter_mask
$ numbered 19; heads
main 136
main 328
processes 480
$ echo 0x40 > mytrace/processes/filter_mask; echo 0x40 > mytrace/filter_mask
$ numbered 23; heads
main 136
main 328
processes 480
processes 800
$ echo 0 > mytrace/start
$ numbered 29; heads
main 136
main 328
processes 480
processes 800
$ rmdir mytrace
$ ls -d *
abi
limit_dead
limit_process
limit_total
limit_user
memory
reserved
"#;

/// The session's commands, each with its expected output.
fn steps() -> impl Iterator<Item = (&'static str, &'static str)> {
    SESSION.split("\n$ ").skip(1).map(|step| {
        let (command, output) = step.split_once('\n').unwrap_or((step, ""));
        (command, output.trim_end_matches('\n'))
    })
}

/// Requirements: E1, E2, E3, E4
fn shell_commands_control_traces() {
    // The control channel is always the same.
    let shell = "numbered() { \"$NUMBERED\" --events $1 >/dev/null; }; \
         heads() { sed -n 's/^ring [^ ]* \\([^c].*\\) [0-9]* head \\([0-9]*\\).*/\\1 \\2/p' */stats | sort; }";
    let mut seen = String::new();
    let mut expected = String::new();
    for (command, output) in steps() {
        let ran = Command::new("bash")
            .args([
                "-c",
                &format!("{shell}\n{{ eval \"$1\"; }} 2>&1"),
                "bash",
                command,
            ])
            .current_dir(usertrace_tests::control::ROOT)
            .env("LC_ALL", "C")
            .env("NUMBERED", program::path("numbered"))
            .output()
            .expect("bash");
        let said = String::from_utf8_lossy(&ran.stdout).replace("line 2:", "line 1:");
        // Kernels of distributions have names of errors in their log (CONFIG_SYMBOLIC_ERRNAME).
        let said = said.replace("refused: -EINVAL", "refused: -22");
        seen += &format!("$ {command}\n{}\n", said.trim_end_matches('\n'));
        expected += &format!("$ {command}\n{output}\n");
    }
    assert_eq!(seen, expected, "\nseen:\n{seen}");
}

/// Runs the command, and returns its status and output.
fn usertrace(arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(program::path("usertrace"));
    let output = command.args(arguments).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).expect("text");
    (output.status.code().expect("not killed"), said)
}

/// Runs the command, which must succeed without output.
fn done(arguments: &[&str]) {
    assert_eq!(usertrace(arguments), (0, String::new()), "{arguments:?}");
}

/// Runs a program that writes so many events.
fn numbered(count: &str) {
    let mut command = Command::new(program::path("numbered"));
    let output = command.args(["--events", count]).output();
    assert!(output.expect("it runs").status.success());
}

/// The number of readable events in all rings of the trace `mine`.
fn nr_events() -> u64 {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out");
    let out = out.to_str().expect("text");
    let (status, said) = usertrace(&["snapshot", "mine", "-o", out, "--quiet", "--json"]);
    assert_eq!(status, 0, "{said}");
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let processes = json["processes"].as_array().expect("processes").iter();
    processes
        .map(|p| p["events"].as_u64().expect("a number"))
        .sum::<u64>()
}

/// Traces that the tool's own commands create, change and remove.
///
/// Requirements: E1, E4
fn traces_outlive_the_commands_that_create_them() {
    let setup = [
        "--flight",
        "--subbuf-size",
        "8k",
        "--subbuf-count",
        "4",
        "--context",
        "vtid",
    ];
    done(&[&["start", "mine", "-e", "test:*"][..], &setup].concat());
    numbered("3");
    assert_eq!(nr_events(), 3);
    let (status, said) = usertrace(&["status", "mine"]);
    assert_eq!(status, 0);
    for line in [
        "mine: active, 1 process",
        "  events: test:*",
        "  channel main: cpu, overwrite, 4 sub-buffers of 8192 bytes in a ring",
        "    contexts: vtid",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    // Of its processes, those of a name or an id.
    for command in ["status", "list"] {
        let rows = |of: &str| {
            let (status, said) = usertrace(&[command, "mine", "--pid", of]);
            assert_eq!(status, 0, "{command} {of}: {said}");
            said.lines()
                .filter(|line| line.contains("numbered"))
                .count()
        };
        assert!(rows("numbered") > 0, "{command}");
        assert_eq!(rows("another"), 0, "{command}");
        assert_eq!(rows("1"), 0, "{command}");
    }
    done(&["filter", "mine", "test:other"]);
    numbered("5");
    assert_eq!(nr_events(), 3);
    done(&["filter", "mine", "--add", "test:num*"]);
    let has = (0, "test:other\ntest:num*\n".to_owned());
    assert_eq!(usertrace(&["filter", "mine"]), has);
    numbered("7");
    assert_eq!(nr_events(), 10);
    let (status, said) = usertrace(&["filter", "mine", "test:a/b"]);
    assert_eq!(status, 1);
    assert!(said.contains("cannot write \"0 test:a/b\" to "), "{said}");
    assert_eq!(usertrace(&["filter", "mine"]), has, "nothing was changed");
    done(&["stop", "mine"]);
    numbered("11");
    assert_eq!(nr_events(), 10);
    assert_eq!(usertrace(&["status", "mine"]).0, 3);
    // A fixed setting cannot be changed, and the existing trace stays.
    let (status, said) = usertrace(&["start", "mine", "--subbuf-size", "4k"]);
    assert_eq!(status, 1);
    assert!(
        said.contains("cannot write \"4096\"") && said.contains("busy"),
        "{said}"
    );
    done(&["start", "mine"]);
    numbered("13");
    assert_eq!(nr_events(), 23);
    // Conditions on values, which the program evaluates.
    done(&[
        "filter",
        "mine",
        "test:numbered if number >= 4 && $ctx.vpid > 0",
    ]);
    numbered("7");
    assert_eq!(nr_events(), 26);
    done(&["filter", "mine", "--add", "!* if number == 5"]);
    let shown = "test:numbered if number >= 4 && $ctx.vpid > 0\n!* if number == 5\n";
    assert_eq!(usertrace(&["filter", "mine"]), (0, shown.to_owned()));
    numbered("7");
    assert_eq!(nr_events(), 28);
    let (status, said) = usertrace(&["filter", "mine", "test:numbered if number >"]);
    assert!(
        status == 2 && said.contains("  number >\n          ^"),
        "{said}"
    );
    assert_eq!(
        usertrace(&["filter", "mine"]).1,
        shown,
        "nothing was changed"
    );
    // The kernel only looks at the size and at parentheses.
    fs::write("/sys/kernel/ltt/mine/filter", "1 * if number >").unwrap();
    numbered("7");
    assert_eq!(nr_events(), 28, "what is no expression accepts nothing");
    done(&["destroy", "mine"]);
    let (status, said) = usertrace(&["stop", "mine"]);
    assert_eq!(
        (status, said.contains("there is no trace")),
        (1, true),
        "{said}"
    );
}

/// Recordings and snapshots in CTF 2 equal those in CTF 1.8, for a channel with contexts.
///
/// Requirements: F1
fn recordings_in_ctf_2_equal_those_in_ctf_1_8() {
    let usertrace = |arguments: &[&str]| {
        let mut command = Command::new(program::path("usertrace"));
        let output = command.args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        assert_eq!(said, "", "{arguments:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    // The text after the process id, which differs; and whether all metadata are of this
    // version.
    let read = |directory: &str, version: &str| -> Vec<String> {
        let traces = fs::read_dir(directory).expect("a directory");
        for entry in traces {
            let metadata = entry.expect("an entry").path().join("metadata");
            let metadata = fs::read(metadata).expect("metadata");
            assert_eq!(metadata.starts_with(b"\x1e"), version == "2");
        }
        let text = usertrace(&["view", directory]);
        let events = text.lines().map(|line| {
            let (_, event) = line.split_once(") test:").expect("an event");
            let (name, fields) = event.split_once(": ").expect("fields");
            let (_, fields) = fields.rsplit_once("}, ").expect("contexts");
            format!("{name} {fields} {}", event.contains("{ vtid = "))
        });
        events.collect()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let numbered = program::path("numbered");
    let numbered = numbered.to_str().expect("text");
    let read = ["1.8", "2"].map(|version| {
        let out = |name: &str| {
            let path = directory.path().join(format!("{name}-{version}"));
            path.to_str().expect("text").to_owned()
        };
        let (recorded, taken) = (out("recorded"), out("taken"));
        let options = [
            "record",
            "-q",
            "--ctf",
            version,
            "--context",
            "vtid",
            "-o",
            &recorded,
        ];
        usertrace(&[&options, &["--", numbered, "--events", "50"][..]].concat());
        usertrace(&["start", "mine", "--context", "vtid"]);
        let mut command = Command::new(numbered);
        let output = command.args(["--events", "30"]).output();
        assert!(output.expect("it runs").status.success());
        usertrace(&["snapshot", "mine", "-q", "--ctf", version, "-o", &taken]);
        usertrace(&["destroy", "mine"]);
        let [mut recorded, mut taken] = [recorded, taken].map(|path| read(&path, version));
        // The events may be of any CPUs.
        recorded.sort_unstable();
        taken.sort_unstable();
        (recorded, taken)
    });
    assert_eq!((read[0].0.len(), read[0].1.len()), (50, 30));
    assert!(read[0].0[0].ends_with(" true"), "{}", read[0].0[0]);
    assert_eq!(read[0], read[1]);
}

/// Nothing is missing here, but to somebody who is not to make traces.
///
/// Requirements: E1, F3
fn doctor_reports_missing_rights() {
    // Where others may execute it.
    let public = tempfile::tempdir().expect("a directory");
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(public.path(), all).expect("permissions");
    let usertrace = public.path().join("usertrace");
    fs::copy(program::path("usertrace"), &usertrace).expect("a copy");
    let doctor = |uid| {
        let mut command = Command::new(&usertrace);
        let output = command.arg("doctor").uid(uid).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    };
    let (status, said) = doctor(0);
    assert_eq!(status, Some(0), "{said}");
    for line in [
        "ok  kernel        has trace buffers for user space",
        "ok  rseq ",
        "ok  control       /sys/kernel/ltt, 0 traces",
        "ok  permission ",
        "ok  limit_total ",
    ] {
        assert!(
            said.lines().any(|said| said.starts_with(line)),
            "{line}: {said}"
        );
    }
    let (status, said) = doctor(1234);
    assert_eq!(status, Some(1), "{said}");
    let missing: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("no "))
        .collect();
    assert_eq!(
        missing,
        ["no  permission    this user cannot make traces"],
        "{said}"
    );
}
