//! The slow path of rings of a CPU or a concurrency id, which restartable sequences write.
//!
//! `INDEX` is the field of `struct rseq` with the number of the ring: `CPU_ID` or [`MM_CID`]. The
//! comments speak of CPUs, but a concurrency id is as good. No two threads of a process have the
//! same one at the same time, and the kernel aborts a thread's sequence before another thread gets
//! its id. The kernel also orders memory between the thread that had an id and the next one, on
//! whatever CPU, as it schedules the one out and the other one in.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use usertrace_sys::Mode;
use usertrace_sys::uapi::{
    LTT_ID_LONG, LTT_ID_PAD, LTT_ID_TIME, LTT_LONG_BUSY, LTT_LONG_DONE, LTT_LONG_ID_SHIFT,
    LttSubbuf,
};

use super::channel::{Channel, LONGEST, Ring};
use super::payload::{Cursor, Payload};
use super::prefault::{self, Prefault};
use super::refusal::{Dropped, Refusal};
use super::reserve_commit::WaitOutcome;
use super::ring_index::{CPU_ID_WITH_CONTEXT, MM_CID, MM_CID_WITH_CONTEXT, NO_INDEX};
use super::rseq::{self, Advance, Rseq, Start, Step, TRIES};
use super::{thread, wait};
use crate::clock::{self, Source};

/// How often the slow path tries again before it drops a record. Each time, another writer on the
/// same CPU came first.
pub(super) const ROUNDS: u32 = 100;

/// Length of the header of a sub-buffer.
const HEADER: u64 = size_of::<LttSubbuf>() as u64;

/// Length of the two words in front of a long record's payload.
const LONG_HEADER: u64 = 16;

/// Why a sub-buffer cannot be begun.
enum Full {
    /// The reader has not made room: `consumed` was this.
    Unread(u64),
    /// All places in the ring have writers of long records inside.
    Busy,
}

/// Whether the clock of a channel is read before the sequence, and not within it: a sequence can
/// call nothing. For most `INDEX`es the compiler knows that it is not, so the event path checks
/// nothing.
///
/// Then the writer loads `head` before it reads the clock, and the sequence compares it, so that
/// times in a ring never go back. All records are long ones then, as only their sequence compares
/// `head`.
#[inline(always)]
fn reads_clock_before<const INDEX: i32>(channel: &Channel) -> bool {
    (INDEX == CPU_ID_WITH_CONTEXT || INDEX == MM_CID_WITH_CONTEXT)
        && channel.clock() == Source::Monotonic
}

/// Does what [`rseq::advance`] does, with the time of the channel's clock. The caller has loaded
/// all of [`Start`] before.
///
/// # Safety
/// As [`rseq::advance`]'s.
#[inline(always)]
unsafe fn advance_head<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    advance: &mut Advance,
) -> Step {
    if reads_clock_before::<INDEX>(channel) {
        // The clock is read after the loads of `Start`.
        fence(Ordering::Acquire);
        advance.time = clock::monotonic();
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        return unsafe { rseq::advance_at::<INDEX>(rseq, channel, advance) };
    }
    // SAFETY: likewise.
    unsafe { rseq::advance::<INDEX>(rseq, channel, advance) }
}

/// Writes a record, if it fits into the current sub-buffer and needs nothing else.
///
/// # Safety
/// As [`super::try_write_words`]'s.
#[inline(always)]
pub(super) unsafe fn record_words<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    words: &[u64],
) -> Result<(), Refusal> {
    // In a thread without a registered area, the sequence would find id 0. A thread that has one
    // keeps it until it ends.
    if (INDEX == MM_CID || INDEX == MM_CID_WITH_CONTEXT) && rseq.index::<INDEX>() == NO_INDEX {
        return Err(Refusal::NoRing);
    }
    if 8 + 8 * words.len() as u64 <= LONGEST && !reads_clock_before::<INDEX>(channel) {
        // SAFETY: as in `record_made`, and the length is checked.
        return unsafe { rseq::record_words::<INDEX>(rseq, channel, id, words) };
    }
    let fill = |cursor: &mut Cursor<'_>| {
        words
            .iter()
            .for_each(|word| cursor.append(&word.to_ne_bytes()));
    };
    // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a payload,
    // as this function's caller promises.
    unsafe { record_made::<INDEX>(rseq, channel, id, 8 * words.len(), &fill) }
}

