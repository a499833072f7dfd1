//! Writes the events in one process's rings to its trace.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use usertrace_ctf::recording::{TraceLocation, add_failure, add_summary};
use usertrace_ctf::unfinished::Unfinished;
use usertrace_ctf::{Identity, ProcessWriter, new_uuid};
use usertrace_os::procfs::has_ended;
use usertrace_ring::{
    Channel, Positions, RingMemory, RingReader, SharedBytes, StallDetector, WaitPolicy,
};
use usertrace_sys::uapi::{LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN};
use usertrace_sys::{Mode, Scope};

use super::clock::TraceClock;
use super::destination::Output;
use super::journal::{Checkpoint, SlotJournal, Trace};
use super::layout::CHANNELS;
use super::namespace;
use super::place::{ChunkLock, Places, recreate};
use super::pool::{Pool, RingControl};
use crate::os::{futex, thread};

/// Shortest time for a measurement of the clock's frequency, for an error of 1/100000.
const MEASURED_NS: u64 = 10_000_000;

/// How far ahead of a writer the worker populates pages.
const AHEAD: u64 = 512 << 10;
/// Bytes to populate at a time.
const STRETCH: u64 = 64 << 10;

/// How often to look for the place of a new trace, if that changes meanwhile.
const LOOKS: u32 = 100;

/// How far to read the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Until {
    /// Only rings in which a sub-buffer was filled.
    Filled,
    /// Everything that is committed (D4: ACTIVE).
    Now,
    /// Likewise, and what is counted.
    Request,
    /// Everything that there will ever be (D4: FLUSH).
    End,
}

/// What stayed in the rings when they were read, though it was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unread {
    /// Nothing.
    Nothing,
    /// A record that its writer may still complete, and what follows it in its ring.
    Incomplete,
    /// Complete records.
    Complete,
}

/// The result of reading rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Drained {
    /// There was nothing to read.
    Nothing,
    /// There is a record that its writer may still complete, and nothing else.
    Waits,
    /// Something was read.
    Some,
}

/// The rings and the trace of one process.
pub(super) struct Recording<'a> {
    pool: Pool,
    slot: usize,
    output: &'a Output,
    clock: &'a TraceClock,
    identity: Identity,
    /// Whether the process is in the PID namespace of the worker, so that ids of its threads are
    /// valid here.
    knows_threads: bool,
    channel: Channel,
    /// The channels that count, with their indexes.
    tables: Vec<(usize, Channel)>,
    writer: Option<ProcessWriter>,
    /// The mark of an unfinished trace, once it is begun.
    mark: Option<Unfinished>,
    /// Lock of the chunk with the trace.
    lock: Option<ChunkLock>,
    /// Whether a write failed. From then on the worker writes one sub-buffer after the other, so
    /// that a full disk gets as many as it has room for.
    is_careful: bool,
    /// What the last call of [`drain`](Self::drain) left in the rings.
    unread: Unread,
    /// Each ring's `head` at the last look.
    heads: Vec<u64>,
    /// The position in each ring up to which pages are populated.
    populated: Vec<u64>,
    /// How long reading has stalled, in the rings of events and in those of descriptions.
    stalls: Vec<StallDetector>,
    described: StallDetector,
}

/// A ring with something to read, as it was when the worker looked.
struct WantedRing {
    index: u32,
    head: u64,
    lost: u64,
    /// The thread that owned it and has ended; 0: none.
    owner: u32,
}

/// A ring in shared memory.
struct SharedRing {
    bytes: SharedBytes<'static>,
    control: RingControl,
}

impl RingMemory for SharedRing {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        self.bytes.read(offset, buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        self.bytes.load(offset)
    }

    fn positions(&mut self) -> Positions {
        // The copy happened before these loads: pairs with the writer's barrier between a claim, or
        // a reservation, and its stores there.
        fence(Ordering::Acquire);
        Positions {
            head: self.control.head().load(Ordering::Acquire),
            claimed: self.control.claimed().load(Ordering::Acquire),
        }
    }
}

