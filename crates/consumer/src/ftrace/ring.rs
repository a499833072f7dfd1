//! One CPU's ring buffer of ftrace.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use super::page;
use crate::mapping::Mapping;

/// `TRACE_MMAP_IOCTL_GET_READER`: gives back what was read, and takes what comes next (Linux,
/// `Documentation/trace/ring-buffer-map.rst`, as the fields below).
const GET_READER: u64 = (b'R' as u64) << 8 | 0x20;
/// Where `struct trace_buffer_meta` says what there is: two `u32` in each of these words, or a
/// `u64`.
const META_PAGE_SIZE: u64 = 0;
const SUBBUF_SIZE: u64 = 8;
const READER_ID: u64 = 24;
const OVERRUN: u64 = 48;
/// Largest sub-buffers, and most of them, that are taken for true.
const MAX_SUBBUF: usize = 1 << 20;
const MAX_SUBBUFS: usize = 1 << 20;

/// A CPU's ring, which is read by this program only.
#[derive(Debug)]
pub(super) struct Ring {
    file: File,
    access: Access,
    /// A copy of the page that is read.
    page: Vec<u8>,
}

#[derive(Debug)]
enum Access {
    Mapped(Mapped),
    /// As kernels before 6.10 have no mapping: each read takes a page.
    Read,
}

#[derive(Debug)]
struct Mapped {
    memory: Mapping,
    /// Where the sub-buffers begin.
    start: usize,
    subbuf: usize,
    count: usize,
    /// The sub-buffer that was read last, and access far.
    id: usize,
    read: usize,
}

/// What was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagePart {
    /// Bytes of the page's records: those from `from` on are new.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Events that were lost before it.
    pub(super) lost: LossCount,
}

/// Events that were overwritten before they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossCount {
    /// So many since the ring was made.
    Total(u64),
    /// So many since the last page.
    New(u64),
    /// There are more, and the kernel does not tell access many.
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

    /// Access many pages it may have: whoever reads so many at once has read what was there.
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

    /// Reads what there is in one page. What was read before is given back by that, and not
    /// earlier: until then, another recorder would find it again.
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

    /// Events that were overwritten, when there will be no further page.
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
            // None: all of the first one is new, even if another recorder has read it.
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
        // What another recorder had taken, and perhaps not written, is there until the next one is
        // asked for.
        let there_is = is_first && self.word(READER_ID) >> 32 != 0;
        if !there_is {
            // SAFETY: no memory of this program is involved.
            let ret = unsafe { libc::ioctl(file.as_raw_fd(), GET_READER) };
            if ret != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // The call above is what orders this: the kernel has seen the records before it says where
        // they end.
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
        // Older ones than those of this page, if it is the oldest that is there.
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
    // SAFETY: no memory is involved.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
