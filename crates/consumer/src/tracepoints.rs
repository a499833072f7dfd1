//! Lists the tracepoints of running programs: from their descriptions in a trace's rings, or by
//! querying the programs (B3, E4, E6).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ReadCache};
use serde::Serialize;
use usertrace_ctf::kernel_name;
use usertrace_os::procfs;
use usertrace_ring::schema::{Description, Event};
use usertrace_ring::{Item, MetaLengths, RingReader, WaitPolicy};
use usertrace_sys::filter::Patterns;
use usertrace_sys::uapi::{LTT_FILE_DEAD, LTT_ID_MIN};

use super::control_fs::consumer_files;
use super::daemons::is_daemon;
use super::source::ConsumerSource;
use super::{CONTROL, ConsumerFile, ControlFs, ControlFsError, KernelFile, TraceDir};
use usertrace_control::{self as control, Client};

/// How long a program may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The ELF section with the call sites of a program or library.
const SECTION: &str = "usertrace_callsites";

/// A tracepoint of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tracepoint {
    /// `PROVIDER:NAME`
    pub name: String,
    /// Its log level.
    pub loglevel: u32,
    /// The format string of a marker.
    pub format: Option<String>,
    /// Its fields, in order.
    pub fields: Vec<TracepointField>,
    /// Whether it is enabled: by the listed trace, or else by any trace or probe.
    pub wanted: bool,
}

/// A field of a tracepoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TracepointField {
    /// Its type, in the syntax of descriptions.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// The source of a list of tracepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TracepointSource {
    /// Descriptions in the trace's rings.
    Trace,
    /// The running process, over its control socket.
    Process,
    /// Both, because the rings dropped descriptions.
    Both,
    /// None: the process did not answer.
    Nobody,
}

/// The tracepoints of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessTracepoints {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// The process has ended.
    pub dead: bool,
    /// The source of the list.
    #[serde(rename = "told_by")]
    pub source: TracepointSource,
    /// Sorted by name.
    pub tracepoints: Vec<Tracepoint>,
    /// Problems, as text.
    pub problems: Vec<String>,
}

/// The processes of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceTracepoints {
    /// Its name.
    pub trace: String,
    /// Processes with descriptions in its rings.
    pub processes: Vec<ProcessTracepoints>,
    /// Problems, as text.
    pub problems: Vec<String>,
}

/// The events that a trace enables.
#[derive(Debug)]
struct Filter {
    patterns: Patterns,
    mask: u32,
}

impl Filter {
    /// Reads the filter from the trace's files.
    fn of(trace: &TraceDir) -> Result<Self, String> {
        let error = |error: ControlFsError| format!("{error}: it is not known what it wants");
        let events = trace.events(None).map_err(error)?;
        let patterns = Patterns::as_shown(&events).map_err(|bad| bad.to_string())?;
        let path = trace.path().join("filter_mask");
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let digits = text.trim().trim_start_matches("0x");
        let mask = u32::from_str_radix(digits, 16)
            .map_err(|_| format!("{}: {text:?} is no mask", path.display()))?;
        Ok(Self { patterns, mask })
    }

    fn wants(&self, event: &Event) -> bool {
        let level = 1u32.checked_shl(event.loglevel);
        level.is_some_and(|level| self.mask & level != 0) && self.patterns.accept(&event.name)
    }
}

impl Tracepoint {
    fn new(event: Event, wanted: bool) -> Self {
        let fields = event.fields.iter().map(|field| TracepointField {
            kind: field.kind.to_string(),
            name: field.name.clone(),
        });
        Self {
            fields: fields.collect(),
            name: event.name,
            loglevel: event.loglevel,
            format: event.format,
            wanted,
        }
    }
}

/// Lists the tracepoints of all processes that described them in a trace. Consumes nothing. Also
/// queries a running process whose descriptions were partly dropped.
///
/// # Errors
/// If the trace does not exist.
pub fn tracepoints(control_fs: &ControlFs, name: &str) -> Result<TraceTracepoints, ControlFsError> {
    let trace = control_fs.trace(name)?;
    let mut listed = TraceTracepoints {
        trace: name.to_owned(),
        processes: Vec::new(),
        problems: Vec::new(),
    };
    let filter = Filter::of(&trace);
    if let Err(problem) = &filter {
        listed.problems.push(problem.clone());
    }
    let directory = trace.channel(CONTROL);
    let files = consumer_files(&directory).unwrap_or_else(|error| {
        let problem = format!("{}: {error}", directory.display());
        listed.problems.push(problem);
        Vec::new()
    });
    for file in files {
        let path = directory.join(&file);
        let process = KernelFile::open(&path).and_then(|file| of_file(file, filter.as_ref().ok()));
        match process {
            Ok(process) => listed.processes.push(process),
            // The process has ended, and was read completely.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let problem = format!("{}: {error}", path.display());
                listed.problems.push(problem);
            }
        }
    }
    Ok(listed)
}

