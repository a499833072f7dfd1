//! Counts the events of one process of a trace.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use usertrace_ctf::kernel_name;
use usertrace_reader::{Binding, Condition, Field, ProcessOf, fields_of};
use usertrace_ring::schema::{Contexts, Description, EventTable, InChannel};
use usertrace_ring::{
    Format, Item, MetaLengths, Positions, RingMemory, RingReader, StallDetector, WaitPolicy,
};
use usertrace_sys::uapi::{LTT_FILE_DEAD, LttRingPositions};

use super::chosen::{Chosen, bindings};
use super::places::{SharedCode, Stacks};
use super::tables::Tables;
use super::{Amount, Counted, CountedEvent};
use usertrace_consumer::{CONTROL, ConsumerFile, ConsumerSource, FileRing};
use usertrace_symbols::append_stack_of;

/// Time between two steps: shortest when rings fill fast, and longest.
const WAIT: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(2)..=Duration::from_millis(25);

/// Length of a short record's header.
const HEADER: u64 = 8;

/// Counts of one event in one channel.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    events: Amount,
    bytes: Amount,
    /// Seen since estimates were last settled.
    new_events: u64,
    new_bytes: u64,
}

/// A channel of events, with a reader for each ring, or with tables.
#[derive(Debug)]
struct Channel<F> {
    source: ConsumerSource<F>,
    readers: Vec<RingReader>,
    stalls: Vec<StallDetector>,
    /// Events that the rings had lost when they were first seen.
    lost_before: u64,
    /// By event and call stack.
    tallies: HashMap<(u16, u32), Tally>,
    /// Of a channel that counts.
    tables: Option<Tables>,
    /// Chooses the events that count. `None` counts all.
    chosen: Option<Chosen>,
    /// Bytes that were read, and bytes that were skipped, since estimates were last settled.
    seen: u64,
    missed: u64,
    /// Bytes that were read before that.
    seen_before: u64,
    /// The last step ran out of time for this channel.
    late: bool,
}

/// Counts the events of a process from its files, without consuming any.
#[derive(Debug)]
pub struct ProcessCounter<F> {
    source: String,
    name: String,
    channels: Vec<Channel<F>>,
    control: Option<(ConsumerSource<F>, Vec<RingReader>)>,
    /// Limits the wait for an incomplete description.
    control_stall: StallDetector,
    events: EventTable,
    contexts: Vec<Contexts>,
    condition: Option<Condition>,
    /// The final counts, after the end.
    last: Option<Counted>,
    pid: u32,
    comm: String,
    /// Index of the channel that the next step begins with.
    turn: usize,
    /// If places are counted: what names them, and the process's number there.
    code: Option<(SharedCode, usize)>,
    stacks: Stacks,
}

impl<F: ConsumerFile> ProcessCounter<F> {
    /// A counter for the process whose files are called `name`, in the trace `source`.
    #[must_use]
    pub fn new(source: &str, name: &str) -> Self {
        Self {
            source: source.to_owned(),
            name: name.to_owned(),
            channels: Vec::new(),
            control: None,
            control_stall: StallDetector::default(),
            events: EventTable::default(),
            contexts: Vec::new(),
            condition: None,
            last: None,
            pid: 0,
            comm: String::new(),
            turn: 0,
            code: None,
            stacks: Stacks::default(),
        }
    }

    /// Counts only the events that fulfil this condition. Call it before [`add`](Self::add).
    #[must_use]
    pub fn with_condition(mut self, condition: Option<Condition>) -> Self {
        self.condition = condition;
        self
    }

    /// Counts the events of each place apart. Call it before [`add`](Self::add).
    #[must_use]
    pub fn with_code(mut self, code: Option<SharedCode>) -> Self {
        self.code = code.map(|code| {
            let number = code.borrow_mut().add_process();
            (code, number)
        });
        self
    }

    /// The bindings of a condition to all events that were described.
    pub(super) fn bindings(&self, condition: &Condition) -> Vec<Binding> {
        let channels = self.channels.iter();
        let of_channel = |channel: &Channel<F>| -> Vec<Binding> {
            let in_channel = channel.events(&self.events, &self.contexts);
            bindings(condition, channel.source.channel.scope(), &in_channel).collect()
        };
        channels.flat_map(of_channel).collect()
    }

    /// Whether the counter has the process's file in this channel, or needs none any more.
    #[must_use]
    pub fn has(&self, channel: &str) -> bool {
        let control = self.control.iter().map(|(source, _)| source);
        let mut sources = self
            .channels
            .iter()
            .map(|channel| &channel.source)
            .chain(control);
        self.last.is_some() || sources.any(|source| source.name == channel)
    }

