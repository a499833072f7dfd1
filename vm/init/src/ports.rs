//! The virtio-serial ports, found by name, and the port of the reports.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use usertrace_init::{BEAT, PORT_STATUS, Report};

/// How long ports may take to appear: QEMU announces them some time after the driver starts.
const PORT_TIMEOUT: Duration = Duration::from_secs(20);

/// The device of the port called `name`.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    let deadline = Instant::now() + PORT_TIMEOUT;
    loop {
        for port in fs::read_dir("/sys/class/virtio-ports")
            .into_iter()
            .flatten()
            .flatten()
        {
            let is = fs::read_to_string(port.path().join("name")).unwrap_or_default();
            let device = PathBuf::from("/dev").join(port.file_name());
            if is.trim_end() == name && device.exists() {
                return Ok(device);
            }
        }
        if Instant::now() > deadline {
            bail!("no virtio-serial port called {name}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens the port called `name`.
pub(crate) fn open(name: &str) -> Result<File> {
    let path = find(name)?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))
}

/// The port of the reports.
#[derive(Debug)]
pub(crate) struct Status {
    /// One report is one write under this lock, so that a heartbeat never splits another line.
    port: Mutex<File>,
    answers: File,
}

impl Status {
    pub(crate) fn open() -> Result<Self> {
        let port = open(PORT_STATUS)?;
        let answers = port.try_clone().context("status port")?;
        Ok(Self {
            port: Mutex::new(port),
            answers,
        })
    }

    /// Sends a report. Errors are ignored: a host that does not listen any more will end the guest.
    pub(crate) fn send(&self, report: &Report) {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = port.write_all(report.to_string().as_bytes()) {
            eprintln!("usertrace-init: status port: {e}");
        }
    }

    /// Starts a thread that reports each [`BEAT`] that this process still runs.
    pub(crate) fn start_beating(self: &Arc<Self>) -> std::io::Result<()> {
        let status = Arc::clone(self);
        std::thread::Builder::new()
            .name("beat".into())
            .spawn(move || {
                loop {
                    std::thread::sleep(BEAT);
                    status.send(&Report::Beat);
                }
            })
            .map(drop)
    }

    /// Waits for an answer of the host. Returns whether it came in time.
    pub(crate) fn wait_for(&self, answer: &[u8], timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut got = Vec::new();
        while !got.windows(answer.len()).any(|w| w == answer) {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.answers.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, left) {
                Err(nix::Error::EINTR) => continue,
                Ok(n) if n > 0 => {}
                _ => return false,
            }
            let mut buf = [0; 64];
            match (&self.answers).read(&mut buf) {
                Ok(n) if n > 0 => got.extend_from_slice(&buf[..n]),
                _ => return false,
            }
        }
        true
    }
}
