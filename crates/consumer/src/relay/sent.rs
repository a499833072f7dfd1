//! What was sent of a trace in the present session.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Instant;

use usertrace_ctf::{METADATA, PacketHeader, complete_declarations};
use usertrace_os::files;
use usertrace_relay::{Connection, Index, NO_PACKET, RelayError, SourceError};

use super::metadata::{SentMetadata, Update, frequency, pieces, with_clock};
use super::shared::Times;
use super::spool::{FileVersion, SpoolTrace};

/// Longest metadata that are sent: hostile programs could make the sender use as much memory.
const MAX_METADATA: u64 = 64 << 20;

/// How many streams have different times when all say that they have no event.
const DISTINCT: u64 = 1000;

/// Why a session cannot go on.
#[derive(Debug)]
pub(super) enum SendError {
    /// The relay failed.
    Relay(RelayError),
    /// What was sent has changed since: a writer was killed, and the next one cut its files. Only
    /// a new session can replace it.
    Changed,
    /// The files cannot be read.
    Spool(io::Error),
}

impl From<RelayError> for SendError {
    fn from(error: RelayError) -> Self {
        Self::Relay(error)
    }
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        Self::Spool(error)
    }
}

/// A trace in the present session.
#[derive(Debug)]
pub(super) struct SentTrace {
    /// Its directory below that of the session.
    path: String,
    metadata_stream: u64,
    metadata: SentMetadata,
    version: Option<FileVersion>,
    streams: BTreeMap<String, SentStream>,
    /// Cycles per second.
    pub(super) frequency: Option<u64>,
    /// The relay has metadata that must be corrected, as the session is live.
    pub(super) needs_correction: bool,
    /// When viewers could find the first stream.
    pub(super) published: Option<Instant>,
    /// Something is in the files that live viewers may not get yet.
    pub(super) is_held: bool,
    /// Since when nothing more is written to the trace, and everything was sent.
    pub(super) complete: Option<Instant>,
    /// Everything was sent and confirmed, and the streams are closed.
    pub(super) is_closed: bool,
}

/// A stream in the present session.
#[derive(Debug)]
struct SentStream {
    id: u64,
    /// Bytes that were sent.
    sent: u64,
    /// Number of packets that were sent.
    packets: u64,
    /// Number of packets that the relay has confirmed.
    confirmed: u64,
    /// Offset and header of the last packet that was sent.
    last: Option<(u64, PacketHeader)>,
    /// Time of the last beacon.
    beacon: u64,
    /// Something is in the file that live viewers may not get yet.
    is_held: bool,
    /// Start of the next packet, which live viewers may not get yet; 0 if it is not complete.
    next: Option<u64>,
}

impl SentTrace {
    /// Adds a trace to the session. It is published to viewers with its first stream: `babeltrace2`
    /// forgets a trace without streams, and its metadata.
    pub(super) fn new(connection: &mut Connection, path: String) -> Result<Self, SendError> {
        let metadata_stream = connection.add_stream(&path, METADATA)?;
        Ok(Self {
            path,
            metadata_stream,
            metadata: SentMetadata::default(),
            version: None,
            streams: BTreeMap::new(),
            frequency: None,
            needs_correction: false,
            published: None,
            is_held: false,
            complete: None,
            is_closed: false,
        })
    }

    /// Adds the streams that are not empty. Returns whether there are new ones.
    pub(super) fn add_streams(
        &mut self,
        connection: &mut Connection,
        trace: &SpoolTrace,
    ) -> Result<bool, SendError> {
        let mut has_new = false;
        for (name, len) in &trace.streams {
            if *len > 0 && !self.is_closed && !self.streams.contains_key(name) {
                let id = connection.add_stream(&self.path, name)?;
                self.streams.insert(name.clone(), SentStream::new(id));
                has_new = true;
            }
        }
        if has_new {
            // The caller publishes them next.
            self.published.get_or_insert_with(Instant::now);
        }
        Ok(has_new)
    }

