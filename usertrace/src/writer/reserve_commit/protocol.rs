//! The algorithm of the shared protocol (D2), without a word about where a ring lies.
//!
//! Several threads, and signal handlers in the middle of them, write into one ring. `head` is the
//! reserve position. A writer moves it by a compare-exchange, stores its record into what it has
//! reserved, and adds the length to `committed` of the sub-buffer. Nobody waits for anybody: a
//! writer that sleeps or dies in the middle costs its own record, and its place in the ring for as
//! long as it is there.
//!
//! This file knows rings by the traits [`Ring`] and [`Word`] only, so that the very same code runs
//! in mapped memory, under Miri, and under loom (`loom/` in this repository includes it).
//!
//! # What the words say
//!
//! `committed` of a place grows by exactly one sub-buffer's size each time that the place is used,
//! and is never set back. So it is a multiple of that size if, and only if, nobody is in the place:
//! either nobody has begun to commit in it, or all of it is committed. And with its remainder alone
//! a writer knows how much of the present sub-buffer is committed.
//!
//! Which of the two it is, the last word of the header, [`Place`], says: how often the place was
//! taken. It also says what was decided for a position before `head` went there: to take the place,
//! or to pass it over as one that a writer has not left. All writers follow the first decision.
//! (Without it, a place whose header is yet to be stored by a writer that sleeps since it moved
//! `head` would look like one that is whole.)

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use usertrace_sys::uapi::{
    LTT_ID_LONG, LTT_ID_PAD, LTT_LONG_BUSY, LTT_LONG_DONE, LTT_LONG_ID_SHIFT, LTT_SUBBUF_MAGIC,
    LttSubbuf,
};

/// Header of a sub-buffer.
pub(crate) const HEADER: u64 = size_of::<LttSubbuf>() as u64;
/// Both words in front of a record's payload.
pub(crate) const RECORD_HEADER: u64 = 16;

const POSITION: u64 = offset_of!(LttSubbuf, position) as u64;
const TIME: u64 = offset_of!(LttSubbuf, time) as u64;
const LOST: u64 = offset_of!(LttSubbuf, lost) as u64;
/// The CPU or the thread, and the magic number.
const CPU: u64 = offset_of!(LttSubbuf, cpu) as u64;
const BASE: u64 = offset_of!(LttSubbuf, base) as u64;
const COMMITTED: u64 = offset_of!(LttSubbuf, committed) as u64;
const CONTIGUOUS: u64 = offset_of!(LttSubbuf, contiguous) as u64;
/// [`Place`]: where the other protocol has `busy`.
const PLACE: u64 = offset_of!(LttSubbuf, busy) as u64;

/// Bits that a record's header word does not have of the time.
const HIGH_TIME: u32 = 48;

/// How often a writer tries again because others, or signal handlers in the middle of it, came
/// first.
const ROUNDS: u32 = 100;

/// How often a writer waits for room that a reader cannot make because a writer is in its way.
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

/// A ring, as its writers see it.
pub(crate) trait Ring: Copy {
    type Word: Word;

    /// Words of the control block.
    fn head(&self) -> &Self::Word;
    fn lost(&self) -> &Self::Word;
    fn time(&self) -> &Self::Word;
    fn consumed(&self) -> &Self::Word;
    /// The words from a position on, which is a multiple of 8; they end with a sub-buffer at the
    /// latest.
    fn words(&self, position: u64, len: u64) -> &[Self::Word];
    /// Powers of two.
    fn subbuf_size(&self) -> u64;
    fn ring_size(&self) -> u64;
    /// The oldest sub-buffer makes room for a new one, whether it was consumed or not. It may be
    /// otherwise each time that it is asked.
    fn overwrites(&self) -> bool;
    /// Whom a sub-buffer's header names as its writer.
    fn writer(&self) -> u32;
    /// Reads the clock, after `head` was loaded.
    fn cycles(&self, head: u64) -> u64;
    /// The calling thread has moved `head`.
    fn moved(&self, head: u64);
    /// The sub-buffer at a position is to be begun.
    fn begins(&self, position: u64);
    /// A sub-buffer was filled.
    fn filled(&self);
    /// The ring is full, as `consumed` was `consumed`: waits for it to grow, if writers are to
    /// wait. `left`: nobody is in the sub-buffer that is to make room, so nothing that this thread
    /// may be in the middle of keeps the reader from it. If not, it waits for a millisecond.
    fn wait(&self, consumed: u64, left: bool) -> Waited;

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

/// What became of waiting for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There may be room.
    Again,
    /// It is not to be waited for.
    No,
    /// The ring is not there any more.
    Gone,
}