impl<'a> Recording<'a> {
    pub(super) fn new(
        pool: Pool,
        slot: usize,
        output: &'a Output,
        clock: &'a TraceClock,
        hostname: Option<String>,
    ) -> io::Result<Self> {
        let entry = &pool.header().entries[slot];
        let pid = entry.process().map_or(0, |(pid, _)| pid);
        let namespace = entry.namespace();
        let outer = match namespace::candidates(pid, namespace)[..] {
            [outer] => outer,
            _ => pid,
        };
        let comm = entry.comm();
        let len = comm.iter().position(|&b| b == 0).unwrap_or(comm.len());
        let channel = |index| {
            Channel::new(&pool.layout().info_channel(index))
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        };
        let tables = (CHANNELS..pool.layout().nr_channels())
            .map(|index| Ok((index, channel(index)?)))
            .collect::<io::Result<Vec<_>>>()?;
        let channel = channel(LTT_CHANNEL_MAIN)?;
        let recording = Self {
            pool,
            slot,
            output,
            clock,
            identity: Identity {
                trace: "fast".to_owned(),
                comm: String::from_utf8_lossy(&comm[..len]).into_owned(),
                pid: outer,
                process: entry.start.load(Ordering::Relaxed),
                hostname,
            },
            knows_threads: namespace == 0,
            channel,
            tables,
            writer: None,
            mark: None,
            lock: None,
            is_careful: false,
            unread: Unread::Nothing,
            heads: vec![0; channel.nr_rings() as usize],
            populated: vec![0; channel.nr_rings() as usize],
            stalls: vec![StallDetector::default(); channel.nr_rings() as usize],
            described: StallDetector::default(),
        };
        if channel.mode() != Mode::Overwrite {
            // The last worker may have been killed between its checkpoint and its store of
            // `consumed`.
            for ring in 0..channel.nr_rings() {
                let position = pool.checkpoint(slot, ring).load().position;
                consume(recording.control(ring), position);
            }
        }
        Ok(recording)
    }

    fn control(&self, ring: u32) -> RingControl {
        self.pool.ring_control(self.slot, LTT_CHANNEL_MAIN, ring)
    }

    fn memory(&self, channel: usize, ring: u32) -> SharedRing {
        SharedRing {
            bytes: self.pool.ring(self.slot, channel, ring),
            control: self.pool.ring_control(self.slot, channel, ring),
        }
    }

