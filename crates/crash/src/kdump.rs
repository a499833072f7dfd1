//! Dumps in kdump's compressed format: `makedumpfile -c`, `-l`, `-p` and `-z`, and QEMU's
//! `dump-guest-memory -z`, `-l` and `-s`.
//!
//! makedumpfile defines the format (`diskdump_mod.h`, `IMPLEMENTATION` in its sources). The file
//! has two headers, and two bitmaps with a bit per page: whether there was such memory, and whether
//! the dump has the page. Then come a descriptor for each page in the dump, and the pages.

use std::cell::RefCell;
use std::ops::Range;

use crate::dump_file::DumpFile;
use crate::memory::read_pieces;
use crate::tree::PAGE_SIZES;
use crate::vmcoreinfo::MAX_NOTES;
use crate::{DumpError, PhysicalMemory, Presence, Vmcoreinfo};

/// The magic number of the file.
pub(super) const MAGIC: &[u8; 8] = b"KDUMP   ";
/// Size of `struct disk_dump_header`, and offsets of its fields.
const HEADER: usize = 464;
const VERSION: usize = 8;
/// The machine, from `struct new_utsname`: text with a NUL.
const MACHINE: Range<usize> = 272..272 + 65;
const STATUS: usize = 424;
const BLOCK_SIZE: usize = 428;
const SUB_HEADER_BLOCKS: usize = 432;
const BITMAP_BLOCKS: usize = 436;
const MAX_PFN: usize = 440;
/// Status flag: there was no space for the whole dump.
const INCOMPLETE: u32 = 8;
/// Size of `struct kdump_sub_header`, in the second block, and offsets. Older versions have fewer
/// valid fields.
const SUB_HEADER: usize = 104;
const SPLIT: usize = 12;
const VMCOREINFO: usize = 32;
const NOTES: usize = 48;
const MAX_PFN_64: usize = 96;
/// Bytes of the bitmap per entry of the rank table.
const CHUNK: usize = 4096;
/// Maximum size of both bitmaps: enough for 64 TiB in pages of 4 KiB.
const MAX_BITMAPS: u64 = 4 << 30;
/// Size of a page's descriptor: offset, length, and compression.
const DESCRIPTOR: usize = 24;
const ZLIB: u32 = 1;
const LZO: u32 = 2;
const SNAPPY: u32 = 4;
const ZSTD: u32 = 0x20;

/// The bytes of a page, or why they are missing.
type Page = Result<Vec<u8>, Presence>;

/// A dump in kdump's format. Only requested pages are read.
#[derive(Debug)]
pub struct KdumpDump {
    file: DumpFile,
    block_size: u64,
    /// Offsets of both bitmaps, and the length of each.
    memory: u64,
    present: u64,
    bitmap_len: u64,
    /// The first page number that does not exist.
    max_pfn: u64,
    /// For each chunk of the bitmap, the number of pages in the dump before it.
    ranks: Vec<u64>,
    descriptors: u64,
    vmcoreinfo: Vmcoreinfo,
    cut_short: bool,
    is_x86_64: bool,
    /// The last requested page, or why it is missing. Most pages are read in parts.
    last: RefCell<Option<(u64, Page)>>,
}

