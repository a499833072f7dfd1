//! Records.

use usertrace_sys::uapi::{
    LTT_ID_BITS, LTT_ID_LONG, LTT_ID_MAX, LTT_ID_META, LTT_ID_MIN, LTT_ID_TIME, LTT_LONG_BUSY,
    LTT_LONG_DONE, LTT_LONG_ID_MASK, LTT_LONG_ID_SHIFT, LTT_LONG_LEN_MASK, LTT_LOST_WORD,
    LTT_META_MAX,
};

use crate::GapKind;

/// Bits of a full time that a record's header word has, and the most that may pass between two
/// records without another one that has it all.
pub const TIME_MASK: u64 = u64::MAX >> LTT_ID_BITS;

/// Pages are no smaller, and begin at multiples of this.
pub(super) const PAGE: u64 = 4096;

/// Length of the header of a long record.
pub(super) const LONG_HEADER_LEN: usize = 16;

/// Knows how long payloads are.
pub trait PayloadLengths {
    /// Length of the payload, at the start of `bytes`, of an event of this id. None when the id is
    /// unknown, or when no payload of that event begins so; `bytes` may end early, and may be
    /// longer.
    fn payload_len(&self, id: u16, bytes: &[u8]) -> Option<usize>;

    /// By id, how long short records of an event are, with header and padding, if all are of one
    /// length. 0, or no number: ask [`PayloadLengths::payload_len`].
    fn record_lens(&self) -> &[u32] {
        &[]
    }
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

/// A parsed record.
pub(super) struct Record<'a> {
    pub(super) time: u64,
    /// With its header and padding.
    pub(super) len: u64,
    pub(super) busy: bool,
    pub(super) payload: Payload<'a>,
}

pub(super) enum Payload<'a> {
    None,
    Event(u16, &'a [u8]),
    Gap(GapKind),
}

/// The 64-bit word at `offset`.
pub(super) fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// How many bytes of a piece of a ring, that begins at `position`, there are before the first page
/// that there was no memory for: all of it, as far as it is in the piece, reads as `LTT_LOST_WORD`.
pub(super) fn before_lost_page(piece: &[u8], position: u64) -> usize {
    let lost = LTT_LOST_WORD.to_ne_bytes();
    let mut at = 0;
    while at < piece.len() {
        let page = (PAGE - (position + at as u64) % PAGE) as usize;
        let rest = &piece[at..];
        let (words, _) = rest[..page.min(rest.len())].as_chunks();
        if !words.is_empty() && words.iter().all(|word| *word == lost) {
            return at;
        }
        at += page;
    }
    piece.len()
}

/// The id in a record's header word.
#[must_use]
pub fn record_id(header: u64) -> u16 {
    (header & ((1 << LTT_ID_BITS) - 1)) as u16
}

/// The full time, at or after `time`, whose low 48 bits are those of a record's header word.
#[must_use]
#[inline(always)]
pub fn record_time(time: u64, header: u64) -> Option<u64> {
    let passed = (header >> LTT_ID_BITS).wrapping_sub(time) & TIME_MASK;
    time.checked_add(passed)
}

/// Like [`record_time`], in a sub-buffer in which the high bits of the time do not change.
pub(super) fn later_within(time: u64, header: u64) -> Option<u64> {
    let same_high = time & !TIME_MASK | header >> LTT_ID_BITS;
    (same_high >= time).then_some(same_high)
}

/// The short record at the start of `bytes`, whose header word is `header`, and which follows one
/// of `time`: when it was written, how long it is with its header and padding, and its payload.
/// None: there is none.
#[inline(always)]
pub(super) fn short<'a>(
    header: u64,
    bytes: &'a [u8],
    time: u64,
    max_time: u64,
    lengths: &impl PayloadLengths,
) -> Option<(u64, u64, &'a [u8])> {
    let id = record_id(header);
    if !matches!(id, LTT_ID_MIN..=LTT_ID_MAX | LTT_ID_META) {
        return None;
    }
    let time = record_time(time, header).filter(|&time| time <= max_time)?;
    let room = bytes.get(8..)?;
    let len = lengths.payload_len(id, room)?;
    let payload = room.get(..len)?;
    // No overflow: no slice is nearly so long.
    let padded = (len + 7) & !7;
    (padded <= room.len()).then_some((time, 8 + padded as u64, payload))
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, whose header word is `header`, which follows one of
    /// `time`, and which is no [`short`] one. None: there is none, and where the next one is cannot
    /// be said.
    pub(super) fn parse(
        header: u64,
        bytes: &'a [u8],
        time: u64,
        max_time: u64,
        lengths: &impl PayloadLengths,
    ) -> Option<Self> {
        let before = time;
        let time = record_time(before, header).filter(|&time| time <= max_time)?;
        match record_id(header) {
            LTT_ID_TIME => {
                let full = word(bytes, 8)?;
                (full >= before && full <= max_time).then_some(Record {
                    time: full,
                    len: 16,
                    busy: false,
                    payload: Payload::None,
                })
            }
            LTT_ID_LONG => Self::parse_long(time, bytes, lengths),
            // A short one was looked for before.
            _ => None,
        }
    }

    /// The long record at the start of `bytes`.
    pub(super) fn parse_long(
        time: u64,
        bytes: &'a [u8],
        lengths: &impl PayloadLengths,
    ) -> Option<Self> {
        let second = word(bytes, 8)?;
        let len = second & LTT_LONG_LEN_MASK;
        if len < LONG_HEADER_LEN as u64 || !len.is_multiple_of(8) || len > bytes.len() as u64 {
            return None;
        }
        let busy = match (second & LTT_LONG_DONE != 0, second & LTT_LONG_BUSY != 0) {
            (true, false) => false,
            (false, true) => true,
            _ => return None,
        };
        let id = (second >> LTT_LONG_ID_SHIFT & LTT_LONG_ID_MASK) as u16;
        let payload = if busy {
            Payload::Gap(GapKind::Unfinished)
        } else {
            // How long the record is, is known in any case: damage does not go beyond it.
            let room = &bytes[LONG_HEADER_LEN..len as usize];
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
}
