//! Writes records by the shared protocol (D2): without restartable sequences, or into rings that
//! belong to no CPU.
//!
//! [`protocol`] has the algorithm. This module applies it to the mapped rings of a [`Channel`].
//! [`owner`] finds the ring of a thread, and [`local_atomic`] has cheaper atomics for rings that
//! one thread alone writes.

mod local_atomic;
mod owner;
mod protocol;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use usertrace_sys::Mode;

use self::local_atomic::LocalAtomic;
use self::owner::RingOwnership;
pub(super) use self::protocol::WaitOutcome;
use self::protocol::{LostError, Reservation, Word};
use super::channel::{AHEAD, Channel, ChannelGuard, Control};
use super::payload::{Cursor, Payload};
use super::prefault::{self, Prefault};
use super::refusal::Dropped;
use super::{thread, wait};
use crate::clock::{self, Source};

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }

    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

/// One ring of a channel. `W`: how its words are accessed, [`LocalAtomic`] if the calling thread
/// alone writes it. `FLAGGED`: whether the channel [is flagged](Channel::is_flagged), and so may
/// have another clock than the processor's counter.
#[derive(Debug)]
struct Ring<'a, W, const FLAGGED: bool> {
    channel: &'a Channel,
    control: &'a Control,
    /// Start of the ring. All its words are atomic integers.
    words: *const W,
    /// Mask that turns a position into the offset of its word.
    word_mask: u64,
    /// Size of a sub-buffer, minus 1.
    subbuf_mask: u64,
}

impl<W, const FLAGGED: bool> Clone for Ring<'_, W, FLAGGED> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W, const FLAGGED: bool> Copy for Ring<'_, W, FLAGGED> {}

/// A kind of word that an atomic integer can be accessed as.
trait View: Word {
    /// Whether the calling thread alone writes such words.
    const IS_OWN: bool;

    /// The same word, of this kind.
    fn of(word: &AtomicU64) -> &Self;
}

impl View for AtomicU64 {
    const IS_OWN: bool = false;

    #[inline(always)]
    fn of(word: &AtomicU64) -> &Self {
        word
    }
}

impl View for LocalAtomic {
    const IS_OWN: bool = true;

    #[inline(always)]
    fn of(word: &AtomicU64) -> &Self {
        // SAFETY: `LocalAtomic` is a transparent wrapper of an `AtomicU64`.
        unsafe { &*std::ptr::from_ref(word).cast() }
    }
}

impl<'a, W: View, const FLAGGED: bool> Ring<'a, W, FLAGGED> {
    /// The ring with an index; none if the channel has none, or is closed.
    #[inline(always)]
    fn new(channel: &'a Channel, index: u32) -> Option<Self> {
        // SAFETY: the number of rings is loaded first.
        (index < channel.rings()).then(|| unsafe { Self::at(channel, index) })
    }

    /// The ring with an index.
    ///
    /// # Safety
    /// The caller must have loaded the number of rings, which must be larger.
    #[inline(always)]
    unsafe fn at(channel: &'a Channel, index: u32) -> Self {
        let ring_mask = channel.ring_mask.load(Ordering::Relaxed);
        let stride = channel.control_stride.load(Ordering::Relaxed);
        let control = channel.control.load(Ordering::Relaxed);
        let buffers = channel.buffers.load(Ordering::Relaxed);
        Self {
            channel,
            // SAFETY: `open`'s caller promised that the control blocks are mapped from then on, and
            // `open` verified the alignment. Everything in a control block is atomic.
            control: unsafe {
                &*control
                    .wrapping_add(index as usize * stride as usize)
                    .cast::<Control>()
            },
            words: buffers
                .wrapping_add(index as usize * (ring_mask as usize + 1))
                .cast(),
            // If another program stored a position that is no multiple of 8, accesses stay aligned.
            word_mask: ring_mask & !7,
            subbuf_mask: channel.subbuf_mask.load(Ordering::Relaxed),
        }
    }

