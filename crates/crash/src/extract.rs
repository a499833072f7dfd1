//! Extracts CTF traces from a dump.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use usertrace_ctf::{
    Clock, Crash, Identity, ProcessSummary, ProcessWriter, Version, file_name, is_full, kernel_name,
};
use usertrace_ring::{Channel, NewestSubbuf, Positions, RingReader, WaitPolicy};
use usertrace_sys::crash::{LttCrashBuffer, LttCrashTrace};
use usertrace_sys::filter::matches;
use usertrace_sys::printable;
use usertrace_sys::uapi::{
    LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN, LTT_LOST_WORD, LTT_MAX_CHANNELS, LttRingControl,
};
use zerocopy::IntoBytes;

use crate::{Directory, DirectoryError, PageOwners, PageTree, PhysicalMemory, Problems};

/// Why nothing was extracted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The dump has no valid root page.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A limit relative to the crash was requested, but the time of the crash is unknown.
    #[error("the dump does not say at which instant the kernel crashed, from which to count back")]
    NoInstant,
    /// A trace cannot be written.
    #[error("cannot write to {path}")]
    Write {
        /// The directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// The summary of one trace of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceSummary {
    /// Its name.
    pub name: String,
    /// Its generation number, which is never reused.
    pub generation: u64,
    /// Whether the trace was active.
    pub active: bool,
    /// Its processes.
    pub processes: Vec<ProcessSummary>,
}

/// The result of an extraction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Extraction {
    /// The traces, in order of their creation.
    pub traces: Vec<TraceSummary>,
    /// Names of traces that were not selected.
    pub others: Vec<String>,
    /// Time of the crash in ns since 1970, by the clock of the latest trace.
    pub crash_ns: Option<i64>,
    /// Everything that could not be read.
    pub problems: Problems,
}

impl Extraction {
    /// Whether data is missing or damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        let processes = || self.traces.iter().flat_map(|trace| &trace.processes);
        !self.problems.is_empty() || processes().any(|process| process.damaged > 0)
    }

    /// Number of events of all processes.
    #[must_use]
    pub fn events(&self) -> u64 {
        let processes = self.traces.iter().flat_map(|trace| &trace.processes);
        processes.map(|process| process.events).sum()
    }
}

/// What to extract, and how.
#[derive(Clone, Debug, Default)]
pub struct ExtractOptions {
    /// What is known of the crash; the traces record it.
    pub crash: Crash,
    /// The CTF version.
    pub version: Version,
    /// Patterns of trace names, with `*` and `?`. Empty for all traces.
    pub traces: Vec<String>,
    /// Process ids, or patterns of process names. Empty for all processes.
    pub processes: Vec<String>,
    /// Maximum age of events at the crash. `None` for all events.
    pub last: Option<Duration>,
}

impl ExtractOptions {
    fn has_trace(&self, name: &str) -> bool {
        let is = |pattern: &String| matches(pattern.as_bytes(), name.as_bytes());
        self.traces.is_empty() || self.traces.iter().any(is)
    }

    fn has_process(&self, pid: u32, comm: &str) -> bool {
        let is = |pattern: &String| {
            pattern.parse() == Ok(pid) || matches(pattern.as_bytes(), comm.as_bytes())
        };
        self.processes.is_empty() || self.processes.iter().any(is)
    }
}

