//! One process that is being recorded.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use usertrace_ctf::{
    Clock, Identity, ProcessSummary, ProcessWriter, StreamState, Version, new_uuid,
};
use usertrace_ring::{Counts, Patience, RingReader, Stall};
use usertrace_sys::uapi::{LTT_FILE_CLOCK_UNSTABLE, LTT_FILE_DEAD};

use super::checkpoint::{Begun, Notes, ProcessNotes, RingNote};
use super::source::Source;
use super::{CONTROL, ConsumerFile};

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
    /// What its files are called.
    name: String,
    identity: Identity,
    clock: Clock,
    /// Channels of events, by their numbers in the writer.
    channels: Vec<LiveChannel<F>>,
    /// How many there will be.
    nr_channels: usize,
    control: Option<LiveChannel<F>>,
    /// None: it is to be begun, from where the notes end.
    writing: Option<Writing>,
    /// What could not be written as a whole has left something behind the end that the notes tell
    /// of.
    is_torn: bool,
    directory: PathBuf,
    /// Bytes of its traces in the chunks before.
    bytes_before: u64,
}

/// The trace of a process, in the chunk that is written.
#[derive(Debug)]
struct Writing {
    writer: ProcessWriter,
    notes: ProcessNotes,
    /// How many descriptions the notes have.
    noted_descriptions: usize,
    /// The number of that chunk.
    chunk: u64,
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
    /// The channel `channel` of the process whose files are called `name`.
    fn new(to: To<'_>, name: &str, channel: &str, file: F) -> Result<Self, ProcessError> {
        let mut source = Source::new(channel, file).map_err(ProcessError::File)?;
        source.update().map_err(ProcessError::File)?;
        let rings = source.positions.len();
        let noted = to
            .notes
            .rings(name, source.info.channel_index, rings as u32)
            .map_err(ProcessError::Write)?;
        Ok(Self {
            source,
            stalls: vec![Stall::default(); rings],
            noted,
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
    /// A process with its file of the channel of events `channel`, to be recorded from where the
    /// notes end. It has so many channels of events. None: everything of it was recorded before.
    /// Nothing is written yet.
    pub(super) fn new(
        to: To<'_>,
        name: &str,
        channel: &str,
        file: F,
        nr_channels: usize,
    ) -> Result<Option<Self>, ProcessError> {
        let begun = to.notes.begun(name).map_err(ProcessError::Write)?;
        if begun.is_some_and(|begun| begun.ended) {
            return Ok(None);
        }
        let channel = LiveChannel::new(to, name, channel, file)?;
        channel.claim()?;
        let info = &channel.source.info;
        Ok(Some(Self {
            name: name.to_owned(),
            identity: channel.source.identity(to.hostname),
            clock: Clock::new(&info.start, &[info.now]),
            channels: vec![channel],
            nr_channels,
            control: None,
            writing: None,
            // By one that was killed.
            is_torn: true,
            directory: PathBuf::new(),
            bytes_before: 0,
        }))
    }

    /// The clock of its trace.
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Gives it its file of another channel of events.
    pub(super) fn add_channel(
        &mut self,
        to: To<'_>,
        name: &str,
        file: F,
    ) -> Result<(), ProcessError> {
        let channel = LiveChannel::new(to, &self.name, name, file)?;
        channel.claim()?;
        self.channels.push(channel);
        Ok(())
    }

    /// Gives it its file of the channel `control`, without which its events mean nothing.
    pub(super) fn set_control(&mut self, to: To<'_>, control: F) -> Result<(), ProcessError> {
        let control = LiveChannel::new(to, &self.name, CONTROL, control)?;
        let control = self.control.insert(control);
        if let Some(writing) = &mut self.writing {
            writing.set_control(control);
        }
        Ok(())
    }

    /// Does it have its file of this channel?
    pub(super) fn has(&self, channel: &str) -> bool {
        let mut channels = self.channels.iter().chain(&self.control);
        channels.any(|live| live.source.name == channel)
    }

    /// Writes what there is to the trace, and gives it back to the process. `last`: take what there
    /// is for all that there will be; that is so anyway if the process is gone and its files are
    /// there. `now` is what the time is, for records that their writers do not complete. When it
    /// cannot be written, the next time begins where the notes end.
    pub(super) fn drain(
        &mut self,
        to: To<'_>,
        last: bool,
        now: Instant,
    ) -> Result<Drained, ProcessError> {
        let mut dead = self.update()?;
        if dead {
            // Positions that were read after the process was found dead are its last ones.
            dead = self.update()?;
        }
        let complete = self.control.is_some() && self.channels.len() >= self.nr_channels;
        let last = last || (dead && complete);
        let mut drained = Drained {
            ended: last,
            ..Drained::default()
        };
        self.leave_finished_chunk(to);
        if self.writing.is_none() && !self.is_to_be_begun(to).map_err(ProcessError::Write)? {
            let mut channels = self.channels.iter();
            channels.try_for_each(LiveChannel::consume_noted)?;
            return Ok(drained);
        }
        self.with_writing(to, |process, writing| {
            process.write(writing, last, now, &mut drained)
        })?;
        Ok(drained)
    }

    /// Does something with its trace in the chunk that is written, which goes on where the notes
    /// end, or begins. When it cannot be written, where the files stand is not known any more; the
    /// notes say where they are to be cut the next time.
    fn with_writing<T>(
        &mut self,
        to: To<'_>,
        body: impl FnOnce(&mut Self, &mut Writing) -> Result<T, ProcessError>,
    ) -> Result<T, ProcessError> {
        let writing = match self.writing.take() {
            Some(writing) => Ok(writing),
            None => self.begin(to).map_err(ProcessError::Write),
        };
        let done = writing.and_then(|mut writing| {
            let done = body(self, &mut writing)?;
            self.writing = Some(writing);
            Ok(done)
        });
        self.is_torn = done.is_err();
        done
    }

    /// Nothing is written any more to a chunk that was finished.
    fn leave_finished_chunk(&mut self, to: To<'_>) {
        let chunk = to.notes.chunk_number();
        if self.writing.as_ref().is_some_and(|of| of.chunk != chunk) {
            self.bytes_before = self.summary().bytes;
            self.writing = None;
        }
    }

    /// Is there anything of it that is to be in the chunk that is written?
    fn is_to_be_begun(&mut self, to: To<'_>) -> io::Result<bool> {
        let chunk = to.notes.chunk_number();
        if chunk == 0 {
            return Ok(true);
        }
        if self.is_torn {
            // What is behind the end is to be taken away, unless it is in a chunk that was
            // finished.
            let begun = to.notes.begun(&self.name)?;
            self.is_torn = begun.is_some_and(|begun| to.notes.is_current(&begun));
        }
        let mut channels = self.channels.iter();
        Ok(self.is_torn || channels.any(|channel| channel.has_news(chunk)))
    }

    fn write(
        &mut self,
        writing: &mut Writing,
        last: bool,
        now: Instant,
        drained: &mut Drained,
    ) -> Result<(), ProcessError> {
        for channel in &self.channels[writing.writer.nr_channels()..] {
            writing.add(channel).map_err(ProcessError::Write)?;
        }
        let described = match &mut self.control {
            // Each event was described before it was written. So descriptions that are read after
            // the events' positions are those of all events below them.
            Some(control) => {
                control.update()?;
                describe(control, &mut writing.writer, last, now)?
            }
            None => last,
        };
        let descriptions = writing.writer.descriptions();
        writing
            .notes
            .add_descriptions(&descriptions[writing.noted_descriptions..])
            .map_err(ProcessError::Write)?;
        writing.noted_descriptions = descriptions.len();
        if !described {
            drained.ended = false;
            return Ok(());
        }
        for (number, channel) in self.channels.iter_mut().enumerate() {
            let (writer, notes) = (&mut writing.writer, &writing.notes);
            channel.drain(number, writer, notes, last, now, drained)?;
        }
        Ok(())
    }

    fn begin(&mut self, to: To<'_>) -> io::Result<Writing> {
        let begun = match to.notes.begun(&self.name)? {
            Some(begun) if to.notes.is_current(&begun) => begun,
            _ => {
                let chunk = to.notes.chunk_number();
                let begun = Begun::new(self.identity.directory(), new_uuid()?, chunk);
                to.notes.begin(&self.name, &begun)?;
                begun
            }
        };
        self.directory = to.notes.path(&begun)?;
        let notes = to.notes.process(&self.name)?;
        let descriptions = notes.descriptions()?;
        let noted_descriptions = descriptions.len();
        let mut writer = ProcessWriter::resume(
            &self.directory,
            self.identity.clone(),
            self.clock,
            begun.uuid,
            descriptions,
        )?;
        writer.set_version(to.version);
        let mut writing = Writing {
            writer,
            notes,
            noted_descriptions,
            chunk: to.notes.chunk_number(),
        };
        for channel in &self.channels {
            writing.add(channel)?;
        }
        if let Some(control) = &self.control {
            writing.set_control(control);
        }
        Ok(writing)
    }

    /// Writes all that is to be said of what was read: then the chunk can end.
    pub(super) fn rest(&mut self, to: To<'_>) -> Result<(), ProcessError> {
        let begun = to.notes.begun(&self.name).map_err(ProcessError::Write)?;
        if !begun.is_some_and(|begun| to.notes.is_current(&begun)) {
            return Ok(());
        }
        self.leave_finished_chunk(to);
        self.with_writing(to, |process, writing| {
            process.write_rest(writing).map_err(ProcessError::Write)
        })
    }

    fn write_rest(&mut self, writing: &mut Writing) -> io::Result<()> {
        writing.writer.rest()?;
        if let Some(clock) = self.newest_clock() {
            self.clock = clock;
            writing.writer.set_clock(clock)?;
        }
        for (number, channel) in self.channels.iter_mut().enumerate() {
            for (n, noted) in channel.noted.iter_mut().enumerate() {
                // Of what was not read nothing is to be said.
                let Some(position) = noted.written() else {
                    continue;
                };
                let index = channel.source.info.channel_index;
                let state = writing.writer.ring_state(number, n);
                let counted = writing.writer.ring_counts(number, n);
                writing
                    .notes
                    .set_ring(index, n as u32, noted, position, state, counted)?;
            }
        }
        Ok(())
    }

    /// The clock, as well as it is known now: the kernel may find its frequency out better while it
    /// runs.
    fn newest_clock(&self) -> Option<Clock> {
        let mut infos = self.channels.iter().map(|of| of.source.file.info().ok());
        let info = infos.find_map(|info| info)?;
        Some(Clock::new(&info.start, &[info.now]))
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
        // The writer learns that of a ring when there will be no more.
        let channels = self.channels.iter();
        let lost = channels.fold(0u64, |lost, of| lost.saturating_add(of.source.lost()));
        ProcessSummary {
            lost,
            ..self.written_summary()
        }
    }

    /// What there is of it in files.
    fn written_summary(&self) -> ProcessSummary {
        let summary = match &self.writing {
            Some(writing) => writing.writer.summary(),
            None => self.noted_summary(),
        };
        ProcessSummary {
            bytes: summary.bytes + self.bytes_before,
            ..summary
        }
    }

    /// What the notes say that there is of it.
    fn noted_summary(&self) -> ProcessSummary {
        let noted = || self.channels.iter().flat_map(|channel| &channel.noted);
        let mut counts = Counts::default();
        noted().for_each(|noted| counts += noted.counted.counts);
        let spans = || noted().filter_map(|noted| noted.counted.span);
        let ns = |time| self.clock.unix_ns(time);
        ProcessSummary {
            trace: self.identity.trace.clone(),
            comm: self.identity.comm.clone(),
            pid: self.identity.pid,
            process: self.identity.process,
            directory: self.directory.clone(),
            events: counts.events,
            lost: noted().fold(0, |lost, noted| lost + noted.state(0).lost),
            unfinished: counts.unfinished,
            holes: counts.holes,
            corrupted: counts.corrupted,
            damaged: counts.damaged,
            overwritten: counts.overwritten,
            first_event_ns: spans().map(|(first, _)| first).min().map(ns),
            last_event_ns: spans().map(|(_, last)| last).max().map(ns),
            ..ProcessSummary::default()
        }
    }

    /// Bytes in its rings that are in no file yet, as of the last look at them.
    pub(super) fn unwritten(&self) -> u64 {
        self.channels.iter().map(LiveChannel::unwritten).sum()
    }

    /// Were there events that could not be described when they came? As long as that was so, they
    /// were not recorded, and nothing counted them.
    pub(super) fn has_undescribed(&self) -> bool {
        let mut control = self.control.iter();
        control.any(|control| control.source.lost() > 0)
    }

    /// The clock of its trace became invalid while that was there.
    pub(super) fn has_unstable_clock(&self) -> bool {
        let mut infos = self.channels.iter().map(|of| of.source.file.info());
        infos.any(|info| info.is_ok_and(|info| info.flags & LTT_FILE_CLOCK_UNSTABLE != 0))
    }

    /// Ends the recording, without reading more. When that fails, it goes on as if that had not
    /// been tried.
    pub(super) fn finish(&mut self, to: To<'_>) -> Result<ProcessSummary, ProcessError> {
        if self.writing.is_some() {
            self.with_writing(to, |process, writing| {
                process.write_rest(writing).map_err(ProcessError::Write)
            })?;
        }
        let channels = self.channels.iter();
        let infos = channels.filter_map(|channel| channel.source.file.info().ok());
        let sunk = infos.fold(0u64, |sunk, info| sunk.saturating_add(info.sunk));
        let summary = self.written_summary();
        to.notes.end(&self.name).map_err(ProcessError::Write)?;
        Ok(ProcessSummary { sunk, ..summary })
    }
}

impl Writing {
    /// Adds a channel, whose rings are read from what is in the files, or else from what was
    /// consumed.
    fn add<F: ConsumerFile>(&mut self, channel: &LiveChannel<F>) -> io::Result<()> {
        let limit = self.writer.clock().max_time();
        let source = &channel.source;
        let (format, index) = (source.channel.format(), source.info.channel_index);
        let rings = source.positions.iter().zip(&channel.noted);
        let readers = rings.map(|(ring, noted)| {
            let from = noted.written().unwrap_or(ring.consumed);
            RingReader::live(format, from, limit)
        });
        let noted = channel.noted.iter();
        let states: Vec<_> = noted.map(|noted| noted.state(self.chunk)).collect();
        let (name, of) = (&source.name, &source.channel);
        let number = self
            .writer
            .add_channel(name, index, of, readers.collect(), &states)?;
        for (n, noted) in channel.noted.iter().enumerate() {
            self.writer.set_ring_counts(number, n, noted.counted);
        }
        Ok(())
    }

    fn set_control<F: ConsumerFile>(&mut self, control: &LiveChannel<F>) {
        let limit = self.writer.clock().max_time();
        let format = control.source.channel.format();
        // Descriptions are never consumed: they are read from the start.
        let readers = control.source.positions.iter();
        let readers = readers
            .map(|_| RingReader::live(format, 0, limit))
            .collect();
        self.writer.set_control(readers);
    }
}

impl<F: ConsumerFile> LiveChannel<F> {
    /// Is there something in it that no chunk has, or that this one, which has a part of it, does
    /// not tell?
    fn has_news(&self, chunk: u64) -> bool {
        let rings = self.source.positions.iter().zip(&self.noted);
        rings.into_iter().any(|(ring, noted)| {
            let state = noted.state(chunk);
            let is_untold =
                |stream: StreamState| stream.gap || stream.discarded != stream.discarded_written;
            ring.head > noted.written().unwrap_or(ring.consumed)
                || ring.lost > state.lost
                || state.stream.is_some_and(is_untold)
        })
    }

    /// Gives back what was written, if the one who did that was killed before.
    fn consume_noted(&self) -> Result<(), ProcessError> {
        for (n, (ring, noted)) in self.source.positions.iter().zip(&self.noted).enumerate() {
            let written = noted.written().unwrap_or(0).min(ring.head);
            if written > ring.consumed {
                consume(&self.source, n as u32, written)?;
            }
        }
        Ok(())
    }

    fn unwritten(&self) -> u64 {
        let size = self.source.channel.geometry().ring_size();
        let rings = self.source.positions.iter().zip(&self.noted);
        let rings = rings.map(|(ring, noted)| {
            let written = noted.written().unwrap_or(ring.consumed);
            ring.head.saturating_sub(written).min(size)
        });
        rings.sum()
    }

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
            // What is in the files in the end is there before the kernel may forget the process, as
            // nothing is left of it.
            if last {
                writer
                    .end_ring(number, n, ring.lost)
                    .map_err(ProcessError::Write)?;
            }
            // First what was written, then that it was, then that it may be overwritten.
            let state = writer.ring_state(number, n);
            let counted = writer.ring_counts(number, n);
            let index = source.info.channel_index;
            notes
                .set_ring(index, n as u32, noted, position, state, counted)
                .map_err(ProcessError::Write)?;
            // Not beyond the head: it may have been impossible, or moved back. What is between
            // words is never consumed.
            let position = position.min(ring.head) & !7;
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
    pub(super) notes: &'a Notes,
    pub(super) hostname: Option<&'a str>,
    pub(super) version: Version,
}

/// Reads all descriptions that there are. False: some are waited for, and events are not understood
/// before.
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
