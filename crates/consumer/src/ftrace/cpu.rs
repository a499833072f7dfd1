//! The events of one CPU, and their CTF stream.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;

use usertrace_ctf::{StreamChannel, StreamOwner, StreamState, StreamWriter, TraceWriter};
use usertrace_sys::uapi::LTT_CHANNEL_MAIN;

use super::format::Format;
use super::page;
use super::ring::{LossCount, PagePart, Ring};

/// Prefix of the stream files' names.
const CHANNEL: &str = "cpu";
/// Offset of the thread id in a record. The record starts with the event id.
const PID: usize = 4;

/// States of the existing stream files, by their names.
pub(super) type Streams = HashMap<OsString, StreamState>;

/// One CPU with its ring and its stream.
#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) number: u32,
    pub(super) ring: Ring,
    /// `None` before the first event: there is no file yet.
    pub(super) stream: Option<StreamWriter>,
    /// The state of the stream after its last packet, from which to retry after an error.
    pub(super) state: Option<StreamState>,
    /// Events up to this time are in the file already.
    known: Option<u64>,
    /// A page that could not be written yet.
    held: Option<PagePart>,
    pub(super) events: u64,
    pub(super) lost: u64,
}

impl Cpu {
    pub(super) fn new(number: u32, ring: Ring, streams: &Streams) -> Self {
        let file = stream_of(number).file_name(&channel());
        let state = streams.get(OsStr::new(&file)).copied();
        Self {
            number,
            ring,
            stream: None,
            known: state.map(|state| state.time),
            lost: state.map_or(0, |state| state.discarded),
            state,
            held: None,
            events: 0,
        }
    }

    /// Writes the contents of the ring to the stream. Returns whether there was data.
    pub(super) fn drain(
        &mut self,
        trace: &TraceWriter,
        formats: &HashMap<u16, Format>,
    ) -> io::Result<bool> {
        let mut some = false;
        // At most one ring's worth of pages: later data waits for the next call.
        for _ in 0..self.ring.nr_pages() {
            let part = match self.held.take() {
                Some(part) => part,
                None => match self.ring.next()? {
                    Some(part) => part,
                    None => break,
                },
            };
            some = true;
            if let Err(error) = self.write(trace, formats, part) {
                // Retry from the end of the last packet.
                self.stream = None;
                self.held = Some(part);
                return Err(error);
            }
        }
        Ok(some)
    }

    /// Writes a part of a page as complete packets. A recorder that is killed leaves only these,
    /// and its successor finds the page again.
    fn write(
        &mut self,
        trace: &TraceWriter,
        formats: &HashMap<u16, Format>,
        part: PagePart,
    ) -> io::Result<()> {
        self.lose(trace, part.lost)?;
        let known = self.known;
        let mut events = 0;
        let mut stream = self.stream(trace)?;
        let mut payload = Vec::new();
        for record in page::records(self.ring.page(), part.to) {
            let is_known =
                record.offset < part.from || known.is_some_and(|known| record.time <= known);
            let id = record.bytes.first_chunk().map(|id| u16::from_ne_bytes(*id));
            let Some(format) = id.and_then(|id| formats.get(&id)).filter(|_| !is_known) else {
                continue;
            };
            let pid = record
                .bytes
                .get(PID..)
                .and_then(|bytes| bytes.first_chunk());
            payload.clear();
            format.payload(record.bytes, &mut payload);
            stream.event(
                format.event.id,
                record.time,
                pid.unwrap_or(&[0; 4]),
                &payload,
            )?;
            events += 1;
        }
        stream.flush()?;
        self.state = Some(stream.state());
        self.stream = Some(stream);
        self.events += events;
        Ok(())
    }

    /// Reports lost events in the stream.
    pub(super) fn lose(&mut self, trace: &TraceWriter, lost: LossCount) -> io::Result<()> {
        let more = match lost {
            LossCount::Total(count) => count.saturating_sub(self.lost),
            LossCount::New(count) => count,
            LossCount::Unknown => {
                let mut stream = self.stream(trace)?;
                stream.overwrite(1)?;
                self.stream = Some(stream);
                return Ok(());
            }
        };
        if more > 0 {
            let mut stream = self.stream(trace)?;
            stream.discard(more);
            self.lost += more;
            self.stream = Some(stream);
        }
        Ok(())
    }

    /// The stream: a new file, or the existing one, resumed at `state`.
    fn stream(&mut self, trace: &TraceWriter) -> io::Result<StreamWriter> {
        match self.stream.take() {
            Some(stream) => Ok(stream),
            None => trace.resume_stream(&channel(), stream_of(self.number), self.state.as_ref()),
        }
    }
}

fn channel() -> StreamChannel {
    let mut channel = StreamChannel::new(CHANNEL, LTT_CHANNEL_MAIN as u32);
    channel.set_contexts();
    channel
}

fn stream_of(cpu: u32) -> StreamOwner {
    StreamOwner::Cpu(cpu)
}
