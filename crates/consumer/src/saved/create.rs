//! Creates traces from files, all of them or none.

use std::fs;
use std::io;
use std::path::Path;

use usertrace_sys::filter::TriggerAction;

use super::capture;
use super::error::SavedTraceError;
use super::key::{
    ALLOCATE, CONTEXTS, FILTER, FILTER_MASK, KEY, Key, MODE, OF_RINGS, PREFAULT, SCOPE, STARTED,
    SUBBUF_COUNT, SUBBUF_SIZE, TRIGGERS, VALUE, Value,
};
use super::trace::{SavedChannel, SavedFile, SavedTrace, Setting, setting};
use crate::control_fs::{self, CREATE_TRACE, ControlFs, ControlFsError, TraceDir};
use crate::triggers::action_of;
use crate::{CONTROL, MAIN};

/// How [`load_saved_traces`] treats a trace whose name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Fail, and create none of the traces.
    Fail,
    /// Remove the existing one, with its events.
    Replace,
    /// Leave the existing one as it is.
    Keep,
}

/// The result of [`load_saved_traces`]: names of traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedTraces {
    /// Those that were created.
    pub created: Vec<String>,
    /// Those that existed, and were kept.
    pub kept: Vec<String>,
}

/// Creates the traces of some files, and starts those that are to be started.
///
/// # Errors
/// If the kernel refuses anything, or a trace exists with [`IfExists::Fail`]. Then none of the
/// traces that it created is left. With [`IfExists::Replace`], it removes an existing trace only
/// after the kernel has taken the settings of the new one under another name.
pub fn load_saved_traces(
    control_fs: &ControlFs,
    files: &[SavedFile],
    if_exists: IfExists,
) -> Result<LoadedTraces, SavedTraceError> {
    let mut traces = Vec::new();
    for SavedFile {
        path,
        traces: of_file,
    } in files
    {
        traces.extend(of_file.iter().map(|trace| NewTrace { path, trace }));
    }
    check_distinct(&traces)?;
    let mut loaded = LoadedTraces::default();
    let (mut new, mut replaced) = (Vec::new(), Vec::new());
    for trace in traces {
        match control_fs.trace(&trace.trace.name) {
            Err(ControlFsError::NoTrace(_)) => {}
            Err(error) => return Err(error.into()),
            Ok(existing) => match if_exists {
                IfExists::Fail => return Err(trace.exists()),
                IfExists::Keep => {
                    loaded.kept.push(trace.trace.name.clone());
                    continue;
                }
                IfExists::Replace => {
                    trace.rehearse(control_fs)?;
                    replaced.push(existing);
                }
            },
        }
        new.push(trace);
    }
    for mut existing in replaced {
        existing.adopt();
        existing.remove()?;
    }
    // Each is removed on drop, unless `keep` is reached.
    let mut created = Vec::new();
    for trace in &new {
        created.push(trace.create(control_fs, &trace.trace.name)?);
    }
    for (trace, directory) in new.iter().zip(&created) {
        trace.start(directory)?;
    }
    for directory in &mut created {
        directory.keep();
    }
    let names = new.iter().map(|trace| trace.trace.name.clone());
    loaded.created.extend(names);
    Ok(loaded)
}

/// Checks that no trace is in two files.
fn check_distinct(traces: &[NewTrace<'_>]) -> Result<(), SavedTraceError> {
    for (at, trace) in traces.iter().enumerate() {
        let NewTrace { path, trace } = trace;
        let mut before = traces[..at].iter();
        if let Some(other) = before.find(|other| other.trace.name == trace.name) {
            let (first, line) = (other.path.display(), other.trace.line);
            return Err(SavedTraceError::Invalid {
                path: path.to_path_buf(),
                line: trace.line,
                what: format!("name: {first}:{line} has a trace {:?} already", trace.name),
            });
        }
    }
    Ok(())
}

/// A trace to create, with its file.
struct NewTrace<'a> {
    path: &'a Path,
    trace: &'a SavedTrace,
}

/// Where errors belong: a line of the file, and what it is about.
struct Place<'a> {
    path: &'a Path,
    line: usize,
    what: String,
}

