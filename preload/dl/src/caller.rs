//! Decides whether the result of `dlopen` depends on its caller.

use std::ffi::{c_int, c_void};

use libc::{PT_DYNAMIC, PT_LOAD, dl_phdr_info, size_t};

// Tags of the dynamic section, from the gABI; the last two have the names of glibc's `elf.h`.
const DT_NULL: i64 = 0;
const DT_RPATH: i64 = 15;
const DT_RUNPATH: i64 = 29;
const DT_FLAGS_1: i64 = 0x6fff_fffb;
const DF_1_NODEFLIB: u64 = 0x800;

/// An entry of the dynamic section.
#[derive(Clone, Copy)]
#[repr(C)]
struct Dyn {
    tag: i64,
    value: u64,
}

/// Whether the C library might do something else for a caller at this address than for this
/// library.
///
/// - A name with a `$` depends on the caller's directory.
/// - A name with a slash is a path, for every caller.
/// - The C library searches for any other name in the caller's `RUNPATH`. Without one, it uses the
///   `RPATH` of the caller, of the objects that needed it, and of the program, which all callers
///   share. It skips the system's directories if the caller has `DF_1_NODEFLIB`.
///
/// Code outside of all objects counts as the program's. The caller also determines the namespace,
/// which is always this library's: objects in other namespaces do not call it.
pub(crate) fn matters(name: &[u8], caller: usize) -> bool {
    if name.contains(&b'$') {
        return true;
    }
    if name.is_empty() || name.contains(&b'/') {
        return false;
    }
    let (mut found, mut matters, mut is_program) = (false, false, true);
    for_each(|object| {
        let paths = Paths::of(object);
        matters |= paths.rpath && !is_program;
        if holds(object, caller) {
            found = true;
            matters |= paths.runpath || paths.nodeflib;
        }
        is_program = false;
    });
    matters || !found
}

/// An object's settings for the search of others.
#[derive(Default)]
struct Paths {
    rpath: bool,
    runpath: bool,
    nodeflib: bool,
}

impl Paths {
    fn of(object: &dl_phdr_info) -> Self {
        let mut paths = Self::default();
        let dynamic = headers(object)
            .iter()
            .find(|header| header.p_type == PT_DYNAMIC);
        let Some(dynamic) = dynamic else { return paths };
        let address = object.dlpi_addr.wrapping_add(dynamic.p_vaddr) as usize;
        let mut entry = std::ptr::with_exposed_provenance::<Dyn>(address);
        loop {
            // SAFETY: the object is loaded while `dl_iterate_phdr` runs, and its dynamic section
            // ends with `DT_NULL`.
            let Dyn { tag, value } = unsafe { entry.read() };
            match tag {
                DT_NULL => return paths,
                DT_RPATH => paths.rpath = true,
                DT_RUNPATH => paths.runpath = true,
                DT_FLAGS_1 => paths.nodeflib = value & DF_1_NODEFLIB != 0,
                _ => {}
            }
            // SAFETY: an entry other than `DT_NULL` is not the last.
            entry = unsafe { entry.add(1) };
        }
    }
}

/// Whether the address is in the object.
fn holds(object: &dl_phdr_info, address: usize) -> bool {
    headers(object).iter().any(|header| {
        let start = object.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == PT_LOAD && (address as u64).wrapping_sub(start) < header.p_memsz
    })
}

fn headers(object: &dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if object.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: `dl_iterate_phdr` passes valid program headers and their number.
    unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) }
}

/// Calls `each` for all objects of the program, beginning with the program itself. The dynamic
/// linker holds its lock meanwhile, as it does in `dlopen`.
fn for_each<F: FnMut(&dl_phdr_info)>(mut each: F) {
    unsafe extern "C" fn call<F: FnMut(&dl_phdr_info)>(
        info: *mut dl_phdr_info,
        _: size_t,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the closure passed below, which outlives the call, and `info` is valid
        // during the callback.
        unsafe { (*data.cast::<F>())(&*info) };
        0
    }
    // SAFETY: `call` has the type of this closure, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(call::<F>), (&raw mut each).cast()) };
}
