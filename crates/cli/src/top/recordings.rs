//! Counting the events of recordings, as they are written.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use usertrace_ctf::recording::without_chunk;
use usertrace_reader::{Item, LossKind, ReadError, Reader, Selection, Trace, is_going_on};

use super::{Amount, Counted, CountedEvent, Counter};

/// How often it is looked for new events.
const WAIT: Duration = Duration::from_millis(100);

/// How many events are taken between two looks at the clock.
const MANY: u32 = 4096;

/// In files, what stands before the fields of an event: id, and time.
const HEADER: u64 = 8;

/// Counts the events that are in directories, and that come there.
#[derive(Debug)]
pub struct Recordings {
    reader: Reader,
    directories: Vec<PathBuf>,
    /// By their numbers.
    processes: BTreeMap<usize, Process>,
    was_recorded: bool,
    /// So often nobody was seen who writes.
    idle: u32,
    /// What there was at first has been read.
    is_current: bool,
    /// All that there was has been read.
    is_read: bool,
    problems: Vec<String>,
}

#[derive(Debug, Default)]
struct Process {
    /// Where its trace is, or those in the chunks of its recording.
    source: String,
    pid: u32,
    comm: String,
    /// By name: events, and bytes.
    events: Vec<(String, u64, u64)>,
    places: HashMap<String, usize>,
    lost: u64,
}

impl Recordings {
    /// All traces in these directories, or below them. There may be none yet.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn new(directories: &[PathBuf]) -> Result<Self, ReadError> {
        Ok(Self {
            reader: Reader::follow(directories, Selection::default())?,
            directories: directories.to_owned(),
            processes: BTreeMap::new(),
            was_recorded: false,
            idle: 0,
            is_current: false,
            is_read: false,
            problems: Vec::new(),
        })
    }

    /// Takes what there is, until about `until`. True: all of it.
    fn take(&mut self, until: Instant) -> bool {
        let Self {
            reader,
            processes,
            problems,
            ..
        } = self;
        // Where traces and classes are, and so who they are, changes only when it is looked for new
        // ones.
        let mut known: HashMap<[usize; 2], (usize, usize)> = HashMap::new();
        let mut count = 0;
        loop {
            match reader.next() {
                None => return true,
                Some(Item::Event(event)) => {
                    let at = [
                        std::ptr::from_ref(event.trace).addr(),
                        std::ptr::from_ref(event.class).addr(),
                    ];
                    let (number, place) = known.entry(at).or_insert_with(|| {
                        let process = process(processes, event.trace);
                        (event.trace.process(), process.place(&event.class.name))
                    });
                    if let Some(process) = processes.get_mut(number) {
                        let (_, events, bytes) = &mut process.events[*place];
                        *events += 1;
                        *bytes += HEADER + (event.contexts.len() + event.payload.len()) as u64;
                    }
                }
                Some(Item::Lost(lost)) => {
                    // Of packets nobody knows how many events they had.
                    if let (LossKind::Events(n), Some(trace)) =
                        (lost.kind, reader.traces().get(lost.trace))
                    {
                        let process = process(processes, trace);
                        process.lost = process.lost.saturating_add(n);
                    }
                }
                Some(Item::Error(error)) => problems.push(error.to_string()),
            }
            count += 1;
            if count % MANY == 0 && Instant::now() >= until {
                return false;
            }
        }
    }
}

/// The process that a trace is of.
fn process<'a>(processes: &'a mut BTreeMap<usize, Process>, trace: &Trace) -> &'a mut Process {
    processes
        .entry(trace.process())
        .or_insert_with(|| Process::new(trace))
}

impl Process {
    fn new(trace: &Trace) -> Self {
        let metadata = trace.metadata();
        let pid = metadata.pid().and_then(|pid| u32::try_from(pid).ok());
        Self {
            source: without_chunk(trace.directory()).display().to_string(),
            pid: pid.unwrap_or_default(),
            comm: metadata.owner_name().unwrap_or("?").to_owned(),
            ..Self::default()
        }
    }

    fn place(&mut self, name: &str) -> usize {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        self.events.push((name.to_owned(), 0, 0));
        let place = self.events.len() - 1;
        self.places.insert(name.to_owned(), place);
        place
    }
}

impl Counter for Recordings {
    fn step(&mut self, until: Instant) -> Duration {
        if self.is_read {
            // What ends writes before it does: so it is looked for that first, and read then. The
            // daemons of the fallback write when their process has ended, so it is waited for once
            // more.
            self.idle = match is_going_on(&self.reader, &self.directories, &mut self.was_recorded) {
                true => 0,
                false => self.idle.saturating_add(1),
            };
            self.reader.refresh();
        }
        self.is_read = self.take(until);
        if !self.is_read {
            return Duration::ZERO;
        }
        WAIT
    }

    fn counted(&mut self) -> Vec<Counted> {
        let ended = self.has_ended();
        let backlog = !self.is_current;
        self.is_current |= self.is_read;
        let counted = |(number, process): (&usize, &Process)| {
            let mut events: Vec<_> = process.events.iter().collect();
            events.sort_unstable();
            let event = |(name, events, bytes): &(String, u64, u64)| {
                let all = |seen| Amount {
                    seen,
                    estimated: 0.0,
                };
                CountedEvent {
                    name: name.clone(),
                    events: all(*events),
                    bytes: all(*bytes),
                }
            };
            Counted {
                key: number.to_string(),
                source: process.source.clone(),
                pid: process.pid,
                comm: process.comm.clone(),
                ended,
                backlog,
                events: events.into_iter().map(event).collect(),
                lost: process.lost,
                fill: None,
            }
        };
        self.processes.iter().map(counted).collect()
    }

    fn problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    fn has_ended(&self) -> bool {
        self.idle >= 3 && self.is_read
    }
}
