//! Notifications to systemd, and log lines for its journal.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use crate::output;

/// Connection to the service manager: systemd(1), sd_notify(3).
pub(crate) struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Period of keep-alive messages, and the time of the last one.
    watchdog: Option<(Duration, Instant)>,
}

impl Notify {
    /// Reads `$NOTIFY_SOCKET`, `$WATCHDOG_USEC` and `$WATCHDOG_PID`.
    pub(crate) fn from_environment() -> io::Result<Self> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self {
                socket: None,
                watchdog: None,
            });
        };
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not block the daemon.
        socket.set_nonblocking(true)?;
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_this = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        // Twice as often as required.
        let every = number("WATCHDOG_USEC")
            .filter(|&time| time > 0 && is_this)
            .map(|time| Duration::from_micros(time / 2));
        Ok(Self {
            socket: Some((socket, address)),
            watchdog: every.map(|every| (every, Instant::now())),
        })
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // A lost message does no harm: the next one follows soon.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }

    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    pub(crate) fn reloading(&self) {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `now` is a valid `timespec`, the only memory that the call writes to.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        let now = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    pub(crate) fn status(&self, text: &str) {
        self.send(&format!("STATUS={text}"));
    }

    /// Sends a keep-alive message if one is due. Call it once a second.
    pub(crate) fn alive(&mut self) {
        let Some((every, last)) = &mut self.watchdog else {
            return;
        };
        // The next call comes a second later, which may be too late.
        if last.elapsed() + Duration::from_secs(1) >= *every {
            *last = Instant::now();
            self.send("WATCHDOG=1");
        }
    }
}

/// Severity of a log line, as sd-daemon(3) numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// Log on standard error. Lines have a level in front if the journal reads them.
pub(crate) struct Log {
    is_journal: bool,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            is_journal: is_journal().unwrap_or(false),
        }
    }

    pub(crate) fn say(&mut self, level: Level, what: impl fmt::Display) {
        match self.is_journal {
            true => output::report(format_args!("<{}>{what}\n", level as u8)),
            false => output::say(what),
        }
    }
}

/// Whether standard error is the journal's stream, according to `$JOURNAL_STREAM`.
fn is_journal() -> Option<bool> {
    let stream = std::env::var("JOURNAL_STREAM").ok()?;
    let (device, inode) = stream.split_once(':')?;
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned().ok()?);
    let stderr = stderr.metadata().ok()?;
    Some(device.parse() == Ok(stderr.dev()) && inode.parse() == Ok(stderr.ino()))
}
