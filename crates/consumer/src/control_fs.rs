//! The control file system, in which each trace is a directory (E1).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use usertrace_ctf::recording::RecordingNote;
use usertrace_os::procfs;
use usertrace_sys::count::CountRequest;
use usertrace_sys::filter::{join, words};
use usertrace_sys::uapi::LTT_ABI_VERSION;

use super::{CONTROL, COUNT, MAIN};

/// Its default mount point.
pub const CONTROL_FS: &str = "/sys/kernel/ltt";

/// Why an operation in the control file system failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlFsError {
    /// This is not the control file system.
    #[error(
        "{0} has no trace buffers: this kernel was built without them (CONFIG_LTT), or the file system is not mounted: \
         mount -t ltt ltt {CONTROL_FS}"
    )]
    Missing(PathBuf),
    /// The kernel has another version of the ABI.
    #[error(
        "{root}: the kernel has version {theirs:?} of the ABI, this program knows {LTT_ABI_VERSION}"
    )]
    Version {
        /// The mount point.
        root: PathBuf,
        /// The kernel's version.
        theirs: String,
    },
    /// The trace does not exist.
    #[error(
        "there is no trace {0}: usertrace list says which there are, usertrace start makes one"
    )]
    NoTrace(PathBuf),
    /// The name is invalid.
    #[error("{0:?} is no name of a trace: that has up to 31 letters, digits and _ - . : + @")]
    BadName(String),
    /// The kernel rejected a value. The kernel's log says which word is wrong.
    #[error("cannot write {value:?} to {path}{}", remedy(source))]
    Refused {
        /// What was written.
        value: String,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file cannot be read or written.
    #[error("cannot {what} {path}")]
    Io {
        /// The failed operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// A hint what to do after the kernel rejected a value.
fn remedy(refused: &io::Error) -> &'static str {
    match refused.kind() {
        io::ErrorKind::ResourceBusy => {
            ", which is fixed since the trace was started (usertrace destroy; or another name)"
        }
        io::ErrorKind::InvalidInput => " (the end of dmesg says what is wrong with it)",
        _ => "",
    }
}

/// Whether a trace can have this name.
pub(super) fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:+@".contains(&byte);
    (1..=31).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_good)
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ControlFsError {
    move |source| ControlFsError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

/// The operation that fails if there are too many traces, or one of this name.
pub(super) const CREATE_TRACE: &str = "create the trace";

/// Sub-buffers of the channel `control` in new traces. A ring has room for descriptions of about
/// 20,000 events, as in the fallback; the kernel's default is about 4,000. Unused sub-buffers take
/// only address space.
pub(super) const CONTROL_SUBBUFS: u32 = 32;

/// The mounted control file system.
#[derive(Clone, Debug)]
pub struct ControlFs {
    root: PathBuf,
}

/// Settings of a trace. The kernel's defaults apply to everything that is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceSetup {
    /// Patterns of events. A leading `!` rejects matching events; later patterns override earlier
    /// ones. If empty, all events are accepted.
    pub events: Vec<String>,
    /// Bytes in a sub-buffer of the channel `main`.
    pub subbuf_size: Option<u32>,
    /// Sub-buffers in each ring of that channel.
    pub subbuf_count: Option<u32>,
    /// Names of the contexts of its events.
    pub contexts: Vec<String>,
    /// Mode `overwrite`: full rings overwrite their oldest events.
    pub flight: bool,
    /// Mode `block`: programs wait at full rings while a recorder is attached.
    pub block: bool,
    /// Triggers: `PATTERN [if EXPR] then ACTION [once|every N]`. If there are any, they replace
    /// those of an existing trace.
    pub triggers: Vec<String>,
    /// What to count instead of recording it, each in a channel of its own: see
    /// [`CountRequest`].
    pub counts: Vec<String>,
}

impl TraceSetup {
    /// What to write to the trace's filter; `None` for all events.
    pub(super) fn filter(&self) -> Option<String> {
        (!self.events.is_empty()).then(|| filter_words(&self.events))
    }
}

