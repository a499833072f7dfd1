//! Merges all streams of all traces by time (E8).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use usertrace_ctf::recording::finished;
use usertrace_ctf::{METADATA, PACKET_MAGIC};
use usertrace_os::files;

use crate::binding::Binding;
use crate::completion::Completion;
use crate::duplicates::drop_duplicates;
use crate::event::Event;
use crate::lost::Lost;
use crate::merged_stream::{MergedStream, Next};
use crate::metadata::{Metadata, StreamClass};
use crate::processes::Processes;
use crate::shared_classes::SharedClasses;
use crate::stream::{NextPacket, Stream, StreamError};
use crate::trace::{Trace, is_hidden};
use crate::{ReadError, Selection};

/// Limit of the read buffers of all streams, as long as each gets its minimum.
const MEMORY: usize = 32 << 20;
/// Smallest and largest number of bytes to read of a stream at once.
const MIN_CHUNK: usize = 1 << 10;
const MAX_CHUNK: usize = 256 << 10;

/// An item of the merged traces.
#[derive(Debug)]
pub enum Item<'a> {
    /// An event.
    Event(Event<'a>),
    /// Events or packets were lost.
    Lost(Lost),
    /// Something cannot be read. The reader continues with everything else.
    Error(ReadError),
}

enum PendingItem {
    Lost(Lost),
    Error(ReadError),
}

/// Position of a stream in the merged order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MergeKey {
    ns: i64,
    rank: u32,
    index: u32,
}

/// Reads traces event by event, in the order of time.
///
/// Events of the same time are ordered by the UUID of their trace, the class of their stream, and
/// the number of their stream, like in `babeltrace2`.
pub struct Reader {
    roots: Vec<PathBuf>,
    selection: Selection,
    /// The traces may grow.
    follows: bool,
    traces: Vec<Trace>,
    processes: Processes,
    same: SharedClasses,
    /// Canonical paths of all known traces, selected or not.
    known: HashSet<PathBuf>,
    streams: Vec<MergedStream>,
    /// Streams with a next item, other than `current`.
    heap: BinaryHeap<Reverse<MergeKey>>,
    /// The stream of the last returned item.
    current: Option<u32>,
    /// The next item.
    chosen: Option<MergeKey>,
    pending: VecDeque<PendingItem>,
    completion: Completion,
    /// Paths without read permission that were reported.
    denied: HashSet<PathBuf>,
    memory: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("roots", &self.roots)
            .field("traces", &self.traces.len())
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens all traces in or below these directories.
    ///
    /// # Errors
    /// If a directory cannot be read, or has no trace.
    pub fn open(roots: &[PathBuf], selection: Selection) -> Result<Self, ReadError> {
        Self::new(roots, selection, false)
    }

