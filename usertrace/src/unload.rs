//! Libraries that must not be unloaded, as somebody will come back to code in them: a signal, the
//! end of a thread, `fork`, the kernel that aborts a restartable sequence.
//!
//! The libraries in C and those to preload are linked so that they stay (`-z nodelete`). A library
//! in Rust that this crate is linked into is not: it stays once it traces.

use std::ffi::{c_char, c_int, c_void};

/// A tag in a library's dynamic section, and a flag in its value (`elf.h`).
const DT_FLAGS_1: usize = 0x6fff_fffb;
const DF_1_NODELETE: usize = 8;

/// Keeps the library of some code, so that `dlclose` has no effect on it. Nothing happens where
/// that is so already, where the code is the program's own, and in a static program.
pub(crate) fn never(code: *const c_void) {
    let mut search = Search {
        address: code.addr(),
        name: std::ptr::null(),
    };
    // SAFETY: `visit` gets what it wants, and calls nothing of the dynamic linker's.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    if search.name.is_null() {
        return;
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the dynamic linker's own text. The library is loaded, so that none of its code runs
    // now: it is only marked.
    unsafe { libc::dlopen(search.name, flags) };
}

struct Search {
    address: usize,
    /// The name of the library that has the address and may be unloaded.
    name: *const c_char,
}

/// Looks at a program or library, and says by 1 that it has the address.
///
/// # Safety
/// For `dl_iterate_phdr`, with a [`Search`].
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker's, and the caller's; the headers are there as long as the library.
    let (info, search, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info, &mut *search.cast::<Search>(), headers)
    };
    let place = |header: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(header.p_vaddr) as usize;
    let has_it = |header: &libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD
            && search.address.wrapping_sub(place(header)) < header.p_memsz as usize
    };
    if !headers.iter().any(has_it) {
        return 0;
    }
    // SAFETY: a text of the dynamic linker's, if there is one. The program has an empty one.
    let has_name = !info.dlpi_name.is_null() && unsafe { *info.dlpi_name } != 0;
    let dynamic = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC);
    if let Some(dynamic) = dynamic.filter(|_| has_name) {
        let entries = std::ptr::with_exposed_provenance::<[usize; 2]>(place(dynamic));
        // SAFETY: the library's dynamic section, which is loaded, and as long as its header says.
        let entries = unsafe {
            std::slice::from_raw_parts(entries, dynamic.p_memsz as usize / size_of::<[usize; 2]>())
        };
        let stays = |[tag, value]: &[usize; 2]| *tag == DT_FLAGS_1 && value & DF_1_NODELETE != 0;
        if !entries.iter().any(stays) {
            search.name = info.dlpi_name;
        }
    }
    1
}