    /// The ring as one without a clock of its own, for a record that has its time.
    fn with_time(self) -> Ring<'a, W, false> {
        Ring {
            channel: self.channel,
            control: self.control,
            words: self.words,
            word_mask: self.word_mask,
            subbuf_mask: self.subbuf_mask,
        }
    }

    /// The ring's index in the channel; none if the channel has other rings now.
    fn index(&self) -> Option<u32> {
        let first = self.channel.control.load(Ordering::Relaxed).addr();
        let stride = self.channel.control_stride.load(Ordering::Relaxed) as usize;
        let offset = std::ptr::from_ref(self.control).addr().checked_sub(first)?;
        let index = u32::try_from(offset.checked_div(stride)?).ok()?;
        (index < self.channel.rings()).then_some(index)
    }

    /// Populates its pages, if all are to be populated before the first event.
    fn prefault(&self) {
        if let Some(ring) = self
            .channel
            .ring_at(0)
            .filter(|ring| ring.prefault == Prefault::All)
        {
            prefault::all(self.words.cast_mut().cast(), ring.ring_size);
        }
    }

    /// Ring and position in one word, as a signal handler may come between the stores of two words.
    /// Two pairs have the same word only if the rings' control blocks are a multiple of a gigabyte
    /// apart.
    #[inline(always)]
    fn mark(&self, position: u64) -> u64 {
        let address = std::ptr::from_ref(self.control).addr() as u64;
        (address << 34) ^ position
    }
}

impl<W: View, const FLAGGED: bool> protocol::Ring for Ring<'_, W, FLAGGED> {
    type Word = W;

    #[inline(always)]
    fn head(&self) -> &W {
        W::of(&self.control.head)
    }

    #[inline(always)]
    fn lost(&self) -> &W {
        W::of(&self.control.lost)
    }

    #[inline(always)]
    fn time(&self) -> &W {
        W::of(&self.control.time)
    }

    #[inline(always)]
    fn consumed(&self) -> &W {
        W::of(&self.control.consumed)
    }

    #[inline(always)]
    fn words(&self, position: u64, len: u64) -> &[W] {
        let first = self
            .words
            .wrapping_byte_add((position & self.word_mask) as usize);
        // SAFETY: inside the ring, which `Channel::open`'s caller promised is mapped, and aligned:
        // `len` words from there end with the sub-buffer at the latest. All code accesses them
        // atomically.
        unsafe { std::slice::from_raw_parts(first, len as usize) }
    }

    #[inline(always)]
    fn subbuf_size(&self) -> u64 {
        self.subbuf_mask + 1
    }

    #[inline(always)]
    fn ring_size(&self) -> u64 {
        (self.word_mask | 7) + 1
    }

    fn overwrites(&self) -> bool {
        self.channel
            .ring_at(0)
            .is_some_and(|ring| ring.mode == Mode::Overwrite)
    }

    fn writer(&self) -> u32 {
        // Relaxed: the thread itself stored it. A shared ring has no owner.
        self.control.owner.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn cycles(&self, head: u64) -> u64 {
        // A processor may read the clock before it loads a `head` that another writer has moved
        // past a record with a later time. That cannot happen if this thread moved it, as always in
        // its own ring: a thread's times are in order. To wait for loads costs more than all the
        // rest of an event.
        if !W::IS_OWN
            && thread::with(|thread| thread.reserved_to.load(Ordering::Relaxed)) != self.mark(head)
        {
            after_loads();
        }
        if FLAGGED && self.channel.clock() == Source::Monotonic {
            return clock::monotonic();
        }
        clock::cycles()
    }

    #[inline(always)]
    fn head_moved(&self, head: u64) {
        fetch(self.words(head.wrapping_add(AHEAD), 1));
        if !W::IS_OWN {
            thread::with(|thread| {
                thread.reserved_to.store(self.mark(head), Ordering::Relaxed);
            });
        }
    }

    fn subbuf_begins(&self, position: u64) {
        let buffer = self.words.cast_mut().cast();
        let ring = self.channel.ring_at(0);
        if let Some(ring) = ring.filter(|ring| ring.prefault == Prefault::Ahead) {
            prefault::next(buffer, ring.ring_size, ring.subbuf_size, position);
        }
    }

    #[inline(always)]
    fn subbuf_filled(&self) {
        notify_reader(self.channel, self.control);
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, consumed: u64, quiescent: bool) -> WaitOutcome {
        let Some(index) = self.index() else {
            return WaitOutcome::Gone;
        };
        let outcome = if quiescent {
            wait::wait(self.channel, index, consumed, || true, &mut false)
        } else {
            wait::wait_a_moment(self.channel, index)
        };
        // This may be the child of a handler that forked meanwhile: its rings are elsewhere.
        if self.index() == Some(index) {
            outcome
        } else {
            WaitOutcome::Gone
        }
    }
}

