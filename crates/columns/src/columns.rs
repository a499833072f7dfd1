//! The tables of an export.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use ahash::RandomState;
use usertrace_reader::{Event, Field, Lost, Trace, Value, Values};

use crate::ColumnsError;
use crate::destination::Destination;
use crate::files::{FileLimits, Files, Partition};
use crate::origin::Origin;
use crate::rows::Rows;
use crate::schema::{self, Column, Layout, Place, Raw};
use crate::time::day;

/// The table of losses. No event has this name, as it has no provider.
const LOST: &str = "lost";

/// Groups of rows that wait for the thread that writes them.
const WAITING: usize = 1;

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
            group_bytes: 16 << 20,
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
    layout: Layout,
    columns: Arc<[Column]>,
    /// Fields whose text was not UTF-8.
    raw: Raw,
    has_text: bool,
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
    /// By trace, class of streams, and id. Each event is looked up.
    class_indices: HashMap<(usize, u32, u16), usize, RandomState>,
    /// Sets of columns that some event has, each once.
    known: HashSet<Arc<[Column]>>,
    hosts: HashSet<Arc<str>>,
    of_losses: Arc<[Column]>,
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
}

impl Writer {
    fn start(mut files: Files) -> io::Result<Self> {
        let (groups, received): (_, Receiver<Group>) = sync_channel(WAITING);
        let write = move || {
            for (partition, rows) in received {
                files.write(&partition, rows)?;
            }
            files.finish()
        };
        let thread = thread::Builder::new().name("columns".to_owned());
        Ok(Self {
            groups: Some(groups),
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
            class_indices: HashMap::default(),
            known: HashSet::new(),
            hosts: HashSet::new(),
            of_losses: schema::of_losses().into(),
            tables: Vec::new(),
            table_indices: HashMap::new(),
            free: Vec::new(),
            numbers: 0,
            bytes: 0,
            events: 0,
            losses: 0,
        })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// A file cannot be written. The export cannot go on.
    pub fn event(&mut self, event: &Event<'_>) -> Result<(), ColumnsError> {
        let class = self.class(event);
        if self.classes[class].has_text {
            self.make_room_for_bytes(class, event);
        }
        let table = self.table_of(class, day(event.ns));
        let class = &self.classes[class];
        if let Some(Some(table)) = self.tables.get_mut(table) {
            let before = table.rows.bytes();
            table.rows.event(&class.layout, &class.origin, event);
            self.bytes += table.rows.bytes() - before;
        }
        self.events += 1;
        self.write_groups(table)
    }

    /// Adds a loss.
    ///
    /// # Errors
    /// As for [`event`](Self::event).
    pub fn lost(&mut self, lost: &Lost, trace: &Trace) -> Result<(), ColumnsError> {
        let partition = Partition {
            host: host(&mut self.hosts, trace),
            day: day(lost.end),
            event: LOST.into(),
            columns: Arc::clone(&self.of_losses),
        };
        let table = self.table(partition);
        if let Some(Some(table)) = self.tables.get_mut(table) {
            let before = table.rows.bytes();
            table
                .rows
                .lost(&Arc::new(Origin::of(trace, LOST, None)), lost);
            self.bytes += table.rows.bytes() - before;
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

    fn class(&mut self, event: &Event<'_>) -> usize {
        let key = (event.trace.number(), event.stream.id, event.class.id);
        if let Some(&index) = self.class_indices.get(&key) {
            return index;
        }
        let raw = Raw::default();
        let layout = Layout::of(event, &raw);
        let places = layout.contexts.iter().chain(&layout.fields);
        self.classes.push(Class {
            columns: shared(&mut self.known, &layout.columns),
            has_text: places
                .into_iter()
                .any(|place| matches!(place, Place::Text { .. })),
            layout,
            raw,
            host: host(&mut self.hosts, event.trace),
            event: event.class.name.as_str().into(),
            origin: Arc::new(Origin::of(
                event.trace,
                &event.class.name,
                event.class.loglevel,
            )),
            table: None,
        });
        self.class_indices.insert(key, self.classes.len() - 1);
        self.classes.len() - 1
    }

    /// Adds columns for the bytes of texts that are not UTF-8, if this event has the first such
    /// texts of its class. Its rows get into another file then.
    fn make_room_for_bytes(&mut self, class: usize, event: &Event<'_>) {
        let class = &mut self.classes[class];
        let contexts = event.stream.contexts.as_deref().unwrap_or_default();
        let of_contexts = note_raw(
            &mut class.raw.contexts,
            &class.layout.contexts,
            contexts,
            event.contexts,
        );
        let of_fields = note_raw(
            &mut class.raw.fields,
            &class.layout.fields,
            &event.class.fields,
            event.payload,
        );
        if of_contexts || of_fields {
            class.layout = Layout::of(event, &class.raw);
            class.columns = shared(&mut self.known, &class.layout.columns);
            class.table = None;
        }
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
            columns: Arc::clone(&of.columns),
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
        let rows = Rows::new(&partition.columns);
        self.bytes += rows.bytes();
        self.numbers += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.tables.push(None);
            self.tables.len() - 1
        });
        self.table_indices.insert(Arc::clone(&partition), index);
        self.tables[index] = Some(Table {
            partition,
            rows,
            number: self.numbers,
        });
        index
    }

    /// Writes the rows of a table if they are a group, and of the largest tables if all rows take
    /// too much memory.
    fn write_groups(&mut self, table: usize) -> Result<(), ColumnsError> {
        if let Some(Some(Table { rows, .. })) = self.tables.get(table)
            && (rows.len() >= self.limits.rows || rows.bytes() >= self.limits.group_bytes)
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

/// Adds the fields whose text is not UTF-8, and that have no column for such text. Returns whether
/// there are any.
fn note_raw(raw: &mut Vec<usize>, places: &[Place], fields: &[Field], bytes: &[u8]) -> bool {
    let before = raw.len();
    let values = places.iter().zip(Values::new(fields, bytes)).enumerate();
    for (n, (place, (_, value))) in values {
        if let (Place::Text { bytes: None, .. }, Value::Text(text)) = (place, value)
            && std::str::from_utf8(text).is_err()
        {
            raw.push(n);
        }
    }
    raw.len() > before
}

fn shared(known: &mut HashSet<Arc<[Column]>>, columns: &[Column]) -> Arc<[Column]> {
    if let Some(known) = known.get(columns) {
        return Arc::clone(known);
    }
    let columns: Arc<[Column]> = columns.into();
    known.insert(Arc::clone(&columns));
    columns
}

fn host(known: &mut HashSet<Arc<str>>, trace: &Trace) -> Option<Arc<str>> {
    let name = trace.metadata().env_text("hostname")?;
    if let Some(known) = known.get(name) {
        return Some(Arc::clone(known));
    }
    let name: Arc<str> = name.into();
    known.insert(Arc::clone(&name));
    Some(name)
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
