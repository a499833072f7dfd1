//! The algorithm of the shared protocol (D2), independent of where a ring lies.
//!
//! Several threads, and signal handlers that interrupt them, write into one ring. `head` is the
//! reserve position. A writer moves it by a compare-exchange, stores its record into the reserved
//! bytes, and adds the length to `committed` of the sub-buffer. No writer waits for another one. A
//! writer that sleeps or dies before the commit costs its own record; its sub-buffer's memory is
//! not reused as long as it is there.
//!
//! This file accesses rings through the traits [`Ring`] and [`Word`] only. So the very same code
//! runs in mapped memory, under Miri, and under loom (`loom/` in this repository includes it).
//!
//! # Places, and when they are quiescent
//!
//! A *place* is the memory of one sub-buffer, which each lap of the ring may use again. It is
//! quiescent if no writer is inside.
//!
//! `committed` of a place grows by exactly one sub-buffer's size each time that the place is used,
//! and is never reset. So it is a multiple of that size if, and only if, the place is quiescent:
//! either no writer has committed in it yet, or all of it is committed. Its remainder is the number
//! of committed bytes of the current sub-buffer.
//!
//! The last word of the header, [`ReuseState`], tells the two apart: it counts how often the place
//! was used. It also has the decision for a lap, which writers make before `head` goes there: to
//! use the place, or to skip it because a writer is inside. All writers follow the first decision.
//! Without that word, a writer might sleep after it moved `head` and before it stores the header,
//! and its place would look like one that is complete.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use usertrace_sys::uapi::{
    LTT_ID_LONG, LTT_ID_PAD, LTT_LONG_BUSY, LTT_LONG_DONE, LTT_LONG_ID_SHIFT, LTT_SUBBUF_MAGIC,
    LttSubbuf,
};

/// Length of a sub-buffer's header.
pub(crate) const HEADER: u64 = size_of::<LttSubbuf>() as u64;
/// Length of the two words in front of a record's payload.
pub(crate) const RECORD_HEADER: u64 = 16;

const POSITION: u64 = offset_of!(LttSubbuf, position) as u64;
const TIME: u64 = offset_of!(LttSubbuf, time) as u64;
const LOST: u64 = offset_of!(LttSubbuf, lost) as u64;
/// The word with the CPU or the thread, and the magic number.
const CPU: u64 = offset_of!(LttSubbuf, cpu) as u64;
const BASE: u64 = offset_of!(LttSubbuf, base) as u64;
const COMMITTED: u64 = offset_of!(LttSubbuf, committed) as u64;
const CONTIGUOUS: u64 = offset_of!(LttSubbuf, contiguous) as u64;
/// [`ReuseState`]: where the other protocol has `busy`.
const REUSE: u64 = offset_of!(LttSubbuf, busy) as u64;

/// Number of the lower bits of the time that a record's header word contains.
const HIGH_TIME: u32 = 48;

/// How often a writer tries again because other writers, or its own signal handlers, came first.
const ROUNDS: u32 = 100;

/// How often a writer waits for room while a writer that has not committed is in the reader's way.
const WAITS: u32 = 1000;

/// A 64-bit word of shared memory.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// A fence for words of this kind.
    fn fence(order: Ordering);
}

/// A ring as its writers see it.
pub(crate) trait Ring: Copy {
    type Word: Word;

    /// Words of the control block.
    fn head(&self) -> &Self::Word;
    fn lost(&self) -> &Self::Word;
    fn time(&self) -> &Self::Word;
    fn consumed(&self) -> &Self::Word;
    /// The `len` words from a position on, which is a multiple of 8. They lie in one sub-buffer.
    fn words(&self, position: u64, len: u64) -> &[Self::Word];
    /// Sizes in bytes, powers of two.
    fn subbuf_size(&self) -> u64;
    fn ring_size(&self) -> u64;
    /// Whether a new sub-buffer overwrites the oldest one, though that was not consumed. The answer
    /// may change at any time.
    fn overwrites(&self) -> bool;
    /// The writer that a sub-buffer's header names.
    fn writer(&self) -> u32;
    /// Reads the clock, after `head` was loaded.
    fn cycles(&self, head: u64) -> u64;
    /// Called when the calling thread has moved `head`.
    fn head_moved(&self, head: u64);
    /// Called before the sub-buffer at a position is begun.
    fn subbuf_begins(&self, position: u64);
    /// Called when all of a sub-buffer is committed.
    fn subbuf_filled(&self);
    /// Waits until `consumed` grows, as the ring is full, if writers are to wait.
    ///
    /// `quiescent`: no writer is inside the sub-buffer that the reader has to consume, so the
    /// reader does not wait for code that this thread interrupts. Otherwise it waits for a
    /// millisecond only.
    fn wait(&self, consumed: u64, quiescent: bool) -> WaitOutcome;

