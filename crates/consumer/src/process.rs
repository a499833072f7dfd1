//! The recording of one process: drains its rings into its CTF trace.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use usertrace_ctf::{
    Clock, Identity, ProcessSummary, ProcessWriter, StreamState, Version, new_uuid,
};
use usertrace_ring::{Counts, RingReader, StallDetector, WaitPolicy};
use usertrace_sys::uapi::{LTT_FILE_CLOCK_UNSTABLE, LTT_FILE_DEAD};

use super::checkpoint::{Checkpoint, ProcessCheckpoint, RingCheckpoint, TraceStart};
use super::host_clock::host_clock;
use super::source::ConsumerSource;
use super::{CONTROL, ConsumerFile};

/// Why a process cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProcessError {
    /// Its files cannot be read; other processes are not affected.
    #[error("its files cannot be read")]
    File(#[source] io::Error),
    /// Another program consumes what is in this channel.
    #[error("another program consumes its channel {0}")]
    Busy(String),
    /// Its trace cannot be written; other traces will fail as well.
    #[error("its trace cannot be written")]
    Write(#[source] io::Error),
}

/// The result of draining a process or a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drained {
    /// Bytes that were consumed, and so returned to the writer.
    pub(super) bytes: u64,
    /// Fill level of the fullest ring, in 1/1000.
    pub(super) fill: u64,
    /// No more data will come.
    pub(super) ended: bool,
}

/// A process that is being recorded: its consumer files, and its trace.
#[derive(Debug)]
pub(super) struct LiveProcess<F> {
    /// The name of its consumer files.
    name: String,
    identity: Identity,
    clock: Clock,
    /// Event channels, by their numbers in the writer.
    channels: Vec<LiveChannel<F>>,
    /// Number of event channels that the process will have.
    nr_channels: usize,
    control: Option<LiveChannel<F>>,
    /// `None`: the trace is yet to be started, or resumed from the checkpoint.
    writing: Option<Writing>,
    /// A failed write may have left data in the files beyond the checkpoint.
    is_torn: bool,
    directory: PathBuf,
    /// Bytes of its traces in earlier chunks.
    bytes_before: u64,
}

/// The trace of a process in the current chunk.
#[derive(Debug)]
struct Writing {
    writer: ProcessWriter,
    checkpoint: ProcessCheckpoint,
    /// Number of descriptions in the checkpoint.
    saved_descriptions: usize,
    /// The number of the current chunk.
    chunk: u64,
}

/// A consumer file of one channel that is being recorded, with the state of its rings.
#[derive(Debug)]
struct LiveChannel<F> {
    source: ConsumerSource<F>,
    /// One per ring.
    stalls: Vec<StallDetector>,
    saved: Vec<RingCheckpoint>,
    /// The final state of its tables is written, if it counts.
    is_final: bool,
}

impl<F: ConsumerFile> LiveChannel<F> {
    /// Opens the channel `channel` of the process whose files are named `name`.
    fn new(to: Destination<'_>, name: &str, channel: &str, file: F) -> Result<Self, ProcessError> {
        let mut source = ConsumerSource::new(channel, file).map_err(ProcessError::File)?;
        source.update().map_err(ProcessError::File)?;
        let rings = source.positions.len();
        let saved = to
            .checkpoint
            .rings(name, source.info.channel_index, rings as u32)
            .map_err(ProcessError::Write)?;
        Ok(Self {
            source,
            stalls: vec![StallDetector::default(); rings],
            saved,
            is_final: false,
        })
    }

    fn update(&mut self) -> Result<u32, ProcessError> {
        self.source.update().map_err(ProcessError::File)
    }

    /// Becomes the consumer of the file, before anything is read.
    fn claim(&self) -> Result<(), ProcessError> {
        let first = self.source.positions.first();
        first.map_or(Ok(()), |ring| consume(&self.source, 0, ring.consumed))
    }
}

