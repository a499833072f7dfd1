//! `usertrace daemon`, as far as it needs no trace buffers: notifications to systemd, and errors
//! (C5, F3). The tests in the guest check its recordings.

use std::fs::{self, File};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of each step. Only a failing test waits so long.
const TIME_LIMIT: Duration = Duration::from_secs(120);

fn daemon(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command
        .args(["daemon", "--root", "root"])
        .current_dir(directory)
        .stderr(File::create(directory.join("said")).unwrap())
        .stdin(Stdio::null());
    for name in [
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "STATE_DIRECTORY",
    ] {
        command.env_remove(name);
    }
    command
}

fn said(directory: &Path) -> String {
    fs::read_to_string(directory.join("said")).unwrap()
}

/// A directory with a control file system that has no traces.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("root")).unwrap();
    fs::write(directory.path().join("root/abi"), "version 2\n").unwrap();
    directory
}

struct Listener(UnixDatagram);

impl Listener {
    fn new(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        Self(socket)
    }

    /// The next notification.
    fn next(&self) -> String {
        let mut bytes = [0; 1000];
        let len = self.0.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    /// The next notification with this beginning.
    fn hear(&self, begin: &str) -> String {
        let begun = Instant::now();
        loop {
            let message = self.next();
            if message.starts_with(begin) {
                return message;
            }
            assert!(
                begun.elapsed() < TIME_LIMIT,
                "waited in vain for {begin}; the last message is {message:?}"
            );
        }
    }
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: the signal goes to a child that was not waited for.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

/// The service manager is notified when the daemon reads traces, that it is alive, and that it
/// ends.
///
/// Requirements: C5
#[test]
fn systemd_is_notified() {
    for is_abstract in [false, true] {
        let directory = directory();
        let path = directory.path();
        let (name, socket) = if is_abstract {
            let name = format!("usertrace-test-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            (
                format!("@{name}"),
                UnixDatagram::bind_addr(&address).unwrap(),
            )
        } else {
            let name = path.join("notify");
            (
                name.to_str().unwrap().to_owned(),
                UnixDatagram::bind(&name).unwrap(),
            )
        };
        let listener = Listener::new(socket);
        let mut command = daemon(path);
        command
            .env("NOTIFY_SOCKET", &name)
            .env("WATCHDOG_USEC", "2000000")
            .env("STATE_DIRECTORY", path.join("state"));
        let mut child = command.spawn().unwrap();
        assert_eq!(listener.next(), "READY=1");
        assert_eq!(
            listener.hear("STATUS="),
            "STATUS=0 traces: 0 events of 0 processes, 0 bytes, 0 lost"
        );
        // Each second, the daemon sends its status, and at this watchdog period WATCHDOG=1 with it.
        assert_eq!(listener.next(), "WATCHDOG=1");
        assert_eq!(
            listener.next(),
            "STATUS=0 traces: 0 events of 0 processes, 0 bytes, 0 lost"
        );
        assert_eq!(listener.next(), "WATCHDOG=1");
        signal(&child, libc::SIGHUP);
        let reloading = listener.hear("RELOADING=1\nMONOTONIC_USEC=");
        let (_, time) = reloading.rsplit_once('=').unwrap();
        assert!(time.parse::<u64>().unwrap() > 0);
        assert_eq!(listener.hear("READY"), "READY=1");
        signal(&child, libc::SIGTERM);
        assert_eq!(listener.hear("STOPPING"), "STOPPING=1");
        assert!(child.wait().unwrap().success(), "{}", said(path));
        assert!(path.join("state").is_dir());
    }
}

/// A watchdog period for another process is ignored, and a missing listener is no error.
#[test]
fn missing_listener_is_no_error() {
    let directory = directory();
    let path = directory.path();
    let listener = Listener::new(UnixDatagram::bind(path.join("notify")).unwrap());
    let mut command = daemon(path);
    command
        .args(["--output", "out"])
        .env("NOTIFY_SOCKET", path.join("notify"))
        .env("WATCHDOG_USEC", "2000000")
        .env("WATCHDOG_PID", std::process::id().to_string());
    let mut child = command.spawn().unwrap();
    assert_eq!(listener.next(), "READY=1");
    for _ in 0..2 {
        let message = listener.next();
        assert!(message.starts_with("STATUS="), "{message}");
    }
    drop(listener);
    // At SIGHUP, the daemon sends RELOADING=1, which fails, and then logs the new chunk.
    signal(&child, libc::SIGHUP);
    let begun = Instant::now();
    while !said(path).contains("all begin a new chunk") {
        assert!(begun.elapsed() < TIME_LIMIT, "no new chunk: {}", said(path));
        std::thread::sleep(Duration::from_millis(1));
    }
    // The daemon survives that, and a new listener hears it.
    fs::remove_file(path.join("notify")).unwrap();
    let listener = Listener::new(UnixDatagram::bind(path.join("notify")).unwrap());
    listener.hear("STATUS=");
    signal(&child, libc::SIGINT);
    assert!(child.wait().unwrap().success(), "{}", said(path));
    assert_eq!(
        said(path),
        "usertrace: all begin a new chunk\n\
         usertrace: ended: 0 events of 0 processes, 0 bytes, 0 lost; the traces go on\n"
    );
}

/// Lines in the journal have a level.
#[test]
fn lines_in_the_journal_have_a_level() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir().unwrap();
    let mut command = daemon(directory.path());
    let file = fs::metadata(directory.path().join("said")).unwrap();
    let stream = |inode: u64| format!("{}:{inode}", file.dev());
    let status = command.env("JOURNAL_STREAM", stream(file.ino())).status();
    assert_eq!(status.unwrap().code(), Some(1));
    let journal = said(directory.path());
    assert!(
        journal.starts_with("<3>root has no trace buffers"),
        "{journal}"
    );

    let mut command = daemon(directory.path());
    let status = command
        .env("JOURNAL_STREAM", stream(file.ino() + 1))
        .status();
    assert_eq!(status.unwrap().code(), Some(1));
    assert!(said(directory.path()).starts_with("usertrace: root has no"));
}

/// Without trace buffers, the daemon says what to use instead.
///
/// Requirements: F3
#[test]
fn missing_kernel_support_is_explained() {
    assert!(
        usertrace_sys::Calls::discover().is_err(),
        "this test is for a kernel without trace buffers; what the daemon does with them, guest-tests look at"
    );
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .args(["daemon", "--output", "out"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    for part in [
        "\"usertrace daemon\" needs the patched kernel",
        "usertrace record",
        "usertrace doctor",
        "USERTRACE_OUTPUT",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn options_without_effect_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (
            &["record", "--keep", "3", "-o", "out", "--", "true"][..],
            "it needs --rotate-size",
        ),
        (&["daemon", "-e", "shop:*", "-o", "out"], "--start NAME"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args(arguments)
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(expected), "{said}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

const UNITS: [&str; 3] = [
    "usertrace.service",
    "usertrace-crash.service",
    "sys-kernel-ltt.mount",
];

/// systemd accepts the package's units, and rates the daemon's as well confined.
#[test]
fn unit_files_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    // The build directory may have spaces in its path, so link to the command.
    let command = directory.path().join("usertrace");
    symlink(env!("CARGO_BIN_EXE_usertrace"), &command).unwrap();
    for name in UNITS {
        let unit = fs::read_to_string(units.join(name)).unwrap();
        // The manual pages are not installed here.
        let unit = unit
            .replace("/usr/bin/usertrace", command.to_str().unwrap())
            .replace("Documentation=", "#");
        fs::write(directory.path().join(name), unit).unwrap();
    }
    let analyze = |arguments: &[&str]| {
        let output = Command::new("systemd-analyze")
            .args(arguments)
            .args(UNITS)
            .current_dir(directory.path())
            .output()
            .expect("systemd-analyze (Debian package systemd) must be installed to run this test");
        let said = [&output.stdout[..], &output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let (is_good, said) = analyze(&["verify"]);
    assert!(is_good && said.is_empty(), "{said}");
    let output = Command::new("systemd-analyze")
        .args([
            "security",
            "--offline=true",
            "--threshold=20",
            "usertrace.service",
        ])
        .current_dir(directory.path())
        .env("SYSTEMD_UNIT_PATH", directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
