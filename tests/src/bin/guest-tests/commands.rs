//! The commands of E1 to E4, as they are typed in a shell.

use std::os::unix::process::CommandExt;
use std::process::Command;

use usertrace_tests::program;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    e1_e2_e3_e4_commands_do_what_they_say,
    e1_f3_a_machine_is_examined,
];

/// What is typed, behind a dollar sign, and what is to be seen then. `numbered` writes as many events as it is told, each
/// of 24 bytes, or 32 in a ring that several threads write; a sub-buffer begins with 64.
const SESSION: &str = r#"
$ mkdir mytrace
$ ls -d /sys/kernel/debug/ltt/mytrace
/sys/kernel/debug/ltt/mytrace
$ ls mytrace
allocate
control
filter
filter_mask
main
start
stats
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
mytrace/processes/mode:overwrite
mytrace/processes/prefault:0
mytrace/processes/scope:global
mytrace/processes/subbuf_count:8
mytrace/processes/subbuf_size:65536
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
"#;

/// What was typed of it, and what was to be seen.
fn steps() -> impl Iterator<Item = (&'static str, &'static str)> {
    SESSION.split("\n$ ").skip(1).map(|step| {
        let (command, output) = step.split_once('\n').unwrap_or((step, ""));
        (command, output.trim_end_matches('\n'))
    })
}

fn e1_e2_e3_e4_commands_do_what_they_say() {
    // The control channel is the same each time, and of no interest here.
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
        seen += &format!("$ {command}\n{}\n", said.trim_end_matches('\n'));
        expected += &format!("$ {command}\n{output}\n");
    }
    assert_eq!(seen, expected, "\nseen:\n{seen}");
}

/// Nothing is missing here, but to somebody who is not to make traces.
fn e1_f3_a_machine_is_examined() {
    let doctor = |uid| {
        let mut command = Command::new(program::path("usertrace"));
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
