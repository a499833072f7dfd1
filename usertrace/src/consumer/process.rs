//! One process that is being recorded.

use std::io;
use std::path::Path;
use std::time::Instant;

use usertrace_sys::uapi::{LTT_FILE_DEAD, LTT_MAX_CHANNELS, LttFileInfo, LttRingPositions};

use super::notes::{Begun, Notes, ProcessNotes, RingNote};
use super::{CONTROL, ConsumerFile, FileRing};
use crate::ctf::{Clock, Identity, ProcessSummary, ProcessWriter, new_uuid, text};
use crate::ring::{Channel, Patience, RingReader, Stall};

/// What can go wrong with the recording of a process.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProcessError {
    /// Its files: that is its own affair.
    #[error("its files cannot be read")]
    File(#[source] io::Error),
    /// Another program consumes what is in this channel.
    #[error("another program consumes its channel {0}")]
    Busy(String),
    /// Its trace: that will go wrong with others too.
    #[error("its trace cannot be written")]
    Write(#[source] io::Error),
}

/// What there was to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drained {
    /// Bytes that were given back to the writer.
    pub(super) bytes: u64,
    /// How full the fullest ring was, in 1/1000.
    pub(super) fill: u64,
    /// There will never be more.
    pub(super) ended: bool,
}

/// A process that is being recorded: its files, and its trace.
#[derive(Debug)]
pub(super) struct LiveProcess<F> {
    /// Channels of events, by their numbers in `writer`.
    channels: Vec<Source<F>>,
    /// How many there will be.
    nr_channels: usize,
    control: Option<Source<F>>,
    writer: ProcessWriter,
    notes: ProcessNotes,
    /// How many events the notes have.
    noted_events: usize,
}

/// A file, its channel, and room for its positions.
#[derive(Debug)]
struct Source<F> {
    name: String,
    file: F,
    index: u32,
    channel: Channel,
    positions: Vec<LttRingPositions>,
    /// Of each ring.
    stalls: Vec<Stall>,
    noted: Vec<RingNote>,
}

impl<F: ConsumerFile> Source<F> {
    fn new(name: &str, file: F, info: &LttFileInfo) -> Result<Self, ProcessError> {
        let channel = Channel::new(&info.channel)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
            .map_err(ProcessError::File)?;
        if info.channel_index as usize >= LTT_MAX_CHANNELS {
            return Err(ProcessError::File(io::ErrorKind::InvalidData.into()));
        }
        let mut source = Self {
            name: name.to_owned(),
            file,
            index: info.channel_index,
            channel,
            positions: vec![LttRingPositions::default(); channel.nr_rings() as usize],
            stalls: vec![Stall::default(); channel.nr_rings() as usize],
            noted: vec![RingNote::default(); channel.nr_rings() as usize],
        };
        source.update()?;
        Ok(source)
    }

    fn update(&mut self) -> Result<u32, ProcessError> {
        self.file
            .positions(&mut self.positions)
            .map_err(ProcessError::File)
    }

    /// Makes this file the one that consumes, before anything is read.
    fn claim(&self) -> Result<(), ProcessError> {
        let first = self.positions.first();
        first.map_or(Ok(()), |ring| {
            consume(&self.file, &self.name, 0, ring.consumed)
        })
    }
}

impl<F: ConsumerFile> LiveProcess<F> {
    /// Begins to record a process with its file of the channel of events `channel`, or goes on where the notes end. It has
    /// so many channels of events. None: everything of it was recorded before.
    pub(super) fn new(
        to: To<'_>,
        name: &str,
        channel: &str,
        file: F,
        nr_channels: usize,
    ) -> Result<Option<Self>, ProcessError> {
        let info = file.info().map_err(ProcessError::File)?;
        let clock = Clock::new(&info.start, &[info.now]);
        let identity = Identity {
            trace: text(&info.trace),
            comm: text(&info.comm),
            pid: info.pid,
            process: info.process,
            hostname: to.hostname.map(str::to_owned),
        };
        let source = Source::new(channel, file, &info)?;
        source.claim()?;
        let Some((writer, notes)) = to
            .writer(name, identity, clock)
            .map_err(ProcessError::Write)?
        else {
            return Ok(None);
        };
        let mut process = Self {
            channels: Vec::new(),
            nr_channels,
            control: None,
            noted_events: writer.events().len(),
            writer,
            notes,
        };
        process.add_source(source)?;
        Ok(Some(process))
    }

