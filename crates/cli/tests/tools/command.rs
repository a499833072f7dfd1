//! The command itself: its exit statuses and its output (C7, F1).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::resource::{Resource, setrlimit};

use usertrace_testing::dump::{
    Machine, PAGE, Process, SYNC, Style, Trace, elf, file, machine, save_raw,
};
use usertrace_testing::{babeltrace, words};

fn usertrace(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn dump() -> Machine {
    let mut process = Process::new(1, 101, "prog", 2);
    process.control[0].meta(SYNC[0], "1 t:number 6 u64 n");
    for n in 0..100u64 {
        process.main[n as usize % 2].event(1, SYNC[0] + 2 * n, &n.to_le_bytes());
    }
    machine(&[Trace {
        generation: 7,
        name: "mine".into(),
        processes: vec![process],
    }])
}

/// Runs the command with a limit of file size, as a substitute for a full disk.
fn usertrace_with_limit(bytes: u64, arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    let limit = move || Ok(setrlimit(Resource::RLIMIT_FSIZE, bytes, bytes)?);
    // SAFETY: between fork and exec, the child makes one system call and touches no shared state.
    unsafe { command.pre_exec(limit) };
    command
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

/// A ring that finds no room is reported, and the others are written. A file that cannot be
/// complete is an error. SIGXFSZ never ends the command.
///
/// Requirements: C7, F2
#[test]
fn full_disk_loses_only_the_data_without_room() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut process = Process::new(1, 101, "prog", 2);
    process.control[0].meta(SYNC[0], "1 t:number 6 u64 n");
    for (ring, numbers) in [(0, 0..900u64), (1, 900..910)] {
        for n in numbers {
            assert!(process.main[ring].event(1, SYNC[0] + 2 * n, &n.to_le_bytes()));
        }
    }
    let machine = machine(&[Trace {
        generation: 7,
        name: "mine".into(),
        processes: vec![process],
    }]);
    fs::write(path.join("vmcore"), elf(&machine, Style::Runs)).unwrap();
    let extract = ["extract", "vmcore", "-o", "out", "--json"];
    let output = usertrace_with_limit(12 << 10, &extract, path);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = "process 101 (prog) in trace mine: 900 events could not be written: File too large";
    assert!(stderr.contains(said), "{stderr}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_process = &json["traces"][0]["processes"][0];
    assert_eq!(
        (&of_process["events"], &of_process["unwritten"]),
        (&10.into(), &900.into())
    );
    let read = babeltrace::lines(&path.join("out"));
    assert_eq!((read.lines.len(), read.discarded), (10, 900));

    usertrace(&["extract", "vmcore", "-o", "whole"], path);
    for arguments in [["export", "--json"], ["report", "--detail=1"]] {
        let [command, format] = arguments;
        let output = usertrace_with_limit(4096, &[command, format, "-o", "file", "whole"], path);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = "usertrace: cannot write file: File too large";
        assert!(stderr.contains(said), "{stderr}");
        assert!(!path.join("file").exists());
    }
}

/// The summary says when and where the kernel crashed, by the events' clock. Impossible values of a
/// dump are ignored.
///
/// Requirements: C7
#[test]
fn dump_reports_time_and_place_of_the_crash() {
    let directory = tempfile::tempdir().unwrap();
    for (cycles, at) in [
        (SYNC[0] + 1234, "2023-11-14T22:13:20.000000617Z"),
        (0, "2023-11-14T22:13:21Z"),
        (u64::MAX, "2023-11-14T22:13:21Z"),
    ] {
        let mut dump = dump();
        dump.crash = Some((cycles, 3, 77));
        fs::write(directory.path().join("vmcore"), elf(&dump, Style::Runs)).unwrap();
        let out = format!("out-{cycles}");
        let output = usertrace(
            &["extract", "vmcore", "-o", &out, "--json"],
            directory.path(),
        );
        let stderr = text(&output.stderr);
        let expected = format!("kernel 7.3.4-test, crashed at {at} on CPU 3, in thread 77\n");
        assert!(stderr.contains(&expected), "{stderr}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let is_known = cycles == SYNC[0] + 1234;
        let ns = is_known.then_some(1_700_000_000_000_000_617i64);
        assert_eq!(json["crash_ns"].as_i64(), ns);
        assert_eq!(
            (json["crash_cpu"].as_u64(), json["crash_thread"].as_u64()),
            (Some(3), Some(77))
        );
        let metadata =
            fs::read_to_string(directory.path().join(out).join("mine/prog-101-1/metadata"));
        let said = metadata
            .unwrap()
            .contains("crash_ns = 1700000000000000617;");
        assert_eq!(said, is_known);
    }
}

#[test]
fn a_dump_is_extracted() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("vmcore"), elf(&dump(), Style::Runs)).unwrap();
    let output = usertrace(
        &["extract", "vmcore", "-o", "out", "--json"],
        directory.path(),
    );
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("kernel 7.3.4-test, crashed at 2023-11-14T22:13:21Z"),
        "{stderr}"
    );
    assert!(
        stderr.contains("trace mine: 100 events of 1 process, 0 lost"),
        "{stderr}"
    );
    assert!(
        stderr.contains("2023-11-14T22:13:20.000000099Z"),
        "{stderr}"
    );
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["traces"][0]["processes"][0]["events"], 100);
    assert_eq!(json["traces"][0]["processes"][0]["pid"], 101);
    assert_eq!(json["kernel"], "7.3.4-test");
    let read = babeltrace::lines(&directory.path().join("out"));
    assert_eq!(read.lines.len(), 100);
    assert!(
        directory
            .path()
            .join("out/mine/prog-101-1/metadata")
            .exists()
    );

    // An existing extraction is not overwritten.
    let again = usertrace(&["extract", "vmcore", "-o", "out"], directory.path());
    assert_eq!(again.status.code(), Some(1));
    assert!(
        text(&again.stderr).contains("cannot write to out"),
        "{}",
        text(&again.stderr)
    );

    // In CTF 2, the events are the same.
    let output = usertrace(
        &["extract", "vmcore", "-o", "two", "--ctf", "2"],
        directory.path(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let metadata = fs::read(directory.path().join("two/mine/prog-101-1/metadata")).unwrap();
    assert!(metadata.starts_with(b"\x1e{\"type\":\"preamble\""));
    let [one, two] = ["out", "two"].map(|path| usertrace(&["view", path], directory.path()));
    assert_eq!(text(&one.stdout).lines().count(), 100);
    assert_eq!(text(&one.stdout), text(&two.stdout));
    let output = usertrace(&["extract", "vmcore", "--ctf", "3"], directory.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("neither 1.8 nor 2"));

    // Without a name for the directory.
    let unnamed = usertrace(&["extract", "vmcore", "--json=summary"], directory.path());
    assert_eq!(unnamed.status.code(), Some(0));
    assert!(unnamed.stdout.is_empty());
    let json = fs::read(directory.path().join("summary")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let made = json["directory"].as_str().unwrap();
    assert!(made.starts_with("usertrace-2") && directory.path().join(made).is_dir());
}

/// Extracts a machine's dump in a directory, to `out`. Returns the exit status, the messages, and
/// the summary in JSON.
fn extract_to_out(
    directory: &Path,
    options: &[&str],
    machine: &Machine,
    style: Style,
) -> (i32, String, serde_json::Value) {
    fs::write(directory.join("vmcore"), elf(machine, style)).unwrap();
    let _ = fs::remove_dir_all(directory.join("out"));
    let arguments = ["extract", "vmcore", "-o", "out", "--json"];
    let output = usertrace(&[&arguments[..], options].concat(), directory);
    let stderr = text(&output.stderr).to_owned();
    let json = serde_json::from_slice(&output.stdout).unwrap_or(serde_json::Value::Null);
    (output.status.code().unwrap(), stderr, json)
}

/// Whether the extracted trace says that it may be forged, in the metadata and when it is read.
fn may_be_forged(directory: &Path) -> bool {
    let metadata = fs::read_to_string(directory.join("out/mine/prog-101-1/metadata"));
    let view = usertrace(&["view", "out"], directory);
    let said = text(&view.stderr).contains("a program may have forged some of these traces");
    assert_eq!(metadata.unwrap().contains("may_be_forged = 1;"), said);
    assert_eq!(text(&view.stdout).lines().count(), 100);
    said
}

/// The summary, JSON and the traces say how the root page was found, and whether it may be forged.
///
/// Requirements: F4
#[test]
fn extract_reports_trust_in_root_page() {
    let directory = tempfile::tempdir().unwrap();
    let machine = dump();
    let address = format!("{:#x}", machine.root);
    for (options, style, found_by, how) in [
        (
            &[][..],
            Style::Runs,
            "vmcoreinfo",
            "named by the dump's vmcoreinfo",
        ),
        (
            &["--root-page", &address],
            Style::WithoutNotes,
            "option",
            "named by --root-page",
        ),
    ] {
        let (status, stderr, json) = extract_to_out(directory.path(), options, &machine, style);
        assert_eq!(status, 0, "{stderr}");
        assert!(
            stderr.contains(&format!("root page at {address}: {how}\n")),
            "{stderr}"
        );
        let root = serde_json::json!({
            "address": machine.root, "found_by": found_by, "may_be_forged": false,
            "place": null, "candidates": null, "consistent": null,
        });
        assert_eq!(json["root"], root);
        assert!(!may_be_forged(directory.path()));
    }
}

/// A root page found by a search may be forged; of equally good ones, none is chosen.
///
/// Requirements: F4
#[test]
fn extract_reports_trust_in_searched_root_page() {
    let directory = tempfile::tempdir().unwrap();
    let machine = dump();
    let address = format!("{:#x}", machine.root);
    // By a search, beside another page that leads nowhere.
    let mut searched = dump();
    let page = searched.memory.copy(searched.root);
    let other = searched.memory.page(&page);
    searched.memory.store(other + 32, 77 << 12);
    let (status, stderr, json) =
        extract_to_out(directory.path(), &[], &searched, Style::WithoutNotes);
    assert_eq!(status, 0, "{stderr}");
    let how = "found by a search: 2 candidates, 1 consistent; it may be forged by a program of that machine";
    assert!(
        stderr.contains(&format!("root page at {address}: {how}\n")),
        "{stderr}"
    );
    let root = serde_json::json!({
        "address": machine.root, "found_by": "search", "may_be_forged": true,
        "place": "memory", "candidates": 2, "consistent": 1,
    });
    assert_eq!(json["root"], root);
    assert!(may_be_forged(directory.path()));

    // The other page is as good as the real one.
    let directory_page = searched.memory.copy(searched.directory[0]);
    let copy = searched.memory.page(&directory_page);
    searched.memory.store(other + 32, copy);
    let (status, stderr, json) =
        extract_to_out(directory.path(), &[], &searched, Style::WithoutNotes);
    assert_eq!((status, json), (1, serde_json::Value::Null), "{stderr}");
    for candidate in [searched.root, other] {
        let said = format!(
            "candidate {candidate:#x} leads to a consistent directory with 1 buffer, of traces mine\n"
        );
        assert!(stderr.contains(&said), "{stderr}");
    }
    assert!(
        stderr.contains("several are equally good") && stderr.contains("--root-page"),
        "{stderr}"
    );
    assert!(!directory.path().join("out").exists());

    // Neither page leads anywhere.
    for root in [searched.root, other] {
        searched.memory.store(root + 32, 77 << 12);
    }
    let (status, stderr, _) = extract_to_out(directory.path(), &[], &searched, Style::WithoutNotes);
    assert_eq!(status, 1, "{stderr}");
    let first = searched.root.min(other);
    let said = format!(
        "the root page at {first:#x} of vmcore leads to a directory at 0x4d000, which is not there, nor are those of 1 more"
    );
    assert!(stderr.contains(&said), "{stderr}");
}

/// In an image without the machine's holes, memory has wrong addresses.
///
/// Requirements: C7
#[test]
fn image_without_holes_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let mut machine = dump();
    let root = machine.memory.copy(machine.root);
    let moved = machine.memory.pages.split_off(&machine.root);
    machine.memory.pages = moved
        .into_iter()
        .map(|(address, page)| (address - PAGE, page))
        .collect();
    machine.memory.pages.insert(machine.root - PAGE, root);
    save_raw(&path, &machine);
    let output = usertrace(&["extract", "--raw", "image"], directory.path());
    let said = format!(
        "the root page at {:#x} of image leads to a directory at {:#x}, which is not there",
        machine.root - PAGE,
        machine.directory[0]
    );
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(&said) && !stderr.contains("no root page"),
        "{stderr}"
    );
}

