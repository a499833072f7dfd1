//! The reader of a ring.

use usertrace_sys::Protocol;
use usertrace_sys::uapi::{
    LTT_ID_BITS, LTT_ID_NONE, LTT_ID_PAD, LTT_LOST_WORD, LTT_SUBBUF_MAGIC, LttSubbuf,
};
use zerocopy::FromBytes;

use crate::geometry::MAX_POSITION;
use crate::record::{PAGE, Payload, Record, TIME_MASK, before_lost_page, record_id, short, word};
use crate::shared::{Look, Place, Remains};
use crate::recovery::{Tile, Walk};
use crate::{Counts, Format, GapKind, Geometry, Item, Patience, PayloadLengths, RingMemory};

/// Length of the header of a sub-buffer.
pub const SUBBUF_HEADER_LEN: u64 = size_of::<LttSubbuf>() as u64;

/// So much of a sub-buffer is copied at once, at most, unless a record is longer: what is copied is
/// parsed while it is in the second level of the cache. Shorter ones cost more, as a processor that
/// reads on and on fetches ahead, and begins anew after each pause. A multiple of the size of a
/// page.
const WINDOW: u64 = 256 << 10;

/// Takes what a reader finds, in order. Any function of an [`Item`] does.
pub trait Sink {
    /// Why it takes no more.
    type Error;