    /// Whether the counter has a file of an event channel, which tells when the process ends.
    #[must_use]
    pub fn reads_events(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Adds the process's file in a channel. `from_now`: do not count what its rings hold already.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn add(&mut self, channel: &str, file: F, from_now: bool) -> io::Result<()> {
        let mut source = ConsumerSource::new(channel, file)?;
        source.update()?;
        let info = &source.info;
        (self.pid, self.comm) = (info.pid, kernel_name(&info.comm));
        let format = source.channel.format();
        let rings = source.positions.iter();
        if channel == CONTROL {
            let readers = rings.map(|_| RingReader::live(format, 0, u64::MAX));
            let readers = readers.collect();
            self.control = Some((source, readers));
            return Ok(());
        }
        let from = |ring: &LttRingPositions| if from_now { ring.head } else { 0 };
        // Tables have no events to read.
        let is_table = source.channel.table().is_some();
        let readers: Vec<_> = rings
            .filter(|_| !is_table)
            .map(|ring| RingReader::live(format, from(ring), u64::MAX))
            .collect();
        self.channels.push(Channel {
            lost_before: if from_now { source.lost() } else { 0 },
            stalls: vec![StallDetector::default(); readers.len()],
            readers,
            tallies: HashMap::new(),
            // A condition is about fields, which tables do not have.
            tables: (self.condition.is_none())
                .then(|| Tables::new(&source, from_now))
                .flatten(),
            chosen: (self.condition.clone())
                .map(|condition| Chosen::new(condition, source.channel.scope())),
            seen: 0,
            missed: 0,
            seen_before: 0,
            late: false,
            source,
        });
        Ok(())
    }

    /// Counts new events, until about `until`. Returns the time until the next step is needed.
    ///
    /// # Errors
    /// When the files can no longer be read.
    pub fn step(&mut self, until: Instant) -> io::Result<Duration> {
        if self.last.is_some() {
            return Ok(*WAIT.end());
        }
        let mut dead = self.update()?;
        if dead {
            // Positions read after the process was found dead are final.
            dead = self.update()?;
        }
        if !self.describe(dead)? {
            return Ok(*WAIT.start());
        }
        let mut fill = 0;
        let (count, now) = (self.channels.len(), Instant::now());
        let mut in_time = true;
        for n in 0..count {
            let at = (self.turn + n) % count;
            let channel = &mut self.channels[at];
            let lengths = channel.events(&self.events, &self.contexts);
            let process = ProcessOf::Process(self.pid, &self.comm);
            let stacks = self.code.is_some().then_some(&mut self.stacks);
            fill = fill.max(channel.step(&lengths, process, stacks, dead, now, until));
            if channel.late && in_time {
                // The next step begins with this channel.
                (self.turn, in_time) = (at, false);
            }
        }
        if dead && in_time {
            // An open file keeps its buffers in the kernel, so release the files.
            self.close();
        }
        Ok(match fill {
            250.. => *WAIT.start(),
            62..250 => *WAIT.end() / 4,
            _ => *WAIT.end(),
        })
    }

    /// Ends counting: keeps the counts, and closes the files.
    pub fn close(&mut self) {
        if self.last.is_none() {
            let last = Counted {
                ended: true,
                fill: None,
                ..self.counted()
            };
            self.last = Some(last);
        }
        self.channels.clear();
        self.control = None;
    }