/// An unreadable directory may have had traces.
///
/// Requirements: C7
#[test]
fn unreadable_directory_is_not_called_empty() {
    let directory = tempfile::tempdir().unwrap();
    let mut machine = dump();
    for page in &machine.directory {
        machine.memory.pages.remove(page);
    }
    fs::write(directory.path().join("vmcore"), elf(&machine, Style::Runs)).unwrap();
    let output = usertrace(&["extract", "vmcore"], directory.path());
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("is not in the dump"), "{stderr}");
    assert!(!stderr.contains("there was no trace"), "{stderr}");
    assert!(stderr.contains("no trace was extracted"), "{stderr}");
}

/// A wrong length, of the note itself or of the one before, hides nothing.
///
/// Requirements: C7
#[test]
fn wrong_length_of_a_note_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = elf(&dump(), Style::Runs);
    let name = b"VMCOREINFO\0";
    let name = bytes
        .windows(name.len())
        .position(|part| part == name)
        .unwrap();
    let core = bytes.windows(5).position(|part| part == b"CORE\0").unwrap();
    for length in [name - 8, core - 8] {
        for wrong in [u32::MAX, 1 << 20, 8] {
            let mut bytes = bytes.clone();
            bytes[length..][..4].copy_from_slice(&wrong.to_le_bytes());
            fs::write(directory.path().join("vmcore"), &bytes).unwrap();
            let out = format!("out-{length}-{wrong}");
            let output = usertrace(&["extract", "vmcore", "-o", &out], directory.path());
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{stderr}");
            assert!(stderr.contains("100 events"), "{stderr}");
            assert!(stderr.contains("a note whose length is wrong"), "{stderr}");
        }
    }
}