    /// The word at a position.
    #[inline(always)]
    fn word(&self, position: u64) -> &Self::Word {
        &self.words(position, 1)[0]
    }

    /// A word of the header at a position.
    #[inline(always)]
    fn field(&self, position: u64, field: u64) -> &Self::Word {
        &self.words(position, HEADER / 8)[field as usize / 8]
    }
}

/// The result of waiting for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// There may be room now.
    Retry,
    /// The writer must not wait.
    NotAllowed,
    /// The ring is gone: the channel was closed.
    Gone,
}

/// The record was not written. The ring counts it as lost, unless the ring is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostError;

/// The last word of a place's header: how often writers used the place, and whether the last lap
/// uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReuseState(u64);

impl ReuseState {
    const TAKEN: u64 = 1;
    const LAP_SHIFT: u32 = 1;
    const LAP_MASK: u64 = (1 << 31) - 1;
    const TAKES_SHIFT: u32 = 32;

    fn new(takes: u32, lap: u64, taken: bool) -> Self {
        Self(
            (u64::from(takes) << Self::TAKES_SHIFT)
                | (lap << Self::LAP_SHIFT)
                | if taken { Self::TAKEN } else { 0 },
        )
    }

    /// How often the place was used, modulo 2^32.
    fn takes(self) -> u32 {
        (self.0 >> Self::TAKES_SHIFT) as u32
    }

    /// The last lap for which writers decided.
    fn lap(self) -> u64 {
        self.0 >> Self::LAP_SHIFT & Self::LAP_MASK
    }

    /// Whether that lap uses the place.
    fn taken(self) -> bool {
        self.0 & Self::TAKEN != 0
    }

    /// The lap of a position, from 1 on: 0 means that writers have never decided about a place.
    fn lap_of(position: u64, ring_size: u64) -> u64 {
        (position / ring_size + 1) & Self::LAP_MASK
    }
}

/// What writers decided about a place for a lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// The lap uses the place. `committed`: its value at the start.
    Take { committed: u64 },
    /// The lap skips the place.
    Skip,
    /// They have not decided yet. `quiescent`: no writer is inside the place.
    Open {
        seen: ReuseState,
        committed: u64,
        quiescent: bool,
    },
    /// The lap is over: the caller has an old value of `head`.
    Over,
}

/// Why a record could not be reserved at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The writer must begin a sub-buffer, as `head` was this.
    NeedSubbuf { head: u64 },
    /// Another writer came first.
    Changed,
    /// There is no room. `quiescent`: as in [`Ring::wait`].
    Full { consumed: u64, quiescent: bool },
    /// Writers are inside all places that could be begun.
    Stuck,
}

/// The bytes of a record that a writer reserved by moving `head`.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    position: u64,
    len: u64,
    /// Read after `head` was loaded and before it was moved, so that times in a ring do not go
    /// back.
    time: u64,
}

/// A reserved record, which belongs to the caller until it is committed.
///
/// Dropping it commits it. If it was not completed, readers see a record without a payload.
#[derive(Debug)]
pub(crate) struct Reservation<R: Ring> {
    ring: R,
    reserved: Reserved,
    id: u16,
}

impl<R: Ring> Reservation<R> {
    /// The same reservation, with another view of the ring.
    pub(crate) fn seen_as<S: Ring>(self, see: impl FnOnce(R) -> S) -> Reservation<S> {
        let (ring, reserved, id) = (self.ring, self.reserved, self.id);
        // Or else it would be committed twice.
        std::mem::forget(self);
        Reservation {
            ring: see(ring),
            reserved,
            id,
        }
    }
}