    /// Takes an item.
    ///
    /// # Errors
    /// When it takes no more.
    fn item(&mut self, item: Item<'_>) -> Result<(), Self::Error>;

    /// Takes an [`Item::Record`]. Nearly all items are such ones, and they come from one loop, into
    /// which this may be compiled.
    ///
    /// # Errors
    /// When it takes no more.
    #[inline]
    fn record(&mut self, id: u16, time: u64, payload: &[u8]) -> Result<(), Self::Error> {
        self.item(Item::Record { id, time, payload })
    }

    /// Would it take the records from here on, of which the first one was written at `time`, as
    /// they are? No other item comes before they do.
    #[inline]
    fn takes_run(&self, _time: u64) -> bool {
        false
    }

    /// Takes records as they are: in place of [`Sink::record`] for each, if [`Sink::takes_run`]
    /// says so.
    ///
    /// # Errors
    /// When it takes no more.
    fn run(&mut self, _run: &Run, _records: &[u8]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// So many bytes, into which records may be copied from a ring before anybody has looked at
    /// them. None: there are none.
    ///
    /// # Errors
    /// When it takes no more.
    #[inline]
    fn room(&mut self, _len: usize) -> Result<Option<&mut [u8]>, Self::Error> {
        Ok(None)
    }

    /// Takes records that are where what [`Sink::room`] gave last begins: like [`Sink::run`].
    #[inline]
    fn run_in_room(&mut self, _run: &Run) {}
}

/// Short records, one behind the other, that are whole, and of events that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many bytes they have, with their headers and their padding.
    pub len: usize,
    /// How much of that is the last one's padding.
    pub padding: usize,
    /// How many there are.
    pub events: u64,
    /// Full times of the first and the last one. Each is at or after the one before, and less than
    /// 2^48 after it.
    pub times: [u64; 2],
}

impl Run {
    /// All such ones that `piece` begins with, and that follow one of `time`. None: it begins with
    /// another one.
    // By itself, so that what its loop needs is in registers.
    #[inline(never)]
    fn find(piece: &[u8], time: u64, max_time: u64, lengths: &impl PayloadLengths) -> Option<Self> {
        let (mut rest, mut last, mut time, mut events) = (piece, piece, time, 0);
        let mut first = None;
        let lens = lengths.record_lens();
        while let Some(header) = word(rest, 0)
            && let Some((of_this, len, _)) = short(header, rest, time, max_time, lengths)
        {
            first.get_or_insert(of_this);
            (last, time, rest, events) = (rest, of_this, &rest[len as usize..], events + 1);
            // The next ones are mostly as long, which a processor can predict: it need not wait for
            // what is in one before it looks at the next. Where the high bits of the time change,
            // the outer loop looks.
            let len = len as usize;
            let (high, mut low) = (time & !TIME_MASK, time & TIME_MASK);
            let latest = (max_time - high).min(TIME_MASK);
            let mut as_long = 0;
            for record in rest.chunks_exact(len) {
                let Some(header) = word(record, 0) else { break };
                let of_this = header >> LTT_ID_BITS;
                let is_as_long = lens.get(usize::from(record_id(header))) == Some(&(len as u32));
                if !is_as_long || of_this < low || of_this > latest {
                    break;
                }
                (low, as_long) = (of_this, as_long + 1);
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

/// What to do with the rest of the sub-buffer that the reader is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Parse it.
    Records,
    /// It follows a `LTT_ID_PAD`.
    Padding,
    /// Pass over it, as part of a gap that was told already.
    Gap(GapKind),
    /// Its place was passed over by writers.
    PassedOver,
}

/// What is behind a piece of a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// Nothing that can be read.
    Nothing,
    /// More of it.
    More,
    /// A page that there was no memory for.
    Lost,
}

/// How the parsing of a piece ended.
enum End {
    /// At its end, or at what does not end in it, and there is more of the sub-buffer.
    Piece,
    /// At a record whose writer may still be busy with it.
    Wait,
    /// At something that takes the rest of the sub-buffer with it.
    Rest(Rest),
}

/// The rest of the sub-buffer is a hole.
const HOLE: End = End::Rest(Rest::Gap(GapKind::Hole));

/// Reads one ring, from where it left off.
///
/// A reader that is made for a dump, or for a ring from its beginning, tells of each record once.
/// Times never leave the limit that it was given; they may step back from one sub-buffer to the
/// next if the process wrote such ones.
#[derive(Clone, Debug)]
pub struct RingReader {
    format: Format,
    /// Latest time that is believed.
    max_time: u64,
    /// Everything below was parsed.
    position: u64,
    /// Records below were told before, by another reader.
    told: u64,
    /// Full time at `position`.
    time: u64,
    /// Start of the sub-buffer that has it.
    timed: u64,
    rest: Rest,
    /// The last head that was refused, so that it is counted once.
    refused: Option<u64>,
    /// How much is copied at once.
    window: u64,
    counts: Counts,
}

impl RingReader {
    /// A reader of a ring that is being written, from `consumed` on. Records later than `max_time`
    /// are damage.
    #[must_use]
    pub fn live(format: Format, consumed: u64, max_time: u64) -> Self {
        let consumed = consumed.min(MAX_POSITION);
        Self {
            format,
            max_time,
            // Its sub-buffer is whole as long as it was not consumed to the end, and has the time.
            position: format.geometry.subbuf_start(consumed),
            told: consumed,
            time: 0,
            timed: 0,
            rest: Rest::Records,
            refused: None,
            window: WINDOW,
            counts: Counts::default(),
        }
    }

    /// A reader of a ring that nobody writes any more: from the oldest sub-buffer that is still
    /// there, whether it was consumed or not.
    pub fn dump(format: Format, memory: &mut impl RingMemory, max_time: u64) -> Self {
        let geometry = format.geometry;
        let positions = memory.positions();
        let head = positions.head.min(MAX_POSITION);
        let mut oldest = format.valid_from(positions);
        // In a ring of the shared protocol, a sub-buffer is reserved, by moving the head, before
        // anything is stored into it. In the other one it is claimed before, unless the writer
        // discards, and what was there was consumed.
        if format.protocol == Protocol::Rseq {
            let newest = geometry.subbuf_start(head.saturating_sub(1));
            let full = newest - oldest == geometry.ring_size() - geometry.subbuf_size();
            if full && overwritten(geometry, memory, oldest) {
                oldest += geometry.subbuf_size();
            }
        }
        Self::live(format, oldest, max_time)
    }

    /// Everything below this position was read, and may be consumed.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.max(self.told)
    }

    /// What was seen so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Changes the latest time that is believed.
    pub fn set_max_time(&mut self, max_time: u64) {
        self.max_time = max_time;
    }

    /// Changes how many bytes of a sub-buffer are copied at once, unless a record is longer: whole
    /// pages, and at least one. What is told does not depend on it.
    pub fn set_window(&mut self, window: u64) {
        self.window = (window - window % PAGE).max(PAGE);
    }

    /// Reads up to `head`, and gives what is there to `emit`. Ends before `head` where something is
    /// waited for.
    ///
    /// # Errors
    /// Those of `emit`; the reader is of no use afterwards.
    pub fn read<E>(
        &mut self,
        memory: &mut impl RingMemory,
        head: u64,
        patience: Patience,
        lengths: &impl PayloadLengths,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<(), E> {
        let head = self.check_head(head, emit)?;
        let mut copy = Vec::new();
        let mut window = self.window;
        // The sub-buffer that has something that cannot be taken as it is.
        let mut mixed = None;
        // Each turn moves the position, makes the window larger, or is the last one.
        while self.position < head {
            if self.rest == Rest::Records {
                if self.read_in_place(memory, head, &mut mixed, lengths, emit)? {
                    continue;
                }
                let look = self.copy(memory, head, window, patience, &mut copy);
                if let Some(valid_from) = self.overtaken(memory) {
                    self.jump(valid_from, emit)?;
                    continue;
                }
                // Nothing in a page that there was no memory for can be told, nor what follows.
                let there = before_lost_page(&copy, self.position);
                let (piece, is_cut) = (&copy[..there], there < copy.len());
                let begin = self.position;
                let piece_end = begin + copy.len() as u64;
                let end = match look {
                    _ if piece.is_empty() && is_cut => HOLE,
                    Look::Whole(up_to) => {
                        let behind = if is_cut {
                            Behind::Lost
                        } else if piece_end < up_to {
                            Behind::More
                        } else {
                            Behind::Nothing
                        };
                        self.parse(piece, behind, head, patience, lengths, emit)?
                    }
                    Look::Broken(remains) => {
                        self.parse_broken(piece, is_cut, remains, lengths, emit)?
                    }
                    Look::PassedOver => End::Rest(Rest::PassedOver),
                    Look::Lost => HOLE,
                    Look::Wait => End::Wait,
                };
                match end {
                    End::Piece => {
                        // What begins there is longer than the window.
                        let is_longer = self.position == begin && piece_end < head;
                        window = if is_longer { u64::MAX } else { self.window };
                        continue;
                    }
                    End::Wait => return Ok(()),
                    End::Rest(rest) => self.rest = rest,
                }
                match self.rest {
                    Rest::Gap(_) if self.position < self.told => {}
                    Rest::Gap(kind) => {
                        self.counts.add_gap(kind);
                        emit.item(Item::Gap { kind })?;
                    }
                    Rest::PassedOver => self.counts.skipped += 1,
                    Rest::Records | Rest::Padding => {}
                }
            }
            let end = self.end();
            let passed = end.min(head) - self.position;
            if let Rest::Gap(kind) = self.rest {
                self.counts.add_gap_bytes(kind, passed);
            }
            self.position += passed;
            if self.position == end {
                self.rest = Rest::Records;
            }
        }
        Ok(())
    }

    /// Copies records, as far as they are in the window, to where they are to be in the end, and
    /// looks at them there. False: what is next is to be read in the usual way, which tells of
    /// anything that there may be.
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
            || position < self.told
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
            self.jump(valid_from, emit)?;
            return Ok(true);
        }
        let there = &room[..before_lost_page(room, position)];
        let run = Run::find(there, self.time, self.max_time, lengths);
        let run = run.filter(|run| emit.takes_run(run.times[0]));
        // What is copied and left is copied again.
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

    /// Up to where is to be copied of what is there up to `head`: whole pages, as one that there
    /// was no memory for is told by all of it. Of a sub-buffer that begins little: its header is
    /// not where the records are to be.
    fn window_end(&self, head: u64, window: u64) -> u64 {
        let is_begun = self.position != self.format.geometry.subbuf_start(self.position);
        let is_usual = window == self.window && self.format.protocol == Protocol::Rseq;
        let window = if is_usual && !is_begun { PAGE } else { window };
        let end = self.position.saturating_add(window);
        self.end().min(head).min(end - end % PAGE)
    }

    /// End of the sub-buffer that is being read.
    fn end(&self) -> u64 {
        let geometry = self.format.geometry;
        geometry.subbuf_start(self.position) + geometry.subbuf_size()
    }

    /// Copies what can be read of the sub-buffer, as far as it is in the window, or all if a writer
    /// died in it.
    fn copy(
        &self,
        memory: &mut impl RingMemory,
        head: u64,
        window: u64,
        patience: Patience,
        copy: &mut Vec<u8>,
    ) -> Look {
        let (geometry, position) = (self.format.geometry, self.position);
        let limit = self.end().min(head);
        let look = match self.format.protocol {
            Protocol::Rseq => Look::Whole(limit),
            Protocol::Shared => {
                Place::of(geometry, position).look(memory, position, head, patience)
            }
        };
        let up_to = match look {
            Look::Whole(up_to) => self.window_end(up_to, window),
            Look::Broken(_) => limit,
            Look::PassedOver | Look::Lost | Look::Wait => return look,
        };
        copy.resize((up_to - position) as usize, 0);
        memory.read(geometry.offset(position), copy);
        match look {
            // What was seen of it must still hold when it was copied.
            Look::Broken(remains) => remains.check(memory, patience),
            _ => look,
        }
    }

    /// The head up to which can be read: never below `position`, and never more than a ring above
    /// it.
    fn check_head<E>(&mut self, head: u64, emit: &mut impl Sink<Error = E>) -> Result<u64, E> {
        let usable = head & !7;
        let believed = usable == head && head <= MAX_POSITION && head >= self.position();
        let refused_before = self.refused == Some(head);
        self.refused = (!believed).then_some(head);
        if !believed && !refused_before {
            self.counts.damaged += 1;
        }
        if usable > MAX_POSITION || usable < self.position {
            return Ok(self.position);
        }
        if usable - self.position > self.format.geometry.ring_size() {
            // Whoever wrote it did not wait: it overwrites, or lies.
            let oldest = self.format.geometry.oldest(usable);
            self.jump(oldest, emit)?;
        }
        Ok(usable)
    }

    /// Where what is to be believed begins, if that is above the sub-buffer of which something was
    /// just copied.
    fn overtaken(&self, memory: &mut impl RingMemory) -> Option<u64> {
        // Whoever overwrites says so first, see `writer`: a copy that has a byte of it comes before
        // this look.
        let valid_from = self.format.valid_from(memory.positions());
        (valid_from > self.format.geometry.subbuf_start(self.position)).then_some(valid_from)
    }

    /// Goes on at `position`, the start of a sub-buffer, as everything below was overwritten.
    fn jump<E>(&mut self, position: u64, emit: &mut impl Sink<Error = E>) -> Result<(), E> {
        let unread = self.position();
        self.position = position;
        self.rest = Rest::Records;
        if unread >= position {
            return Ok(());
        }
        let geometry = self.format.geometry;
        let subbuffers = (position - geometry.subbuf_start(unread)) / geometry.subbuf_size();
        self.counts.overwritten += subbuffers;
        self.counts.overwritten_bytes += position - unread;
        emit.item(Item::Overwritten { subbuffers })
    }

    /// Parses a piece of one sub-buffer, that begins at `position`, and moves `position` to where
    /// that ended.
    fn parse<E>(
        &mut self,
        piece: &[u8],
        behind: Behind,
        head: u64,
        patience: Patience,
        lengths: &impl PayloadLengths,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<End, E> {
        let base = self.position;
        if base == self.format.geometry.subbuf_start(base) {
            match self.parse_subbuf(piece, base, head) {
                Ok(item) => emit.item(item)?,
                Err(rest) => return Ok(End::Rest(rest)),
            }
        }
        loop {
            self.parse_short(piece, base, lengths, emit)?;
            let bytes = &piece[(self.position - base) as usize..];
            let Some(word) = word(bytes, 0) else {
                return Ok(match behind {
                    Behind::Lost => HOLE,
                    Behind::Nothing | Behind::More => End::Piece,
                });
            };
            match record_id(word) {
                LTT_ID_NONE => return Ok(HOLE),
                LTT_ID_PAD => return Ok(End::Rest(Rest::Padding)),
                _ => {}
            }
            let record = Record::parse(word, bytes, self.time, self.max_time, lengths);
            let Some(record) = record else {
                return Ok(match behind {
                    Behind::Nothing => End::Rest(Rest::Gap(GapKind::Damaged)),
                    // It may be one that ends behind the piece, or in the page that is not there.
                    Behind::More => End::Piece,
                    Behind::Lost => HOLE,
                });
            };
            // In a ring of the shared protocol, it was looked at already whether all of the piece
            // is committed.
            let committed = self.format.protocol == Protocol::Shared;
            if record.busy && !committed && patience.waits_at(self.position) {
                return Ok(End::Wait);
            }
            self.tell(&record, emit)?;
        }
    }

    /// Parses short records, which nearly all are, in a piece that begins at `base`, from
    /// `position` on, up to what is none.
    // By itself, so that what its loop needs is in registers.
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
            let Some((of_this, len, payload)) = short(word, bytes, time, self.max_time, lengths)
            else {
                break;
            };
            if position >= self.told {
                if emit.takes_run(of_this)
                    && let Some(run) = Run::find(bytes, time, self.max_time, lengths)
                {
                    emit.run(&run, &bytes[..run.len])?;
                    events += run.events;
                    time = run.times[1];
                    position += run.len as u64;
                    break;
                }
                events += 1;
                emit.record(record_id(word), of_this, payload)?;
            }
            time = of_this;
            position += len;
        }
        (self.position, self.time) = (position, time);
        self.counts.events += events;
        Ok(())
    }

