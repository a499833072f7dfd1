//! The tables of an export.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use ahash::RandomState;
use usertrace_reader::{Event, Lost, Trace};
use usertrace_symbols::NamedField;

use crate::ColumnsError;
use crate::destination::Destination;
use crate::fields::Fields;
use crate::files::{FileLimits, Files, Partition};
use crate::origin::Origin;
use crate::rows::Rows;
use crate::schema::{Layout, Raw};
use crate::shape::Shape;
use crate::time::day;

/// The table of losses. No event has this name, as it has no provider.
const LOST: &str = "lost";

/// Groups of rows that wait for the thread that writes them.
const WAITING: usize = 1;

/// Rows without events whose memory is kept.
const SPARE: usize = 1;

/// Tables that get such memory: it is not counted, and a table that gets few rows would hold it.
const FEW: usize = 4;

/// Ids of events that are found without a hash. A trace may have any ids, and there may be many
/// traces, so the others must not take memory for the ids below them.
const LOW_IDS: usize = 1024;

/// What an export may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of a group.
    pub rows: usize,
    /// Bytes of a group in memory.
    pub group_bytes: usize,
    /// Bytes of all rows in memory that wait for more of their group.
    pub bytes: usize,
    /// Files that are open at a time.
    pub open_files: usize,
    /// Bytes after which a file ends.
    pub file_bytes: usize,
    /// Groups after which a file ends.
    pub file_groups: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows: 1 << 17,
            group_bytes: 8 << 20,
            bytes: 64 << 20,
            open_files: 64,
            file_bytes: 1 << 30,
            file_groups: 1024,
        }
    }
}

/// What is known of a class of events in a trace and a class of streams.
#[derive(Debug)]
struct Class {
    shape: Arc<Shape>,
    host: Option<Arc<str>>,
    event: Arc<str>,
    origin: Arc<Origin>,
    /// The table of its last event: its day, index and number.
    table: Option<(i64, usize, u64)>,
}

/// Rows of a partition that wait in memory.
#[derive(Debug)]
struct Table {
    partition: Arc<Partition>,
    rows: Rows,
    number: u64,
}

/// A group of rows to write.
type Group = (Arc<Partition>, Rows);

/// The thread that encodes and writes rows.
#[derive(Debug)]
struct Writer {
    groups: Option<SyncSender<Group>>,
    /// Rows that were written and removed: their memory is used again.
    empty: Receiver<Rows>,
    thread: Option<JoinHandle<Result<u64, ColumnsError>>>,
}

/// Writes events and losses as tables.
#[derive(Debug)]
pub struct Columns {
    /// It comes before the destination, which is removed after the thread has ended.
    writer: Writer,
    destination: Destination,
    limits: Limits,
    classes: Vec<Class>,
    /// For traces and classes of streams, an index into `of_streams`.
    streams: HashMap<(usize, u32), usize, RandomState>,
    /// The trace, class of streams and index of the last event. The next one often has the same.
    last: Option<(usize, u32, usize)>,
    /// For low ids, the index of the class plus 1; 0 for none. Each event is looked up.
    of_streams: Vec<Vec<u32>>,
    /// The indices of the classes with other ids, by stream and id.
    high: HashMap<(usize, u16), usize, RandomState>,
    /// The different fields of the events of each name.
    shapes: HashMap<Arc<str>, Vec<Arc<Shape>>>,
    /// Layouts that some event has, each once.
    layouts: HashSet<Arc<Layout>>,
    hosts: HashSet<Arc<str>>,
    /// The fields of losses, without and with a CPU.
    of_losses: [Arc<Shape>; 2],
    tables: Vec<Option<Table>>,
    /// The index of each table.
    table_indices: HashMap<Arc<Partition>, usize>,
    /// Indices that are free.
    free: Vec<usize>,
    /// Tables so far, of which each has another number.
    numbers: u64,
    /// Bytes of all rows in memory.
    bytes: usize,
    events: u64,
    losses: u64,
    names_code: bool,
}

impl Writer {
    fn start(mut files: Files) -> io::Result<Self> {
        let (groups, received): (_, Receiver<Group>) = sync_channel(WAITING);
        let (emptied, empty) = sync_channel(SPARE);
        let write = move || {
            for (partition, mut rows) in received {
                files.write(&partition, &rows)?;
                rows.clear();
                // With enough of them, their memory is freed.
                let _ = emptied.try_send(rows);
            }
            files.finish()
        };
        let thread = thread::Builder::new().name("columns".to_owned());
        Ok(Self {
            groups: Some(groups),
            empty,
            thread: Some(thread.spawn(write)?),
        })
    }

