//! The bytes of a dump, in the order in which they are to be: a file, or the flattened form of one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use crate::Presence;

/// What a flattened file begins with (makedumpfile, `makedumpfile.h`: `struct
/// makedumpfile_header`), 16 bytes with its NULs.
const FLATTENED: &[u8; 16] = b"makedumpfile\0\0\0\0";
/// Where its first record is: a position in the file that was flattened, and a length, each a
/// big-endian `i64`, and the bytes.
const FIRST: u64 = 4096;
const RECORD_HEADER: usize = 16;
/// The position of a record behind which there is no more.
const END: i64 = -1;

/// A dump's bytes.
#[derive(Debug)]
pub(super) struct DumpFile {
    file: File,
    len: u64,
    stored: u64,
    /// Of a flattened file: what there is, by where it begins.
    pieces: Option<BTreeMap<u64, Piece>>,
    cut_short: bool,
}

/// Bytes that follow each other in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: u64,
    /// Where they are in the flattened file.
    at: u64,
}

impl DumpFile {
    /// Opens a file as it is, whatever it begins with.
    pub(super) fn open_plain(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        // Unlike its metadata, this says how long a block device is, too, to which kdump may save.
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

    /// How long it is, or would be.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// How many bytes there can be of it that are no hole: what is looked at all over must not be
    /// more.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// Does a flattened file end before it says that it does?
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

    /// Reads as much as there is. What a flattened file leaves out within is zeros, as in a file
    /// with holes.
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

    /// The parts of these bytes that are no holes. Holes are zeros, and need not be read one by
    /// one.
    pub(super) fn data(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut at = within.start;
        std::iter::from_fn(move || {
            let data = self.next_data(at).filter(|data| data.start < within.end)?;
            at = data.end;
            Some(data.start..data.end.min(within.end))
        })
    }

    /// The next part from there on that is no hole. None: there is none.
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
            // There is only a hole.
            Err(Errno::ENXIO) => None,
            // Nothing says where holes are.
            Err(_) => Some(from..self.len),
        }
    }

    /// What there is of so many bytes.
    pub(super) fn read_at_most(&self, offset: u64, len: u64) -> Vec<u8> {
        let there = self.len.saturating_sub(offset);
        let mut bytes = vec![0; len.min(there) as usize];
        let read = self.read_up_to(offset, &mut bytes).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    /// So many bytes, or an error.
    pub(super) fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if self.read_up_to(offset, &mut bytes)? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

/// Fills a buffer; zeros where the file cannot be read, or has ended.
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

/// A record takes the place of what earlier ones had there: headers are written once more in the
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
        // The kernel takes offsets as signed numbers, and refuses the others.
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
    fn records_are_put_where_they_belong() {
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
        /// As if each record was written to a file, one after the other.
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
