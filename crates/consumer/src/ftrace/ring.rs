//! The ftrace ring buffer of one CPU.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use super::page;
use crate::mapping::Mapping;

/// `TRACE_MMAP_IOCTL_GET_READER`: returns the page that was read, and takes the next one (Linux,
/// `Documentation/trace/ring-buffer-map.rst`, as for the fields below).
const GET_READER: u64 = (b'R' as u64) << 8 | 0x20;
/// Offsets in `struct trace_buffer_meta`. Each word is two `u32` or one `u64`.
const META_PAGE_SIZE: u64 = 0;
const SUBBUF_SIZE: u64 = 8;
const READER_ID: u64 = 24;
const OVERRUN: u64 = 48;
/// Limits of plausible sub-buffer sizes and counts.
const MAX_SUBBUF: usize = 1 << 20;
const MAX_SUBBUFS: usize = 1 << 20;

/// A CPU's ring. This program is its only reader.
#[derive(Debug)]
pub(super) struct Ring {
    file: File,
    access: Access,
    /// A copy of the page that is being read.
    page: Vec<u8>,
}

#[derive(Debug)]
enum Access {
    Mapped(Mapped),
    /// Kernels before 6.10 cannot map rings; each read takes a page.
    Read,
}

#[derive(Debug)]
struct Mapped {
    memory: Mapping,
    /// Offset of the first sub-buffer.
    start: usize,
    subbuf: usize,
    count: usize,
    /// The sub-buffer that was read last, and up to where.
    id: usize,
    read: usize,
}

/// The part of a page that was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagePart {
    /// The page's records end at `to`; those from `from` on are new.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Events that were lost before it.
    pub(super) lost: LossCount,
}

/// The number of events that were overwritten before they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossCount {
    /// Since the creation of the ring.
    Total(u64),
    /// Since the last page.
    New(u64),
    /// Some since the last page; the kernel does not report how many.
    Unknown,
}

impl Ring {
    /// Opens `trace_pipe_raw` of a CPU.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        let page_size = page_size();
        let (access, len) = match Mapped::new(&file, page_size) {
            Ok(mapped) => {
                let len = mapped.subbuf;
                (Access::Mapped(mapped), len)
            }
            Err(_) => (Access::Read, page_size),
        };
        Ok(Self {
            file,
            access,
            page: vec![0; len],
        })
    }

    /// Maximum number of pages in the ring. A caller that reads so many has read everything that
    /// existed at the start.
    pub(super) fn nr_pages(&self) -> usize {
        match &self.access {
            Access::Mapped(mapped) => mapped.count,
            Access::Read => 256,
        }
    }

    /// The page that was read last.
    pub(super) fn page(&self) -> &[u8] {
        &self.page
    }

    /// Reads the new records of one page. Only this returns the previous page to the kernel:
    /// before, another recorder would find it again.
    pub(super) fn next(&mut self) -> io::Result<Option<PagePart>> {
        match &mut self.access {
            Access::Mapped(mapped) => mapped.next(&self.file, &mut self.page),
            Access::Read => match self.file.read(&mut self.page) {
                Ok(0) => Ok(None),
                Ok(_) => Ok(Some(PagePart {
                    from: 0,
                    to: page::len(&self.page),
                    lost: page::missed(&self.page).map_or(LossCount::Unknown, LossCount::New),
                })),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// The events that were overwritten, after the last page.
    pub(super) fn lost_at_the_end(&self) -> LossCount {
        match &self.access {
            Access::Mapped(mapped) => LossCount::Total(mapped.word(OVERRUN)),
            Access::Read => LossCount::New(0),
        }
    }
}

impl Mapped {
    fn new(file: &File, page_size: usize) -> io::Result<Self> {
        let halves = |word: u64| (word as u32 as usize, (word >> 32) as usize);
        let meta = Mapping::new(file, page_size as u64)?;
        let (start, _) = halves(meta.bytes().load(META_PAGE_SIZE));
        let (subbuf, count) = halves(meta.bytes().load(SUBBUF_SIZE));
        let is_good = start.is_multiple_of(page_size)
            && (page_size..=MAX_SUBBUF).contains(&subbuf)
            && (1..=MAX_SUBBUFS).contains(&count);
        if !is_good {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let memory = Mapping::new(file, (start + count * subbuf) as u64)?;
        let mapped = Self {
            memory,
            start,
            subbuf,
            count,
            // No page yet: everything in the first one is new, even if another recorder has read
            // it.
            id: usize::MAX,
            read: 0,
        };
        Ok(mapped)
    }

    fn word(&self, at: u64) -> u64 {
        self.memory.bytes().load(at)
    }

    fn next(&mut self, file: &File, page: &mut [u8]) -> io::Result<Option<PagePart>> {
        let is_first = self.id == usize::MAX;
        // A previous recorder may have taken this page without writing it. It stays available until
        // the next one is requested.
        let there_is = is_first && self.word(READER_ID) >> 32 != 0;
        if !there_is {
            // SAFETY: this ioctl takes no argument, and accesses no memory of this process.
            let ret = unsafe { libc::ioctl(file.as_raw_fd(), GET_READER) };
            if ret != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // Orders the loads below after the ioctl, in which the kernel has stored the end of the
        // records.
        fence(Ordering::Acquire);
        let word = self.word(READER_ID);
        let (id, read) = (word as u32 as usize, (word >> 32) as usize);
        if id >= self.count || read > self.subbuf - page::HEADER {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let is_same = id == self.id;
        let from = if is_same { self.read } else { 0 };
        if read <= from {
            return Ok(None);
        }
        let at = (self.start + id * self.subbuf) as u64;
        self.memory
            .bytes()
            .read(at, &mut page[..page::HEADER + read]);
        // Overwritten events are older than this page, unless it was read before.
        let lost = if is_same || there_is {
            LossCount::New(0)
        } else {
            LossCount::Total(self.word(OVERRUN))
        };
        (self.id, self.read) = (id, read);
        Ok(Some(PagePart {
            from,
            to: read,
            lost,
        }))
    }
}

fn page_size() -> usize {
    // SAFETY: `sysconf` takes a number, and accesses no memory of this process.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
