//! One process that is being recorded.

use std::io;
use std::path::Path;
use std::time::Instant;

use usertrace_sys::uapi::LTT_FILE_DEAD;

use super::notes::{Begun, Notes, ProcessNotes, RingNote};
use super::source::Source;
use super::{CONTROL, ConsumerFile};
use crate::ctf::{Clock, Identity, ProcessSummary, ProcessWriter, Version, new_uuid};
use crate::ring::{Patience, RingReader, Stall};

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
    channels: Vec<LiveChannel<F>>,
    /// How many there will be.
    nr_channels: usize,
    control: Option<LiveChannel<F>>,
    writer: ProcessWriter,
    notes: ProcessNotes,
    /// How many descriptions the notes have.
    noted_descriptions: usize,
}

/// A file of one channel that is being recorded, and what there is to know of its rings.
#[derive(Debug)]
struct LiveChannel<F> {
    source: Source<F>,
    /// Of each ring.
    stalls: Vec<Stall>,
    noted: Vec<RingNote>,
}

impl<F: ConsumerFile> LiveChannel<F> {
    fn new(name: &str, file: F) -> Result<Self, ProcessError> {
        let mut source = Source::new(name, file).map_err(ProcessError::File)?;
        source.update().map_err(ProcessError::File)?;
        let rings = source.positions.len();
        Ok(Self {
            source,
            stalls: vec![Stall::default(); rings],
            noted: vec![RingNote::default(); rings],
        })
    }

    fn update(&mut self) -> Result<u32, ProcessError> {
        self.source.update().map_err(ProcessError::File)
    }