/// What to write to a filter to replace its patterns by these.
#[must_use]
pub fn filter_words(patterns: &[String]) -> String {
    join(words(patterns))
}

impl ControlFs {
    /// Opens the file system that is mounted at `root`.
    ///
    /// # Errors
    /// If there is none, or its ABI has another version.
    pub fn open(root: &Path) -> Result<Self, ControlFsError> {
        let abi = root.join("abi");
        match fs::read_to_string(&abi) {
            Ok(text) => {
                let mut lines = text.lines();
                let version = lines.find_map(|line| line.strip_prefix("version "));
                if version.and_then(|version| version.parse().ok()) != Some(LTT_ABI_VERSION) {
                    return Err(ControlFsError::Version {
                        root: root.to_owned(),
                        theirs: version.unwrap_or_default().to_owned(),
                    });
                }
                Ok(Self {
                    root: root.to_owned(),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ControlFsError::Missing(root.to_owned()))
            }
            Err(error) => Err(io_error("read", &abi)(error)),
        }
    }

    /// Creates a trace with the kernel's settings, which is removed when the result is dropped.
    ///
    /// # Errors
    /// If the kernel rejects the name, or the trace exists.
    pub(super) fn create_new(&self, name: &str) -> Result<TraceDir, ControlFsError> {
        if !is_name(name) {
            return Err(ControlFsError::BadName(name.to_owned()));
        }
        let path = self.root.join(name);
        fs::create_dir(&path).map_err(io_error(CREATE_TRACE, &path))?;
        let trace = TraceDir {
            path,
            created: true,
        };
        // If the kernel rejects this, its default applies, and readers report undescribed events.
        let _ = write(
            &trace.channel(CONTROL).join("subbuf_count"),
            &CONTROL_SUBBUFS.to_string(),
        );
        Ok(trace)
    }

    /// Creates a trace, which is removed when the result is dropped. Or joins an existing trace,
    /// which is not removed.
    ///
    /// # Errors
    /// If the kernel rejects the name or a setting. Most settings are fixed after the start of a
    /// trace.
    pub fn create(&self, name: &str, setup: &TraceSetup) -> Result<TraceDir, ControlFsError> {
        let trace = match self.create_new(name) {
            Err(ControlFsError::Io { path, source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                TraceDir {
                    path,
                    created: false,
                }
            }
            created => created?,
        };
        let main = trace.channel(MAIN);
        for (file, value) in [
            ("subbuf_size", setup.subbuf_size),
            ("subbuf_count", setup.subbuf_count),
        ] {
            if let Some(value) = value {
                write(&main.join(file), &value.to_string())?;
            }
        }
        if !setup.contexts.is_empty() {
            write(&main.join("contexts"), &setup.contexts.join(" "))?;
        }
        if setup.flight {
            write(&main.join("flight"), "1")?;
        }
        if setup.block {
            write(&main.join("mode"), "block")?;
        }
        for (n, text) in setup.counts.iter().enumerate() {
            trace.create_count_channel(n, text)?;
        }
        if let Some(filter) = setup.filter() {
            write(&trace.path.join("filter"), &filter)?;
        }
        if !setup.triggers.is_empty() {
            trace.set_triggers(&setup.triggers)?;
        }
        Ok(trace)
    }

    /// Opens an existing trace, which is not removed.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn trace(&self, name: &str) -> Result<TraceDir, ControlFsError> {
        let path = self.root.join(name);
        let is_name = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        if !is_name {
            return Err(ControlFsError::NoTrace(path));
        }
        match fs::metadata(&path) {
            Ok(directory) if directory.is_dir() => Ok(TraceDir {
                path,
                created: false,
            }),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("open the trace", &path)(error))
            }
            _ => Err(ControlFsError::NoTrace(path)),
        }
    }

    /// Directories of all traces, by name.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn traces(&self) -> Result<Vec<PathBuf>, ControlFsError> {
        let list = || -> io::Result<Vec<PathBuf>> {
            let mut traces = Vec::new();
            for entry in fs::read_dir(&self.root)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    traces.push(entry.path());
                }
            }
            traces.sort();
            Ok(traces)
        };
        list().map_err(io_error("list", &self.root))
    }

    /// Names of all traces, sorted.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn trace_names(&self) -> Result<Vec<String>, ControlFsError> {
        let paths = self.traces()?;
        let names = paths.iter().filter_map(|path| path.file_name());
        Ok(names.map(|n| n.to_string_lossy().into_owned()).collect())
    }
}