    fn write(&mut self, group: Group) -> Result<(), ColumnsError> {
        if let Some(groups) = &self.groups
            && groups.send(group).is_ok()
        {
            return Ok(());
        }
        // The thread has ended, because it failed.
        Err(self.finish().err().unwrap_or(ColumnsError::Ended))
    }

    /// Waits for the thread. Returns how many files it wrote.
    fn finish(&mut self) -> Result<u64, ColumnsError> {
        self.groups = None;
        let ended = self.thread.take().map(JoinHandle::join);
        ended
            .unwrap_or(Ok(Err(ColumnsError::Ended)))
            .unwrap_or(Err(ColumnsError::Ended))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After an error, nobody asks for the files.
        let _ = self.finish();
    }
}

impl Columns {
    /// Begins an export to a directory, in place of an earlier export that is there.
    ///
    /// # Errors
    /// Something else is in the directory, there can be no directory beside it, or no thread.
    pub fn new(directory: &Path, limits: Limits) -> Result<Self, ColumnsError> {
        Self::begin(Destination::new(directory)?, limits)
    }

    /// Begins an export to the directory `name` below `root`, which other exports may share:
    /// engines can read them all as one. What killed exports left in `root` is removed.
    ///
    /// # Errors
    /// As for [`new`](Self::new), and if there is no directory `root`.
    pub fn below(root: &Path, name: &Path, limits: Limits) -> Result<Self, ColumnsError> {
        Self::begin(Destination::below(root, name)?, limits)
    }

    fn begin(destination: Destination, limits: Limits) -> Result<Self, ColumnsError> {
        let of_files = FileLimits {
            open: limits.open_files,
            len: limits.file_bytes,
            groups: limits.file_groups,
        };
        let (root, shown) = (destination.new_files(), destination.named().to_owned());
        let writer = Writer::start(Files::new(root, shown, of_files));
        Ok(Self {
            writer: writer.map_err(ColumnsError::Thread)?,
            destination,
            limits,
            classes: Vec::new(),
            streams: HashMap::default(),
            last: None,
            of_streams: Vec::new(),
            high: HashMap::default(),
            shapes: HashMap::new(),
            layouts: HashSet::new(),
            hosts: HashSet::new(),
            of_losses: [false, true].map(|has_cpu| Arc::new(Shape::of_losses(has_cpu))),
            tables: Vec::new(),
            table_indices: HashMap::new(),
            free: Vec::new(),
            numbers: 0,
            bytes: 0,
            events: 0,
            losses: 0,
            names_code: false,
        })
    }

    /// Adds columns for functions, files and lines to all fields with code addresses. Must be
    /// called before the first event.
    pub fn name_code(&mut self) {
        self.names_code = true;
    }

    /// Adds an event.
    ///
    /// # Errors
    /// A file cannot be written. The export cannot go on.
    pub fn event(&mut self, event: &Event<'_>) -> Result<(), ColumnsError> {
        self.named_event(event, &[])
    }

