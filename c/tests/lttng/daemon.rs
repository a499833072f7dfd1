//! A session daemon of LTTng for one test, with its sessions.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use usertrace_testing::c_library::succeed;
use usertrace_tests::lttng::events;

/// Root's daemon is one for the machine, and might be there: root's tests use one of nobody's.
const NOBODY: u32 = 65534;

/// The first missing program, if any.
pub(crate) fn missing() -> Option<&'static str> {
    let has = |program| {
        let said = Command::new(program).arg("--version").output();
        said.is_ok_and(|output| output.status.success())
    };
    let mut header = Command::new("cc");
    header.args([
        "-E",
        "-include",
        "lttng/tracepoint.h",
        "-x",
        "c",
        "/dev/null",
    ]);
    if !has("lttng-sessiond") || !has("lttng") {
        Some("lttng-tools")
    } else if !header.output().is_ok_and(|output| output.status.success()) {
        Some("liblttng-ust-dev")
    } else {
        None
    }
}

pub(crate) struct Daemon {
    directory: tempfile::TempDir,
    child: Child,
}

/// A session of LTTng.
pub(crate) struct Session {
    pub(crate) name: String,
    /// The only event that it records, and the expression that must be true; none: all events.
    pub(crate) filter: Option<(&'static str, &'static str)>,
}

impl Session {
    fn all() -> Self {
        Self {
            name: "test".into(),
            filter: None,
        }
    }
}

impl Daemon {
    /// Starts a daemon with a session of all events.
    pub(crate) fn start() -> Self {
        Self::with_sessions(&[Session::all()])
    }

    /// Starts a daemon, and creates and starts these sessions.
    pub(crate) fn with_sessions(sessions: &[Session]) -> Self {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        if is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let log = File::create(directory.path().join("log")).unwrap();
        let child = command("lttng-sessiond", directory.path())
            .arg("--no-kernel")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut daemon = Self { directory, child };
        let deadline = Instant::now() + Duration::from_secs(120);
        while !daemon.lttng(&["list"]).status.success() {
            let has_ended = daemon.child.try_wait().unwrap().is_some();
            let log = fs::read_to_string(daemon.directory().join("log")).unwrap();
            assert!(!has_ended && Instant::now() < deadline, "no daemon: {log}");
            thread::sleep(Duration::from_millis(50));
        }
        for session in sessions {
            let output = format!("--output={}", daemon.trace(session).display());
            succeed(&daemon.lttng(&["create", &session.name, &output]));
            let mut enable = vec!["enable-event", "--userspace"];
            match session.filter {
                Some((event, expression)) => enable.extend([event, "--filter", expression]),
                None => enable.push("--all"),
            }
            succeed(&daemon.lttng(&enable));
            succeed(&daemon.lttng(&["start"]));
        }
        daemon
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn trace(&self, session: &Session) -> PathBuf {
        self.directory().join("traces").join(&session.name)
    }

    fn lttng(&self, args: &[&str]) -> Output {
        command("lttng", self.directory())
            .arg("--no-sessiond")
            .args(args)
            .output()
            .unwrap()
    }

    /// Runs a program, which waits until its events are enabled.
    pub(crate) fn run(&self, program: &Path) -> Output {
        command(program, self.directory())
            .env("LTTNG_UST_REGISTER_TIMEOUT", "-1")
            .output()
            .unwrap()
    }

    /// The events that the session of all events recorded.
    pub(crate) fn events(&self) -> Vec<String> {
        self.events_of(&Session::all())
    }

    /// The events that a session recorded.
    pub(crate) fn events_of(&self, session: &Session) -> Vec<String> {
        succeed(&self.lttng(&["destroy", &session.name]));
        events(&self.trace(session))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SAFETY: the signal goes to our child, which was not waited for. Its own child ends with
        // it.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        let _ = self.child.wait();
        // Programs of nobody leave these files; a daemon of root would take them for its own.
        for name in ["lttng-ust-wait-8", "lttng-ust-wait-8-65534"] {
            let path = Path::new("/dev/shm").join(name);
            if fs::metadata(&path).is_ok_and(|file| is_root() && file.uid() == NOBODY) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn is_root() -> bool {
    // SAFETY: `geteuid` takes no pointers.
    unsafe { libc::geteuid() == 0 }
}

/// A command that finds the daemon of this directory.
fn command(program: impl AsRef<OsStr>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .env("HOME", directory)
        .env("LTTNG_HOME", directory)
        .stdin(Stdio::null());
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}