/// Event channels of the trace in the directory `trace`: first [`MAIN`], then the others by name.
///
/// # Errors
/// If the directory cannot be read.
pub fn event_channels(trace: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(trace)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && name != CONTROL
            && entry.file_type()?.is_dir()
        {
            names.push(name);
        }
    }
    names.sort_by(|a, b| (a != MAIN, a).cmp(&(b != MAIN, b)));
    Ok(names)
}

/// Names of the consumer files in a channel's directory.
///
/// # Errors
/// If the directory cannot be read.
pub fn consumer_files(channel: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(channel)? {
        if let Ok(name) = entry?.file_name().into_string()
            && is_consumer_file(&name)
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Whether this is the name of a consumer file: PID.NUMBER.
pub(super) fn is_consumer_file(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    matches!(name.split_once('.'), Some((pid, process)) if number(pid) && number(process))
}

/// A trace. If this program created it, the trace is removed when this is dropped.
#[derive(Debug)]
pub struct TraceDir {
    path: PathBuf,
    created: bool,
}

impl TraceDir {
    /// The trace's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of one of its channels.
    #[must_use]
    pub fn channel(&self, channel: &str) -> PathBuf {
        self.path.join(channel)
    }

    /// Its event channels, [`MAIN`] first. The set is final after the start of the trace.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn channels(&self) -> Result<Vec<String>, ControlFsError> {
        event_channels(&self.path).map_err(io_error("list the channels of", &self.path))
    }

    /// Identifies the trace, and distinguishes it from others of the same name.
    ///
    /// # Errors
    /// If its state cannot be read.
    pub fn recorded(&self) -> Result<RecordingNote, ControlFsError> {
        let read = |path: &Path| fs::read_to_string(path).map_err(io_error("read", path));
        let stats = read(&self.path.join("stats"))?;
        let generation = stats
            .lines()
            .find_map(|line| line.strip_prefix("generation "));
        let boot = read(Path::new(procfs::BOOT_ID))?;
        let name = self.path.file_name().unwrap_or_default();
        Ok(RecordingNote {
            name: name.to_string_lossy().into_owned(),
            generation: generation.and_then(|n| n.parse().ok()).unwrap_or_default(),
            boot: boot.trim_end().to_owned(),
            created: self.created,
        })
    }

    /// Whether the clock of its events is `CLOCK_MONOTONIC`, because the TSC is not usable.
    ///
    /// # Errors
    /// If its state cannot be read.
    pub fn is_monotonic(&self) -> Result<bool, ControlFsError> {
        let path = self.path.join("stats");
        let stats = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        Ok(stats.lines().any(|line| line == "clock monotonic"))
    }

    /// Creates the channel `count<n>`, which counts what `text` says: see [`CountRequest`].
    fn create_count_channel(&self, n: usize, text: &str) -> Result<(), ControlFsError> {
        let path = self.channel(&format!("{COUNT}{n}"));
        let request = CountRequest::parse(text.as_bytes()).map_err(|error| {
            let source = io::Error::new(io::ErrorKind::InvalidInput, error);
            ControlFsError::Refused {
                value: text.to_owned(),
                path: path.clone(),
                source,
            }
        })?;
        fs::create_dir(&path).map_err(io_error("create the channel", &path))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        write(&path.join("mode"), "count")?;
        if let Some(value) = request.value {
            write(&path.join("value"), &text(value.name))?;
        }
        if let Some(key) = request.key {
            write(&path.join("key"), &text(key))?;
        }
        write(
            &path.join("filter"),
            &filter_words(&[text(request.pattern)]),
        )
    }

    /// Takes ownership: the trace is removed as if this program had created it.
    pub fn adopt(&mut self) {
        self.created = true;
    }

    /// Gives up ownership: the trace is not removed.
    pub fn keep(&mut self) {
        self.created = false;
    }

    fn filter_file(&self, channel: Option<&str>) -> PathBuf {
        match channel {
            None => self.path.join("filter"),
            Some(channel) => self.channel(channel).join("filter"),
        }
    }

    /// Patterns of the trace, or of one of its channels, as the kernel shows them.
    ///
    /// # Errors
    /// If they cannot be read: the channel does not exist, or has no filter because it takes all
    /// remaining events.
    pub fn events(&self, channel: Option<&str>) -> Result<Vec<String>, ControlFsError> {
        let path = self.filter_file(channel);
        let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Replaces the patterns of the trace, or of one of its channels. See [`TraceSetup::events`].
    ///
    /// # Errors
    /// Those of the kernel, which then has changed nothing.
    pub fn set_events(
        &self,
        channel: Option<&str>,
        patterns: &[String],
    ) -> Result<(), ControlFsError> {
        write(&self.filter_file(channel), &filter_words(patterns))
    }

    /// Appends to the patterns of the trace, or of one of its channels.
    ///
    /// # Errors
    /// Those of the kernel, which then has changed nothing.
    pub fn add_events(
        &self,
        channel: Option<&str>,
        patterns: &[String],
    ) -> Result<(), ControlFsError> {
        let words = join(patterns.iter().map(String::as_str));
        write(&self.filter_file(channel), &words)
    }

    /// Starts the trace.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn start(&self) -> Result<(), ControlFsError> {
        write(&self.path.join("start"), "1")
    }

    /// Stops the trace.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn stop(&self) -> Result<(), ControlFsError> {
        write(&self.path.join("start"), "0")
    }

    /// Removes the trace, if this program created it.
    ///
    /// # Errors
    /// Those of the kernel. The removal is not retried.
    pub fn remove(mut self) -> Result<(), ControlFsError> {
        if !std::mem::take(&mut self.created) {
            return Ok(());
        }
        let path = &self.path;
        fs::remove_dir(path).map_err(io_error("remove the trace", path))
    }
}