/// Prefetches the cache line of these words for stores.
///
/// The atomic instructions of a record wait until all stores before them have their cache lines.
/// Without this, each record would wait: the reader has had the lines, or they have left the cache
/// since the last lap.
#[inline(always)]
fn fetch<W>(words: &[W]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that never faults, and does nothing on processors that do not know it.
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{}]",
            in(reg) words.as_ptr(),
            options(readonly, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint that never faults.
    unsafe {
        std::arch::asm!(
            "prfm pstl1keep, [{}]",
            in(reg) words.as_ptr(),
            options(readonly, nostack, preserves_flags),
        );
    }
}

/// Tells the reader that a sub-buffer was filled.
#[cold]
#[inline(never)]
fn notify_reader(channel: &Channel, control: &Control) {
    if let Some(ring) = channel.ring_at(0)
        && let Some(reader_wakeup) = ring.reader_wakeup
    {
        let (head, consumed) = (&control.head, &control.consumed);
        let used = head
            .load(Ordering::Relaxed)
            .wrapping_sub(consumed.load(Ordering::Relaxed));
        reader_wakeup.subbuf_filled(ring.mode, used, ring.ring_size);
    }
}

/// Waits for all loads before, so that the clock is read after them. On other processors, `cycles`
/// does that itself.
#[cold]
fn after_loads() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
}

impl From<LostError> for Dropped {
    fn from(_: LostError) -> Self {
        Self::Lost
    }
}

/// The event's id, if it was described in the channel.
#[inline(always)]
fn described(id: &AtomicU16) -> Result<u16, Dropped> {
    match id.load(Ordering::Relaxed) {
        0 => Err(Dropped::Closed),
        id => Ok(id),
    }
}

/// Writes a record. It takes the slow path if necessary, and waits if the channel's mode says so.
///
/// # Safety
/// `channel` was opened as [`Channel::open`] requires. `id` is 0, or the id of an event with such a
/// payload, or that of a metadata record.
// Not inlined, so that events of the other protocol save no registers for it.
#[inline(never)]
pub(super) unsafe fn write(
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> Result<(), Dropped> {
    let Some(_guard) = guard(channel)? else {
        return Err(Dropped::Closed);
    };
    write_inside::<false>(channel, id, payload)
}

/// The event path into the calling thread's own ring: writes a record if it fits into the current
/// sub-buffer, and no signal handler comes first.
///
/// # Safety
/// As [`write`]'s.
#[inline(always)]
pub(super) unsafe fn try_write_own(channel: &Channel, id: &AtomicU16, payload: &[u64]) -> bool {
    let (Some(index), Ok(id)) = (owner::own(channel), described(id)) else {
        return false;
    };
    // SAFETY: the channel has a ring with that index, and is not closed before this writer is gone.
    let ring = unsafe { Ring::<LocalAtomic, false>::at(channel, index) };
    protocol::try_write(ring, id, payload).is_ok()
}

/// The event path: writes a record if the thread has a ring, the record fits into the current
/// sub-buffer, and no other writer comes first.
///
/// # Safety
/// As [`write`]'s.
#[inline(always)]
pub(super) unsafe fn try_write(channel: &Channel, id: &AtomicU16, payload: &[u64]) -> bool {
    // First, as it loads the number of rings: only what is loaded later is that of an open channel.
    if !channel.is_shared() {
        return false;
    }
    if channel.has_guards() {
        return try_write_guarded(channel, id, payload);
    }
    !channel.is_flagged() && try_write_inside::<false>(channel, id, payload)
}

/// Likewise, in a channel that is closed while writers are inside. Not inlined, so that other
/// events save no registers for it.
#[inline(never)]
fn try_write_guarded(channel: &Channel, id: &AtomicU16, payload: &[u64]) -> bool {
    match guard(channel) {
        Ok(Some(_guard)) if channel.is_shared() => try_write_inside::<false>(channel, id, payload),
        _ => false,
    }
}

/// Enters the channel; none if the event path does not know of it.
#[inline(always)]
fn guard(channel: &Channel) -> Result<Option<ChannelGuard<'_>>, Dropped> {
    let guard = channel.guard().ok_or(Dropped::Closed)?;
    Ok((!channel.is_flagged()).then_some(guard))
}

