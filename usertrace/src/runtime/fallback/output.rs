//! From the rings of one process to its trace.

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
use super::namespace;
use super::place::{ChunkLock, Places, recreate};
use super::pool::{Pool, RingControl};
use crate::os::{futex, thread};

/// Shortest time over which the clock's frequency is measured: the error is 1/100000 then.
const MEASURED_NS: u64 = 10_000_000;

/// How far in front of a writer pages are made.
const AHEAD: u64 = 512 << 10;
/// And how many bytes at a time.
const STRETCH: u64 = 64 << 10;

/// How often to look where a trace is to be begun, if that changes meanwhile.
const LOOKS: u32 = 100;

/// When to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Until {
    /// Rings in which a sub-buffer was filled.
    Filled,
    /// Everything that is committed (D4: ACTIVE).
    Now,
    /// Everything that there will ever be (D4: FLUSH).
    End,
}

/// What there was to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Drained {
    Nothing,
    /// Only what its writer may still complete.
    Waits,
    Some,
}

/// One process's rings and trace.
pub(super) struct Recording<'a> {
    pool: Pool,
    slot: usize,
    output: &'a Output,
    clock: &'a TraceClock,
    identity: Identity,
    /// The ids of its threads mean the same here as in the process.
    knows_threads: bool,
    channel: Channel,
    writer: Option<ProcessWriter>,
    /// Says that the trace is not finished, once it is begun.
    mark: Option<Unfinished>,
    /// Keeps the chunk in which that is.
    lock: Option<ChunkLock>,
    /// Something could not be written: from then on, one sub-buffer is written after the other, so
    /// that as many come to the disk as there is room for.
    is_careful: bool,
    /// Of each ring, `head` as it was the last time.
    heads: Vec<u64>,
    /// And up to where there are pages.
    made: Vec<u64>,
    /// Of the rings of events, and of those of descriptions.
    stalls: Vec<StallDetector>,
    described: StallDetector,
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
        // What was copied before is not younger than what is loaded here: pairs with the writer's
        // barrier between a claim, or a reservation, and what it stores there.
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
        let channel = Channel::new(&pool.layout().info_channel(LTT_CHANNEL_MAIN))
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
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
            writer: None,
            mark: None,
            lock: None,
            is_careful: false,
            heads: vec![0; channel.nr_rings() as usize],
            made: vec![0; channel.nr_rings() as usize],
            stalls: vec![StallDetector::default(); channel.nr_rings() as usize],
            described: StallDetector::default(),
        };
        if channel.mode() != Mode::Overwrite {
            // The worker before this one may have been killed between its last two steps.
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

    /// Reads what there is to read. `places`: where a trace is begun.
    ///
    /// # Errors
    /// When the trace cannot be written. What was not written stays in the rings; it is tried again
    /// with the next call.
    pub(super) fn drain(&mut self, until: Until, places: &mut Places<'_>) -> io::Result<Drained> {
        if until != Until::End {
            (0..self.channel.nr_rings()).for_each(|ring| self.make_pages(ring));
        }
        let done = if self.output.directory().is_none() {
            Ok(self.skip(until))
        } else if until != Until::End && self.is_elsewhere(places) {
            // The end of the process ends its trace where that is.
            self.end_elsewhere(places)
        } else {
            self.write(until, places)
        };
        if done.is_err() {
            // Where the files stand is not known any more; the checkpoints say where they are to be
            // cut.
            self.writer = None;
            self.is_careful = true;
        }
        done
    }

    /// The trace is in a place where none is to be any more.
    fn is_elsewhere(&self, places: &Places<'_>) -> bool {
        let trace = self.journal().trace();
        trace.is_some_and(|trace| trace.place != places.now())
    }

    /// Completes the trace where it is, with what there is now. What comes later begins another
    /// one.
    fn end_elsewhere(&mut self, places: &mut Places<'_>) -> io::Result<Drained> {
        let drained = self.write(Until::Now, places)?;
        // Unless that found its chunk gone, and has begun another one.
        if self.is_elsewhere(places) {
            self.complete(false)?;
            self.journal().end();
        }
        Ok(drained.max(Drained::Waits))
    }

    /// What is in the rings is to be read when somebody asks for the traces of all processes:
    /// unless the process may overwrite it still.
    pub(super) fn is_wanted(&self) -> bool {
        self.channel.mode() != Mode::Overwrite || has_ended(self.identity.pid)
    }

    /// Adds the CPUs on which events were written since the last time, where rings are of CPUs.
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

    /// Makes pages for what comes next, in a ring of which a sub-buffer was filled. The writer
    /// would be stopped for each.
    fn make_pages(&mut self, ring: u32) {
        let geometry = self.channel.geometry();
        let made = &mut self.made[ring as usize];
        let head = || {
            self.pool
                .ring_control(self.slot, LTT_CHANNEL_MAIN, ring)
                .head()
                .load(Ordering::Relaxed)
        };
        while *made < geometry.ring_size() {
            let head = head();
            // Also if the program says what cannot be (A11).
            if head < geometry.subbuf_size() || head >= geometry.ring_size() {
                break;
            }
            let stretch = STRETCH
                .max(geometry.subbuf_size())
                .min(geometry.ring_size());
            // Not the next one, at which the writer may be before this is: both would be stopped.
            let from = (*made)
                .max(head.next_multiple_of(stretch) + stretch)
                .min(geometry.ring_size());
            if from >= head + AHEAD {
                break;
            }
            let to = (from + stretch).min(geometry.ring_size());
            self.pool
                .populate(self.slot, LTT_CHANNEL_MAIN, ring, from..to);
            *made = to;
        }
    }

    /// Is this ring to be read, whose head is there?
    fn wants(&self, head: u64, position: u64, until: Until) -> bool {
        match until {
            // A ring that overwrites is a record of the last moments: it is read when somebody
            // wants to know them.
            Until::Filled if self.channel.mode() == Mode::Overwrite => false,
            Until::Filled => {
                let geometry = self.channel.geometry();
                geometry.subbuf_start(head) > geometry.subbuf_start(position)
            }
            Until::Now | Until::End => head != position,
        }
    }

    /// The thread that had a ring and is gone; 0: there is none.
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

    /// Gives everything back without looking at it.
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

    fn write(&mut self, until: Until, places: &mut Places<'_>) -> io::Result<Drained> {
        let rings = 0..self.channel.nr_rings();
        let mut wanted = Vec::new();
        for ring in rings {
            let control = self.control(ring);
            let owner = self.gone_owner(control);
            // Pairs with the writer's commit.
            let head = control.head().load(Ordering::Acquire);
            let lost = control.lost().load(Ordering::Relaxed);
            let page = self.pool.checkpoint(self.slot, ring).load();
            let untold = until == Until::End && lost != page.state.lost;
            let overwrites = self.channel.mode() == Mode::Overwrite;
            let of_ring = if owner == 0 || overwrites {
                until
            } else {
                until.max(Until::Now)
            };
            if self.wants(head, page.position, of_ring) || untold {
                wanted.push((ring, head, lost, owner));
            } else {
                free_ring(control, owner);
            }
        }
        if wanted.is_empty() && self.writer.is_none() {
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
            return Ok(Drained::Waits);
        }
        let ring_size = self.channel.geometry().ring_size();
        let mut drained = Drained::Nothing;
        for (ring, head, lost, owner) in wanted {
            let n = ring as usize;
            let mut memory = self.memory(LTT_CHANNEL_MAIN, ring);
            let before = self.pool.checkpoint(self.slot, ring).load().position;
            let policy = match until {
                Until::End => WaitPolicy::Last,
                _ => self.stalls[n].policy(before, head, ring_size, now),
            };
            // First what was written, then that it was: the next worker cuts off what is beyond,
            // and reads it again.
            let keep = |writer: &ProcessWriter, position: u64| {
                self.pool.checkpoint(self.slot, ring).store(&Checkpoint {
                    position,
                    chunk,
                    state: writer.ring_state(0, n),
                    counted: writer.ring_counts(0, n),
                });
                if self.channel.mode() != Mode::Overwrite {
                    consume(self.control(ring), position.min(head));
                }
            };
            let mut position = before;
            while self.is_careful
                && head - position.min(head) > self.channel.geometry().subbuf_size()
            {
                let end = self.channel.geometry().subbuf_start(position)
                    + self.channel.geometry().subbuf_size();
                let step = writer.read(0, n, &mut memory, end, policy)?;
                keep(&writer, step);
                if step < end {
                    break;
                }
                position = step;
            }
            position = writer.read(0, n, &mut memory, head, policy)?;
            if position < head && until != Until::End {
                drained = drained.max(Drained::Waits);
            }
            if position != before {
                drained = Drained::Some;
            }
            if until == Until::End {
                writer.end_ring(0, n, lost)?;
            }
            keep(&writer, position);
            if position == head {
                free_ring(self.control(ring), owner);
            }
        }
        self.writer = Some(writer);
        Ok(drained)
    }

    /// Each event was described before it was written: descriptions that are read after the heads
    /// of the rings are those of all events below them. False: some are waited for.
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
        // A description that is never completed does not keep all events of the program for ever.
        let position = missing.unwrap_or_default();
        let over = self
            .described
            .has_timed_out(position, missing.is_some(), now);
        Ok(missing.is_none() || over)
    }

    /// Begins the trace, or goes on with what another worker left. Nothing: nothing more is to be
    /// written.
    fn open(&mut self, places: &mut Places<'_>) -> io::Result<Option<ProcessWriter>> {
        if let Some(writer) = self.go_on()? {
            return Ok(Some(writer));
        }
        self.let_go();
        match self.begin(places)? {
            true => self.go_on(),
            false => Ok(None),
        }
    }

    /// Notes that the trace begins, in the place that is named now. False: that is nowhere.
    fn begin(&mut self, places: &mut Places<'_>) -> io::Result<bool> {
        let Some(output) = self.output.directory() else {
            return Ok(false);
        };
        for _ in 0..LOOKS {
            let place = places.look();
            let Some(parent) = place.below(output) else {
                return Ok(false);
            };
            if let Place::Chunk(chunk) = place {
                self.lock = ChunkLock::new(output, &chunk)?;
                if places.look() != place {
                    // Nobody waits for those that come now.
                    self.let_go();
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

    /// The directory of the trace in a place, marked. Nothing if the place is gone.
    fn enter(&mut self, place: TraceLocation) -> io::Result<Option<PathBuf>> {
        let Some(output) = self.output.directory() else {
            return Ok(None);
        };
        let Some(parent) = place.below(output) else {
            return Ok(None);
        };
        let directory = parent.join(self.identity.directory());
        if let Place::Chunk(chunk) = place {
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

    /// Nothing of this process is in the chunk any more.
    fn let_go(&mut self) {
        (self.mark, self.lock) = (None, None);
    }

    /// Goes on with the trace that was begun. Nothing if there is none, or its place is gone.
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
        // The summary is of the whole process, whoever has read it and to which chunk.
        for (ring, page) in pages.iter().enumerate() {
            writer.set_ring_counts(number, ring, page.counted);
        }
        Ok(Some(writer))
    }

    /// Says that all is written that was in the rings at this time.
    pub(super) fn tell_written(&self, time: u64) {
        if let Some(mark) = &self.mark {
            mark.written(time);
        }
    }

    /// Ends the trace, when all is read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.complete(true)
    }

    /// Completes the trace, with what was read. `last`: there will be no more of the process.
    fn complete(&mut self, last: bool) -> io::Result<()> {
        let writer = match self.writer.take() {
            Some(writer) => Some(writer),
            // Another worker has written all, but perhaps not ended it.
            None => self.go_on()?,
        };
        let Some(mut writer) = writer else {
            // There is nothing, or it is in a chunk that is complete.
            self.let_go();
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
        // As the mark can be made anew, it is the last that goes.
        let removed = self.mark.take().map_or(Ok(()), Unfinished::remove);
        if removed.is_ok() {
            self.let_go();
        }
        removed
    }

    /// Says why the trace stays as it is, and what is missing.
    pub(super) fn give_up(&self, error: &io::Error) {
        let (mut bytes, mut lost) = (0u64, 0u64);
        for ring in 0..self.channel.nr_rings() {
            let control = self.control(ring);
            let head = control.head().load(Ordering::Relaxed);
            let position = self.pool.checkpoint(self.slot, ring).load().position;
            // The program may have written anything there (A11).
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

/// Gives a ring that was read to another thread.
fn free_ring(control: RingControl, owner: u32) {
    if owner != 0 {
        // Pairs with the next thread's: what it stores comes after what was read. If the ring has
        // another owner, a thread with the same number came and took it for its own.
        let _ = control
            .owner()
            .compare_exchange(owner, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// Tells the writers of a ring that they may overwrite what is below `position`.
fn consume(control: RingControl, position: u64) {
    let consumed = control.consumed();
    if position > consumed.load(Ordering::Relaxed) {
        // Pairs with the writer's load before it begins a sub-buffer: what was read is not
        // overwritten before. SeqCst: a writer that waits says so before it looks at `consumed` for
        // the last time.
        consumed.store(position, Ordering::SeqCst);
        if control.waiters().load(Ordering::SeqCst) != 0 {
            // SAFETY: the half of `consumed` that changes, on which writers wait.
            futex::wake(low_half(consumed), u32::MAX >> 1);
        }
    }
}

/// The half of a position that changes always.
fn low_half(position: &AtomicU64) -> &std::sync::atomic::AtomicU32 {
    let halves = std::ptr::from_ref(position).cast::<std::sync::atomic::AtomicU32>();
    // SAFETY: within the position, and aligned; only its address is used, by the kernel.
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

    /// A11: whatever a program says of its rings, the worker goes on.
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
            let pool = Pool::map(layout::Layout::new([rings, rings], 1).unwrap()).unwrap();
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
            // SAFETY: nobody else has it.
            unsafe { pool.unmap() };
        }
    }
}