impl Drop for TraceDir {
    fn drop(&mut self) {
        if self.created {
            // The caller reports an earlier error; a failure here would hide it.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Writes a value to a control file.
pub(super) fn write(path: &Path, value: &str) -> Result<(), ControlFsError> {
    // Not `fs::write`: it would truncate the file, and would create one that the kernel does not
    // have.
    let file = fs::OpenOptions::new().write(true).open(path);
    let written = file.and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()));
    written.map_err(|source| ControlFsError::Refused {
        value: value.to_owned(),
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_the_control_file_system_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = ControlFs::open(directory.path()).unwrap_err();
        assert!(error.to_string().contains("mount -t ltt"), "{error}");
    }

    #[test]
    fn another_version_of_the_abi_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (text, named) in [("version 1\nfeatures 0x0\n", "\"1\""), ("", "\"\"")] {
            fs::write(directory.path().join("abi"), text).unwrap();
            let error = ControlFs::open(directory.path()).unwrap_err().to_string();
            assert!(
                error.contains(named) && error.contains("knows 2"),
                "{error}"
            );
        }
    }

    #[test]
    fn failed_creation_leaves_no_trace() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("abi"), "version 2\n").unwrap();
        let control = ControlFs::open(directory.path()).unwrap();
        let setup = TraceSetup {
            subbuf_size: Some(4096),
            ..TraceSetup::default()
        };
        // A plain directory gets no channels by itself.
        let error = control.create("t", &setup).unwrap_err();
        assert!(error.to_string().contains("t/main/subbuf_size"), "{error}");
        assert!(!directory.path().join("t").exists());

