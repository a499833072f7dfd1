//! Parses what is left of a sub-buffer of protocol `Shared` in which writers died.
//!
//! A record whose two header words were stored has its length, whether it was completed or not. If
//! its writer died between the reservation and these stores, there is a hole: bytes of an earlier
//! round, or zeros, up to the next record. The parser trusts what it found if the sizes agree with
//! the sub-buffer's commit counter.

use usertrace_sys::uapi::{LTT_ID_LONG, LTT_ID_PAD};

use crate::PayloadLengths;
use crate::record::{LONG_HEADER_LEN, Record, later_within, record_id, word};

/// One piece of a sub-buffer.
pub(super) enum Segment<'a> {
    Record(Record<'a>),
    /// Padding up to the end of the sub-buffer.
    Padding(u64),
    /// Reserved bytes into which nothing was stored.
    Hole(u64),
}

impl Segment<'_> {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Record(record) => record.len,
            Self::Padding(len) | Self::Hole(len) => *len,
        }
    }
}

/// A parser for the rest of a sub-buffer.
#[derive(Clone, Copy)]
pub(super) struct Recovery {
    /// The latest time that a record may have.
    pub(super) max_time: u64,
    /// The padding at the end may not have been stored.
    pub(super) pad_may_lack: bool,
}

/// Totals of a whole sub-buffer, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// Certainly not committed.
    uncommitted: u64,
    /// Complete, but perhaps not counted as committed: a writer may have died between the two.
    complete: u64,
    /// Offset of the first hole.
    pub(super) hole: Option<u64>,
}

impl Survey {
    /// Whether `uncommitted` bytes, as the commit counter has it, agree with these totals. `header`
    /// is the length of the sub-buffer's header, if that may be uncommitted too.
    pub(super) fn agrees(&self, uncommitted: u64, header: u64) -> bool {
        (self.uncommitted..=self.uncommitted + self.complete + header).contains(&uncommitted)
    }
}

impl Recovery {
    /// The first segment of `bytes`, the rest of the sub-buffer, which follows a record of `time`.
    /// None at the end.
    pub(super) fn segment<'a>(
        self,
        bytes: &'a [u8],
        time: u64,
        lengths: &impl PayloadLengths,
    ) -> Option<Segment<'a>> {
        if bytes.len() < 8 {
            return None;
        }
        if let Some(segment) = self.stored(bytes, time, lengths) {
            return Some(segment);
        }
        // Records are never shorter than a header.
        let next = (LONG_HEADER_LEN..bytes.len())
            .step_by(8)
            .find(|&at| self.stored(&bytes[at..], time, lengths).is_some());
        Some(match next {
            Some(next) => Segment::Hole(next as u64),
            None if self.pad_may_lack => Segment::Padding(bytes.len() as u64),
            None => Segment::Hole(bytes.len() as u64),
        })
    }

    /// The record or padding of this round at the start of `bytes`. Its time tells it from earlier
    /// rounds.
    fn stored<'a>(
        self,
        bytes: &'a [u8],
        time: u64,
        lengths: &impl PayloadLengths,
    ) -> Option<Segment<'a>> {
        let header = word(bytes, 0)?;
        let time = || later_within(time, header).filter(|&time| time <= self.max_time);
        match record_id(header) {
            LTT_ID_LONG => Some(Segment::Record(Record::parse_long(
                time()?,
                bytes,
                lengths,
            )?)),
            LTT_ID_PAD => {
                time()?;
                Some(Segment::Padding(bytes.len() as u64))
            }
            _ => None,
        }
    }

    /// Adds up all segments of `bytes`.
    pub(super) fn survey(
        self,
        bytes: &[u8],
        mut time: u64,
        lengths: &impl PayloadLengths,
    ) -> Survey {
        let mut survey = Survey::default();
        let mut at = 0;
        while let Some(segment) = self.segment(&bytes[at as usize..], time, lengths) {
            match &segment {
                Segment::Record(record) => {
                    time = record.time;
                    if record.busy {
                        survey.uncommitted += record.len;
                    } else {
                        survey.complete += record.len;
                    }
                }
                Segment::Padding(len) => survey.complete += len,
                Segment::Hole(len) => {
                    survey.uncommitted += len;
                    survey.hole.get_or_insert(at);
                }
            }
            at += segment.len();
        }
        survey
    }
}
