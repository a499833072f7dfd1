//! Writes the directory of a trace.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use usertrace_os::random;
use usertrace_ring::schema::{Contexts, Description, Event};
use usertrace_sys::Scope;

use crate::count::count_event;
use crate::description::{Class, Content, environment};
use crate::modules::{MODULES_FILE, module_contexts, module_events, unused_event};
use crate::version::RECORD_SEPARATOR;
use crate::{
    Clock, Crash, METADATA, StreamChannel, StreamOwner, StreamState, StreamWriter, TraceInfo,
    Version,
};

/// Writes one trace.
#[derive(Debug)]
pub struct TraceWriter {
    directory: PathBuf,
    uuid: [u8; 16],
    info: TraceInfo,
    version: Version,
    is_one_shot: bool,
    crash: Option<Crash>,
    clock: Clock,
    /// None until a class of streams is declared.
    metadata: Option<File>,
    metadata_len: u64,
    /// The declarations in the order of the file, behind the preamble. Live readers take nothing
    /// but what is appended, so a new file has them in the same order.
    declarations: String,
    /// Another writer left the stream about modules, so the metadata must declare its class.
    is_with_modules: bool,
    /// Classes of streams.
    classes: Vec<Class>,
    descriptions: Vec<Description>,
}

impl TraceWriter {
    /// Creates the directory of a new trace.
    ///
    /// # Errors
    /// If the directory exists, or cannot be created.
    pub fn create(directory: &Path, info: TraceInfo, clock: Clock) -> io::Result<Self> {
        fs::create_dir(directory)?;
        Ok(Self::new(directory, info, clock, new_uuid()?, Vec::new()))
    }