    /// Parses all that there is of a sub-buffer that is not whole, and moves `position` to where
    /// that ended. `is_cut`: as in `parse`.
    fn parse_broken<E>(
        &mut self,
        piece: &[u8],
        is_cut: bool,
        remains: Remains,
        lengths: &impl PayloadLengths,
        emit: &mut impl Sink<Error = E>,
    ) -> Result<End, E> {
        let base = self.position;
        let mut header = 0;
        if base == self.format.geometry.subbuf_start(base) {
            header = SUBBUF_HEADER_LEN;
            if remains.begun {
                match self.parse_subbuf(piece, base, base) {
                    Ok(item) => emit.item(item)?,
                    Err(rest) => return Ok(End::Rest(rest)),
                }
            } else if !self.knows_earlier_rounds() || (piece.len() as u64) < header {
                let records = piece.get(header as usize..).unwrap_or_default();
                let is_untouched = || records.iter().all(|&byte| byte == 0);
                if is_cut || remains.uncommitted != Some(piece.len() as u64) || !is_untouched() {
                    return Ok(End::Rest(Rest::Gap(GapKind::Corrupted)));
                }
                // Who took the place got no further, and nobody else had anything there: not even a
                // record that is done, and that its writer died too early to count.
                self.tell(&self.unfinished(piece.len() as u64), emit)?;
                return Ok(End::Piece);
            } else {
                self.position += header;
            }
        }
        let walk = Walk {
            max_time: self.max_time,
            pad_may_lack: remains.pad_may_lack && !is_cut,
        };
        let survey = walk.survey(
            &piece[(self.position - base) as usize..],
            self.time,
            lengths,
        );
        // How much of what is not there was committed, nobody knows.
        let believed = !is_cut
            && remains
                .uncommitted
                .is_some_and(|uncommitted| survey.agrees(uncommitted, header));
        loop {
            let bytes = &piece[(self.position - base) as usize..];
            match walk.tile(bytes, self.time, lengths) {
                None if is_cut => return Ok(HOLE),
                // Nor what is just before it: it may be a record that ends there.
                Some(Tile::Hole(len)) if is_cut && len == bytes.len() as u64 => return Ok(HOLE),
                None => return Ok(End::Piece),
                Some(Tile::Record(record)) => self.tell(&record, emit)?,
                Some(Tile::Padding(_)) => return Ok(End::Rest(Rest::Padding)),
                Some(Tile::Hole(_)) if !believed => {
                    return Ok(End::Rest(Rest::Gap(GapKind::Corrupted)));
                }
                Some(Tile::Hole(len)) => self.tell(&self.unfinished(len), emit)?,
            }
        }
    }

