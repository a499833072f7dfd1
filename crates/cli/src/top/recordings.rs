//! Counts the events of recordings while they are written.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use usertrace_ctf::is_module_event;
use usertrace_ctf::recording::without_chunk;
use usertrace_reader::{
    Binding, Condition, Item, LossKind, ReadError, Reader, Selection, Trace, is_going_on,
};

use usertrace_symbols::{Options, append_stack};

use super::places::{Code, Stacks};
use super::{Amount, Counted, CountedEvent, Counter};

/// Time between two checks for new events.
const WAIT: Duration = Duration::from_millis(100);

/// Events between two reads of the clock.
const CLOCK_INTERVAL: u32 = 4096;

/// Bytes in front of an event's fields in a file: id and time.
const HEADER: u64 = 8;

/// Counts the events of traces in directories, and those that are added.
#[derive(Debug)]
pub struct Recordings {
    reader: Reader,
    directories: Vec<PathBuf>,
    /// Processes by the reader's numbers.
    processes: BTreeMap<usize, Process>,
    was_recorded: bool,
    /// Successive checks without a writer.
    idle: u32,
    /// Everything that was there at first has been read, and reported as backlog.
    is_current: bool,
    /// The last step read everything.
    is_read: bool,
    problems: Vec<String>,
    /// If places are counted.
    code: Option<Code>,
}

#[derive(Debug, Default)]
struct Process {
    /// Directory of its trace, without the chunk.
    source: String,
    pid: u32,
    comm: String,
    /// Name, number of events, and bytes, of each call stack.
    events: Vec<(String, u32, u64, u64)>,
    /// Index into `events` by name and stack.
    indices: HashMap<(String, u32), usize>,
    stacks: Stacks,
    lost: u64,
}

impl Recordings {
    /// Counts the events of all traces in or below these directories. With a condition, only events
    /// that fulfil it count. With `places`, the events of each place count apart; it says where
    /// symbols are. There may be no traces yet.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn new(
        directories: &[PathBuf],
        condition: Option<Condition>,
        places: Option<Options>,
    ) -> Result<Self, ReadError> {
        let selection = Selection {
            condition,
            modules: places.is_some(),
            ..Selection::default()
        };
        Ok(Self {
            reader: Reader::follow(directories, selection)?,
            directories: directories.to_owned(),
            processes: BTreeMap::new(),
            was_recorded: false,
            idle: 0,
            is_current: false,
            is_read: false,
            problems: Vec::new(),
            code: places.map(Code::new),
        })
    }

    /// Counts available events, until about `until`. True: all of them.
    fn take(&mut self, until: Instant) -> bool {
        let Self {
            reader,
            processes,
            problems,
            code,
            ..
        } = self;
        // The addresses of traces and classes identify them: they change only in `refresh`.
        let mut known: HashMap<([usize; 2], u32), (usize, usize)> = HashMap::new();
        let mut count = 0;
        loop {
            match reader.next() {
                None => return true,
                Some(Item::Event(event)) if is_module_event(&event.class.name) => {
                    if let Some(code) = code {
                        let number = event.trace.process();
                        if let Some(process) = processes.get_mut(&number) {
                            process.stacks.name_all(&mut code.resolver, number);
                            process.stacks.forget();
                        }
                        code.resolver.note(&event);
                    }
                }
                Some(Item::Event(event)) => {
                    let stack = match code {
                        Some(_) => {
                            let stacks = &mut process(processes, event.trace).stacks;
                            stacks.number(|to| append_stack(&event, to))
                        }
                        None => 0,
                    };
                    let at = [
                        std::ptr::from_ref(event.trace).addr(),
                        std::ptr::from_ref(event.class).addr(),
                    ];
                    let (number, index) = known.entry((at, stack)).or_insert_with(|| {
                        let process = process(processes, event.trace);
                        (
                            event.trace.process(),
                            process.index(&event.class.name, stack),
                        )
                    });
                    if let Some(process) = processes.get_mut(number) {
                        let (.., events, bytes) = &mut process.events[*index];
                        *events += 1;
                        *bytes += HEADER + (event.contexts.len() + event.payload.len()) as u64;
                    }
                }
                Some(Item::Lost(lost)) => {
                    // The number of events in lost packets is unknown.
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
            if count % CLOCK_INTERVAL == 0 && Instant::now() >= until {
                return false;
            }
        }
    }
}

/// The process of a trace.
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

    fn index(&mut self, name: &str, stack: u32) -> usize {
        let events = &mut self.events;
        let index = self.indices.entry((name.to_owned(), stack));
        *index.or_insert_with(|| {
            events.push((name.to_owned(), stack, 0, 0));
            events.len() - 1
        })
    }

    /// Name, place, events and bytes, in this order.
    fn events(&self) -> BTreeMap<(&str, Option<&str>), (u64, u64)> {
        let mut sums = BTreeMap::new();
        for (name, stack, events, bytes) in &self.events {
            let place = self.stacks.name(*stack).map(|place| &**place);
            let (all_events, all_bytes) = sums.entry((&name[..], place)).or_default();
            *all_events += events;
            *all_bytes += bytes;
        }
        sums
    }
}

impl Counter for Recordings {
    fn step(&mut self, until: Instant) -> Duration {
        if self.is_read {
            // Check for writers before the next read: a writer that ends has written everything by
            // then. The fallback's daemons write after their process has ended, so `has_ended`
            // waits for three checks without a writer.
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
        if let Some(code) = &mut self.code {
            for (number, process) in &mut self.processes {
                process.stacks.name_all(&mut code.resolver, *number);
            }
            self.problems.extend(code.resolver.symbols.take_messages());
        }
        let counted = |(number, process): (&usize, &Process)| {
            let event = |((name, place), (events, bytes)): ((&str, Option<&str>), (u64, u64))| {
                let all = |seen| Amount {
                    seen,
                    estimated: 0.0,
                };
                CountedEvent {
                    name: name.to_owned(),
                    place: place.map(str::to_owned),
                    events: all(events),
                    bytes: all(bytes),
                }
            };
            Counted {
                key: number.to_string(),
                source: process.source.clone(),
                pid: process.pid,
                comm: process.comm.clone(),
                ended,
                backlog,
                events: process.events().into_iter().map(event).collect(),
                lost: process.lost,
                fill: None,
            }
        };
        self.processes.iter().map(counted).collect()
    }

    fn problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    fn bindings(&self, _: &Condition) -> Vec<Binding> {
        self.reader.bindings().cloned().collect()
    }

    fn has_ended(&self) -> bool {
        self.idle >= 3 && self.is_read
    }
}