    /// Creates the directory, or resumes one that another writer left. The given descriptions will
    /// be declared.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn resume(
        directory: &Path,
        info: TraceInfo,
        clock: Clock,
        uuid: [u8; 16],
        descriptions: Vec<Description>,
    ) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let modules = StreamState::of_file(&directory.join(MODULES_FILE))?;
        let trace = Self::new(directory, info, clock, uuid, descriptions);
        Ok(Self {
            is_with_modules: modules.is_some(),
            ..trace
        })
    }

    fn new(
        directory: &Path,
        info: TraceInfo,
        clock: Clock,
        uuid: [u8; 16],
        descriptions: Vec<Description>,
    ) -> Self {
        Self {
            directory: directory.to_owned(),
            uuid,
            info,
            version: Version::default(),
            is_one_shot: false,
            crash: None,
            clock,
            metadata: None,
            metadata_len: 0,
            declarations: String::new(),
            is_with_modules: false,
            classes: Vec::new(),
            descriptions,
        }
    }

    /// Sets the version of CTF. Must be called before anything is declared.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Makes its streams one-shot: see [`StreamWriter::set_one_shot`].
    pub(super) fn set_one_shot(&mut self) {
        self.is_one_shot = true;
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Marks the trace as one of a dump. Must be called before anything is declared.
    pub fn set_crash(&mut self, crash: Crash) {
        self.crash = Some(crash);
    }

    /// Its UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Descriptions that were declared, in this order.
    #[must_use]
    pub fn descriptions(&self) -> &[Description] {
        &self.descriptions
    }

    /// Declares the class of streams for channels of a scope without contexts. Must be called
    /// before such a stream is created.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn declare_class(&mut self, scope: Scope) -> io::Result<()> {
        self.declare_streams(Class {
            scope,
            contexts: None,
            content: Content::Events,
        })
    }

    /// Declares the class of streams for channels that count.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn declare_counts(&mut self) -> io::Result<()> {
        self.declare_streams(Class {
            scope: Scope::Cpu,
            contexts: None,
            content: Content::Counts,
        })
    }

    /// Declares the class of the stream about modules.
    pub(super) fn declare_modules(&mut self) -> io::Result<()> {
        if self.has_modules() {
            return Ok(());
        }
        let text = self.modules_text();
        self.append(&text)?;
        self.classes.push(modules_class());
        Ok(())
    }

    /// Declares the class of the stream about modules in metadata that are to be written.
    fn add_modules(&mut self) {
        if !self.has_modules() {
            self.declarations += &self.modules_text();
            self.classes.push(modules_class());
        }
    }

    /// The declarations for the stream about modules, and those that it needs in other classes.
    fn modules_text(&self) -> String {
        let classes = self.classes.iter();
        let unused = classes.map(|class| self.version.event(&unused_event(), class));
        unused.chain([self.class_text(&modules_class())]).collect()
    }

    fn has_modules(&self) -> bool {
        let mut classes = self.classes.iter();
        classes.any(|class| class.content == Content::Modules)
    }

    /// Declares the class of streams for a channel with contexts.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn declare_contexts(&mut self, scope: Scope, contexts: &Contexts) -> io::Result<()> {
        self.declare_streams(Class {
            scope,
            contexts: Some(contexts.clone()),
            content: Content::Events,
        })?;
        let description = Description::Contexts(contexts.clone());
        if !self.descriptions.contains(&description) {
            self.descriptions.push(description);
        }
        Ok(())
    }

    fn declare_streams(&mut self, class: Class) -> io::Result<()> {
        if self.classes.contains(&class) {
            return Ok(());
        }
        let text = self.class_text(&class);
        self.classes.push(class);
        if self.metadata.is_none() {
            self.declarations += &text;
            if self.is_with_modules {
                self.add_modules();
            }
            return self.write_metadata();
        }
        self.append(&text)
    }

    /// Declares an event. Must be called before such an event is written.
    ///
    /// # Errors
    /// If the metadata cannot be written. They then end with a complete event, if possible.
    pub fn declare(&mut self, event: &Event) -> io::Result<()> {
        let classes = self
            .classes
            .iter()
            .filter(|class| class.content == Content::Events);
        let text: String = classes
            .map(|class| self.version.event(event, class))
            .collect();
        self.append(&text)?;
        self.descriptions.push(Description::Event(event.clone()));
        Ok(())
    }

    /// Declares the command line of the process.
    ///
    /// # Errors
    /// When the metadata cannot be written; the old ones remain then.
    pub fn declare_cmdline(&mut self, cmdline: String) -> io::Result<()> {
        self.descriptions.push(Description::Cmdline(cmdline));
        if self.metadata.is_none() {
            return Ok(());
        }
        let written = self.write_metadata();
        if written.is_err() {
            self.descriptions.pop();
        }
        written
    }

    /// The command line of the process, if it is known.
    #[must_use]
    pub fn cmdline(&self) -> Option<&str> {
        self.descriptions
            .iter()
            .find_map(|described| match described {
                Description::Cmdline(cmdline) => Some(&cmdline[..]),
                _ => None,
            })
    }

    /// Creates a stream.
    ///
    /// # Errors
    /// If its file cannot be created.
    pub fn stream(&self, channel: &StreamChannel, of: StreamOwner) -> io::Result<StreamWriter> {
        let start = self.clock.start();
        let mut stream = StreamWriter::create(&self.directory, self.uuid, channel, of, start)?;
        if self.is_one_shot {
            stream.set_one_shot();
        }
        Ok(stream)
    }

    /// Resumes a stream, or creates it.
    ///
    /// # Errors
    /// If its file cannot be opened.
    pub fn resume_stream(
        &self,
        channel: &StreamChannel,
        of: StreamOwner,
        state: Option<&StreamState>,
    ) -> io::Result<StreamWriter> {
        let new = StreamState {
            time: self.clock.start(),
            ..StreamState::default()
        };
        let state = state.unwrap_or(&new);
        StreamWriter::resume(&self.directory, self.uuid, channel, of, state)
    }

    /// Rewrites the metadata with a clock that is known better.
    ///
    /// # Errors
    /// If they cannot be written. The old ones remain then.
    pub fn set_clock(&mut self, clock: Clock) -> io::Result<()> {
        let before = std::mem::replace(&mut self.clock, clock);
        let written = self.write_metadata();
        if written.is_err() {
            self.clock = before;
        }
        written
    }

    /// Replaces the metadata atomically, so that readers and later writers never find a part.
    fn write_metadata(&mut self) -> io::Result<()> {
        let environment = environment(&self.info, self.cmdline(), self.crash, &self.clock);
        let mut text = self.version.preamble(&self.uuid, environment, &self.clock);
        text += &self.declarations;
        let path = self.directory.join(METADATA);
        let new = self.directory.join(".metadata.new");
        if let Err(error) = fs::write(&new, &text).and_then(|()| fs::rename(&new, &path)) {
            // The first error is the one to report.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        self.metadata = Some(OpenOptions::new().append(true).open(&path)?);
        self.metadata_len = text.len() as u64;
        Ok(())
    }

    /// The declarations of a class of streams and its events.
    fn class_text(&self, class: &Class) -> String {
        let text = |event: &Event| self.version.event(event, class);
        let described = self.descriptions.iter();
        let events: String = match class.content {
            Content::Counts => text(&count_event()),
            Content::Modules => module_events().iter().map(text).collect(),
            Content::Events => described
                .filter_map(|described| match described {
                    Description::Event(event) => Some(text(event)),
                    _ => None,
                })
                .collect(),
        };
        let is_searched = class.content == Content::Modules || self.has_modules();
        let unused = is_searched.then(|| text(&unused_event()));
        self.version.class(class) + &unused.unwrap_or_default() + &events
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        let Some(metadata) = &mut self.metadata else {
            return Ok(());
        };
        if let Err(error) = metadata.write_all(text.as_bytes()) {
            // The first error is the one to report.
            let _ = metadata.set_len(self.metadata_len);
            return Err(error);
        }
        self.metadata_len += text.len() as u64;
        self.declarations += text;
        Ok(())
    }

    /// Length of the metadata in bytes.
    #[must_use]
    pub fn metadata_len(&self) -> u64 {
        self.metadata_len
    }
}