/// A search skips holes: reading them page by page would take minutes.
///
/// Requirements: C7
#[test]
fn sparse_image_is_searched_quickly() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    save_raw(&path, &dump());
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(512 << 30)
        .unwrap();
    let output = usertrace(
        &["extract", "--raw", "image", "-o", "out"],
        directory.path(),
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("100 events"));
}

#[test]
fn damage_has_an_exit_status_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut machine = dump();
    let page = machine.directory[0];
    machine.memory.store(page + 8, page);
    fs::write(directory.path().join("vmcore"), elf(&machine, Style::Runs)).unwrap();
    let output = usertrace(&["extract", "vmcore"], directory.path());
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text(&output.stderr).contains("leads back"),
        "{}",
        text(&output.stderr)
    );
    assert!(text(&output.stderr).contains("100 events"));
}

#[test]
fn no_trace_has_an_exit_status_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    // A kernel without trace buffers.
    let mut info = Vec::new();
    words(&mut info, &[0]);
    let other = file(&[("VMCOREINFO", 0, b"OSRELEASE=6.1\n")], &[(PAGE, info, 8)]);
    fs::write(directory.path().join("other"), other).unwrap();
    // A kernel without traces.
    let mut machine = dump();
    machine.memory.store(machine.root + 32, 0);
    fs::write(directory.path().join("idle"), elf(&machine, Style::Runs)).unwrap();
    for (vmcore, message) in [("other", "ltt_root"), ("idle", "there was no trace")] {
        let output = usertrace(&["extract", vmcore], directory.path());
        assert_eq!(output.status.code(), Some(4), "{vmcore}");
        assert!(
            text(&output.stderr).contains(message),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn unreadable_input_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("text"), "some text").unwrap();
    for (vmcore, message) in [
        (
            "text",
            "cannot read text: this is neither an ELF file nor a dump",
        ),
        (
            "nothing",
            "cannot read nothing: cannot read the file: No such file",
        ),
    ] {
        let output = usertrace(&["extract", vmcore, "-o", "out"], directory.path());
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains(message),
            "{}",
            text(&output.stderr)
        );
        assert!(!directory.path().join("out").exists());
    }
    assert_eq!(
        usertrace(&["extract"], directory.path()).status.code(),
        Some(2)
    );
}

#[test]
fn missing_control_file_system_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, status) in [
        (&["record", "--root", ".", "--", "true"][..], 125),
        (&["list", "--root", "."], 1),
        (&["snapshot", "--root", ".", "mine"], 1),
    ] {
        let output = usertrace(arguments, directory.path());
        assert_eq!(output.status.code(), Some(status));
        assert!(text(&output.stderr).contains("mount -t ltt ltt /sys/kernel/ltt"));
    }
    // Nothing is left behind.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A program's options are its own, with `--` in front of it and without.
///
/// Requirements: F9
#[test]
fn program_needs_no_separator() {
    let directory = tempfile::tempdir().unwrap();
    for before in [&[][..], &["--"]] {
        let arguments = [
            &["record", "--quiet"],
            before,
            &["sh", "-c", "echo $1 $2; exit 3", "-", "--quiet", "-p"],
        ]
        .concat();
        let output = usertrace(&arguments, directory.path());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(text(&output.stdout), "--quiet -p\n");
    }
    for arguments in [
        &["record", "--bogus", "true"][..],
        &["record", "-p", "1", "true"],
    ] {
        let output = usertrace(arguments, directory.path());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    // The new directory of a recording without events is removed.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Recordings that begin in the same second have different directories.
///
/// Requirements: F9
#[test]
fn recordings_that_begin_together_have_directories_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let start = |_| {
        Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args(["record", "--json", "cat"])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut recordings: Vec<_> = (0..4).map(start).collect();
    let there = || fs::read_dir(directory.path()).unwrap().count();
    while there() < 4 {
        for recording in &mut recordings {
            let ended = recording.try_wait().unwrap();
            assert!(ended.is_none(), "{:?}", recording.stderr.take());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // The programs end when their input ends.
    for recording in recordings {
        let output = recording.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    assert_eq!(there(), 0);
}

/// The fallback begins with a program, so only the kernel's buffers allow recording by process id.
///
/// Requirements: F3
#[test]
fn recording_by_pid_needs_the_kernel() {
    if usertrace_sys::Calls::discover().is_ok() {
        println!("skipped: this kernel has trace buffers of its own");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let pid = std::process::id().to_string();
    let output = usertrace(&["record", "-p", &pid], directory.path());
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.contains("programs that run already can be"), "{said}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn missing_trace_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("abi"), "version 2\n").unwrap();
    let arguments = ["snapshot", "--root", ".", "mine", "-o", "out"];
    let output = usertrace(&arguments, directory.path());
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("no snapshot of mine: there is no trace ./mine"),
        "{stderr}"
    );
    assert!(!directory.path().join("out").exists());
    // A trace without processes.
    fs::create_dir_all(directory.path().join("mine/main")).unwrap();
    fs::create_dir_all(directory.path().join("mine/control")).unwrap();
    let output = usertrace(&arguments, directory.path());
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("0 events of 0 processes"), "{stderr}");
    assert!(directory.path().join("out").is_dir());
}

/// Requirements: E2, E3
#[test]
fn channels_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("abi"), "version 2\n").unwrap();
    for (channel, scope, flight) in [("main", "cpu", "0"), ("net", "global", "1")] {
        let path = directory.path().join("mine").join(channel);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("scope"), format!("{scope}\n")).unwrap();
        fs::write(path.join("flight"), format!("{flight}\n")).unwrap();
    }
    fs::create_dir(directory.path().join("mine/control")).unwrap();
    let output = usertrace(&["list", "--root", "."], directory.path());
    let want = "mine: not active, 0 processes\n  channel main: cpu, discard\n  channel net: global, overwrite\n";
    assert_eq!(text(&output.stdout), want);
    let output = usertrace(&["list", "--root", ".", "--json"], directory.path());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["channels"][1]["mode"], "overwrite");
}

