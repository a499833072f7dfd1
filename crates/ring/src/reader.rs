//! The reader of one ring.

use usertrace_sys::Protocol;
use usertrace_sys::uapi::{
    LTT_ID_BITS, LTT_ID_LOST, LTT_ID_NONE, LTT_ID_PAD, LTT_LOST_WORD, LTT_SUBBUF_MAGIC, LttSubbuf,
};
use zerocopy::FromBytes;

use crate::geometry::MAX_POSITION;
use crate::record::{PAGE, Payload, Record, TIME_MASK, before_lost_page, record_id, short, word};
use crate::recovery::{Recovery, Segment};
use crate::shared::{IncompleteSubbuf, Readable, SharedSubbuf};
use crate::{Counts, Format, GapKind, Geometry, Item, PayloadLengths, RingMemory, WaitPolicy};

/// Length of a sub-buffer's header in bytes.
pub const SUBBUF_HEADER_LEN: u64 = size_of::<LttSubbuf>() as u64;

/// How much of a sub-buffer the reader copies at once, unless one record is longer. It parses the
/// copy while that is in the second-level cache. Shorter windows cost more, because the hardware
/// prefetcher starts anew after each pause. A multiple of the page size.
const WINDOW: u64 = 256 << 10;

/// Receives what a reader finds, in order. Any function of an [`Item`] is a sink.
pub trait Sink {
    /// Error that ends reading.
    type Error;

    /// Receives an item.
    ///
    /// # Errors
    /// When it takes no more.
    fn item(&mut self, item: Item<'_>) -> Result<(), Self::Error>;

    /// Receives an [`Item::Record`]. Nearly all items are records. They come from one loop, into
    /// which the compiler may inline this.
    ///
    /// # Errors
    /// When it takes no more.
    #[inline]
    fn record(&mut self, id: u16, time: u64, payload: &[u8]) -> Result<(), Self::Error> {
        self.item(Item::Record { id, time, payload })
    }

    /// Whether the sink accepts the next records as raw bytes. The first of them was written at
    /// `time`. No other item comes before them.
    #[inline]
    fn takes_run(&self, _time: u64) -> bool {
        false
    }

    /// Receives the raw bytes of a run of records, in place of [`Sink::record`] for each, after
    /// [`Sink::takes_run`] returned true.
    ///
    /// # Errors
    /// When it takes no more.
    fn run(&mut self, _run: &Run, _records: &[u8]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A buffer of `len` bytes, into which the reader may copy records before it parses them. None
    /// if the sink has none.
    ///
    /// # Errors
    /// When it takes no more.
    #[inline]
    fn room(&mut self, _len: usize) -> Result<Option<&mut [u8]>, Self::Error> {
        Ok(None)
    }

    /// Receives a run at the start of the buffer that [`Sink::room`] returned last, like
    /// [`Sink::run`].
    #[inline]
    fn run_in_room(&mut self, _run: &Run) {}
}

/// A run of complete short records of known events, without gaps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Length in bytes, with headers and padding.
    pub len: usize,
    /// Padding of the last record, in bytes.
    pub padding: usize,
    /// Number of records.
    pub events: u64,
    /// Full times of the first and the last record. Each record's time is at or after the one
    /// before, and less than 2^48 after it.
    pub times: [u64; 2],
}

impl Run {
    /// Finds the longest run at the start of `piece`, which follows a record of `time`. None if the
    /// first record does not belong to a run.
    // Not inlined, so that the loop's variables stay in registers.
    #[inline(never)]
    fn find(piece: &[u8], time: u64, max_time: u64, lengths: &impl PayloadLengths) -> Option<Self> {
        let (mut rest, mut last, mut time, mut events) = (piece, piece, time, 0);
        let mut first = None;
        let lens = lengths.record_lens();
        while let Some(header) = word(rest, 0)
            && let Some((next_time, len, _)) = short(header, rest, time, max_time, lengths)
        {
            first.get_or_insert(next_time);
            (last, time, rest, events) = (rest, next_time, &rest[len as usize..], events + 1);
            // The next records mostly have the same length, which a processor predicts: it need not
            // load one record before it finds the next. The outer loop handles a change of the
            // time's high bits.
            let len = len as usize;
            let (high, mut low) = (time & !TIME_MASK, time & TIME_MASK);
            let latest = (max_time - high).min(TIME_MASK);
            let mut as_long = 0;
            for record in rest.chunks_exact(len) {
                let Some(header) = word(record, 0) else { break };
                let next_time = header >> LTT_ID_BITS;
                let is_as_long = lens.get(usize::from(record_id(header))) == Some(&(len as u32));
                if !is_as_long || next_time < low || next_time > latest {
                    break;
                }
                (low, as_long) = (next_time, as_long + 1);
            }
            if as_long > 0 {
                let behind = as_long * len;
                (last, time, rest) = (&rest[behind - len..], high | low, &rest[behind..]);
                events += as_long as u64;
            }
        }
        let len_of_last = last.len() - rest.len();
        let payload = lengths.payload_len(record_id(word(last, 0)?), last.get(8..len_of_last)?)?;
        Some(Self {
            len: piece.len() - rest.len(),
            padding: len_of_last - 8 - payload,
            events,
            times: [first?, time],
        })
    }
}

impl<E, F: FnMut(Item<'_>) -> Result<(), E>> Sink for F {
    type Error = E;

    #[inline]
    fn item(&mut self, item: Item<'_>) -> Result<(), E> {
        self(item)
    }
}

/// How to treat the rest of the current sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestOfSubbuf {
    /// Parse its records.
    Records,
    /// Skip it: it follows an `LTT_ID_PAD`.
    Padding,
    /// Skip it, as part of a gap that was already reported.
    Gap(GapKind),
    /// Skip it: writers passed over the place.
    PassedOver,
}