/// Extracts the traces of the directory whose root page is at `root`. Each trace gets its own
/// directory below `output`, which must exist, and each process a CTF trace in there. The traces
/// record that they come from a dump.
///
/// # Errors
/// If there is no directory, or a trace cannot be written. Also if `options.last` is set and the
/// time of the crash is unknown.
pub fn extract(
    memory: &impl PhysicalMemory,
    root: u64,
    options: &ExtractOptions,
    output: &Path,
) -> Result<Extraction, ExtractError> {
    let mut extraction = Extraction::default();
    let directory = Directory::read(memory, root, &mut extraction.problems)?;
    let last = directory.traces().last();
    let crash = directory.crash(last, options.crash);
    extraction.crash_ns = crash.unix_ns(&directory.clock(last));
    let traces: HashMap<_, _> = directory.traces().map(|t| (t.generation, t)).collect();
    let owners = PageOwners::default();
    let mut names = HashSet::new();
    for (generation, buffers) in buffers_by_trace(&directory) {
        let trace = traces.get(&generation).copied();
        let name = trace.map_or_else(
            || format!("trace-{generation}"),
            |t| printable(&kernel_name(&t.name)),
        );
        if trace.is_none() {
            extraction.problems.add(format_args!(
                "the directory does not have trace {generation}, of which there are buffers"
            ));
        }
        if !options.has_trace(&name) {
            extraction.others.push(name);
            continue;
        }
        let path_name = unique_file_name(&mut names, &name, generation);
        let crash = directory.crash(trace, options.crash);
        let since = match options.last {
            None => 0,
            Some(last) => {
                let since = crash.cycles_before(&directory.clock(trace), last);
                since.ok_or(ExtractError::NoInstant)?
            }
        };
        if trace.is_some_and(|trace| trace.clock_unstable != 0) {
            extraction.problems.add(format_args!(
                "trace {name}: its clock became unstable: events of different CPUs may be in a wrong order"
            ));
        }
        let path = output.join(path_name);
        fs::create_dir(&path).map_err(|source| ExtractError::Write {
            path: path.clone(),
            source,
        })?;
        let mut processes = Vec::new();
        for buffer in buffers {
            let source = ProcessSource {
                memory,
                owners: &owners,
                directory: &directory,
                trace,
                name: &name,
                buffer,
                options,
                crash,
                since,
            };
            processes.extend(source.extract(&path, &mut extraction.problems)?);
        }
        extraction.traces.push(TraceSummary {
            name,
            generation,
            active: trace.is_some_and(|trace| trace.active != 0),
            processes,
        });
    }
    Ok(extraction)
}

/// All buffers of the directory by trace, and traces without buffers.
fn buffers_by_trace(directory: &Directory) -> BTreeMap<u64, Vec<&LttCrashBuffer>> {
    let mut buffers: BTreeMap<u64, Vec<&LttCrashBuffer>> = BTreeMap::new();
    for trace in directory.traces() {
        buffers.entry(trace.generation).or_default();
    }
    for buffer in directory.buffers() {
        buffers.entry(buffer.trace).or_default().push(buffer);
    }
    buffers
}

/// A file name for a trace that no other trace of the dump has.
fn unique_file_name(names: &mut HashSet<String>, name: &str, generation: u64) -> String {
    let mut path_name = file_name(name);
    while !names.insert(path_name.clone()) {
        path_name = format!("{path_name}-{generation}");
    }
    path_name
}

/// The buffers of one process for one trace, with everything that is needed to extract them.
struct ProcessSource<'a, M> {
    memory: &'a M,
    owners: &'a PageOwners,
    directory: &'a Directory,
    trace: Option<&'a LttCrashTrace>,
    name: &'a str,
    buffer: &'a LttCrashBuffer,
    options: &'a ExtractOptions,
    /// In the clock of the trace.
    crash: Crash,
    /// The time of the first event to extract.
    since: u64,
}

/// A ring as its process left it.
struct DumpedRing {
    offset: u64,
    control: LttRingControl,
    /// The real head is unknown and behind this one, so some data is not read.
    is_cut: bool,
}

/// The rings of a channel.
struct ChannelRings {
    channel: Channel,
    rings: Vec<DumpedRing>,
    /// For each ring without a valid control block, the reason.
    unknown: Vec<UnknownReason>,
}

/// Why a control block is unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnknownReason {
    /// The kernel had no memory for it.
    Lost,
    /// It was excluded from the dump.
    LeftOut,
    /// The dump should have it.
    Missing,
}