impl Place<'_> {
    fn refused(self) -> impl FnOnce(ControlFsError) -> SavedTraceError {
        move |source| SavedTraceError::Refused {
            path: self.path.to_owned(),
            line: self.line,
            place: self.what,
            source,
        }
    }
}

/// Rings of a channel that is being created.
struct NewRings<'a> {
    channel: &'a str,
    /// Its settings, and the line of its name.
    of: Option<&'a SavedChannel>,
    /// The kernel's defaults.
    defaults: Vec<Setting>,
}

impl NewTrace<'_> {
    fn exists(&self) -> SavedTraceError {
        SavedTraceError::Exists {
            path: self.path.to_owned(),
            line: self.trace.line,
            trace: self.trace.name.clone(),
        }
    }

    /// Checks that the kernel takes the settings: creates the trace under another name, and removes
    /// it. Not if there is no room for one more trace.
    fn rehearse(&self, control_fs: &ControlFs) -> Result<(), SavedTraceError> {
        let name = format!("load.{}", std::process::id());
        match self.create(control_fs, &name) {
            Ok(rehearsed) => Ok(rehearsed.remove()?),
            Err(SavedTraceError::Refused {
                source:
                    ControlFsError::Io {
                        what: CREATE_TRACE,
                        source,
                        ..
                    },
                ..
            }) if source.raw_os_error() == Some(libc::ENOSPC) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates the trace under this name, and does not start it. It is removed when the result is
    /// dropped.
    fn create(&self, control_fs: &ControlFs, name: &str) -> Result<TraceDir, SavedTraceError> {
        let trace = match control_fs.create_new(name) {
            Err(ControlFsError::Io { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                return Err(self.exists());
            }
            created => created.map_err(self.place().refused())?,
        };
        self.make_channels(&trace)?;
        for channel in &self.trace.channels {
            for key in [&MODE, &VALUE, &KEY, &PREFAULT, &FILTER, &FILTER_MASK] {
                self.write_channel(&trace, channel, key)?;
            }
        }
        for key in [&FILTER, &FILTER_MASK, &TRIGGERS] {
            self.write_trace(&trace, key)?;
        }
        for channel in &self.trace.channels {
            self.write_channel(&trace, channel, &CONTEXTS)?;
        }
        Ok(trace)
    }

    /// Allocates and starts the trace, if it is to be.
    fn start(&self, trace: &TraceDir) -> Result<(), SavedTraceError> {
        self.write_trace(trace, &ALLOCATE)?;
        // Without buffers, no program can fire a trigger that is to start the trace.
        if self.has_start_trigger() && setting(&self.trace.settings, &ALLOCATE).is_none() {
            trace.allocate().map_err(self.place().refused())?;
        }
        match setting(&self.trace.settings, &STARTED) {
            Some(setting) if setting.value == Value::Flag(false) => Ok(()),
            Some(_) => self.write_trace(trace, &STARTED),
            // A trace is loaded to be recorded.
            None => trace.start().map_err(self.place().refused()),
        }
    }

    fn has_start_trigger(&self) -> bool {
        let triggers = setting(&self.trace.settings, &TRIGGERS);
        triggers.is_some_and(|setting| match &setting.value {
            Value::List(lines) => {
                let mut actions = lines.iter().map(|line| action_of(line));
                actions.any(|action| action == Some(TriggerAction::Start))
            }
            _ => false,
        })
    }

    /// Adds the channels, with their rings.
    ///
    /// All rings of a trace share a slot, and the kernel checks each write. So that no step in
    /// between needs more room than the result, all rings are as small as possible at first.
    fn make_channels(&self, trace: &TraceDir) -> Result<(), SavedTraceError> {
        let channels = &self.trace.channels;
        let sets_rings = |channel: &SavedChannel| {
            let keys = [&SUBBUF_SIZE, &SUBBUF_COUNT, &SCOPE];
            keys.iter()
                .any(|key| setting(&channel.settings, key).is_some())
        };
        let is_added = |channel: &&SavedChannel| ![CONTROL, MAIN].contains(&&channel.name[..]);
        let shrinks = channels.iter().any(sets_rings);
        let mut all_rings = Vec::new();
        if shrinks {
            for name in [CONTROL, MAIN] {
                let of = channels.iter().find(|channel| channel.name == name);
                all_rings.push(self.shrink(trace, name, of)?);
            }
        }
        for channel in channels.iter().filter(is_added) {
            let directory = trace.channel(&channel.name);
            let created = fs::create_dir(&directory).map_err(|source| ControlFsError::Io {
                what: "create the channel",
                path: directory,
                source,
            });
            created.map_err(self.channel_place(channel).refused())?;
            if shrinks {
                all_rings.push(self.shrink(trace, &channel.name, Some(channel))?);
            }
        }
        for rings in &all_rings {
            self.grow(trace, rings)?;
        }
        Ok(())
    }

    /// Makes the rings of a channel as small as possible, and returns what they were.
    fn shrink<'a>(
        &self,
        trace: &TraceDir,
        channel: &'a str,
        of: Option<&'a SavedChannel>,
    ) -> Result<NewRings<'a>, SavedTraceError> {
        let write = |key: &Key, value: u64| {
            let path = trace.channel(channel).join(key.file);
            control_fs::write(&path, &value.to_string())
        };
        let shrunk = || -> Result<Vec<Setting>, ControlFsError> {
            let defaults = capture::settings(&trace.channel(channel), &OF_RINGS)?;
            write(&SUBBUF_SIZE, smallest_subbuf())?;
            write(&SUBBUF_COUNT, 2)?;
            Ok(defaults)
        };
        let defaults = shrunk().map_err(self.place_of(of).refused())?;
        Ok(NewRings {
            channel,
            of,
            defaults,
        })
    }

    /// Gives the rings of a channel their scope and size.
    fn grow(&self, trace: &TraceDir, rings: &NewRings<'_>) -> Result<(), SavedTraceError> {
        for key in [&SUBBUF_COUNT, &SCOPE, &SUBBUF_SIZE] {
            if let Some(channel) = rings.of
                && setting(&channel.settings, key).is_some()
            {
                self.write_channel(trace, channel, key)?;
            } else if let Some(default) = setting(&rings.defaults, key) {
                let path = trace.channel(rings.channel).join(key.file);
                for text in default.value.writes(key.kind) {
                    let written = control_fs::write(&path, &text);
                    written.map_err(self.place_of(rings.of).refused())?;
                }
            }
        }
        Ok(())
    }

    fn place(&self) -> Place<'_> {
        Place {
            path: self.path,
            line: self.trace.line,
            what: format!("trace {:?}", self.trace.name),
        }
    }

    /// The place of a channel, or of the trace if the file does not name the channel.
    fn place_of(&self, channel: Option<&SavedChannel>) -> Place<'_> {
        channel.map_or_else(|| self.place(), |channel| self.channel_place(channel))
    }

    fn channel_place(&self, channel: &SavedChannel) -> Place<'_> {
        Place {
            path: self.path,
            line: channel.line,
            what: format!("channel {:?} of trace {:?}", channel.name, self.trace.name),
        }
    }

    fn write_trace(&self, trace: &TraceDir, key: &Key) -> Result<(), SavedTraceError> {
        self.write(trace.path(), &self.trace.settings, key, || self.place())
    }

    fn write_channel(
        &self,
        trace: &TraceDir,
        channel: &SavedChannel,
        key: &Key,
    ) -> Result<(), SavedTraceError> {
        let directory = trace.channel(&channel.name);
        self.write(&directory, &channel.settings, key, || {
            self.channel_place(channel)
        })
    }

    /// Writes a setting to its control file, if it is given.
    fn write<'s>(
        &'s self,
        directory: &Path,
        settings: &[Setting],
        key: &Key,
        of: impl Fn() -> Place<'s>,
    ) -> Result<(), SavedTraceError> {
        let Some(Setting { key, value, line }) = setting(settings, key) else {
            return Ok(());
        };
        for text in value.writes(key.kind) {
            control_fs::write(&directory.join(key.file), &text).map_err(|source| {
                let place = of();
                let what = format!("{} of {}", key.name, place.what);
                let line = *line;
                Place {
                    what,
                    line,
                    ..place
                }
                .refused()(source)
            })?;
        }
        Ok(())
    }
}

