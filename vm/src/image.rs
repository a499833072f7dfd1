//! QEMU's monitor: saves the guest's memory, stops the guest, and resets it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The monitor's prompt.
const PROMPT: &[u8] = b"(qemu) ";
/// How long a command may take: some hundred MiB are saved, on a busy host.
const LIMIT: Duration = Duration::from_secs(120);

/// Formats of saved memory. Debian's QEMU is built without LZO and Snappy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// `dump-guest-memory`.
    Elf,
    /// `dump-guest-memory -z`: kdump's, compressed by zlib.
    KdumpZlib,
    /// `pmemsave`: only the bytes.
    Raw,
}

impl ImageFormat {
    fn command(self, path: &Path, memory_mib: u64) -> String {
        // The monitor wants a backslash before both characters.
        let path = path.display().to_string();
        let path = path.replace('\\', "\\\\").replace('"', "\\\"");
        match self {
            Self::Elf => format!("dump-guest-memory \"{path}\""),
            Self::KdumpZlib => format!("dump-guest-memory -z \"{path}\""),
            Self::Raw => format!("pmemsave 0 {:#x} \"{path}\"", memory_mib << 20),
        }
    }
}

/// QEMU's monitor of a running guest.
#[derive(Debug)]
pub struct Monitor {
    stream: UnixStream,
    memory_mib: u64,
}

impl Monitor {
    /// Connects to a monitor that got no command yet.
    pub(crate) fn new(stream: UnixStream, memory_mib: u64) -> Result<Self> {
        stream.set_read_timeout(Some(LIMIT))?;
        answer(&stream, |_| true).context("QEMU's monitor says nothing")?;
        Ok(Self { stream, memory_mib })
    }

    /// Stops the guest between two instructions.
    ///
    /// # Errors
    /// When QEMU is gone, or does not answer.
    pub fn stop(&self) -> Result<()> {
        self.tell("stop").map(drop)
    }

    /// Resumes the guest.
    ///
    /// # Errors
    /// When QEMU is gone, or does not answer.
    pub fn resume(&self) -> Result<()> {
        self.tell("cont").map(drop)
    }

    /// Sends a non-maskable interrupt to all processors. The kernel panics for one without a known
    /// reason, if it is configured so.
    ///
    /// # Errors
    /// When QEMU is gone, or does not answer.
    pub fn interrupt(&self) -> Result<()> {
        self.tell("nmi").map(drop)
    }

    /// Resets the machine without warning, and keeps its memory. A stopped guest stays stopped.
    ///
    /// # Errors
    /// When QEMU is gone, or does not answer.
    pub fn reset(&self) -> Result<()> {
        self.tell("system_reset").map(drop)
    }

    /// Saves the memory, and replaces the file.
    ///
    /// # Errors
    /// When QEMU cannot, is gone, or does not answer.
    pub fn save(&self, format: ImageFormat, path: &Path) -> Result<()> {
        let said = self.tell(&format.command(path, self.memory_mib))?;
        // The first line is the echoed command, with escape sequences.
        let said = said.split_once('\n').map_or("", |(_, said)| said);
        if !path.exists() || said.contains("Error") {
            bail!("QEMU did not save its memory to {}: {said}", path.display());
        }
        Ok(())
    }

    /// Runs a command, waits until it is done, and returns the monitor's answer.
    fn tell(&self, command: &str) -> Result<String> {
        writeln!(&self.stream, "{command}").context("QEMU's monitor is gone")?;
        // The monitor echoes the command. The line ends when it has read all of it.
        answer(&self.stream, |said| said.contains(&b'\n'))
            .with_context(|| format!("QEMU does not end {command:?}"))
    }
}

/// The registers of a guest's processors, read twice: only a processor that runs has two results.
///
/// If QEMU does not answer within [`LIMIT`], the text says so.
pub(crate) fn processors(mut stream: &UnixStream) -> String {
    let mut ask = || {
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"info registers -a\n")?;
        answer(stream, |said| said.windows(3).any(|bytes| bytes == b"IP="))
    };
    let answers = [(); 2].map(|()| ask().unwrap_or_else(|error| format!("{error:#}\n")));
    answers.concat()
}

/// The monitor's output, up to the first prompt after which `is_enough` holds.
fn answer(mut monitor: &UnixStream, is_enough: impl Fn(&[u8]) -> bool) -> Result<String> {
    let begun = Instant::now();
    let mut said = Vec::new();
    let mut part = [0; 4096];
    while !said.ends_with(PROMPT) || !is_enough(&said) {
        let read = monitor.read(&mut part)?;
        if read == 0 || begun.elapsed() > LIMIT {
            bail!("after {:?}", String::from_utf8_lossy(&said));
        }
        said.extend_from_slice(&part[..read]);
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}