    /// Whether all events were counted, and no more will come.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.last.is_some()
    }

    /// Reads the positions of all event channels. True: the process is gone.
    fn update(&mut self) -> io::Result<bool> {
        let mut flags = 0;
        for channel in &mut self.channels {
            flags |= channel.source.update()?;
        }
        Ok(flags & LTT_FILE_DEAD != 0)
    }

    /// Reads descriptions. Call it after reading the events' positions: each event was described
    /// before it was written. False: a description is incomplete, so wait for it.
    fn describe(&mut self, dead: bool) -> io::Result<bool> {
        let Some((source, readers)) = &mut self.control else {
            return Ok(false);
        };
        source.update()?;
        let (events, contexts) = (&mut self.events, &mut self.contexts);
        let (code, stacks) = (&self.code, &mut self.stacks);
        let policy = if dead {
            WaitPolicy::Last
        } else {
            WaitPolicy::Wait
        };
        let mut waits = 0;
        for (n, reader) in readers.iter_mut().enumerate() {
            let head = source.positions[n].head;
            let mut memory = source.ring(n);
            let take = &mut |item: Item<'_>| {
                if let Item::Record { payload, .. } = item {
                    // A recorder reports invalid or contradictory descriptions; ignore them here.
                    match Description::parse(payload) {
                        Ok(Description::Event(event)) => drop(events.add(event)),
                        Ok(Description::Contexts(new)) => {
                            if !contexts.iter().any(|c: &Contexts| c.channel == new.channel) {
                                contexts.push(new);
                            }
                        }
                        Ok(Description::Module(change)) => {
                            if let Some((code, number)) = code {
                                stacks.change(&mut code.borrow_mut(), *number, &change);
                            }
                        }
                        Ok(Description::Counting(_) | Description::Cmdline(_)) | Err(_) => {}
                    }
                }
                Ok::<_, std::convert::Infallible>(())
            };
            let Ok(()) = reader.read(&mut memory, head, policy, &MetaLengths, take);
            if reader.position() < head {
                waits += reader.position() + 1;
            }
        }
        let now = Instant::now();
        Ok(dead || waits == 0 || self.control_stall.has_timed_out(waits, true, now))
    }

    /// The counts so far. This settles estimates.
    pub fn counted(&mut self) -> Counted {
        if let Some(last) = &self.last {
            return last.clone();
        }
        if let Some((code, number)) = &self.code {
            self.stacks
                .name_all(&mut code.borrow_mut().resolver, *number);
        }
        let mut by_name: BTreeMap<(&str, Option<&str>), (Amount, Amount)> = BTreeMap::new();
        let (mut lost, mut fill) = (0u64, None);
        for channel in &mut self.channels {
            channel.settle();
            let now = channel.source.lost();
            lost = lost.saturating_add(now.saturating_sub(channel.lost_before));
            fill = fill.max(Some(channel.fill()));
            for (&(id, stack), tally) in &channel.tallies {
                // Copies of an event in several libraries have different ids and the same name.
                let name = self.events.get(id).map_or("?", |event| &event.name);
                let place = self.stacks.name(stack).map(|place| &**place);
                let (events, bytes) = by_name.entry((name, place)).or_default();
                (*events, *bytes) = (events.plus(tally.events), bytes.plus(tally.bytes));
            }
            let tables = channel.tables.iter();
            for (id, count) in tables.flat_map(|tables| tables.counts(&channel.source)) {
                let event = id.and_then(|id| self.events.get(id));
                let (events, _) = by_name
                    .entry((event.map_or("?", |event| &event.name), None))
                    .or_default();
                events.seen = events.seen.saturating_add(count);
            }
        }
        let event = |((name, place), (events, bytes)): ((&str, Option<&str>), _)| CountedEvent {
            name: name.to_owned(),
            place: place.map(str::to_owned),
            events,
            bytes,
        };
        Counted {
            key: format!("{}/{}", self.source, self.name),
            source: self.source.clone(),
            pid: self.pid,
            comm: self.comm.clone(),
            ended: false,
            backlog: false,
            events: by_name.into_iter().map(event).collect(),
            lost,
            fill,
        }
    }
}

impl<F: ConsumerFile> Channel<F> {
    /// The events of the process, with the contexts of this channel.
    fn events<'a>(&self, events: &'a EventTable, contexts: &'a [Contexts]) -> InChannel<'a> {
        let index = self.source.info.channel_index;
        InChannel {
            events,
            contexts: contexts.iter().find(|contexts| contexts.channel == index),
        }
    }