/// The event path: writes a record if it fits into the current sub-buffer, and no other writer
/// comes first.
#[inline(always)]
pub(crate) fn try_write<R: Ring>(ring: R, id: u16, payload: &[u64]) -> Result<(), Refusal> {
    let reserved = try_reserve(ring, RECORD_HEADER + 8 * payload.len() as u64)?;
    let words = ring.words(reserved.position, reserved.len / 8);
    reserved.store_header(words, id);
    store_payload(words, payload);
    reserved.store_done(words, id);
    commit(ring, reserved.position, reserved.len);
    Ok(())
}

/// Writes a record, on the slow path if necessary.
pub(crate) fn write<R: Ring>(ring: R, id: u16, payload: &[u64]) -> Result<(), LostError> {
    let record = reserve(ring, id, payload.len() as u64)?;
    store_payload(record.words(), payload);
    record.complete();
    Ok(())
}

/// Stores the payload of the record in `words`.
#[inline(always)]
fn store_payload<W: Word>(words: &[W], payload: &[u64]) {
    // A record that its header describes has as many words.
    for (word, &value) in words.get(2..).unwrap_or_default().iter().zip(payload) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Reserves a record with a payload of `words` words, which the caller stores.
pub(crate) fn reserve<R: Ring>(ring: R, id: u16, words: u64) -> Result<Reservation<R>, LostError> {
    let len = RECORD_HEADER + 8 * words;
    let reserved = match try_reserve(ring, len) {
        Ok(reserved) => reserved,
        Err(refusal) => reserve_slowly(ring, len, refusal)?,
    };
    Ok(Reservation::new(ring, reserved, id))
}

impl Reserved {
    /// Stores the header words: from now on the length of the record is known.
    #[inline(always)]
    fn store_header<W: Word>(&self, words: &[W], id: u16) {
        if let [first, second, ..] = words {
            // No atomic read-modify-write from here to the commit.
            second.store(self.second_word(id) | LTT_LONG_BUSY, Ordering::Relaxed);
            // Release: a reader of a dead writer's record that finds this word finds the length.
            first.store(self.time << 16 | u64::from(LTT_ID_LONG), Ordering::Release);
        }
    }

    /// Marks the payload as complete.
    #[inline(always)]
    fn store_done<W: Word>(&self, words: &[W], id: u16) {
        if let [_, second, ..] = words {
            // Release: a reader of a dead writer's record that finds DONE finds the payload.
            second.store(self.second_word(id) | LTT_LONG_DONE, Ordering::Release);
        }
    }

    #[inline(always)]
    fn second_word(&self, id: u16) -> u64 {
        self.len | u64::from(id) << LTT_LONG_ID_SHIFT
    }
}

impl<R: Ring> Reservation<R> {
    fn new(ring: R, reserved: Reserved, id: u16) -> Self {
        let record = Self { ring, reserved, id };
        reserved.store_header(record.words(), id);
        record
    }

    /// All words of the record.
    fn words(&self) -> &[R::Word] {
        self.ring
            .words(self.reserved.position, self.reserved.len / 8)
    }

    /// The words of the payload, for the caller to store to.
    pub(crate) fn payload(&self) -> &[R::Word] {
        self.words().get(2..).unwrap_or_default()
    }

    /// Marks the payload as complete, and commits the record.
    pub(crate) fn complete(self) {
        self.reserved.store_done(self.words(), self.id);
    }
}

impl<R: Ring> Drop for Reservation<R> {
    fn drop(&mut self) {
        commit(self.ring, self.reserved.position, self.reserved.len);
    }
}

/// Adds to `committed` of the sub-buffer that `position` is in.
#[inline(always)]
fn commit<R: Ring>(ring: R, position: u64, len: u64) {
    let mask = ring.subbuf_size() - 1;
    // Release: pairs with the loads in `try_reserve`, in `load_place`, and of readers: a thread
    // that sees the sum sees the stores of all records in it. Additions by other writers in between
    // keep that true, as they are read-modify-write operations.
    let before = ring
        .field(position & !mask, COMMITTED)
        .fetch_add(len, Ordering::Release);
    if before.wrapping_add(len) & mask == 0 {
        ring.subbuf_filled();
    }
}

/// Reserves `len` bytes in the current sub-buffer, if they fit.
#[inline(always)]
fn try_reserve<R: Ring>(ring: R, len: u64) -> Result<Reserved, Refusal> {
    let mask = ring.subbuf_size() - 1;
    // Acquire: pairs with the compare-exchanges of the writers that moved it here. What they knew
    // of the places happened before the stores below: above all, that writers of the last lap have
    // left this place.
    let head = ring.head().load(Ordering::Acquire);
    let offset = head & mask;
    if offset == 0 || offset + len > ring.subbuf_size() {
        return Err(Refusal::NeedSubbuf { head });
    }
    let subbuf = head & !mask;
    // Acquire: pairs with `commit`.
    let committed = ring.field(subbuf, COMMITTED).load(Ordering::Acquire);
    let time = ring.cycles(head);
    // Relaxed: an old value does no more harm than a late store, see `begin_subbuf`.
    if (time ^ ring.time().load(Ordering::Relaxed)) >> HIGH_TIME != 0 {
        return Err(Refusal::NeedSubbuf { head });
    }
    advance(ring, head, head.wrapping_add(len))?;
    if committed & mask == offset {
        // All reserved bytes below are committed, so this writer is alone. Stores of this word are
        // in order: the next writer that finds the same finds this record committed. Release: pairs
        // with the load of a reader, which may read up to there.
        ring.field(subbuf, CONTIGUOUS)
            .store(head, Ordering::Release);
    }
    Ok(Reserved {
        position: head,
        len,
        time,
    })
}

/// Moves the reserve position.
#[inline(always)]
fn advance<R: Ring>(ring: R, from: u64, to: u64) -> Result<(), Refusal> {
    // Release: pairs with the load in `try_reserve`, and the one in `begin_subbuf`.
    if ring
        .head()
        .compare_exchange(from, to, Ordering::Release, Ordering::Relaxed)
        .is_err()
    {
        return Err(Refusal::Changed);
    }
    // Pairs with the fence of a reader that copies a ring in overwrite mode. If it copied a store
    // from here on, it sees the new head, and knows that the oldest part of its copy is invalid.
    R::Word::fence(Ordering::Release);
    ring.head_moved(to);
    Ok(())
}

/// The slow path: begins a sub-buffer or waits, until `len` bytes are reserved or lost.
#[cold]
#[inline(never)]
fn reserve_slowly<R: Ring>(ring: R, len: u64, mut refusal: Refusal) -> Result<Reserved, LostError> {
    if len > ring.subbuf_size() - HEADER {
        return Err(count_lost(ring));
    }
    let mut rounds = 0;
    let (mut before, mut waits) = (u64::MAX, 0);
    while rounds < ROUNDS {
        let reserved = match refusal {
            Refusal::NeedSubbuf { head } => begin_subbuf(ring, head, len),
            Refusal::Changed => try_reserve(ring, len),
            Refusal::Full {
                consumed,
                quiescent,
            } => {
                match ring.wait(consumed, quiescent) {
                    WaitOutcome::Retry => {}
                    WaitOutcome::NotAllowed => break,
                    WaitOutcome::Gone => return Err(LostError),
                }
                // The writer waits as long as the reader goes on, or can go on. A writer in the
                // reader's way may be the one that this thread interrupts.
                waits = if quiescent || consumed != before {
                    0
                } else {
                    waits + 1
                };
                if waits == WAITS {
                    break;
                }
                (before, rounds) = (consumed, 0);
                try_reserve(ring, len)
            }
            Refusal::Stuck => break,
        };
        match reserved {
            Ok(reserved) => return Ok(reserved),
            Err(again) => refusal = again,
        }
        rounds += 1;
    }
    Err(count_lost(ring))
}

/// Counts a lost record.
pub(crate) fn count_lost<R: Ring>(ring: R) -> LostError {
    // Relaxed: a count, that orders nothing.
    ring.lost().fetch_add(1, Ordering::Relaxed);
    LostError
}

/// Begins a sub-buffer, unless `head` is at the start of one, or in one that names this writer. So
/// the next record is in a sub-buffer whose header names this writer.
#[cold]
#[inline(never)]
pub(crate) fn begin_own_subbuf<R: Ring>(ring: R) -> Result<(), LostError> {
    let mask = ring.subbuf_size() - 1;
    for _ in 0..ROUNDS {
        // Acquire: as in `try_reserve`.
        let head = ring.head().load(Ordering::Acquire);
        if head & mask == 0 || is_named(ring, head & !mask) {
            return Ok(());
        }
        match begin_subbuf(ring, head, 0) {
            Ok(_) => return Ok(()),
            Err(Refusal::NeedSubbuf { .. } | Refusal::Changed) => {}
            Err(Refusal::Full { .. } | Refusal::Stuck) => return Err(LostError),
        }
    }
    Err(LostError)
}

/// Whether the header of the sub-buffer at a position names this writer. If its writer died before
/// it stored the header, the header is that of an earlier lap.
fn is_named<R: Ring>(ring: R, position: u64) -> bool {
    // Acquire: pairs with the stores in `begin_subbuf`, of which this one is the last.
    ring.field(position, POSITION).load(Ordering::Acquire) == position
        && ring.field(position, CPU).load(Ordering::Relaxed) == cpu_and_magic(ring.writer())
}

/// Reserves at once the rest of the current sub-buffer as padding, the header of the next one, and
/// `len` bytes, if `head` is still the value that the caller loaded with acquire semantics.
fn begin_subbuf<R: Ring>(ring: R, head: u64, len: u64) -> Result<Reserved, Refusal> {
    let size = ring.subbuf_size();
    let offset = head & (size - 1);
    let old = head - offset;
    // Acquire: pairs with `commit`.
    let old_committed = ring.field(old, COMMITTED).load(Ordering::Acquire);
    let (position, base) = match find_place(ring, head) {
        // Acquire: as in `try_reserve`. Adding 0 always reads the newest value. If `head` is old,
        // places that other writers have begun since look as if writers of the last lap were
        // inside.
        Err(Refusal::Full { .. } | Refusal::Stuck)
            if ring.head().fetch_add(0, Ordering::Acquire) != head =>
        {
            return Err(Refusal::Changed);
        }
        found => found?,
    };
    ring.subbuf_begins(position);
    let time = ring.cycles(head);
    let record = position.wrapping_add(HEADER);
    advance(ring, head, record.wrapping_add(len))?;

    if offset != 0 {
        if old_committed & (size - 1) == offset {
            // As in `try_reserve`.
            ring.field(old, CONTIGUOUS).store(head, Ordering::Release);
        }
        ring.word(head)
            .store(time << 16 | u64::from(LTT_ID_PAD), Ordering::Relaxed);
        commit(ring, head, size - offset);
    }
    // After the move of `head`: a writer that loads this time also finds `head` moved, as records
    // with these upper bits must come behind the header that has them. If another writer that
    // begins a sub-buffer replaces it by an older time, one sub-buffer too many is begun at worst.
    ring.time().store(time, Ordering::Relaxed);
    let lost = ring.lost().load(Ordering::Relaxed);
    for (field, value) in [
        (TIME, time),
        (LOST, lost),
        (CPU, cpu_and_magic(ring.writer())),
        (BASE, base),
        // Only the header is committed. No other writer stores this word before the record that is
        // reserved here is committed.
        (CONTIGUOUS, record),
        // Last: a reader that finds it finds the whole header. In the first sub-buffer of a ring,
        // the position is 0 from the beginning; there, `contiguous` shows that the header is whole.
        (POSITION, position),
    ] {
        // Release: pairs with the loads of a reader, see above.
        ring.field(position, field).store(value, Ordering::Release);
    }
    commit(ring, position, HEADER);
    Ok(Reserved {
        position: record,
        len,
        time,
    })
}

/// Two 32-bit fields side by side, as one word.
fn cpu_and_magic(cpu: u32) -> u64 {
    let (cpu, magic) = (u64::from(cpu), u64::from(LTT_SUBBUF_MAGIC));
    if cfg!(target_endian = "little") {
        cpu | magic << 32
    } else {
        magic | cpu << 32
    }
}

/// Finds the place for the next sub-buffer after `head`, and decides about it and the places before
/// it. Returns its position, and its value of `committed`.
fn find_place<R: Ring>(ring: R, head: u64) -> Result<(u64, u64), Refusal> {
    let size = ring.subbuf_size();
    let first = head.wrapping_add(size - 1) & !(size - 1);
    // All but the place that `head` is in.
    let places = ring.ring_size() / size - 1;
    for n in 0..places {
        let position = first.wrapping_add(n * size);
        // Acquire: pairs with the reader's store: stores below happen after its reads. Loaded
        // before the decision, as writers decide to use a place only if it may be overwritten.
        let consumed = ring.consumed().load(Ordering::Acquire);
        if !ring.overwrites()
            && position.wrapping_add(size).wrapping_sub(consumed) > ring.ring_size()
        {
            let oldest = position.wrapping_sub(ring.ring_size());
            // If writers decided to use the place, while the ring overwrote, it was quiescent then.
            let is_decided = matches!(decision(ring, position), Decision::Take { .. });
            return Err(Refusal::Full {
                consumed,
                quiescent: is_decided || load_place(ring, oldest).2,
            });
        }
        match decision(ring, position) {
            Decision::Take { .. }
            | Decision::Open {
                quiescent: true, ..
            } => {
                // Decide in the order of positions, and about earlier places only now that there is
                // one to use. A decision to skip a place is final: with no usable place behind it,
                // `head` could never move.
                for before in 0..n {
                    let position = first.wrapping_add(before * size);
                    if let Some(committed) = decide(ring, position)? {
                        return Ok((position, committed));
                    }
                }
                return match decide(ring, position)? {
                    Some(committed) => Ok((position, committed)),
                    // A writer that looked before the place was quiescent decided to skip it: it
                    // found another one behind it.
                    None => Err(Refusal::Changed),
                };
            }
            Decision::Skip
            | Decision::Open {
                quiescent: false, ..
            } => {}
            Decision::Over => return Err(Refusal::Changed),
        }
    }
    Err(Refusal::Stuck)
}

/// Loads the state of a place: the last decision, `committed`, and whether it is quiescent.
fn load_place<R: Ring>(ring: R, position: u64) -> (ReuseState, u64, bool) {
    let size = ring.subbuf_size();
    // Acquire: pairs with the compare-exchange in `decide`.
    let seen = ReuseState(ring.field(position, REUSE).load(Ordering::Acquire));
    // Acquire: pairs with `commit`: the stores of all writers in the place happened before, if it
    // is quiescent. Loaded after `seen`: if the place was used again in between, `committed` is not
    // less than `seen` implies.
    let committed = ring.field(position, COMMITTED).load(Ordering::Acquire);
    let quiescent = committed & (size - 1) == 0 && (committed / size) as u32 == seen.takes();
    (seen, committed, quiescent)
}

/// What writers decided about the place for the sub-buffer at `position`.
fn decision<R: Ring>(ring: R, position: u64) -> Decision {
    let lap = ReuseState::lap_of(position, ring.ring_size());
    let (seen, committed, quiescent) = load_place(ring, position);
    if seen.lap() == lap {
        return if seen.taken() {
            Decision::Take { committed }
        } else {
            Decision::Skip
        };
    }
    // Lap numbers wrap: half of them are in the past.
    if lap.wrapping_sub(seen.lap()) & ReuseState::LAP_MASK > ReuseState::LAP_MASK / 2 {
        return Decision::Over;
    }
    Decision::Open {
        seen,
        committed,
        quiescent,
    }
}

/// Decides whether the lap of `position` uses the place, unless another writer decided before.
/// Returns the value of `committed` if it does; none if the lap skips the place.
fn decide<R: Ring>(ring: R, position: u64) -> Result<Option<u64>, Refusal> {
    let Decision::Open {
        seen,
        committed,
        quiescent,
    } = decision(ring, position)
    else {
        return final_decision(ring, position);
    };
    let lap = ReuseState::lap_of(position, ring.ring_size());
    let takes = seen.takes().wrapping_add(u32::from(quiescent));
    // Release: pairs with the load in `load_place`: writers that follow the decision see that the
    // place is quiescent, and the stores of its last writers. The first decision holds.
    let first = ring
        .field(position, REUSE)
        .compare_exchange(
            seen.0,
            ReuseState::new(takes, lap, quiescent).0,
            Ordering::Release,
            Ordering::Relaxed,
        )
        .is_ok();
    if first {
        Ok(quiescent.then_some(committed))
    } else {
        final_decision(ring, position)
    }
}

/// The decision about a place, which another writer made.
fn final_decision<R: Ring>(ring: R, position: u64) -> Result<Option<u64>, Refusal> {
    match decision(ring, position) {
        Decision::Take { committed } => Ok(Some(committed)),
        Decision::Skip => Ok(None),
        Decision::Open { .. } | Decision::Over => Err(Refusal::Changed),
    }
}