/// The class of the stream about modules.
fn modules_class() -> Class {
    Class {
        scope: Scope::Global,
        contexts: Some(module_contexts()),
        content: Content::Modules,
    }
}

/// Removes what a killed writer left half written in a trace's directory, if there is one.
pub fn mend(directory: &Path) -> io::Result<()> {
    let files = match fs::read_dir(directory) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for file in files {
        let file = file?;
        match file.file_name().as_encoded_bytes() {
            name if name == METADATA.as_bytes() => mend_metadata(&file.path())?,
            b".metadata.new" => fs::remove_file(file.path())?,
            _ => super::stream::mend(&file.path())?,
        }
    }
    // Only succeeds if the directory is empty: readers refuse such traces.
    let _ = fs::remove_dir(directory);
    Ok(())
}

/// The metadata up to the last complete declaration. A writer that was killed, or has not finished,
/// leaves an incomplete one behind it. The preamble is written atomically.
#[must_use]
pub fn complete_declarations(text: &[u8]) -> &[u8] {
    // In CTF 2, a declaration is a line.
    let end: &[u8] = match text.first() {
        Some(&RECORD_SEPARATOR) => b"\n",
        _ => b"\n};\n",
    };
    let last = text.windows(end.len()).rposition(|bytes| bytes == end);
    &text[..last.map_or(0, |at| at + end.len())]
}

fn mend_metadata(path: &Path) -> io::Result<()> {
    let text = fs::read(path)?;
    let whole = complete_declarations(&text).len();
    if whole < text.len() {
        OpenOptions::new()
            .write(true)
            .open(path)?
            .set_len(whole as u64)?;
    }
    Ok(())
}

/// Creates a random UUID (version 4).
///
/// # Errors
/// If there is no random number generator.
pub fn new_uuid() -> io::Result<[u8; 16]> {
    let mut uuid = [0; 16];
    random::fill(&mut uuid)?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use usertrace_sys::uapi::LttClockSync;

    use super::*;
    use crate::TraceOrigin;

    /// Repaired metadata end with a complete declaration, wherever their writer was killed.
    ///
    /// Requirements: A10
    #[test]
    fn metadata_are_mended() {
        for version in [Version::V1_8, Version::V2] {
            let directory = tempfile::tempdir().unwrap();
            let info = TraceInfo {
                trace_name: "t".into(),
                origin: TraceOrigin::Process {
                    name: "p".into(),
                    pid: 1,
                    process: 1,
                },
                hostname: None,
            };
            let clock = Clock::new(&LttClockSync::default(), &[]);
            let path = directory.path().join("t");
            let mut trace = TraceWriter::create(&path, info, clock).unwrap();
            trace.set_version(version);
            trace.declare_class(Scope::Cpu).unwrap();
            let metadata = path.join(METADATA);
            let mut wholes = vec![fs::read(&metadata).unwrap()];
            for line in ["1 t:e 6 u64 n;str s", "2 t:f 6", "3 t:g 6 u8{a=1} e"] {
                trace
                    .declare(&Event::parse(line.as_bytes()).unwrap())
                    .unwrap();
                wholes.push(fs::read(&metadata).unwrap());
            }
            let all = wholes.last().unwrap().clone();
            for len in wholes[0].len()..=all.len() {
                fs::write(&metadata, &all[..len]).unwrap();
                mend(&path).unwrap();
                let mended = fs::read(&metadata).unwrap();
                let last = wholes.iter().rfind(|whole| whole.len() <= len);
                assert_eq!(Some(&mended), last, "{version:?} {len}");
            }
        }
    }
}