    /// Sends what is new in a trace, in live sessions only packets up to a time, and at most about
    /// `budget` bytes, of which it subtracts what it sent. Returns whether all was sent that can
    /// be.
    pub(super) fn send(
        &mut self,
        connection: &mut Connection,
        trace: &SpoolTrace,
        until: Option<Times>,
        budget: &mut u64,
    ) -> Result<bool, SendError> {
        if self.is_closed {
            return Ok(true);
        }
        let until = until.map_or(u64::MAX, |until| until.of_clock(self.frequency));
        let mut is_complete = true;
        self.is_held = false;
        for (name, len) in &trace.streams {
            if let Some(stream) = self.streams.get_mut(name) {
                is_complete &= stream.send(connection, trace, name, *len, until, budget)?;
                self.is_held |= stream.is_held;
            }
        }
        Ok(is_complete)
    }

    /// Sends the metadata if they have changed. `clock`: the session is live, and has this clock,
    /// or takes that of these metadata.
    pub(super) fn send_metadata(
        &mut self,
        connection: &mut Connection,
        trace: &SpoolTrace,
        clock: Option<&mut Option<Vec<u8>>>,
    ) -> Result<(), SendError> {
        if self.version == trace.metadata || self.is_closed {
            return Ok(());
        }
        let mut text = read_metadata(&trace.path)?;
        self.frequency = frequency(&text);
        let is_live = clock.is_some();
        if let Some(clock) = clock {
            let common = with_clock(&text, clock);
            self.needs_correction |= common != text;
            text = common;
            // The writer has not completed the rest yet.
            text.truncate(complete_declarations(&text).len());
        }
        // None: only a new session, which sends all of it, can have these.
        let update = self.metadata.update(&text, is_live);
        match update.ok_or(SendError::Changed)? {
            Update::None => {}
            Update::Append(from) if from == 0 || !is_live => {
                connection.send_metadata(self.metadata_stream, &text[from..])?;
            }
            Update::Append(from) => self.append(connection, &text[from..])?,
            Update::AppendAndCorrect(from) => {
                self.append(connection, &text[from..])?;
                self.needs_correction = true;
            }
            Update::Replace => {
                connection.reset_metadata(self.metadata_stream, 1)?;
                connection.send_metadata(self.metadata_stream, &text)?;
            }
        }
        // What comes behind that version makes another one.
        self.version = trace.metadata;
        Ok(())
    }

    /// Appends declarations to metadata that viewers may have read.
    fn append(&self, connection: &mut Connection, declarations: &[u8]) -> Result<(), RelayError> {
        pieces(declarations)
            .try_for_each(|piece| connection.send_metadata(self.metadata_stream, &piece))
    }

    /// Asks which packets are written. Returns how many are not.
    pub(super) fn confirm(&mut self, connection: &mut Connection) -> Result<u64, SendError> {
        let mut waiting = 0;
        for stream in self.streams.values_mut() {
            if !self.is_closed && stream.confirmed < stream.packets {
                if connection.is_pending(stream.id, stream.packets - 1)? {
                    waiting += stream.packets - stream.confirmed;
                } else {
                    stream.confirmed = stream.packets;
                }
            }
        }
        Ok(waiting)
    }

    /// Closes the streams of a trace of which everything was sent and confirmed.
    pub(super) fn close(
        &mut self,
        connection: &mut Connection,
        trace: &SpoolTrace,
    ) -> Result<(), SendError> {
        if self.is_closed {
            return Ok(());
        }
        // The relay refuses to close a stream again. So none is closed before all are found: the
        // chunk may be given its final name meanwhile.
        for (name, stream) in &self.streams {
            stream.check(&files::open_in(&trace.path, name)?)?;
        }
        for stream in self.streams.values() {
            connection.close_stream(stream.id, stream.packets.wrapping_sub(1))?;
        }
        connection.close_stream(self.metadata_stream, NO_PACKET)?;
        self.is_closed = true;
        Ok(())
    }

    /// Tells live viewers that no event before this time follows in streams that have nothing new.
    pub(super) fn send_beacons(
        &mut self,
        connection: &mut Connection,
        until: Times,
    ) -> Result<(), SendError> {
        let now = until.of_clock(self.frequency);
        for stream in self.streams.values_mut().filter(|_| !self.is_closed) {
            let now = distinct_time(now, stream.id);
            let Some((_, last)) = stream.last.filter(|_| !stream.begins_before(now)) else {
                continue;
            };
            if now > last.times[1].max(stream.beacon) {
                connection.send_beacon(stream.id, last.class.into(), now)?;
                stream.beacon = now;
            }
        }
        Ok(())
    }
}