const LIBRARIES: [(&str, &str); 4] = [
    ("--malloc", "libusertrace_malloc.so"),
    ("--pthread", "libusertrace_pthread.so"),
    ("--dl", "libusertrace_dl.so"),
    ("--function", "libusertrace_function.so"),
];

/// Commands on named traces change the control file system; a directory stands in for it here.
///
/// Requirements: E1, E4
#[test]
fn traces_are_started_and_stopped_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let file = |name: &str| root.join("mine").join(name);
    fs::create_dir_all(file("main")).unwrap();
    fs::create_dir_all(file("net")).unwrap();
    for (name, text) in [
        ("../abi", "version 2\n"),
        ("start", ""),
        ("filter", "*\n"),
        ("main/subbuf_size", ""),
        ("main/mode", ""),
        ("main/contexts", ""),
        ("net/filter", "0\n"),
    ] {
        fs::write(file(name), text).unwrap();
    }
    let run = |arguments: &[&str]| {
        let output = usertrace(&[arguments, &["--root", "."]].concat(), root);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        (output.status.code().unwrap(), said)
    };
    let has = |name: &str| fs::read_to_string(file(name)).unwrap();
    let nothing = String::new();

    let asked = ["--subbuf-size", "64k", "--context", "vtid,procname"];
    let started = run(&[&["start", "mine"][..], &asked].concat());
    assert_eq!(started, (0, nothing.clone()));
    assert_eq!(has("start"), "1");
    assert_eq!(has("main/subbuf_size"), "65536");
    assert_eq!(has("main/contexts"), "vtid procname");
    let (status, said) = run(&["status", "mine"]);
    assert_eq!(status, 0, "{said}");
    assert!(said.starts_with("mine: active, 0 processes\n  events: *\n  channel main: "));
    assert!(said.contains("\n    contexts: vtid procname\n"), "{said}");
    assert!(said.contains("\n    events: 0\n"), "{said}");

    assert_eq!(run(&["stop", "mine"]), (0, nothing.clone()));
    assert_eq!(has("start"), "0");
    assert_eq!(run(&["status", "mine"]).0, 3);

    assert_eq!(run(&["start", "--block", "mine"]).0, 0);
    assert_eq!(has("main/mode"), "block");
    assert_eq!(run(&["start", "--block", "--flight", "mine"]).0, 2);

    assert_eq!(run(&["filter", "mine"]), (0, "*\n".to_owned()));
    fs::write(file("filter"), "").unwrap();
    assert_eq!(run(&["filter", "mine", "!a:*"]), (0, nothing.clone()));
    assert_eq!(has("filter"), "1 !a:*");
    fs::write(file("net/filter"), "").unwrap();
    let added = run(&["filter", "--channel", "net", "--add", "mine", "b", "!c"]);
    assert_eq!(added, (0, nothing));
    assert_eq!(has("net/filter"), "b !c");

    for arguments in [
        &["stop", "other"][..],
        &["status", "other"],
        &["filter", "other"],
        &["destroy", "other"],
        &["filter", "mine", "--channel", "other"],
        // The kernel would fill a new directory. Here it stays empty, so the command removes it
        // again.
        &["start", "other"],
    ] {
        let (status, said) = run(arguments);
        assert_eq!(status, 1, "{arguments:?}");
        assert!(said.contains("other"), "{arguments:?}: {said}");
    }
    assert!(!root.join("other").exists());
    fs::create_dir(root.join("more")).unwrap();
    let (status, said) = run(&["destroy", "other", "more"]);
    assert_eq!(status, 1);
    assert!(said.contains("there is no trace ./other"), "{said}");
    assert!(!root.join("more").exists(), "one that is there, goes");
}

/// A command does its work even if nobody reads its output.
#[test]
fn commands_need_no_reader() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::write(root.join("abi"), "version 2\n").unwrap();
    fs::write(root.join("vmcore"), elf(&dump(), Style::Runs)).unwrap();
    let run = |arguments: &[&str], stdout: Stdio, stderr: Stdio| {
        Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args(arguments)
            .current_dir(root)
            .stdout(stdout)
            .stderr(stderr)
            .output()
            .unwrap()
    };
    let unread = || Stdio::from(std::io::pipe().unwrap().1);
    let list = ["list", "--root", "."];
    let output = run(&list, unread(), Stdio::piped());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let output = run(&list, full.unwrap().into(), Stdio::piped());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("cannot write to standard output: No space"),
        "{said}"
    );
    let extract = ["extract", "vmcore", "-o", "out", "--json=summary"];
    let output = run(&extract, Stdio::piped(), unread());
    assert_eq!(output.status.code(), Some(0));
    assert!(root.join("summary").exists());
}

#[test]
fn missing_library_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for (option, library) in LIBRARIES {
        let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args(["record", option, "--", "true"])
            .env("USERTRACE_PRELOAD_DIR", directory.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        let stderr = text(&output.stderr);
        assert!(stderr.contains("USERTRACE_PRELOAD_DIR") && stderr.contains(library));
    }
}