        for name in ["", "a/b", ".", "..", "a b", &"x".repeat(32)] {
            let error = control.create(name, &TraceSetup::default()).unwrap_err();
            assert!(error.to_string().contains("is no name"), "{error}");
        }
        let trace = control.create("t", &TraceSetup::default()).unwrap();
        assert_eq!(control.traces().unwrap(), [trace.path()]);
        assert_eq!(control.trace("t").unwrap().path(), trace.path());
        for name in ["", ".", "..", "t/main", "x", "abi"] {
            let error = control.trace(name).unwrap_err().to_string();
            assert!(error.starts_with("there is no trace "), "{error}");
        }
        trace.remove().unwrap();
        assert!(control.traces().unwrap().is_empty());
    }

    #[test]
    fn existing_trace_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("abi"), "version 2\n").unwrap();
        let control = ControlFs::open(directory.path()).unwrap();
        let theirs = directory.path().join("t");
        fs::create_dir(&theirs).unwrap();
        drop(control.create("t", &TraceSetup::default()).unwrap());
        assert!(theirs.exists());
        let joined = control.create("t", &TraceSetup::default()).unwrap();
        joined.remove().unwrap();
        assert!(theirs.exists());
        let setup = TraceSetup {
            subbuf_count: Some(2),
            ..TraceSetup::default()
        };
        control.create("t", &setup).unwrap_err();
        assert!(theirs.exists());
    }

    #[test]
    fn trace_ownership_can_change() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("abi"), "version 2\n").unwrap();
        let control = ControlFs::open(directory.path()).unwrap();
        let mut trace = control.create("t", &TraceSetup::default()).unwrap();
        trace.keep();
        drop(trace);
        let mut trace = control.trace("t").unwrap();
        trace.adopt();
        trace.remove().unwrap();
        assert!(control.trace("t").is_err());
    }

    #[test]
    fn filters_are_replaced_or_extended() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("abi"), "version 2\n").unwrap();
        let file = directory.path().join("t/net/filter");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let control = ControlFs::open(directory.path()).unwrap();
        let trace = control.trace("t").unwrap();
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (patterns, written) in [
            ("a:* !a:b", "0 a:* !a:b"),
            ("!a:b c", "1 !a:b c"),
            ("0", "0 0"),
            ("1", "0 1"),
        ] {
            fs::write(&file, "").unwrap();
            trace.set_events(Some("net"), &words(patterns)).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), written);
            fs::write(&file, "").unwrap();
            trace.add_events(Some("net"), &words(patterns)).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), patterns);
        }
        fs::write(&file, "a:*\n!a:b\n").unwrap();
        assert_eq!(trace.events(Some("net")).unwrap(), ["a:*", "!a:b"]);
        let patterns = ["a if x > 1", "!b if y", "c"].map(str::to_owned);
        fs::write(&file, "").unwrap();
        trace.set_events(Some("net"), &patterns).unwrap();
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "0 a if x > 1\n!b if y\nc"
        );
        let error = trace.set_events(None, &words("a")).unwrap_err().to_string();
        assert!(
            error.contains("\"0 a\" to") && error.ends_with("/t/filter"),
            "{error}"
        );
    }

    #[test]
    fn event_channels_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["net", "control", "main", "a"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("start"), "1").unwrap();
        assert_eq!(
            event_channels(directory.path()).unwrap(),
            ["main", "a", "net"]
        );
    }

    #[test]
    fn consumer_files_are_recognized_by_name() {
        for (name, is) in [
            ("12.3", true),
            ("subbuf_size", false),
            ("12", false),
            ("12.", false),
            (".3", false),
            ("1.2.3", false),
        ] {
            assert_eq!(is_consumer_file(name), is, "{name}");
        }
    }
}