/// The tracepoints of one process, from its file of the channel `control`.
fn of_file(file: impl ConsumerFile, filter: Option<&Filter>) -> io::Result<ProcessTracepoints> {
    let mut source = ConsumerSource::new(CONTROL, file)?;
    let dead = source.update()? & LTT_FILE_DEAD != 0;
    let mut process = ProcessTracepoints {
        pid: source.info.pid,
        comm: kernel_name(&source.info.comm),
        dead,
        source: TracepointSource::Trace,
        tracepoints: Vec::new(),
        problems: Vec::new(),
    };
    let (mut bad, mut left) = (0u64, 0u64);
    let mut events = BTreeMap::new();
    let policy = if dead {
        WaitPolicy::Last
    } else {
        WaitPolicy::Wait
    };
    for (n, ring) in source.positions.iter().enumerate() {
        let mut reader = RingReader::live(source.channel.format(), 0, u64::MAX);
        let mut memory = source.ring(n);
        let take = &mut |item: Item<'_>| {
            match item {
                Item::Record { payload, .. } => match Description::parse(payload) {
                    Ok(Description::Event(event)) => {
                        let event = Event { id: 0, ..event };
                        events.insert(event.line(), event);
                    }
                    Ok(
                        Description::Contexts(_)
                        | Description::Counting(_)
                        | Description::Cmdline(_)
                        | Description::Module(_),
                    ) => {}
                    Err(_) => bad += 1,
                },
                Item::Gap { .. } => bad += 1,
                Item::Overwritten { subbuffers } => bad += subbuffers,
                Item::SubBuffer { .. } => {}
            }
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = reader.read(&mut memory, ring.head, policy, &MetaLengths, take);
        left = left.saturating_add(ring.head.saturating_sub(reader.position()));
    }
    if bad > 0 {
        let problem = format!("{bad} of its descriptions cannot be read");
        process.problems.push(problem);
    }
    if left > 0 {
        let problem = "it is in the middle of a description: more may come";
        process.problems.push(problem.to_owned());
    }
    let lost = source.lost();
    if lost > 0 && !dead {
        match query(process.pid) {
            Ok(listed) => {
                process.source = TracepointSource::Both;
                events.extend(listed.into_iter().map(|(event, _)| (event.line(), event)));
            }
            Err(problem) => process.problems.push(problem),
        }
    }
    if lost > 0 && process.source == TracepointSource::Trace {
        let problem = "not all of its tracepoints are known, as there was no room for their descriptions in the channel \
                       control: give it more or larger sub-buffers before the trace starts";
        process.problems.push(problem.to_owned());
    }
    let wanted = |event: &Event| filter.is_some_and(|filter| filter.wants(event));
    process.tracepoints = sorted(events.into_values().map(|event| {
        let wanted = wanted(&event);
        (event, wanted)
    }));
    Ok(process)
}

/// Sorts tracepoints by name.
fn sorted(events: impl Iterator<Item = (Event, bool)>) -> Vec<Tracepoint> {
    let mut tracepoints: Vec<_> = events
        .map(|(event, wanted)| Tracepoint::new(event, wanted))
        .collect();
    tracepoints.sort_by(|a, b| a.name.cmp(&b.name));
    tracepoints
}

/// Queries a process for its events, and whether each is enabled.
fn query(pid: u32) -> Result<Vec<(Event, bool)>, String> {
    let client = Client::connect(pid, PATIENCE).map_err(|error| format!("{error:#}"))?;
    let listed = client
        .events()
        .map_err(|error| format!("it cannot be asked: {error:#}"))?;
    let event = |listed: control::ListedEvent| {
        // The control socket sends descriptions without ids, so add one.
        let line = format!("{LTT_ID_MIN} {}", listed.description);
        match Event::parse(line.as_bytes()) {
            Ok(event) => Ok((Event { id: 0, ..event }, listed.enabled)),
            Err(error) => Err(format!("it has {:?}: {error}", listed.description)),
        }
    };
    listed.into_iter().map(event).collect()
}

