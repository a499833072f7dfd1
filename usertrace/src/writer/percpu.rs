//! Rings of a CPU, or of a concurrency id, written by restartable sequences: all that a sequence
//! leaves to be done.
//!
//! `INDEX` is where `struct rseq` has the number of the ring: `CPU_ID`, or [`MM_CID`]. What follows
//! speaks of CPUs. A concurrency id is as good: no two threads of a process have the same one at
//! the same time, and a sequence is aborted before another thread gets its thread's one. (From the
//! thread that had it, on whatever CPU, to the one that gets it, the kernel orders memory, as it
//! takes the one off its CPU and puts the other one on.)

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
use super::reserve_commit::Waited;
use super::ring_index::{CPU_ID_WITH_CONTEXT, MM_CID, MM_CID_WITH_CONTEXT, NO_INDEX};
use super::rseq::{self, Advance, Rseq, Start, Step, TRIES};
use super::{thread, wait};
use crate::clock::{self, Source};

/// How often the slow path looks again before it gives a record up. Each time that it must, another
/// writer on the same CPU came first.
const ROUNDS: u32 = 100;

/// Length of the header of a sub-buffer.
const HEADER: u64 = size_of::<LttSubbuf>() as u64;

/// Length of the two words in front of a long record's payload.
const LONG_HEADER: u64 = 16;

/// Why a sub-buffer cannot be begun.
enum Full {
    /// The reader has not made room, as `consumed` was this.
    Unread(u64),
    /// Writers of long records are in all places that it could have.
    Busy,
}

/// Whether records of a channel have the time that is read before their sequence, and not in it: a
/// sequence can call nothing. What is known when this is compiled is no: the event path asks
/// nothing.
///
/// Then `head` is read before the clock, and compared in the sequence, so that times in a ring
/// never go back. And all records are long ones, as those are written by a sequence that compares
/// it.
#[inline(always)]
fn reads_clock_before<const INDEX: i32>(channel: &Channel) -> bool {
    (INDEX == CPU_ID_WITH_CONTEXT || INDEX == MM_CID_WITH_CONTEXT)
        && channel.clock() == Source::Monotonic
}

/// Does what [`rseq::advance`] does, with the time of the channel's clock. Whatever it starts from
/// was read before.
///
/// # Safety
/// As [`rseq::advance`]'s.
#[inline(always)]
unsafe fn advance<const INDEX: i32>(rseq: Rseq, channel: &Channel, advance: &mut Advance) -> Step {
    if reads_clock_before::<INDEX>(channel) {
        // The clock is not read before what this starts from.
        fence(Ordering::Acquire);
        advance.time = clock::monotonic();
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        return unsafe { rseq::advance_at::<INDEX>(rseq, channel, advance) };
    }
    // SAFETY: likewise.
    unsafe { rseq::advance::<INDEX>(rseq, channel, advance) }
}

/// Writes a record, if that takes nothing but to store it.
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
    // Of a thread that has no registered area, the sequence would find id 0. One that has, keeps it
    // until it ends.
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

/// Writes a record that is too long for one sequence: reserves it in one, and fills it outside.
///
/// Who dies in between leaves a record whose length is known.
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
    let cpu = rseq.index::<INDEX>();
    let ring = channel.ring_at(cpu).filter(|_| channel.is_by::<INDEX>());
    // Pairs with the store after the event was described: it was, in this opening of the channel.
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
    // If the upper bits change between this and the sequence, readers see that by themselves, as in
    // a short record.
    let now = if reads_clock_before::<INDEX>(channel) {
        clock::monotonic()
    } else {
        clock::cycles()
    };
    if (ring.control.time.load(Ordering::Relaxed) ^ now) >> 48 != 0 {
        return Err(Refusal::NeedTime);
    }
    let Some(_entered) = channel.enter(ring.epoch) else {
        return Err(Refusal::Again);
    };
    let subbuf = ring.at::<LttSubbuf>(head - offset);
    // SAFETY: inside the ring, and aligned as `head - offset` is. Everybody accesses this field
    // atomically.
    let busy = unsafe { AtomicU32::from_ptr(&raw mut (*subbuf).busy) };
    // Before the reservation: whoever begins the next sub-buffer on this CPU, after it, sees it. It
    // may be that `head` is a lap further by now; then the place is taken for a busy one without
    // need.
    busy.fetch_add(1, Ordering::Relaxed);
    let header = record_len | u64::from(id) << LTT_LONG_ID_SHIFT;
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
        word_id: LTT_ID_LONG.into(),
        full_time: &raw mut unused_word,
        second: ring.at(head + 8),
        second_word: header | LTT_LONG_BUSY,
        subbuf: &raw mut unused,
        position: 0,
        new_head: head + record_len,
        time: 0,
    };
    // SAFETY: everything was made from `ring`, and `record_len` bytes behind `head` lie in a
    // sub-buffer that was begun.
    let step = unsafe { self::advance::<INDEX>(rseq, channel, &mut advance) };
    if step == Step::Done {
        thread::with(|thread| {
            // Not one instruction: a signal handler that comes in between leaves the number as it
            // was.
            let inside = thread.inside.load(Ordering::Relaxed);
            thread.inside.store(inside + 1, Ordering::Relaxed);
            // SAFETY: the record is this writer's until it says that it is done, and nobody begins
            // a sub-buffer at a place that is busy.
            let mut cursor =
                unsafe { Cursor::new(ring.at(head + LONG_HEADER), payload_len as usize) };
            fill(&mut cursor);
            cursor.finish();
            // SAFETY: the record's second word, which readers in other processes access atomically.
            let second = unsafe { AtomicU64::from_ptr(ring.at(head + 8)) };
            // Pairs with the reader's load: who sees DONE sees the payload.
            second.store(header | LTT_LONG_DONE, Ordering::Release);
            thread.inside.store(inside, Ordering::Relaxed);
        });
    }
    // Pairs with the load in `place`: what was stored here comes before what the next lap stores.
    busy.fetch_sub(1, Ordering::Release);
    match step {
        Step::Done => {
            // A reader that found it busy, in a sub-buffer that was filled meanwhile, waits for
            // this.
            let now = ring.control.head.load(Ordering::Relaxed);
            if let Some(reader_wakeup) = ring.reader_wakeup
                && (now ^ head) & !(ring.subbuf_size - 1) != 0
            {
                reader_wakeup.notify();
            }
            Ok(())
        }
        Step::Changed => Err(Refusal::Again),
        Step::Aborted => Err(Refusal::Aborted),
    }
}