/// Writes a record whose payload begins with the contexts of the channel, which the caller has
/// entered.
///
/// # Safety
/// As [`write`]'s, with contexts.
pub(super) unsafe fn write_in_contexts(
    channel: &Channel,
    id: &AtomicU16,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    match payload {
        Payload::Words(words) => write_inside::<true>(channel, id, words),
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        Payload::Made { len, fill } => unsafe { write_made_inside::<true>(channel, id, len, fill) },
    }
}

/// Writes a record into a channel that the caller has entered.
#[inline(always)]
fn write_inside<const FLAGGED: bool>(
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> Result<(), Dropped> {
    if try_write_inside::<FLAGGED>(channel, id, payload) {
        Ok(())
    } else {
        write_slowly::<FLAGGED>(channel, id, payload)
    }
}

/// The event path in a channel that the caller has entered, as [`try_write`].
#[inline(always)]
fn try_write_inside<const FLAGGED: bool>(
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> bool {
    let Ok(id) = described(id) else {
        return false;
    };
    match owner::known(channel) {
        Some(RingOwnership::Exclusive(index)) => {
            try_write_to::<LocalAtomic, FLAGGED>(channel, index, id, payload)
        }
        Some(RingOwnership::Shared(index)) => {
            try_write_shared::<FLAGGED>(channel, index, id, payload)
        }
        None => false,
    }
}

/// Likewise, in a ring that other threads write, too. Not inlined, so that the caller has the
/// registers for one kind of ring.
#[inline(never)]
fn try_write_shared<const FLAGGED: bool>(
    channel: &Channel,
    index: u32,
    id: u16,
    payload: &[u64],
) -> bool {
    try_write_to::<AtomicU64, FLAGGED>(channel, index, id, payload)
}

/// Likewise, in a ring of this kind.
#[inline(always)]
fn try_write_to<W: View, const FLAGGED: bool>(
    channel: &Channel,
    index: u32,
    id: u16,
    payload: &[u64],
) -> bool {
    Ring::<W, FLAGGED>::new(channel, index)
        .is_some_and(|ring| protocol::try_write(ring, id, payload).is_ok())
}

/// The slow path: takes a ring, begins a sub-buffer, and waits, if necessary.
#[cold]
#[inline(never)]
fn write_slowly<const FLAGGED: bool>(
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> Result<(), Dropped> {
    fn write<W: View, const FLAGGED: bool>(
        channel: &Channel,
        index: u32,
        id: u16,
        payload: &[u64],
    ) -> Result<(), Dropped> {
        let ring = Ring::<W, FLAGGED>::new(channel, index).ok_or(Dropped::Closed)?;
        Ok(protocol::write(ring, id, payload)?)
    }
    let id = described(id)?;
    match owner::find(channel)? {
        RingOwnership::Exclusive(index) => {
            write::<LocalAtomic, FLAGGED>(channel, index, id, payload)
        }
        RingOwnership::Shared(index) => write::<AtomicU64, FLAGGED>(channel, index, id, payload),
    }
}

/// Writes a record with a payload of `len` bytes that `fill` appends.
///
/// # Safety
/// As [`write`]'s.
pub(super) unsafe fn write_made(
    channel: &Channel,
    id: &AtomicU16,
    len: usize,
    fill: &dyn Fn(&mut Cursor<'_>),
) -> Result<(), Dropped> {
    let Some(_guard) = guard(channel)? else {
        return Err(Dropped::Closed);
    };
    // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a payload,
    // as this function's caller promises.
    unsafe { write_made_inside::<false>(channel, id, len, fill) }
}

/// Likewise, into a channel that the caller has entered.
///
/// # Safety
/// As [`write`]'s.
unsafe fn write_made_inside<const FLAGGED: bool>(
    channel: &Channel,
    id: &AtomicU16,
    len: usize,
    fill: &dyn Fn(&mut Cursor<'_>),
) -> Result<(), Dropped> {
    // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a payload,
    // as this function's caller promises.
    let mut cursor = Cursor::shared(unsafe { reserve::<FLAGGED>(channel, id, len) }?);
    fill(&mut cursor);
    cursor.finish();
    Ok(())
}

/// A record that is written piece by piece, straight into the ring.
///
/// Readers see a lost record if it is dropped before [`finish`](Self::finish).
#[derive(Debug)]
pub(super) struct Record<'a> {
    reservation: Reserved<'a>,
    /// Number of whole words that were stored.
    words: usize,
    /// Bytes of the next word, in the order of memory, and their number.
    rest: [u8; 8],
    rest_len: usize,
}

/// A reservation in an exclusive or a shared ring.
#[derive(Debug)]
enum Reserved<'a> {
    Exclusive(Reservation<Ring<'a, LocalAtomic, false>>),
    Shared(Reservation<Ring<'a, AtomicU64, false>>),
}

impl Reserved<'_> {
    /// Length of the payload, in words.
    fn len(&self) -> usize {
        match self {
            Self::Exclusive(reservation) => reservation.payload().len(),
            Self::Shared(reservation) => reservation.payload().len(),
        }
    }

    /// Stores a word of the payload, if there is room for it.
    fn store(&self, at: usize, word: u64) {
        fn store<W: Word>(payload: &[W], at: usize, word: u64) {
            if let Some(place) = payload.get(at) {
                place.store(word, Ordering::Relaxed);
            }
        }
        match self {
            Self::Exclusive(reservation) => store(reservation.payload(), at, word),
            Self::Shared(reservation) => store(reservation.payload(), at, word),
        }
    }

    /// Marks the record as complete, and commits it.
    fn complete(self) {
        match self {
            Self::Exclusive(reservation) => reservation.complete(),
            Self::Shared(reservation) => reservation.complete(),
        }
    }
}

/// Reserves a record with a payload of `len` bytes.
///
/// # Safety
/// As [`write`]'s: what is appended to the record must be such a payload.
unsafe fn reserve<'a, const FLAGGED: bool>(
    channel: &'a Channel,
    id: &AtomicU16,
    len: usize,
) -> Result<Record<'a>, Dropped> {
    fn reserve<W: View, const FLAGGED: bool>(
        channel: &Channel,
        index: u32,
        id: u16,
        words: u64,
    ) -> Result<Reservation<Ring<'_, W, false>>, Dropped> {
        let ring = Ring::<W, FLAGGED>::new(channel, index).ok_or(Dropped::Closed)?;
        // The record has its time already.
        Ok(protocol::reserve(ring, id, words)?.seen_as(Ring::with_time))
    }
    let id = described(id)?;
    let words = len.div_ceil(8) as u64;
    let reservation = match owner::find(channel)? {
        RingOwnership::Exclusive(index) => {
            Reserved::Exclusive(reserve::<_, FLAGGED>(channel, index, id, words)?)
        }
        RingOwnership::Shared(index) => {
            Reserved::Shared(reserve::<_, FLAGGED>(channel, index, id, words)?)
        }
    };
    Ok(Record {
        reservation,
        words: 0,
        rest: [0; 8],
        rest_len: 0,
    })
}

impl Record<'_> {
    /// Appends to the payload. Bytes beyond the reserved length are left out.
    pub(super) fn append(&mut self, mut bytes: &[u8]) {
        if self.rest_len != 0 {
            let some = bytes.len().min(8 - self.rest_len);
            self.rest[self.rest_len..self.rest_len + some].copy_from_slice(&bytes[..some]);
            self.rest_len += some;
            bytes = &bytes[some..];
            if self.rest_len < 8 {
                return;
            }
            self.store(self.rest);
        }
        let (words, rest) = bytes.as_chunks();
        for &word in words {
            self.store(word);
        }
        self.rest[..rest.len()].copy_from_slice(rest);
        self.rest_len = rest.len();
    }

    /// Stores the next word of the payload.
    fn store(&mut self, word: [u8; 8]) {
        self.reservation.store(self.words, u64::from_ne_bytes(word));
        self.words += 1;
    }

    /// Fills the rest of the payload with zeros, and completes the record.
    pub(super) fn finish(mut self) {
        let mut last = self.rest;
        last[self.rest_len..].fill(0);
        while self.words < self.reservation.len() {
            self.store(last);
            last = [0; 8];
        }
        self.reservation.complete();
    }
}