    /// Like [`Reader::open`], for traces that may still grow: see [`Reader::refresh`]. There may be
    /// no trace yet.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn follow(roots: &[PathBuf], selection: Selection) -> Result<Self, ReadError> {
        Self::new(roots, selection, true)
    }

    fn new(roots: &[PathBuf], selection: Selection, follows: bool) -> Result<Self, ReadError> {
        let mut reader = Self {
            roots: roots.to_owned(),
            selection,
            follows,
            traces: Vec::new(),
            processes: Processes::default(),
            same: SharedClasses::default(),
            known: HashSet::new(),
            streams: Vec::new(),
            heap: BinaryHeap::new(),
            current: None,
            chosen: None,
            pending: VecDeque::new(),
            completion: Completion::default(),
            denied: HashSet::new(),
            memory: Vec::new(),
        };
        for root in roots {
            let found = reader
                .find(root)
                .map_err(|error| ReadError::io(root, error))?;
            if !found && !follows {
                return Err(reader.no_trace_error(root));
            }
        }
        reader.find_streams();
        Ok(reader)
    }

    /// All selected traces that can be read.
    #[must_use]
    pub fn traces(&self) -> &[Trace] {
        &self.traces
    }

    /// Looks for new traces, streams and packets.
    pub fn refresh(&mut self) {
        for root in self.roots.clone() {
            // It may become readable later.
            let _ = self.find(&root);
        }
        self.find_streams();
    }

    /// Like [`Reader::refresh`], for the last time: incomplete packets count as cut short.
    pub fn finish(&mut self) {
        self.follows = false;
        self.refresh();
    }

    /// Sets the time range. Must be called before the first event is read.
    pub fn set_times(&mut self, from: Option<i64>, to: Option<i64>) {
        (self.selection.from, self.selection.to) = (from, to);
    }

    /// Sets whether events about modules are returned: see [`Selection::modules`]. Must be called
    /// before the first event is read.
    pub fn set_modules(&mut self, modules: bool) {
        self.selection.modules = modules;
    }

    /// Selects events by their whole names. Must be called before the first event is read, and
    /// the reader must have patterns of events.
    pub(crate) fn select(&mut self, is_wanted: impl Fn(&str) -> bool) {
        for trace in &mut self.traces {
            trace.metadata.select(&is_wanted);
        }
    }

    /// What to say of names in the selection's condition that no selected event has.
    #[must_use]
    pub fn unknown_names(&self) -> Vec<String> {
        let condition = self.selection.condition.as_ref();
        condition.map_or_else(Vec::new, |condition| {
            condition.unknown_names(self.bindings())
        })
    }

    /// The bindings of the selection's condition to all selected events.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        let metadata = self.traces.iter().map(|trace| &trace.metadata);
        let classes = metadata.flat_map(Metadata::classes);
        let classes = classes.filter(|class| !class.is_about_modules());
        let events = classes.flat_map(StreamClass::events);
        let wanted = events.filter(|event| event.is_wanted);
        wanted.filter_map(|event| event.binding.as_ref())
    }

    /// Start of the first packet and end of the last one, in ns since 1970. Reads the headers of
    /// all packets of all streams, but no events.
    #[must_use]
    pub fn span(&self) -> Option<(i64, i64)> {
        self.span_of(|_| true)
    }

    /// Like [`Reader::span`], of some of the traces.
    pub(crate) fn span_of(&self, is_wanted: impl Fn(usize) -> bool) -> Option<(i64, i64)> {
        let mut span: Option<(i64, i64)> = None;
        let wanted = |merged: &&MergedStream| is_wanted(merged.stream.trace);
        for merged in self.streams.iter().filter(wanted) {
            let metadata = &self.traces[merged.stream.trace].metadata;
            let mut stream = Stream::new(merged.stream.path.clone(), merged.stream.trace);
            stream.len = merged.stream.len;
            while let Ok(NextPacket::Found) = stream.next_packet(metadata, self.follows) {
                let Some((begin, end)) = stream.packet_ns(metadata) else {
                    break;
                };
                let (first, last) = span.unwrap_or((begin, end));
                span = Some((first.min(begin), last.max(end)));
            }
        }
        span
    }

    /// The error for a directory without a trace.
    fn no_trace_error(&mut self, root: &Path) -> ReadError {
        let error = self.pending.drain(..).find_map(|item| match item {
            PendingItem::Error(error) => Some(error),
            _ => None,
        });
        error.unwrap_or(ReadError::NoTrace {
            path: root.to_owned(),
        })
    }

    /// Finds traces in or below a directory. Returns whether there are any.
    fn find(&mut self, root: &Path) -> io::Result<bool> {
        let mut found = false;
        // Not recursive: directories may be arbitrarily deep, and links may lead back.
        let (mut todo, mut seen) = (vec![root.to_owned()], HashSet::new());
        while let Some(directory) = todo.pop() {
            // Its chunk may have been finished, and so renamed, since it was found.
            let is_there = directory.exists();
            let directory = match is_there {
                true => directory,
                false => finished(&directory),
            };
            let canonical = match directory.canonicalize() {
                // One name for a chunk, finished or not.
                Ok(canonical) => finished(&canonical),
                Err(error) if directory == root => return Err(error),
                Err(error) => {
                    self.report_io(&directory, error);
                    continue;
                }
            };
            match is_file(&directory.join(METADATA)) {
                Ok(true) => {
                    found = true;
                    if !self.known.contains(&canonical) {
                        self.add_trace(directory, canonical);
                    }
                    continue;
                }
                Ok(false) => {}
                // Nothing else in there can be looked up either.
                Err(error) => {
                    self.report_io(&directory.join(METADATA), error);
                    continue;
                }
            }
            if !seen.insert(canonical) {
                continue;
            }
            let entries = match fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) if directory == root => return Err(error),
                Err(error) => {
                    self.report_io(&directory, error);
                    continue;
                }
            };
            let mut paths = Vec::new();
            for entry in entries {
                match entry {
                    Ok(entry) => paths.push(entry.path()),
                    Err(error) => {
                        self.report_io(&directory, error);
                        break;
                    }
                }
            }
            if !self.follows && paths.iter().any(|path| is_stream(path)) {
                self.report(ReadError::NoMetadata {
                    path: directory.clone(),
                });
            }
            paths.retain(|path| !is_hidden(path));
            let mut below = Vec::new();
            for path in paths {
                match is_directory(&path) {
                    Ok(true) => below.push(path),
                    Ok(false) => {}
                    Err(error) => self.report_io(&path, error),
                }
            }
            below.sort_unstable_by(|a, b| b.cmp(a));
            todo.extend(below);
        }
        Ok(found)
    }

    /// Reports an error of a system call.
    fn report_io(&mut self, path: &Path, error: io::Error) {
        self.report_unless_followed(ReadError::io(path, error));
    }

    /// Reports an error, unless the traces may still grow and so become valid. Missing permissions
    /// are reported once.
    fn report_unless_followed(&mut self, error: ReadError) {
        let denied = match &error {
            ReadError::Io { path, error } if error.kind() == io::ErrorKind::PermissionDenied => {
                Some(path.clone())
            }
            _ => None,
        };
        let is_reported = match denied {
            Some(path) => self.denied.insert(path),
            None => !self.follows,
        };
        if is_reported {
            self.report(error);
        }
    }

    fn report(&mut self, error: ReadError) {
        self.pending.push_back(PendingItem::Error(error));
    }

    fn add_trace(&mut self, directory: PathBuf, canonical: PathBuf) {
        if !self.follows
            && let Some(why) = self.completion.wait(&directory)
        {
            self.report(ReadError::Incomplete {
                path: directory.clone(),
                why,
            });
        }
        let mut trace = match Trace::open(directory, &self.selection, &mut self.same) {
            Ok(trace) => trace,
            // It may be complete the next time.
            Err(error) if self.follows => return self.report_unless_followed(error),
            Err(error) => {
                self.known.insert(canonical);
                return self.report(error);
            }
        };
        self.known.insert(canonical);
        let metadata = &trace.metadata;
        if self
            .selection
            .has_process(metadata.pid(), metadata.owner_name())
        {
            trace.number = self.traces.len();
            trace.process = self.processes.number(&trace.metadata);
            self.traces.push(trace);
        }
    }

    /// Shares the declared events between the traces of a process.
    fn share_declarations(&mut self) {
        let mut of_process: HashMap<usize, Vec<usize>> = HashMap::new();
        for trace in &self.traces {
            of_process
                .entry(trace.process)
                .or_default()
                .push(trace.number);
        }
        // A single trace has nothing to share.
        for numbers in of_process.into_values().filter(|all| all.len() > 1) {
            let mut declared: HashMap<String, bool> = HashMap::new();
            let traces = numbers.iter().map(|&number| &self.traces[number]);
            for (name, is_wanted) in traces.flat_map(Trace::declared) {
                if !declared.contains_key(name) {
                    declared.insert(name.to_owned(), is_wanted);
                }
            }
            let declared = Arc::new(declared);
            for number in numbers {
                self.traces[number].declared_elsewhere = Arc::clone(&declared);
            }
        }
    }

    /// Finds new stream files, and new packets in known ones.
    fn find_streams(&mut self) {
        if let Some(current) = self.current.take() {
            self.step(current as usize);
        }
        self.find_finished();
        for merged in &mut self.streams {
            if let Ok(file) = fs::metadata(&merged.stream.path) {
                merged.stream.len = merged.stream.len.max(file.len());
            }
        }
        let mut found = Vec::new();
        for index in 0..self.traces.len() {
            let mut errors = Vec::new();
            found.extend(self.traces[index].find_streams(index, &mut errors));
            for error in errors {
                self.report_unless_followed(error);
            }
        }
        // Writers declare events before they write them, so read the declarations after the
        // streams.
        let mut is_declared = !found.is_empty();
        for index in 0..self.traces.len() {
            let trace = &mut self.traces[index];
            let refreshed = trace.refresh(&self.selection, &mut self.same);
            let cut = trace.metadata.cut.filter(|_| !self.follows);
            let path = trace.directory.join(METADATA);
            match (refreshed, cut) {
                (Err(error), _) => self.report_unless_followed(error),
                (Ok(is_other), cut) => {
                    is_declared |= is_other;
                    if let Some(line) = cut {
                        self.report(ReadError::MetadataCutShort { path, line });
                    }
                }
            }
        }
        if is_declared {
            self.share_declarations();
        }
        let (found, copies) = drop_duplicates(&self.traces, &self.streams, found);
        self.pending
            .extend(copies.into_iter().map(PendingItem::Error));
        let is_new = !found.is_empty();
        self.streams.extend(found);
        for index in 0..self.streams.len() {
            if self.streams[index].next == Next::Nothing {
                self.step(index);
            }
        }
        if is_new {
            // Each stream's first packet has its class and number.
            self.rank();
        }
        self.heap.clear();
        self.chosen = None;
        let keys = (0..self.streams.len()).filter_map(|index| self.key(index));
        self.heap = keys.map(Reverse).collect();
    }

    /// Updates the paths of traces whose chunk was finished.
    fn find_finished(&mut self) {
        for (index, trace) in self.traces.iter_mut().enumerate() {
            let directory = finished(&trace.directory);
            if directory == trace.directory || trace.directory.exists() || !directory.exists() {
                continue;
            }
            trace.directory = directory;
            let streams = self.streams.iter_mut();
            for merged in streams.filter(|merged| merged.stream.trace == index) {
                merged.stream.path = finished(&merged.stream.path);
            }
        }
    }

    /// Orders streams with items at the same time.
    fn rank(&mut self) {
        let mut order: Vec<usize> = (0..self.streams.len()).collect();
        let key = |index: usize| {
            let stream = &self.streams[index].stream;
            let packet = stream.packet.as_ref();
            let packet = packet.map(|packet| (packet.class_id, packet.instance));
            (
                self.traces[stream.trace].metadata.uuid(),
                packet,
                &stream.path,
            )
        };
        order.sort_unstable_by(|&a, &b| key(a).cmp(&key(b)));
        for (rank, index) in (0..).zip(order) {
            self.streams[index].rank = rank;
        }
    }

    fn key(&self, index: usize) -> Option<MergeKey> {
        let merged = &self.streams[index];
        match merged.next {
            Next::Nothing => None,
            Next::Packet(ns) | Next::Event(ns) => Some(MergeKey {
                ns,
                rank: merged.rank,
                index: index as u32,
            }),
        }
    }

    /// Bytes to read of a stream at once.
    fn chunk(&self) -> usize {
        (MEMORY / self.streams.len().max(1)).clamp(MIN_CHUNK, MAX_CHUNK)
    }

    /// Finds the next item of a stream.
    fn step(&mut self, index: usize) {
        let chunk = self.chunk();
        let merged = &mut self.streams[index];
        merged.next = Next::Nothing;
        if merged.is_given_up {
            return;
        }
        let metadata = &self.traces[merged.stream.trace].metadata;
        if merged.is_in_packet {
            match merged.next_event(metadata, &self.selection, chunk) {
                Ok(Some(ns)) => {
                    merged.next = Next::Event(ns);
                    return;
                }
                Ok(None) => {}
                Err(error) => {
                    // Report an unreadable file once.
                    merged.is_given_up = matches!(error, StreamError::Io(_));
                    let error = ReadError::of_stream(&merged.stream.path, error);
                    self.pending.push_back(PendingItem::Error(error));
                }
            }
            merged.is_in_packet = false;
            self.memory.push(merged.stream.take_memory());
        }
        if merged.is_given_up {
            return;
        }
        match merged.next_packet(metadata, &self.selection, self.follows) {
            Ok(NextPacket::Found) => {}
            Ok(NextPacket::End) => {}
            Ok(NextPacket::CutShort(_)) if self.follows => {}
            Ok(NextPacket::CutShort(bytes)) => {
                merged.is_given_up = true;
                let (path, offset) = (merged.stream.path.clone(), merged.stream.offset());
                self.report(ReadError::CutShort {
                    path,
                    offset,
                    bytes,
                });
            }
            Err(error) => {
                merged.is_given_up = true;
                let error = ReadError::of_stream(&merged.stream.path, error);
                self.report(error);
            }
        }
    }

    /// Enters the packet that comes next of a stream.
    fn enter(&mut self, index: usize) {
        let merged = &mut self.streams[index];
        let metadata = &self.traces[merged.stream.trace].metadata;
        let losses = merged.enter(metadata);
        self.pending
            .extend(losses.into_iter().flatten().map(PendingItem::Lost));
        if let Some(memory) = self.memory.pop() {
            merged.stream.give_memory(memory);
        }
    }

    /// Returns the next item. None if there is none now, see [`Reader::refresh`].
    #[allow(
        clippy::should_implement_trait,
        reason = "what it gives borrows from it"
    )]
    pub fn next(&mut self) -> Option<Item<'_>> {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return Some(match item {
                    PendingItem::Lost(lost) => Item::Lost(lost),
                    PendingItem::Error(error) => Item::Error(error),
                });
            }
            if let Some(key) = self.chosen.take() {
                let index = key.index as usize;
                self.current = Some(key.index);
                if let Next::Packet(_) = self.streams[index].next {
                    self.enter(index);
                    continue;
                }
                return Some(Item::Event(self.event(index, key.ns)?));
            }
            if let Some(current) = self.current.take() {
                self.step(current as usize);
                // Usually the next item belongs to the same stream.
                let key = self.key(current as usize);
                self.chosen = key.map(|key| match self.heap.peek_mut() {
                    Some(mut first) if first.0 < key => {
                        std::mem::replace(&mut *first, Reverse(key)).0
                    }
                    _ => key,
                });
            }
            if self.chosen.is_none() {
                self.chosen = self.heap.pop().map(|Reverse(key)| key);
            }
            if self.chosen.is_none() && self.pending.is_empty() {
                return None;
            }
        }
    }

    fn event(&self, index: usize, ns: i64) -> Option<Event<'_>> {
        let stream = &self.streams[index].stream;
        let trace = &self.traces[stream.trace];
        let packet = stream.packet.as_ref()?;
        let class_of_stream = trace.metadata.classes().get(packet.class)?;
        let (class, contexts, payload) = stream.event(class_of_stream)?;
        Some(Event {
            trace,
            stream: class_of_stream,
            class,
            ns,
            packet: packet.context(),
            contexts,
            payload,
        })
    }
}