/// A long record, at the place in the ring where it is to be reserved.
struct LongRecord<'a> {
    ring: Ring<'a>,
    /// The index of the ring.
    cpu: u32,
    /// Position of the record.
    head: u64,
    /// Length of the payload, a multiple of 8.
    payload_len: u64,
    /// The second header word, without `LTT_LONG_BUSY` and `LTT_LONG_DONE`.
    second_word: u64,
}

impl<'a> LongRecord<'a> {
    /// A record with a payload of `len` bytes, if it fits into the current sub-buffer of this CPU's
    /// ring, and needs no full time stamp before it.
    fn new<const INDEX: i32>(
        rseq: Rseq,
        channel: &'a Channel,
        id: &AtomicU16,
        len: usize,
    ) -> Result<Self, Refusal> {
        let cpu = rseq.index::<INDEX>();
        let ring = channel.ring_at(cpu).filter(|_| channel.is_by::<INDEX>());
        // Pairs with the store after the event was described: it was, in this opening of the
        // channel.
        let id = id.load(Ordering::Acquire);
        let (Some(ring), true) = (ring, id != 0) else {
            return Err(Refusal::NoRing);
        };
        let payload_len = (len as u64).next_multiple_of(8);
        let record_len = LONG_HEADER + payload_len;
        if record_len > ring.subbuf_size - HEADER {
            return Err(Refusal::TooLong);
        }
        let head = ring.control.head.load(Ordering::Relaxed);
        let offset = head & (ring.subbuf_size - 1);
        if offset == 0 || offset + record_len > ring.subbuf_size {
            return Err(Refusal::NeedSubbuf);
        }
        // If the upper bits change between this and the sequence, readers see that by themselves,
        // as in a short record.
        let now = if reads_clock_before::<INDEX>(channel) {
            clock::monotonic()
        } else {
            clock::cycles()
        };
        if (ring.control.time.load(Ordering::Relaxed) ^ now) >> 48 != 0 {
            return Err(Refusal::NeedTime);
        }
        Ok(Self {
            ring,
            cpu,
            head,
            payload_len,
            second_word: record_len | u64::from(id) << LTT_LONG_ID_SHIFT,
        })
    }

    /// The number of writers of long records in the sub-buffer.
    fn busy(&self) -> &AtomicU32 {
        let subbuf = self.head & !(self.ring.subbuf_size - 1);
        let subbuf = self.ring.at::<LttSubbuf>(subbuf);
        // SAFETY: inside the ring, and aligned, as sub-buffers are. All code accesses this field
        // atomically.
        unsafe { AtomicU32::from_ptr(&raw mut (*subbuf).busy) }
    }

    /// Reserves the record: stores its header words, and moves `head` behind it.
    fn reserve<const INDEX: i32>(&self, rseq: Rseq, channel: &Channel) -> Step {
        let (ring, head) = (&self.ring, self.head);
        let mut unused_word = 0;
        let mut unused = LttSubbuf::default();
        let mut advance = Advance {
            start: Start {
                epoch: ring.epoch,
                cpu: self.cpu,
                control: ring.control,
                head,
            },
            word: ring.at(head),
            word_id: LTT_ID_LONG.into(),
            full_time: &raw mut unused_word,
            second: ring.at(head + 8),
            second_word: self.second_word | LTT_LONG_BUSY,
            subbuf: &raw mut unused,
            position: 0,
            new_head: head + LONG_HEADER + self.payload_len,
            time: 0,
        };
        // SAFETY: everything was made from `ring`. The record lies behind `head`, in a sub-buffer
        // that was begun and has room for it, as `new` checked.
        unsafe { advance_head::<INDEX>(rseq, channel, &mut advance) }
    }

