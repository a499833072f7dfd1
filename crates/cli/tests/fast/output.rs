//! Files of the fallback: when they are written, and reports of what could not be written (D3, D4,
//! D6, D7, D8).

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use super::disk::Disk;
use super::run::Run;
use super::trace;
use usertrace_testing::babeltrace;
use usertrace_testing::wait::until;

/// Requirements: D6
pub(crate) fn idle_process_makes_no_files() {
    let run = Run::new();
    run.success("idle", &[]);
    assert!(run.directories().is_empty());
    assert!(!run.path().join("usertrace.log").exists());
    // The output directory is not created either.
    let output = run.path().join("not/there");
    run.success("idle", &[("USERTRACE_OUTPUT", output.to_str().unwrap())]);
    run.wait();
    assert!(!output.exists());
}

pub(crate) fn send_request(child: &mut Child, what: u8) {
    child.stdin.as_mut().unwrap().write_all(&[what]).unwrap();
    let mut answer = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut answer)
        .unwrap();
    assert_eq!(answer, [what]);
}

/// Whether the directory has a trace that can be read while it is written.
fn is_there(directory: &Path) -> bool {
    fs::metadata(directory.join("metadata")).is_ok_and(|file| file.len() > 100)
}

/// The first switch creates the files, with the events so far. The end of the program adds the
/// rest.
///
/// Requirements: D4, D6
pub(crate) fn first_switch_writes_the_files() {
    for (rings, mode) in [
        ("cpu", "discard"),
        ("thread", "discard"),
        ("cpu", "overwrite"),
    ] {
        let run = Run::new();
        let mut child = run.start(
            "switches",
            &[("USERTRACE_RINGS", rings), ("USERTRACE_MODE", mode)],
        );
        // Switching an empty buffer does nothing.
        send_request(&mut child, b's');
        send_request(&mut child, b'e');
        send_request(&mut child, b'e');
        let directories = trace::directories(run.path());
        assert!(directories.is_empty(), "{directories:?}");
        send_request(&mut child, b's');
        until("a trace has two events", || {
            let directories = trace::directories(run.path());
            directories.len() == 1
                && is_there(&directories[0])
                && trace::read_unfinished(&directories[0]).events.len() == 2
        });
        let name = trace::directories(run.path())[0]
            .file_name()
            .unwrap()
            .to_owned();
        let parts: Vec<&str> = name.to_str().unwrap().rsplitn(3, '-').collect();
        assert_eq!(parts[1], child.id().to_string());
        assert!(parts[0].parse::<u64>().unwrap() > 1_700_000_000_000_000_000);
        send_request(&mut child, b'e');
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert_eq!(run.trace().threads()[&1], [0, 1, 2]);
    }
}

/// When a program has ended, its trace is complete, even if nobody waits for the daemons.
pub(crate) fn trace_is_complete_when_program_ends() {
    for mode in ["discard", "overwrite", "block"] {
        for _ in 0..20 {
            let run = Run::new();
            fs::remove_file(run.path().join(".running")).unwrap();
            run.success("fork", &[("USERTRACE_MODE", mode)]);
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_usertrace"));
            let output = command.arg("view").arg(run.path()).output().unwrap();
            super::run::assert_success(output.status, &output.stderr);
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text.lines().count(), 4005, "{mode}");
        }
    }
}

/// On request, all pages of all rings are allocated before the first event; otherwise only those of
/// events.
pub(crate) fn all_pages_are_allocated_early_on_request() {
    const RING: u64 = 1 << 20;
    // SAFETY: `sysconf` takes no pointers.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as u64;
    let sizes = [
        ("USERTRACE_SUBBUF_SIZE", "256k"),
        ("USERTRACE_SUBBUF_COUNT", "4"),
    ];
    let bytes = |variables: &[(&str, &str)]| -> u64 {
        let run = Run::new();
        let text = run.success("pages", &[&sizes, variables].concat());
        1024 * text.trim().parse::<u64>().unwrap()
    };
    let all = ("USERTRACE_PREFAULT", "all");
    let thread = ("USERTRACE_RINGS", "thread");
    for rings in [&[][..], &[thread]] {
        assert!(bytes(rings) < 128 << 10, "{rings:?}");
    }
    assert!(bytes(&[("USERTRACE_RINGS", "cpu"), all]) >= cpus * RING);
    // The ring of the thread is allocated, and no other.
    assert!((RING..2 * RING).contains(&bytes(&[thread, all])));
}