impl KdumpDump {
    pub(super) fn open(file: DumpFile) -> Result<Self, DumpError> {
        let io = |what| move |source| DumpError::Io { what, source };
        let header = file.read_vec(0, HEADER).map_err(io("the header"))?;
        let version = half(&header, VERSION);
        let block_size = u64::from(half(&header, BLOCK_SIZE));
        let is_good =
            block_size.is_power_of_two() && PAGE_SIZES.contains(&half(&header, BLOCK_SIZE));
        if header[..8] != *MAGIC || !is_good {
            return Err(DumpError::Kdump("its header is invalid"));
        }
        let sub = file
            .read_vec(block_size, SUB_HEADER)
            .map_err(io("the second header"))?;
        if version >= 2 && half(&sub, SPLIT) != 0 {
            return Err(DumpError::Kdump(
                "it is one part of several: put them together by makedumpfile --reassemble",
            ));
        }
        let max_pfn = match version {
            6.. => word(&sub, MAX_PFN_64),
            _ => u64::from(half(&header, MAX_PFN)),
        };
        let memory = block_size * (1 + u64::from(half(&header, SUB_HEADER_BLOCKS)));
        let bitmaps_len = block_size * u64::from(half(&header, BITMAP_BLOCKS));
        if bitmaps_len > MAX_BITMAPS {
            return Err(DumpError::Kdump(
                "its bitmaps are larger than those of any machine",
            ));
        }
        let (bitmap_len, descriptors) = (bitmaps_len / 2, memory + bitmaps_len);
        if descriptors > file.len().min(file.stored()) {
            return Err(DumpError::Kdump("it ends before its pages"));
        }
        let cut_short = file.is_cut_short() || half(&header, STATUS) & INCOMPLETE != 0;
        let mut dump = Self {
            file,
            block_size,
            memory,
            present: memory + bitmap_len,
            bitmap_len,
            max_pfn: max_pfn.min(bitmap_len * 8),
            ranks: Vec::new(),
            descriptors,
            vmcoreinfo: Vmcoreinfo::default(),
            cut_short,
            is_x86_64: header[MACHINE].starts_with(b"x86_64\0"),
            last: RefCell::default(),
        };
        dump.count().map_err(io("the bitmap"))?;
        if version >= 3 {
            let (offset, size) = (word(&sub, VMCOREINFO), word(&sub, VMCOREINFO + 8));
            dump.cut_short |= offset.saturating_add(size) > dump.file.len();
            let text = dump.file.read_at_most(offset, size.min(MAX_NOTES));
            dump.vmcoreinfo.merge(&text);
        }
        if version >= 4 {
            let (offset, size) = (word(&sub, NOTES), word(&sub, NOTES + 8));
            dump.cut_short |= offset.saturating_add(size) > dump.file.len();
            let notes = dump.file.read_at_most(offset, size.min(MAX_NOTES));
            dump.vmcoreinfo.merge_notes(&notes, 4);
        }
        Ok(dump)
    }

    /// The vmcoreinfo of the dump's kernel.
    #[must_use]
    pub fn vmcoreinfo(&self) -> &Vmcoreinfo {
        &self.vmcoreinfo
    }

    /// Whether the machine is x86-64.
    pub(super) fn is_x86_64(&self) -> bool {
        self.is_x86_64
    }

