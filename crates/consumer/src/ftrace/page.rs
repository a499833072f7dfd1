//! Records in a sub-buffer of ftrace's ring buffer. The format is defined in Linux,
//! `include/linux/ring_buffer.h` and `kernel/trace/ring_buffer.c`, `rb_read_data_buffer()`, and
//! shown by the file `header_page` of tracefs.

/// Size of a page's header: the timestamp, and the commit word.
pub(super) const HEADER: usize = 16;
/// Flags of the commit word. Events were lost before this page; the second flag means that their
/// number follows the last record.
const MISSED_EVENTS: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
/// Number of time bits in a record's header.
const DELTA_BITS: u32 = 27;
/// Record types. Smaller values are events: a quarter of their length.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// The time bits that an absolute timestamp lacks, and that are taken from the previous time.
const TIME_TOP: u64 = 0x1f << 59;

/// An event's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// In the clock of the trace.
    pub(super) time: u64,
    /// Offset of the record in the page's data.
    pub(super) offset: usize,
    pub(super) bytes: &'a [u8],
}

/// The number of bytes of records in a page, from its header.
pub(super) fn len(page: &[u8]) -> usize {
    (word(page, 8) & 0xffff_ffff & !(MISSED_EVENTS | MISSED_STORED)) as usize
}

/// How many events were lost before this page; `None` if the number is unknown.
pub(super) fn missed(page: &[u8]) -> Option<u64> {
    let commit = word(page, 8);
    match (commit & MISSED_EVENTS != 0, commit & MISSED_STORED != 0) {
        (false, _) => Some(0),
        (true, true) => Some(word(page, HEADER + len(page))),
        (true, false) => None,
    }
}

/// The records in the first `len` bytes of a page's data.
pub(super) fn records(page: &[u8], len: usize) -> Records<'_> {
    let data = page.get(HEADER..).unwrap_or_default();
    Records {
        data: &data[..len.min(data.len())],
        time: word(page, 0),
        at: 0,
    }
}

pub(super) struct Records<'a> {
    data: &'a [u8],
    time: u64,
    at: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            let offset = self.at;
            let header = half(self.data, offset)?;
            let (kind, delta) = (header & 0x1f, u64::from(header >> 5));
            let first = half(self.data, offset + 4);
            let long = || first.map(|first| (u64::from(first) << DELTA_BITS) + delta);
            match kind {
                TIME_EXTEND => {
                    self.time = self.time.wrapping_add(long()?);
                    self.at = offset + 8;
                }
                TIME_STAMP => {
                    let time = long()? & !TIME_TOP | self.time & TIME_TOP;
                    // Times are monotonic, so a smaller one has wrapped around.
                    let round = if time < self.time {
                        TIME_TOP & TIME_TOP.wrapping_neg()
                    } else {
                        0
                    };
                    self.time = time.wrapping_add(round);
                    self.at = offset + 8;
                }
                // The rest of the page is unused.
                PADDING if delta == 0 => return None,
                PADDING => {
                    // A discarded event. Its time delta counts, except for the value 1, which means
                    // no time.
                    if delta != 1 {
                        self.time = self.time.wrapping_add(delta);
                    }
                    self.at = offset.checked_add(4)?.checked_add(first? as usize)?;
                }
                _ => {
                    self.time = self.time.wrapping_add(delta);
                    let (start, len) = match kind {
                        0 => (offset + 8, (first? as usize).checked_sub(4)?),
                        quarter => (offset + 4, quarter as usize * 4),
                    };
                    let end = start.checked_add(len)?;
                    let bytes = self.data.get(start..end)?;
                    self.at = end.checked_next_multiple_of(4)?;
                    let time = self.time;
                    return Some(Record {
                        time,
                        offset,
                        bytes,
                    });
                }
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(time: u64, commit: u64, halves: &[u32]) -> Vec<u8> {
        let mut page = [time.to_ne_bytes(), commit.to_ne_bytes()].concat();
        page.extend(halves.iter().flat_map(|half| half.to_ne_bytes()));
        page
    }

    fn header(kind: u32, delta: u32) -> u32 {
        kind | delta << 5
    }

    #[test]
    fn records_of_all_kinds_are_read() {
        let halves = [
            header(2, 5),
            0xa,
            0xb,
            header(TIME_EXTEND, 1),
            2, // 2 << 27 later, and 1
            header(0, 3),
            9, // 5 bytes
            0xc,
            0xd,
            header(PADDING, 1),
            8,
            0,
            header(PADDING, 7),
            4,
            header(TIME_STAMP, 9),
            3,
            header(1, 0),
            0xe,
            header(PADDING, 0),
            0xf,
        ];
        let page = page(1 << 60, halves.len() as u64 * 4, &halves);
        let records: Vec<_> = records(&page, len(&page)).collect();
        let times: Vec<_> = records.iter().map(|r| (r.time, r.bytes.len())).collect();
        let first = (1 << 60) + 5;
        assert_eq!(
            times,
            [
                (first, 8),
                (first + (2 << 27) + 1 + 3, 5),
                // An absolute time takes its upper bits from the previous time.
                ((1 << 60) + (3 << 27) + 9, 4)
            ]
        );
        assert_eq!(records[0].bytes[..4], 0xau32.to_ne_bytes());
        assert_eq!(records[1].bytes[..4], 0xcu32.to_ne_bytes());
        assert_eq!(records[1].offset, 20);
        assert_eq!(records[2].bytes, 0xeu32.to_ne_bytes());
    }

    #[test]
    fn page_reports_lost_events() {
        let record = [header(1, 5), 1, 17, 0];
        assert_eq!(missed(&page(0, 8, &record)), Some(0));
        assert_eq!(missed(&page(0, 8 | MISSED_EVENTS, &record)), None);
        let both = page(0, 8 | MISSED_EVENTS | MISSED_STORED, &record);
        assert_eq!((missed(&both), len(&both)), (Some(17), 8));
        assert_eq!(records(&both, len(&both)).count(), 1);
    }

    proptest! {
        /// The iterator stays within the page, and ends.
        #[test]
        fn any_page_is_read(halves in prop::collection::vec((0u32..40, any::<u32>()).prop_map(|(kind, rest)| {
            if kind < 32 { kind | rest << 5 } else { rest >> kind.saturating_sub(8) }
        }), 0..64), len in 0usize..300) {
            let page = page(7, 0, &halves);
            let mut end = 0;
            for record in records(&page, len) {
                prop_assert!(record.offset >= end && record.bytes.len() <= len);
                end = record.offset + record.bytes.len();
            }
        }
    }
}