/// Writes a record, whatever it takes. `refusal` is why the event path could not.
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
                    // Not this channel's fault: the thread has no CPU number, or one that no ring
                    // exists for.
                    return lose::<INDEX>(rseq, channel);
                }
                // It has one now, by this or by a signal handler that came in between.
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
                    // If it is gone, the next try says so.
                    Waited::Again | Waited::Gone => {}
                    Waited::No => return lose::<INDEX>(rseq, channel),
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

/// Where the sub-buffer after `head` may be begun.
///
/// A place that the writer of a long record has not left is passed over: it would write into the
/// new lap's records.
fn place(ring: &Ring<'_>, head: u64) -> Result<u64, Full> {
    let next = head.next_multiple_of(ring.subbuf_size);
    // Pairs with the store of whoever keeps `consumed`, after the consumer said that it has read
    // everything below: what is stored from here on comes after those reads.
    let consumed = ring.control.consumed.load(Ordering::Acquire);
    // The last place is the one that `head` is in.
    for n in 0..ring.ring_size / ring.subbuf_size - 1 {
        let position = next + n * ring.subbuf_size;
        let end = position + ring.subbuf_size;
        if ring.mode != Mode::Overwrite && end.wrapping_sub(consumed) > ring.ring_size {
            return Err(Full::Unread(consumed));
        }
        let subbuf = ring.at::<LttSubbuf>(position);
        // SAFETY: as in `record_made`. Pairs with the decrement there.
        let busy = unsafe { AtomicU32::from_ptr(&raw mut (*subbuf).busy) }.load(Ordering::Acquire);
        if busy == 0 {
            return Ok(position);
        }
    }
    Err(Full::Busy)
}

/// Begins the next sub-buffer of this CPU's ring, unless the present one has room for a record of
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
        // Pairs with the reader's fence between its copy and its load of `claimed`: if the copy has
        // anything that is stored from here on, the reader sees the claim.
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
    // SAFETY: everything was made from `ring`. `head` is not below the end of its sub-buffer,
    // unless it is padded, and the sub-buffer at `position` may be overwritten: nobody reads it
    // (`consumed`), or it was claimed.
    let step = unsafe { self::advance::<INDEX>(rseq, channel, &mut advance) };
    note_time::<INDEX>(rseq, channel, &ring, step, &advance);
    if step == Step::Done
        && head != 0
        && let Some(reader_wakeup) = ring.reader_wakeup
    {
        // `consumed` may have been moved since; then the reader is awake.
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
        // Beginning a sub-buffer stores the full time, too.
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
    let step = unsafe { self::advance::<INDEX>(rseq, channel, &mut advance) };
    note_time::<INDEX>(rseq, channel, &ring, step, &advance);
    Ok(step)
}

/// Notes the full time that was stored in the ring, for the event path to compare with.
///
/// After the commit, not before: `time` may be older than what the ring has (then one time stamp
/// too many is stored), but must not be newer (one would be missing). So it does no harm either if
/// others commit between the two, or if it is not done.
fn note_time<const INDEX: i32>(
    rseq: Rseq,
    channel: &Channel,
    ring: &Ring<'_>,
    step: Step,
    advance: &Advance,
) {
    if step == Step::Done {
        // SAFETY: all is of `ring`.
        let _ = unsafe {
            rseq::note_time::<INDEX>(rseq, channel, ring.epoch, ring.control, advance.time)
        };
    }
}

/// Counts a lost record in this CPU's ring; a thread that has none counts in ring 0.
fn lose<const INDEX: i32>(rseq: Rseq, channel: &Channel) -> Result<(), Dropped> {
    let mut aborts = 0;
    for _ in 0..ROUNDS {
        let (ring, step) = match channel.ring_at(rseq.index::<INDEX>()) {
            Some(ring) => {
                // SAFETY: all is of `ring`.
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
                // Without a sequence nothing compares the epoch: if the slot gets another trace
                // just now, that one has the loss.
                ring.control.lost.fetch_add(1, Ordering::Relaxed);
                return Err(Dropped::Lost);
            }
        }
    }
    Err(Dropped::Closed)
}
