//! One trace: its metadata and its stream files.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use usertrace_ctf::recording::finished;
use usertrace_ctf::{METADATA, RECORD_SEPARATOR};

use crate::condition::Declared;
use crate::host::HostId;
use crate::merged_stream::{MergedStream, Next};
use crate::metadata::{Metadata, StreamClass};
use crate::shared_classes::SharedClasses;
use crate::stream::Stream;
use crate::{ReadError, Selection};

/// The trace of a process, or of a chunk of its recording.
#[derive(Debug)]
pub struct Trace {
    pub(crate) number: usize,
    pub(crate) process: usize,
    /// Events that other traces of the process declare, and whether they are selected.
    pub(crate) declared_elsewhere: Arc<HashMap<String, bool>>,
    pub(crate) directory: PathBuf,
    pub(crate) metadata: Metadata,
    /// Stamp of the metadata file when it was read.
    stamp: Stamp,
    /// Names of the known stream files.
    files: HashSet<OsString>,
    /// The text before event names.
    pub(crate) head: String,
}

/// Detects that a file was replaced or has grown: length, inode, and modification time.
type Stamp = (u64, u64, i64, i64);

impl Trace {
    pub(crate) fn open(
        directory: PathBuf,
        selection: &Selection,
        same: &mut SharedClasses,
    ) -> Result<Self, ReadError> {
        let (stamp, mut metadata) = read_metadata(&directory, selection)?;
        same.share(&mut metadata);
        Ok(Self {
            number: 0,
            process: 0,
            declared_elsewhere: Arc::default(),
            head: metadata.head(),
            directory,
            metadata,
            stamp,
            files: HashSet::new(),
        })
    }

    /// Its index in [`Reader::traces`](crate::Reader::traces).
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Number of its process, from 0 on. Each chunk of a recording has a trace of the process.
    #[must_use]
    pub fn process(&self) -> usize {
        self.process
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its metadata.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Reads the metadata again if the file changed. Returns whether it did.
    pub(crate) fn refresh(
        &mut self,
        selection: &Selection,
        same: &mut SharedClasses,
    ) -> Result<bool, ReadError> {
        let path = self.directory.join(METADATA);
        if fs::metadata(path).is_ok_and(|file| stamp(&file) == self.stamp) {
            return Ok(false);
        }
        (self.stamp, self.metadata) = read_metadata(&self.directory, selection)?;
        same.share(&mut self.metadata);
        self.head = self.metadata.head();
        Ok(true)
    }

    /// All events that it declares, and whether they are selected.
    pub(crate) fn declared(&self) -> impl Iterator<Item = (&str, bool)> {
        let events = self.metadata.classes().iter().flat_map(StreamClass::events);
        events.map(|event| (&*event.name, event.is_wanted))
    }

    /// Finds stream files that are not known yet. Errors do not affect other files.
    pub(crate) fn find_streams(
        &mut self,
        index: usize,
        errors: &mut Vec<ReadError>,
    ) -> Vec<MergedStream> {
        let mut streams = Vec::new();
        // A recorder may finish the chunk, and so rename it, at any moment.
        let entries =
            fs::read_dir(&self.directory).or_else(|_| fs::read_dir(finished(&self.directory)));
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                errors.push(ReadError::io(&self.directory, error));
                return streams;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    errors.push(ReadError::io(&self.directory, error));
                    break;
                }
            };
            let (name, path) = (entry.file_name(), entry.path());
            if name == METADATA || is_hidden(&path) || self.files.contains(&name) {
                continue;
            }
            let file = match fs::metadata(&path).or_else(|_| fs::metadata(finished(&path))) {
                Ok(file) => file,
                Err(error) => {
                    errors.push(ReadError::io(&path, error));
                    continue;
                }
            };
            if !file.is_file() {
                continue;
            }
            self.files.insert(name);
            let mut stream = Stream::new(path, index);
            stream.len = file.len();
            streams.push(MergedStream {
                stream,
                next: Next::Nothing,
                is_in_packet: false,
                is_given_up: false,
                rank: 0,
                last: None,
            });
        }
        streams
    }
}

fn stamp(file: &fs::Metadata) -> Stamp {
    (file.len(), file.ino(), file.mtime(), file.mtime_nsec())
}

fn read_metadata(directory: &Path, selection: &Selection) -> Result<(Stamp, Metadata), ReadError> {
    let path = directory.join(METADATA);
    let read = || {
        let mut file = crate::file::open(&path)?;
        // Take the stamp before reading, so that a later addition changes it.
        let stamp = stamp(&file.metadata()?);
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok((stamp, text))
    };
    let (stamp, text) = read().map_err(|error| ReadError::io(&path, error))?;
    let parsed = match text.first() {
        Some(&RECORD_SEPARATOR) => crate::fragments::parse(&text),
        _ => crate::parser::parse(&text),
    };
    let mut metadata = parsed.map_err(|error| ReadError::Metadata {
        path,
        line: error.line,
        what: error.what,
    })?;
    metadata.make_printable();
    if let Some(correction) = selection.corrections.get(&HostId::of(&metadata)) {
        metadata.clock.set_correction(correction);
    }
    if let Some(patterns) = &selection.events {
        metadata.select(|event| patterns.accept(event));
    }
    if let Some(condition) = &selection.condition {
        metadata.bind(|class, event| condition.bind(&Declared::new(class, event)));
    }
    Ok((stamp, metadata))
}

pub(crate) fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b".")
}