    /// Adds an event with the functions at the addresses in it. They have columns after
    /// [`name_code`](Self::name_code).
    ///
    /// # Errors
    /// As for [`event`](Self::event).
    pub fn named_event(
        &mut self,
        event: &Event<'_>,
        named: &[NamedField<'_>],
    ) -> Result<(), ColumnsError> {
        let class = self.class(event);
        let table = self.table_of(class, day(event.ns));
        let class = &self.classes[class];
        if let Some(Some(table)) = self.tables.get_mut(table) {
            self.bytes += table.rows.event(&class.shape, &class.origin, event, named);
        }
        self.events += 1;
        self.write_groups(table)
    }

    /// Adds a loss.
    ///
    /// # Errors
    /// As for [`event`](Self::event).
    pub fn lost(&mut self, lost: &Lost, trace: &Trace) -> Result<(), ColumnsError> {
        let shape = Arc::clone(&self.of_losses[usize::from(lost.cpu.is_some())]);
        let partition = Partition {
            host: host(&mut self.hosts, trace),
            day: day(lost.end),
            event: LOST.into(),
            layout: Arc::clone(&shape.layout),
        };
        let table = self.table(partition);
        if let Some(Some(table)) = self.tables.get_mut(table) {
            let origin = Arc::new(Origin::of(trace, LOST, None));
            self.bytes += table.rows.lost(&shape, &origin, lost);
        }
        self.losses += 1;
        self.write_groups(table)
    }

    /// Completes the export: the directory is there afterwards.
    ///
    /// # Errors
    /// A file or the directory cannot be written.
    pub fn finish(mut self) -> Result<(), ColumnsError> {
        for index in 0..self.tables.len() {
            self.write(index)?;
        }
        let files = self.writer.finish()?;
        self.destination.publish(&format!(
            "{{\"format\":1,\"events\":{},\"losses\":{},\"files\":{files}}}\n",
            self.events, self.losses
        ))
    }

    /// The index of the class of an event.
    #[inline]
    fn class(&mut self, event: &Event<'_>) -> usize {
        let (trace, id) = (event.trace.number(), event.stream.id);
        let stream = match self.last {
            Some((last, of, stream)) if (last, of) == (trace, id) => stream,
            _ => self.stream(trace, id),
        };
        let id = event.class.id;
        let known = match self.of_streams[stream].get(usize::from(id)) {
            Some(known) => known.checked_sub(1).map(|class| class as usize),
            None if usize::from(id) < LOW_IDS => None,
            None => self.high.get(&(stream, id)).copied(),
        };
        known.unwrap_or_else(|| self.new_class(stream, event))
    }

    fn stream(&mut self, trace: usize, id: u32) -> usize {
        let next = self.of_streams.len();
        let index = *self.streams.entry((trace, id)).or_insert(next);
        if index == next {
            self.of_streams.push(Vec::new());
        }
        self.last = Some((trace, id, index));
        index
    }

    #[cold]
    fn new_class(&mut self, stream: usize, event: &Event<'_>) -> usize {
        let shape = self.shape(event);
        self.classes.push(Class {
            shape,
            host: host(&mut self.hosts, event.trace),
            event: event.class.name.as_str().into(),
            origin: Arc::new(Origin::of(
                event.trace,
                &event.class.name,
                event.class.loglevel,
            )),
            table: None,
        });
        let (index, id) = (self.classes.len() - 1, event.class.id);
        if usize::from(id) < LOW_IDS {
            let (of, id) = (&mut self.of_streams[stream], usize::from(id));
            of.resize(of.len().max(id + 1), 0);
            of[id] = index as u32 + 1;
        } else {
            self.high.insert((stream, id), index);
        }
        index
    }

    /// The fields of an event, and their columns.
    fn shape(&mut self, event: &Event<'_>) -> Arc<Shape> {
        let known = self.shapes.get(event.class.name.as_str());
        let mut known = known.into_iter().flatten();
        if let Some(shape) = known.find(|shape| shape.fields.are(event)) {
            return Arc::clone(shape);
        }
        let fields = Fields::of(event, self.names_code);
        let layout = Layout::of(&fields, &Raw::default());
        let layout = shared(&mut self.layouts, layout);
        let shape = Arc::new(Shape { fields, layout });
        let name = event.class.name.as_str().into();
        self.shapes
            .entry(name)
            .or_default()
            .push(Arc::clone(&shape));
        shape
    }

    /// The index of the table of a class.
    fn table_of(&mut self, class: usize, day: i64) -> usize {
        let of = &self.classes[class];
        if let Some((of_day, index, number)) = of.table
            && of_day == day
            && let Some(Some(table)) = self.tables.get(index)
            && table.number == number
        {
            return index;
        }
        let partition = Partition {
            host: of.host.clone(),
            day,
            event: Arc::clone(&of.event),
            layout: Arc::clone(&of.shape.layout),
        };
        let index = self.table(partition);
        let number = self.tables[index].as_ref().map(|table| table.number);
        self.classes[class].table = number.map(|number| (day, index, number));
        index
    }

    /// The index of the table of a partition.
    fn table(&mut self, partition: Partition) -> usize {
        if let Some(&index) = self.table_indices.get(&partition) {
            return index;
        }
        let partition = Arc::new(partition);
        self.numbers += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.tables.push(None);
            self.tables.len() - 1
        });
        let spare = || self.writer.empty.try_recv().ok();
        let rows = (self.table_indices.len() < FEW).then(spare).flatten();
        self.table_indices.insert(Arc::clone(&partition), index);
        self.tables[index] = Some(Table {
            partition,
            rows: rows.unwrap_or_default(),
            number: self.numbers,
        });
        index
    }

    /// Writes the rows of a table if they are a group, and of the largest tables if all rows take
    /// too much memory.
    fn write_groups(&mut self, table: usize) -> Result<(), ColumnsError> {
        if let Some(Some(Table { rows, .. })) = self.tables.get(table)
            && (rows.len() >= self.limits.rows
                || rows.bytes() >= self.limits.group_bytes.min(Rows::MOST))
        {
            self.write(table)?;
        }
        if self.bytes <= self.limits.bytes {
            return Ok(());
        }
        let tables = self.tables.iter().enumerate();
        let mut by_size: Vec<_> = tables
            .filter_map(|(index, table)| Some((table.as_ref()?.rows.bytes(), index)))
            .collect();
        by_size.sort_unstable_by(|a, b| b.cmp(a));
        for (_, index) in by_size {
            if self.bytes <= self.limits.bytes / 4 * 3 {
                break;
            }
            self.write(index)?;
        }
        Ok(())
    }

    /// Writes all rows of a table, which ends with that.
    fn write(&mut self, index: usize) -> Result<(), ColumnsError> {
        let Some(table) = self.tables.get_mut(index).and_then(Option::take) else {
            return Ok(());
        };
        self.free.push(index);
        self.table_indices.remove(&table.partition);
        self.bytes -= table.rows.bytes();
        if table.rows.len() == 0 {
            return Ok(());
        }
        self.writer.write((table.partition, table.rows))
    }
}