/// The smallest sub-buffer: a page, and at least 4096 bytes.
fn smallest_subbuf() -> u64 {
    // SAFETY: `sysconf` takes a number, and accesses no memory of this process.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(page).unwrap_or_default().max(4096)
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    /// A plain directory in place of the control file system: traces get no files.
    fn root() -> (tempfile::TempDir, ControlFs) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("abi"), "version 2\n").unwrap();
        let control_fs = ControlFs::open(directory.path()).unwrap();
        (directory, control_fs)
    }

    fn file(name: &str, text: &str) -> SavedFile {
        parse(Path::new(name), &format!("version = 1\n{text}")).unwrap()
    }

    const WEB: &str = "[[trace]]\nname = \"web\"\n";
    const STOPPED: &str = "[[trace]]\nname = \"web\"\nstarted = false\n";

    /// Requirements: E1
    #[test]
    fn failed_load_leaves_no_trace() {
        let (_directory, control_fs) = root();
        let db = WEB.replace("web", "db");
        for (text, line, what) in [
            // A trace is started unless the file says otherwise.
            (WEB.to_owned(), 3, "trace \"web\""),
            (format!("{STOPPED}{db}"), 6, "trace \"db\""),
            (
                format!("{WEB}filter = [\"a\"]\n"),
                4,
                "filter of trace \"web\"",
            ),
            (
                format!("{STOPPED}triggers = [\"a then stop\"]\n"),
                5,
                "triggers of trace \"web\"",
            ),
            (
                format!("{STOPPED}[[trace.channel]]\nname = \"main\"\nmode = \"block\"\n"),
                7,
                "mode of channel \"main\" of trace \"web\"",
            ),
        ] {
            let loaded = load_saved_traces(&control_fs, &[file("f", &text)], IfExists::Fail);
            let error = loaded.unwrap_err();
            assert_eq!(error.to_string(), format!("f:{line}: {what}"));
            assert!(crate::describe(&error).contains("cannot write "));
            assert_eq!(control_fs.trace_names().unwrap(), [""; 0]);
        }
    }

    /// Requirements: E1
    #[test]
    fn existing_trace_is_kept_or_replaced_as_asked() {
        let (directory, control_fs) = root();
        let text = format!("{STOPPED}[[trace.channel]]\nname = \"slow\"\n");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let created = LoadedTraces {
            created: names(&["web"]),
            kept: names(&[]),
        };
        let load = |if_exists| load_saved_traces(&control_fs, &[file("f", &text)], if_exists);
        assert_eq!(load(IfExists::Fail).unwrap(), created);
        let channel = directory.path().join("web/slow");
        assert!(channel.is_dir());
        let error = load(IfExists::Fail).unwrap_err().to_string();
        assert!(
            error.starts_with("f:3: there is already a trace \"web\""),
            "{error}"
        );
        let kept = LoadedTraces {
            created: names(&[]),
            kept: names(&["web"]),
        };
        assert_eq!(load(IfExists::Keep).unwrap(), kept);
        assert!(channel.is_dir());
        // The kernel removes a trace with its channels, a plain directory stays.
        fs::remove_dir(&channel).unwrap();
        let replaced = file("f", STOPPED);
        let loaded = load_saved_traces(&control_fs, &[replaced], IfExists::Replace);
        assert_eq!(loaded.unwrap(), created);
        // A file that is refused replaces nothing.
        let refused = file("f", &format!("{STOPPED}filter = [\"a\"]\n"));
        load_saved_traces(&control_fs, &[refused], IfExists::Replace).unwrap_err();
        assert_eq!(control_fs.trace_names().unwrap(), ["web"]);
    }

    #[test]
    fn trace_in_two_files_is_refused() {
        let (_directory, control_fs) = root();
        let files = ["one", "two"].map(|name| file(name, STOPPED));
        let error = load_saved_traces(&control_fs, &files, IfExists::Replace).unwrap_err();
        assert_eq!(
            error.to_string(),
            "two:3: name: one:3 has a trace \"web\" already"
        );
        assert_eq!(control_fs.trace_names().unwrap(), [""; 0]);
    }
}
