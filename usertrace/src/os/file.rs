//! Files: inode numbers and descriptors.

use std::ffi::CStr;

use syscalls::{Errno, Sysno, raw};

/// x86-64 has an older call of this name, so the call has another name there.
#[cfg(target_arch = "x86_64")]
const FSTATAT: Sysno = Sysno::newfstatat;
#[cfg(not(target_arch = "x86_64"))]
const FSTATAT: Sysno = Sysno::fstatat;

/// The inode number of a file (`stat`).
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Errors
/// The file does not exist, as where `/proc` is not mounted, or cannot be reached.
pub(crate) fn inode(path: &CStr) -> Result<u64, Errno> {
    stat(path).map(|stat| stat.st_ino)
}

fn stat(path: &CStr) -> Result<libc::stat, Errno> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path ends with a NUL. On 64-bit machines, the kernel's structure is the C
    // library's `struct stat`, which `stat` has room for.
    let ret = unsafe {
        raw::syscall4(
            FSTATAT as usize,
            libc::AT_FDCWD as usize,
            path.as_ptr() as usize,
            stat.as_mut_ptr() as usize,
            0,
        )
    };
    Errno::from_ret(ret)?;
    // SAFETY: plain data, zeroed above and filled in by the kernel.
    Ok(unsafe { stat.assume_init() })
}

/// An open regular file. It is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Opened(usize);

impl Opened {
    /// Opens a file for reading (`openat`), unless it is something else, which opening might
    /// change.
    ///
    /// Async-signal-safe; leaves `errno` alone.
    ///
    /// # Errors
    /// The file does not exist, may not be read, or is not a regular file.
    pub(crate) fn regular(path: &CStr) -> Result<Self, Errno> {
        if stat(path)?.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Errno::EINVAL);
        }
        // Another file may have come meanwhile: that must not block.
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path ends with a NUL. A new descriptor affects no other one.
        let ret = unsafe {
            raw::syscall4(
                Sysno::openat as usize,
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                flags as usize,
                0,
            )
        };
        Errno::from_ret(ret).map(Self)
    }

    /// Reads as much of `bytes` as the file has from `offset` on (`pread64`). Returns the length.
    ///
    /// Async-signal-safe; leaves `errno` alone.
    ///
    /// # Errors
    /// The file cannot be read there.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        // SAFETY: the kernel writes to `bytes` alone.
        let ret = unsafe {
            raw::syscall4(
                Sysno::pread64 as usize,
                self.0,
                bytes.as_mut_ptr() as usize,
                bytes.len(),
                offset as usize,
            )
        };
        Errno::from_ret(ret)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the descriptor of this value, which no other code knows.
        unsafe { raw::syscall1(Sysno::close as usize, self.0) };
    }
}

/// Reads where a symbolic link leads to (`readlink`). Returns the length, at most that of `target`.
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Errors
/// There is no such link, or it cannot be read.
pub(crate) fn link_target(path: &CStr, target: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the path ends with a NUL, and the kernel writes to `target` alone.
    let ret = unsafe {
        raw::syscall4(
            Sysno::readlinkat as usize,
            libc::AT_FDCWD as usize,
            path.as_ptr() as usize,
            target.as_mut_ptr() as usize,
            target.len(),
        )
    };
    Errno::from_ret(ret)
}

/// Reads the path of the current directory, with a NUL (`getcwd`). Returns the length with the NUL.
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Errors
/// The directory was removed, or its path is longer than `path`.
pub(crate) fn current_directory(path: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes to `path` alone.
    let ret = unsafe {
        raw::syscall2(
            Sysno::getcwd as usize,
            path.as_mut_ptr() as usize,
            path.len(),
        )
    };
    Errno::from_ret(ret)
}

/// Closes all descriptors from `first` to `last` (`close_range`, since Linux 5.9).
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Safety
/// No code of this process may use one of these descriptors afterwards.
///
/// # Errors
/// The kernel does not have the call, or a filter forbids it.
#[cfg(feature = "fallback")]
pub(crate) unsafe fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: no code uses the descriptors any more, as this function's caller promises.
    let ret = unsafe {
        raw::syscall3(
            Sysno::close_range as usize,
            first as usize,
            last as usize,
            0,
        )
    };
    Errno::from_ret(ret).map(drop)
}