    /// Reads all rings until `until`. Returns the fill level of the ring with most to read, in
    /// 1/1000.
    fn step(
        &mut self,
        lengths: &InChannel<'_>,
        process: ProcessOf<'_>,
        mut stacks: Option<&mut Stacks>,
        dead: bool,
        now: Instant,
        until: Instant,
    ) -> u64 {
        let format = self.source.channel.format();
        let ring_size = format.geometry.ring_size();
        let was_late = std::mem::take(&mut self.late);
        let mut fill = 0;
        let contexts: Vec<Field> = match (&stacks, lengths.contexts) {
            (Some(_), Some(contexts)) => fields_of(&contexts.fields),
            _ => Vec::new(),
        };
        for n in 0..self.readers.len() {
            let head = self.source.positions[n].head;
            let reader = &mut self.readers[n];
            let from = reader.position();
            let waiting = head.saturating_sub(from);
            fill = fill.max(waiting.min(ring_size) * 1000 / ring_size);
            if waiting == 0 {
                continue;
            }
            if was_late && waiting > ring_size / 2 {
                // Programs write faster than this counter reads. Skip the backlog: what was read is
                // a sample.
                self.missed += waiting;
                *reader = RingReader::live(format, head, u64::MAX);
                continue;
            }
            if Instant::now() >= until {
                self.late = true;
                continue;
            }
            let policy = match dead {
                true => WaitPolicy::Last,
                false => self.stalls[n].policy(from, head, ring_size, now),
            };
            let mut memory = Watched::new(&self.source, n);
            let before = reader.counts();
            let (tallies, chosen) = (&mut self.tallies, &mut self.chosen);
            let mut counts_record = |id, payload: &[u8]| match chosen {
                Some(chosen) => chosen.has(id, payload, n as u32, lengths, process),
                None => true,
            };
            let take = &mut |item: Item<'_>| {
                if let Item::Record { id, payload, .. } = item
                    && counts_record(id, payload)
                {
                    let split = lengths.contexts.and_then(|of| of.split(payload));
                    let stack = match (&mut stacks, split) {
                        (Some(stacks), Some((bytes, _))) => {
                            stacks.number(|to| append_stack_of(&contexts, bytes, to))
                        }
                        _ => 0,
                    };
                    let tally = tallies.entry((id, stack)).or_default();
                    tally.new_events += 1;
                    tally.new_bytes += (payload.len() as u64).next_multiple_of(8) + HEADER;
                }
                Ok::<_, std::convert::Infallible>(())
            };
            let Ok(()) = reader.read(&mut memory, head, policy, lengths, take);
            let counts = reader.counts();
            let not_seen = (counts.overwritten_bytes - before.overwritten_bytes)
                + (counts.damaged_bytes - before.damaged_bytes);
            let passed = reader.position().saturating_sub(from);
            self.missed += not_seen.min(passed);
            self.seen += passed.saturating_sub(not_seen);
        }
        fill
    }

    /// Estimates the skipped events from those seen since the last call. If there were none, the
    /// estimate uses all that were ever seen: a writer that stops gives no newer sample.
    fn settle(&mut self) {
        self.seen_before += self.seen;
        let has_new = self.seen > 0;
        let sample = if has_new { self.seen } else { self.seen_before };
        let factor = self.missed as f64 / sample.max(1) as f64;
        for tally in self.tallies.values_mut() {
            let new = (
                std::mem::take(&mut tally.new_events),
                std::mem::take(&mut tally.new_bytes),
            );
            for (amount, new) in [(&mut tally.events, new.0), (&mut tally.bytes, new.1)] {
                amount.seen += new;
                let sampled = if has_new { new } else { amount.seen };
                amount.estimated += sampled as f64 * factor;
            }
        }
        if sample > 0 {
            (self.seen, self.missed) = (0, 0);
        }
    }

    /// Unconsumed part of the fullest ring, in 1/1000.
    fn fill(&self) -> u64 {
        if self.source.channel.table().is_some() {
            return 0;
        }
        let ring_size = self.source.channel.format().geometry.ring_size();
        let rings = self.source.positions.iter();
        let waiting = rings.map(|ring| ring.head.saturating_sub(ring.consumed).min(ring_size));
        waiting.max().unwrap_or(0) * 1000 / ring_size
    }
}

/// A ring that a recorder may be consuming at the same time.
///
/// Consumed data stays in the ring until a writer overwrites it, which is good enough for counting.
/// The reader checks the positions afterwards: after an overwrite, the head is a round further.
struct Watched<'a, F> {
    ring: FileRing<'a, F>,
    file: &'a F,
    format: Format,
    positions: Vec<LttRingPositions>,
}

impl<'a, F: ConsumerFile> Watched<'a, F> {
    fn new(source: &'a ConsumerSource<F>, ring: usize) -> Self {
        Self {
            ring: source.ring(ring),
            file: &source.file,
            format: source.channel.format(),
            positions: vec![LttRingPositions::default(); ring + 1],
        }
    }
}

impl<F: ConsumerFile> RingMemory for Watched<'_, F> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        self.ring.read(offset, buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        self.ring.load(offset)
    }

    fn positions(&mut self) -> Positions {
        // Order the copies before the kernel reads the positions.
        fence(Ordering::SeqCst);
        let read = self.file.positions(&mut self.positions);
        let ring = match (read, self.positions.last()) {
            (Ok(_), Some(ring)) => *ring,
            // The next use of the file reports the error. Until then, treat everything in the ring
            // as overwritten.
            _ => {
                return Positions {
                    head: u64::MAX,
                    claimed: u64::MAX,
                };
            }
        };
        Positions {
            head: ring.head,
            claimed: ring
                .claimed
                .max(ring.consumed.min(self.unclaimed_limit(ring.head))),
        }
    }
}

impl<F: ConsumerFile> Watched<'_, F> {
    /// Position up to which a writer may be overwriting without having claimed it. A writer that
    /// leaves the sub-buffer of `head` stores the next one's header before it moves the head.
    fn unclaimed_limit(&self, head: u64) -> u64 {
        let geometry = self.format.geometry;
        let newest = geometry.subbuf_start(head.saturating_sub(1));
        let next = newest.saturating_add(2 * geometry.subbuf_size());
        next.saturating_sub(geometry.ring_size())
    }
}