    /// The memory in the dump, page by page.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let pages = |start: u64| {
            let len = (self.bitmap_len - start).min(CHUNK as u64);
            let chunk = self.file.read_at_most(self.present + start, len);
            let bits = (0..).zip(chunk).flat_map(move |(n, byte)| {
                let first = (start + n) * 8;
                (0..8u64)
                    .filter(move |bit| byte & 1 << bit != 0)
                    .map(move |bit| first + bit)
            });
            bits.take_while(|&pfn| pfn < self.max_pfn)
                .map(|pfn| pfn * self.block_size..(pfn + 1) * self.block_size)
        };
        let chunks = (0..self.bitmap_len).step_by(CHUNK);
        chunks.flat_map(pages)
    }

    /// Whether the file is incomplete.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Counts the pages in the dump, and checks that the file is long enough.
    fn count(&mut self) -> std::io::Result<()> {
        let (mut rank, mut at) = (0, 0);
        let mut chunk = [0; CHUNK];
        while at < self.bitmap_len {
            self.ranks.push(rank);
            let len = (self.bitmap_len - at).min(CHUNK as u64) as usize;
            let read = self.file.read_up_to(self.present + at, &mut chunk[..len])?;
            let bits = chunk[..read]
                .iter()
                .map(|byte| u64::from(byte.count_ones()));
            rank += bits.sum::<u64>();
            at += len as u64;
        }
        let end = self.descriptors.saturating_add(rank * DESCRIPTOR as u64);
        self.cut_short |= end.max(self.end_of_pages(end)?) > self.file.len();
        Ok(())
    }

    /// The end of the last page, according to the existing descriptors up to `end`.
    fn end_of_pages(&self, end: u64) -> std::io::Result<u64> {
        // The number of descriptors is limited by the size of the file, whatever the bitmap says.
        let end = end.min(self.descriptors.saturating_add(self.file.stored()));
        let mut descriptors = vec![0; CHUNK * DESCRIPTOR];
        let (mut last, mut at) = (0, self.descriptors);
        while at < end {
            let len = (end - at).min(descriptors.len() as u64) as usize;
            let read = self.file.read_up_to(at, &mut descriptors[..len])?;
            for descriptor in descriptors[..read].chunks_exact(DESCRIPTOR) {
                let (offset, size) = (word(descriptor, 0), half(descriptor, 8));
                last = last.max(offset.saturating_add(size.into()));
            }
            if read < len {
                break;
            }
            at += len as u64;
        }
        Ok(last)
    }

    /// Whether a page's bit is set in the bitmap at `start`, and the number of set bits before it
    /// in its chunk.
    fn bit(&self, start: u64, pfn: u64) -> Option<(bool, u64)> {
        let (byte, mask) = (pfn / 8, 1u8 << (pfn % 8));
        let first = byte / CHUNK as u64 * CHUNK as u64;
        let mut bytes = vec![0; (byte - first + 1) as usize];
        let read = self.file.read_up_to(start + first, &mut bytes).ok()?;
        let (last, before) = bytes.get(..read)?.split_last()?;
        if read < bytes.len() {
            return None;
        }
        let ones: u64 = before.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let ones = ones + u64::from((last & (mask - 1)).count_ones());
        Some((last & mask != 0, ones))
    }

    /// Reads the page with this number.
    fn page(&self, pfn: u64) -> Page {
        if pfn >= self.max_pfn {
            return Err(Presence::Missing);
        }
        let (is_present, before) = self.bit(self.present, pfn).ok_or(Presence::Missing)?;
        if !is_present {
            let was_memory = self.bit(self.memory, pfn).is_some_and(|(was, _)| was);
            return Err(match was_memory {
                true => Presence::Excluded,
                false => Presence::Missing,
            });
        }
        let chunk = (pfn / 8 / CHUNK as u64) as usize;
        let rank = self.ranks.get(chunk).ok_or(Presence::Missing)? + before;
        self.read_page(rank).ok_or(Presence::Missing)
    }

    /// Reads the page with this rank in the file. `None` if it is missing or damaged.
    fn read_page(&self, rank: u64) -> Option<Vec<u8>> {
        let at = self
            .descriptors
            .checked_add(rank.checked_mul(DESCRIPTOR as u64)?)?;
        let descriptor = self.file.read_vec(at, DESCRIPTOR).ok()?;
        let (offset, size) = (word(&descriptor, 0), half(&descriptor, 8));
        let (flags, len) = (half(&descriptor, 12), self.block_size as usize);
        // A page that would not shrink is stored uncompressed.
        if size as usize > len {
            return None;
        }
        let data = self.file.read_vec(offset, size as usize).ok()?;
        let mut page = vec![0; len];
        let written = match flags & (ZLIB | LZO | SNAPPY | ZSTD) {
            0 => return Some(data).filter(|data| data.len() == len),
            ZLIB => {
                use miniz_oxide::inflate::decompress_slice_iter_to_slice;
                let data = std::iter::once(&data[..]);
                decompress_slice_iter_to_slice(&mut page, data, true, false).ok()?
            }
            LZO => lzokay::decompress::decompress(&data, &mut page).ok()?,
            SNAPPY => snap::raw::Decoder::new()
                .decompress(&data, &mut page)
                .ok()?,
            ZSTD => ruzstd::decoding::FrameDecoder::new()
                .decode_all(&data, &mut page)
                .ok()?,
            _ => return None,
        };
        (written == len).then_some(page)
    }
}

