//! The parser of rings.

use usertrace_sys::uapi::{
    LTT_ID_BITS, LTT_ID_LONG, LTT_ID_MAX, LTT_ID_META, LTT_ID_MIN, LTT_ID_NONE, LTT_ID_PAD,
    LTT_ID_TIME, LTT_LONG_BUSY, LTT_LONG_DONE, LTT_LONG_ID_MASK, LTT_LONG_ID_SHIFT,
    LTT_LONG_LEN_MASK, LTT_META_MAX, LTT_SUBBUF_MAGIC, LttSubbuf,
};
use zerocopy::FromBytes;

use super::{Geometry, RingMemory};

/// Length of the header of a sub-buffer.
pub const SUBBUF_HEADER_LEN: u64 = size_of::<LttSubbuf>() as u64;

/// No ring gets here: 146 years at a gigabyte per second. Positions below it can be added without overflow.
const MAX_POSITION: u64 = 1 << 62;

/// Bits of a full time that a record's header word has.
const TIME_MASK: u64 = u64::MAX >> LTT_ID_BITS;

/// Knows how long payloads are.
pub trait PayloadLengths {
    /// Length of the payload, at the start of `bytes`, of an event of this id. None when the id is unknown, or when
    /// no payload of that event begins so; `bytes` may end early, and may be longer.
    fn payload_len(&self, id: u16, bytes: &[u8]) -> Option<usize>;
}

/// The lengths in a control channel: it has descriptions of events only.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetaLengths;

impl PayloadLengths for MetaLengths {
    fn payload_len(&self, id: u16, bytes: &[u8]) -> Option<usize> {
        if id != LTT_ID_META {
            return None;
        }
        let longest = &bytes[..bytes.len().min(LTT_META_MAX)];
        longest.iter().position(|&b| b == 0).map(|nul| nul + 1)
    }
}

/// Why something in a ring was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapKind {
    /// Nothing was ever written there: the program had no memory for the page.
    Hole,
    /// A record that its writer had reserved, and not completed.
    Busy,
    /// Bytes that no writer writes.
    Damaged,
}

/// What a reader finds in a ring, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A sub-buffer begins.
    SubBuffer {
        /// When it was begun.
        time: u64,
        /// How many records the ring had lost by then.
        lost: u64,
        /// The CPU whose ring it is.
        cpu: u32,
    },
    /// A whole record.
    Record {
        /// The event's id.
        id: u16,
        /// The full time.
        time: u64,
        /// Its payload, without padding.
        payload: &'a [u8],
    },
    /// Something was passed over. How many events that were is not known, other than for [`GapKind::Busy`]: one.
    Gap {
        /// Why.
        kind: GapKind,
    },
}

/// What a reader has seen of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records of events.
    pub events: u64,
    /// Gaps of [`GapKind::Hole`] and [`GapKind::Busy`].
    pub holes: u64,
    /// Bytes in them.
    pub hole_bytes: u64,
    /// Gaps of [`GapKind::Damaged`], impossible positions, and steps back of the time.
    pub damaged: u64,
    /// Bytes in those gaps.
    pub damaged_bytes: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.holes += other.holes;
        self.hole_bytes += other.hole_bytes;
        self.damaged += other.damaged;
        self.damaged_bytes += other.damaged_bytes;
    }
}

/// What to do with the rest of the sub-buffer that the reader is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Parse it.
    Records,
    /// It follows a [`LTT_ID_PAD`].
    Padding,
    /// Pass over it, as part of a gap that was told already.
    Gap(GapKind),
}

/// How the parsing of a piece ended.
enum End {
    /// At its end.
    Piece,
    /// At a record whose writer may still be busy with it.
    Wait,
    /// At something that takes the rest of the sub-buffer with it.
    Rest(Rest),
}

/// Reads one ring, from where it left off.
///
/// A reader that is made for a dump, or for a ring from its beginning, tells of each record once. Times never leave
/// the limit that it was given; they may step back from one sub-buffer to the next if the process wrote such ones.
#[derive(Clone, Debug)]
pub struct RingReader {
    geometry: Geometry,
    /// Latest time that is believed.
    max_time: u64,
    /// Everything below was parsed.
    position: u64,
    /// Records below were told before, by another reader.
    told: u64,
    /// Full time at `position`.
    time: u64,
    rest: Rest,
    /// The last head that was refused, so that it is counted once.
    refused: Option<u64>,
    counts: Counts,
}

impl RingReader {
    /// A reader of a ring that is being written, from `consumed` on. Records later than `max_time` are damage.
    #[must_use]
    pub fn live(geometry: Geometry, consumed: u64, max_time: u64) -> Self {
        let consumed = consumed.min(MAX_POSITION);
        Self {
            geometry,
            max_time,
            // Its sub-buffer is whole as long as it was not consumed to the end, and has the time.
            position: geometry.subbuf_start(consumed),
            told: consumed,
            time: 0,
            rest: Rest::Records,
            refused: None,
            counts: Counts::default(),
        }
    }

