//! Keeps libraries loaded whose code may still be entered: by a signal, at the end of a thread, by
//! `fork`, or by the kernel when it aborts a restartable sequence.
//!
//! The C libraries and the preload libraries are linked with `-z nodelete`. A Rust library that
//! links this crate is not: this module keeps it loaded once it traces.

use std::ffi::{c_char, c_int, c_void};

/// A tag of a library's dynamic section, and a flag in its value (`elf.h`).
const DT_FLAGS_1: usize = 0x6fff_fffb;
const DF_1_NODELETE: usize = 8;

/// Keeps the library that contains `code` loaded, so that `dlclose` does not unmap it. Does nothing
/// for a library that is kept already, for the program itself, and in a static program.
pub(crate) fn never(code: *const c_void) {
    let mut search = Search {
        address: code.addr(),
        name: std::ptr::null(),
    };
    // SAFETY: `visit` gets the `Search` that it expects, and calls no function of the dynamic
    // linker.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    if search.name.is_null() {
        return;
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is a string of the dynamic linker. The library is loaded already, so no code
    // of it runs here: it is only marked.
    unsafe { libc::dlopen(search.name, flags) };
}

struct Search {
    address: usize,
    /// The name of the library that contains the address and may be unloaded.
    name: *const c_char,
}

/// Checks one module; returns 1, which ends the iteration, if it contains the address.
///
/// # Safety
/// Only `dl_iterate_phdr` may call this, with a [`Search`].
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: `info` is from the dynamic linker, and `search` from `never`; the headers stay as
    // long as the library.
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
    // SAFETY: the name is NULL or a string of the dynamic linker. The program has an empty one.
    let has_name = !info.dlpi_name.is_null() && unsafe { *info.dlpi_name } != 0;
    let dynamic = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC);
    if let Some(dynamic) = dynamic.filter(|_| has_name) {
        let entries = std::ptr::with_exposed_provenance::<[usize; 2]>(place(dynamic));
        // SAFETY: the dynamic section of the library is mapped, with the length that its header
        // states.
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