    /// Stores the payload of the record, and marks it as complete.
    ///
    /// # Safety
    /// The record must be reserved, and the caller must keep the sub-buffer [busy](Self::busy).
    unsafe fn fill(&self, fill: &dyn Fn(&mut Cursor<'_>)) {
        let (start, second) = (
            self.ring.at(self.head + LONG_HEADER),
            self.ring.at(self.head + 8),
        );
        thread::with(|thread| {
            // Not one instruction: a signal handler that comes in between leaves the number as it
            // was.
            let inside = thread.inside.load(Ordering::Relaxed);
            thread.inside.store(inside + 1, Ordering::Relaxed);
            // SAFETY: the record is this writer's until it is marked as complete, as it was
            // reserved. No writer begins a sub-buffer at a place that is busy.
            let mut cursor = unsafe { Cursor::new(start, self.payload_len as usize) };
            fill(&mut cursor);
            cursor.finish();
            // SAFETY: the record's second word, which readers in other processes access atomically.
            let second = unsafe { AtomicU64::from_ptr(second) };
            // Pairs with the reader's load: a reader that sees DONE sees the payload.
            second.store(self.second_word | LTT_LONG_DONE, Ordering::Release);
            thread.inside.store(inside, Ordering::Relaxed);
        });
    }

    /// Wakes the reader if the sub-buffer was filled meanwhile: it may have found this record busy,
    /// and wait for it.
    fn notify_reader(&self) {
        let now = self.ring.control.head.load(Ordering::Relaxed);
        if let Some(reader_wakeup) = self.ring.reader_wakeup
            && (now ^ self.head) & !(self.ring.subbuf_size - 1) != 0
        {
            reader_wakeup.notify();
        }
    }
}

/// Writes a record that is too long for one sequence: reserves it in one, and fills it outside.
///
/// If the writer dies in between, the length of the record is known.
///
/// # Safety
/// As [`super::try_write_words`]'s.
#[inline(never)]
pub(super) unsafe fn record_made<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    len: usize,
    fill: &dyn Fn(&mut Cursor<'_>),
) -> Result<(), Refusal> {
    let record = LongRecord::new::<INDEX>(rseq, channel, id, len)?;
    let Some(_entered) = channel.enter(record.ring.epoch) else {
        return Err(Refusal::Again);
    };
    // Before the reservation, so that the writer that begins the next sub-buffer on this CPU sees
    // it. If `head` is a lap further by now, the place is taken for a busy one without need.
    record.busy().fetch_add(1, Ordering::Relaxed);
    let step = record.reserve::<INDEX>(rseq, channel);
    if step == Step::Done {
        // SAFETY: it was reserved, and the sub-buffer is busy until the next line.
        unsafe { record.fill(fill) };
    }
    // Pairs with the load in `place`: the stores above happen before the stores of the next lap.
    record.busy().fetch_sub(1, Ordering::Release);
    match step {
        Step::Done => {
            record.notify_reader();
            Ok(())
        }
        Step::Changed => Err(Refusal::Again),
        Step::Aborted => Err(Refusal::Aborted),
    }
}

/// Writes a record, and does what is necessary for that. `refusal`: why the event path could not.
///
/// # Safety
/// As [`super::try_write_words`]'s.
pub(super) unsafe fn write<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    payload: Payload<'_>,
    mut refusal: Refusal,
) -> Result<(), Dropped> {
    let is_long = |words: &[u64]| {
        8 + 8 * words.len() as u64 > LONGEST || reads_clock_before::<INDEX>(channel)
    };
    let len = match payload {
        Payload::Words(words) if is_long(words) => LONG_HEADER + 8 * words.len() as u64,
        Payload::Words(words) => 8 + 8 * words.len() as u64,
        Payload::Made { len, .. } => LONG_HEADER + (len as u64).next_multiple_of(8),
    };
    let (mut rounds, mut aborts, mut told) = (0, 0, false);
    while rounds < ROUNDS && aborts < TRIES {
        rounds += 1;
        let step = match refusal {
            Refusal::NeedSubbuf => begin_subbuf::<INDEX>(rseq, channel, len),
            Refusal::NeedTime => store_time::<INDEX>(rseq, channel),
            Refusal::Again => Ok(Step::Changed),
            Refusal::NoRing if !channel.is_by::<INDEX>() || id.load(Ordering::Relaxed) == 0 => {
                return Err(Dropped::Closed);
            }
            Refusal::NoRing => {
                rseq.join();
                if channel.ring_at(rseq.index::<INDEX>()).is_none() {
                    // The thread has no CPU number, or one without a ring.
                    return lose::<INDEX>(rseq, channel);
                }
                // It has a ring now, through `join` or through a signal handler that interrupted
                // this.
                Ok(Step::Changed)
            }
            Refusal::Lost => return Err(Dropped::Lost),
            Refusal::Aborted => Ok(Step::Aborted),
            Refusal::TooLong => return lose::<INDEX>(rseq, channel),
        };
        match step {
            Ok(Step::Done | Step::Changed) => {}
            Ok(Step::Aborted) => aborts += 1,
            Err(Full::Busy) => return lose::<INDEX>(rseq, channel),
            Err(Full::Unread(consumed)) => {
                let index = rseq.index::<INDEX>();
                let is_mine = || rseq.index::<INDEX>() == index;
                match wait::wait(channel, index, consumed, is_mine, &mut told) {
                    // If the ring is gone, the next attempt fails.
                    WaitOutcome::Retry | WaitOutcome::Gone => {}
                    WaitOutcome::NotAllowed => return lose::<INDEX>(rseq, channel),
                }
                rounds = 0;
            }
        }
        let result = match payload {
            // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
            // payload, as this function's caller promises.
            Payload::Words(words) => unsafe { record_words::<INDEX>(rseq, channel, id, words) },
            // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
            // payload, as this function's caller promises.
            Payload::Made { len, fill } => unsafe {
                record_made::<INDEX>(rseq, channel, id, len, fill)
            },
        };
        match result {
            Ok(()) => return Ok(()),
            Err(again) => refusal = again,
        }
    }
    lose::<INDEX>(rseq, channel)
}