/// What follows a piece of a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// Nothing readable.
    Nothing,
    /// More of the sub-buffer.
    More,
    /// A page that there was no memory for.
    LostPage,
}

/// Where the parsing of a piece ended.
enum PieceEnd {
    /// At its end, or at a record that may continue behind it.
    Piece,
    /// At a record whose writer may still complete it.
    Wait,
    /// At something that makes the rest of the sub-buffer unreadable, or padding.
    Rest(RestOfSubbuf),
}

/// The rest of the sub-buffer is a hole.
const HOLE: PieceEnd = PieceEnd::Rest(RestOfSubbuf::Gap(GapKind::Hole));

/// Reads one ring incrementally.
///
/// A reader of a dump, or of a ring from its start, reports each record once. Times never exceed
/// the given limit. They may step back between sub-buffers, if the process wrote them so.
#[derive(Clone, Debug)]
pub struct RingReader {
    format: Format,
    /// The latest time that a record may have.
    max_time: u64,
    /// Everything below is parsed.
    position: u64,
    /// Everything below was already reported, by another reader.
    reported: u64,
    /// Full time at `position`.
    time: u64,
    /// Start of the sub-buffer that `time` comes from.
    time_subbuf: u64,
    rest: RestOfSubbuf,
    /// The last head that was refused. It counts once.
    refused_head: Option<u64>,
    /// How much to copy at once, in bytes.
    window: u64,
    counts: Counts,
}

impl RingReader {
    /// Creates a reader of a ring that is being written, from `consumed` on. Records later than
    /// `max_time` count as damage.
    #[must_use]
    pub fn live(format: Format, consumed: u64, max_time: u64) -> Self {
        let consumed = consumed.min(MAX_POSITION);
        Self {
            format,
            max_time,
            // The reader starts with the sub-buffer's header, which has the full time. The
            // sub-buffer stays whole until all of it is consumed.
            position: format.geometry.subbuf_start(consumed),
            reported: consumed,
            time: 0,
            time_subbuf: 0,
            rest: RestOfSubbuf::Records,
            refused_head: None,
            window: WINDOW,
            counts: Counts::default(),
        }
    }