impl<F: ConsumerFile> LiveProcess<F> {
    /// Records a process from its checkpoint, starting with its file of the event channel
    /// `channel`. The process has `nr_channels` event channels. Returns `None` if the process was
    /// recorded completely before. Writes nothing yet.
    pub(super) fn new(
        to: Destination<'_>,
        name: &str,
        channel: &str,
        file: F,
        nr_channels: usize,
    ) -> Result<Option<Self>, ProcessError> {
        let start = to
            .checkpoint
            .trace_start(name)
            .map_err(ProcessError::Write)?;
        if start.is_some_and(|start| start.ended) {
            return Ok(None);
        }
        let channel = LiveChannel::new(to, name, channel, file)?;
        channel.claim()?;
        let info = &channel.source.info;
        Ok(Some(Self {
            name: name.to_owned(),
            identity: channel.source.identity(to.hostname),
            clock: host_clock(&info.start, &[info.now]),
            channels: vec![channel],
            nr_channels,
            control: None,
            writing: None,
            // A killed recorder may have left data beyond the checkpoint.
            is_torn: true,
            directory: PathBuf::new(),
            bytes_before: 0,
        }))
    }

    /// The clock of its trace.
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Adds the process's file of another event channel.
    pub(super) fn add_channel(
        &mut self,
        to: Destination<'_>,
        name: &str,
        file: F,
    ) -> Result<(), ProcessError> {
        let channel = LiveChannel::new(to, &self.name, name, file)?;
        channel.claim()?;
        self.channels.push(channel);
        Ok(())
    }

    /// Adds the process's file of the channel `control`, which describes its events.
    pub(super) fn set_control(
        &mut self,
        to: Destination<'_>,
        control: F,
    ) -> Result<(), ProcessError> {
        let control = LiveChannel::new(to, &self.name, CONTROL, control)?;
        let control = self.control.insert(control);
        if let Some(writing) = &mut self.writing {
            writing.set_control(control);
        }
        Ok(())
    }

    /// Whether it has its file of this channel.
    pub(super) fn has(&self, channel: &str) -> bool {
        let mut channels = self.channels.iter().chain(&self.control);
        channels.any(|live| live.source.name == channel)
    }

    /// Writes the available data to the trace, and consumes it. `last` means that no more data will
    /// come; a dead process with all of its files implies it. `now` is the current time, to detect
    /// records that their writers never commit. After a write error, the next call resumes from the
    /// checkpoint.
    pub(super) fn drain(
        &mut self,
        to: Destination<'_>,
        last: bool,
        now: Instant,
    ) -> Result<Drained, ProcessError> {
        let mut dead = self.update()?;
        if dead {
            // The process is dead, so the positions of this second update are final.
            dead = self.update()?;
        }
        let complete = self.control.is_some() && self.channels.len() >= self.nr_channels;
        let last = last || (dead && complete);
        let mut drained = Drained {
            ended: last,
            ..Drained::default()
        };
        self.close_finished_chunk(to);
        if self.writing.is_none() && !self.needs_trace(to).map_err(ProcessError::Write)? {
            let mut channels = self.channels.iter();
            channels.try_for_each(LiveChannel::consume_checkpointed)?;
            return Ok(drained);
        }
        self.with_writing(to, |process, writing| {
            process.write(writing, last, dead, now, &mut drained)
        })?;
        Ok(drained)
    }