impl UnknownReason {
    const ALL: [(Self, &str); 3] = [
        (Self::Lost, "there was no memory for that"),
        (Self::LeftOut, "that was left out when the dump was made"),
        (Self::Missing, "the pages with that are not in the dump"),
    ];
}

impl DumpedRing {
    fn positions(&self) -> Positions {
        Positions {
            head: self.control.head,
            claimed: self.control.claimed,
        }
    }
}

/// The rings of all channels of a process.
struct ProcessChannels {
    /// The channel `control`, if it has rings.
    control: Option<(Channel, Vec<DumpedRing>)>,
    /// The event channels with rings, by their indices.
    events: Vec<(usize, Channel, Vec<DumpedRing>)>,
}

impl<M: PhysicalMemory> ProcessSource<'_, M> {
    fn extract(
        &self,
        output: &Path,
        problems: &mut Problems,
    ) -> Result<Option<ProcessSummary>, ExtractError> {
        let identity = self.identity(problems);
        if !self.options.has_process(identity.pid, &identity.comm) {
            return Ok(None);
        }
        let what = format!(
            "process {} ({}, buffers {}) in trace {}",
            identity.pid, identity.comm, identity.process, self.name
        );
        let page_size = self.directory.root().page_size;
        let tree = |tree, area, problems: &mut Problems| {
            PageTree::new(self.memory, self.owners, tree, page_size)
                .map_err(|error| problems.add(format_args!("{what}: the {area}'s pages: {error}")))
                .ok()
        };
        let (Some(mut buffers), Some(mut control)) = (
            tree(&self.buffer.buffers, "write area", problems),
            tree(&self.buffer.control, "control area", problems),
        ) else {
            return Ok(None);
        };
        let channels = self.channels(&what, &mut buffers, &mut control, problems);
        if channels.events.is_empty() {
            return Ok(None);
        }
        let clock = self.clock(&what, problems);
        let summary = match self.write(output, identity, clock, &channels, &mut buffers) {
            // There may be space for another process.
            Err(error) if is_full(&error) => {
                problems.add(format_args!("{what}: it could not be written: {error}"));
                return Ok(None);
            }
            written => written.map_err(|source| ExtractError::Write {
                path: output.to_owned(),
                source,
            })?,
        };
        if let Some(unwritten) = summary.describe_unwritten() {
            problems.add(format_args!("{unwritten}"));
        }
        let left_out = buffers.left_out() + control.left_out();
        if summary.damaged + summary.holes > 0 && left_out > 0 {
            problems.add(format_args!(
                "{what}: {left_out} pages of its areas were left out when the dump was made, and counted as zeros"
            ));
        }
        report_missing(&what, "write", &buffers, problems);
        report_missing(&what, "control", &control, problems);
        Ok(Some(summary))
    }

    /// Finds the rings of all channels, and reports those whose ends are unknown.
    fn channels(
        &self,
        what: &str,
        buffers: &mut PageTree<'_, M>,
        control: &mut PageTree<'_, M>,
        problems: &mut Problems,
    ) -> ProcessChannels {
        let mut channel = |index: usize| {
            let rings = self
                .rings(index as u32, buffers, control)
                .map_err(|error| problems.add(format_args!("{what}: {error}")))
                .ok()??;
            for (why, text) in UnknownReason::ALL {
                let unknown = rings.unknown.iter();
                let count = unknown.filter(|&&unknown| unknown == why).count();
                if count > 0 {
                    problems.add(format_args!(
                        "{what}: channel {index}: nothing says where {count} rings end ({text}); they are read up to their newest sub-buffers"
                    ));
                }
            }
            Some((rings.channel, rings.rings))
        };
        ProcessChannels {
            control: channel(LTT_CHANNEL_CONTROL),
            events: (LTT_CHANNEL_MAIN..LTT_MAX_CHANNELS)
                .filter_map(|index| {
                    let (channel, rings) = channel(index)?;
                    Some((index, channel, rings))
                })
                .collect(),
        }
    }

    /// The clock of the trace. Reports guessed properties.
    fn clock(&self, what: &str, problems: &mut Problems) -> Clock {
        let clock = self.directory.clock(self.trace);
        if clock.is_guessed() {
            problems.add(format_args!(
                "{what}: the frequency of its clock is not known, and taken to be 1 GHz"
            ));
        }
        if !clock.is_dated() {
            problems.add(format_args!(
                "{what}: when its clock started is not believed, and taken to be 1970"
            ));
        }
        clock
    }

    /// Writes the trace of the process.
    fn write(
        &self,
        output: &Path,
        identity: Identity,
        clock: Clock,
        channels: &ProcessChannels,
        buffers: &mut PageTree<'_, M>,
    ) -> io::Result<ProcessSummary> {
        let limit = clock.max_time();
        let mut readers = |channel: &Channel, rings: &[DumpedRing]| -> Vec<RingReader> {
            let rings = rings.iter().map(|ring| {
                let mut memory = buffers.ring(ring.offset, ring.positions());
                RingReader::dump(channel.format(), &mut memory, limit)
            });
            rings.collect()
        };
        let control = channels.control.as_ref();
        let of_control = control.map(|(channel, rings)| readers(channel, rings));
        let events = channels.events.iter();
        let of_events = events.map(|(_, channel, rings)| readers(channel, rings));
        let of_events: Vec<_> = of_events.collect();

        let mut writer = ProcessWriter::create(output, identity, clock)?;
        writer.set_one_shot();
        writer.set_version(self.options.version);
        writer.set_crash(self.crash);
        writer.set_since(self.since);
        let mut numbers = Vec::new();
        for ((index, channel, _), readers) in channels.events.iter().zip(of_events) {
            let name = self.channel_name(*index);
            numbers.push(writer.add_channel(&name, *index as u32, channel, readers, &[])?);
        }
        if let (Some((_, rings)), Some(readers)) = (control, of_control) {
            writer.set_control(readers);
            for (n, ring) in rings.iter().enumerate() {
                let mut memory = buffers.ring(ring.offset, ring.positions());
                writer.read_control(n, &mut memory, ring.control.head, WaitPolicy::Last)?;
            }
        }
        // Without the time of the crash, the time of the newest event.
        let rings = || channels.events.iter().flat_map(|(_, _, rings)| rings);
        let newest = rings().map(|ring| ring.control.time).max();
        let time = self.crash.cycles.or(newest).unwrap_or(0);
        for (number, (_, channel, rings)) in numbers.into_iter().zip(&channels.events) {
            for (n, ring) in rings.iter().enumerate() {
                let mut memory = buffers.ring(ring.offset, ring.positions());
                let head = ring.control.head;
                if channel.table().is_some() {
                    if head > 0 {
                        writer.write_counts(number, n, &mut memory, time, true)?;
                    }
                    writer.end_ring(number, n, ring.control.lost)?;
                    continue;
                }
                writer.read(number, n, &mut memory, head, WaitPolicy::Last)?;
                if ring.is_cut {
                    writer.add_hole(number, n)?;
                }
                writer.end_ring(number, n, ring.control.lost)?;
            }
        }
        writer.finish(None)
    }

    fn identity(&self, problems: &mut Problems) -> Identity {
        let process = self.directory.process(self.buffer.process);
        if process.is_none() {
            problems.add(format_args!(
                "the directory does not have the process of buffers {} in trace {}",
                self.buffer.process, self.name
            ));
        }
        Identity {
            trace: self.name.to_owned(),
            comm: process.map_or_else(
                || "unknown".to_owned(),
                |process| kernel_name(&process.comm),
            ),
            pid: process.map_or(0, |process| process.pid),
            process: self.buffer.process,
            hostname: None,
        }
    }

    /// The name of a channel. It is unique within the trace, even if the dump repeats names.
    fn channel_name(&self, index: usize) -> String {
        let name_of = |index: usize| {
            let info = self.directory.channel(self.buffer.trace, index as u32);
            info.map(|info| kernel_name(&info.channel.name))
        };
        if index == LTT_CHANNEL_MAIN {
            return "main".to_owned();
        }
        let before = || (LTT_CHANNEL_MAIN + 1..index).map(name_of);
        name_of(index)
            .filter(|name| name != "main" && !before().any(|other| other.as_ref() == Some(name)))
            .unwrap_or_else(|| format!("channel-{index}"))
    }

    /// The rings of a channel, if it has any.
    fn rings(
        &self,
        index: u32,
        buffers: &mut PageTree<'_, M>,
        control: &mut PageTree<'_, M>,
    ) -> Result<Option<ChannelRings>, String> {
        let Some(info) = self.directory.channel(self.buffer.trace, index) else {
            return if index as usize <= LTT_CHANNEL_MAIN {
                Err(format!(
                    "the directory does not have channel {index} of its trace"
                ))
            } else {
                Ok(None)
            };
        };
        if info.channel.nr_rings == 0 {
            return Ok(None);
        }
        let channel =
            Channel::new(&info.channel).map_err(|error| format!("channel {index}: {error}"))?;
        if let Some(last) = channel.nr_rings().checked_sub(1) {
            let rings = channel.ring_offset(last) + channel.geometry().ring_size();
            let block = size_of::<LttRingControl>() as u64;
            let blocks = channel.control_offset(last).saturating_add(block);
            if rings > buffers.len() || blocks > control.len() {
                return Err(format!("channel {index} is larger than its areas"));
            }
        }
        let mut unknown = Vec::new();
        let rings = (0..channel.nr_rings())
            .map(|ring| {
                let mut block = LttRingControl::default();
                let at = channel.control_offset(ring);
                let offset = channel.ring_offset(ring);
                control.read(at, block.as_mut_bytes());
                let why = if block.head == LTT_LOST_WORD {
                    UnknownReason::Lost
                } else if control.is_missing(at) {
                    UnknownReason::Missing
                } else if control.is_left_out(at) && !buffers.is_never_written(offset) {
                    // A writer stores its position before it writes, so this block was not zeros.
                    UnknownReason::LeftOut
                } else {
                    return DumpedRing {
                        offset,
                        control: block,
                        is_cut: false,
                    };
                };
                if channel.table().is_some() {
                    // A table says itself what is in it.
                    return DumpedRing {
                        offset,
                        control: LttRingControl {
                            head: channel.geometry().ring_size(),
                            ..LttRingControl::default()
                        },
                        is_cut: false,
                    };
                }
                unknown.push(why);
                let mut memory = buffers.ring(offset, Positions::default());
                let newest = NewestSubbuf::find(channel.geometry(), &mut memory);
                // Descriptions are never overwritten, so zeros follow the last one.
                let is_cut = newest.is_some() && index as usize != LTT_CHANNEL_CONTROL;
                let head = if is_cut {
                    NewestSubbuf::begin
                } else {
                    NewestSubbuf::end
                };
                DumpedRing {
                    offset,
                    control: LttRingControl {
                        head: newest.map_or(0, head),
                        ..LttRingControl::default()
                    },
                    is_cut,
                }
            })
            .collect();
        Ok(Some(ChannelRings {
            channel,
            rings,
            unknown,
        }))
    }
}

/// Reports how many pages of an area are missing or duplicates.
fn report_missing<M: PhysicalMemory>(
    what: &str,
    area: &str,
    tree: &PageTree<'_, M>,
    problems: &mut Problems,
) {
    let (missing, duplicates) = (tree.missing(), tree.duplicates());
    if missing > 0 {
        problems.add(format_args!(
            "{what}: {missing} pages of its {area} area are not in the dump"
        ));
    }
    if duplicates > 0 {
        problems.add(format_args!(
            "{what}: {duplicates} pages of its {area} area are at another place, too"
        ));
    }
}