    fn journal(&self) -> &'static SlotJournal {
        self.pool.slot_journal(self.slot)
    }

    /// What stayed in the rings when they were read last.
    pub(super) fn unread(&self) -> Unread {
        self.unread
    }

    /// Reads what there is to read. `places`: where a trace is begun.
    ///
    /// # Errors
    /// The trace cannot be written. Unwritten events stay in the rings, and the next call tries
    /// again.
    pub(super) fn drain(&mut self, until: Until, places: &mut Places<'_>) -> io::Result<Drained> {
        self.unread = Unread::Nothing;
        if until != Until::End {
            (0..self.channel.nr_rings()).for_each(|ring| self.populate_ahead(ring));
        }
        let done = if self.output.directory().is_none() {
            Ok(self.skip(until))
        } else if until != Until::End && self.is_elsewhere(places) {
            // A trace of a process that has ended is completed where it is.
            self.end_elsewhere(places)
        } else if until != Until::End && places.is_held() {
            if !self.wanted_rings(Until::Request).is_empty() {
                self.unread = Unread::Complete;
            }
            // Soon again: nobody tells when there is room.
            Ok(Drained::Waits)
        } else {
            self.write(until, places)
        };
        if done.is_err() {
            // The lengths of the files are unknown now. The checkpoints say where to cut them.
            self.writer = None;
            (self.is_careful, self.unread) = (true, Unread::Complete);
        }
        done
    }

    /// Whether the trace is in another place than the one for new traces.
    fn is_elsewhere(&self, places: &Places<'_>) -> bool {
        let trace = self.journal().trace();
        trace.is_some_and(|trace| trace.place != places.now())
    }

    /// Completes the trace in its old place, with all events so far that have room there. Later
    /// ones begin another trace.
    fn end_elsewhere(&mut self, places: &mut Places<'_>) -> io::Result<Drained> {
        let drained = self.write(Until::Request, places)?;
        // Not if `write` found the chunk gone, and has begun another trace.
        if self.is_elsewhere(places) {
            self.complete(false)?;
            self.journal().end();
        }
        Ok(drained.max(Drained::Waits))
    }

    /// Whether to write the rings on a request for all processes: not if the process runs and may
    /// overwrite them.
    pub(super) fn is_wanted(&self) -> bool {
        self.channel.mode() != Mode::Overwrite || has_ended(self.identity.pid)
    }

    /// Adds the CPUs on which events were written since the last call, if rings belong to CPUs.
    pub(super) fn look(&mut self, busy: &mut Vec<u32>) {
        if self.channel.scope() != Scope::Cpu {
            return;
        }
        for ring in 0..self.channel.nr_rings() {
            let head = self.control(ring).head().load(Ordering::Relaxed);
            if std::mem::replace(&mut self.heads[ring as usize], head) != head {
                busy.push(ring);
            }
        }
    }

    /// Populates pages ahead of the writer, in a ring of which a sub-buffer was filled. Otherwise
    /// the writer would stop for each page.
    fn populate_ahead(&mut self, ring: u32) {
        let geometry = self.channel.geometry();
        let populated = &mut self.populated[ring as usize];
        let head = || {
            self.pool
                .ring_control(self.slot, LTT_CHANNEL_MAIN, ring)
                .head()
                .load(Ordering::Relaxed)
        };
        while *populated < geometry.ring_size() {
            let head = head();
            // The program may have stored any `head` (A11).
            if head < geometry.subbuf_size() || head >= geometry.ring_size() {
                break;
            }
            let stretch = STRETCH
                .max(geometry.subbuf_size())
                .min(geometry.ring_size());
            // Not the next stretch: the writer may reach it first, which would delay both.
            let from = (*populated)
                .max(head.next_multiple_of(stretch) + stretch)
                .min(geometry.ring_size());
            if from >= head + AHEAD {
                break;
            }
            let to = (from + stretch).min(geometry.ring_size());
            self.pool
                .populate(self.slot, LTT_CHANNEL_MAIN, ring, from..to);
            *populated = to;
        }
    }

    /// Whether to read a ring with this `head`, which was read up to `position`.
    fn wants(&self, head: u64, position: u64, until: Until) -> bool {
        match until {
            // A ring that overwrites is read on request only.
            Until::Filled if self.channel.mode() == Mode::Overwrite => false,
            Until::Filled => {
                let geometry = self.channel.geometry();
                geometry.subbuf_start(head) > geometry.subbuf_start(position)
            }
            Until::Now | Until::Request | Until::End => head != position,
        }
    }

    /// The owner of a ring, if that is a thread that has ended; else 0.
    fn gone_owner(&self, control: RingControl) -> u32 {
        let owner = match self.channel.scope() {
            Scope::Thread if self.knows_threads => control.owner().load(Ordering::Relaxed),
            Scope::Thread | Scope::Cpu | Scope::MmCid | Scope::Global => 0,
        };
        if owner != 0 && !thread::may_exist(self.identity.pid, owner) {
            owner
        } else {
            0
        }
    }

    /// Consumes everything without reading it.
    fn skip(&self, until: Until) -> Drained {
        let mut drained = Drained::Nothing;
        for ring in 0..self.channel.nr_rings() {
            let control = self.control(ring);
            let owner = self.gone_owner(control);
            // Pairs with the writer's commit.
            let head = control.head().load(Ordering::Acquire);
            let until = if owner == 0 {
                until
            } else {
                until.max(Until::Now)
            };
            if self.wants(head, control.consumed().load(Ordering::Relaxed), until) {
                let checkpoint = self.pool.checkpoint(self.slot, ring);
                checkpoint.store(&Checkpoint {
                    position: head,
                    ..checkpoint.load()
                });
                consume(control, head);
                drained = Drained::Some;
            }
            free_ring(control, owner);
        }
        drained
    }

    /// Writes what there is to read. `places`: where a trace is begun.
    fn write(&mut self, until: Until, places: &mut Places<'_>) -> io::Result<Drained> {
        let wanted = self.wanted_rings(until);
        // A trace begins with the first event that is counted, so that the chunk of that time has
        // it.
        let counts =
            self.has_counted() && (until >= Until::Request || self.journal().trace().is_none());
        if wanted.is_empty() && self.writer.is_none() && !counts {
            return Ok(Drained::Nothing);
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => match self.open(places)? {
                Some(writer) => writer,
                None => return Ok(self.skip(until)),
            },
        };
        let trace = self.journal().trace();
        let chunk = trace.map_or(0, |trace| trace.place.number());
        let now = Instant::now();
        if !self.read_descriptions(&mut writer, until == Until::End, now)? {
            self.writer = Some(writer);
            self.unread = Unread::Complete;
            return Ok(Drained::Waits);
        }
        let mut drained = Drained::Nothing;
        for ring in &wanted {
            let limit = Some(&*places).filter(|of| until != Until::End && of.is_limited());
            drained = drained.max(self.write_ring(&mut writer, ring, chunk, until, now, limit)?);
        }
        writer.write_modules()?;
        if counts {
            drained = drained.max(self.write_counts(&mut writer, chunk, until == Until::End)?);
        }
        self.writer = Some(writer);
        Ok(drained)
    }

    /// The rings to read, as they are now. Frees rings of threads that have ended, if nothing in
    /// them is to be read.
    fn wanted_rings(&self, until: Until) -> Vec<WantedRing> {
        let mut wanted = Vec::new();
        for ring in 0..self.channel.nr_rings() {
            let control = self.control(ring);
            let owner = self.gone_owner(control);
            // Pairs with the writer's commit.
            let head = control.head().load(Ordering::Acquire);
            let lost = control.lost().load(Ordering::Relaxed);
            let checkpoint = self.pool.checkpoint(self.slot, ring).load();
            let has_new_losses = until == Until::End && lost != checkpoint.state.lost;
            let overwrites = self.channel.mode() == Mode::Overwrite;
            let of_ring = if owner == 0 || overwrites {
                until
            } else {
                until.max(Until::Now)
            };
            if self.wants(head, checkpoint.position, of_ring) || has_new_losses {
                wanted.push(WantedRing {
                    index: ring,
                    head,
                    lost,
                    owner,
                });
            } else {
                free_ring(control, owner);
            }
        }
        wanted
    }

    /// Writes the records of a ring to its stream; if there is a `limit`, as long as that has room.
    fn write_ring(
        &mut self,
        writer: &mut ProcessWriter,
        ring: &WantedRing,
        chunk: u64,
        until: Until,
        now: Instant,
        limit: Option<&Places<'_>>,
    ) -> io::Result<Drained> {
        let geometry = self.channel.geometry();
        let (n, head) = (ring.index as usize, ring.head);
        let mut memory = self.memory(LTT_CHANNEL_MAIN, ring.index);
        let before = self.pool.checkpoint(self.slot, ring.index).load().position;
        let policy = match until {
            Until::End => WaitPolicy::Last,
            _ => self.stalls[n].policy(before, head, geometry.ring_size(), now),
        };
        let mut position = before;
        // The next sub-buffer, and the end of the trace.
        let next = 2 * geometry.subbuf_size();
        let has_room = || limit.is_none_or(|places| places.has_room_for(next));
        let is_careful = self.is_careful || limit.is_some();
        while is_careful && head - position.min(head) > geometry.subbuf_size() && has_room() {
            let end = geometry.subbuf_start(position) + geometry.subbuf_size();
            let step = writer.read(0, n, &mut memory, end, policy)?;
            self.store_checkpoint(writer, ring, chunk, step);
            if step < end {
                break;
            }
            position = step;
        }
        if has_room() {
            position = writer.read(0, n, &mut memory, head, policy)?;
        } else {
            self.unread = Unread::Complete;
        }
        let mut drained = Drained::Nothing;
        if position < head && until != Until::End {
            self.unread = self.unread.max(Unread::Incomplete);
            drained = Drained::Waits;
        }
        if position != before {
            drained = Drained::Some;
        }
        if until == Until::End {
            writer.end_ring(0, n, ring.lost)?;
        }
        self.store_checkpoint(writer, ring, chunk, position);
        if position == head {
            free_ring(self.control(ring.index), ring.owner);
        }
        Ok(drained)
    }

    /// All tables, with the indexes of their channels among those that count, and in the trace.
    fn each_table(&self) -> impl Iterator<Item = (usize, usize, u32)> + use<> {
        let nr_rings = self.pool.layout().tables.nr_rings();
        let channels: Vec<usize> = self.tables.iter().map(|(index, _)| *index).collect();
        let channels = channels.into_iter().enumerate();
        channels.flat_map(move |(n, index)| (0..nr_rings).map(move |ring| (n, index, ring)))
    }

    /// Whether something was counted, or lost, that is not written for good.
    fn has_counted(&self) -> bool {
        self.each_table().any(|(_, channel, ring)| {
            let control = self.pool.ring_control(self.slot, channel, ring);
            let head = control.head().load(Ordering::Relaxed);
            let checkpoint = self.pool.table_checkpoint(self.slot, channel, ring).load();
            head != checkpoint.position
                || control.lost().load(Ordering::Relaxed) != checkpoint.state.lost
        })
    }

    /// Writes the present states of all counters. `ended`: the process has ended, so they are
    /// final.
    fn write_counts(
        &self,
        writer: &mut ProcessWriter,
        chunk: u64,
        ended: bool,
    ) -> io::Result<Drained> {
        let mut drained = Drained::Nothing;
        for (n, channel, ring) in self.each_table() {
            let control = self.pool.ring_control(self.slot, channel, ring);
            let head = control.head().load(Ordering::Acquire);
            let lost = control.lost().load(Ordering::Relaxed);
            let checkpoint = self.pool.table_checkpoint(self.slot, channel, ring);
            if head == 0 && lost == 0 {
                continue;
            }
            // The main channel is the first one in the trace.
            let (number, n_ring) = (1 + n, ring as usize);
            // A worker that was killed may have written the final state.
            if head != 0 && checkpoint.load().position != head {
                let mut memory = self.memory(channel, ring);
                let time = self.clock.now().cycles;
                writer.write_counts(number, n_ring, &mut memory, time, ended)?;
                drained = Drained::Some;
            }
            writer.end_ring(number, n_ring, lost)?;
            // As in `store_checkpoint`. Each later state replaces this one, so nothing is consumed
            // before the last.
            checkpoint.store(&Checkpoint {
                position: if ended { head } else { 0 },
                chunk,
                state: writer.ring_state(number, n_ring),
                counted: writer.ring_counts(number, n_ring),
            });
            if ended {
                consume(control, head);
            }
        }
        Ok(drained)
    }

    /// Stores that a ring is written up to `position`, and consumes it. First the files, then this:
    /// if the worker is killed in between, the next one cuts the files, and reads that part again.
    fn store_checkpoint(
        &self,
        writer: &ProcessWriter,
        ring: &WantedRing,
        chunk: u64,
        position: u64,
    ) {
        let n = ring.index as usize;
        self.pool
            .checkpoint(self.slot, ring.index)
            .store(&Checkpoint {
                position,
                chunk,
                state: writer.ring_state(0, n),
                counted: writer.ring_counts(0, n),
            });
        if self.channel.mode() != Mode::Overwrite {
            consume(self.control(ring.index), position.min(ring.head));
        }
    }

    /// Reads descriptions of events. False: a description is not complete yet.
    ///
    /// A program describes each event before it writes it. The worker loads the heads of the rings
    /// first, so it then finds the descriptions of all events below them.
    fn read_descriptions(
        &mut self,
        writer: &mut ProcessWriter,
        last: bool,
        now: Instant,
    ) -> io::Result<bool> {
        let policy = if last {
            WaitPolicy::Last
        } else {
            WaitPolicy::Wait
        };
        let mut missing = None;
        for ring in 0..writer.nr_control() as u32 {
            let control = self.pool.ring_control(self.slot, LTT_CHANNEL_CONTROL, ring);
            let head = control.head().load(Ordering::Acquire);
            let mut memory = self.memory(LTT_CHANNEL_CONTROL, ring);
            let position = writer.read_control(ring as usize, &mut memory, head, policy)?;
            if position < head && !last {
                missing = Some(position);
            }
        }
        // A description that is never completed must not hold up the program's events for ever.
        let position = missing.unwrap_or_default();
        let over = self
            .described
            .has_timed_out(position, missing.is_some(), now);
        Ok(missing.is_none() || over)
    }

    /// Begins the trace, or goes on with that of another worker. None: nothing is to be written.
    fn open(&mut self, places: &mut Places<'_>) -> io::Result<Option<ProcessWriter>> {
        if let Some(writer) = self.go_on()? {
            return Ok(Some(writer));
        }
        self.unlock();
        match self.begin(places)? {
            true => self.go_on(),
            false => Ok(None),
        }
    }

    /// Stores in the journal that the trace begins, in the current place. False: that is nowhere.
    fn begin(&mut self, places: &mut Places<'_>) -> io::Result<bool> {
        let Some(output) = self.output.directory() else {
            return Ok(false);
        };
        for _ in 0..LOOKS {
            let place = places.look();
            let Some(parent) = place.below(output) else {
                return Ok(false);
            };
            if let TraceLocation::Chunk(chunk) = place {
                self.lock = ChunkLock::new(output, &chunk)?;
                if places.look() != place {
                    // `record` finishes that chunk, and does not wait for this lock.
                    self.unlock();
                    continue;
                }
                if self.lock.is_none() {
                    recreate(&parent)?;
                    continue;
                }
            }
            let directory = parent.join(self.identity.directory());
            if directory.join("metadata").exists() {
                let why = format!("\"{}\" has another trace already", directory.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            let uuid = new_uuid()?;
            self.journal().begin(Trace { uuid, place });
            return Ok(true);
        }
        let why = "the chunk changes all the time";
        Err(io::Error::new(io::ErrorKind::WouldBlock, why))
    }

    /// Creates the directory of the trace in a place, and marks it as unfinished. None if the place
    /// is gone.
    fn enter(&mut self, place: TraceLocation) -> io::Result<Option<PathBuf>> {
        let Some(output) = self.output.directory() else {
            return Ok(None);
        };
        let Some(parent) = place.below(output) else {
            return Ok(None);
        };
        let directory = parent.join(self.identity.directory());
        if let TraceLocation::Chunk(chunk) = place {
            if self.lock.is_none() {
                self.lock = ChunkLock::new(output, &chunk)?;
            }
            if self.lock.is_none() {
                return Ok(None);
            }
            match std::fs::create_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                made => made?,
            }
        } else {
            std::fs::create_dir_all(&directory)?;
        }
        if self.mark.is_none() {
            self.mark = Some(Unfinished::mark(&directory, self.identity.pid)?);
        }
        Ok(Some(directory))
    }

    /// Unlocks the chunk, as it has no unfinished trace of this process any more.
    fn unlock(&mut self) {
        (self.mark, self.lock) = (None, None);
    }

    /// Goes on with the trace in the journal. None if there is none, or its place is gone.
    fn go_on(&mut self) -> io::Result<Option<ProcessWriter>> {
        let Some(trace) = self.journal().trace() else {
            return Ok(None);
        };
        let Some(directory) = self.enter(trace.place)? else {
            return Ok(None);
        };
        let clock = self.clock.until(self.clock.now());
        let pages: Vec<Checkpoint> = (0..self.channel.nr_rings())
            .map(|ring| self.pool.checkpoint(self.slot, ring).load())
            .collect();
        let reader = |channel: &Channel, position| {
            RingReader::live(channel.format(), position, clock.max_time())
        };
        let control = Channel::new(&self.pool.layout().info_channel(LTT_CHANNEL_CONTROL))
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let identity = self.identity.clone();
        let mut writer =
            ProcessWriter::resume(&directory, identity, clock, trace.uuid, Vec::new())?;
        writer.set_version(self.output.version());
        writer.set_control(
            (0..control.nr_rings())
                .map(|_| reader(&control, 0))
                .collect(),
        );
        let readers = pages
            .iter()
            .map(|page| reader(&self.channel, page.position));
        let chunk = trace.place.number();
        let states: Vec<_> = pages.iter().map(|page| page.state(chunk)).collect();
        let index = LTT_CHANNEL_MAIN as u32;
        let number =
            writer.add_channel("main", index, &self.channel, readers.collect(), &states)?;
        for (index, channel) in &self.tables {
            let rings = 0..channel.nr_rings();
            let pages: Vec<Checkpoint> = rings
                .map(|ring| self.pool.table_checkpoint(self.slot, *index, ring).load())
                .collect();
            let states: Vec<_> = pages.iter().map(|page| page.state(chunk)).collect();
            let readers = pages.iter().map(|_| reader(channel, 0)).collect();
            let name = format!("count{}", index - CHANNELS);
            let number = writer.add_channel(&name, *index as u32, channel, readers, &states)?;
            for (ring, page) in pages.iter().enumerate() {
                writer.set_ring_counts(number, ring, page.counted);
            }
        }
        // The summary counts all events of the process, of all workers and chunks.
        for (ring, page) in pages.iter().enumerate() {
            writer.set_ring_counts(number, ring, page.counted);
        }
        Ok(Some(writer))
    }

    /// Stores in the mark that all events up to this time are written.
    pub(super) fn mark_written(&self, time: u64) {
        if let Some(mark) = &self.mark {
            mark.written(time);
        }
    }

    /// Completes the trace of a process that has ended.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.complete(true)
    }

    /// Completes the trace, with all that was read. `last`: the process has ended.
    fn complete(&mut self, last: bool) -> io::Result<()> {
        let writer = match self.writer.take() {
            Some(writer) => Some(writer),
            // Another worker wrote all of it, but may not have completed it.
            None => self.go_on()?,
        };
        let Some(mut writer) = writer else {
            // There is no trace, or it is in a chunk that is complete.
            self.unlock();
            return Ok(());
        };
        self.read_descriptions(&mut writer, last, Instant::now())?;
        let mut now = self.clock.now();
        let measured = now.monotonic.saturating_sub(self.clock.first().monotonic);
        if measured < MEASURED_NS {
            std::thread::sleep(std::time::Duration::from_nanos(MEASURED_NS - measured));
            now = self.clock.now();
        }
        let summary = writer.finish(Some(self.clock.until(now)))?;
        if self.clock.is_unstable() {
            let name = self.identity.directory();
            self.output.log(&format!(
                "{name}: the processor's counter became unstable while it was the clock: events of different CPUs may be in a \
                 wrong order; a new program has another clock"
            ));
        }
        if let Some(directory) = self.output.directory() {
            add_summary(directory, &summary)?;
        }
        // The mark goes last: if a worker is killed before that, the next one completes again.
        let removed = self.mark.take().map_or(Ok(()), Unfinished::remove);
        if removed.is_ok() {
            self.unlock();
        }
        removed
    }

    /// Reports that the trace stays incomplete, why, and how much is missing.
    pub(super) fn give_up(&self, error: &io::Error) {
        let (mut bytes, mut lost) = (0u64, 0u64);
        for ring in 0..self.channel.nr_rings() {
            let control = self.control(ring);
            let head = control.head().load(Ordering::Relaxed);
            let position = self.pool.checkpoint(self.slot, ring).load().position;
            // The program may have stored any `head` (A11).
            let unread = head
                .saturating_sub(position)
                .min(self.channel.geometry().ring_size());
            bytes = bytes.saturating_add(unread);
            lost = lost.saturating_add(control.lost().load(Ordering::Relaxed));
        }
        let why = format!(
            "{error}; {bytes} bytes of its rings are missing, {lost} events were discarded"
        );
        if let Some(mark) = &self.mark {
            mark.fail(&why);
        }
        let name = self.identity.directory();
        self.output.log(&format!("{name} is incomplete: {why}"));
        if let Some(directory) = self.output.directory() {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            add_failure(directory, errno, bytes, lost);
        }
    }
}

