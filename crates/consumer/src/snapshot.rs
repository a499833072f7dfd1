//! Snapshots: copies the contents of a trace's rings, without consuming and without stopping
//! writers.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use usertrace_ctf::{ProcessSummary, ProcessWriter, Version, is_full};
use usertrace_os::procfs;
use usertrace_ring::{RingReader, WaitPolicy};
use usertrace_sys::uapi::LTT_FILE_DEAD;

use super::checkpoint::create_output;
use super::control_fs::{consumer_files, event_channels};
use super::error::OutputError;
use super::host_clock::host_clock;
use super::source::ConsumerSource;
use super::{CONTROL, ConsumerFile, ControlFs, ControlFsError, KernelFile, SessionSummary};

/// How long to wait in total for records that writers have not committed.
const PATIENCE: Duration = Duration::from_millis(20);

/// Why a snapshot failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The control file system reported an error, or the trace does not exist.
    #[error(transparent)]
    ControlFs(#[from] ControlFsError),
    /// The output directory cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Writes the current contents of all rings of the trace `name` to the directory `output`, which
/// must be new or empty, in the given CTF version.
///
/// In mode `overwrite`, that is the last events; in other modes, the events that were not consumed
/// yet. Data that is overwritten or consumed while it is read is discarded, and counted as
/// overwritten. Nothing is consumed, and other readers do not matter.
///
/// # Errors
/// If the trace does not exist, or nothing can be written. Errors about the files of one process go
/// to the summary's problems.
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
    let mut processes: BTreeMap<String, ProcessFiles<KernelFile>> = BTreeMap::new();
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
                // The process has ended, and another reader has consumed its data.
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
pub type ProcessFiles<F> = Vec<(String, F)>;

/// Writes the current contents of one process's rings, like [`snapshot`].
///
/// # Errors
/// If its trace cannot be written. The inner error: its files cannot be read, or the disk is full.
pub fn snapshot_process<F: ConsumerFile>(
    output: &Path,
    hostname: Option<&str>,
    files: ProcessFiles<F>,
    version: Version,
) -> io::Result<io::Result<ProcessSummary>> {
    match write_process(output, hostname, files, version) {
        // The disk may have room for another process.
        Err(error) if is_full(&error) => Ok(Err(error)),
        done => done,
    }
}

fn write_process<F: ConsumerFile>(
    output: &Path,
    hostname: Option<&str>,
    files: ProcessFiles<F>,
    version: Version,
) -> io::Result<io::Result<ProcessSummary>> {
    let mut control = None;
    let mut channels = Vec::new();
    for (name, file) in files {
        match (ConsumerSource::new(&name, file), &mut control) {
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
    let clock = host_clock(&first.info.start, &[first.info.now]);
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

/// Readers of its rings, from the oldest sub-buffers that still exist.
fn readers(source: &ConsumerSource<impl ConsumerFile>, limit: u64) -> Vec<RingReader> {
    let format = source.channel.format();
    let rings = 0..source.positions.len();
    rings
        .map(|ring| RingReader::dump(format, &mut source.ring(ring), limit))
        .collect()
}

/// The state of a snapshot of one process.
struct SnapshotReader<F> {
    writer: ProcessWriter,
    control: ConsumerSource<F>,
    /// The remaining time to wait for uncommitted records.
    patience: Duration,
}

impl<F: ConsumerFile> SnapshotReader<F> {
    /// Reads the current contents of the channel that `writer` calls `number`.
    fn read(
        &mut self,
        number: usize,
        source: &mut ConsumerSource<F>,
    ) -> io::Result<io::Result<()>> {
        let flags = match source.update() {
            Ok(flags) => flags,
            Err(error) => return Ok(Err(error)),
        };
        // A program describes an event before it writes one. So descriptions that are read now
        // cover all events below the positions.
        if let Err(error) = self.control.update() {
            return Ok(Err(error));
        }
        let dead = flags & LTT_FILE_DEAD != 0;
        let time = match source.file.info() {
            Ok(info) => info.now.cycles,
            Err(error) => return Ok(Err(error)),
        };
        let Self {
            writer,
            control,
            patience: left,
        } = self;
        for (n, ring) in control.positions.iter().enumerate() {
            let mut memory = control.ring(n);
            read_up_to(ring.head, dead, left, |policy| {
                writer.read_control(n, &mut memory, ring.head, policy)
            })?;
        }
        for (n, ring) in source.positions.iter().enumerate() {
            let mut memory = source.ring(n);
            if source.channel.table().is_some() {
                if ring.head > 0 {
                    writer.write_counts(number, n, &mut memory, time, dead)?;
                }
                writer.end_ring(number, n, ring.lost)?;
                continue;
            }
            read_up_to(ring.head, dead, left, |policy| {
                writer.read(number, n, &mut memory, ring.head, policy)
            })?;
            writer.end_ring(number, n, ring.lost)?;
        }
        Ok(Ok(()))
    }
}

/// Reads up to `head`. Records that writers do not commit within the remaining time count as lost.
fn read_up_to(
    head: u64,
    dead: bool,
    left: &mut Duration,
    mut read: impl FnMut(WaitPolicy) -> io::Result<u64>,
) -> io::Result<()> {
    const STEP: Duration = Duration::from_millis(1);
    if dead {
        return read(WaitPolicy::Last).map(drop);
    }
    while read(WaitPolicy::Wait)? < head {
        let Some(less) = left.checked_sub(STEP) else {
            return read(WaitPolicy::GiveUp { below: head }).map(drop);
        };
        *left = less;
        sleep(STEP);
    }
    Ok(())
}