impl SentStream {
    fn new(id: u64) -> Self {
        Self {
            id,
            sent: 0,
            packets: 0,
            confirmed: 0,
            last: None,
            beacon: 0,
            is_held: false,
            next: None,
        }
    }

    /// Sends packets up to `len`. Returns whether there is nothing more to send.
    fn send(
        &mut self,
        connection: &mut Connection,
        trace: &SpoolTrace,
        name: &str,
        len: u64,
        until: u64,
        budget: &mut u64,
    ) -> Result<bool, SendError> {
        (self.is_held, self.next) = (false, None);
        if len < self.sent {
            return Err(SendError::Changed);
        }
        if len == self.sent {
            return Ok(true);
        }
        let mut file = files::open_in(&trace.path, name)?;
        self.check(&file)?;
        while *budget > 0 {
            let at = self.sent;
            let header = PacketHeader::read(&file, at)?;
            // A packet that is not complete is being written, or is the last one of a writer that
            // was killed. Both are for later, or never.
            let Some(header) = header.filter(|of| of.len <= len - at) else {
                self.next = Some(0);
                return Ok(true);
            };
            if header.times[1] > until {
                (self.is_held, self.next) = (true, Some(header.times[0]));
                return Ok(true);
            }
            let Ok(packet_len) = u32::try_from(header.len) else {
                let path = trace.path.join(name);
                let why = format!("{} has a packet of {} bytes", path.display(), header.len);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
            };
            file.seek(SeekFrom::Start(at))?;
            let sent = connection.send_packet(self.id, self.packets, packet_len, &mut file);
            sent.map_err(|error| match error {
                // The file was cut meanwhile.
                SourceError::Source(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    SendError::Changed
                }
                SourceError::Source(error) => SendError::Spool(error),
                SourceError::Relay(error) => SendError::Relay(error),
            })?;
            connection.send_index(self.id, self.packets, &index(&header))?;
            self.packets += 1;
            self.last = Some((at, header));
            self.sent += header.len;
            *budget = budget.saturating_sub(header.len);
        }
        Ok(self.sent == len)
    }

    /// Whether the next packet has events before a time.
    fn begins_before(&self, time: u64) -> bool {
        self.next.is_some_and(|begin| begin < time)
    }

    /// Checks that the last packet is still what was sent.
    fn check(&self, file: &File) -> Result<(), SendError> {
        match self.last {
            Some((at, header)) if PacketHeader::read(file, at)? != Some(header) => {
                Err(SendError::Changed)
            }
            _ => Ok(()),
        }
    }
}

/// A time that other streams do not have: babeltrace2 warns of streams that have the same one.
pub(super) fn distinct_time(time: u64, stream: u64) -> u64 {
    time.saturating_sub(stream % DISTINCT)
}

/// Sends the metadata of a trace, in a session that has no other stream of it.
pub(super) fn send_metadata_alone(
    connection: &mut Connection,
    path: &str,
    trace: &SpoolTrace,
) -> Result<(), SendError> {
    let stream = connection.add_stream(path, METADATA)?;
    connection.send_metadata(stream, &read_metadata(&trace.path)?)?;
    Ok(connection.close_stream(stream, NO_PACKET)?)
}

fn index(header: &PacketHeader) -> Index {
    Index {
        packet_size: header.len * 8,
        content_size: header.content_len * 8,
        begin: header.times[0],
        end: header.times[1],
        discarded: header.discarded,
        class: header.class.into(),
        instance: header.instance,
        packet: header.number,
    }
}

fn read_metadata(trace: &Path) -> io::Result<Vec<u8>> {
    let file = files::open_in(trace, METADATA)?;
    let mut text = Vec::new();
    file.take(MAX_METADATA).read_to_end(&mut text)?;
    if text.len() as u64 == MAX_METADATA {
        let path = trace.join(METADATA);
        let why = format!("{} is longer than {MAX_METADATA} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(text)
}