    /// Calls `body` with the trace in the current chunk, which is started or resumed from the
    /// checkpoint if necessary. After a write error the state of the files is unknown; the
    /// checkpoint says where to cut them next time.
    fn with_writing<T>(
        &mut self,
        to: Destination<'_>,
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

    /// Closes the trace of a chunk that was finished.
    fn close_finished_chunk(&mut self, to: Destination<'_>) {
        let chunk = to.checkpoint.chunk_number();
        if self.writing.as_ref().is_some_and(|of| of.chunk != chunk) {
            self.bytes_before = self.summary().bytes;
            self.writing = None;
        }
    }

    /// Whether the process has anything for the current chunk.
    fn needs_trace(&mut self, to: Destination<'_>) -> io::Result<bool> {
        let chunk = to.checkpoint.chunk_number();
        if chunk == 0 {
            return Ok(true);
        }
        if self.is_torn {
            // Data beyond the checkpoint must be removed, unless it is in a finished chunk.
            let start = to.checkpoint.trace_start(&self.name)?;
            self.is_torn = start.is_some_and(|start| to.checkpoint.is_current(&start));
        }
        let mut channels = self.channels.iter();
        Ok(self.is_torn || channels.any(|channel| channel.needs_chunk(chunk)))
    }

    fn write(
        &mut self,
        writing: &mut Writing,
        last: bool,
        dead: bool,
        now: Instant,
        drained: &mut Drained,
    ) -> Result<(), ProcessError> {
        for channel in &self.channels[writing.writer.nr_channels()..] {
            writing.add(channel).map_err(ProcessError::Write)?;
        }
        if !self.describe(writing, last, now)? {
            drained.ended = false;
            return Ok(());
        }
        for (number, channel) in self.channels.iter_mut().enumerate() {
            if channel.counts() {
                channel.is_final = last;
                if last {
                    channel.write_counts(number, writing, dead)?;
                }
                continue;
            }
            let (writer, checkpoint) = (&mut writing.writer, &writing.checkpoint);
            channel.drain(number, writer, checkpoint, last, now, drained)?;
        }
        writing
            .writer
            .write_modules()
            .map_err(ProcessError::Write)?;
        Ok(())
    }

    /// Reads descriptions. Returns false while some are incomplete.
    fn describe(
        &mut self,
        writing: &mut Writing,
        last: bool,
        now: Instant,
    ) -> Result<bool, ProcessError> {
        let described = match &mut self.control {
            // A program describes an event before it writes one. So descriptions that are read
            // after the events' positions cover all events below these.
            Some(control) => {
                control.update()?;
                describe(control, &mut writing.writer, last, now)?
            }
            None => last,
        };
        let descriptions = writing.writer.descriptions();
        writing
            .checkpoint
            .add_descriptions(&descriptions[writing.saved_descriptions..])
            .map_err(ProcessError::Write)?;
        writing.saved_descriptions = descriptions.len();
        Ok(described)
    }

    /// Writes the present states of counters, unless their final ones are written.
    fn write_counts(&mut self, writing: &mut Writing) -> Result<(), ProcessError> {
        let is_open = |channel: &LiveChannel<F>| channel.counts() && !channel.is_final;
        if !self.channels.iter().any(is_open) {
            return Ok(());
        }
        for channel in self.channels.iter_mut().filter(|channel| is_open(channel)) {
            channel.update()?;
        }
        self.describe(writing, false, Instant::now())?;
        let written = writing.writer.nr_channels();
        for (number, channel) in self.channels.iter_mut().enumerate().take(written) {
            if is_open(channel) {
                channel.write_counts(number, writing, false)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, to: Destination<'_>) -> io::Result<Writing> {
        let start = match to.checkpoint.trace_start(&self.name)? {
            Some(start) if to.checkpoint.is_current(&start) => start,
            _ => {
                let chunk = to.checkpoint.chunk_number();
                let start = TraceStart::new(self.identity.directory(), new_uuid()?, chunk);
                to.checkpoint.set_trace_start(&self.name, &start)?;
                start
            }
        };
        self.directory = to.checkpoint.path(&start)?;
        let checkpoint = to.checkpoint.process(&self.name)?;
        let descriptions = checkpoint.descriptions()?;
        let saved_descriptions = descriptions.len();
        let mut writer = ProcessWriter::resume(
            &self.directory,
            self.identity.clone(),
            self.clock,
            start.uuid,
            descriptions,
        )?;
        writer.set_version(to.version);
        let mut writing = Writing {
            writer,
            checkpoint,
            saved_descriptions,
            chunk: to.checkpoint.chunk_number(),
        };
        for channel in &self.channels {
            writing.add(channel)?;
        }
        if let Some(control) = &self.control {
            writing.set_control(control);
        }
        Ok(writing)
    }

    /// Completes the trace for everything that was read, so that the chunk can end.
    pub(super) fn complete(&mut self, to: Destination<'_>) -> Result<(), ProcessError> {
        let start = to
            .checkpoint
            .trace_start(&self.name)
            .map_err(ProcessError::Write)?;
        if !start.is_some_and(|start| to.checkpoint.is_current(&start)) {
            return Ok(());
        }
        self.close_finished_chunk(to);
        self.with_writing(to, |process, writing| process.write_completion(writing))
    }

    fn write_completion(&mut self, writing: &mut Writing) -> Result<(), ProcessError> {
        // Without the files, the rest is completed: the next drain reports errors about them.
        if let Err(ProcessError::Write(error)) = self.write_counts(writing) {
            return Err(ProcessError::Write(error));
        }
        self.complete_streams(writing).map_err(ProcessError::Write)
    }

    fn complete_streams(&mut self, writing: &mut Writing) -> io::Result<()> {
        writing.writer.finish_streams()?;
        if let Some(clock) = self.newest_clock() {
            self.clock = clock;
            writing.writer.set_clock(clock)?;
        }
        for (number, channel) in self.channels.iter_mut().enumerate() {
            for (n, saved) in channel.saved.iter_mut().enumerate() {
                // Nothing was read from this ring, so there is nothing to complete.
                let Some(position) = saved.written() else {
                    continue;
                };
                let index = channel.source.info.channel_index;
                let state = writing.writer.ring_state(number, n);
                let counted = writing.writer.ring_counts(number, n);
                writing
                    .checkpoint
                    .set_ring(index, n as u32, saved, position, state, counted)?;
            }
        }
        Ok(())
    }

    /// The clock as known now: the kernel may refine its frequency at run time.
    fn newest_clock(&self) -> Option<Clock> {
        let mut infos = self.channels.iter().map(|of| of.source.file.info().ok());
        let info = infos.find_map(|info| info)?;
        Some(host_clock(&info.start, &[info.now]))
    }

    /// Reads all positions of event channels. Returns whether the process is dead.
    fn update(&mut self) -> Result<bool, ProcessError> {
        let mut flags = 0;
        for channel in &mut self.channels {
            flags |= channel.update()?;
        }
        Ok(flags & LTT_FILE_DEAD != 0)
    }

    /// Statistics of the process so far.
    pub(super) fn summary(&self) -> ProcessSummary {
        // The writer learns the losses of a ring only at the ring's end; take them from the
        // positions.
        let channels = self.channels.iter();
        let lost = channels.fold(0u64, |lost, of| lost.saturating_add(of.source.lost()));
        ProcessSummary {
            lost,
            ..self.written_summary()
        }
    }

    /// Statistics of what is in files.
    fn written_summary(&self) -> ProcessSummary {
        let summary = match &self.writing {
            Some(writing) => writing.writer.summary(),
            None => self.checkpoint_summary(),
        };
        ProcessSummary {
            bytes: summary.bytes + self.bytes_before,
            ..summary
        }
    }

    /// Statistics from the checkpoint, for a process that is not being written.
    fn checkpoint_summary(&self) -> ProcessSummary {
        let saved = || self.channels.iter().flat_map(|channel| &channel.saved);
        let mut counts = Counts::default();
        saved().for_each(|saved| counts += saved.counted.counts);
        let spans = || saved().filter_map(|saved| saved.counted.span);
        let ns = |time| self.clock.unix_ns(time);
        ProcessSummary {
            trace: self.identity.trace.clone(),
            comm: self.identity.comm.clone(),
            pid: self.identity.pid,
            process: self.identity.process,
            directory: self.directory.clone(),
            events: counts.events,
            lost: saved().fold(0, |lost, saved| lost + saved.state(0).lost),
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

    /// Bytes in its rings that are in no file yet, as of the last update.
    pub(super) fn unwritten(&self) -> u64 {
        self.channels.iter().map(LiveChannel::unwritten).sum()
    }

    /// Whether the channel `control` dropped descriptions. Events without a description were
    /// neither recorded nor counted.
    pub(super) fn has_undescribed(&self) -> bool {
        let mut control = self.control.iter();
        control.any(|control| control.source.lost() > 0)
    }

    /// Whether the clock of its trace became invalid during the trace.
    pub(super) fn has_unstable_clock(&self) -> bool {
        let mut infos = self.channels.iter().map(|of| of.source.file.info());
        infos.any(|info| info.is_ok_and(|info| info.flags & LTT_FILE_CLOCK_UNSTABLE != 0))
    }

    /// Ends the recording without reading more. After an error, the recording continues as before.
    pub(super) fn finish(&mut self, to: Destination<'_>) -> Result<ProcessSummary, ProcessError> {
        if self.writing.is_some() {
            self.with_writing(to, |process, writing| process.write_completion(writing))?;
        }
        let channels = self.channels.iter();
        let infos = channels.filter_map(|channel| channel.source.file.info().ok());
        let sunk = infos.fold(0u64, |sunk, info| sunk.saturating_add(info.sunk));
        let summary = self.written_summary();
        to.checkpoint
            .set_ended(&self.name)
            .map_err(ProcessError::Write)?;
        Ok(ProcessSummary { sunk, ..summary })
    }
}

impl Writing {
    /// Adds a channel. Its rings are read from their checkpoint, or else from the consumed
    /// position.
    fn add<F: ConsumerFile>(&mut self, channel: &LiveChannel<F>) -> io::Result<()> {
        let limit = self.writer.clock().max_time();
        let source = &channel.source;
        let (format, index) = (source.channel.format(), source.info.channel_index);
        let rings = source.positions.iter().zip(&channel.saved);
        let readers = rings.map(|(ring, saved)| {
            let from = saved.written().unwrap_or(ring.consumed);
            RingReader::live(format, from, limit)
        });
        let saved = channel.saved.iter();
        let states: Vec<_> = saved.map(|saved| saved.state(self.chunk)).collect();
        let (name, of) = (&source.name, &source.channel);
        let number = self
            .writer
            .add_channel(name, index, of, readers.collect(), &states)?;
        for (n, saved) in channel.saved.iter().enumerate() {
            self.writer.set_ring_counts(number, n, saved.counted);
        }
        Ok(())
    }

    fn set_control<F: ConsumerFile>(&mut self, control: &LiveChannel<F>) {
        let limit = self.writer.clock().max_time();
        let format = control.source.channel.format();
        // Descriptions are never consumed, so read them from the start.
        let readers = control.source.positions.iter();
        let readers = readers
            .map(|_| RingReader::live(format, 0, limit))
            .collect();
        self.writer.set_control(readers);
    }
}

impl<F: ConsumerFile> LiveChannel<F> {
    /// Whether the channel has data or losses that no chunk contains, or that the current chunk
    /// does not report yet.
    fn needs_chunk(&self, chunk: u64) -> bool {
        let rings = self.source.positions.iter().zip(&self.saved);
        rings.into_iter().any(|(ring, saved)| {
            let state = saved.state(chunk);
            let has_unreported_loss =
                |stream: StreamState| stream.gap || stream.discarded != stream.discarded_written;
            ring.head > saved.written().unwrap_or(ring.consumed)
                || ring.lost > state.lost
                || state.stream.is_some_and(has_unreported_loss)
        })
    }

    /// Consumes what a killed recorder had written but not consumed.
    fn consume_checkpointed(&self) -> Result<(), ProcessError> {
        for (n, (ring, saved)) in self.source.positions.iter().zip(&self.saved).enumerate() {
            let written = saved.written().unwrap_or(0).min(ring.head);
            if written > ring.consumed {
                consume(&self.source, n as u32, written)?;
            }
        }
        Ok(())
    }

    fn unwritten(&self) -> u64 {
        if self.counts() {
            // Each later state of a table replaces the earlier ones.
            return 0;
        }
        let size = self.source.channel.geometry().ring_size();
        let rings = self.source.positions.iter().zip(&self.saved);
        let rings = rings.map(|(ring, saved)| {
            let written = saved.written().unwrap_or(ring.consumed);
            ring.head.saturating_sub(written).min(size)
        });
        rings.sum()
    }

    /// Whether it has tables of counters in place of rings.
    fn counts(&self) -> bool {
        self.source.channel.table().is_some()
    }

    /// Writes the present states of the counters of the channel that the writer calls `number`.
    /// `dead`: they are final, so the kernel may free the tables then.
    fn write_counts(
        &mut self,
        number: usize,
        writing: &mut Writing,
        dead: bool,
    ) -> Result<(), ProcessError> {
        let source = &self.source;
        let time = source.file.info().map_err(ProcessError::File)?.now.cycles;
        let (writer, checkpoint) = (&mut writing.writer, &writing.checkpoint);
        for (n, (ring, saved)) in source.positions.iter().zip(&mut self.saved).enumerate() {
            // A killed recorder may have written the final state.
            let is_written = ring.head > 0 && saved.written() == Some(ring.head);
            if ring.head > 0 && !is_written {
                writer
                    .write_counts(number, n, &mut source.ring(n), time, dead)
                    .map_err(ProcessError::Write)?;
            }
            if ring.head == 0 && ring.lost == 0 {
                continue;
            }
            writer
                .end_ring(number, n, ring.lost)
                .map_err(ProcessError::Write)?;
            // In this order: write the data, save the checkpoint, let the kernel free the table.
            let position = if dead { ring.head } else { 0 };
            let state = writer.ring_state(number, n);
            let counted = writer.ring_counts(number, n);
            checkpoint
                .set_ring(
                    source.info.channel_index,
                    n as u32,
                    saved,
                    position,
                    state,
                    counted,
                )
                .map_err(ProcessError::Write)?;
            if position > ring.consumed {
                consume(source, n as u32, position)?;
            }
        }
        Ok(())
    }

    /// Writes the available data of the channel that `writer` calls `number`.
    fn drain(
        &mut self,
        number: usize,
        writer: &mut ProcessWriter,
        checkpoint: &ProcessCheckpoint,
        last: bool,
        now: Instant,
        drained: &mut Drained,
    ) -> Result<(), ProcessError> {
        let source = &self.source;
        let ring_size = source.channel.geometry().ring_size();
        let rings = source.positions.iter().zip(&mut self.stalls);
        for (n, ((ring, stall), saved)) in rings.zip(&mut self.saved).enumerate() {
            let waiting = ring.head.saturating_sub(ring.consumed).min(ring_size);
            drained.fill = drained.fill.max(waiting * 1000 / ring_size);
            let policy = if last {
                WaitPolicy::Last
            } else {
                stall.policy(ring.consumed, ring.head, ring_size, now)
            };
            let mut memory = source.ring(n);
            let position = writer
                .read(number, n, &mut memory, ring.head, policy)
                .map_err(ProcessError::Write)?;
            // Report the final losses before the kernel may free the process.
            if last {
                writer
                    .end_ring(number, n, ring.lost)
                    .map_err(ProcessError::Write)?;
            }
            // In this order: write the data, save the checkpoint, let the writer overwrite.
            let state = writer.ring_state(number, n);
            let counted = writer.ring_counts(number, n);
            let index = source.info.channel_index;
            checkpoint
                .set_ring(index, n as u32, saved, position, state, counted)
                .map_err(ProcessError::Write)?;
            // Not beyond the head, which may have been invalid or may have moved back. Positions
            // are multiples of words.
            let position = position.min(ring.head) & !7;
            if position > ring.consumed {
                drained.bytes += position - ring.consumed;
                consume(source, n as u32, position)?;
            }
        }
        Ok(())
    }
}

/// Tells the kernel that everything below `position` was consumed.
fn consume(
    source: &ConsumerSource<impl ConsumerFile>,
    ring: u32,
    position: u64,
) -> Result<(), ProcessError> {
    match source.file.consume(ring, position) {
        // The process controls its head. A wrong one fills its own ring, and harms no other
        // process.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            Err(ProcessError::Busy(source.name.clone()))
        }
        result => result.map_err(ProcessError::File),
    }
}

/// Where and how traces are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) hostname: Option<&'a str>,
    pub(super) version: Version,
}

/// Reads all available descriptions. Returns false while some are incomplete: events cannot be
/// decoded before.
fn describe<F: ConsumerFile>(
    control: &mut LiveChannel<F>,
    writer: &mut ProcessWriter,
    last: bool,
    now: Instant,
) -> Result<bool, ProcessError> {
    let policy = if last {
        WaitPolicy::Last
    } else {
        WaitPolicy::Wait
    };
    let mut described = true;
    let source = &control.source;
    let rings = source.positions.iter().zip(&mut control.stalls);
    for (n, (ring, stall)) in rings.enumerate() {
        let mut memory = source.ring(n);
        let position = writer
            .read_control(n, &mut memory, ring.head, policy)
            .map_err(ProcessError::Write)?;
        // A description that its writer never completes must not block all events of the process
        // forever.
        let waits = position < ring.head;
        described &= last || !waits || stall.has_timed_out(position, waits, now);
    }
    Ok(described)
}
