//! The parts of the control file system that the benchmarks use.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use usertrace::clock::cycles;

use crate::process::Priority;

const TRACES: &str = "/sys/kernel/ltt";

/// A trace, which is destroyed when this is dropped.
pub(crate) struct Trace(PathBuf);

impl Trace {
    pub(crate) fn create(name: &str) -> Result<Self> {
        let path = Path::new(TRACES).join(name);
        fs::create_dir(&path).with_context(|| format!("mkdir {}", path.display()))?;
        Ok(Self(path))
    }

    /// Creates a trace, sets the geometry of `main` and, if given, its contexts, and starts the
    /// trace.
    pub(crate) fn started_with(
        name: &str,
        (subbuf_size, subbuf_count): (u32, u32),
        contexts: Option<&str>,
    ) -> Result<Self> {
        let trace = Self::create(name)?;
        trace.set_geometry(subbuf_size, subbuf_count)?;
        if let Some(contexts) = contexts {
            write(&trace.channel().join("contexts"), contexts)?;
        }
        write(&trace.start_file(), "1")?;
        Ok(trace)
    }

    /// Sets the geometry of `main`.
    pub(crate) fn set_geometry(&self, subbuf_size: u32, subbuf_count: u32) -> Result<()> {
        // The kernel checks the ring after each write. It is not too large with one value set and
        // the other at its default.
        let main = self.channel();
        write(&main.join("subbuf_count"), &subbuf_count.to_string())?;
        write(&main.join("subbuf_size"), &subbuf_size.to_string())
    }

    pub(crate) fn start_file(&self) -> PathBuf {
        self.0.join("start")
    }

    /// The directory of `main`.
    pub(crate) fn channel(&self) -> PathBuf {
        self.0.join("main")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // If this fails, `create` fails for the next trace of this name, and reports that.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Writes a line to a control file with a single call.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .open(path)
        .with_context(|| path.display().to_string())?;
    file.write_all(format!("{text}\n").as_bytes())
        .with_context(|| format!("{text} > {}", path.display()))
}

/// Writes a line to a control file before any process runs that this wakes. Returns the
/// instructions of the call.
pub(crate) fn counted_write(path: &Path, text: &str) -> Result<u64> {
    let line = format!("{text}\n");
    let mut file = OpenOptions::new().write(true).open(path)?;
    let before_others = Priority::raise()?;
    let begin = cycles();
    let written = file.write(line.as_bytes());
    let end = cycles();
    drop(before_others);
    ensure!(
        written.with_context(|| format!("{text} > {}", path.display()))? == line.len(),
        "{text} > {}: not all of it",
        path.display()
    );
    Ok(end - begin)
}