/// Frees a ring whose owner has ended, so that another thread can take it.
fn free_ring(control: RingControl, owner: u32) {
    if owner != 0 {
        // Release: pairs with the acquire of the next thread, whose stores happen after these
        // reads. It fails if a new thread with the same id took the ring over.
        let _ = control
            .owner()
            .compare_exchange(owner, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// Consumes a ring up to `position`: its writers may overwrite that, and waiting ones wake up.
fn consume(control: RingControl, position: u64) {
    let consumed = control.consumed();
    if position > consumed.load(Ordering::Relaxed) {
        // Pairs with the writer's load before it begins a sub-buffer: its stores happen after these
        // reads. SeqCst: a waiting writer stores `waiters` before it loads `consumed` for the last
        // time.
        consumed.store(position, Ordering::SeqCst);
        if control.waiters().load(Ordering::SeqCst) != 0 {
            futex::wake(low_half(consumed), u32::MAX >> 1);
        }
    }
}

/// The lower half of a position: the futex on which writers wait.
fn low_half(position: &AtomicU64) -> &std::sync::atomic::AtomicU32 {
    let halves = std::ptr::from_ref(position).cast::<std::sync::atomic::AtomicU32>();
    // SAFETY: within the position, and aligned. Only the kernel uses the address.
    unsafe { &*halves.add(usize::from(cfg!(target_endian = "big"))) }
}

#[cfg(test)]
mod tests {
    use usertrace_sys::uapi::{
        LTT_MODE_DISCARD, LTT_MODE_OVERWRITE, LTT_PROTOCOL_RSEQ, LTT_PROTOCOL_SHARED,
        LTT_SCOPE_CPU, LTT_SCOPE_THREAD,
    };

    use usertrace_ctf::Version;

    use super::super::layout;
    use super::*;

    /// The worker continues, whatever a program stores in its control blocks.
    ///
    /// Requirements: A11
    #[test]
    fn a_program_may_lie_about_its_rings() {
        for (scope, protocol, mode) in [
            (LTT_SCOPE_CPU, LTT_PROTOCOL_RSEQ, LTT_MODE_DISCARD),
            (LTT_SCOPE_CPU, LTT_PROTOCOL_RSEQ, LTT_MODE_OVERWRITE),
            (LTT_SCOPE_THREAD, LTT_PROTOCOL_SHARED, LTT_MODE_DISCARD),
        ] {
            let rings = layout::Rings {
                subbuf_size: 4096,
                subbuf_count: 4,
                nr_rings: 2,
                scope,
                mode,
                protocol,
            };
            let tables = layout::Tables::NONE;
            let layout = layout::Layout::new([rings, rings], tables, 1).unwrap();
            let pool = Pool::map(layout).unwrap();
            let directory = tempfile::tempdir().unwrap();
            let clock = TraceClock::start(None);
            for output in [
                Output::NULL,
                Output::below(directory.path().to_owned(), Version::V1_8),
            ] {
                for lie in [4096, 4097, 16383, 16384, 1 << 40, u64::MAX - 8, u64::MAX] {
                    let mut recording = Recording::new(pool, 0, &output, &clock, None).unwrap();
                    let mut places = Places::new(&output);
                    for channel in [LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN] {
                        let control = pool.ring_control(0, channel, 1);
                        control.head().store(lie, Ordering::Relaxed);
                        control.claimed().store(!lie, Ordering::Relaxed);
                        control.lost().store(lie, Ordering::Relaxed);
                    }
                    recording.look(&mut Vec::new());
                    for until in [Until::Filled, Until::Now, Until::End] {
                        recording.drain(until, &mut places).unwrap();
                    }
                }
            }
            // SAFETY: no other code has the pool.
            unsafe { pool.unmap() };
        }
    }
}