/// All libraries are preloaded, from a directory whose path LD_PRELOAD cannot hold, before the
/// variable's old value.
#[test]
fn libraries_are_preloaded() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("a b");
    fs::create_dir(&place).unwrap();
    for (_, library) in LIBRARIES {
        // The dynamic linker only prints a message about this file.
        fs::write(place.join(library), "").unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .args(["record", "--output"])
        .arg(directory.path().join("trace"))
        .args(LIBRARIES.map(|(option, _)| option))
        .args(["--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("USERTRACE_PRELOAD_DIR", &place)
        .env("LD_PRELOAD", "libc.so.6")
        .output()
        .unwrap();
    let stdout = text(&output.stdout);
    let names: Vec<_> = stdout.trim_end().split(':').collect();
    assert_eq!(names.len(), LIBRARIES.len() + 1, "{output:?}");
    assert_eq!(names[LIBRARIES.len()], "libc.so.6");
    for (name, (_, library)) in names.iter().zip(LIBRARIES) {
        assert!(!name.contains(' ') && name.ends_with(library), "{name}");
    }
}

/// Makes a program set-user-ID for user nobody. False: this process cannot change the owner, or the
/// mount or this process ignores the bit.
fn make_set_user_id(program: &Path) -> bool {
    let give = |path: &Path| {
        std::os::unix::fs::chown(path, Some(65534), None)?;
        fs::set_permissions(path, Permissions::from_mode(0o4755))
    };
    let id = program.with_extension("id");
    fs::copy("/usr/bin/id", &id).unwrap();
    give(&id).and_then(|()| give(program)).is_ok()
        && text(&Command::new(id).arg("-u").output().unwrap().stdout) == "65534\n"
}

/// Programs that are static, use another C library, are for a smaller machine, have more rights, or
/// are scripts run by one of these. Each is named with the reason before it runs, and the summary
/// gives no misleading advice.
///
/// Requirements: F2
#[test]
fn programs_that_cannot_be_preloaded_into_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let compile = |name: &str, options: &[&str]| {
        fs::write(path("program.c"), "int main(void) { return 3; }\n").unwrap();
        let mut command = Command::new("cc");
        command
            .arg(path("program.c"))
            .args(options)
            .arg("-o")
            .arg(path(name));
        assert!(command.status().unwrap().success());
    };
    compile("static", &["-static"]);
    compile("static-pie", &["-static-pie"]);
    compile("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    compile("dynamic", &[]);
    let mut small = fs::read(path("static")).unwrap();
    small[4] = 1; // ELFCLASS32
    small[18] = 3; // EM_386
    fs::write(path("small"), small).unwrap();
    fs::write(
        path("script"),
        format!("#! {} x\n", path("static").display()),
    )
    .unwrap();
    fs::copy(path("dynamic"), path("privileged")).unwrap();
    let mut expected = vec![
        ("static", "static", "it is linked statically"),
        ("static-pie", "static-pie", "it is linked statically"),
        (
            "musl",
            "musl",
            "its dynamic linker is \"/lib/ld-musl-x86_64.so.1\"",
        ),
        ("small", "small", "it is a program for i386 of 32 bits"),
        ("script", "static", "it is linked statically"),
        ("dynamic", "", ""),
    ];
    if make_set_user_id(&path("privileged")) {
        expected.push(("privileged", "privileged", "it has the set-user-ID bit"));
    }
    for (name, named, reason) in expected {
        if name != "privileged" {
            fs::set_permissions(path(name), Permissions::from_mode(0o755)).unwrap();
        }
        for (_, library) in LIBRARIES {
            fs::write(path(library), "").unwrap();
        }
        let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args(["record", "--malloc", "-o"])
            .arg(path(&format!("{name}.trace")))
            .arg("--")
            .arg(path(name))
            .env("USERTRACE_PRELOAD_DIR", directory.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let said = stderr
            .lines()
            .find(|line| line.starts_with("usertrace: cannot "));
        match reason {
            "" => assert!(
                said.is_none_or(|line| !line.contains("preload")),
                "{stderr}"
            ),
            _ => {
                let said = said.unwrap_or_else(|| panic!("{name}: {stderr}"));
                let program = format!("{:?}: {reason}", path(named));
                assert!(said.contains(&program), "{said}");
                assert!(!stderr.contains("are there tracepoints"), "{stderr}");
            }
        }
    }
}

/// The program may replace its log by anything: the command neither waits for a FIFO nor reads
/// without end.
///
/// Requirements: F4
#[test]
fn invalid_log_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let said = |script: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args(["record", "-o", "trace", "--", "sh", "-c", script])
            .current_dir(directory.path())
            .output()
            .unwrap();
        fs::remove_dir_all(directory.path().join("trace")).unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stderr).to_owned()
    };
    let fifo = said("mkfifo trace/usertrace.log");
    let expected = "/trace/usertrace.log\": it is no regular file\n";
    assert!(
        fifo.contains("usertrace: cannot read \"") && fifo.contains(expected),
        "{fifo}"
    );
    let long = said("yes | head -c 1000000 >trace/usertrace.log");
    assert!(
        long.contains("usertrace: y\nusertrace: the rest of this is in \""),
        "{long:.200}"
    );
    assert!(long.len() < 500_000);
    assert_eq!(
        said("echo one >trace/usertrace.log").lines().next(),
        Some("usertrace: one")
    );
}

/// Of the programs that a shell executes, each that cannot be preloaded into is named once, with
/// the reason, however many processes run it. Other programs and the shell are not named.
///
/// Requirements: F2
#[test]
fn wrapped_programs_that_cannot_be_preloaded_into_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(
        path("program.c"),
        "#include <unistd.h>\nint main(void) { return sleep(2); }\n",
    )
    .unwrap();
    for (name, option) in [("static", "-static"), ("dynamic", "-O1")] {
        let mut command = Command::new("cc");
        command.arg(path("program.c")).arg(option);
        let status = command.arg("-o").arg(path(name)).status();
        assert!(status.unwrap().success());
    }
    for (_, library) in LIBRARIES {
        fs::write(path(library), "").unwrap();
    }
    fs::copy(path("dynamic"), path("privileged")).unwrap();
    let is_privileged = make_set_user_id(&path("privileged"));
    let said = |program: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args(["record", "--malloc", "-o", "trace", "--"])
            .args(program)
            .current_dir(directory.path())
            .env("USERTRACE_PRELOAD_DIR", directory.path())
            .output()
            .unwrap();
        fs::remove_dir_all(path("trace")).unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let stderr = text(&output.stderr);
        let is_obstacle = |line: &&str| line.starts_with("usertrace: cannot ");
        let mut said: Vec<_> = stderr
            .lines()
            .filter(is_obstacle)
            .map(str::to_owned)
            .collect();
        said.sort();
        assert_eq!(
            stderr.contains("are there tracepoints"),
            said.is_empty(),
            "{stderr}"
        );
        said
    };
    let is_static = |line: &String| line.contains(&format!("{:?}: it is linked", path("static")));
    let all = said(&[
        "sh",
        "-c",
        "for n in 1 2 3; do ./static & ./dynamic & done; ./privileged; wait",
    ]);
    let count = 1 + usize::from(is_privileged);
    assert_eq!(
        (all.len(), all.iter().filter(|line| is_static(line)).count()),
        (count, 1),
        "{all:?}"
    );
    if is_privileged {
        // Without CAP_SYS_PTRACE, only its command line is visible.
        let names = [&path("privileged"), Path::new("./privileged")];
        let is_said = |name: &Path| {
            let expected = format!("cannot trace {name:?}: it has the set-user-ID bit");
            all.iter().any(|line| line.contains(&expected))
        };
        assert!(names.into_iter().any(is_said), "{all:?}");
    }
    // The last program replaces its shell.
    let deep = said(&["sh", "-c", "sh -c './dynamic; exec ./static'"]);
    assert!(deep.len() == 1 && is_static(&deep[0]), "{deep:?}");
    assert_eq!(said(&["sh", "-c", "./dynamic"]), [""; 0]);
    // The check before the run has reported it already.
    assert_eq!(said(&["./static"]).len(), 1);
}