/// The record was not written: counted as lost, if the ring is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

/// What was decided about a place: the last word of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u64);

impl Place {
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

    /// How often the place was taken, modulo 2^32.
    fn takes(self) -> u32 {
        (self.0 >> Self::TAKES_SHIFT) as u32
    }

    /// The last lap that something was decided for.
    fn lap(self) -> u64 {
        self.0 >> Self::LAP_SHIFT & Self::LAP_MASK
    }

    /// It was decided to take it.
    fn taken(self) -> bool {
        self.0 & Self::TAKEN != 0
    }

    /// The lap that a position is in; 0 is for places about which nothing was decided ever.
    fn lap_of(position: u64, ring_size: u64) -> u64 {
        (position / ring_size + 1) & Self::LAP_MASK
    }
}

/// What is known of a place, for a lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is to be taken: `committed` is what it starts from.
    Take { committed: u64 },
    /// It is to be passed over.
    Pass,
    /// Nothing was decided yet. `left`: nobody is in the place.
    Open {
        seen: Place,
        committed: u64,
        left: bool,
    },
    /// The lap is over: whoever asks looked at an old `head`.
    Over,
}

/// Why a record could not be reserved at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A sub-buffer is to be begun, as `head` was this.
    NeedSubbuf { head: u64 },
    /// Another writer came first.
    Changed,
    /// There is no room. `left`: as in [`Ring::wait`].
    Full { consumed: u64, left: bool },
    /// Writers are in all places that could be begun.
    Stuck,
}

/// What `head` was moved over for a record.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    position: u64,
    len: u64,
    /// Read before `head` was moved, and after it came where it was: times in a ring do not go
    /// back.
    time: u64,
}

/// A record that is the caller's, until it is committed.
///
/// To drop it commits it as it is: as a record that has no payload, if the record was not
/// completed.
#[derive(Debug)]
pub(crate) struct Reservation<R: Ring> {
    ring: R,
    reserved: Reserved,
    id: u16,
}

impl<R: Ring> Reservation<R> {
    /// The same, of the same ring, which is seen in another way from now on.
    pub(crate) fn seen_as<S: Ring>(self, see: impl FnOnce(R) -> S) -> Reservation<S> {
        let (ring, reserved, id) = (self.ring, self.reserved, self.id);
        // It is not committed twice.
        std::mem::forget(self);
        Reservation {
            ring: see(ring),
            reserved,
            id,
        }
    }
}

/// The event path: writes a record, if it fits into the present sub-buffer, and nobody else comes
/// first.
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

/// Writes a record.
pub(crate) fn write<R: Ring>(ring: R, id: u16, payload: &[u64]) -> Result<(), Lost> {
    let record = reserve(ring, id, payload.len() as u64)?;
    store_payload(record.words(), payload);
    record.complete();
    Ok(())
}

