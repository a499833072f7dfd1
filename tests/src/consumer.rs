//! A consumer file, used without the consumer library.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::ptr;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use usertrace_sys::files;
use usertrace_sys::uapi::{LttFileInfo, LttRingPositions};

use crate::child::Child;
use usertrace_testing::wait;

/// Starts a process that sleeps until a consumer file, which is empty now, has something to read.
/// Then the process exits with status 0.
///
/// # Panics
/// If the file is not empty.
#[must_use]
pub fn sleeper(file: &Path) -> Child {
    let mut sleeper = Child::spawn(|link| {
        let consumer = Consumer::open(file);
        assert_eq!(consumer.ready(), PollFlags::empty());
        link.send(0);
        // Nothing else can end this wait.
        assert_eq!(consumer.poll(PollTimeout::NONE), PollFlags::POLLIN);
    });
    sleeper.link.receive();
    wait::until("the reader sleeps", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", sleeper.pid())).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('S'))
    });
    sleeper
}

/// An open consumer file.
#[derive(Debug)]
pub struct Consumer {
    file: File,
}

impl Consumer {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().read(true).write(true).open(path)?,
        })
    }

    /// Opens it.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        Self::try_open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Which process and channel it belongs to.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn info(&self) -> LttFileInfo {
        files::file_info(self.file.as_fd()).expect("LTT_IOC_INFO")
    }

    /// The positions of all rings.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn positions(&self) -> Vec<LttRingPositions> {
        let mut rings = vec![LttRingPositions::default(); 64];
        let found = files::positions(self.file.as_fd(), &mut rings).expect("LTT_IOC_POSITIONS");
        rings.truncate(found.rings);
        rings
    }

    /// Consumes all rings up to their heads.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn consume_all(&self) {
        for (ring, at) in self.positions().iter().enumerate() {
            files::consume(self.file.as_fd(), ring as u32, at.head).expect("LTT_IOC_CONSUME");
        }
    }

    /// An ioctl with any number and argument.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// The kernel may write to where `argument` points: no Rust object may be there, except one
    /// that may be overwritten.
    pub unsafe fn ioctl(&self, request: u32, argument: usize) -> io::Result<()> {
        // SAFETY: the caller promises that `argument` points to nothing that must not be written.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), request.into(), argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The events that `poll` reports without waiting.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn ready(&self) -> PollFlags {
        self.poll(PollTimeout::ZERO)
    }

    /// Waits until there is something to read.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn poll(&self, timeout: PollTimeout) -> PollFlags {
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout).expect("poll");
        fds[0].revents().expect("known flags")
    }

    /// Maps `len` bytes from `offset` on, with any rights and flags.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_map(
        &self,
        offset: usize,
        len: usize,
        protection: libc::c_int,
        flags: libc::c_int,
    ) -> io::Result<View> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                protection,
                flags,
                self.file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(View {
            address: at as usize,
            len,
        })
    }

    /// Maps all rings.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn map(&self) -> View {
        let channel = self.info().channel;
        let ring = channel.subbuf_size as usize * channel.subbuf_count as usize;
        let len = ring * channel.nr_rings as usize;
        self.try_map(0, len, libc::PROT_READ, libc::MAP_SHARED)
            .expect("the rings can be mapped")
    }
}

/// Mapped rings.
#[derive(Debug)]
pub struct View {
    /// Where they are.
    pub address: usize,
    /// Their length.
    pub len: usize,
}

impl View {
    /// Reads a byte.
    ///
    /// # Panics
    /// If it is not in the rings.
    #[must_use]
    pub fn read(&self, offset: usize) -> u8 {
        assert!(offset < self.len);
        // SAFETY: within the mapping. Another process may write there, so it is no reference.
        unsafe { ((self.address + offset) as *const u8).read_volatile() }
    }

    /// Copies bytes.
    ///
    /// # Panics
    /// If they are not in the rings.
    #[must_use]
    pub fn copy(&self, offset: usize, len: usize) -> Vec<u8> {
        (offset..offset + len).map(|at| self.read(at)).collect()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own, and nothing refers to it but by address.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.len) };
    }
}
