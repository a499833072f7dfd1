//! The host: its name.

use syscalls::{Errno, Sysno, raw};

/// The longest name of a host.
pub(crate) const NAME_LEN: usize = 65;

/// Copies the name of the host, and returns its length; none if a filter forbids the call.
///
/// Async-signal-safe; leaves `errno` alone.
pub(crate) fn name(to: &mut [u8; NAME_LEN]) -> Option<usize> {
    // SAFETY: zeros are a valid structure of arrays of bytes.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to `names` alone.
    let ret = unsafe { raw::syscall1(Sysno::uname as usize, &raw mut names as usize) };
    Errno::from_ret(ret).ok()?;
    let mut len = 0;
    for (to, from) in to.iter_mut().zip(names.nodename) {
        if from == 0 {
            break;
        }
        *to = from as u8;
        len += 1;
    }
    Some(len)
}
