//! The file of a stream. Long packets bypass the page cache.
//!
//! A trace is written once, and read later or elsewhere. Through the page cache, each byte costs a
//! copy, and evicts other programs' data. LTTng's consumer writes so, and then asks the kernel to
//! write back and drop the pages (`lttng_consumer_sync_trace_file`). `O_DIRECT` writes from the
//! packet's memory. Small packets, file systems without `O_DIRECT`, and slow disks use the page
//! cache, which is as large as memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use crate::packet::BLOCK;

/// Shortest packet for which direct writes are cheaper.
const SHORTEST: usize = 256 << 10;
/// Lowest rate of direct writes, in bytes per microsecond. Below it, rings would fill while the
/// writer waits for the disk.
const SLOWEST: u128 = 256;
/// How many packets use the page cache after a slow direct write: first and largest number. The
/// first is small, as even a fast disk is slow now and then. It doubles with each slow write.
const PAUSES: [u32; 2] = [4, 256];

/// How long packets are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteMode {
    /// Directly.
    Direct,
    /// Through the page cache, for this many packets more.
    Cached(u32),
    /// Through the page cache: direct writes are not possible.
    CachedForever,
}

/// A file to which packets are written.
#[derive(Debug)]
pub(super) struct StreamFile {
    file: File,
    /// `O_DIRECT` is set.
    is_direct: bool,
    mode: WriteMode,
    /// How many packets use the page cache after the next slow write.
    pause: u32,
}

impl StreamFile {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            is_direct: false,
            mode: WriteMode::Direct,
            pause: PAUSES[0],
        }
    }

    /// The padding for a direct write of a packet of length `len` at offset `at`. None if it is to
    /// use the page cache.
    pub(super) fn padding(&mut self, at: u64, len: usize) -> Option<usize> {
        if len < SHORTEST {
            return None;
        }
        match self.mode {
            WriteMode::Direct => {}
            WriteMode::Cached(more) => {
                self.mode = if more > 1 {
                    WriteMode::Cached(more - 1)
                } else {
                    WriteMode::Direct
                };
                return None;
            }
            WriteMode::CachedForever => return None,
        }
        let end = at + len as u64;
        Some((end.next_multiple_of(BLOCK as u64) - end) as usize)
    }

    /// Writes a packet. `direct`: it has its padding, and the same offset within a block in memory
    /// as in the file.
    ///
    /// # Errors
    /// If it cannot be written completely.
    pub(super) fn write(&mut self, packet: &[u8], at: u64, direct: bool) -> io::Result<()> {
        if !direct {
            return self.write_cached(packet, at);
        }
        let in_block = (at.next_multiple_of(BLOCK as u64) - at) as usize;
        let (before, blocks) = packet.split_at(in_block.min(packet.len()));
        if !before.is_empty() {
            self.write_cached(before, at)?;
        }
        let at = at + in_block as u64;
        let started = Instant::now();
        let is_possible = self.set_direct(true).is_ok();
        let written = is_possible.then(|| self.file.write_all_at(blocks, at));
        match written {
            Some(Ok(())) => {
                self.adapt(blocks.len(), started.elapsed());
                Ok(())
            }
            Some(Err(error)) if error.raw_os_error() != Some(libc::EINVAL) => Err(error),
            // Direct writes are not supported.
            _ => {
                self.mode = WriteMode::CachedForever;
                self.write_cached(blocks, at)
            }
        }
    }

    /// Adapts to the rate of a direct write.
    fn adapt(&mut self, bytes: usize, took: Duration) {
        if bytes as u128 / took.as_micros().max(1) < SLOWEST {
            self.mode = WriteMode::Cached(self.pause);
            self.pause = (2 * self.pause).min(PAUSES[1]);
        } else {
            self.pause = PAUSES[0];
        }
    }

    fn write_cached(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.set_direct(false)?;
        self.file.write_all_at(bytes, at)
    }

    fn set_direct(&mut self, direct: bool) -> io::Result<()> {
        if self.is_direct != direct {
            let flags = if direct { libc::O_DIRECT } else { 0 };
            // SAFETY: `F_SETFL` accesses no memory, and `self.file` keeps the descriptor open.
            let set = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETFL, flags) };
            if set != 0 {
                return Err(io::Error::last_os_error());
            }
            self.is_direct = direct;
        }
        Ok(())
    }

    /// Truncates the file.
    ///
    /// # Errors
    /// If the system call fails.
    pub(super) fn cut(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_disk_uses_the_page_cache_for_a_while() {
        let mut file = StreamFile::new(tempfile::tempfile().unwrap());
        assert_eq!(file.padding(0, SHORTEST - 1), None);
        assert_eq!(file.padding(100, SHORTEST), Some(BLOCK - 100));
        file.adapt(1 << 20, Duration::from_millis(1));
        assert_eq!(file.mode, WriteMode::Direct);
        let cached = |file: &mut StreamFile| {
            file.adapt(1 << 20, Duration::from_millis(100));
            (0..).find(|_| file.padding(0, SHORTEST).is_some()).unwrap()
        };
        assert_eq!(
            [(); 8].map(|()| cached(&mut file)),
            [4, 8, 16, 32, 64, 128, 256, 256]
        );
        file.adapt(1 << 20, Duration::from_millis(1));
        assert_eq!(cached(&mut file), 4);
    }

    /// A packet with the wrong alignment in memory is written completely.
    #[test]
    fn failed_direct_write_uses_the_page_cache() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let mut file = StreamFile::new(named.reopen().unwrap());
        let bytes: Vec<u8> = (0..2 * SHORTEST).map(|n| (n % 251) as u8).collect();
        let odd = &bytes[1..][..SHORTEST + BLOCK];
        file.write(odd, 0, true).unwrap();
        assert_eq!(std::fs::read(named.path()).unwrap(), odd);
        assert_eq!(file.mode, WriteMode::CachedForever);
        assert_eq!(file.padding(0, SHORTEST), None);
    }
}