    /// A reader of a ring that nobody writes any more: from the oldest sub-buffer that is still there, whether it was
    /// consumed or not.
    pub fn dump(
        geometry: Geometry,
        memory: &mut impl RingMemory,
        head: u64,
        max_time: u64,
    ) -> Self {
        let head = head.min(MAX_POSITION);
        let mut oldest = geometry.oldest(head);
        let newest = geometry.subbuf_start(head.saturating_sub(1));
        let full = newest - oldest == geometry.ring_size() - geometry.subbuf_size();
        if full && overwritten(geometry, memory, oldest) {
            oldest += geometry.subbuf_size();
        }
        Self::live(geometry, oldest, max_time)
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

    /// Reads up to `head`, and gives what is there to `emit`. `last`: nobody will write any more; otherwise a record
    /// that its writer may still complete is waited for, until half a ring was written after it.
    ///
    /// # Errors
    /// Those of `emit`; the reader is of no use afterwards.
    pub fn read<E>(
        &mut self,
        memory: &mut impl RingMemory,
        head: u64,
        last: bool,
        lengths: &impl PayloadLengths,
        emit: &mut impl FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let head = self.check_head(head, emit)?;
        let mut copy = Vec::new();
        while self.position < head {
            let start = self.geometry.subbuf_start(self.position);
            let end = start + self.geometry.subbuf_size();
            let piece = end.min(head) - self.position;
            if self.rest == Rest::Records {
                copy.resize(piece as usize, 0);
                memory.read(self.geometry.offset(self.position), &mut copy);
                let patience = !last && head - self.position < self.geometry.ring_size() / 2;
                match self.parse(&copy, patience, lengths, emit)? {
                    End::Piece => {}
                    End::Wait => return Ok(()),
                    End::Rest(rest) => {
                        self.rest = rest;
                        if let Rest::Gap(kind) = rest {
                            self.count_gap(kind);
                            emit(Item::Gap { kind })?;
                        }
                    }
                }
            }
            let skipped = end.min(head) - self.position;
            self.count_gap_bytes(skipped);
            self.position += skipped;
            if self.position == end {
                self.rest = Rest::Records;
            }
        }
        Ok(())
    }

    /// The head up to which can be read: never below `position`, and never more than a ring above it.
    fn check_head<E>(
        &mut self,
        head: u64,
        emit: &mut impl FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
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
        if usable - self.position > self.geometry.ring_size() {
            let oldest = self.geometry.oldest(usable);
            let kind = GapKind::Damaged;
            self.count_gap(kind);
            self.counts.damaged_bytes += oldest.saturating_sub(self.position);
            self.position = oldest.max(self.position);
            self.rest = Rest::Records;
            emit(Item::Gap { kind })?;
        }
        Ok(usable)
    }

    fn count_gap(&mut self, kind: GapKind) {
        match kind {
            GapKind::Hole | GapKind::Busy => self.counts.holes += 1,
            GapKind::Damaged => self.counts.damaged += 1,
        }
    }

    fn count_gap_bytes(&mut self, bytes: u64) {
        match self.rest {
            Rest::Records | Rest::Padding => {}
            Rest::Gap(GapKind::Hole | GapKind::Busy) => self.counts.hole_bytes += bytes,
            Rest::Gap(GapKind::Damaged) => self.counts.damaged_bytes += bytes,
        }
    }

    /// Parses a piece of one sub-buffer, that begins at `position`, and moves `position` to where that ended.
    fn parse<E>(
        &mut self,
        piece: &[u8],
        patience: bool,
        lengths: &impl PayloadLengths,
        emit: &mut impl FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<End, E> {
        let base = self.position;
        if base == self.geometry.subbuf_start(base) {
            match self.parse_subbuf(piece, base) {
                Ok(item) => emit(item)?,
                Err(kind) => return Ok(End::Rest(Rest::Gap(kind))),
            }
        }
        loop {
            let bytes = &piece[(self.position - base) as usize..];
            let Some(word) = word(bytes, 0) else {
                return Ok(End::Piece);
            };
            let id = (word & ((1 << LTT_ID_BITS) - 1)) as u16;
            match id {
                LTT_ID_NONE => return Ok(End::Rest(Rest::Gap(GapKind::Hole))),
                LTT_ID_PAD => return Ok(End::Rest(Rest::Padding)),
                _ => {}
            }
            let Some(record) = self.parse_record(id, word, bytes, lengths) else {
                return Ok(End::Rest(Rest::Gap(GapKind::Damaged)));
            };
            if record.busy && patience {
                return Ok(End::Wait);
            }
            let told = self.position < self.told;
            self.time = record.time;
            self.position += record.len;
            if told {
                continue;
            }
            match record.payload {
                Payload::None => {}
                Payload::Event(id, payload) => {
                    self.counts.events += 1;
                    emit(Item::Record {
                        id,
                        time: record.time,
                        payload,
                    })?;
                }
                Payload::Gap(kind) => {
                    self.count_gap(kind);
                    match kind {
                        GapKind::Damaged => self.counts.damaged_bytes += record.len,
                        GapKind::Hole | GapKind::Busy => self.counts.hole_bytes += record.len,
                    }
                    emit(Item::Gap { kind })?;
                }
            }
        }
    }

    /// Parses a sub-buffer's header, and moves behind it.
    fn parse_subbuf(&mut self, piece: &[u8], start: u64) -> Result<Item<'static>, GapKind> {
        let Ok((header, _)) = LttSubbuf::read_from_prefix(piece) else {
            return Err(GapKind::Damaged);
        };
        if header == LttSubbuf::default() {
            return Err(GapKind::Hole);
        }
        if header.position != start
            || header.magic != LTT_SUBBUF_MAGIC
            || header.time > self.max_time
        {
            return Err(GapKind::Damaged);
        }
        if header.time < self.time {
            self.counts.damaged += 1;
        }
        self.time = header.time;
        self.position += SUBBUF_HEADER_LEN;
        Ok(Item::SubBuffer {
            time: header.time,
            lost: header.lost,
            cpu: header.cpu,
        })
    }

    /// Parses the record at the start of `bytes`. None: there is none, and where the next one is cannot be said.
    fn parse_record<'a>(
        &self,
        id: u16,
        header: u64,
        bytes: &'a [u8],
        lengths: &impl PayloadLengths,
    ) -> Option<Record<'a>> {
        let time = later(self.time, header >> LTT_ID_BITS).filter(|&time| time <= self.max_time)?;
        match id {
            LTT_ID_TIME => {
                let full = word(bytes, 8)?;
                (full >= self.time && full <= self.max_time).then_some(Record {
                    time: full,
                    len: 16,
                    busy: false,
                    payload: Payload::None,
                })
            }
            LTT_ID_LONG => {
                let second = word(bytes, 8)?;
                let len = second & LTT_LONG_LEN_MASK;
                if len < 16 || !len.is_multiple_of(8) || len > bytes.len() as u64 {
                    return None;
                }
                let busy = match (second & LTT_LONG_DONE != 0, second & LTT_LONG_BUSY != 0) {
                    (true, false) => false,
                    (false, true) => true,
                    _ => return None,
                };
                let id = (second >> LTT_LONG_ID_SHIFT & LTT_LONG_ID_MASK) as u16;
                let payload = if busy {
                    Payload::Gap(GapKind::Busy)
                } else {
                    // How long the record is, is known in any case: damage does not go beyond it.
                    let room = &bytes[16..len as usize];
                    lengths
                        .payload_len(id, room)
                        .filter(|payload| payload.next_multiple_of(8) == room.len())
                        .and_then(|payload| room.get(..payload))
                        .map_or(Payload::Gap(GapKind::Damaged), |payload| {
                            Payload::Event(id, payload)
                        })
                };
                Some(Record {
                    time,
                    len,
                    busy,
                    payload,
                })
            }
            LTT_ID_MIN..=LTT_ID_MAX | LTT_ID_META => {
                let len = lengths.payload_len(id, &bytes[8..])?;
                let end = len.checked_add(8)?;
                let padded = end.checked_next_multiple_of(8)?;
                if padded > bytes.len() {
                    return None;
                }
                Some(Record {
                    time,
                    len: padded as u64,
                    busy: false,
                    payload: Payload::Event(id, &bytes[8..end]),
                })
            }
            _ => None,
        }
    }
}

