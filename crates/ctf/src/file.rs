//! The file of a stream: long packets are written around the page cache.
//!
//! A trace is written once, and read later, or elsewhere. Through the page cache, each byte of it
//! costs a copy, and pages in which other programs' data were; LTTng's consumer writes so, and then
//! asks the kernel to write back and to forget (`lttng_consumer_sync_trace_file`). `O_DIRECT` takes
//! the bytes from where they are. What comes in small parts, a file system that has nothing of the
//! kind, and a disk that is slow go through the page cache, which is as large as memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use crate::packet::BLOCK;

/// Shorter packets cost no less that way.
const SHORTEST: usize = 256 << 10;
/// Bytes in a microsecond: with a disk that takes fewer, rings would fill while it is waited for.
const SLOWEST: u128 = 256;
/// After a write that was slow, so many packets go through the page cache before the next one is
/// tried: few, as even a fast disk is slow now and then, and after each slow one twice as many, up
/// to the other number.
const PAUSES: [u32; 2] = [4, 256];

/// Which way long packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteMode {
    /// Around the page cache.
    Direct,
    /// Through it; so many of them yet, and then another one is tried.
    Cached(u32),
    /// Through it: there is no other way here.
    CachedForever,
}

/// A file to which packets are written.
#[derive(Debug)]
pub(super) struct StreamFile {
    file: File,
    /// It has `O_DIRECT`.
    is_direct: bool,
    mode: WriteMode,
    /// How many packets go through the page cache after the next slow write.
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

    /// How many zeros are to be put behind a packet of that length, that begins there, so that it
    /// may be written around the page cache. None: it may not.
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

    /// Writes a packet. `direct`: it has its padding, and lies in memory as it does in the file.
    ///
    /// # Errors
    /// When it cannot be written as a whole.
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
        let begun = Instant::now();
        let is_possible = self.set_direct(true).is_ok();
        let written = is_possible.then(|| self.file.write_all_at(blocks, at));
        match written {
            Some(Ok(())) => {
                self.note(blocks.len(), begun.elapsed());
                Ok(())
            }
            Some(Err(error)) if error.raw_os_error() != Some(libc::EINVAL) => Err(error),
            // Nothing of the kind here.
            _ => {
                self.mode = WriteMode::CachedForever;
                self.write_cached(blocks, at)
            }
        }
    }

    /// So long it took to write that many bytes.
    fn note(&mut self, bytes: usize, took: Duration) {
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
            // SAFETY: no memory is involved, and the descriptor is open as long as the file.
            let set = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETFL, flags) };
            if set != 0 {
                return Err(io::Error::last_os_error());
            }
            self.is_direct = direct;
        }
        Ok(())
    }

    /// Cuts it off there.
    ///
    /// # Errors
    /// When that cannot be done.
    pub(super) fn cut(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_is_left_to_the_page_cache_for_a_while() {
        let mut file = StreamFile::new(tempfile::tempfile().unwrap());
        assert_eq!(file.padding(0, SHORTEST - 1), None);
        assert_eq!(file.padding(100, SHORTEST), Some(BLOCK - 100));
        file.note(1 << 20, Duration::from_millis(1));
        assert_eq!(file.mode, WriteMode::Direct);
        let cached = |file: &mut StreamFile| {
            file.note(1 << 20, Duration::from_millis(100));
            (0..).find(|_| file.padding(0, SHORTEST).is_some()).unwrap()
        };
        assert_eq!(
            [(); 8].map(|()| cached(&mut file)),
            [4, 8, 16, 32, 64, 128, 256, 256]
        );
        file.note(1 << 20, Duration::from_millis(1));
        assert_eq!(cached(&mut file), 4);
    }

    /// Of what cannot be written directly, as it does not lie so in memory, nothing is missing.
    #[test]
    fn where_it_is_not_taken_directly_it_goes_through_the_page_cache() {
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