    /// Creates a reader of a ring without writers, from the oldest sub-buffer that is still there,
    /// consumed or not.
    pub fn dump(format: Format, memory: &mut impl RingMemory, max_time: u64) -> Self {
        let geometry = format.geometry;
        let positions = memory.positions();
        let head = positions.head.min(MAX_POSITION);
        let mut oldest = format.valid_from(positions);
        // With protocol `Shared`, a writer moves the head before it stores into a sub-buffer. With
        // `Rseq` it claims the sub-buffer first, unless it discards; then it overwrites only what
        // was consumed.
        if format.protocol == Protocol::Rseq {
            let newest = geometry.subbuf_start(head.saturating_sub(1));
            let full = newest - oldest == geometry.ring_size() - geometry.subbuf_size();
            if full && overwritten(geometry, memory, oldest) {
                oldest += geometry.subbuf_size();
            }
        }
        Self::live(format, oldest, max_time)
    }

    /// Everything below this position was read and may be consumed.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.max(self.reported)
    }

    /// Counters of what was read so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets the latest time that a record may have.
    pub fn set_max_time(&mut self, max_time: u64) {
        self.max_time = max_time;
    }

    /// Sets how many bytes of a sub-buffer to copy at once, unless one record is longer. Rounded
    /// down to whole pages, at least one. The items do not depend on it.
    pub fn set_window(&mut self, window: u64) {
        self.window = (window - window % PAGE).max(PAGE);
    }

    /// Reads up to `head`, and passes the items to `emit`. Stops before `head` where `policy` says
    /// to wait.
    ///
    /// # Errors
    /// Those of `emit`. The reader must not be used afterwards.
    pub fn read<E>(
        &mut self,
        memory: &mut impl RingMemory,
        head: u64,
        policy: WaitPolicy,
        lengths: &impl PayloadLengths,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<(), E> {
        let head = self.check_head(head, emit)?;
        let mut copy = Vec::new();
        let mut window = self.window;
        // A sub-buffer with records that do not belong to a run.
        let mut mixed = None;
        // Each iteration moves the position, enlarges the window, or returns.
        while self.position < head {
            if self.rest == RestOfSubbuf::Records {
                if self.read_in_place(memory, head, &mut mixed, lengths, emit)? {
                    continue;
                }
                let readable = self.copy(memory, head, window, policy, &mut copy);
                if let Some(valid_from) = self.overtaken(memory) {
                    self.skip_to(valid_from, emit)?;
                    continue;
                }
                let begin = self.position;
                let piece_end = begin + copy.len() as u64;
                match self.parse_copy(&copy, readable, head, policy, lengths, emit)? {
                    PieceEnd::Piece => {
                        // The next record is longer than the window.
                        let is_longer = self.position == begin && piece_end < head;
                        window = if is_longer { u64::MAX } else { self.window };
                        continue;
                    }
                    PieceEnd::Wait => return Ok(()),
                    PieceEnd::Rest(rest) => self.begin_rest(rest, emit)?,
                }
            }
            self.skip_rest(head);
        }
        Ok(())
    }

    /// Parses the copy of a piece of one sub-buffer that begins at `position`, and advances
    /// `position`.
    fn parse_copy<E>(
        &mut self,
        copy: &[u8],
        readable: Readable,
        head: u64,
        policy: WaitPolicy,
        lengths: &impl PayloadLengths,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<PieceEnd, E> {
        // Neither the lost page nor what follows it in its sub-buffer is readable.
        let there = before_lost_page(copy, self.position);
        let (piece, is_cut) = (&copy[..there], there < copy.len());
        let piece_end = self.position + copy.len() as u64;
        Ok(match readable {
            _ if piece.is_empty() && is_cut => HOLE,
            Readable::UpTo(up_to) => {
                let after = if is_cut {
                    After::LostPage
                } else if piece_end < up_to {
                    After::More
                } else {
                    After::Nothing
                };
                self.parse(piece, after, head, policy, lengths, emit)?
            }
            Readable::Incomplete(incomplete) => {
                self.parse_incomplete(piece, is_cut, incomplete, lengths, emit)?
            }
            Readable::PassedOver => PieceEnd::Rest(RestOfSubbuf::PassedOver),
            Readable::NoMemory => HOLE,
            Readable::Wait => PieceEnd::Wait,
        })
    }

    /// Counts and reports what makes the rest of the current sub-buffer unreadable.
    fn begin_rest<E>(
        &mut self,
        rest: RestOfSubbuf,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<(), E> {
        self.rest = rest;
        match rest {
            RestOfSubbuf::Gap(_) if self.position < self.reported => {}
            RestOfSubbuf::Gap(kind) => {
                self.counts.add_gap(kind);
                emit.item(Item::Gap { kind })?;
            }
            RestOfSubbuf::PassedOver => self.counts.skipped += 1,
            RestOfSubbuf::Records | RestOfSubbuf::Padding => {}
        }
        Ok(())
    }

    /// Skips the rest of the current sub-buffer, at most up to `head`.
    fn skip_rest(&mut self, head: u64) {
        let end = self.end();
        let passed = end.min(head) - self.position;
        if let RestOfSubbuf::Gap(kind) = self.rest {
            self.counts.add_gap_bytes(kind, passed);
        }
        self.position += passed;
        if self.position == end {
            self.rest = RestOfSubbuf::Records;
        }
    }

    /// Copies a window of records directly into the sink's buffer, and parses them there. False:
    /// the caller must read the next piece in the usual way, which reports anything.
    fn read_in_place<E>(
        &mut self,
        memory: &mut impl RingMemory,
        head: u64,
        mixed: &mut Option<u64>,
        lengths: &impl PayloadLengths,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<bool, E> {
        let position = self.position;
        let subbuf = self.format.geometry.subbuf_start(position);
        let len = (self.window_end(head, self.window) - position) as usize;
        if self.format.protocol != Protocol::Rseq
            || position == subbuf
            || position < self.reported
            || len < PAGE as usize
            || *mixed == Some(subbuf)
        {
            return Ok(false);
        }
        let Some(room) = emit.room(len)? else {
            return Ok(false);
        };
        let room = &mut room[..len];
        memory.read(self.format.geometry.offset(position), room);
        if let Some(valid_from) = self.overtaken(memory) {
            self.skip_to(valid_from, emit)?;
            return Ok(true);
        }
        let there = &room[..before_lost_page(room, position)];
        let run = Run::find(there, self.time, self.max_time, lengths);
        let run = run.filter(|run| emit.takes_run(run.times[0]));
        // The usual way copies the remainder a second time: do this once a sub-buffer at most.
        if run.is_none_or(|run| len - run.len >= PAGE as usize) {
            *mixed = Some(subbuf);
        }
        let Some(run) = run else {
            return Ok(false);
        };
        emit.run_in_room(&run);
        self.position += run.len as u64;
        self.time = run.times[1];
        self.counts.events += run.events;
        Ok(true)
    }

    /// End of the next copy, at most `head`. It covers whole pages, as a lost page is recognized by
    /// all of its bytes. The first copy of a sub-buffer is short: its header does not belong into
    /// the sink's buffer.
    fn window_end(&self, head: u64, window: u64) -> u64 {
        let is_past_header = self.position != self.format.geometry.subbuf_start(self.position);
        let is_usual = window == self.window && self.format.protocol == Protocol::Rseq;
        let window = if is_usual && !is_past_header {
            PAGE
        } else {
            window
        };
        let end = self.position.saturating_add(window);
        self.end().min(head).min(end - end % PAGE)
    }

    /// End of the current sub-buffer.
    fn end(&self) -> u64 {
        let geometry = self.format.geometry;
        geometry.subbuf_start(self.position) + geometry.subbuf_size()
    }

    /// Copies the readable part of the sub-buffer, up to a window, or all of it if a writer died in
    /// it.
    fn copy(
        &self,
        memory: &mut impl RingMemory,
        head: u64,
        window: u64,
        policy: WaitPolicy,
        copy: &mut Vec<u8>,
    ) -> Readable {
        let (geometry, position) = (self.format.geometry, self.position);
        let limit = self.end().min(head);
        let readable = match self.format.protocol {
            // `Channel` refuses channels that count.
            Protocol::Rseq | Protocol::Count => Readable::UpTo(limit),
            Protocol::Shared => {
                SharedSubbuf::of(geometry, position).readable(memory, position, head, policy)
            }
        };
        let up_to = match readable {
            Readable::UpTo(up_to) => self.window_end(up_to, window),
            Readable::Incomplete(_) => limit,
            Readable::PassedOver | Readable::NoMemory | Readable::Wait => return readable,
        };
        copy.resize((up_to - position) as usize, 0);
        memory.read(geometry.offset(position), copy);
        match readable {
            // It must not have changed while it was copied.
            Readable::Incomplete(incomplete) => incomplete.check(memory, policy),
            _ => readable,
        }
    }

    /// The head to read up to: never below `position`, and at most a ring above it.
    fn check_head<E>(&mut self, head: u64, emit: &mut impl Sink<Error = E>) -> Result<u64, E> {
        let usable = head & !7;
        let believed = usable == head && head <= MAX_POSITION && head >= self.position();
        let refused_before = self.refused_head == Some(head);
        self.refused_head = (!believed).then_some(head);
        if !believed && !refused_before {
            self.counts.damaged += 1;
        }
        if usable > MAX_POSITION || usable < self.position {
            return Ok(self.position);
        }
        if usable - self.position > self.format.geometry.ring_size() {
            // The writer did not wait for this reader: it overwrites, or the process lies.
            let oldest = self.format.geometry.oldest(usable);
            self.skip_to(oldest, emit)?;
        }
        Ok(usable)
    }

    /// The position to go on at, if a writer may have overwritten the sub-buffer that was just
    /// copied.
    fn overtaken(&self, memory: &mut impl RingMemory) -> Option<u64> {
        // A writer publishes the claim before it overwrites, see `writer`. If the copy has an
        // overwritten byte, this load sees the claim.
        let valid_from = self.format.valid_from(memory.positions());
        (valid_from > self.format.geometry.subbuf_start(self.position)).then_some(valid_from)
    }

    /// Skips to `position`, the start of a sub-buffer. Everything below was overwritten.
    fn skip_to<E>(&mut self, position: u64, emit: &mut impl Sink<Error = E>) -> Result<(), E> {
        let unread = self.position();
        self.position = position;
        self.rest = RestOfSubbuf::Records;
        if unread >= position {
            return Ok(());
        }
        let geometry = self.format.geometry;
        let subbuffers = (position - geometry.subbuf_start(unread)) / geometry.subbuf_size();
        self.counts.overwritten += subbuffers;
        self.counts.overwritten_bytes += position - unread;
        emit.item(Item::Overwritten { subbuffers })
    }

    /// Parses a piece of one sub-buffer that begins at `position`, and advances `position`.
    fn parse<E>(
        &mut self,
        piece: &[u8],
        after: After,
        head: u64,
        policy: WaitPolicy,
        lengths: &impl PayloadLengths,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<PieceEnd, E> {
        let base = self.position;
        if base == self.format.geometry.subbuf_start(base) {
            match self.parse_subbuf(piece, base, head) {
                Ok(item) => emit.item(item)?,
                Err(rest) => return Ok(PieceEnd::Rest(rest)),
            }
        }
        loop {
            self.parse_short(piece, base, lengths, emit)?;
            let bytes = &piece[(self.position - base) as usize..];
            let Some(word) = word(bytes, 0) else {
                return Ok(match after {
                    After::LostPage => HOLE,
                    After::Nothing | After::More => PieceEnd::Piece,
                });
            };
            match record_id(word) {
                LTT_ID_NONE | LTT_ID_LOST => return Ok(HOLE),
                LTT_ID_PAD => return Ok(PieceEnd::Rest(RestOfSubbuf::Padding)),
                _ => {}
            }
            let record = Record::parse(word, bytes, self.time, self.max_time, lengths);
            let Some(record) = record else {
                return Ok(match after {
                    After::Nothing => PieceEnd::Rest(RestOfSubbuf::Gap(GapKind::Damaged)),
                    // The record may continue behind the piece, or in the lost page.
                    After::More => PieceEnd::Piece,
                    After::LostPage => HOLE,
                });
            };
            // With protocol `Shared`, the piece ends where the committed part does.
            let committed = self.format.protocol == Protocol::Shared;
            if record.busy && !committed && policy.waits_at(self.position) {
                return Ok(PieceEnd::Wait);
            }
            self.report(&record, emit)?;
        }
    }

    /// Parses short records, as nearly all are, from `position` on. Stops at anything else. The
    /// piece begins at `base`.
    // Not inlined, so that the loop's variables stay in registers.
    #[inline(never)]
    fn parse_short<E>(
        &mut self,
        piece: &[u8],
        base: u64,
        lengths: &impl PayloadLengths,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<(), E> {
        let (mut position, mut time, mut events) = (self.position, self.time, 0);
        loop {
            let bytes = &piece[(position - base) as usize..];
            let Some(word) = word(bytes, 0) else {
                break;
            };
            let Some((next_time, len, payload)) = short(word, bytes, time, self.max_time, lengths)
            else {
                break;
            };
            if position >= self.reported {
                if emit.takes_run(next_time)
                    && let Some(run) = Run::find(bytes, time, self.max_time, lengths)
                {
                    emit.run(&run, &bytes[..run.len])?;
                    events += run.events;
                    time = run.times[1];
                    position += run.len as u64;
                    break;
                }
                events += 1;
                emit.record(record_id(word), next_time, payload)?;
            }
            time = next_time;
            position += len;
        }
        (self.position, self.time) = (position, time);
        self.counts.events += events;
        Ok(())
    }

    /// Parses a sub-buffer in which a writer died, and advances `position`. `is_cut`: a lost page
    /// follows the piece.
    fn parse_incomplete<E>(
        &mut self,
        piece: &[u8],
        is_cut: bool,
        incomplete: IncompleteSubbuf,
        lengths: &impl PayloadLengths,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<PieceEnd, E> {
        let base = self.position;
        let mut header = 0;
        if base == self.format.geometry.subbuf_start(base) {
            header = SUBBUF_HEADER_LEN;
            if incomplete.has_header {
                match self.parse_subbuf(piece, base, base) {
                    Ok(item) => emit.item(item)?,
                    Err(rest) => return Ok(PieceEnd::Rest(rest)),
                }
            } else if !self.can_tell_earlier_rounds() || (piece.len() as u64) < header {
                let records = piece.get(header as usize..).unwrap_or_default();
                let is_untouched = || records.iter().all(|&byte| byte == 0);
                if is_cut || incomplete.uncommitted != Some(piece.len() as u64) || !is_untouched() {
                    return Ok(PieceEnd::Rest(RestOfSubbuf::Gap(GapKind::Corrupted)));
                }
                // The writer that took the place died before it stored the header, and no other
                // writer reserved anything there. A nonzero byte would be a record that its writer
                // completed and did not count.
                self.report(&self.unfinished(piece.len() as u64), emit)?;
                return Ok(PieceEnd::Piece);
            } else {
                self.position += header;
            }
        }
        let recovery = Recovery {
            max_time: self.max_time,
            pad_may_lack: incomplete.pad_may_lack && !is_cut,
        };
        let survey = recovery.survey(
            &piece[(self.position - base) as usize..],
            self.time,
            lengths,
        );
        // Without the lost page, the commit counter proves nothing.
        let believed = !is_cut
            && incomplete
                .uncommitted
                .is_some_and(|uncommitted| survey.agrees(uncommitted, header));
        loop {
            let bytes = &piece[(self.position - base) as usize..];
            match recovery.segment(bytes, self.time, lengths) {
                None if is_cut => return Ok(HOLE),
                // The hole may be a record that ends in the lost page.
                Some(Segment::Hole(len)) if is_cut && len == bytes.len() as u64 => return Ok(HOLE),
                None => return Ok(PieceEnd::Piece),
                Some(Segment::Record(record)) => self.report(&record, emit)?,
                Some(Segment::Padding(_)) => return Ok(PieceEnd::Rest(RestOfSubbuf::Padding)),
                Some(Segment::Hole(_)) if !believed => {
                    return Ok(PieceEnd::Rest(RestOfSubbuf::Gap(GapKind::Corrupted)));
                }
                Some(Segment::Hole(len)) => self.report(&self.unfinished(len), emit)?,
            }
        }
    }

    /// A record whose writer reserved it and died before it stored the length.
    fn unfinished(&self, len: u64) -> Record<'static> {
        Record {
            time: self.time,
            len,
            busy: true,
            payload: Payload::Gap(GapKind::Unfinished),
        }
    }

    /// Whether the time tells records of earlier rounds from new ones in the sub-buffer at
    /// `position`. It does not if no full time is known, or if the last one is a whole ring old.
    fn can_tell_earlier_rounds(&self) -> bool {
        self.time != 0 && self.position - self.time_subbuf < self.format.geometry.ring_size()
    }

    /// Reports the record at `position`, and moves behind it.
    fn report<E>(&mut self, record: &Record<'_>, emit: &mut impl Sink<Error = E>) -> Result<(), E> {
        let was_reported = self.position < self.reported;
        self.time = record.time;
        self.time_subbuf = self.format.geometry.subbuf_start(self.position);
        self.position += record.len;
        if was_reported {
            return Ok(());
        }
        match record.payload {
            Payload::None => Ok(()),
            Payload::Event(id, payload) => {
                self.counts.events += 1;
                emit.item(Item::Record {
                    id,
                    time: record.time,
                    payload,
                })
            }
            Payload::Gap(kind) => {
                self.counts.add_gap(kind);
                self.counts.add_gap_bytes(kind, record.len);
                emit.item(Item::Gap { kind })
            }
        }
    }

    /// Parses the header of the sub-buffer at `start`, and moves behind it.
    fn parse_subbuf(
        &mut self,
        piece: &[u8],
        start: u64,
        head: u64,
    ) -> Result<Item<'static>, RestOfSubbuf> {
        let Ok((header, _)) = LttSubbuf::read_from_prefix(piece) else {
            return Err(RestOfSubbuf::Gap(GapKind::Damaged));
        };
        let magic = header.magic == LTT_SUBBUF_MAGIC;
        if (header.position, header.time, header.cpu, header.magic) == (0, 0, 0, 0) {
            return Err(RestOfSubbuf::Gap(GapKind::Hole));
        }
        let geometry = self.format.geometry;
        if magic && head > self.end() && geometry.is_earlier_round(header.position, start) {
            return Err(RestOfSubbuf::PassedOver);
        }
        if !magic || header.position != start || header.time > self.max_time {
            return Err(RestOfSubbuf::Gap(GapKind::Damaged));
        }
        if header.time < self.time {
            self.counts.damaged += 1;
        }
        self.time = header.time;
        self.time_subbuf = start;
        self.position += SUBBUF_HEADER_LEN;
        Ok(Item::SubBuffer {
            time: header.time,
            lost: header.lost,
            cpu: header.cpu,
        })
    }
}

/// Reads the header of the sub-buffer at `position`.
pub(super) fn header_at(
    geometry: Geometry,
    memory: &mut impl RingMemory,
    position: u64,
) -> LttSubbuf {
    let mut bytes = [0; SUBBUF_HEADER_LEN as usize];
    memory.read(geometry.offset(position), &mut bytes);
    LttSubbuf::read_from_bytes(&bytes).unwrap_or_default()
}

/// Whether the writer began to store the header of the next round over that of the oldest
/// sub-buffer. It does so before it moves the head, and its words may become visible in any order.
fn overwritten(geometry: Geometry, memory: &mut impl RingMemory, oldest: u64) -> bool {
    let mut header = |position| header_at(geometry, memory, position);
    let this = header(oldest);
    if this.position == LTT_LOST_WORD {
        // A lost page, not a header.
        return false;
    }
    let position = oldest + geometry.subbuf_size();
    let next = header(position);
    let next_is_whole = next.position == position && next.magic == LTT_SUBBUF_MAGIC;
    this.position == oldest + geometry.ring_size()
        || next_is_whole && (this.time > next.time || this.lost > next.lost)
}
