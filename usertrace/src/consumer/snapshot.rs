//! What is in the rings of a trace now, without taking it away from who consumes, and without stopping who writes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use usertrace_sys::uapi::{LTT_FILE_DEAD, LttFileInfo, LttRingPositions};

use super::control_fs::{consumer_files, event_channels};
use super::record::{create_output, hostname};
use super::{
    CONTROL, ConsumerFile, ControlFs, ControlFsError, FileRing, KernelFile, SessionSummary,
};
use crate::ctf::{Clock, Identity, ProcessSummary, ProcessWriter, text};
use crate::ring::{Channel, Patience, RingReader};

/// How long to wait for a record that its writer is in the middle of.
const PATIENCE: Duration = Duration::from_millis(20);

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The control file system, or its trace.
    #[error(transparent)]
    ControlFs(#[from] ControlFsError),
    /// The directory for the snapshot.
    #[error("cannot write to {path}")]
    Output {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes what is in the rings of all processes and channels of the trace `name` now to the directory `output`, which must
/// be new or empty.
///
/// In a channel that overwrites, that is the last events; in another one, those that were not consumed yet. What is
/// overwritten, or consumed, while it is read is not believed, and counted as overwritten. Nothing is consumed, and it does
/// not matter whether somebody else consumes.
///
/// # Errors
/// When there is no such trace, or nothing can be written. What is wrong with one process's files goes to the summary's
/// problems.
pub fn snapshot(
    control_fs: &ControlFs,
    name: &str,
    output: &Path,
) -> Result<SessionSummary, SnapshotError> {
    let trace = control_fs.trace(name)?;
    let error = |source| SnapshotError::Output {
        path: output.to_owned(),
        source,
    };
    create_output(output).map_err(error)?;
    let mut summary = SessionSummary::default();
    let channels = event_channels(&trace).unwrap_or_default();
    let mut processes: BTreeMap<String, Files<KernelFile>> = BTreeMap::new();
    for channel in std::iter::once(CONTROL).chain(channels.iter().map(String::as_str)) {
        let directory = trace.join(channel);
        let names = consumer_files(&directory).unwrap_or_else(|error| {
            summary.problems.push(format!("{channel}: {error}"));
            Vec::new()
        });
        for name in names {
            match KernelFile::open(&directory.join(&name)) {
                Ok(file) => processes
                    .entry(name)
                    .or_default()
                    .push((channel.to_owned(), file)),
                // A process that has ended, and was read to its end by somebody else.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => summary.problems.push(format!("{channel}/{name}: {error}")),
            }
        }
    }
    let hostname = hostname();
    for (name, files) in processes {
        let done = snapshot_process(output, hostname.as_deref(), files).map_err(error)?;
        match done {
            Ok(process) => summary.processes.push(process),
            Err(problem) => summary.problems.push(format!("{name}: {problem}")),
        }
    }
    Ok(summary)
}

/// The files of one process, each with the name of its channel.
pub type Files<F> = Vec<(String, F)>;

/// As [`snapshot`], of one process.
///
/// # Errors
/// When its trace cannot be written. The inner one: its files cannot be read.
pub fn snapshot_process<F: ConsumerFile>(
    output: &Path,
    hostname: Option<&str>,
    files: Files<F>,
) -> io::Result<io::Result<ProcessSummary>> {
    let mut control = None;
    let mut channels = Vec::new();
    for (name, file) in files {
        match (Source::new(name, file), &mut control) {
            (Err(error), _) => return Ok(Err(error)),
            (Ok(source), none @ None) if source.name == CONTROL => *none = Some(source),
            (Ok(source), _) => channels.push(source),
        }
    }
    let (Some(control), Some(info)) = (control, channels.first().map(|source| source.info)) else {
        let error = "not all of its files are there";
        return Ok(Err(io::Error::new(io::ErrorKind::NotFound, error)));
    };
    let identity = Identity {
        trace: text(&info.trace),
        comm: text(&info.comm),
        pid: info.pid,
        process: info.process,
        hostname: hostname.map(str::to_owned),
    };
    let clock = Clock::new(&info.start, &[info.now]);
    let limit = clock.max_time();
    let mut writer = ProcessWriter::create(output, identity, clock)?;
    let format = control.channel.format();
    let readers = control.positions.iter();
    writer.set_control(
        readers
            .map(|_| RingReader::live(format, 0, limit))
            .collect(),
    );
    for source in &channels {
        let (name, index) = (&source.name, source.info.channel_index);
        writer.add_channel(name, index, &source.channel, source.readers(limit), &[])?;
    }
    let mut now = Now {
        writer,
        control,
        patience: PATIENCE,
    };
    let mut sunk = 0u64;
    for (number, mut source) in channels.into_iter().enumerate() {
        if let Err(error) = now.read(number, &mut source)? {
            return Ok(Err(error));
        }
        sunk = sunk.saturating_add(source.info.sunk);
    }
    let summary = now.writer.finish(None)?;
    Ok(Ok(ProcessSummary { sunk, ..summary }))
}

/// A file, and what it says.
struct Source<F> {
    name: String,
    file: F,
    info: LttFileInfo,
    channel: Channel,
    positions: Vec<LttRingPositions>,
}

impl<F: ConsumerFile> Source<F> {
    fn new(name: String, file: F) -> io::Result<Self> {
        let info = file.info()?;
        let channel = Channel::new(&info.channel)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Self {
            name,
            file,
            info,
            channel,
            positions: vec![LttRingPositions::default(); channel.nr_rings() as usize],
        })
    }

    fn ring(&self, ring: usize) -> FileRing<'_, F> {
        FileRing::new(&self.file, &self.channel, ring as u32)
    }

    /// From the oldest sub-buffers that are still there.
    fn readers(&self, limit: u64) -> Vec<RingReader> {
        let rings = 0..self.positions.len();
        rings
            .map(|ring| RingReader::dump(self.channel.format(), &mut self.ring(ring), limit))
            .collect()
    }
}