/// A parsed record.
struct Record<'a> {
    time: u64,
    /// With its header and padding.
    len: u64,
    busy: bool,
    payload: Payload<'a>,
}

enum Payload<'a> {
    None,
    Event(u16, &'a [u8]),
    Gap(GapKind),
}

/// The 64-bit word at `offset`.
fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// The full time, at or after `time`, whose low 48 bits are `low`.
fn later(time: u64, low: u64) -> Option<u64> {
    let same_high = time & !TIME_MASK | low;
    if same_high >= time {
        Some(same_high)
    } else {
        same_high.checked_add(TIME_MASK + 1)
    }
}

/// Has the writer begun to put the header of the next round over that of the oldest sub-buffer? It does so before it
/// moves the head, and the words may come in any order.
fn overwritten(geometry: Geometry, memory: &mut impl RingMemory, oldest: u64) -> bool {
    let mut header = |position| {
        let mut bytes = [0; SUBBUF_HEADER_LEN as usize];
        memory.read(geometry.offset(position), &mut bytes);
        LttSubbuf::read_from_bytes(&bytes).unwrap_or_default()
    };
    let this = header(oldest);
    let position = oldest + geometry.subbuf_size();
    let next = header(position);
    let next_is_whole = next.position == position && next.magic == LTT_SUBBUF_MAGIC;
    this.position == oldest + geometry.ring_size()
        || next_is_whole && (this.time > next.time || this.lost > next.lost)
}
