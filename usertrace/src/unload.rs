//! Libraries that must not be unloaded, as somebody will come back to code in them: a signal, the end of a thread, `fork`,
//! the kernel that aborts a restartable sequence.
//!
//! The libraries in C and those to preload are linked so that they stay (`-z nodelete`). A library in Rust that this crate is
//! linked into is not: it stays once it traces.

use std::ffi::c_void;

/// Keeps the library of some code, so that `dlclose` has no effect on it. Nothing happens where the code is the program's own,
/// or the program is static.
pub(crate) fn never(code: *const c_void) {
    let Some(library) = about(code) else { return };
    // SAFETY: reads what the kernel gave this process.
    let program = unsafe { libc::getauxval(libc::AT_PHDR) };
    let program = about(std::ptr::with_exposed_provenance(program as usize));
    if library.dli_fname.is_null()
        || program.is_some_and(|program| program.dli_fbase == library.dli_fbase)
    {
        return;
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the dynamic linker's own text. The library is loaded, so that none of its code runs now: it is only marked.
    unsafe { libc::dlopen(library.dli_fname, flags) };
}

fn about(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: plain data, that the call fills in. Any address may be asked about.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(address, &raw mut info) != 0).then_some(info)
    }
}
