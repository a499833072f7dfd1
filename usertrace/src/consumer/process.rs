//! One process that is being recorded.

use std::io;
use std::path::Path;
use std::time::Instant;

use usertrace_sys::uapi::{LTT_FILE_DEAD, LttFileInfo, LttRingPositions};

use super::{ConsumerFile, FileRing};
use crate::ctf::{Clock, Identity, ProcessSummary, ProcessWriter, Rings};
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
    main: Source<F>,
    control: Option<Source<F>>,
    writer: ProcessWriter,
}

/// A file, its channel, and room for its positions.
#[derive(Debug)]
struct Source<F> {
    file: F,
    channel: Channel,
    positions: Vec<LttRingPositions>,
    /// Of each ring.
    stalls: Vec<Stall>,
}

impl<F: ConsumerFile> Source<F> {
    fn new(file: F, info: &LttFileInfo) -> Result<Self, ProcessError> {
        let channel = Channel::new(&info.channel)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
            .map_err(ProcessError::File)?;
        let mut source = Self {
            file,
            channel,
            positions: vec![LttRingPositions::default(); channel.nr_rings() as usize],
            stalls: vec![Stall::default(); channel.nr_rings() as usize],
        };
        source.update()?;
        Ok(source)
    }

    /// Readers of its rings, from what was consumed.
    fn readers(&self, limit: u64) -> Vec<RingReader> {
        let format = self.channel.format();
        let positions = self.positions.iter();
        positions
            .map(|ring| RingReader::live(format, ring.consumed, limit))
            .collect()
    }

    fn update(&mut self) -> Result<u32, ProcessError> {
        self.file
            .positions(&mut self.positions)
            .map_err(ProcessError::File)
    }
}

impl<F: ConsumerFile> LiveProcess<F> {
    /// Begins to record a process whose file of the channel `main` is `main`, below the directory `parent`.
    ///
    /// # Errors
    /// Of the file, or when the trace cannot be created.
    pub fn new(parent: &Path, main: F, hostname: Option<&str>) -> Result<Self, ProcessError> {
        let info = main.info().map_err(ProcessError::File)?;
        let main = Source::new(main, &info)?;
        let clock = Clock::new(&info.start, &[info.now]);
        let identity = Identity {
            trace: text(&info.trace),
            comm: text(&info.comm),
            pid: info.pid,
            process: info.process,
            hostname: hostname.map(str::to_owned),
        };
        let rings = Rings {
            control: Vec::new(),
            main: main.readers(clock.max_time()),
        };
        let writer = ProcessWriter::create(parent, identity, clock, &main.channel, rings)
            .map_err(ProcessError::Write)?;
        Ok(Self {
            main,
            control: None,
            writer,
        })
    }

    /// Gives it its file of the channel `control`, without which its events mean nothing.
    ///
    /// # Errors
    /// Of the file.
    pub fn set_control(&mut self, control: F) -> Result<(), ProcessError> {
        let info = control.info().map_err(ProcessError::File)?;
        let control = Source::new(control, &info)?;
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

    /// Does it have its file of the channel `control`?
    #[must_use]
    pub fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// Writes what there is to the trace, and gives it back to the process. `last`: take what there is for all that
    /// there will be; that is so anyway if the process is gone and its descriptions are there. `now` is what the time
    /// is, for records that their writers do not complete.
    ///
    /// # Errors
    /// Of the files, or when the trace cannot be written.
    pub fn drain(&mut self, last: bool, now: Instant) -> Result<Drained, ProcessError> {
        let mut flags = self.main.update()?;
        if flags & LTT_FILE_DEAD != 0 {
            // Positions that were read after the process was found dead are its last ones.
            flags = self.main.update()?;
        }
        let last = last || (flags & LTT_FILE_DEAD != 0 && self.control.is_some());
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
        let Source {
            file,
            channel,
            positions,
            stalls,
        } = &mut self.main;
        let ring_size = channel.geometry().ring_size();
        for (n, (ring, stall)) in positions.iter().zip(stalls).enumerate() {
            let waiting = ring.head.saturating_sub(ring.consumed).min(ring_size);
            drained.fill = drained.fill.max(waiting * 1000 / ring_size);
            let patience = if last {
                Patience::Last
            } else {
                stall.patience(ring.consumed, ring.head, ring_size, now)
            };
            let mut memory = FileRing::new(file, channel, n as u32);
            let position = self.writer.read_main(n, &mut memory, ring.head, patience);
            let position = position.map_err(ProcessError::Write)?;
            // Not beyond the head: it may have been impossible, or moved back.
            let position = position.min(ring.head);
            if position > ring.consumed {
                drained.bytes += position - ring.consumed;
                match file.consume(n as u32, position) {
                    // The process moves its head as it likes: then its ring fills up, which harms nobody else.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                    result => result.map_err(ProcessError::File)?,
                }
            }
            if last {
                self.writer
                    .set_lost(n, ring.lost)
                    .map_err(ProcessError::Write)?;
            }
        }
        Ok(drained)
    }

    /// Ends the recording, without reading more.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn finish(self) -> io::Result<ProcessSummary> {
        let info = self.main.file.info().ok();
        let clock = info.map(|info| Clock::new(&info.start, &[info.now]));
        let summary = self.writer.finish(clock)?;
        Ok(ProcessSummary {
            sunk: info.map_or(0, |info| info.sunk),
            ..summary
        })
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
