//! Parsing of records.

use usertrace_sys::uapi::{
    LTT_ID_BITS, LTT_ID_LONG, LTT_ID_MAX, LTT_ID_META, LTT_ID_MIN, LTT_ID_TIME, LTT_LONG_BUSY,
    LTT_LONG_DONE, LTT_LONG_ID_MASK, LTT_LONG_ID_SHIFT, LTT_LONG_LEN_MASK, LTT_LOST_WORD,
    LTT_META_MAX,
};

use crate::GapKind;

/// Bits of the full time in a record's header word. Also the longest time between two records
/// without a record that has the full time.
pub const TIME_MASK: u64 = u64::MAX >> LTT_ID_BITS;

/// The smallest page size.
pub(super) const PAGE: u64 = 4096;

/// Length of a long record's header in bytes.
pub(super) const LONG_HEADER_LEN: usize = 16;

/// Knows the payload lengths of events.
pub trait PayloadLengths {
    /// Length of the payload of event `id` at the start of `bytes`. None if the id is unknown, or
    /// if `bytes` does not begin with such a payload. `bytes` may be too short, or longer.
    fn payload_len(&self, id: u16, bytes: &[u8]) -> Option<usize>;

    /// Lengths of short records with header and padding, by event id. 0 or out of range: ask
    /// [`PayloadLengths::payload_len`].
    fn record_lens(&self) -> &[u32] {
        &[]
    }
}

/// Lengths in a control channel, which only has descriptions.
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
    /// Length with header and padding.
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

/// Length of the part of `piece`, which begins at `position` of the ring, that precedes the first
/// lost page. A lost page, or the part of one in the piece, consists of `LTT_LOST_WORD`.
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

/// The first full time at or after `time` that has the low 48 bits of a record's header word.
#[must_use]
#[inline(always)]
pub fn record_time(time: u64, header: u64) -> Option<u64> {
    let passed = (header >> LTT_ID_BITS).wrapping_sub(time) & TIME_MASK;
    time.checked_add(passed)
}

/// Like [`record_time`], for a sub-buffer in which the high bits of the time never change.
pub(super) fn later_within(time: u64, header: u64) -> Option<u64> {
    let same_high = time & !TIME_MASK | header >> LTT_ID_BITS;
    (same_high >= time).then_some(same_high)
}

/// Parses a short record at the start of `bytes`, with header word `header`, behind a record of
/// `time`. Returns its time, its length with header and padding, and its payload. None if there is
/// none.
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
    // Cannot overflow: slices are shorter.
    let padded = (len + 7) & !7;
    (padded <= room.len()).then_some((time, 8 + padded as u64, payload))
}

impl<'a> Record<'a> {
    /// Parses a record other than a [`short`] one at the start of `bytes`, with header word
    /// `header`, behind a record of `time`. None if there is none; then the position of the next
    /// record is unknown.
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
            // The caller has tried [`short`].
            _ => None,
        }
    }

    /// Parses a long record at the start of `bytes`.
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
            // The length is known in any case, so damage is limited to this record.
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
