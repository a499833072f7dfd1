//! LTTng-UST, driven by its own command. `scripts/bench` compiles the provider and starts the
//! session daemon.

use std::env;
use std::ffi::{CString, OsStr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The path of the provider's shared object; without it, LTTng-UST is left out.
const PROVIDER: &str = "USERTRACE_BENCH_LTTNG";
/// Where traces are written.
const OUTPUT: &str = "USERTRACE_BENCH_LTTNG_OUTPUT";

/// A loop of the provider's.
pub type Events = extern "C" fn(u64);

/// The provider, in this process.
#[derive(Debug)]
pub struct Lttng {
    handle: *mut libc::c_void,
}

/// Where traces are to be written.
#[must_use]
pub fn output() -> PathBuf {
    env::var_os(OUTPUT).expect("a directory for traces").into()
}

/// Lets the consumer daemon read what was written: it must not be a race between the two.
pub fn rest() {
    thread::sleep(Duration::from_millis(5));
}

/// A configuration of LTTng-UST: owner of the buffers, and what happens without room.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Of the session.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    mode: Mode,
    buffers: &'static str,
}

/// How a full ring loses events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// New events are lost.
    Discard,
    /// The oldest events are lost.
    Overwrite,
    /// Writers wait.
    Block,
}

impl Session {
    /// Writers wait until there is room.
    pub const BLOCKING: Self = Self {
        name: "block-uid",
        title: "blocking, per-UID",
        mode: Mode::Block,
        buffers: "--buffers-uid",
    };
}

/// Every way in which it is measured.
pub const SESSIONS: [Session; 4] = [
    Session {
        name: "discard-uid",
        title: "discard, per-UID",
        mode: Mode::Discard,
        buffers: "--buffers-uid",
    },
    Session {
        name: "discard-pid",
        title: "discard, per-PID",
        mode: Mode::Discard,
        buffers: "--buffers-pid",
    },
    Session {
        name: "overwrite-uid",
        title: "overwrite, per-UID",
        mode: Mode::Overwrite,
        buffers: "--buffers-uid",
    },
    Session {
        name: "overwrite-pid",
        title: "overwrite, per-PID",
        mode: Mode::Overwrite,
        buffers: "--buffers-pid",
    },
];

impl Lttng {
    /// Loads the provider, if there is one, and waits until the session daemon knows it.
    #[must_use]
    pub fn load() -> Option<Self> {
        let path = env::var_os(PROVIDER)?;
        let name = CString::new(path.into_encoded_bytes()).expect("a path");
        // SAFETY: its constructors are LTTng-UST's, which start its threads.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!handle.is_null(), "loading the provider: {}", error());
        let lttng = Self { handle };
        // Its threads register with the daemon by and by.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !run(["list", "--userspace"]).contains("usertrace_bench:numbers") {
            assert!(Instant::now() < deadline, "the provider does not register");
            thread::sleep(Duration::from_millis(50));
        }
        Some(lttng)
    }

    /// A loop of the provider's that writes events.
    #[must_use]
    pub fn events(&self, name: &str) -> Events {
        let symbol = CString::new(format!("usertrace_bench_{name}")).expect("a name");
        // SAFETY: the provider is never unloaded.
        let address = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        assert!(!address.is_null(), "{name}: {}", error());
        // SAFETY: provider.c says that it is such a function.
        unsafe { std::mem::transmute::<*mut libc::c_void, Events>(address) }
    }
}

impl Session {
    /// Makes the session, with all of the provider's events, and starts it. `copy`: a number, if
    /// there are several of it.
    #[must_use]
    pub fn start(self, output: &Path, copy: usize) -> Started {
        let name = format!("{}-{copy}", self.name);
        let output = format!("--output={}", output.join(&name).display());
        self.start_to(name, &output)
    }

    /// Makes the session with events of other programs, and starts it.
    #[must_use]
    pub fn start_for(self, output: &Path, events: &str) -> Started {
        let name = format!("{}-others", self.name);
        self.create(&name, &format!("--output={}", output.join(&name).display()));
        enable(&name, &[events]);
        run(["start", &name]);
        Started { name }
    }

    /// The same with a relay daemon, whose address is `net://HOST:PORT:PORT`.
    #[must_use]
    pub fn start_at_relay(self, address: &str) -> Started {
        self.start_to(self.name.to_owned(), &format!("--set-url={address}"))
    }

    fn start_to(self, name: String, destination: &str) -> Started {
        self.create(&name, destination);
        enable(
            &name,
            &[
                "usertrace_bench:empty,usertrace_bench:number,usertrace_bench:numbers,usertrace_bench:block,\
               usertrace_bench:text",
            ],
        );
        enable(
            &name,
            &["usertrace_bench:filtered", "--filter=a == 0xffffffffff"],
        );
        run(["start", &name]);
        Started { name }
    }

    /// Makes the session and its channel.
    fn create(self, name: &str, destination: &str) {
        if self.mode == Mode::Overwrite {
            // A flight recorder: nothing is written but what is asked for.
            run(["create", name, "--snapshot", destination]);
        } else {
            run(["create", name, destination]);
        }
        let session_option = format!("--session={name}");
        let mode: &[&str] = match self.mode {
            Mode::Discard => &["--discard"],
            Mode::Overwrite => &["--overwrite"],
            // For programs that allow it, by LTTNG_UST_ALLOW_BLOCKING.
            Mode::Block => &["--discard", "--blocking-timeout=inf"],
        };
        let channel = [
            "enable-channel",
            "--userspace",
            &session_option,
            self.buffers,
            "--subbuf-size=1M",
            "--num-subbuf=16",
        ];
        run(channel.iter().chain(mode).chain(&["bench"]).copied());
    }
}

/// Enables events in the channel of a session.
fn enable(session: &str, events: &[&str]) {
    let session_option = format!("--session={session}");
    let enable = [
        "enable-event",
        "--userspace",
        &session_option,
        "--channel=bench",
    ];
    run(enable.iter().chain(events).copied());
}

/// A session that is active, until this is dropped.
#[derive(Debug)]
pub struct Started {
    name: String,
}

impl Started {
    /// Lets it end: what was written before is in its files then.
    pub fn stop(&self) {
        run(["stop", &self.name]);
    }

    /// Throws away what it has written.
    pub fn clear(&self) {
        run(["clear", &self.name]);
    }

    /// Events that were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let said = run(["list", &self.name]);
        said.lines()
            .filter_map(|line| line.trim().strip_prefix("Discarded events:"))
            .filter_map(|count| count.trim().parse::<u64>().ok())
            .sum()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        run(["destroy", &self.name]);
    }
}

/// Runs the command, and returns what it says.
fn run<'a>(args: impl IntoIterator<Item = &'a str>) -> String {
    let args: Vec<&str> = args.into_iter().collect();
    let output = Command::new("lttng")
        .arg("--no-sessiond")
        .args(args.iter().map(OsStr::new))
        .stdin(Stdio::null())
        .output()
        .expect("the command lttng");
    assert!(
        output.status.success(),
        "lttng {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn error() -> String {
    // SAFETY: after a failure there is a message, and no other thread loads anything.
    unsafe {
        let message = libc::dlerror();
        if message.is_null() {
            return String::new();
        }
        std::ffi::CStr::from_ptr(message)
            .to_string_lossy()
            .into_owned()
    }
}
