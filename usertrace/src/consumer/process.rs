//! One process that is being recorded.

use std::io;
use std::path::Path;
use std::time::Instant;

use usertrace_sys::uapi::{LTT_FILE_DEAD, LttFileInfo, LttRingPositions};

use super::{CONTROL, ConsumerFile, FileRing};
use crate::ctf::{Clock, Identity, ProcessSummary, ProcessWriter};
use crate::ring::{Channel, Patience, RingReader, Stall};

/// What can go wrong with the recording of a process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Its files: that is its own affair.
    #[error("its files cannot be read")]
    File(#[source] io::Error),
    /// Its trace: that will go wrong with others too.
    #[error("its trace cannot be written")]
    Write(#[source] io::Error),
}

/// What there was to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Bytes that were given back to the writer.
    pub bytes: u64,
    /// How full the fullest ring was, in 1/1000.
    pub fill: u64,
    /// There will never be more.
    pub ended: bool,
}

/// A process that is being recorded: its files, and its trace.
#[derive(Debug)]
pub struct LiveProcess<F> {
    /// Channels of events, by their numbers in `writer`.
    channels: Vec<Source<F>>,
    /// How many there will be.
    nr_channels: usize,
    control: Option<Source<F>>,
    writer: ProcessWriter,
}

/// A file, its channel, and room for its positions.
#[derive(Debug)]
struct Source<F> {
    name: String,
    file: F,
    channel: Channel,
    positions: Vec<LttRingPositions>,
    /// Of each ring.
    stalls: Vec<Stall>,
}

impl<F: ConsumerFile> Source<F> {
    fn new(name: &str, file: F, info: &LttFileInfo) -> Result<Self, ProcessError> {
        let channel = Channel::new(&info.channel)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
            .map_err(ProcessError::File)?;
        let mut source = Self {
            name: name.to_owned(),
            file,
            channel,
            positions: vec![LttRingPositions::default(); channel.nr_rings() as usize],
            stalls: vec![Stall::default(); channel.nr_rings() as usize],
        };
        source.update()?;
        Ok(source)
    }

    fn update(&mut self) -> Result<u32, ProcessError> {
        self.file
            .positions(&mut self.positions)
            .map_err(ProcessError::File)
    }
}

impl<F: ConsumerFile> LiveProcess<F> {
    /// Begins to record a process with its file of the channel of events `name`, below the directory `parent`. It has so
    /// many channels of events.
    ///
    /// # Errors
    /// Of the file, or when the trace cannot be created.
    pub fn new(
        parent: &Path,
        name: &str,
        file: F,
        nr_channels: usize,
        hostname: Option<&str>,
    ) -> Result<Self, ProcessError> {
        let info = file.info().map_err(ProcessError::File)?;
        let clock = Clock::new(&info.start, &[info.now]);
        let identity = Identity {
            trace: text(&info.trace),
            comm: text(&info.comm),
            pid: info.pid,
            process: info.process,
            hostname: hostname.map(str::to_owned),
        };
        let source = Source::new(name, file, &info)?;
        let writer = ProcessWriter::create(parent, identity, clock).map_err(ProcessError::Write)?;
        let mut process = Self {
            channels: Vec::new(),
            nr_channels,
            control: None,
            writer,
        };
        process.add_source(source, &info)?;
        Ok(process)
    }

    /// Gives it its file of another channel of events.
    ///
    /// # Errors
    /// Of the file, or when the trace cannot be written.
    pub fn add_channel(&mut self, name: &str, file: F) -> Result<(), ProcessError> {
        let info = file.info().map_err(ProcessError::File)?;
        let source = Source::new(name, file, &info)?;
        self.add_source(source, &info)
    }

    fn add_source(&mut self, source: Source<F>, info: &LttFileInfo) -> Result<(), ProcessError> {
        let limit = self.writer.clock().max_time();
        let format = source.channel.format();
        // From what was consumed.
        let positions = source.positions.iter();
        let readers = positions
            .map(|ring| RingReader::live(format, ring.consumed, limit))
            .collect();
        let (name, channel) = (&source.name, &source.channel);
        self.writer
            .add_channel(name, info.channel_index, channel, readers, &[])
            .map_err(ProcessError::Write)?;
        self.channels.push(source);
        Ok(())
    }

    /// Gives it its file of the channel `control`, without which its events mean nothing.
    ///
    /// # Errors
    /// Of the file.
    pub fn set_control(&mut self, control: F) -> Result<(), ProcessError> {
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
    #[must_use]
    pub fn has(&self, channel: &str) -> bool {
        let mut sources = self.channels.iter().chain(&self.control);
        sources.any(|source| source.name == channel)
    }

    /// Writes what there is to the trace, and gives it back to the process. `last`: take what there is for all that
    /// there will be; that is so anyway if the process is gone and its files are there. `now` is what the time is, for
    /// records that their writers do not complete.
    ///
    /// # Errors
    /// Of the files, or when the trace cannot be written.
    pub fn drain(&mut self, last: bool, now: Instant) -> Result<Drained, ProcessError> {
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
        if !described {
            return Ok(Drained::default());
        }
        let mut drained = Drained {
            ended: last,
            ..Drained::default()
        };
        for (number, source) in self.channels.iter_mut().enumerate() {
            source.drain(number, &mut self.writer, last, now, &mut drained)?;
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
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn finish(self) -> io::Result<ProcessSummary> {
        let infos = self.channels.iter().map(|source| source.file.info().ok());
        let infos: Vec<_> = infos.flatten().collect();
        let clock = infos
            .first()
            .map(|info| Clock::new(&info.start, &[info.now]));
        let summary = self.writer.finish(clock)?;
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
        last: bool,
        now: Instant,
        drained: &mut Drained,
    ) -> Result<(), ProcessError> {
        let ring_size = self.channel.geometry().ring_size();
        for (n, (ring, stall)) in self.positions.iter().zip(&mut self.stalls).enumerate() {
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
            // Not beyond the head: it may have been impossible, or moved back.
            let position = position.min(ring.head);
            if position > ring.consumed {
                drained.bytes += position - ring.consumed;
                match self.file.consume(n as u32, position) {
                    // The process moves its head as it likes: then its ring fills up, which harms nobody else.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                    result => result.map_err(ProcessError::File)?,
                }
            }
        }
        Ok(())
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

/// A name of the kernel's: up to a NUL.
fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}