impl PhysicalMemory for KdumpDump {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        read_pieces(address, buffer, |at, rest| {
            let (pfn, within) = (at / self.block_size, (at % self.block_size) as usize);
            let len = rest.len().min(self.block_size as usize - within);
            let to = &mut rest[..len];
            let mut last = self.last.borrow_mut();
            if last.as_ref().is_none_or(|(of, _)| *of != pfn) {
                *last = Some((pfn, self.page(pfn)));
            }
            let presence = match &*last {
                Some((_, Ok(page))) => {
                    to.copy_from_slice(&page[within..within + len]);
                    Presence::Whole
                }
                Some((_, Err(why))) => {
                    to.fill(0);
                    *why
                }
                None => Presence::Whole,
            };
            (len, presence)
        })
    }
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const BLOCK: usize = 4096;
    /// Number of pages of memory.
    const PAGES: u64 = 40_000;
    /// Pages that the dump contains; few, to keep it small.
    const KEPT: [u64; 6] = [0, 1, 7, 32_767, 32_769, 39_998];

    fn page(pfn: u64) -> Vec<u8> {
        (0..BLOCK as u64).map(|at| (pfn + at / 64) as u8).collect()
    }

    /// A dump of version 6, with pages in each compression format.
    fn dump() -> Vec<u8> {
        let bitmap = (PAGES as usize).div_ceil(8).next_multiple_of(BLOCK);
        let mut bytes = vec![0; BLOCK * 2];
        bytes[..8].copy_from_slice(MAGIC);
        let mut put =
            |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(VERSION, 6);
        put(BLOCK_SIZE, BLOCK as u32);
        put(SUB_HEADER_BLOCKS, 1);
        put(BITMAP_BLOCKS, (2 * bitmap / BLOCK) as u32);
        put(BLOCK + MAX_PFN_64, PAGES as u32);
        let mut bitmaps = vec![0u8; 2 * bitmap];
        for pfn in 0..PAGES as usize {
            bitmaps[pfn / 8] |= 1 << (pfn % 8);
        }
        for pfn in KEPT.map(|pfn| pfn as usize) {
            bitmaps[bitmap + pfn / 8] |= 1 << (pfn % 8);
        }
        bytes.extend(bitmaps);
        let mut at = bytes.len() + KEPT.len() * DESCRIPTOR;
        let mut data = Vec::new();
        for (n, pfn) in KEPT.into_iter().enumerate() {
            let page = page(pfn);
            let (flags, packed) = match n % 5 {
                0 => (0, page),
                1 => (ZLIB, miniz_oxide::deflate::compress_to_vec_zlib(&page, 1)),
                2 => (
                    SNAPPY,
                    snap::raw::Encoder::new().compress_vec(&page).unwrap(),
                ),
                3 => (LZO, lzokay::compress::compress(&page).unwrap()),
                _ => (ZSTD, compress_to_vec(&page[..], CompressionLevel::Fastest)),
            };
            bytes.extend((at as u64).to_le_bytes());
            bytes.extend((packed.len() as u32).to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend([0; 8]);
            at += packed.len();
            data.extend(packed);
        }
        bytes.extend(data);
        let info = b"NUMBER(ltt_root)=0x7000\nOSRELEASE=7.3.4\n";
        bytes[BLOCK + VMCOREINFO..][..8].copy_from_slice(&(at as u64).to_le_bytes());
        bytes[BLOCK + VMCOREINFO + 8..][..8].copy_from_slice(&(info.len() as u64).to_le_bytes());
        bytes.extend(info);
        bytes
    }

    fn open(bytes: &[u8]) -> Result<KdumpDump, DumpError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        KdumpDump::open(DumpFile::open(file.path()).unwrap())
    }

    /// Requirements: C7
    #[test]
    fn pages_are_found_and_decompressed() {
        let dump = open(&dump()).unwrap();
        assert_eq!(dump.vmcoreinfo().root, Some(0x7000));
        assert!(!dump.is_cut_short());
        let mut buffer = vec![0; BLOCK];
        for pfn in KEPT {
            assert_eq!(dump.read(pfn * BLOCK as u64, &mut buffer), Presence::Whole);
            assert!(buffer == page(pfn), "{pfn}");
        }
        // Across two pages, of which the second was excluded.
        let mut buffer = [1; 8];
        assert_eq!(
            dump.read(2 * BLOCK as u64 - 4, &mut buffer),
            Presence::Excluded
        );
        assert_eq!(buffer[..4], page(1)[BLOCK - 4..]);
        assert_eq!(buffer[4..], [0; 4]);
        assert_eq!(
            dump.read(PAGES * BLOCK as u64, &mut buffer),
            Presence::Missing
        );
        assert_eq!(dump.read(u64::MAX - 3, &mut buffer), Presence::Missing);
    }

    #[test]
    fn invalid_dumps_are_refused_with_a_reason() {
        let good = dump();
        let mut split = good.clone();
        split[BLOCK + SPLIT] = 1;
        assert!(
            open(&split)
                .unwrap_err()
                .to_string()
                .contains("--reassemble")
        );
        // Not a power of two, or not a page size of any kernel.
        for size in [4097u32, 2048, 128 << 10] {
            let mut block = good.clone();
            block[BLOCK_SIZE..BLOCK_SIZE + 4].copy_from_slice(&size.to_le_bytes());
            assert!(open(&block).unwrap_err().to_string().contains("header"));
        }
        assert!(
            open(&good[..BLOCK * 3])
                .unwrap_err()
                .to_string()
                .contains("ends before")
        );
        assert!(matches!(open(&good[..100]), Err(DumpError::Io { .. })));
        let mut large = good.clone();
        large[BITMAP_BLOCKS + 3] = 0xff;
        assert!(open(&large).unwrap_err().to_string().contains("bitmaps"));
        let cut = open(&good[..good.len() - 8000]).unwrap();
        assert!(cut.is_cut_short());
        assert_eq!(
            cut.read(39_998 * BLOCK as u64, &mut [0; 8]),
            Presence::Missing
        );
        let mut incomplete = good;
        incomplete[STATUS] = INCOMPLETE as u8;
        assert!(open(&incomplete).unwrap().is_cut_short());
    }

    /// A truncated dump may have all descriptors, and only lack pages.
    ///
    /// Requirements: F4
    #[test]
    fn any_truncation_is_noticed() {
        let good = dump();
        let len = word(&good, BLOCK + VMCOREINFO) as usize;
        let mut good = good[..len].to_vec();
        good[BLOCK + VMCOREINFO..][..16].fill(0);
        assert!(!open(&good).unwrap().is_cut_short());
        for missing in [1, 2, 100, 5000] {
            assert!(open(&good[..len - missing]).unwrap().is_cut_short());
        }
        // Data after the pages counts, too.
        let whole = dump();
        assert!(!open(&whole).unwrap().is_cut_short());
        assert!(open(&whole[..whole.len() - 1]).unwrap().is_cut_short());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any contents are read or rejected, without a panic.
        ///
        /// Requirements: F4
        #[test]
        fn forged_dumps_do_not_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20), in_headers in any::<bool>()) {
            let mut bytes = dump();
            for (at, value) in changes {
                let len = if in_headers { BLOCK + SUB_HEADER } else { bytes.len() };
                let at = at.index(len);
                bytes[at] = value;
            }
            if let Ok(dump) = open(&bytes) {
                for pfn in KEPT {
                    dump.read(pfn * BLOCK as u64 + 7, &mut [0; 5000]);
                }
            }
        }
    }
}
