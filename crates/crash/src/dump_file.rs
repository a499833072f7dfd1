//! The bytes of a dump file, in order, even if makedumpfile has flattened it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use crate::Presence;

/// Magic number of a flattened file (makedumpfile, `makedumpfile.h`: `struct makedumpfile_header`),
/// 16 bytes with its NULs.
const FLATTENED: &[u8; 16] = b"makedumpfile\0\0\0\0";
/// Offset of the first record. A record is a position in the original file, a length, each a
/// big-endian `i64`, and the bytes.
const FIRST: u64 = 4096;
const RECORD_HEADER: usize = 16;
/// The position in the last record.
const END: i64 = -1;

/// A dump file, read in the order of the original.
#[derive(Debug)]
pub(super) struct DumpFile {
    file: File,
    len: u64,
    stored: u64,
    /// For a flattened file: its pieces by their start in the original file.
    pieces: Option<BTreeMap<u64, Piece>>,
    cut_short: bool,
}

/// A contiguous piece of the original and the flattened file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: u64,
    /// Its offset in the flattened file.
    at: u64,
}

impl DumpFile {
    /// Opens a file without interpreting its start.
    pub(super) fn open_plain(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        // Unlike the metadata, this also works for a block device, to which kdump may save.
        let len = file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file,
            len,
            stored: len,
            pieces: None,
            cut_short: false,
        })
    }

    /// Opens a file, flattened or not.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut dump = Self::open_plain(path)?;
        let mut magic = [0; FLATTENED.len()];
        if dump.read_up_to(0, &mut magic)? == magic.len() && magic == *FLATTENED {
            dump.find_pieces()?;
        }
        Ok(dump)
    }

    /// The length of the original file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// An upper bound of the bytes that are not holes. It limits the work of scanning a file with
    /// forged lengths.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// Whether a flattened file has no last record.
    pub(super) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    fn find_pieces(&mut self) -> io::Result<()> {
        let (mut pieces, mut at, mut end) = (BTreeMap::new(), FIRST, 0);
        self.cut_short = true;
        let mut header = [0; RECORD_HEADER];
        while self.read_up_to(at, &mut header)? == header.len() {
            let number = |at: usize| {
                let bytes = header[at..].first_chunk();
                bytes.map_or(0, |bytes| i64::from_be_bytes(*bytes))
            };
            let (position, len) = (number(0), number(8));
            if position == END {
                self.cut_short = false;
                break;
            }
            at += RECORD_HEADER as u64;
            let (Ok(position), Ok(len)) = (u64::try_from(position), u64::try_from(len)) else {
                break;
            };
            let (Some(to), Some(next)) = (position.checked_add(len), at.checked_add(len)) else {
                break;
            };
            put(&mut pieces, position, Piece { end: to, at });
            end = end.max(to);
            at = next;
        }
        (self.pieces, self.len) = (Some(pieces), end);
        Ok(())
    }

    /// Reads as many bytes as the original file has. Gaps between pieces are zeros, like holes in a
    /// file.
    pub(super) fn read_up_to(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(pieces) = &self.pieces else {
            return read_up_to(&self.file, offset, buffer);
        };
        let room = self.len.saturating_sub(offset);
        let wanted = buffer
            .len()
            .min(usize::try_from(room).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let rest = &mut buffer[done..wanted];
            let before = pieces.range(..=at).next_back();
            done += match before.filter(|(_, piece)| piece.end > at) {
                Some((start, piece)) => {
                    let len = rest.len().min((piece.end - at) as usize);
                    let read = read_up_to(&self.file, piece.at + (at - start), &mut rest[..len])?;
                    if read < len {
                        return Ok(done + read);
                    }
                    len
                }
                None => {
                    let next = pieces.range(at..).next();
                    let gap = next.map_or(u64::MAX, |(start, _)| start - at);
                    let len = rest.len().min(usize::try_from(gap).unwrap_or(usize::MAX));
                    rest[..len].fill(0);
                    len
                }
            };
        }
        Ok(done)
    }

    /// The parts of this range that are not holes. Holes are zeros, so scans can skip them.
    pub(super) fn data(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut at = within.start;
        std::iter::from_fn(move || {
            let data = self.next_data(at).filter(|data| data.start < within.end)?;
            at = data.end;
            Some(data.start..data.end.min(within.end))
        })
    }

    /// The next part from an offset on that is not a hole.
    fn next_data(&self, from: u64) -> Option<Range<u64>> {
        if let Some(pieces) = &self.pieces {
            let before = pieces.range(..=from).next_back();
            let before = before.filter(|(_, piece)| piece.end > from);
            let (&start, piece) = before.or_else(|| pieces.range(from..).next())?;
            return Some(start.max(from)..piece.end);
        }
        if from >= self.len {
            return None;
        }
        let seek = |from: u64, whence| match i64::try_from(from) {
            Ok(from) => lseek(&self.file, from, whence).map(i64::cast_unsigned),
            Err(_) => Err(Errno::ENXIO),
        };
        match seek(from, Whence::SeekData) {
            Ok(start) => {
                let end = seek(start, Whence::SeekHole).ok();
                let end = end.filter(|&end| end > start && end < self.len);
                Some(start..end.unwrap_or(self.len))
            }
            // The rest is a hole.
            Err(Errno::ENXIO) => None,
            // The file system cannot find holes.
            Err(_) => Some(from..self.len),
        }
    }

    /// Reads at most `len` bytes; fewer at the end of the file, or after an error.
    pub(super) fn read_at_most(&self, offset: u64, len: u64) -> Vec<u8> {
        let there = self.len.saturating_sub(offset);
        let mut bytes = vec![0; len.min(there) as usize];
        let read = self.read_up_to(offset, &mut bytes).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    /// Reads exactly `len` bytes.
    pub(super) fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if self.read_up_to(offset, &mut bytes)? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

/// Fills a buffer. Bytes that cannot be read, or are beyond the end, are zeros.
pub(super) fn read_with_zeros(file: &DumpFile, offset: u64, buffer: &mut [u8]) -> Presence {
    let read = file.read_up_to(offset, buffer).unwrap_or(0);
    let behind = &mut buffer[read..];
    behind.fill(0);
    if behind.is_empty() {
        Presence::Whole
    } else {
        Presence::Missing
    }
}

/// Adds a piece, which replaces parts of earlier ones: makedumpfile writes the headers again at the
/// end.
fn put(pieces: &mut BTreeMap<u64, Piece>, start: u64, piece: Piece) {
    if start >= piece.end {
        return;
    }
    let overlapping = pieces.range(..piece.end).rev();
    let overlapping: Vec<_> = overlapping
        .map(|(&start, &of)| (start, of))
        .take_while(|(_, of)| of.end > start)
        .collect();
    for (other, of) in overlapping {
        pieces.remove(&other);
        if other < start {
            let end = start;
            pieces.insert(other, Piece { end, ..of });
        }
        if of.end > piece.end {
            let at = of.at + (piece.end - other);
            pieces.insert(piece.end, Piece { end: of.end, at });
        }
    }
    pieces.insert(start, piece);
}

fn read_up_to(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        // The kernel takes signed offsets, and rejects larger ones.
        let Some(at) = offset
            .checked_add(done as u64)
            .filter(|&at| i64::try_from(at).is_ok())
        else {
            break;
        };
        match file.read_at(&mut buffer[done..], at) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flattened(records: &[(u64, &[u8])], ends: bool) -> tempfile::NamedTempFile {
        let mut bytes = FLATTENED.to_vec();
        bytes.resize(FIRST as usize, 0);
        for (position, data) in records {
            bytes.extend(position.to_be_bytes());
            bytes.extend((data.len() as u64).to_be_bytes());
            bytes.extend(*data);
        }
        if ends {
            bytes.extend([0xff; RECORD_HEADER]);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn flattened_records_are_reordered() {
        let file = flattened(&[(4, b"later"), (0, b"ab"), (12, b"end"), (5, b"XY")], true);
        let dump = DumpFile::open(file.path()).unwrap();
        assert_eq!((dump.len(), dump.is_cut_short()), (15, false));
        assert_eq!(dump.read_vec(0, 15).unwrap(), b"ab\0\0lXYer\0\0\0end");
        assert_eq!(dump.read_vec(6, 2).unwrap(), b"Ye");
        assert!(dump.read_vec(10, 6).is_err());
        let cut = flattened(&[(0, b"ab")], false);
        assert!(DumpFile::open(cut.path()).unwrap().is_cut_short());
    }

    #[test]
    fn holes_are_no_data() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let places = [0, 1 << 30, 3 << 30];
        for at in places {
            file.as_file().write_all_at(&[1; 4096], at).unwrap();
        }
        file.as_file().set_len(512 << 30).unwrap();
        let dump = DumpFile::open(file.path()).unwrap();
        let data: Vec<_> = dump.data(0..dump.len()).collect();
        let has = |at: &u64| data.iter().any(|data| data.contains(at));
        assert!(places.iter().all(has), "{data:?}");
        let bytes: u64 = data.iter().map(|data| data.end - data.start).sum();
        assert!(bytes <= 3 << 20, "{data:?}");
        assert!(dump.data(4 << 30..dump.len()).next().is_none());
        let word = dump.data(1 << 30..(1 << 30) + 8).next();
        assert_eq!(word, Some(1 << 30..(1 << 30) + 8));
        let file = flattened(&[(4, b"ab"), (100, b"cd")], true);
        let dump = DumpFile::open(file.path()).unwrap();
        let data: Vec<_> = dump.data(5..101).collect();
        assert_eq!(data, [5..6, 100..101]);
    }

    proptest! {
        /// The result is as if each record were written to a file, in order.
        #[test]
        fn later_records_win(
            records in prop::collection::vec((0u64..40, prop::collection::vec(any::<u8>(), 0..20)), 0..12),
            from in 0usize..70,
            len in 0usize..70,
        ) {
            let mut expected = Vec::new();
            for (position, data) in &records {
                let (start, end) = (*position as usize, *position as usize + data.len());
                if data.is_empty() {
                    continue;
                }
                if expected.len() < end {
                    expected.resize(end, 0);
                }
                expected[start..end].copy_from_slice(data);
            }
            let records: Vec<_> = records.iter().map(|(at, data)| (*at, &data[..])).filter(|(_, data)| !data.is_empty()).collect();
            let file = flattened(&records, true);
            let dump = DumpFile::open(file.path()).unwrap();
            let mut buffer = vec![1; len];
            let read = dump.read_up_to(from as u64, &mut buffer).unwrap();
            let expected = expected.get(from..).unwrap_or_default();
            let expected = &expected[..len.min(expected.len())];
            prop_assert_eq!(&buffer[..read], expected);
        }
    }
}