/// The value that is known already, or else this one, which is known from now on.
fn shared<T>(known: &mut HashSet<Arc<T>>, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T>
where
    T: Eq + Hash + ?Sized,
{
    if let Some(known) = known.get(value.borrow()) {
        return Arc::clone(known);
    }
    let value = value.into();
    known.insert(Arc::clone(&value));
    value
}

fn host(known: &mut HashSet<Arc<str>>, trace: &Trace) -> Option<Arc<str>> {
    let name = trace.metadata().env_text("hostname")?;
    Some(shared(known, name))
}

#[cfg(test)]
mod tests {
    use usertrace_ctf::{StreamChannel, StreamOwner, TraceWriter};
    use usertrace_reader::{Item, Reader, Selection};
    use usertrace_sys::Scope;
    use usertrace_testing::processes::{clock, event, info};

    use super::*;

    /// Requirements: E8
    #[test]
    fn memory_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let traces = directory.path().join("traces");
        let of = info("prog", 7, None);
        let mut trace = TraceWriter::create(&traces, of, clock(1_000_000_000)).unwrap();
        trace.declare_class(Scope::Cpu).unwrap();
        for id in 1..=200 {
            let line = format!("{id} t:e{id} 6 str s;u16[] list");
            trace.declare(&event(&line)).unwrap();
        }
        let channel = StreamChannel::new("main", 1);
        let mut stream = trace.stream(&channel, StreamOwner::Cpu(0)).unwrap();
        for n in 0..4000u64 {
            let mut payload = format!("text {n}\0").into_bytes();
            payload.extend(500u32.to_ne_bytes());
            payload.extend([7; 1000]);
            let id = 1 + (n * n % 200) as u16;
            stream.event(id, 1_000_000 + n, &[], &payload).unwrap();
        }
        stream.finish().unwrap();
        let mut reader = Reader::open(&[traces], Selection::default()).unwrap();
        let limits = Limits {
            bytes: 300_000,
            ..Limits::default()
        };
        let mut columns = Columns::new(&directory.path().join("to"), limits).unwrap();
        let mut most = 0;
        while let Some(Item::Event(event)) = reader.next() {
            columns.event(&event).unwrap();
            most = most.max(columns.bytes);
            let tables = columns.tables.iter().flatten();
            assert_eq!(
                columns.bytes,
                tables.map(|table| table.rows.bytes()).sum::<usize>()
            );
        }
        assert!((200_000..=300_000).contains(&most), "{most}");
        columns.finish().unwrap();
    }
}
