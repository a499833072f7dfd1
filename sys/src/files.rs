//! The ioctls of the consumer files.

use std::os::fd::{AsRawFd, BorrowedFd};

use syscalls::{Errno, Sysno, raw};

use crate::uapi::{
    LTT_IOC_CONSUME, LTT_IOC_END_SUBBUF, LTT_IOC_INFO, LTT_IOC_POSITIONS, LttConsume, LttEndSubbuf,
    LttFileInfo, LttPositions, LttRingPositions,
};

/// The state of a file that [`positions`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Number of rings; may exceed the length of the slice.
    pub rings: usize,
    /// `LTT_FILE_*`.
    pub flags: u32,
}

/// Calls an ioctl of the consumer files.
///
/// # Safety
/// `request` must access only `arg`, and memory that `arg` points to and that may be written.
unsafe fn ioctl<T>(fd: BorrowedFd<'_>, request: u32, arg: &mut T) -> Result<(), Errno> {
    // SAFETY: the contract of this function: the request only accesses `arg` and memory that it
    // points to. A file of another kind, whose ioctl may have the same number, gets an argument of
    // the size that the number encodes.
    let ret = unsafe {
        raw::syscall3(
            Sysno::ioctl as usize,
            fd.as_raw_fd() as usize,
            request as usize,
            core::ptr::from_mut(arg) as usize,
        )
    };
    Errno::from_ret(ret).map(drop)
}

/// Reads the process, trace and channel of a consumer file.
///
/// # Errors
/// Those of the kernel: `ENOTTY` if this is not a consumer file.
pub fn file_info(fd: BorrowedFd<'_>) -> Result<LttFileInfo, Errno> {
    let mut info = LttFileInfo::default();
    // SAFETY: LTT_IOC_INFO only writes to `info`.
    unsafe { ioctl(fd, LTT_IOC_INFO, &mut info) }?;
    Ok(info)
}

/// Reads the positions of the file's rings, at most as many as `rings` holds.
///
/// # Errors
/// Those of the kernel: `ENOTTY` if this is not a consumer file.
pub fn positions(fd: BorrowedFd<'_>, rings: &mut [LttRingPositions]) -> Result<Positions, Errno> {
    let mut arg = LttPositions {
        rings: rings.as_mut_ptr() as u64,
        nr_rings: u32::try_from(rings.len()).unwrap_or(u32::MAX),
        flags: 0,
        stride: size_of::<LttRingPositions>() as u32,
        reserved: 0,
    };
    // SAFETY: LTT_IOC_POSITIONS writes to `arg`, and to at most `nr_rings` elements of `stride`
    // bytes.
    unsafe { ioctl(fd, LTT_IOC_POSITIONS, &mut arg) }?;
    Ok(Positions {
        rings: arg.nr_rings as usize,
        flags: arg.flags,
    })
}

/// Tells the kernel, and thereby the writer, that everything of `ring` below `position` was
/// consumed.
///
/// # Errors
/// Those of the kernel: `EBADF` if the file is not open for writing; `EINVAL` if there is no such
/// ring, or if `position` is not between the consumed position and `head`.
pub fn consume(fd: BorrowedFd<'_>, ring: u32, position: u64) -> Result<(), Errno> {
    let mut arg = LttConsume {
        ring,
        reserved: 0,
        position,
    };
    // SAFETY: LTT_IOC_CONSUME only reads `arg`.
    unsafe { ioctl(fd, LTT_IOC_CONSUME, &mut arg) }
}

/// Ends the current sub-buffer of `ring`, or of all rings
/// ([`LTT_RING_ALL`](crate::uapi::LTT_RING_ALL)), if it has records: the next record begins another
/// one.
///
/// # Errors
/// Those of the kernel: `EBADF` if the file is not open for writing, `EINVAL` if there is no such
/// ring, `EOPNOTSUPP` if the rings are not per CPU.
pub fn end_subbuf(fd: BorrowedFd<'_>, ring: u32) -> Result<(), Errno> {
    let mut arg = LttEndSubbuf { ring, reserved: 0 };
    // SAFETY: LTT_IOC_END_SUBBUF only reads `arg`.
    unsafe { ioctl(fd, LTT_IOC_END_SUBBUF, &mut arg) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn other_files_are_refused() {
        let null = File::open("/dev/null").unwrap();
        assert_eq!(file_info(null.as_fd()), Err(Errno::ENOTTY));
        assert_eq!(positions(null.as_fd(), &mut []), Err(Errno::ENOTTY));
        assert_eq!(consume(null.as_fd(), 0, 0), Err(Errno::ENOTTY));
        assert_eq!(end_subbuf(null.as_fd(), 0), Err(Errno::ENOTTY));
    }
}
