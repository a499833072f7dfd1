//! The files of ftrace (Linux, `Documentation/trace/ftrace.rst`, there also "Instances", and
//! `events.rst`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use usertrace_sys::clock::{self, Source};
use usertrace_sys::uapi::LttClockSync;

use super::FtraceError;
use super::format::Format;

/// Usual mount points of tracefs, below the root directory.
const PLACES: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
/// Prefix of this project's instances.
const PREFIX: &str = "usertrace.";

/// The mounted file system.
#[derive(Clone, Debug)]
pub struct Tracefs {
    path: PathBuf,
}

/// An ftrace instance: buffers and settings that no other user of ftrace shares.
#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
    pub(super) clock: Clock,
    /// An earlier recording left it.
    pub(super) is_old: bool,
    /// It is not removed, so that a later recording can use it.
    pub(super) stays: bool,
}

/// The clock of ftrace's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The processor's counter, which programs use as well.
    Counter,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    Monotonic,
}

impl Clock {
    /// The name in `trace_clock`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "x86-tsc",
            Self::Monotonic => "mono",
        }
    }

    /// Reads the clock.
    pub(super) fn sync(self) -> LttClockSync {
        clock::sync(match self {
            Self::Counter => Source::Processor,
            Self::Monotonic => Source::Monotonic,
        })
    }
}

impl Tracefs {
    /// Finds the mount point.
    ///
    /// # Errors
    /// If tracefs is not mounted, or this program may not use it.
    pub fn find() -> Result<Self, FtraceError> {
        Self::find_below(Path::new("/"))
    }

    /// Finds the mount point on a machine whose root directory is `root`.
    ///
    /// # Errors
    /// As for [`find`](Self::find).
    pub fn find_below(root: &Path) -> Result<Self, FtraceError> {
        let mut refused = None;
        for path in PLACES {
            let path = root.join(path);
            match fs::read(path.join("trace_clock")) {
                Ok(_) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    let path = path.join("trace_clock");
                    refused.get_or_insert(FtraceError::File { path, source });
                }
            }
        }
        Err(refused.unwrap_or(FtraceError::NoTracefs))
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Instances that killed recordings have left. They keep recording, and cost time, until
    /// somebody removes their directories.
    ///
    /// # Errors
    /// If the instances cannot be listed.
    pub fn leftovers(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path.join("instances"))? {
            let entry = entry?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(PREFIX.as_bytes())
            {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }

    /// All events of the kernel, as `SYSTEM:NAME`.
    pub(super) fn events(&self) -> Result<Vec<String>, FtraceError> {
        lines(&self.path.join("available_events"))
    }

    /// Creates an inactive instance for the trace of this name, or takes over that of a killed
    /// recorder with `goes_on`. Its clock is the processor's counter, unless ftrace lacks it, or
    /// `is_monotonic` says that the other traces do not use it.
    pub(super) fn instance(
        &self,
        trace: &str,
        goes_on: bool,
        is_monotonic: bool,
    ) -> Result<Instance, FtraceError> {
        let path = self.path.join("instances").join(format!("{PREFIX}{trace}"));
        if !goes_on {
            // An existing instance belongs to another recording. If that recording still runs, the
            // instance cannot be removed.
            match fs::remove_dir(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(FtraceError::File { path, source }),
            }
        }
        let is_old = match fs::create_dir(&path) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
            Err(source) => return Err(FtraceError::File { path, source }),
        };
        let clocks = read(&path.join("trace_clock"))?;
        let has = |name: &str| {
            let mut names = clocks.split_whitespace();
            names.any(|clock| clock.trim_matches(['[', ']']) == name)
        };
        let clock = if !is_monotonic && has(Clock::Counter.name()) {
            Clock::Counter
        } else {
            Clock::Monotonic
        };
        let instance = Instance {
            path,
            clock,
            is_old,
            stays: false,
        };
        if !is_old {
            instance.set("tracing_on", "0")?;
            instance.set("trace_clock", clock.name())?;
        }
        Ok(instance)
    }
}

impl Instance {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes to one of its files.
    pub(super) fn set(&self, file: &str, text: &str) -> Result<(), FtraceError> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(|source| FtraceError::File { path, source })
    }

    /// Reads the format of an event.
    pub(super) fn format(&self, event: &str) -> Result<Format, FtraceError> {
        let path = self.event(event).join("format");
        let text = read(&path)?;
        let system = event.split(':').next().unwrap_or_default();
        Format::parse(system, &text).map_err(|source| FtraceError::Format { path, source })
    }

    /// Enables an event, which is recorded while the instance is active.
    pub(super) fn enable(&self, event: &str) -> Result<(), FtraceError> {
        let file = self.event(event).join("enable");
        fs::write(&file, "1").map_err(|source| FtraceError::File { path: file, source })
    }

    /// The enabled events.
    pub(super) fn enabled(&self) -> Result<Vec<String>, FtraceError> {
        lines(&self.path.join("set_event"))
    }

    fn event(&self, event: &str) -> PathBuf {
        let (system, name) = event.split_once(':').unwrap_or((event, ""));
        self.path.join("events").join(system).join(name)
    }

    /// The CPUs, and the paths of their rings.
    pub(super) fn cpus(&self) -> Result<Vec<(u32, PathBuf)>, FtraceError> {
        let path = self.path.join("per_cpu");
        let entries = fs::read_dir(&path).map_err(|source| FtraceError::File { path, source })?;
        let mut cpus: Vec<_> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let cpu = path.file_name()?.to_str()?.strip_prefix("cpu")?;
                Some((cpu.parse().ok()?, path.join("trace_pipe_raw")))
            })
            .collect();
        cpus.sort();
        Ok(cpus)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // If this fails, somebody else uses the instance; `doctor` reports it.
        let _ = self.set("tracing_on", "0");
        if !self.stays {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn lines(path: &Path) -> Result<Vec<String>, FtraceError> {
    Ok(read(path)?.lines().map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<String, FtraceError> {
    fs::read_to_string(path).map_err(|source| FtraceError::File {
        path: path.to_owned(),
        source,
    })
}