    /// Gives it its file of another channel of events.
    pub(super) fn add_channel(&mut self, name: &str, file: F) -> Result<(), ProcessError> {
        let info = file.info().map_err(ProcessError::File)?;
        let source = Source::new(name, file, &info)?;
        source.claim()?;
        self.add_source(source)
    }

    fn add_source(&mut self, mut source: Source<F>) -> Result<(), ProcessError> {
        let limit = self.writer.clock().max_time();
        let format = source.channel.format();
        for (ring, noted) in (0..).zip(&mut source.noted) {
            let note = self.notes.ring(source.index, ring);
            *noted = note.map_err(ProcessError::Write)?;
        }
        // From what is in the files, or else from what was consumed.
        let rings = source.positions.iter().zip(&source.noted);
        let readers = rings.map(|(ring, noted)| {
            let from = noted.written().unwrap_or(ring.consumed);
            RingReader::live(format, from, limit)
        });
        let states: Vec<_> = source.noted.iter().map(|noted| noted.state).collect();
        let (name, channel) = (&source.name, &source.channel);
        self.writer
            .add_channel(name, source.index, channel, readers.collect(), &states)
            .map_err(ProcessError::Write)?;
        self.channels.push(source);
        Ok(())
    }

    /// Gives it its file of the channel `control`, without which its events mean nothing.
    pub(super) fn set_control(&mut self, control: F) -> Result<(), ProcessError> {
        let info = control.info().map_err(ProcessError::File)?;
        let control = Source::new(CONTROL, control, &info)?;
        let limit = self.writer.clock().max_time();
        let format = control.channel.format();
        // Descriptions are never consumed: they are read from the start.
        let readers = control.positions.iter();
        let readers = readers
            .map(|_| RingReader::live(format, 0, limit))
            .collect();
        self.writer.set_control(readers);
        self.control = Some(control);
        Ok(())
    }

    /// Does it have its file of this channel?
    pub(super) fn has(&self, channel: &str) -> bool {
        let mut sources = self.channels.iter().chain(&self.control);
        sources.any(|source| source.name == channel)
    }

    /// Writes what there is to the trace, and gives it back to the process. `last`: take what there is for all that
    /// there will be; that is so anyway if the process is gone and its files are there. `now` is what the time is, for
    /// records that their writers do not complete.
    pub(super) fn drain(&mut self, last: bool, now: Instant) -> Result<Drained, ProcessError> {
        let mut dead = self.update()?;
        if dead {
            // Positions that were read after the process was found dead are its last ones.
            dead = self.update()?;
        }
        let complete = self.control.is_some() && self.channels.len() >= self.nr_channels;
        let last = last || (dead && complete);
        let described = match &mut self.control {
            // Each event was described before it was written. So descriptions that are read after the events'
            // positions are those of all events below them.
            Some(control) => {
                control.update()?;
                describe(control, &mut self.writer, last, now)?
            }
            None => last,
        };
        let events = self.writer.events();
        self.notes
            .add_events(&events[self.noted_events..])
            .map_err(ProcessError::Write)?;
        self.noted_events = events.len();
        if !described {
            return Ok(Drained::default());
        }
        let mut drained = Drained {
            ended: last,
            ..Drained::default()
        };
        for (number, source) in self.channels.iter_mut().enumerate() {
            let (writer, notes) = (&mut self.writer, &self.notes);
            source.drain(number, writer, notes, last, now, &mut drained)?;
        }
        Ok(drained)
    }

    /// Reads all positions of events. True: the process is gone.
    fn update(&mut self) -> Result<bool, ProcessError> {
        let mut flags = 0;
        for source in &mut self.channels {
            flags |= source.update()?;
        }
        Ok(flags & LTT_FILE_DEAD != 0)
    }

    /// Ends the recording, without reading more.
    pub(super) fn finish(self) -> io::Result<ProcessSummary> {
        let infos = self.channels.iter().map(|source| source.file.info().ok());
        let infos: Vec<_> = infos.flatten().collect();
        let clock = infos
            .first()
            .map(|info| Clock::new(&info.start, &[info.now]));
        let summary = self.writer.finish(clock)?;
        self.notes.end()?;
        Ok(ProcessSummary {
            sunk: infos
                .iter()
                .fold(0, |sunk, info| sunk.saturating_add(info.sunk)),
            ..summary
        })
    }
}