/// The position of the next sub-buffer that may be begun after `head`.
///
/// It passes over places with writers of long records inside: these would write into records of the
/// new lap.
fn place(ring: &Ring<'_>, head: u64) -> Result<u64, Full> {
    let next = head.next_multiple_of(ring.subbuf_size);
    // Pairs with the store of `consumed`, by the kernel or the reader, after the reader has read
    // everything below: the stores from here on happen after those reads.
    let consumed = ring.control.consumed.load(Ordering::Acquire);
    // The last place is the one that `head` is in.
    for n in 0..ring.ring_size / ring.subbuf_size - 1 {
        let position = next + n * ring.subbuf_size;
        let end = position + ring.subbuf_size;
        if ring.mode != Mode::Overwrite && end.wrapping_sub(consumed) > ring.ring_size {
            return Err(Full::Unread(consumed));
        }
        let subbuf = ring.at::<LttSubbuf>(position);
        // SAFETY: as in `LongRecord::busy`. Pairs with the decrement in `record_made`.
        let busy = unsafe { AtomicU32::from_ptr(&raw mut (*subbuf).busy) }.load(Ordering::Acquire);
        if busy == 0 {
            return Ok(position);
        }
    }
    Err(Full::Busy)
}

/// Begins the next sub-buffer of this CPU's ring, unless the current one has room for a record of
/// `len` bytes.
fn begin_subbuf<const INDEX: i32>(rseq: Rseq, channel: &Channel, len: u64) -> Result<Step, Full> {
    let cpu = rseq.index::<INDEX>();
    let Some(ring) = channel.ring_at(cpu) else {
        return Ok(Step::Changed);
    };
    let head = ring.control.head.load(Ordering::Relaxed);
    let offset = head & (ring.subbuf_size - 1);
    if offset != 0 && offset + len <= ring.subbuf_size {
        return Ok(Step::Changed);
    }
    let position = place(&ring, head)?;
    if ring.prefault == Prefault::Ahead {
        prefault::next(ring.buffer, ring.ring_size, ring.subbuf_size, position);
    }
    let start = Start {
        epoch: ring.epoch,
        cpu,
        control: ring.control,
        head,
    };
    if ring.mode == Mode::Overwrite && position + ring.subbuf_size > ring.ring_size {
        let claimed = position + ring.subbuf_size - ring.ring_size;
        // SAFETY: `start` was made from `ring`.
        let step = unsafe { rseq::claim::<INDEX>(rseq, channel, &start, claimed) };
        if step != Step::Done {
            return Ok(step);
        }
        // Pairs with the reader's fence between its copy and its load of `claimed`: if the copy
        // contains a store from here on, the reader sees the claim.
        fence(Ordering::Release);
    }
    let mut unused = 0;
    let mut advance = Advance {
        start,
        word: if offset == 0 {
            &raw mut unused
        } else {
            ring.at(head)
        },
        word_id: LTT_ID_PAD.into(),
        full_time: &raw mut unused,
        second: &raw mut unused,
        second_word: 0,
        subbuf: ring.at(position),
        position,
        new_head: position + HEADER,
        time: 0,
    };
    // SAFETY: everything was made from `ring`. `head` is at the end of its sub-buffer, or the pad
    // word at `word` fills that. The sub-buffer at `position` may be overwritten: it was consumed,
    // or it was claimed above.
    let step = unsafe { advance_head::<INDEX>(rseq, channel, &mut advance) };
    note_time::<INDEX>(rseq, channel, &ring, step, &advance);
    if step == Step::Done
        && head != 0
        && let Some(reader_wakeup) = ring.reader_wakeup
    {
        // The reader may have moved `consumed` since; then it is awake.
        let consumed = ring.control.consumed.load(Ordering::Relaxed);
        reader_wakeup.subbuf_filled(ring.mode, position.wrapping_sub(consumed), ring.ring_size);
    }
    Ok(step)
}