/// Lists the tracepoints of running programs whose process ids are wanted, by querying them.
/// Programs without an answer are included, with a problem. Programs are found in `/proc`, where
/// only root sees those of other users; a problem counts the hidden ones.
#[must_use]
pub fn programs(is_wanted: impl Fn(u32) -> bool) -> (Vec<ProcessTracepoints>, Vec<String>) {
    let (mut programs, mut problems) = (Vec::new(), Vec::new());
    let sockets = match control::sockets() {
        Ok(sockets) => sockets,
        Err(error) => {
            let problem = format!("/proc/net/unix: {error}: it is not known whom to ask");
            problems.push(problem);
            BTreeSet::new()
        }
    };
    let mut executables = Executables::default();
    let mut hidden = Vec::new();
    let pids: BTreeSet<u32> = procfs::pids().collect();
    for pid in pids {
        if !is_wanted(pid) || is_daemon(pid) {
            continue;
        }
        let comm = procfs::name(pid);
        if !sockets.contains(&pid) {
            match executables.is_traced(pid) {
                Ok(true) => {}
                Ok(false) => continue,
                // It has ended, or has no memory map, like kernel threads.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound)
                        || error.raw_os_error() == Some(libc::ESRCH) =>
                {
                    continue;
                }
                Err(error) => {
                    hidden.push((pid, comm, error));
                    continue;
                }
            }
        }
        let mut program = ProcessTracepoints {
            pid,
            comm,
            dead: false,
            source: TracepointSource::Process,
            tracepoints: Vec::new(),
            problems: Vec::new(),
        };
        match query(pid) {
            Ok(listed) => program.tracepoints = sorted(listed.into_iter()),
            // It has ended since.
            Err(_) if !Path::new(&format!("/proc/{pid}")).exists() => continue,
            Err(problem) => {
                program.source = TracepointSource::Nobody;
                program.problems.push(problem);
            }
        }
        programs.push(program);
    }
    if let Some((pid, comm, error)) = hidden.first() {
        let (count, comm) = (hidden.len(), comm.escape_debug());
        let problem = format!(
            "whether {count} more of the processes have events cannot be seen, as of {comm} ({pid}): {error}"
        );
        problems.push(problem);
    }
    (programs, problems)
}

/// Caches which executables have tracepoints, by device and inode.
#[derive(Debug, Default)]
struct Executables(BTreeMap<(u64, u64), bool>);

impl Executables {
    /// Whether the process has the kernel's trace areas, a library of usertrace, or an executable
    /// with tracepoints.
    fn is_traced(&mut self, pid: u32) -> io::Result<bool> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        if has_library(&maps) {
            return Ok(true);
        }
        let path = format!("/proc/{pid}/exe");
        let file = File::open(path)?;
        let about = file.metadata()?;
        let known = self.0.entry((about.dev(), about.ino()));
        Ok(*known.or_insert_with(|| has_section(file)))
    }
}

/// Whether the text of `/proc/PID/maps` has trace areas or a usertrace library.
fn has_library(maps: &str) -> bool {
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    paths.any(|path| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name == "anon_inode:[ltt]" || name.starts_with("libusertrace")
    })
}

/// Whether an executable has tracepoints. The library itself puts one null entry into the section.
fn has_section(file: File) -> bool {
    let cache = ReadCache::new(file);
    let executable = ElfFile64::<Endianness, _>::parse(&cache);
    executable.is_ok_and(|executable| {
        let section = executable.section_by_name(SECTION);
        section.is_some_and(|section| section.size() > size_of::<usize>() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_read_from_the_trace() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("abi"), "version 2\n").unwrap();
        let control_fs = ControlFs::open(directory.path()).unwrap();
        let path = directory.path().join("mine");
        fs::create_dir_all(path.join(CONTROL)).unwrap();
        let wanted = |filter: &str, mask: &str, line: &str| {
            fs::write(path.join("filter"), filter).unwrap();
            fs::write(path.join("filter_mask"), mask).unwrap();
            let trace = control_fs.trace("mine").unwrap();
            let filter = Filter::of(&trace).unwrap();
            filter.wants(&Event::parse(line.as_bytes()).unwrap())
        };
        let all = "0xffffffff\n";
        for (filter, mask, expected) in [
            ("*\n", all, true),
            ("0\n", all, false),
            ("shop:*\n", all, true),
            ("db:*\n", all, false),
            ("*\n!shop:*\n", all, false),
            // With only a rejection, nothing is accepted.
            ("!db:*\n", all, false),
            ("*\n", "0x40\n", true),
            ("*\n", "0xffffffbf\n", false),
        ] {
            let line = "1 shop:served 6 u16 status";
            assert_eq!(wanted(filter, mask, line), expected, "{filter} {mask}");
        }
        // A level beyond the mask.
        assert!(!wanted("*\n", all, "1 shop:served 32"));
        let listed = tracepoints(&control_fs, "mine").unwrap();
        assert_eq!((listed.processes, listed.problems), (vec![], vec![]));
        fs::write(path.join("filter_mask"), "x").unwrap();
        let listed = tracepoints(&control_fs, "mine").unwrap();
        assert!(listed.problems[0].contains("no mask"), "{listed:?}");
    }

    #[test]
    fn traced_process_is_recognized() {
        let line = |path: &str| format!("7f0000000000-7f0000001000 rw-s 00000000 00:0f 1 {path}\n");
        assert!(has_library(&line("anon_inode:[ltt]")));
        assert!(has_library(&line("/usr/lib/libusertrace_malloc.so")));
        assert!(!has_library(&line("/usr/lib/libc.so.6")));
        assert!(!has_library(
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n"
        ));
        assert!(!has_section(File::open("/bin/sh").unwrap()));
        assert!(!has_section(File::open("/proc/self/maps").unwrap()));
        // This test links the library, but has no event.
        assert!(!has_section(File::open("/proc/self/exe").unwrap()));
    }
}