#[test]
fn every_command_has_help_with_its_exit_statuses() {
    for command in [
        "record", "ctl", "start", "stop", "destroy", "filter", "save", "load", "status",
        "snapshot", "extract", "view", "export", "list", "doctor", "generate",
    ] {
        let output = usertrace(&[command, "--help"], Path::new("/"));
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("Exit status: "), "{command}");
    }
}

/// Help fits the terminal: `-h` in short, `--help` with everything, and examples.
#[test]
fn help_is_as_wide_as_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let shown = |command: &str, option: &str, columns: usize| {
        let program = env!("CARGO_BIN_EXE_usertrace");
        let output = Command::new("script")
            .args(["-q", "-c"])
            .arg(format!(
                "stty rows 50 cols {columns}; '{program}' {command} {option}"
            ))
            .arg("/dev/null")
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut plain = String::new();
        let mut parts = text(&output.stdout).split("\u{1b}[");
        plain += parts.next().unwrap();
        parts.for_each(|part| plain += part.split_once('m').unwrap().1);
        plain
    };
    for command in [
        "record", "daemon", "ctl", "start", "stop", "destroy", "filter", "save", "load", "status",
        "snapshot", "extract", "view", "export", "report", "send", "list", "top", "doctor",
        "generate",
    ] {
        let [short, long] = ["-h", "--help"].map(|option| shown(command, option, 70));
        for line in short.lines().chain(long.lines()).map(str::trim_end) {
            // A single word, or an option with its value, may be longer.
            let is_one = line.split_whitespace().count() <= 2;
            assert!(line.chars().count() <= 70 || is_one, "{command}: {line:?}");
        }
        assert!(
            long.contains("Examples:\r\n") && !short.contains("Examples:"),
            "{command}"
        );
        assert!(short.len() < long.len(), "{command}");
        let wide = shown(command, "--help", 100);
        assert!(wide.lines().count() < long.lines().count(), "{command}");
    }
}