/// Stores a full time stamp in this CPU's ring.
fn store_time<const INDEX: i32>(rseq: Rseq, channel: &Channel) -> Result<Step, Full> {
    let cpu = rseq.index::<INDEX>();
    let Some(ring) = channel.ring_at(cpu) else {
        return Ok(Step::Changed);
    };
    let head = ring.control.head.load(Ordering::Relaxed);
    let offset = head & (ring.subbuf_size - 1);
    if offset == 0 || offset + 16 > ring.subbuf_size {
        // The header of a sub-buffer has the full time, too.
        return begin_subbuf::<INDEX>(rseq, channel, 16);
    }
    let mut unused_word = 0;
    let mut unused = LttSubbuf::default();
    let mut advance = Advance {
        start: Start {
            epoch: ring.epoch,
            cpu,
            control: ring.control,
            head,
        },
        word: ring.at(head),
        word_id: LTT_ID_TIME.into(),
        full_time: ring.at(head + 8),
        second: &raw mut unused_word,
        second_word: 0,
        subbuf: &raw mut unused,
        position: 0,
        new_head: head + 16,
        time: 0,
    };
    // SAFETY: everything was made from `ring`, and the 16 bytes behind `head` lie in a sub-buffer
    // that was begun.
    let step = unsafe { advance_head::<INDEX>(rseq, channel, &mut advance) };
    note_time::<INDEX>(rseq, channel, &ring, step, &advance);
    Ok(step)
}

/// Stores the full time that the ring has in its control block, for the event path to compare with.
///
/// This comes after the commit: `time` may be older than the ring's full time, which costs a time
/// stamp too many, but never newer, as one would be missing. So no harm is done if others commit in
/// between, or if this fails.
fn note_time<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    ring: &Ring<'_>,
    step: Step,
    advance: &Advance,
) {
    if step == Step::Done {
        // SAFETY: epoch and control block are those of `ring`.
        let _ = unsafe {
            rseq::note_time::<INDEX>(rseq, channel, ring.epoch, ring.control, advance.time)
        };
    }
}

/// Counts a lost record in this CPU's ring, or in ring 0 if the thread has no ring.
pub(super) fn lose<const INDEX: i32>(rseq: Rseq, channel: &Channel) -> Result<(), Dropped> {
    let mut aborts = 0;
    for _ in 0..ROUNDS {
        let (ring, step) = match channel.ring_at(rseq.index::<INDEX>()) {
            Some(ring) => {
                // SAFETY: epoch and control block are those of `ring`.
                let step = unsafe { rseq::lose::<INDEX>(rseq, channel, ring.epoch, ring.control) };
                (ring, step)
            }
            None => {
                aborts = TRIES;
                (channel.ring_at(0).ok_or(Dropped::Closed)?, Step::Aborted)
            }
        };
        match step {
            Step::Done => return Err(Dropped::Lost),
            Step::Changed => {}
            Step::Aborted if aborts < TRIES => aborts += 1,
            Step::Aborted => {
                // Nothing compares the epoch outside of a sequence: if the slot gets another trace
                // just now, the loss is counted in that.
                ring.control.lost.fetch_add(1, Ordering::Relaxed);
                return Err(Dropped::Lost);
            }
        }
    }
    Err(Dropped::Closed)
}
