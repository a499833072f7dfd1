//! The three system calls, and the discovery of their numbers.
//!
//! The numbers are free in the kernel that the patches are for; a later stock kernel may use them
//! for other calls. So [`Calls::discover`] is the only way to a [`Calls`]: it asks the running
//! kernel by a `prctl` option that no other kernel accepts.

use core::fmt;
use core::ptr::NonNull;

use syscalls::{Errno, Sysno, raw};

use crate::uapi::{LTT_ABI_VERSION, LttAbi, LttTracebuf, PR_LTT_GET_ABI};

/// Why the system calls are not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiscoverError {
    /// The kernel lacks the patches, or was built without `CONFIG_LTT`.
    NotPatched,
    /// The query is forbidden, for example by a seccomp filter.
    Refused(Errno),
    /// The kernel has an ABI version that this library does not know.
    Version(u32),
}

impl fmt::Display for DiscoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPatched => f.write_str("this kernel has no trace buffers for user space"),
            Self::Refused(errno) => {
                write!(f, "the kernel may not be asked for trace buffers: {errno}")
            }
            Self::Version(version) => {
                write!(
                    f,
                    "the kernel has version {version} of the ABI, this library knows {LTT_ABI_VERSION}"
                )
            }
        }
    }
}

impl core::error::Error for DiscoverError {}

/// The state of a trace that [`Calls::update`] returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// The trace is active.
    pub active: bool,
    /// Its filter mask.
    pub filter: u32,
}

/// The running kernel's three system calls.
///
/// All calls are async-signal-safe, allocate nothing, and preserve `errno`.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    abi: LttAbi,
}

impl Calls {
    /// Asks the kernel for the numbers of the calls.
    ///
    /// # Errors
    /// See [`DiscoverError`].
    pub fn discover() -> Result<Self, DiscoverError> {
        let mut abi = LttAbi {
            size: size_of::<LttAbi>() as u32,
            ..LttAbi::default()
        };
        // SAFETY: a kernel that knows the option writes at most `size` bytes to `abi`; other
        // kernels access no argument.
        let ret = unsafe {
            raw::syscall5(
                Sysno::prctl as usize,
                PR_LTT_GET_ABI as usize,
                &raw mut abi as usize,
                size_of::<LttAbi>(),
                0,
                0,
            )
        };
        Self::judge(Errno::from_ret(ret), abi)
    }

    /// Interprets the kernel's answer to the discovery call.
    fn judge(ret: Result<usize, Errno>, abi: LttAbi) -> Result<Self, DiscoverError> {
        match ret {
            Err(Errno::EINVAL) => Err(DiscoverError::NotPatched),
            Err(errno) => Err(DiscoverError::Refused(errno)),
            Ok(_) if abi.version != LTT_ABI_VERSION => Err(DiscoverError::Version(abi.version)),
            Ok(_) => Ok(Self { abi }),
        }
    }

    /// The kernel's answer to the discovery call.
    #[must_use]
    pub fn abi(&self) -> &LttAbi {
        &self.abi
    }

    /// Calls `alloc_tracebuf`, which maps the three areas, or returns those that this address space
    /// has.
    ///
    /// # Errors
    /// Those of the kernel: `EINVAL` for a bad `signo`, `ENOMEM`, and `EBUSY` if the areas are
    /// partly unmapped.
    pub fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno> {
        let mut args = LttTracebuf {
            signo,
            ..LttTracebuf::default()
        };
        // SAFETY: the number is that of alloc_tracebuf, which writes at most the given size to
        // `args`. Its mappings are new, so they overlap no memory of a Rust reference.
        let ret = unsafe {
            raw::syscall3(
                self.abi.nr_alloc_tracebuf as usize,
                &raw mut args as usize,
                size_of::<LttTracebuf>(),
                0,
            )
        };
        Errno::from_ret(ret).map(|_| args)
    }

    /// Calls `ltt_update` (A1). With `None` in `buffer`, it returns the next trace whose buffer
    /// this process was not given yet, and leaves `None` if there is none. Otherwise it returns the
    /// state of that trace.
    ///
    /// # Errors
    /// Those of the kernel: `ENXIO` (no areas), `EINVAL` (not a buffer given to this process),
    /// `ENOENT` (the trace was destroyed: the kernel takes the call as an acknowledgement, and may
    /// give the slot to another trace).
    pub fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno> {
        let mut active: libc::c_int = 0;
        let mut filter: libc::c_int = 0;
        // SAFETY: the number is that of ltt_update, which writes one pointer and two ints.
        // `Option<NonNull<u8>>` has the layout of a pointer that may be NULL. The kernel does not
        // access the memory that the pointer points to.
        let ret = unsafe {
            raw::syscall3(
                self.abi.nr_ltt_update as usize,
                core::ptr::from_mut(buffer) as usize,
                &raw mut active as usize,
                &raw mut filter as usize,
            )
        };
        Errno::from_ret(ret).map(|_| Update {
            active: active != 0,
            filter: filter.cast_unsigned(),
        })
    }

    /// Calls `ltt_switch` (A2), which creates the buffer's consumer file if needed, and wakes its
    /// reader.
    ///
    /// # Errors
    /// As for [`Calls::update`].
    pub fn switch(&self, buffer: NonNull<u8>) -> Result<(), Errno> {
        // SAFETY: the number is that of ltt_switch, which only compares the address.
        let ret =
            unsafe { raw::syscall1(self.abi.nr_ltt_switch as usize, buffer.as_ptr() as usize) };
        Errno::from_ret(ret).map(drop)
    }

    /// Fires the trigger with this number of the trace that a buffer belongs to, by `ltt_switch`.
    ///
    /// # Errors
    /// Those of the kernel: `ENXIO` (no areas), `EINVAL` (not a buffer given to this process, or
    /// the number is 0), `ENOENT` (the trace was destroyed, or has no such trigger any more).
    pub fn fire(&self, buffer: NonNull<u8>, trigger: u8) -> Result<(), Errno> {
        if trigger == 0 {
            return Err(Errno::EINVAL);
        }
        let address = buffer.as_ptr().wrapping_add(trigger.into());
        NonNull::new(address).map_or(Err(Errno::EINVAL), |address| self.switch(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_distinguished() {
        let good = LttAbi {
            version: LTT_ABI_VERSION,
            nr_ltt_update: 7,
            ..LttAbi::default()
        };
        assert_eq!(Calls::judge(Ok(0), good).map(|calls| calls.abi), Ok(good));
        assert_eq!(
            Calls::judge(Err(Errno::EINVAL), good).err(),
            Some(DiscoverError::NotPatched)
        );
        for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EACCES] {
            assert_eq!(
                Calls::judge(Err(errno), good).err(),
                Some(DiscoverError::Refused(errno))
            );
        }
        let newer = LttAbi {
            version: LTT_ABI_VERSION + 1,
            ..good
        };
        assert_eq!(
            Calls::judge(Ok(0), newer).err(),
            Some(DiscoverError::Version(LTT_ABI_VERSION + 1))
        );
    }
}