/// Options take process ids or names. A command for one process takes a name that only one process
/// has.
#[test]
fn processes_are_found_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let name = format!("name-{}", std::process::id());
    let program = directory.path().join(&name);
    fs::copy("/bin/sleep", &program).unwrap();
    let start = || Command::new(&program).arg("100").spawn().unwrap();
    let fails = |arguments: &[&str]| {
        let output = usertrace(arguments, directory.path());
        assert_eq!(output.stdout, b"", "{output:?}");
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let none =
        format!("usertrace: cannot find a process \"{name}\": none that runs has that name\n");
    for arguments in [&["record", "-p", &name][..], &["ctl", &name, "list"]] {
        assert_eq!(fails(arguments), none);
    }
    let mut one = start();
    wait_for_name(one.id(), &name);
    let stderr = fails(&["ctl", &name, "list"]);
    assert!(stderr.contains(&one.id().to_string()), "{stderr}");
    let mut two = start();
    wait_for_name(two.id(), &name);
    let mut pids = [one.id(), two.id()];
    pids.sort_unstable();
    let [a, b] = pids;
    let stderr = fails(&["record", "-p", &name]);
    let several = format!("cannot tell which process \"{name}\" is: {a}, {b} have that name");
    assert!(stderr.contains(&several), "{stderr}");
    for child in [&mut one, &mut two] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Waits until the process has executed the program of that name.
fn wait_for_name(pid: u32, name: &str) {
    let comm = format!("/proc/{pid}/comm");
    let name = &name[..name.len().min(15)];
    while fs::read_to_string(&comm).unwrap().trim_end() != name {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// `man` finds no mistakes in the manual pages. Each command has one, with its examples and exit
/// statuses.
#[test]
fn each_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let output = usertrace(&["generate", "man", "man"], directory.path());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let page = |name: &str| directory.path().join("man").join(name);
    let read = |name: &str| fs::read_to_string(page(name)).unwrap();
    let help = usertrace(&["--help"], directory.path());
    let commands = text(&help.stdout).split_once("Commands:\n").unwrap().1;
    let commands: Vec<_> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 10);
    for command in commands {
        let text = read(&format!("usertrace-{command}.1"));
        assert!(text.contains("\n.SH \"EXIT STATUS\"\n"), "{command}");
        assert!(read("usertrace.1").contains(&format!("usertrace\\-{command}(1)")));
    }
    let record = read("usertrace-record.1");
    assert!(record.contains("\n.SH EXAMPLES\n.nf\nusertrace record ./server \\-\\-port 80"));
    for entry in fs::read_dir(page("")).unwrap() {
        let page = entry.unwrap().path();
        for (program, arguments) in [
            ("mandoc", &["-Tlint", "-Wwarning"][..]),
            ("groff", &["-ww", "-z", "-man", "-Tutf8"]),
        ] {
            let checked = Command::new(program).args(arguments).arg(&page).output();
            let checked =
                checked.unwrap_or_else(|e| panic!("{program} (scripts/setup installs it): {e}"));
            let said = [checked.stdout, checked.stderr].concat();
            assert_eq!(text(&said), "", "{program}");
            assert!(checked.status.success());
        }
    }
    let output = usertrace(&["generate", "man", "/dev/null/man"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot make /dev/null/man"));
}

/// Each variable that a command reads is in its manual page.
#[test]
fn manual_pages_have_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let output = usertrace(&["generate", "man", "."], directory.path());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (page, variable) in [
        ("usertrace.1", "USERTRACE_BACKEND"),
        ("usertrace-record.1", "USERTRACE_PRELOAD_DIR"),
        ("usertrace-daemon.1", "STATE_DIRECTORY"),
        ("usertrace-generate.1", "SOURCE_DATE_EPOCH"),
    ] {
        let text = fs::read_to_string(directory.path().join(page)).unwrap();
        let (_, environment) = text.split_once("\n.SH ENVIRONMENT\n").expect(page);
        assert!(environment.contains(variable), "{page}: {variable}");
    }
}

/// The book's reference of the commands is what the command says of itself.
#[test]
fn the_reference_of_commands_is_fresh() {
    let output = usertrace(&["generate", "markdown"], Path::new("/"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    let written = fs::read_to_string(&page).unwrap();
    assert!(
        written == text(&output.stdout),
        "docs/reference/commands.md is stale; renew it: cargo run -p usertrace-cli -- generate markdown \
         >docs/reference/commands.md"
    );
}

#[test]
fn a_shell_completes_commands_and_options() {
    let directory = tempfile::tempdir().unwrap();
    for shell in ["zsh", "fish", "bash"] {
        let output = usertrace(&["generate", "completions", shell], directory.path());
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("snapshot"), "{shell}");
        fs::write(directory.path().join(shell), output.stdout).unwrap();
    }
    for (typed, completed) in [("snap", "snapshot"), ("snapshot --out", "--output")] {
        let script = format!(
            ". ./bash; COMP_WORDS=(usertrace {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _usertrace usertrace \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        let output = bash
            .args(["-c", &script])
            .current_dir(directory.path())
            .output();
        let output = output.unwrap();
        assert_eq!(
            text(&output.stdout).trim(),
            completed,
            "{}",
            text(&output.stderr)
        );
    }
    let output = usertrace(&["generate", "completions", "tcsh"], directory.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("'tcsh'"));
}

/// The findings of `usertrace doctor` on a machine whose files are below `directory`, without the
/// kernel's part.
fn doctor(directory: &Path) -> Vec<serde_json::Value> {
    let arguments = ["doctor", "--root", "ltt", "--system", ".", "--json"];
    let output = usertrace(&arguments, directory);
    assert_eq!(output.status.code(), Some(1), "this kernel has no buffers");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn finding<'a>(findings: &'a [serde_json::Value], name: &str) -> [&'a str; 3] {
    let all = findings.iter();
    let found = all.clone().find(|finding| finding["name"] == name);
    let found = found.unwrap_or_else(|| panic!("{name}: {findings:?}"));
    ["state", "what", "remedy"].map(|key| found[key].as_str().unwrap_or_default())
}

#[test]
fn doctor_examines_machine() {
    if usertrace_sys::Calls::discover().is_ok() {
        println!("skipped: this kernel has trace buffers of its own");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let found = doctor(path);
    assert_eq!(finding(&found, "kernel")[0], "missing");
    assert!(finding(&found, "kernel")[2].contains("scripts/kernel build"));
    assert_eq!(finding(&found, "control")[0], "missing");
    assert_eq!(finding(&found, "fallback")[0], "ok");
    let kdump = finding(&found, "kdump");
    assert!(
        kdump[0] == "lacking" && kdump[2].contains("crashkernel="),
        "{kdump:?}"
    );

    let kernel = finding(&found, "kernel events");
    assert!(
        kernel[0] == "lacking" && kernel[2].contains("mount -t tracefs"),
        "{kernel:?}"
    );

    let tracefs = path.join("sys/kernel/tracing");
    fs::create_dir_all(tracefs.join("instances/others")).unwrap();
    fs::write(tracefs.join("trace_clock"), "[local] mono\n").unwrap();
    let kernel = doctor(path);
    let kernel = finding(&kernel, "kernel events");
    assert_eq!(kernel[..2], ["ok", "./sys/kernel/tracing"]);
    fs::create_dir(tracefs.join("instances/usertrace.mine")).unwrap();
    let kernel = doctor(path);
    let kernel = finding(&kernel, "kernel events");
    assert_eq!(kernel[0], "lacking");
    assert!(kernel[2].ends_with("rmdir ./sys/kernel/tracing/instances/usertrace.mine"));
    fs::write(path.join("sys/kernel/kexec_crash_size"), "268435456\n").unwrap();
    fs::write(path.join("sys/kernel/kexec_crash_loaded"), "0\n").unwrap();
    fs::create_dir_all(path.join("ltt/mine")).unwrap();
    for (name, text) in [
        ("abi", "version 2\n"),
        ("limit_total", "1048576\n"),
        ("limit_user", "max\n"),
        ("limit_process", "67108864\n"),
    ] {
        fs::write(path.join("ltt").join(name), text).unwrap();
    }
    let found = doctor(path);
    assert_eq!(finding(&found, "control")[..2], ["ok", "ltt, 1 trace"]);
    assert_eq!(finding(&found, "permission")[0], "ok");
    let total = finding(&found, "limit_total");
    assert_eq!(total[0], "lacking");
    assert_eq!(total[2], "echo 16777216 >ltt/limit_total");
    assert_eq!(finding(&found, "limit_user")[..2], ["ok", "max"]);
    assert_eq!(finding(&found, "limit_process")[..2], ["ok", "64 MiB"]);
    let kdump = finding(&found, "kdump");
    assert_eq!(
        kdump[1],
        "256 MiB are reserved, and no crash kernel is loaded"
    );
    assert!(kdump[2].contains("kdump-config load"));
    let lockdown = path.join("sys/kernel/security/lockdown");
    fs::create_dir_all(lockdown.parent().unwrap()).unwrap();
    fs::write(&lockdown, "none integrity [confidentiality]\n").unwrap();
    let found = doctor(path);
    let kdump = finding(&found, "kdump");
    assert!(
        kdump[1].ends_with("only a signed one can be (lockdown: confidentiality)")
            && kdump[2].contains("kexec -p -s"),
        "{kdump:?}"
    );
    let kernel = finding(&found, "lockdown");
    assert!(
        kernel[0] == "lacking" && kernel[1].contains("/proc/kcore"),
        "{kernel:?}"
    );
    fs::write(&lockdown, "none [integrity] confidentiality\n").unwrap();
    assert_eq!(finding(&doctor(path), "lockdown")[0], "ok");
    fs::write(&lockdown, "[none] integrity confidentiality\n").unwrap();
    let found = doctor(path);
    assert!(finding(&found, "kdump")[2].contains("kdump-config load"));
    assert!(!found.iter().any(|finding| finding["name"] == "lockdown"));
    fs::write(path.join("sys/kernel/kexec_crash_loaded"), "1\n").unwrap();
    assert_eq!(finding(&doctor(path), "kdump")[0], "ok");

    // The same for people.
    let output = usertrace(&["doctor", "--root", "ltt", "--system", "."], path);
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    assert!(
        lines.contains(&"ok  control       ltt, 1 trace"),
        "{lines:?}"
    );
    let at = lines
        .iter()
        .position(|line| line.starts_with("--  limit_total"));
    assert_eq!(
        lines[at.unwrap() + 1],
        "                  echo 16777216 >ltt/limit_total"
    );
}

/// Help that cannot be printed is an error.
///
/// Requirements: F9
#[test]
fn unwritable_help_is_an_error() {
    for arguments in [&["--help"][..], &["view", "--help"], &["--version"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args(arguments)
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains("No space left on device"));
    }
    // The status of a wrong command line stays the same if the message cannot be printed.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .arg("--bogus")
        .stderr(full)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2));
    let output = usertrace(&["view", "--help"], Path::new("/"));
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("Usage: usertrace view"));
}

/// Without the patched kernel, a command that needs it says so, with its name and an alternative.
/// `doctor` says the same.
///
/// Requirements: F3
#[test]
fn commands_for_the_patched_kernel_name_an_alternative() {
    if usertrace_sys::Calls::discover().is_ok() {
        println!("skipped: this kernel has trace buffers of its own");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let found = usertrace(&["doctor"], directory.path());
    let found = text(&found.stdout);
    for (arguments, name) in [
        (&["daemon", "-o", "out"][..], "daemon"),
        (&["start", "mine"], "start TRACE"),
        (&["stop", "mine"], "stop TRACE"),
        (&["destroy", "mine"], "destroy"),
        (&["filter", "mine"], "filter TRACE"),
        (&["status", "mine"], "status"),
        (&["snapshot", "mine"], "snapshot TRACE"),
        (&["list"], "list"),
        (&["top", "-b"], "top"),
        (&["extract", "--previous-boot"], "extract --previous-boot"),
    ] {
        let output = usertrace(arguments, directory.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let reason = format!("usertrace: \"usertrace {name}\" needs the patched kernel; ");
        let instead = said
            .strip_prefix(&reason)
            .unwrap_or_else(|| panic!("{said}"));
        let (instead, _) = instead.split_once(" (usertrace doctor").unwrap();
        let mut lines = found.lines();
        let line = format!(
            "--  {:<36}needs the patched kernel",
            format!("usertrace {name}")
        );
        assert!(lines.any(|said| said == line), "{line}\n{found}");
        assert_eq!(lines.next().map(str::trim), Some(instead));
    }
    for works in [
        "record", "ctl", "extract", "view", "export", "report", "top DIR",
    ] {
        let line = format!("ok  {:<36}works", format!("usertrace {works}"));
        assert!(
            found.lines().any(|said| said.starts_with(&line)),
            "{line}\n{found}"
        );
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

/// Missing permission for the control file system, or a trace in it, is not reported as absence.
///
/// Requirements: F9
#[test]
fn denied_control_file_system_is_not_taken_for_none() {
    const NOBODY: u32 = 65534;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("ltt");
    fs::create_dir_all(root.join("mine")).unwrap();
    fs::write(root.join("abi"), "version 2\n").unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("usertrace");
    fs::copy(env!("CARGO_BIN_EXE_usertrace"), &program).unwrap();
    let run = |arguments: &[&str], of_root: u32, of_trace: u32| {
        fs::set_permissions(root.join("mine"), Permissions::from_mode(of_trace)).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(of_root)).unwrap();
        let mut command = Command::new(&program);
        command.args(arguments).args(["--root", "ltt"]);
        command.current_dir(directory.path());
        // SAFETY: `geteuid` takes no pointers.
        if unsafe { libc::geteuid() } == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(root.join("mine"), Permissions::from_mode(0o755)).unwrap();
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| text(bytes).to_owned());
        (output.status.code(), stdout + &stderr)
    };
    for (arguments, of_root, of_trace) in [
        (&["status", "mine"][..], 0o700, 0o755),
        (&["doctor"], 0o700, 0o755),
        (&["snapshot", "mine"], 0o755, 0o700),
        (&["list"], 0o755, 0o700),
        (&["top", "-b", "-n", "1", "-i", "0.05"], 0o755, 0o700),
    ] {
        let (_, said) = run(arguments, of_root, of_trace);
        assert!(said.contains("Permission denied"), "{arguments:?}: {said}");
        for wrong in ["is no trace", "no control file system", "not mounted"] {
            assert!(!said.contains(wrong), "{arguments:?}: {said}");
        }
    }
}

/// A directory without read permission is not reported as one without a trace.
///
/// Requirements: F9
#[test]
fn a_trace_that_may_not_be_read_is_not_taken_for_none() {
    const NOBODY: u32 = 65534;
    let directory = tempfile::tempdir().unwrap();
    let theirs = directory.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("metadata"), "/* CTF 1.8 */").unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    // A place where every user may execute it.
    let program = directory.path().join("usertrace");
    fs::copy(env!("CARGO_BIN_EXE_usertrace"), &program).unwrap();
    let run = |arguments: &[&str], mode: u32| {
        fs::set_permissions(&theirs, Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        command.args(arguments).current_dir(directory.path());
        // SAFETY: `geteuid` takes no pointers.
        if unsafe { libc::geteuid() } == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        fs::set_permissions(&theirs, Permissions::from_mode(0o700)).unwrap();
        let said = text(&output.stderr).to_owned();
        assert!(said.contains("Permission denied"), "{said}");
        (output.status.code(), said)
    };
    // First the directory is unreadable; then its names can be read, and its files cannot.
    for (mode, denied) in [(0o000, "theirs"), (0o744, "theirs/metadata")] {
        for directory_of in [".", "theirs"] {
            let (status, said) = run(&["view", directory_of], mode);
            assert_eq!(status, Some(1), "{said}");
            assert!(said.contains(denied), "{said}");
        }
        // `top` looks again and again, and reports it once.
        let (status, said) = run(&["top", "-b", "-i", "0.3", "-n", "2", "./"], mode);
        assert_eq!((status, said.lines().count()), (Some(0), 1), "{said}");
    }
}