/// Daemons without an output read the rings, so that no event is lost, and write no file.
///
/// Requirements: D8
pub(crate) fn null_output_loses_nothing_and_writes_no_file() {
    let run = Run::new();
    let variables = [("USERTRACE_OUTPUT", "null"), ("USERTRACE_MODE", "block")];
    let mut command = run.command("flood", &variables);
    let output = command
        .current_dir(run.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    super::run::assert_success(output.status, &output.stderr);
    // More events than the rings hold: without a reader the program would wait for ever.
    assert_eq!(output.stdout, b"0\n");
    run.wait();
    let names: Vec<_> = fs::read_dir(run.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, [".running"]);
}

/// A thread's file is named after the thread's id and start time. Later threads reuse its ring.
///
/// Requirements: D6
pub(crate) fn each_thread_has_its_own_file() {
    let run = Run::new();
    run.success("many_threads", &[("USERTRACE_RINGS", "thread")]);
    let (mut own, mut names) = (BTreeSet::new(), BTreeSet::new());
    for stream in run.trace().streams {
        let name = stream.file_name().unwrap().to_str().unwrap();
        let parts: Vec<u64> = name
            .split('_')
            .skip(1)
            .map(|part| part.parse().unwrap())
            .collect();
        // The file names of shared rings have fewer parts.
        if let [tid, begin, _ring] = parts[..] {
            let threads = trace::read_file(&stream).threads();
            assert_eq!(threads.len(), 1, "{name}");
            own.extend(threads.into_keys());
            assert!(names.insert((tid, begin)), "{name}");
        }
    }
    // The first hundred threads run one after the other.
    assert!((0..100).all(|thread| own.contains(&thread)), "{own:?}");
}

/// Requirements: F3
pub(crate) fn report_names_chosen_back_end() {
    let run = Run::new();
    let with = |backend: Option<&str>, output: Option<&str>| {
        let mut command = run.command("report", &[]);
        command
            .env_remove("USERTRACE_BACKEND")
            .env_remove("USERTRACE_OUTPUT");
        command.current_dir(run.path());
        backend.map(|backend| command.env("USERTRACE_BACKEND", backend));
        output.map(|output| command.env("USERTRACE_OUTPUT", output));
        let output = command.output().unwrap();
        // An unknown back end is reported.
        assert!(output.status.success() && output.stderr.is_empty() != (backend == Some("what")));
        String::from_utf8(output.stdout).unwrap()
    };
    let directory = fs::canonicalize(run.path()).unwrap();
    let traces = |name: &str| format!(", to {}", directory.join(name).display());
    for (backend, output, place) in [
        (Some("fast"), None, "usertrace-traces"),
        (Some("auto"), None, "usertrace-traces"),
        (Some("auto"), Some("here"), "here"),
        (None, Some("here/there"), "here/there"),
    ] {
        let text = with(backend, output);
        assert!(
            text.starts_with("attached, fast") && text.contains(&traces(place)),
            "{text}"
        );
        let chosen = text.contains("this kernel has no trace buffers");
        assert_eq!(chosen, backend != Some("fast"), "{text}");
    }
    // Control sequences are replaced.
    let text = with(None, Some("a\u{1b}[31m\nb"));
    assert!(text.contains("/a\u{fffd}[31m\u{fffd}b, by "), "{text}");
    assert!(with(Some("fast"), Some("null")).starts_with("attached, fast, to nowhere"));
    assert!(with(None, None).contains("this kernel has no trace buffers"));
    assert!(with(Some("kernel"), Some("here")).contains("this kernel has no trace buffers"));
    assert!(with(Some("off"), Some("here")).contains("off"));
    assert!(with(Some("what"), Some("here")).contains("none of auto, kernel, fast and off"));
    let mut command = run.command("report", &[("USERTRACE_SUBBUF_SIZE", "5000")]);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(text, "no fallback: no ring has such a size\n");
}

/// Requirements: D7
pub(crate) fn blocking_loses_nothing() {
    for rings in ["cpu", "thread"] {
        let run = Run::new();
        let lost = run.success(
            "flood",
            &[
                ("USERTRACE_MODE", "block"),
                ("USERTRACE_RINGS", rings),
                ("USERTRACE_SUBBUF_SIZE", "4096"),
                ("USERTRACE_SUBBUF_COUNT", "2"),
            ],
        );
        assert_eq!(lost, "0\n", "{rings}");
        let trace = run.trace();
        assert_eq!(trace.discarded, 0);
        assert_eq!(trace.events.len(), 200_000);
    }
}

/// Each missing event is counted.
///
/// Requirements: D3, E7
pub(crate) fn every_loss_is_counted() {
    for rings in ["cpu", "thread"] {
        let run = Run::new();
        let lost: u64 = run
            .success(
                "flood",
                &[
                    ("USERTRACE_RINGS", rings),
                    ("USERTRACE_SUBBUF_SIZE", "4096"),
                    ("USERTRACE_SUBBUF_COUNT", "2"),
                ],
            )
            .trim()
            .parse()
            .unwrap();
        let trace = run.trace();
        assert!(lost > 0, "{rings}");
        assert_eq!(
            (trace.discarded, trace.events.len()),
            (lost, 200_000),
            "{rings}"
        );
    }
}

/// The program goes on, and the log reports the error.
pub(crate) fn full_disk_is_reported() {
    let run = Run::new();
    let output = run.path().join("file");
    fs::write(&output, "in the way").unwrap();
    run.success("ten", &[("USERTRACE_OUTPUT", output.to_str().unwrap())]);
    // The rings kept their contents, so they are written when the disk has room again.
    // SAFETY: `geteuid` takes no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let Some(disk) = Disk::new(&run, "64k") else {
        return;
    };
    let disk = disk.path();
    let mut child = run.start("switches", &[("USERTRACE_OUTPUT", disk.to_str().unwrap())]);
    fs::write(disk.join("other"), vec![0; 128 << 10]).unwrap_err();
    send_request(&mut child, b'e');
    send_request(&mut child, b's');
    until("the daemons begin to write", || {
        disk.join("usertrace.log").exists() || trace::directories(disk).len() == 1
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    fs::remove_file(disk.join("other")).unwrap();
    send_request(&mut child, b'e');
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let mut events = 0;
    until("both events are written", || {
        events = trace::directories(disk)
            .iter()
            .filter(|directory| is_there(directory))
            .map(|directory| trace::read_unfinished(directory).events.len())
            .sum();
        events == 2
    });
}

/// `usertrace record` works on a kernel without trace buffers, and prints a summary.
pub(crate) fn record_writes_whole_recording() {
    let run = Run::new();
    let traces = run.path().join("traces");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command
        .args(["record", "--json", "-q", "-o"])
        .arg(&traces)
        .arg("--");
    command.arg(std::env::current_exe().unwrap());
    let output = command.env(super::run::VARIABLE, "fork").output().unwrap();
    super::run::assert_success(output.status, &output.stderr);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["exit_status"], 0);
    let processes = json["processes"].as_array().unwrap();
    let mut events: Vec<_> = processes
        .iter()
        .map(|process| process["events"].as_u64())
        .collect();
    events.sort();
    assert_eq!(events, [5, 1000, 1000, 1000, 1000].map(Some));
    assert_eq!(trace::directories(&traces).len(), 5);
    assert!(!traces.join(".running").exists());
}

/// For several processes, the summary names the one with the most events, and a command that prints
/// only its events. For one process, it does not.
pub(crate) fn record_names_busiest_process() {
    let run = Run::new();
    let usertrace = Path::new(env!("CARGO_BIN_EXE_usertrace"));
    let record = |program: &[&str]| {
        let output = std::process::Command::new(usertrace)
            .args(["record", "-o", "some traces", "--"])
            .args(program)
            .arg(std::env::current_exe().unwrap())
            .current_dir(run.path())
            .output()
            .unwrap();
        super::run::assert_success(output.status, &output.stderr);
        let said = String::from_utf8(output.stderr).unwrap();
        let command = said.lines().find_map(|line| {
            let (said, command) =
                line.split_once(" wrote the most events, 1000 (to see it alone: ")?;
            assert!(
                said.starts_with("usertrace: process \"") && said.ends_with(')'),
                "{line}"
            );
            Some(command.strip_suffix(')').unwrap().to_owned())
        });
        let lines = command.map(|command| {
            let path = std::env::var("PATH").unwrap();
            let path = format!("{}:{path}", usertrace.parent().unwrap().display());
            let output = std::process::Command::new("sh")
                .args(["-c", &command])
                .env("PATH", path)
                .current_dir(run.path())
                .output()
                .unwrap();
            super::run::assert_success(output.status, &output.stderr);
            String::from_utf8(output.stdout).unwrap().lines().count()
        });
        fs::remove_dir_all(run.path().join("some traces")).unwrap();
        lines
    };
    let variable = super::run::VARIABLE;
    let [fork, events] = ["fork", "ten"].map(|program| format!("{variable}={program}"));
    assert_eq!(record(&["env", &fork]), Some(1000));
    assert_eq!(record(&["env", &events]), None);
}

/// The daemons write the version of CTF that `--ctf` names.
///
/// Requirements: F1
pub(crate) fn record_writes_ctf_2() {
    let printed = ["1.8", "2"].map(|version| {
        let run = Run::new();
        let traces = run.path().join("traces");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_usertrace"));
        command
            .args(["record", "-q", "--ctf", version, "-o"])
            .arg(&traces);
        command.arg("--").arg(std::env::current_exe().unwrap());
        let output = command.env(super::run::VARIABLE, "fork").output().unwrap();
        super::run::assert_success(output.status, &output.stderr);
        for directory in trace::directories(&traces) {
            let metadata = fs::read(directory.join("metadata")).unwrap();
            assert_eq!(metadata[0] == 0x1e, version == "2");
            let metadata = String::from_utf8_lossy(&metadata);
            let program = std::env::current_exe().unwrap();
            assert!(metadata.contains("cmdline"), "{metadata}");
            assert!(metadata.contains(program.to_str().unwrap()), "{metadata}");
            // The id of the clock: readers tell hosts apart by it.
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            assert!(metadata.contains(boot.trim_end()), "{metadata}");
        }
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_usertrace"));
        let output = command.arg("view").arg(&traces).output().unwrap();
        super::run::assert_success(output.status, &output.stderr);
        let text = String::from_utf8(output.stdout).unwrap();
        // Compare without times and process ids.
        let events = text
            .lines()
            .map(|line| line.split_once(") test:").unwrap().1.to_owned());
        let mut events: Vec<_> = events
            .map(|event| event.split_once("}, ").unwrap().1.to_owned())
            .collect();
        events.sort();
        events
    });
    assert_eq!(printed[0].len(), 4005);
    assert_eq!(printed[0], printed[1]);
}

/// All processes use the time of day that `record` passes on, here one that is an hour ahead.
/// Processes in another time namespace do not. Traces have the error of the clock that it passes
/// on.
///
/// Requirements: E8, F9
pub(crate) fn one_recording_has_one_time_of_day() {
    const HOUR: i64 = 3600 * 1_000_000_000;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_usertrace"));
    let place = tempfile::tempdir().unwrap();
    command
        .args(["record", "-q", "-o"])
        .arg(place.path().join("t"));
    command.args(["--", "sh", "-c", "printf %s \"$USERTRACE_CLOCK\""]);
    let output = command.output().unwrap();
    super::run::assert_success(output.status, &output.stderr);
    let handed = String::from_utf8(output.stdout).unwrap();
    let (offset, namespace) = handed.split_once('@').unwrap();
    // The error of the clock is behind it, if the kernel knows one.
    let offset = offset.split(',').next().unwrap();
    let offset: i64 = offset.parse().unwrap();
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_nanos() as i64
    };
    for (clock, ahead, has_error) in [
        (format!("{}@{namespace}", offset + HOUR), HOUR, false),
        (
            format!("{},1500000000@{namespace}", offset + HOUR),
            HOUR,
            true,
        ),
        (format!("{},1500000000@time:[1]", offset + HOUR), 0, false),
        (handed.clone(), 0, handed.contains(',')),
    ] {
        let run = Run::new();
        let before = now();
        run.success("fork", &[("USERTRACE_CLOCK", &clock)]);
        run.wait();
        let mut command = std::process::Command::new("babeltrace2");
        let output = command
            .arg("--clock-seconds")
            .arg(run.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let times = text.lines().map(|line| {
            let (seconds, ns) = line[1..]
                .split_once(']')
                .unwrap()
                .0
                .split_once('.')
                .unwrap();
            seconds.parse::<i64>().unwrap() * 1_000_000_000 + ns.parse::<i64>().unwrap()
        });
        let times: Vec<_> = times.collect();
        assert!(times.len() > 1000);
        // Allow for slightly different clock frequencies.
        let around = before + ahead - HOUR / 60..now() + ahead + HOUR / 60;
        assert!(
            times.iter().all(|time| around.contains(time)),
            "{clock}: {around:?}"
        );
        for directory in run.directories() {
            let metadata = fs::read_to_string(directory.join("metadata")).unwrap();
            let has = metadata.contains("\tprecision = ");
            assert_eq!(has, has_error, "{clock}: {metadata}");
        }
    }
}

/// If events were lost, `record` names the options that help. With one of them, none is lost.
///
/// Requirements: D7, E7
pub(crate) fn record_advises_on_losses() {
    let record = |options: &[&str]| {
        let run = Run::new();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_usertrace"));
        command.args([
            "record",
            "--json",
            "--subbuf-size",
            "4096",
            "--subbuf-count",
            "2",
        ]);
        command
            .args(options)
            .arg("-o")
            .arg(run.path().join("traces"))
            .arg("--");
        command.arg(std::env::current_exe().unwrap());
        let output = command.env(super::run::VARIABLE, "flood").output().unwrap();
        super::run::assert_success(output.status, &output.stderr);
        let printed = String::from_utf8(output.stdout).unwrap();
        let lost: u64 = printed.lines().next().unwrap().parse().unwrap();
        (lost, String::from_utf8(output.stderr).unwrap())
    };
    let (lost, stderr) = record(&[]);
    let advice = format!(
        "usertrace: {lost} events were lost, as rings were full: they need rings with more room (--subbuf-size 32k), or \
         programs that wait when a ring is full (--block)\n"
    );
    assert_eq!(lost > 0, stderr.contains(&advice), "{lost} {stderr}");
    assert_ne!(lost, 0);
    let (lost, stderr) = record(&["--block"]);
    assert!(
        lost == 0 && !stderr.contains("were lost"),
        "{lost} {stderr}"
    );
}

/// `record` takes the same words as the kernel's files.
///
/// Requirements: E4, F7
pub(crate) fn record_applies_trace_options() {
    let record = |arguments: &[&str]| {
        let run = Run::new();
        let traces = run.path().join("traces");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_usertrace"));
        command.args(["record", "-q", "-o"]).arg(&traces);
        command.args(arguments).arg("--");
        command.arg(std::env::current_exe().unwrap());
        let output = command
            .env(super::run::VARIABLE, "fields")
            .output()
            .unwrap();
        super::run::assert_success(output.status, &output.stderr);
        babeltrace::lines(&traces).lines
    };
    let names = |lines: &[String]| -> Vec<String> {
        let names = lines.iter().map(|line| {
            let name = line.split(" test:").nth(1).unwrap();
            name.split(':').next().unwrap().to_owned()
        });
        let mut names: Vec<_> = names.collect();
        names.dedup();
        names
    };
    for (patterns, expected) in [
        ("test:numbers", &["numbers"][..]),
        ("!numbers,!d*", &["many", "names", "end"]),
        ("*,!test:*,end", &["end"]),
        ("other:*", &[]),
    ] {
        assert_eq!(names(&record(&["-e", patterns])), expected, "{patterns}");
    }
    let lines = record(&["-e", "end", "--flight", "--context", "vpid,procname"]);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("{ vpid = "), "{lines:?}");
    let run = Run::new();
    for (filter, word) in [("0 a/b", "a/b"), ("!", "!")] {
        let text = run.success("report", &[("USERTRACE_FILTER", filter)]);
        let expected =
            format!("no fallback: \"{word}\" is no pattern of events, or there are too many\n");
        assert_eq!(text, expected);
    }
}
