//! One trace: the directory of one process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::{Clock, StreamOf, StreamState, StreamWriter, description};
use crate::metadata::Event;
use crate::writer::Scope;

/// What a trace says about where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceInfo {
    /// Name of the trace.
    pub trace_name: String,
    /// Name of the process.
    pub procname: String,
    /// Its id.
    pub pid: u32,
    /// The machine, if it is known.
    pub hostname: Option<String>,
    /// Whose events each of its streams has.
    pub scope: Scope,
}

/// Writes one trace.
#[derive(Debug)]
pub struct TraceWriter {
    directory: PathBuf,
    uuid: [u8; 16],
    info: TraceInfo,
    clock: Clock,
    metadata: File,
    metadata_len: u64,
    /// The text of the events, to be able to write the metadata again.
    events: String,
}

impl TraceWriter {
    /// Creates the directory, and metadata without events in it.
    ///
    /// # Errors
    /// When the directory exists, or something cannot be created.
    pub fn create(directory: &Path, info: TraceInfo, clock: Clock) -> io::Result<Self> {
        fs::create_dir(directory)?;
        Self::begin(directory, info, clock, new_uuid()?)
    }

    /// Creates the directory, or goes on with one that another writer left; in either case, metadata without events.
    ///
    /// # Errors
    /// When something cannot be created.
    pub fn resume(
        directory: &Path,
        info: TraceInfo,
        clock: Clock,
        uuid: [u8; 16],
    ) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        Self::begin(directory, info, clock, uuid)
    }

    fn begin(directory: &Path, info: TraceInfo, clock: Clock, uuid: [u8; 16]) -> io::Result<Self> {
        let mut metadata = File::create(directory.join("metadata"))?;
        let preamble = description::preamble(&uuid, &info, &clock);
        metadata.write_all(preamble.as_bytes())?;
        Ok(Self {
            directory: directory.to_owned(),
            uuid,
            info,
            clock,
            metadata,
            metadata_len: preamble.len() as u64,
            events: String::new(),
        })
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Declares an event. To be done before one of its kind is written.
    ///
    /// # Errors
    /// When the metadata cannot be written; they end with a whole event then, if that can be had.
    pub fn declare(&mut self, event: &Event) -> io::Result<()> {
        let text = description::event(event);
        if let Err(error) = self.metadata.write_all(text.as_bytes()) {
            // If this fails too, there is no better error to tell.
            let _ = self.metadata.set_len(self.metadata_len);
            return Err(error);
        }
        self.metadata_len += text.len() as u64;
        self.events.push_str(&text);
        Ok(())
    }

    /// Creates a stream of the channel `channel`.
    ///
    /// # Errors
    /// When its file cannot be created.
    pub fn stream(&self, channel: &str, of: StreamOf) -> io::Result<StreamWriter> {
        let path = self.directory.join(of.file_name(channel));
        StreamWriter::create(&path, self.uuid, of, self.clock.start())
    }

    /// Goes on with a stream of the channel `channel`, or creates it.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub fn resume_stream(
        &self,
        channel: &str,
        of: StreamOf,
        state: Option<&StreamState>,
    ) -> io::Result<StreamWriter> {
        let path = self.directory.join(of.file_name(channel));
        let new = StreamState {
            time: self.clock.start(),
            ..StreamState::default()
        };
        StreamWriter::resume(&path, self.uuid, of, state.unwrap_or(&new))
    }

    /// Writes the metadata once more, with a clock that is known better.
    ///
    /// # Errors
    /// When they cannot be written; the old ones remain then.
    pub fn set_clock(&mut self, clock: Clock) -> io::Result<()> {
        let text = description::preamble(&self.uuid, &self.info, &clock) + &self.events;
        let path = self.directory.join("metadata");
        let new = self.directory.join(".metadata.new");
        if let Err(error) = fs::write(&new, &text).and_then(|()| fs::rename(&new, &path)) {
            // If this fails too, there is no better error to tell.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        self.metadata = OpenOptions::new().append(true).open(&path)?;
        self.metadata_len = text.len() as u64;
        self.clock = clock;
        Ok(())
    }

    /// Bytes of the metadata.
    #[must_use]
    pub fn metadata_len(&self) -> u64 {
        self.metadata_len
    }
}

/// A UUID of version 4, which is: random.
///
/// # Errors
/// When there is nothing random to be had.
pub fn new_uuid() -> io::Result<[u8; 16]> {
    let mut uuid = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut uuid)?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

/// Nanoseconds since 1970 as a date, in UTC.
pub(crate) fn date(unix_ns: i64) -> String {
    match u64::try_from(unix_ns) {
        Ok(ns) => {
            humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(ns)).to_string()
        }
        Err(_) => format!("{unix_ns} ns before 1970"),
    }
}
