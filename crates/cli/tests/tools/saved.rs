//! `usertrace save`, `load` and `daemon --load`, with a plain directory in place of the control
//! file system. The tests in the guest load what they save.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use usertrace_testing::wait;

/// A control file system with a trace `web` that has no other channels than each trace.
fn root() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("abi", "version 2\n"),
        ("web/start", "1\n"),
        ("web/allocate", "1\n"),
        (
            "web/filter",
            "shop:*\nshop:served if path == \"/api/*\"\n!shop:tick\n",
        ),
        ("web/filter_mask", "0x000000ff\n"),
        (
            "web/triggers",
            "3 shop:served if path == \"/api/*\" then stop once\n17 shop:tick then notify\n",
        ),
        ("web/control/subbuf_size", "65536\n"),
        ("web/control/subbuf_count", "32\n"),
        ("web/control/prefault", "0\n"),
        ("web/main/mode", "block\n"),
        ("web/main/scope", "global\n"),
        ("web/main/subbuf_size", "4096\n"),
        ("web/main/subbuf_count", "2\n"),
        ("web/main/prefault", "1\n"),
        ("web/main/contexts", "vpid\nvtid\n"),
    ] {
        let path = directory.path().join("root").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

/// Runs the command, and returns its status, output, and messages.
fn usertrace(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    let output = command
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [said, messages] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    (output.status.code(), said, messages)
}

const SAVED: &str = r#"# Settings of traces, written by "usertrace save": "usertrace load FILE" creates them.
# Version 1 of the schema: docs/reference/saved-traces.md
version = 1

[[trace]]
name = "web"
started = true
filter = [
  "shop:*",
  'shop:served if path == "/api/*"',
  "!shop:tick",
]
filter_mask = 0x000000ff
triggers = [
  'shop:served if path == "/api/*" then stop once',
  "shop:tick then notify",
]

[[trace.channel]]
name = "main"
mode = "block"
scope = "global"
subbuf_size = "4k"
subbuf_count = 2
prefault = true
contexts = ["vpid", "vtid"]
"#;

/// Requirements: E1, E3
#[test]
fn settings_are_printed() {
    let directory = root();
    let path = directory.path();
    for arguments in [
        &["save", "--root", "root", "web"][..],
        &["save", "--root", "root"],
    ] {
        let (status, said, messages) = usertrace(path, arguments);
        assert_eq!((status, &messages[..]), (Some(0), ""));
        assert_eq!(said, SAVED);
    }
    let (status, said, messages) = usertrace(path, &["save", "--root", "root", "web", "db"]);
    assert_eq!((status, &said[..]), (Some(1), ""));
    assert!(messages.contains("there is no trace root/db"), "{messages}");
    // A file with other content than the kernel shows is an error.
    fs::write(path.join("root/web/main/subbuf_count"), "many\n").unwrap();
    let (status, said, messages) = usertrace(path, &["save", "--root", "root"]);
    assert_eq!((status, &said[..]), (Some(1), ""));
    assert!(
        messages.contains("subbuf_count: \"many\" is not a number"),
        "{messages}"
    );
}

/// Requirements: F3
#[test]
fn kernel_without_buffers_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("web.toml"), SAVED).unwrap();
    for arguments in [&["save"][..], &["load", "web.toml"]] {
        let (status, said, messages) = usertrace(directory.path(), arguments);
        assert_eq!((status, &said[..]), (Some(1), ""));
        assert!(messages.contains("needs the patched kernel"), "{messages}");
        assert!(messages.contains("usertrace doctor"), "{messages}");
    }
}

/// All files are read before the first trace is created. Messages have no control characters.
#[test]
fn wrong_file_creates_nothing() {
    let directory = root();
    let path = directory.path();
    let text = "version = 1\n[[trace]]\nname = \"new\"\nstarted = false\n";
    fs::write(path.join("good.toml"), text).unwrap();
    fs::write(path.join("bad.toml"), format!("{text}\"\\u001b[2J\" = 1\n")).unwrap();
    let load = |files: &[&str]| usertrace(path, &[&["load", "--root", "root"], files].concat());
    let (status, _, messages) = load(&["good.toml", "bad.toml"]);
    assert_eq!(status, Some(1));
    assert!(
        messages.starts_with("usertrace: bad.toml:5: unknown key \""),
        "{messages}"
    );
    assert!(!messages.contains('\x1b'), "{messages:?}");
    assert!(!path.join("root/new").exists());
    assert_eq!(
        load(&["good.toml"]),
        (Some(0), String::new(), String::new())
    );
    assert!(path.join("root/new").is_dir());
    assert_eq!(load(&["-"]).0, Some(1), "standard input is empty");
    assert_eq!(load(&[]).0, Some(2));
}

/// Requirements: C5
#[test]
fn daemon_goes_on_after_a_wrong_file() {
    let directory = root();
    let path = directory.path();
    fs::create_dir(path.join("traces.d")).unwrap();
    let text = |name: &str| format!("version = 1\n[[trace]]\nname = \"{name}\"\nstarted = false\n");
    fs::write(path.join("traces.d/a.toml"), text("..")).unwrap();
    fs::write(path.join("traces.d/b.toml"), text("new")).unwrap();
    for (load, said) in [
        (
            "traces.d",
            "usertrace: traces.d/a.toml:3: name: \"..\" is no name of a trace: that has up to 31 letters, digits \
             and _ - . : + @\n\
             usertrace: new: created from traces.d/b.toml\n",
        ),
        (
            "none",
            "usertrace: cannot read none: No such file or directory (os error 2)\n",
        ),
    ] {
        let messages = || fs::read_to_string(path.join("messages")).unwrap();
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args([
                "daemon", "--root", "root", "--output", "out", "--trace", "no", "--load", load,
            ])
            .current_dir(path)
            .env_remove("NOTIFY_SOCKET")
            .stderr(File::create(path.join("messages")).unwrap())
            .spawn()
            .unwrap();
        // It makes this directory afterwards, when it takes signals.
        wait::until("it has loaded", || messages().len() >= said.len());
        wait::until("it records", || path.join("out").exists());
        assert!(daemon.try_wait().unwrap().is_none(), "{}", messages());
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert_eq!(messages(), said);
        fs::remove_dir(path.join("out")).unwrap();
    }
    assert!(path.join("root/new").is_dir());
}
