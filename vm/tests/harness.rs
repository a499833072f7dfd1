//! Tests of the harness with real guests: streams and statuses, and the report of each kind of
//! failure.
//!
//! They need the kernel of `scripts/kernel build`, with or without the series.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use usertrace_vm::{Guest, KernelConfig, Outcome, Run, Streams};

const PROGRAM: &str = env!("CARGO_BIN_EXE_usertrace-vm");

fn guest() -> Guest {
    Guest::new(KernelConfig::Release).unwrap().memory_mib(512)
}

fn sh(script: &str) -> Run {
    guest()
        .command(["sh", "-c", script])
        .run(Streams::capture())
        .unwrap()
}

/// Runs the program like `scripts/guest`.
fn program<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    let output = Command::new(PROGRAM)
        .arg("guest")
        .args(args)
        .stdin(Stdio::null())
        .output();
    output.unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_status_and_the_streams_pass_through() {
    let output = program(["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert_eq!(output.stdout, b"out\n");
    assert_eq!(output.stderr, b"err\n");
}

#[test]
#[ignore = "full tier: another status passes through in the_status_and_the_streams_pass_through"]
fn status_of_the_harness_is_distinguished_from_the_commands() {
    let run = sh("exit 121");
    assert_eq!(run.outcome, Outcome::Failed(121));
    assert_eq!(
        fs::read_to_string(run.dir.join("outcome")).unwrap(),
        "121 failed: status 121\n"
    );
}

#[test]
#[ignore = "full tier: another boot for a status"]
fn signal_has_the_status_of_a_shell() {
    assert_eq!(sh("kill -9 $$").outcome, Outcome::Failed(137));
}

#[test]
#[ignore = "full tier: two more boots"]
fn command_that_cannot_be_run_has_the_status_of_a_shell() {
    assert_eq!(
        guest()
            .command(["/no/such"])
            .run(Streams::capture())
            .unwrap()
            .outcome,
        Outcome::Failed(127)
    );
    assert_eq!(
        guest()
            .command(["/etc"])
            .run(Streams::capture())
            .unwrap()
            .outcome,
        Outcome::Failed(126)
    );
}

/// Bytes of every value, in an order that breaks naive tools.
fn bytes(len: usize) -> Vec<u8> {
    let mut x = 1u32;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
#[ignore = "full tier: others pass text both ways"]
fn every_byte_passes_both_ways() {
    let input = bytes(3_000_001);
    let mut child = Command::new(PROGRAM)
        .args([
            "guest",
            "--memory",
            "512M",
            "--",
            "sh",
            "-c",
            "tee /dev/stderr",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stdout == input,
        "{} of {} bytes came",
        output.stdout.len(),
        input.len()
    );
    assert!(
        output.stderr == input,
        "{} of {} bytes came",
        output.stderr.len(),
        input.len()
    );
}

#[test]
fn arguments_and_environment_arrive_as_they_are() {
    let run = guest()
        .command(["printf", "%s|", "a b", "", "'\"$x\n", "ä"])
        .run(Streams::capture())
        .unwrap();
    assert_eq!(String::from_utf8(run.stdout).unwrap(), "a b||'\"$x\n|ä|");
    let run = guest()
        .env("SAID", "x = y")
        .command(["sh", "-c", "echo \"$SAID\""])
        .run(Streams::capture())
        .unwrap();
    assert_eq!(run.stdout, b"x = y\n");
}

#[test]
fn background_process_is_no_hang() {
    let run = sh("sleep 1000 & echo started");
    assert_eq!(
        (run.outcome, &run.stdout[..]),
        (Outcome::Passed, &b"started\n"[..])
    );
}

#[test]
fn out_is_the_hosts_and_the_rest_of_the_host_is_read_only() {
    let dir = TempDir::with_prefix("a b,c").unwrap();
    fs::write(dir.path().join("from-host"), "x").unwrap();
    let repository = usertrace_vm::repository();
    let script = format!(
        "cat /out/from-host && echo y >/out/from-guest && echo z >/tmp/z && echo z >/run/z && \
         test -f '{0}/Cargo.toml' && ! touch '{0}/touched' && ! touch /usr/touched",
        repository.display()
    );
    let run = guest()
        .out(dir.path())
        .command(["sh", "-c", &script])
        .run(Streams::capture())
        .unwrap();
    assert_eq!(
        run.outcome,
        Outcome::Passed,
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert_eq!(run.stdout, b"x");
    assert_eq!(
        fs::read_to_string(dir.path().join("from-guest")).unwrap(),
        "y\n"
    );
    assert!(!repository.join("touched").exists());
}

#[test]
#[ignore = "full tier: guest tests need all three"]
fn the_guest_has_the_processors_the_memory_and_a_clock() {
    let run = guest().smp(3).memory_mib(700).command([
        "sh",
        "-c",
        "nproc; sed -n 's/MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo; \
         cat /sys/devices/system/clocksource/clocksource0/current_clocksource",
    ]);
    let run = run.run(Streams::capture()).unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "3");
    let kib: u64 = lines[1].parse().unwrap();
    assert!((500 << 10..700 << 10).contains(&kib), "{kib}");
    assert_ne!(lines[2], "jiffies");
}

/// On a busy host, the kernel cannot measure the frequency of its clock by an emulated timer.
#[test]
fn the_guest_is_told_how_fast_its_clock_is() {
    let mut child = Command::new(PROGRAM)
        .args(["guest", "--memory", "512M", "--", "sh", "-c"])
        .arg("cat /proc/uptime; read line; cat /proc/uptime; dmesg")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut uptime = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let seconds = line.split(' ').next().unwrap();
        seconds.parse::<f64>().unwrap()
    };
    let (outer, before, inner) = (Instant::now(), uptime(), Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    let inner = inner.elapsed();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let passed = uptime() - before;
    // The first reading may be as old as the machine.
    let outer = outer.elapsed();
    // It is printed in hundredths.
    assert!(inner.as_secs_f64() < passed + 0.02, "{inner:?} {passed}");
    assert!(passed < outer.as_secs_f64() + 0.02, "{outer:?} {passed}");
    let mut log = String::new();
    output.read_to_string(&mut log).unwrap();
    assert!(child.wait().unwrap().success());
    if cfg!(target_arch = "x86_64") {
        let (_, rest) = log.split_once("tsc_early_khz=").unwrap();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
        let khz: u64 = rest[..digits].parse().unwrap();
        let line = format!("tsc: Detected {}.{:03} MHz", khz / 1000, khz % 1000);
        assert!(log.contains(&line), "{line}: {log}");
    }
}

#[test]
fn panic_is_reported() {
    let output = program([
        "--memory",
        "512M",
        "--",
        "sh",
        "-c",
        "echo c >/proc/sysrq-trigger",
    ]);
    assert_eq!(output.status.code(), Some(121));
    let text = stderr(&output);
    assert!(
        text.contains("outcome: kernel panic: sysrq triggered crash"),
        "{text}"
    );
    assert!(
        text.contains("sysrq_handle_crash"),
        "no end of the console: {text}"
    );
    let log = text
        .lines()
        .find_map(|line| line.strip_prefix("console log: "))
        .unwrap();
    assert!(fs::read_to_string(log).unwrap().contains("Linux version"));
}

#[test]
fn hang_is_distinguished_from_a_timeout() {
    // Process 1, whose heartbeat it is, is frozen; the kernel itself goes on.
    let hang = "mkdir /sys/fs/cgroup/ice && echo 1 >/sys/fs/cgroup/ice/cgroup.procs && \
                echo 1 >/sys/fs/cgroup/ice/cgroup.freeze; sleep 1000";
    let run = guest()
        .silence(Duration::from_secs(10))
        .command(["sh", "-c", hang])
        .run(Streams::capture())
        .unwrap();
    assert!(matches!(run.outcome, Outcome::Hung(_)), "{}", run.explain());
    assert_eq!(run.outcome.code(), 122);
    let processors = fs::read_to_string(run.dir.join("processors")).unwrap();
    assert!(
        processors.contains("CPU#1") && processors.contains("RIP="),
        "{processors}"
    );

    let run = guest()
        .silence(Duration::from_secs(20))
        .timeout(Duration::from_secs(30))
        .command(["sleep", "1000"])
        .run(Streams::capture())
        .unwrap();
    assert!(
        matches!(run.outcome, Outcome::TimedOut(_)),
        "{}",
        run.explain()
    );
    assert_eq!(run.outcome.code(), 123);
}

#[test]
#[ignore = "full tier: another boot"]
fn broken_harness_is_reported() {
    let dir = TempDir::new().unwrap();
    let kernel = dir.path().join("bzImage");
    fs::write(&kernel, "no kernel").unwrap();
    let output = Command::new(PROGRAM)
        .args(["guest", "--", "true"])
        .env("USERTRACE_KERNEL", &kernel)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(120), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("outcome: broken harness"),
        "{}",
        stderr(&output)
    );

    let output = Command::new(PROGRAM)
        .args(["guest", "--", "true"])
        .env("USERTRACE_QEMU", "/no/qemu")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(120), "{}", stderr(&output));

    // The guest ends while its command runs.
    let run = sh("echo o >/proc/sysrq-trigger; sleep 1000");
    assert!(
        matches!(run.outcome, Outcome::Infra(_)),
        "{}",
        run.explain()
    );
}

/// QEMU's own errors are not the guest's: after one at the start, the harness reports it and starts
/// QEMU once more.
#[test]
#[ignore = "full tier: three boots for what happens rarely"]
fn a_qemu_that_gives_up_at_the_start_is_started_once_more() {
    let dir = TempDir::new().unwrap();
    let [qemu, count] = ["qemu", "count"].map(|name| dir.path().join(name));
    let run = |aborts: usize| {
        let script = format!(
            "#!/bin/sh\necho x >>'{0}'\n[ \"$(wc -l <'{0}')\" -gt {aborts} ] || kill -ABRT $$\nexec qemu-system-x86_64 \"$@\"\n",
            count.display()
        );
        let _ = fs::remove_file(&count);
        fs::write(&qemu, script).unwrap();
        fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(PROGRAM)
            .args(["guest", "--", "sh", "-c", "cat; exit 7"])
            .env("USERTRACE_QEMU", &qemu)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"input").unwrap();
        let output = child.wait_with_output().unwrap();
        let starts = fs::read_to_string(&count).unwrap().lines().count();
        (output, starts)
    };
    let again = "it is started once more";
    let (output, starts) = run(1);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert_eq!(output.stdout, b"input");
    assert!(stderr(&output).contains(again), "{}", stderr(&output));
    assert_eq!(starts, 2);

    let (output, starts) = run(2);
    assert_eq!(output.status.code(), Some(120), "{}", stderr(&output));
    assert_eq!(starts, 2);
}

#[test]
fn a_splat_is_not_a_pass_unless_it_is_allowed() {
    // The kernel prints what is written here as its own messages.
    let script = "echo 'WARNING: made up' >/dev/kmsg";
    let run = sh(script);
    assert!(
        matches!(run.outcome, Outcome::Splat(_)),
        "{}",
        run.explain()
    );
    assert_eq!((run.status, run.outcome.code()), (Some(0), 124));
    let run = guest()
        .allow_splat("made up")
        .command(["sh", "-c", script])
        .run(Streams::capture())
        .unwrap();
    assert_eq!(run.outcome, Outcome::Passed);
}

#[test]
#[ignore = "full tier: crash-tests read such dumps"]
fn a_crash_leaves_a_dump() {
    let out = TempDir::new().unwrap();
    let run = guest()
        .crash(true)
        .out(out.path())
        .command(["sh", "-c", "echo before; echo c >/proc/sysrq-trigger"])
        .run(Streams::capture())
        .unwrap();
    assert!(
        matches!(run.outcome, Outcome::Panicked(_)),
        "{}",
        run.explain()
    );
    let dump = run.dump.unwrap().unwrap();
    assert_eq!(dump, out.path().canonicalize().unwrap().join("vmcore"));
    let mut head = vec![0; 1 << 20];
    fs::File::open(&dump)
        .unwrap()
        .read_exact(&mut head)
        .unwrap();
    assert_eq!(&head[..4], b"\x7fELF");
    // The notes come first.
    assert!(head.windows(10).any(|w| w == b"VMCOREINFO"));
    assert!(head.windows(10).any(|w| w == b"OSRELEASE="));
    // All of the memory that was the dead kernel's is there.
    assert!(fs::metadata(&dump).unwrap().len() > 200 << 20);
}

#[test]
#[ignore = "full tier: no other test depends on the shell"]
fn without_a_command_a_person_has_a_shell() {
    let mut command = Command::new(PROGRAM);
    command
        .args(["guest", "--memory", "512M"])
        // Not what this machine's root has its shells do first.
        .args(["--env", "HOME=/"])
        .env("TERM", "dumb");
    let mut session = rexpect::session::spawn_command(command, Some(120_000)).unwrap();
    session.exp_string("# ").unwrap();
    session
        .send_line("echo sum=$((40 + 2)) tty=$(tty)")
        .unwrap();
    session.exp_string("sum=42 tty=/dev/ttyS0").unwrap();
    // Ctrl-C reaches the guest's program, and ends neither the shell nor the guest.
    session
        .send_line("sh -c 'echo is=$((2 * 21)); exec sleep 1000'")
        .unwrap();
    session.exp_string("is=42").unwrap();
    session.send_control('c').unwrap();
    session.send_line("exit 9").unwrap();
    session.exp_eof().unwrap();
    let status = session.process().wait().unwrap();
    assert!(format!("{status:?}").contains(", 9)"), "{status:?}");
}

#[test]
fn a_guest_dies_with_its_harness() {
    let mut child = Command::new(PROGRAM)
        .args([
            "guest",
            "--memory",
            "512M",
            "--",
            "sh",
            "-c",
            "echo up; sleep 1000",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = [0; 3];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut line)
        .unwrap();
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let qemu = children.trim().to_string();
    assert!(!qemu.is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    // Only a failing test waits so long.
    for _ in 0..12_000 {
        // A zombie has no command line.
        if fs::read(format!("/proc/{qemu}/cmdline"))
            .unwrap_or_default()
            .is_empty()
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("QEMU {qemu} outlives its harness");
}
