//! The guest's memory, as QEMU saves it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// What the monitor says when it waits for a command.
const PROMPT: &[u8] = b"(qemu) ";
/// Some hundred MiB, on a busy host.
const LIMIT: Duration = Duration::from_secs(120);

/// In which format memory is saved: as Debian's QEMU can, which is built without LZO and Snappy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// `dump-guest-memory`.
    Elf,
    /// `dump-guest-memory -z`: kdump's, compressed by zlib.
    KdumpZlib,
    /// `pmemsave`: nothing but the bytes.
    Raw,
}

impl ImageFormat {
    fn command(self, path: &Path, memory_mib: u64) -> String {
        // In the monitor's texts, both have a backslash in front.
        let path = path.display().to_string();
        let path = path.replace('\\', "\\\\").replace('"', "\\\"");
        match self {
            Self::Elf => format!("dump-guest-memory \"{path}\""),
            Self::KdumpZlib => format!("dump-guest-memory -z \"{path}\""),
            Self::Raw => format!("pmemsave 0 {:#x} \"{path}\"", memory_mib << 20),
        }
    }
}

/// QEMU's monitor of a guest that runs: it stops the guest, between two of its instructions, and
/// saves its memory.
#[derive(Debug)]
pub struct Monitor {
    stream: UnixStream,
    memory_mib: u64,
}

impl Monitor {
    /// The monitor, to which nothing was said before.
    pub(crate) fn new(stream: UnixStream, memory_mib: u64) -> Result<Self> {
        stream.set_read_timeout(Some(LIMIT))?;
        answer(&stream, |_| true).context("QEMU's monitor says nothing")?;
        Ok(Self { stream, memory_mib })
    }

    /// Stops the guest.
    ///
    /// # Errors
    /// When QEMU is gone, or does not answer.
    pub fn stop(&self) -> Result<()> {
        self.tell("stop").map(drop)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When QEMU is gone, or does not answer.
    pub fn resume(&self) -> Result<()> {
        self.tell("cont").map(drop)
    }

    /// Interrupts all its processors, whatever they are at: a kernel that knows of no reason
    /// panics, if it is told so.
    ///
    /// # Errors
    /// When QEMU is gone, or does not answer.
    pub fn interrupt(&self) -> Result<()> {
        self.tell("nmi").map(drop)
    }

    /// Resets the machine, as its button does: nothing is told before, and its memory stays as it
    /// is. A guest that stands does so until it is to go on.
    ///
    /// # Errors
    /// When QEMU is gone, or does not answer.
    pub fn reset(&self) -> Result<()> {
        self.tell("system_reset").map(drop)
    }

    /// Saves its memory, in the place of what the file had.
    ///
    /// # Errors
    /// When QEMU cannot, is gone, or does not answer.
    pub fn save(&self, format: ImageFormat, path: &Path) -> Result<()> {
        let said = self.tell(&format.command(path, self.memory_mib))?;
        // The command came back with escape sequences; what it says stands behind it.
        let said = said.split_once('\n').map_or("", |(_, said)| said);
        if !path.exists() || said.contains("Error") {
            bail!("QEMU did not save its memory to {}: {said}", path.display());
        }
        Ok(())
    }

    /// Gives a command, and waits until it is done. What the monitor said.
    fn tell(&self, command: &str) -> Result<String> {
        writeln!(&self.stream, "{command}").context("QEMU's monitor is gone")?;
        // The command comes back first, letter by letter; the line ends when all of it was taken.
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

/// What the monitor says, up to the prompt behind what `is_enough`.
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