    /// Makes this file the one that consumes, before anything is read.
    fn claim(&self) -> Result<(), ProcessError> {
        let first = self.source.positions.first();
        first.map_or(Ok(()), |ring| consume(&self.source, 0, ring.consumed))
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
        let channel = LiveChannel::new(channel, file)?;
        channel.claim()?;
        let info = &channel.source.info;
        let clock = Clock::new(&info.start, &[info.now]);
        let identity = channel.source.identity(to.hostname);
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
            noted_descriptions: writer.descriptions().len(),
            writer,
            notes,
        };
        process.add(channel)?;
        Ok(Some(process))
    }

    /// The clock of its trace.
    pub(super) fn clock(&self) -> &Clock {
        self.writer.clock()
    }

    /// Gives it its file of another channel of events.
    pub(super) fn add_channel(&mut self, name: &str, file: F) -> Result<(), ProcessError> {
        let channel = LiveChannel::new(name, file)?;
        channel.claim()?;
        self.add(channel)
    }

    fn add(&mut self, mut channel: LiveChannel<F>) -> Result<(), ProcessError> {
        let limit = self.writer.clock().max_time();
        let source = &channel.source;
        let (format, index) = (source.channel.format(), source.info.channel_index);
        for (ring, noted) in (0..).zip(&mut channel.noted) {
            let note = self.notes.ring(index, ring);
            *noted = note.map_err(ProcessError::Write)?;
        }
        // From what is in the files, or else from what was consumed.
        let rings = source.positions.iter().zip(&channel.noted);
        let readers = rings.map(|(ring, noted)| {
            let from = noted.written().unwrap_or(ring.consumed);
            RingReader::live(format, from, limit)
        });
        let states: Vec<_> = channel.noted.iter().map(|noted| noted.state).collect();
        let (name, of) = (&source.name, &source.channel);
        self.writer
            .add_channel(name, index, of, readers.collect(), &states)
            .map_err(ProcessError::Write)?;
        self.channels.push(channel);
        Ok(())
    }

    /// Gives it its file of the channel `control`, without which its events mean nothing.
    pub(super) fn set_control(&mut self, control: F) -> Result<(), ProcessError> {
        let control = LiveChannel::new(CONTROL, control)?;
        let limit = self.writer.clock().max_time();
        let format = control.source.channel.format();
        // Descriptions are never consumed: they are read from the start.
        let readers = control.source.positions.iter();
        let readers = readers
            .map(|_| RingReader::live(format, 0, limit))
            .collect();
        self.writer.set_control(readers);
        self.control = Some(control);
        Ok(())
    }

    /// Does it have its file of this channel?
    pub(super) fn has(&self, channel: &str) -> bool {
        let mut channels = self.channels.iter().chain(&self.control);
        channels.any(|live| live.source.name == channel)
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
        let descriptions = self.writer.descriptions();
        self.notes
            .add_descriptions(&descriptions[self.noted_descriptions..])
            .map_err(ProcessError::Write)?;
        self.noted_descriptions = descriptions.len();
        if !described {
            return Ok(Drained::default());
        }
        let mut drained = Drained {
            ended: last,
            ..Drained::default()
        };
        for (number, channel) in self.channels.iter_mut().enumerate() {
            let (writer, notes) = (&mut self.writer, &self.notes);
            channel.drain(number, writer, notes, last, now, &mut drained)?;
        }
        Ok(drained)
    }

    /// Reads all positions of events. True: the process is gone.
    fn update(&mut self) -> Result<bool, ProcessError> {
        let mut flags = 0;
        for channel in &mut self.channels {
            flags |= channel.update()?;
        }
        Ok(flags & LTT_FILE_DEAD != 0)
    }

    /// What there is of it so far.
    pub(super) fn summary(&self) -> ProcessSummary {
        let channels = self.channels.iter();
        let rings = channels.flat_map(|channel| &channel.source.positions);
        ProcessSummary {
            // The writer learns that of a ring when there will be no more.
            lost: rings.fold(0, |lost, ring| ring.lost.saturating_add(lost)),
            ..self.writer.summary()
        }
    }

    /// Were there events that could not be described when they came? As long as that was so, they were not recorded, and
    /// nothing counted them.
    pub(super) fn has_undescribed(&self) -> bool {
        let control = self.control.iter();
        let mut rings = control.flat_map(|control| &control.source.positions);
        rings.any(|ring| ring.lost > 0)
    }

    /// Ends the recording, without reading more.
    pub(super) fn finish(self) -> io::Result<ProcessSummary> {
        let channels = self.channels.iter();
        let infos = channels.map(|channel| channel.source.file.info().ok());
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

impl<F: ConsumerFile> LiveChannel<F> {
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
        let source = &self.source;
        let ring_size = source.channel.geometry().ring_size();
        let rings = source.positions.iter().zip(&mut self.stalls);
        for (n, ((ring, stall), noted)) in rings.zip(&mut self.noted).enumerate() {
            let waiting = ring.head.saturating_sub(ring.consumed).min(ring_size);
            drained.fill = drained.fill.max(waiting * 1000 / ring_size);
            let patience = if last {
                Patience::Last
            } else {
                stall.patience(ring.consumed, ring.head, ring_size, now)
            };
            let mut memory = source.ring(n);
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
                .set_ring(source.info.channel_index, n as u32, noted, position, state)
                .map_err(ProcessError::Write)?;
            // Not beyond the head: it may have been impossible, or moved back.
            let position = position.min(ring.head);
            if position > ring.consumed {
                drained.bytes += position - ring.consumed;
                consume(source, n as u32, position)?;
            }
        }
        Ok(())
    }
}

/// Tells the kernel that what is below `position` was consumed.
fn consume(
    source: &Source<impl ConsumerFile>,
    ring: u32,
    position: u64,
) -> Result<(), ProcessError> {
    match source.file.consume(ring, position) {
        // The process moves its head as it likes: then its ring fills up, which harms nobody else.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            Err(ProcessError::Busy(source.name.clone()))
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
    pub(super) version: Version,
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
        let descriptions = notes.descriptions()?;
        let mut writer = ProcessWriter::resume(&directory, identity, clock, uuid, descriptions)?;
        writer.set_version(self.version);
        Ok(Some((writer, notes)))
    }
}

/// Reads all descriptions that there are. False: some are waited for, and events are not understood before.
fn describe<F: ConsumerFile>(
    control: &mut LiveChannel<F>,
    writer: &mut ProcessWriter,
    last: bool,
    now: Instant,
) -> Result<bool, ProcessError> {
    let patience = if last { Patience::Last } else { Patience::Wait };
    let mut described = true;
    let source = &control.source;
    let rings = source.positions.iter().zip(&mut control.stalls);
    for (n, (ring, stall)) in rings.enumerate() {
        let mut memory = source.ring(n);
        let position = writer
            .read_control(n, &mut memory, ring.head, patience)
            .map_err(ProcessError::Write)?;
        // A description that is never completed does not keep all events of the program for ever.
        let waits = position < ring.head;
        described &= last || !waits || stall.is_over(position, waits, now);
    }
    Ok(described)
}
