//! Loads the kernel that a panic boots.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use usertrace_init::Dump;

/// Loads the crash kernel into the memory that `crashkernel=` set aside.
pub(crate) fn arm(dump: &Dump) -> Result<()> {
    let open = |path: &std::path::Path| {
        File::open(path).with_context(|| format!("opening {}", path.display()))
    };
    let kernel = open(&dump.kernel)?;
    let initramfs = open(&dump.initramfs)?;
    let cmdline = CString::new(dump.cmdline.as_str())?;
    // SAFETY: the files are open, and the command line is valid for its length, which counts its
    // NUL byte; the kernel copies all three before it returns.
    let done = unsafe {
        libc::syscall(
            libc::SYS_kexec_file_load,
            kernel.as_raw_fd(),
            initramfs.as_raw_fd(),
            cmdline.as_bytes_with_nul().len(),
            cmdline.as_ptr(),
            libc::KEXEC_FILE_ON_CRASH as libc::c_ulong,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error()).context("kexec_file_load");
    }
    Ok(())
}