/// Whether a file begins like a stream. Only opens files whose name is like that of a stream
/// (`CHANNEL_NUMBER`): reading some of the kernel's files blocks, or takes data from other readers.
fn is_stream(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    let number = name.and_then(|name| name.rsplit_once('_'));
    let is_named_so =
        number.is_some_and(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_named_so || !path.is_file() {
        return false;
    }
    let mut magic = [0; 4];
    // It may have become something else, such as a FIFO.
    let file = files::open(OpenOptions::new().read(true), path);
    file.is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && u32::from_le_bytes(magic) == PACKET_MAGIC
}

/// Whether it is a file or a link to one.
fn is_file(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(file) => Ok(file.is_file()),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(false),
            _ => Err(error),
        },
    }
}

/// Whether it is a directory or a link to one. A dangling link is not.
fn is_directory(path: &Path) -> io::Result<bool> {
    match fs::metadata(path).or_else(|_| fs::metadata(finished(path))) {
        Ok(file) => Ok(file.is_dir()),
        Err(_) if path.is_symlink() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use usertrace_ctf::{Clock, StreamChannel, StreamOwner, TraceInfo, TraceOrigin, TraceWriter};
    use usertrace_ring::schema::Event as Declared;
    use usertrace_sys::Scope;
    use usertrace_sys::uapi::LttClockSync;

    use super::*;

    /// Creates the trace of a process, with one class of events.
    fn trace(directory: &Path, pid: u32) -> TraceWriter {
        let info = TraceInfo {
            trace_name: "t".into(),
            origin: TraceOrigin::Process {
                name: "p".into(),
                pid,
                process: pid.into(),
            },
            hostname: None,
        };
        let clock = Clock::new(&LttClockSync::default(), &[]);
        let directory = directory.join(format!("p-{pid}"));
        let mut trace = TraceWriter::create(&directory, info, clock).unwrap();
        trace.declare_class(Scope::Cpu).unwrap();
        trace
            .declare(&Declared::parse(b"1 t:e 6 u64 n").unwrap())
            .unwrap();
        trace
    }

    /// Size of all read buffers.
    fn memory(reader: &Reader) -> usize {
        let streams = reader.streams.iter().map(|merged| merged.stream.memory());
        streams.chain(reader.memory.iter().map(Vec::capacity)).sum()
    }

    /// Streams with events at the same time share a memory limit, and traces share identical
    /// declarations.
    ///
    /// Requirements: E8
    #[test]
    fn memory_of_thousands_of_streams_is_bounded() {
        const TRACES: u32 = 30;
        const STREAMS: u32 = 100;
        const EVENTS: u64 = 1000;
        let directory = tempfile::tempdir().unwrap();
        for pid in 1..=TRACES {
            let trace = trace(directory.path(), pid);
            for cpu in 0..STREAMS {
                let channel = StreamChannel::new("main", 1);
                let mut stream = trace.stream(&channel, StreamOwner::Cpu(cpu)).unwrap();
                for n in 1..=EVENTS {
                    stream.event(1, n, &[], &n.to_ne_bytes()).unwrap();
                }
                stream.finish().unwrap();
            }
        }
        let roots = [directory.path().to_owned()];
        let mut reader = Reader::open(&roots, Selection::default()).unwrap();
        let classes = &reader.traces[0].metadata.classes;
        assert_eq!(Arc::strong_count(classes), TRACES as usize);
        let all = u64::from(TRACES * STREAMS) * EVENTS;
        // By then, all streams are being read.
        for n in 0..all / 2 {
            assert!(matches!(reader.next(), Some(Item::Event(_))), "{n}");
        }
        let memory = memory(&reader);
        assert!((MEMORY / 4..=MEMORY).contains(&memory), "{memory}");
    }

    /// Streams that follow each other need the memory of one.
    ///
    /// Requirements: E8
    #[test]
    fn memory_does_not_grow_with_streams_and_packets() {
        let directory = tempfile::tempdir().unwrap();
        let trace = trace(directory.path(), 1);
        let (channel, mut events) = (StreamChannel::new("main", 1), 0u64);
        for n in 0..50 {
            let mut stream = trace.stream(&channel, StreamOwner::Cpu(n)).unwrap();
            for _ in 0..5 {
                for _ in 0..3000 {
                    events += 1;
                    stream.event(1, events, &[], &events.to_ne_bytes()).unwrap();
                }
                stream.flush().unwrap();
            }
        }
        let roots = [directory.path().to_owned()];
        let mut reader = Reader::open(&roots, Selection::default()).unwrap();
        let (mut count, mut most) = (0u64, 0);
        loop {
            match reader.next() {
                None => break,
                Some(Item::Event(event)) => {
                    count += 1;
                    assert_eq!(event.payload, count.to_ne_bytes());
                }
                Some(other) => panic!("{other:?}"),
            }
            if count.is_multiple_of(1000) {
                most = most.max(memory(&reader));
            }
        }
        assert_eq!(count, events);
        assert!((1..2 * MAX_CHUNK).contains(&most), "{most}");
    }
}