/// What is being read.
struct Now<F> {
    writer: ProcessWriter,
    control: Source<F>,
    /// How long to wait still.
    patience: Duration,
}

impl<F: ConsumerFile> Now<F> {
    /// Reads what there is now of the channel that `writer` calls `number`.
    fn read(&mut self, number: usize, source: &mut Source<F>) -> io::Result<io::Result<()>> {
        let flags = match source.file.positions(&mut source.positions) {
            Ok(flags) => flags,
            Err(error) => return Ok(Err(error)),
        };
        // Each event was described before it was written.
        if let Err(error) = self.control.file.positions(&mut self.control.positions) {
            return Ok(Err(error));
        }
        let dead = flags & LTT_FILE_DEAD != 0;
        let Self {
            writer,
            control,
            patience: left,
        } = self;
        for (n, ring) in control.positions.iter().enumerate() {
            let mut memory = control.ring(n);
            up_to(ring.head, dead, left, |patience| {
                writer.read_control(n, &mut memory, ring.head, patience)
            })?;
        }
        for (n, ring) in source.positions.iter().enumerate() {
            let mut memory = source.ring(n);
            up_to(ring.head, dead, left, |patience| {
                writer.read(number, n, &mut memory, ring.head, patience)
            })?;
            writer.end_ring(number, n, ring.lost)?;
        }
        Ok(Ok(()))
    }
}

/// Reads up to `head`, where writers let that be so soon; and else what they have not completed counts as lost.
fn up_to(
    head: u64,
    dead: bool,
    left: &mut Duration,
    mut read: impl FnMut(Patience) -> io::Result<u64>,
) -> io::Result<()> {
    const STEP: Duration = Duration::from_millis(1);
    if dead {
        return read(Patience::Last).map(drop);
    }
    while read(Patience::Wait)? < head {
        let Some(less) = left.checked_sub(STEP) else {
            return read(Patience::GiveUp { below: head }).map(drop);
        };
        *left = less;
        sleep(STEP);
    }
    Ok(())
}