impl<F: ConsumerFile> Source<F> {
    /// Writes what there is, of the channel that `writer` calls `number`.
    fn drain(
        &mut self,
        number: usize,
        writer: &mut ProcessWriter,
        notes: &ProcessNotes,
        last: bool,
        now: Instant,
        drained: &mut Drained,
    ) -> Result<(), ProcessError> {
        let ring_size = self.channel.geometry().ring_size();
        let rings = self.positions.iter().zip(&mut self.stalls);
        for (n, ((ring, stall), noted)) in rings.zip(&mut self.noted).enumerate() {
            let waiting = ring.head.saturating_sub(ring.consumed).min(ring_size);
            drained.fill = drained.fill.max(waiting * 1000 / ring_size);
            let patience = if last {
                Patience::Last
            } else {
                stall.patience(ring.consumed, ring.head, ring_size, now)
            };
            let mut memory = FileRing::new(&self.file, &self.channel, n as u32);
            let position = writer
                .read(number, n, &mut memory, ring.head, patience)
                .map_err(ProcessError::Write)?;
            // What is in the files in the end is there before the kernel may forget the process, as nothing is left of it.
            if last {
                writer
                    .end_ring(number, n, ring.lost)
                    .map_err(ProcessError::Write)?;
            }
            // First what was written, then that it was, then that it may be overwritten.
            let state = writer.ring_state(number, n);
            notes
                .set_ring(self.index, n as u32, noted, position, state)
                .map_err(ProcessError::Write)?;
            // Not beyond the head: it may have been impossible, or moved back.
            let position = position.min(ring.head);
            if position > ring.consumed {
                drained.bytes += position - ring.consumed;
                consume(&self.file, &self.name, n as u32, position)?;
            }
        }
        Ok(())
    }
}

/// Tells the kernel that what is below `position` was consumed.
fn consume(
    file: &impl ConsumerFile,
    channel: &str,
    ring: u32,
    position: u64,
) -> Result<(), ProcessError> {
    match file.consume(ring, position) {
        // The process moves its head as it likes: then its ring fills up, which harms nobody else.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            Err(ProcessError::Busy(channel.to_owned()))
        }
        result => result.map_err(ProcessError::File),
    }
}

/// Where traces are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct To<'a> {
    pub(super) output: &'a Path,
    pub(super) notes: &'a Notes,
    pub(super) hostname: Option<&'a str>,
}

impl To<'_> {
    /// Begins the trace of the process whose files are called `name`, or goes on with it. None: it is complete.
    fn writer(
        self,
        name: &str,
        identity: Identity,
        clock: Clock,
    ) -> io::Result<Option<(ProcessWriter, ProcessNotes)>> {
        let begun = match self.notes.begun(name)? {
            Some(begun) if begun.ended => return Ok(None),
            Some(begun) => begun,
            None => Begun::new(identity.directory(), new_uuid()?),
        };
        let (directory, uuid) = (begun.path(self.output)?, begun.uuid);
        let notes = self.notes.process(name, begun)?;
        let events = notes.events()?;
        let writer = ProcessWriter::resume(&directory, identity, clock, uuid, events)?;
        Ok(Some((writer, notes)))
    }
}

/// Reads all descriptions that there are. False: some are waited for, and events are not understood before.
fn describe<F: ConsumerFile>(
    control: &mut Source<F>,
    writer: &mut ProcessWriter,
    last: bool,
    now: Instant,
) -> Result<bool, ProcessError> {
    let patience = if last { Patience::Last } else { Patience::Wait };
    let mut described = true;
    let rings = control.positions.iter().zip(&mut control.stalls);
    for (n, (ring, stall)) in rings.enumerate() {
        let mut memory = FileRing::new(&control.file, &control.channel, n as u32);
        let position = writer
            .read_control(n, &mut memory, ring.head, patience)
            .map_err(ProcessError::Write)?;
        // A description that is never completed does not keep all events of the program for ever.
        let waits = position < ring.head;
        described &= last || !waits || stall.is_over(position, waits, now);
    }
    Ok(described)
}
