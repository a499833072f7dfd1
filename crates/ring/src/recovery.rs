//! The way through a sub-buffer of the shared protocol in which writers died.
//!
//! A record whose words were stored says how long it is, whether it was completed or not. One whose
//! writer died between its reservation and the store of its words is a hole of bytes that are of an
//! earlier round, or zeros; it ends where the next record begins. What was taken for records and
//! holes is believed if it agrees with the counts.

use usertrace_sys::uapi::{LTT_ID_LONG, LTT_ID_PAD};

use crate::PayloadLengths;
use crate::record::{LONG_HEADER_LEN, Record, later_within, record_id, word};

/// What is at one place of a sub-buffer.
pub(super) enum Tile<'a> {
    Record(Record<'a>),
    /// Up to the end.
    Padding(u64),
    /// Somebody reserved so many bytes, and stored nothing.
    Hole(u64),
}

impl Tile<'_> {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Record(record) => record.len,
            Self::Padding(len) | Self::Hole(len) => *len,
        }
    }
}

/// A walk through what is left of a sub-buffer.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    /// Latest time that is believed.
    pub(super) max_time: u64,
    /// Nobody knows whether the padding at the end was stored.
    pub(super) pad_may_lack: bool,
}

/// What a walk found, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// What was certainly not committed.
    uncommitted: u64,
    /// What may have been committed or not: its writer died between completing and counting it, or
    /// did not.
    complete: u64,
    /// Where the first hole is.
    pub(super) hole: Option<u64>,
}

impl Survey {
    /// Do so many bytes that were not committed agree with this?
    pub(super) fn agrees(&self, uncommitted: u64, header: u64) -> bool {
        (self.uncommitted..=self.uncommitted + self.complete + header).contains(&uncommitted)
    }
}

impl Walk {
    /// What is at the start of `bytes`, which are the rest of the sub-buffer, and follow a record
    /// of `time`. None: the end.
    pub(super) fn tile<'a>(
        self,
        bytes: &'a [u8],
        time: u64,
        lengths: &impl PayloadLengths,
    ) -> Option<Tile<'a>> {
        if bytes.len() < 8 {
            return None;
        }
        if let Some(tile) = self.stored(bytes, time, lengths) {
            return Some(tile);
        }
        // No record is shorter than its header.
        let next = (LONG_HEADER_LEN..bytes.len())
            .step_by(8)
            .find(|&at| self.stored(&bytes[at..], time, lengths).is_some());
        Some(match next {
            Some(next) => Tile::Hole(next as u64),
            None if self.pad_may_lack => Tile::Padding(bytes.len() as u64),
            None => Tile::Hole(bytes.len() as u64),
        })
    }

    /// What was stored in this round, if it begins at the start of `bytes`. The time tells it from
    /// earlier ones.
    fn stored<'a>(
        self,
        bytes: &'a [u8],
        time: u64,
        lengths: &impl PayloadLengths,
    ) -> Option<Tile<'a>> {
        let header = word(bytes, 0)?;
        let time = || later_within(time, header).filter(|&time| time <= self.max_time);
        match record_id(header) {
            LTT_ID_LONG => Some(Tile::Record(Record::parse_long(time()?, bytes, lengths)?)),
            LTT_ID_PAD => {
                time()?;
                Some(Tile::Padding(bytes.len() as u64))
            }
            _ => None,
        }
    }

    /// Walks to the end of `bytes`.
    pub(super) fn survey(
        self,
        bytes: &[u8],
        mut time: u64,
        lengths: &impl PayloadLengths,
    ) -> Survey {
        let mut survey = Survey::default();
        let mut at = 0;
        while let Some(tile) = self.tile(&bytes[at as usize..], time, lengths) {
            match &tile {
                Tile::Record(record) => {
                    time = record.time;
                    if record.busy {
                        survey.uncommitted += record.len;
                    } else {
                        survey.complete += record.len;
                    }
                }
                Tile::Padding(len) => survey.complete += len,
                Tile::Hole(len) => {
                    survey.uncommitted += len;
                    survey.hole.get_or_insert(at);
                }
            }
            at += tile.len();
        }
        survey
    }
}
