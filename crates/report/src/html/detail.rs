//! Keeps single events, in compressed parts, which the page inflates on demand.
//!
//! The size of all parts is limited. Half of the limit is for the newest parts. Of older ones,
//! every second part is kept, or every fourth one, and so on, so that all periods have some events.
//! The page shows the gaps.

use crate::binary::deflate;
use crate::varint;

/// Maximum number of events in a part.
const EVENTS: usize = 4096;
/// Uncompressed size in bytes at which a part ends.
const BYTES: usize = 512 << 10;
/// Maximum length of an event's text in bytes.
const MAX_TEXT: usize = 4096;

/// The span that an event ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedSpan {
    pub(super) pair: u32,
    pub(super) duration: u64,
    pub(super) depth: u32,
}

/// A sequence of consecutive events.
#[derive(Debug)]
pub(super) struct Part {
    /// Its number among all parts, including discarded ones.
    pub(super) number: u64,
    /// Times of its first and its last event, in ns since the first event of the trace.
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) events: u64,
    pub(super) bytes: Vec<u8>,
}

/// The columns of a part. Similar values are stored together, which compresses better.
const COLUMNS: usize = 7;
const TIME: usize = 0;
const LANE: usize = 1;
const CPU: usize = 2;
const CLASS: usize = 3;
const ENDED: usize = 4;
const LENGTH: usize = 5;
const TEXT: usize = 6;

#[derive(Debug)]
pub(super) struct Detail {
    pub(super) parts: Vec<Part>,
    budget: usize,
    len: usize,
    /// Older parts are kept if their number is a multiple of it.
    stride: u64,
    next: u64,
    columns: [Vec<u8>; COLUMNS],
    begin: u64,
    end: u64,
    events: usize,
}

impl Detail {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            parts: Vec::new(),
            budget,
            len: 0,
            stride: 1,
            next: 0,
            columns: Default::default(),
            begin: 0,
            end: 0,
            events: 0,
        }
    }

    /// Adds an event. `write` appends its text.
    pub(super) fn add(
        &mut self,
        time: u64,
        [lane, cpu, class]: [u32; 3],
        ended: Option<EndedSpan>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.budget == 0 {
            return;
        }
        if self.events == 0 {
            (self.begin, self.end) = (time, time);
        }
        let columns = &mut self.columns;
        varint::put(&mut columns[TIME], time - self.end);
        varint::put(&mut columns[LANE], lane.into());
        varint::put(&mut columns[CPU], cpu.into());
        varint::put(&mut columns[CLASS], class.into());
        match ended {
            None => columns[ENDED].push(0),
            Some(ended) => {
                varint::put(&mut columns[ENDED], u64::from(ended.pair) + 1);
                varint::put(&mut columns[ENDED], ended.duration);
                varint::put(&mut columns[ENDED], ended.depth.into());
            }
        }
        let text = &mut columns[TEXT];
        let before = text.len();
        write(text);
        let len = text.len() - before;
        if len > MAX_TEXT {
            text.truncate(before + MAX_TEXT);
            text.extend_from_slice(format!("… ({} bytes more)", len - MAX_TEXT).as_bytes());
        }
        let len = text.len() - before;
        varint::put(&mut columns[LENGTH], len as u64);
        self.end = time;
        self.events += 1;
        if self.events == EVENTS || self.columns[TEXT].len() > BYTES {
            self.end_part();
        }
    }

    /// Compresses and stores the current part.
    pub(super) fn end_part(&mut self) {
        if self.events == 0 {
            return;
        }
        let mut bytes = Vec::new();
        varint::put(&mut bytes, self.events as u64);
        for column in &self.columns {
            varint::put(&mut bytes, column.len() as u64);
        }
        for column in &mut self.columns {
            bytes.append(column);
        }
        let bytes = deflate(&bytes);
        self.len += bytes.len();
        self.parts.push(Part {
            number: self.next,
            begin: self.begin,
            end: self.end,
            events: self.events as u64,
            bytes,
        });
        self.next += 1;
        self.events = 0;
        while self.len > self.budget && self.thin() {}
    }

    /// Discards older parts. Returns false if there are none.
    fn thin(&mut self) -> bool {
        let mut newest = 0;
        let is_newest = |part: &&Part| {
            newest += part.bytes.len();
            newest <= self.budget / 2
        };
        let count = self.parts.iter().rev().take_while(is_newest).count();
        let (older, before) = (self.parts.len() - count, self.parts.len());
        // First those that just became old.
        for stride in [self.stride, self.stride.saturating_mul(2)] {
            let mut at = 0;
            self.parts.retain(|part| {
                at += 1;
                let is_kept = part.number.is_multiple_of(stride) && stride <= self.next;
                at > older || is_kept
            });
            self.stride = stride;
            if self.parts.len() < before {
                break;
            }
        }
        self.len = self.parts.iter().map(|part| part.bytes.len()).sum();
        older > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(budget: usize, parts: u64) -> Detail {
        let mut detail = Detail::new(budget);
        for n in 0..parts * EVENTS as u64 {
            let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            detail.add(n, [0, 1, 2], None, |text| text.extend(random));
        }
        detail.end_part();
        detail
    }

    /// Within the limit, all of the newest parts are kept, and of older ones some of each period.
    #[test]
    fn parts_beyond_the_budget_are_thinned_out_evenly() {
        let size = made(1 << 30, 1).len;
        let detail = made(40 * size, 250);
        assert!(
            detail.len <= 40 * size && detail.len > 20 * size,
            "{}",
            detail.len / size
        );
        let numbers: Vec<u64> = detail.parts.iter().map(|part| part.number).collect();
        assert!(
            numbers.ends_with(&(235..250).collect::<Vec<_>>()),
            "{numbers:?}"
        );
        let steps: Vec<u64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(numbers[0], 0);
        assert!(steps.iter().all(|&step| step <= 32), "{numbers:?}");
        assert!(
            detail
                .parts
                .iter()
                .all(|part| part.end - part.begin == EVENTS as u64 - 1)
        );
    }

    #[test]
    fn tiny_budgets_keep_no_parts() {
        assert!(made(0, 3).parts.is_empty());
        assert!(made(10, 3).parts.is_empty());
    }

    #[test]
    fn long_texts_are_truncated_with_a_note() {
        let mut detail = Detail::new(1 << 20);
        detail.add(5, [0; 3], None, |text| text.resize(MAX_TEXT + 17, b'x'));
        detail.end_part();
        let bytes = miniz_oxide::inflate::decompress_to_vec(&detail.parts[0].bytes).unwrap();
        assert!(bytes.ends_with("xxx… (17 bytes more)".as_bytes()));
    }
}