/// Stores the payload of the record that `words` are.
#[inline(always)]
fn store_payload<W: Word>(words: &[W], payload: &[u64]) {
    for (word, &value) in words.iter().skip(2).zip(payload) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Reserves a record with a payload of so many words, for the caller to store.
pub(crate) fn reserve<R: Ring>(ring: R, id: u16, words: u64) -> Result<Reservation<R>, Lost> {
    let len = RECORD_HEADER + 8 * words;
    let reserved = match try_reserve(ring, len) {
        Ok(reserved) => reserved,
        Err(refusal) => reserve_slowly(ring, len, refusal)?,
    };
    Ok(Reservation::new(ring, reserved, id))
}

impl Reserved {
    /// Makes what was reserved, `words`, a record whose length is known.
    #[inline(always)]
    fn store_header<W: Word>(&self, words: &[W], id: u16) {
        if let [first, second, ..] = words {
            // Plain stores, from here to the commit.
            second.store(self.second_word(id) | LTT_LONG_BUSY, Ordering::Relaxed);
            // Release: a reader of what a death left, who finds this word, finds the length.
            first.store(self.time << 16 | u64::from(LTT_ID_LONG), Ordering::Release);
        }
    }

    /// Says that the payload is there.
    #[inline(always)]
    fn store_done<W: Word>(&self, words: &[W], id: u16) {
        if let [_, second, ..] = words {
            // Release: a reader of what a death left, who finds DONE, finds the payload.
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

    /// All words of it.
    fn words(&self) -> &[R::Word] {
        self.ring
            .words(self.reserved.position, self.reserved.len / 8)
    }

    /// The words of the payload, to be stored to.
    pub(crate) fn payload(&self) -> &[R::Word] {
        self.words().get(2..).unwrap_or_default()
    }

    /// Says that the payload is there, and commits.
    pub(crate) fn complete(self) {
        self.reserved.store_done(self.words(), self.id);
    }
}

impl<R: Ring> Drop for Reservation<R> {
    fn drop(&mut self) {
        commit(self.ring, self.reserved.position, self.reserved.len);
    }
}

/// Adds to what is committed of the sub-buffer that `position` is in.
#[inline(always)]
fn commit<R: Ring>(ring: R, position: u64, len: u64) {
    let mask = ring.subbuf_size() - 1;
    // Release: pairs with the loads in `try_reserve`, in `inspect`, and of readers: who sees the
    // sum sees all the stores that it stands for. (Additions by others in between keep that up:
    // they are read-modify-write operations.)
    let before = ring
        .field(position & !mask, COMMITTED)
        .fetch_add(len, Ordering::Release);
    if before.wrapping_add(len) & mask == 0 {
        ring.filled();
    }
}

/// Reserves so many bytes in the present sub-buffer, if they fit there.
#[inline(always)]
fn try_reserve<R: Ring>(ring: R, len: u64) -> Result<Reserved, Refusal> {
    let mask = ring.subbuf_size() - 1;
    // Acquire: pairs with the compare-exchanges of those who moved it here. What they knew of the
    // places, above all that those of the round before have left this one, holds for the stores
    // below, too.
    let head = ring.head().load(Ordering::Acquire);
    let offset = head & mask;
    if offset == 0 || offset + len > ring.subbuf_size() {
        return Err(Refusal::NeedSubbuf { head });
    }
    let subbuf = head & !mask;
    // Acquire: pairs with `commit`.
    let committed = ring.field(subbuf, COMMITTED).load(Ordering::Acquire);
    let time = ring.cycles(head);
    // Relaxed: an old value is no worse than one that nobody has stored yet, see `begin_subbuf`.
    if (time ^ ring.time().load(Ordering::Relaxed)) >> HIGH_TIME != 0 {
        return Err(Refusal::NeedSubbuf { head });
    }
    advance(ring, head, head.wrapping_add(len))?;
    if committed & mask == offset {
        // All that is reserved below is committed, so this writer is alone, and the stores of this
        // word are one after the other: the next one who finds it so finds this record committed.
        // Release: pairs with the load of a reader, who may read up to there.
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
    // Pairs with the fence of a reader that copies a ring which overwrites: if it has copied
    // anything that is stored from here on, it finds the head moved, and knows that the copy's
    // oldest part is no more.
    R::Word::fence(Ordering::Release);
    ring.moved(to);
    Ok(())
}

/// Does what it takes to reserve so many bytes.
#[cold]
#[inline(never)]
fn reserve_slowly<R: Ring>(ring: R, len: u64, mut refusal: Refusal) -> Result<Reserved, Lost> {
    if len > ring.subbuf_size() - HEADER {
        return Err(lose(ring));
    }
    let mut rounds = 0;
    let (mut before, mut waits) = (u64::MAX, 0);
    while rounds < ROUNDS {
        let reserved = match refusal {
            Refusal::NeedSubbuf { head } => begin_subbuf(ring, head, len),
            Refusal::Changed => try_reserve(ring, len),
            Refusal::Full { consumed, left } => {
                match ring.wait(consumed, left) {
                    Waited::Again => {}
                    Waited::No => break,
                    Waited::Gone => return Err(Lost),
                }
                // As long as the reader goes on, or can, it is waited for. If a writer is in its
                // way, it may be the one that this thread interrupts.
                waits = if left || consumed != before {
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
    Err(lose(ring))
}

/// Counts a lost record.
pub(crate) fn lose<R: Ring>(ring: R) -> Lost {
    // Relaxed: a count, that orders nothing.
    ring.lost().fetch_add(1, Ordering::Relaxed);
    Lost
}

/// Begins a sub-buffer, unless `head` is at the start of one, or in one that names the present
/// writer: so what comes next is under a header that does.
#[cold]
#[inline(never)]
pub(crate) fn begin_anew<R: Ring>(ring: R) -> Result<(), Lost> {
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
            Err(Refusal::Full { .. } | Refusal::Stuck) => return Err(Lost),
        }
    }
    Err(Lost)
}

/// Does the header of the sub-buffer at a position name the present writer? Its writer died before
/// it was stored, if that of an earlier round is there.
fn is_named<R: Ring>(ring: R, position: u64) -> bool {
    // Acquire: pairs with the stores in `begin_subbuf`, of which it is the last one.
    ring.field(position, POSITION).load(Ordering::Acquire) == position
        && ring.field(position, CPU).load(Ordering::Relaxed) == cpu_and_magic(ring.writer())
}

/// Reserves what is left of the present sub-buffer as padding, the header of the next one, and so
/// many bytes, at once, if `head` still is what it was, when it was loaded with acquire semantics.
fn begin_subbuf<R: Ring>(ring: R, head: u64, len: u64) -> Result<Reserved, Refusal> {
    let size = ring.subbuf_size();
    let offset = head & (size - 1);
    let old = head - offset;
    // Acquire: pairs with `commit`.
    let old_committed = ring.field(old, COMMITTED).load(Ordering::Acquire);
    let (position, base) = match find_place(ring, head) {
        // Acquire: as in `try_reserve`. An addition of nothing, as this is never an old value:
        // places that others have begun since look like ones that are not left.
        Err(Refusal::Full { .. } | Refusal::Stuck)
            if ring.head().fetch_add(0, Ordering::Acquire) != head =>
        {
            return Err(Refusal::Changed);
        }
        found => found?,
    };
    ring.begins(position);
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
    // Only now: who takes it for the ring's finds that `head` was moved, as time stamps with these
    // upper bits must come behind the header that has them. If another one who begins a sub-buffer
    // stores an older time over it, a sub-buffer more is begun at worst.
    ring.time().store(time, Ordering::Relaxed);
    let lost = ring.lost().load(Ordering::Relaxed);
    for (field, value) in [
        (TIME, time),
        (LOST, lost),
        (CPU, cpu_and_magic(ring.writer())),
        (BASE, base),
        // The header is all that is committed. No other writer stores this word before the record
        // that is reserved here is committed.
        (CONTIGUOUS, record),
        // Last: a reader who finds it finds the whole header. (The first sub-buffer of a ring has
        // it from the beginning; there, the word before it says so.)
        (POSITION, position),
    ] {
        // Release: pairs with the loads of a reader, as said above.
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

/// Finds the place for the sub-buffer that comes after what `head` is in, and decides about it and
/// those before it. What comes back is its position, and `committed` from which it starts.
fn find_place<R: Ring>(ring: R, head: u64) -> Result<(u64, u64), Refusal> {
    let size = ring.subbuf_size();
    let first = head.wrapping_add(size - 1) & !(size - 1);
    // Not the place that `head` is in.
    let places = ring.ring_size() / size - 1;
    for n in 0..places {
        let position = first.wrapping_add(n * size);
        // Acquire: pairs with the reader's store: what is stored below comes after what it has
        // read. Before the verdict is looked at: a decision to take a place is one about a place
        // that may be overwritten.
        let consumed = ring.consumed().load(Ordering::Acquire);
        if !ring.overwrites()
            && position.wrapping_add(size).wrapping_sub(consumed) > ring.ring_size()
        {
            let oldest = position.wrapping_sub(ring.ring_size());
            // If it was decided to take the place, while the ring overwrote, it was left before
            // that.
            let is_decided = matches!(inspect(ring, position), Verdict::Take { .. });
            return Err(Refusal::Full {
                consumed,
                left: is_decided || look(ring, oldest).2,
            });
        }
        match inspect(ring, position) {
            Verdict::Take { .. } | Verdict::Open { left: true, .. } => {
                // Decide in the order of positions: about those before it only now that there is
                // one to be taken. A decision to pass a place over is never revised, so without one
                // behind it to be taken, `head` could go nowhere.
                for before in 0..n {
                    let position = first.wrapping_add(before * size);
                    if let Some(committed) = decide(ring, position)? {
                        return Ok((position, committed));
                    }
                }
                return match decide(ring, position)? {
                    Some(committed) => Ok((position, committed)),
                    // Somebody who looked at it before it was left: there is another one behind it
                    // then.
                    None => Err(Refusal::Changed),
                };
            }
            Verdict::Pass | Verdict::Open { left: false, .. } => {}
            Verdict::Over => return Err(Refusal::Changed),
        }
    }
    Err(Refusal::Stuck)
}

/// What is at a place: what was decided last, `committed`, and whether nobody is there.
fn look<R: Ring>(ring: R, position: u64) -> (Place, u64, bool) {
    let size = ring.subbuf_size();
    // Acquire: pairs with the compare-exchange in `decide`.
    let seen = Place(ring.field(position, PLACE).load(Ordering::Acquire));
    // Acquire: pairs with `commit`: all who were in the place come before whoever finds it left. It
    // is loaded after `seen`; if the place was taken again in between, it is no less than what
    // `seen` would have it be.
    let committed = ring.field(position, COMMITTED).load(Ordering::Acquire);
    let left = committed & (size - 1) == 0 && (committed / size) as u32 == seen.takes();
    (seen, committed, left)
}

/// Looks at a place for the sub-buffer at `position`.
fn inspect<R: Ring>(ring: R, position: u64) -> Verdict {
    let lap = Place::lap_of(position, ring.ring_size());
    let (seen, committed, left) = look(ring, position);
    if seen.lap() == lap {
        return if seen.taken() {
            Verdict::Take { committed }
        } else {
            Verdict::Pass
        };
    }
    // Half of the numbers are behind.
    if lap.wrapping_sub(seen.lap()) & Place::LAP_MASK > Place::LAP_MASK / 2 {
        return Verdict::Over;
    }
    Verdict::Open {
        seen,
        committed,
        left,
    }
}

/// Decides what becomes of a place, if that was not done before. For a place that is to be taken,
/// `committed` comes back, from which it starts if `head` is moved there.
fn decide<R: Ring>(ring: R, position: u64) -> Result<Option<u64>, Refusal> {
    let Verdict::Open {
        seen,
        committed,
        left,
    } = inspect(ring, position)
    else {
        return decided(ring, position);
    };
    let lap = Place::lap_of(position, ring.ring_size());
    let takes = seen.takes().wrapping_add(u32::from(left));
    // Release: pairs with the load in `look`: that the place is left, and what it was left by,
    // holds for those who follow the decision. If somebody else decided first, that holds.
    let first = ring
        .field(position, PLACE)
        .compare_exchange(
            seen.0,
            Place::new(takes, lap, left).0,
            Ordering::Release,
            Ordering::Relaxed,
        )
        .is_ok();
    if first {
        Ok(left.then_some(committed))
    } else {
        decided(ring, position)
    }
}

/// What was decided about a place.
fn decided<R: Ring>(ring: R, position: u64) -> Result<Option<u64>, Refusal> {
    match inspect(ring, position) {
        Verdict::Take { committed } => Ok(Some(committed)),
        Verdict::Pass => Ok(None),
        Verdict::Open { .. } | Verdict::Over => Err(Refusal::Changed),
    }
}