    /// What somebody reserved, and did not get so far as to say how long it is.
    fn unfinished(&self, len: u64) -> Record<'static> {
        Record {
            time: self.time,
            len,
            busy: true,
            payload: Payload::Gap(GapKind::Unfinished),
        }
    }

    /// Can what is of an earlier round be told by its time, in the sub-buffer at `position`? Not
    /// without any full time, nor if the last one is from before that round, as much was passed
    /// over.
    fn knows_earlier_rounds(&self) -> bool {
        self.time != 0 && self.position - self.timed < self.format.geometry.ring_size()
    }

    /// Tells of a record at `position`, and moves behind it.
    fn tell<E>(&mut self, record: &Record<'_>, emit: &mut impl Sink<Error = E>) -> Result<(), E> {
        let told = self.position < self.told;
        self.time = record.time;
        self.timed = self.format.geometry.subbuf_start(self.position);
        self.position += record.len;
        if told {
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
    fn parse_subbuf(&mut self, piece: &[u8], start: u64, head: u64) -> Result<Item<'static>, Rest> {
        let Ok((header, _)) = LttSubbuf::read_from_prefix(piece) else {
            return Err(Rest::Gap(GapKind::Damaged));
        };
        let magic = header.magic == LTT_SUBBUF_MAGIC;
        if (header.position, header.time, header.cpu, header.magic) == (0, 0, 0, 0) {
            return Err(Rest::Gap(GapKind::Hole));
        }
        let geometry = self.format.geometry;
        if magic && head > self.end() && geometry.is_earlier_round(header.position, start) {
            return Err(Rest::PassedOver);
        }
        if !magic || header.position != start || header.time > self.max_time {
            return Err(Rest::Gap(GapKind::Damaged));
        }
        if header.time < self.time {
            self.counts.damaged += 1;
        }
        self.time = header.time;
        self.timed = start;
        self.position += SUBBUF_HEADER_LEN;
        Ok(Item::SubBuffer {
            time: header.time,
            lost: header.lost,
            cpu: header.cpu,
        })
    }
}

/// What is where the header of the sub-buffer at `position` is.
pub(super) fn header_at(
    geometry: Geometry,
    memory: &mut impl RingMemory,
    position: u64,
) -> LttSubbuf {
    let mut bytes = [0; SUBBUF_HEADER_LEN as usize];
    memory.read(geometry.offset(position), &mut bytes);
    LttSubbuf::read_from_bytes(&bytes).unwrap_or_default()
}

/// Has the writer begun to put the header of the next round over that of the oldest sub-buffer? It
/// does so before it moves the head, and the words may come in any order.
fn overwritten(geometry: Geometry, memory: &mut impl RingMemory, oldest: u64) -> bool {
    let mut header = |position| header_at(geometry, memory, position);
    let this = header(oldest);
    if this.position == LTT_LOST_WORD {
        // Not a header of any round.
        return false;
    }
    let position = oldest + geometry.subbuf_size();
    let next = header(position);
    let next_is_whole = next.position == position && next.magic == LTT_SUBBUF_MAGIC;
    this.position == oldest + geometry.ring_size()
        || next_is_whole && (this.time > next.time || this.lost > next.lost)
}
