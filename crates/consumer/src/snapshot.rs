//! What is in the rings of a trace now, without taking it away from who consumes, and without
//! stopping who writes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use usertrace_ctf::{Clock, ProcessSummary, ProcessWriter, Version, is_full};
use usertrace_os::procfs;
use usertrace_ring::{Patience, RingReader};
use usertrace_sys::uapi::LTT_FILE_DEAD;

use super::control_fs::{consumer_files, event_channels};
use super::error::OutputError;
use super::record::create_output;
use super::source::Source;
use super::{CONTROL, ConsumerFile, ControlFs, ControlFsError, KernelFile, SessionSummary};

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
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Writes what is in the rings of all processes and channels of the trace `name` now to the
/// directory `output`, which must be new or empty, in this version of CTF.
///
/// In a channel that overwrites, that is the last events; in another one, those that were not
/// consumed yet. What is overwritten, or consumed, while it is read is not believed, and counted as
/// overwritten. Nothing is consumed, and it does not matter whether somebody else consumes.
///
/// # Errors
/// When there is no such trace, or nothing can be written. What is wrong with one process's files
/// goes to the summary's problems.
pub fn snapshot(
    control_fs: &ControlFs,
    name: &str,
    output: &Path,
    version: Version,
) -> Result<SessionSummary, SnapshotError> {
    let trace = control_fs.trace(name)?;
    create_output(output).map_err(OutputError::at(output))?;
    let mut summary = SessionSummary::default();
    let channels = event_channels(trace.path()).unwrap_or_else(|error| {
        let path = trace.path().display();
        summary.problems.push(format!("{path}: {error}"));
        Vec::new()
    });
    let mut processes: BTreeMap<String, Files<KernelFile>> = BTreeMap::new();
    for channel in std::iter::once(CONTROL).chain(channels.iter().map(String::as_str)) {
        let directory = trace.channel(channel);
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
    let hostname = procfs::hostname();
    for (name, files) in processes {
        let done = snapshot_process(output, hostname.as_deref(), files, version)
            .map_err(OutputError::at(output))?;
        match done {
            Ok(process) => {
                summary.problems.extend(process.describe_unwritten());
                summary.processes.push(process);
            }
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
/// When its trace cannot be written. The inner one: its files cannot be read, or there is no room
/// for its trace.
pub fn snapshot_process<F: ConsumerFile>(
    output: &Path,
    hostname: Option<&str>,
    files: Files<F>,
    version: Version,
) -> io::Result<io::Result<ProcessSummary>> {
    match write_process(output, hostname, files, version) {
        // There may be room for another one.
        Err(error) if is_full(&error) => Ok(Err(error)),
        done => done,
    }
}

fn write_process<F: ConsumerFile>(
    output: &Path,
    hostname: Option<&str>,
    files: Files<F>,
    version: Version,
) -> io::Result<io::Result<ProcessSummary>> {
    let mut control = None;
    let mut channels = Vec::new();
    for (name, file) in files {
        match (Source::new(&name, file), &mut control) {
            (Err(error), _) => return Ok(Err(error)),
            (Ok(source), none @ None) if source.name == CONTROL => *none = Some(source),
            (Ok(source), _) => channels.push(source),
        }
    }
    let (Some(control), Some(first)) = (control, channels.first()) else {
        let error = "not all of its files are there";
        return Ok(Err(io::Error::new(io::ErrorKind::NotFound, error)));
    };
    let identity = first.identity(hostname);
    let clock = Clock::new(&first.info.start, &[first.info.now]);
    let limit = clock.max_time();
    let mut writer = ProcessWriter::create(output, identity, clock)?;
    writer.set_version(version);
    writer.set_one_shot();
    let format = control.channel.format();
    let of_control = control.positions.iter();
    let of_control = of_control.map(|_| RingReader::live(format, 0, limit));
    writer.set_control(of_control.collect());
    for source in &channels {
        let (name, index) = (&source.name, source.info.channel_index);
        let readers = readers(source, limit);
        writer.add_channel(name, index, &source.channel, readers, &[])?;
    }
    let mut reader = SnapshotReader {
        writer,
        control,
        patience: PATIENCE,
    };
    let mut sunk = 0u64;
    for (number, mut source) in channels.into_iter().enumerate() {
        if let Err(error) = reader.read(number, &mut source)? {
            return Ok(Err(error));
        }
        sunk = sunk.saturating_add(source.info.sunk);
    }
    let summary = reader.writer.finish(None)?;
    Ok(Ok(ProcessSummary { sunk, ..summary }))
}

/// Readers of its rings, from the oldest sub-buffers that are still there.
fn readers(source: &Source<impl ConsumerFile>, limit: u64) -> Vec<RingReader> {
    let format = source.channel.format();
    let rings = 0..source.positions.len();
    rings
        .map(|ring| RingReader::dump(format, &mut source.ring(ring), limit))
        .collect()
}

/// What is being read.
struct SnapshotReader<F> {
    writer: ProcessWriter,
    control: Source<F>,
    /// How long to wait still.
    patience: Duration,
}

impl<F: ConsumerFile> SnapshotReader<F> {
    /// Reads what there is now of the channel that `writer` calls `number`.
    fn read(&mut self, number: usize, source: &mut Source<F>) -> io::Result<io::Result<()>> {
        let flags = match source.update() {
            Ok(flags) => flags,
            Err(error) => return Ok(Err(error)),
        };
        // Each event was described before it was written.
        if let Err(error) = self.control.update() {
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
            read_up_to(ring.head, dead, left, |patience| {
                writer.read_control(n, &mut memory, ring.head, patience)
            })?;
        }
        for (n, ring) in source.positions.iter().enumerate() {
            let mut memory = source.ring(n);
            read_up_to(ring.head, dead, left, |patience| {
                writer.read(number, n, &mut memory, ring.head, patience)
            })?;
            writer.end_ring(number, n, ring.lost)?;
        }
        Ok(Ok(()))
    }
}

/// Reads up to `head`, where writers let that be so soon; and else what they have not completed
/// counts as lost.
fn read_up_to(
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
