//! The objects that the dynamic linker has loaded.

use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::memory::is_readable;

/// Name of a note's owner, with the NUL, and type of the note with a build ID (`elf.h`).
const GNU: &[u8] = b"GNU\0";
const NT_GNU_BUILD_ID: u32 = 3;
/// The smallest page size: segments begin on pages.
const PAGE: usize = 4096;

/// Numbers of objects that were ever loaded and unloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) loaded: u64,
    pub(crate) unloaded: u64,
}

/// A loaded object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object<'a> {
    /// Address of its lowest segment.
    pub(crate) base: usize,
    /// Length up to the end of its highest segment.
    pub(crate) size: usize,
    /// Whether it is position-independent.
    pub(crate) is_pic: bool,
    /// Its build ID; empty if it has none.
    pub(crate) build_id: &'a [u8],
    /// The name by which it was loaded; empty for the program.
    pub(crate) name: &'a [u8],
}

/// Calls `visit` with each object, until it returns false. `Changes` are those up to now, or zeros
/// if the linker does not count.
///
/// This waits for the linker's lock: code that may run while another thread holds that lock, or
/// that interrupted its holder, must not call it. That is all code which events may come from.
/// `visit` must not call the linker. Allocates nothing.
pub(crate) fn each_object(mut visit: impl FnMut(Changes, &Object<'_>) -> bool) {
    let mut visit: &mut dyn FnMut(Changes, &Object<'_>) -> bool = &mut visit;
    // SAFETY: `take` gets what it expects: a reference to `visit`.
    unsafe { libc::dl_iterate_phdr(Some(take), (&raw mut visit).cast()) };
}

/// `_dl_find_object` (glibc 2.35 and later); NULL if there is none.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The result of `_dl_find_object` (`dlfcn.h`), on processors without `dlfo_eh_dbase`.
#[repr(C)]
struct Found {
    flags: c_ulonglong,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    eh_frame: *const c_void,
    reserved: [c_ulonglong; 7],
}

/// The first fields of `struct link_map`, which `link.h` makes public.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
}

/// Finds the linker's function that [`find_object`] calls. Signal handlers must not call this.
pub(crate) fn prepare() {
    // SAFETY: a name that ends with NUL. `dlerror` takes no argument; its result is not used.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr());
        if found.is_null() {
            // The program must not find the error.
            libc::dlerror();
        }
        FIND_OBJECT.store(found, Ordering::Relaxed);
    }
}

/// Whether [`find_object`] and [`find_unwind_tables`] can find anything.
#[inline]
pub(crate) fn can_find_object() -> bool {
    !FIND_OBJECT.load(Ordering::Relaxed).is_null()
}

/// An object that contains an address, as the linker tells it without a lock.
struct Located {
    found: Found,
    headers: &'static [libc::Elf64_Phdr],
    /// Its addresses are those of the headers, and this.
    bias: usize,
}

/// Finds the object that contains an address. None if there is none, or if the linker cannot tell
/// without a lock. Async-signal-safe.
///
/// The headers and the link map are valid as long as the object is loaded.
fn locate(address: usize) -> Option<Located> {
    type Find = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find.is_null() {
        return None;
    }
    let mut found = std::mem::MaybeUninit::<Found>::zeroed();
    // SAFETY: the linker's function has this type, waits for nobody, and takes any address.
    let found = unsafe {
        let find: Find = std::mem::transmute(find);
        let place = std::ptr::without_provenance_mut(address);
        if find(place, found.as_mut_ptr()) != 0 {
            return None;
        }
        found.assume_init()
    };
    let (base, end) = (found.map_start, found.map_end);
    if !(base..end).contains(&address) || !base.is_multiple_of(PAGE) || !is_readable(base) {
        return None;
    }
    // SAFETY: the first page of the object is readable, and aligned. The linker mapped it for its
    // segments. If the file's headers are not there, there is no magic number, or no such table.
    let headers = unsafe {
        let file = &*std::ptr::with_exposed_provenance::<libc::Elf64_Ehdr>(base);
        let (at, count) = (file.e_phoff as usize, usize::from(file.e_phnum));
        let len = count * size_of::<libc::Elf64_Phdr>();
        let is_table = file.e_ident[..4] == *b"\x7fELF"
            && usize::from(file.e_phentsize) == size_of::<libc::Elf64_Phdr>()
            && at.is_multiple_of(align_of::<libc::Elf64_Phdr>())
            && at.checked_add(len).is_some_and(|end| end <= PAGE);
        if !is_table {
            return None;
        }
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance(base + at), count)
    };
    // SAFETY: the linker keeps the map as long as the object is loaded.
    let bias = unsafe { found.link_map.as_ref() }?.bias;
    let (first, _) = range(headers)?;
    (bias.wrapping_add(first) == base).then_some(Located {
        found,
        headers,
        bias,
    })
}

/// Calls `visit` with the object that contains an address, if it has one, and the linker can tell
/// without a lock. Async-signal-safe.
///
/// The caller must be called by the code at the address, so that nobody unloads it.
pub(crate) fn find_object(address: usize, visit: impl FnOnce(&Object<'_>)) {
    let Some(Located {
        found,
        headers,
        bias,
    }) = locate(address)
    else {
        return;
    };
    let Some((first, size)) = range(headers) else {
        return;
    };
    // SAFETY: the linker keeps the map and its name as long as the object is loaded.
    let name = unsafe {
        let name = (*found.link_map).name;
        match name.is_null() {
            true => &[][..],
            false => CStr::from_ptr(name).to_bytes(),
        }
    };
    visit(&Object {
        base: found.map_start,
        size,
        is_pic: bias != 0 || first == 0,
        // SAFETY: the object stays loaded, as this function's caller is called by it.
        build_id: unsafe { build_id(bias, headers) },
        name,
    });
}

/// Where an object has its unwind tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnwindTables<'a> {
    /// Address of `.eh_frame_hdr`.
    pub(crate) head: usize,
    /// The contents of the segment that has it.
    pub(crate) segment: &'a [u8],
}

/// Calls `visit` with the unwind tables of the object that contains an address. None if there are
/// no tables, or they can change, or the linker cannot tell without a lock. Async-signal-safe.
///
/// The caller must be called by the code at the address, so that nobody unloads it.
pub(crate) fn find_unwind_tables<R>(
    address: usize,
    visit: impl FnOnce(UnwindTables<'_>) -> R,
) -> Option<R> {
    let Located {
        found,
        headers,
        bias,
    } = locate(address)?;
    let head = found.eh_frame.addr();
    let offset = head.wrapping_sub(bias) as u64;
    let holds = |segment: &&libc::Elf64_Phdr| {
        segment.p_type == libc::PT_LOAD
            && segment.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R
            && offset.wrapping_sub(segment.p_vaddr) < segment.p_filesz
    };
    let segment = headers.iter().find(holds)?;
    let start = bias.wrapping_add(segment.p_vaddr as usize);
    let len = segment.p_filesz as usize;
    // Not beyond what the linker mapped.
    start.checked_add(len).filter(|&end| end <= found.map_end)?;
    // SAFETY: a segment of the loaded object, which is readable and not writable. The object stays
    // loaded, as this function's caller is called by it.
    let segment =
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), len) };
    Some(visit(UnwindTables { head, segment }))
}

/// # Safety
/// Only `dl_iterate_phdr` may call this, with a reference to a visitor.
unsafe extern "C" fn take(
    info: *mut libc::dl_phdr_info,
    len: libc::size_t,
    visit: *mut c_void,
) -> c_int {
    // SAFETY: `each_object` passes a visitor.
    let visit = unsafe { &mut *visit.cast::<&mut dyn FnMut(Changes, &Object<'_>) -> bool>() };
    // SAFETY: the linker passes a valid object, whose headers and name stay as long as the call.
    let (info, headers) = unsafe {
        let info = &*info;
        let headers = match info.dlpi_phdr.is_null() {
            true => &[][..],
            false => std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
        };
        (info, headers)
    };
    // Old linkers pass a shorter structure.
    let counts = std::mem::offset_of!(libc::dl_phdr_info, dlpi_subs) + size_of::<u64>() <= len;
    let changes = match counts {
        true => Changes {
            loaded: info.dlpi_adds,
            unloaded: info.dlpi_subs,
        },
        false => Changes::default(),
    };
    let bias = info.dlpi_addr as usize;
    let Some((first, len)) = range(headers) else {
        return 0;
    };
    let name = match info.dlpi_name.is_null() {
        true => &[][..],
        // SAFETY: a string of the linker.
        false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
    };
    let object = Object {
        base: bias.wrapping_add(first),
        size: len,
        is_pic: bias != 0 || first == 0,
        // SAFETY: the object stays loaded as long as the call, with the segments that its headers
        // state.
        build_id: unsafe { build_id(bias, headers) },
        name,
    };
    c_int::from(!visit(changes, &object))
}

/// The lowest address of the segments, relative to the bias, and their length up to the highest.
fn range(headers: &[libc::Elf64_Phdr]) -> Option<(usize, usize)> {
    let loaded = || {
        headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
    };
    let first = loaded().map(|header| header.p_vaddr as usize).min()? & !(PAGE - 1);
    let end = loaded().map(|header| header.p_vaddr.saturating_add(header.p_memsz) as usize);
    let len = end
        .max()?
        .checked_sub(first)?
        .checked_next_multiple_of(PAGE)?;
    (len > 0).then_some((first, len))
}

/// The build ID in the notes of an object. A note counts only if a readable segment has it whole.
///
/// # Safety
/// The object must stay loaded for `'a`, with these headers.
unsafe fn build_id<'a>(bias: usize, headers: &[libc::Elf64_Phdr]) -> &'a [u8] {
    for header in headers
        .iter()
        .filter(|header| header.p_type == libc::PT_NOTE)
    {
        let end = header.p_vaddr.checked_add(header.p_filesz);
        let holds = |segment: &&libc::Elf64_Phdr| {
            segment.p_type == libc::PT_LOAD
                && segment.p_flags & libc::PF_R != 0
                && segment.p_vaddr <= header.p_vaddr
                && end.is_some_and(|end| end - segment.p_vaddr <= segment.p_filesz)
        };
        if !headers.iter().any(|segment| holds(&segment)) {
            continue;
        }
        let place = bias.wrapping_add(header.p_vaddr as usize);
        // SAFETY: a readable segment of the loaded object has the range.
        let notes = unsafe {
            let place = std::ptr::with_exposed_provenance::<u8>(place);
            std::slice::from_raw_parts(place, header.p_filesz as usize)
        };
        let align = if header.p_align == 8 { 8 } else { 4 };
        if let Some(build_id) = build_id_in(notes, align) {
            return build_id;
        }
    }
    &[]
}

/// The build ID among notes of this alignment.
fn build_id_in(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    /// Length of a note's header: lengths of name and contents, and the type.
    const HEADER: usize = 12;
    loop {
        let word = |at: usize| {
            let bytes = notes.get(at..at + 4)?.first_chunk()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        let (name_len, len, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let contents = (HEADER + name_len).checked_next_multiple_of(align)?;
        let name = notes.get(HEADER..HEADER + name_len)?;
        let end = contents.checked_add(len)?;
        let found = notes.get(contents..end)?;
        if kind == NT_GNU_BUILD_ID && name == GNU && !found.is_empty() {
            return Some(found);
        }
        notes = notes.get(end.checked_next_multiple_of(align)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_its_libraries_are_found() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let begins_at = |base: usize| {
            maps.contains(&format!("\n{base:x}-")) || maps.starts_with(&format!("{base:x}-"))
        };
        let own = the_program_and_its_libraries_are_found as fn() as usize;
        let (mut objects, mut has_own, mut count) = (0, false, Changes::default());
        each_object(|changes, object| {
            assert!(begins_at(object.base), "{object:x?}\n{maps}");
            has_own |= own.wrapping_sub(object.base) < object.size && object.name.is_empty();
            (objects, count) = (objects + 1, changes);
            true
        });
        assert!(has_own && objects > 1, "{objects}");
        assert!(count.loaded - count.unloaded >= objects - 1, "{count:?}");
    }

    #[test]
    fn objects_are_found_by_addresses() {
        prepare();
        let Some(getpid) = std::ptr::NonNull::new(libc::getpid as *mut c_void) else {
            unreachable!()
        };
        // SAFETY: the function is in the C library.
        let mut info = unsafe { std::mem::zeroed::<libc::Dl_info>() };
        // SAFETY: as above.
        assert_ne!(unsafe { libc::dladdr(getpid.as_ptr(), &raw mut info) }, 0);
        let mut by_walk = None;
        each_object(|_, object| {
            if object.base == info.dli_fbase.addr() {
                by_walk = Some((
                    object.size,
                    object.is_pic,
                    object.build_id.to_vec(),
                    object.name.to_vec(),
                ));
            }
            true
        });
        let mut by_address = None;
        find_object(getpid.as_ptr().addr(), |object| {
            assert_eq!(object.base, info.dli_fbase.addr());
            by_address = Some((
                object.size,
                object.is_pic,
                object.build_id.to_vec(),
                object.name.to_vec(),
            ));
        });
        // Only glibc from 2.35 on has the function.
        if !FIND_OBJECT.load(Ordering::Relaxed).is_null() {
            assert_eq!(by_address, by_walk);
            assert!(by_walk.is_some());
        }
        for none in [0, 1, (&raw const info).addr(), usize::MAX] {
            find_object(none, |object| panic!("{object:?}"));
        }
    }

    #[test]
    fn notes_may_be_anything() {
        let note = |name: &[u8], contents: &[u8], kind: u32, align: usize| {
            let mut note = (name.len() as u32).to_ne_bytes().to_vec();
            note.extend((contents.len() as u32).to_ne_bytes());
            note.extend(kind.to_ne_bytes());
            for part in [name, contents] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(align), 0);
            }
            note
        };
        for align in [4, 8] {
            let other = note(b"LINUX\0", b"abc", 3, align);
            let property = note(GNU, b"abcdefgh", 5, align);
            let all = [other, property, note(GNU, b"\x01\x02\x03", 3, align)].concat();
            assert_eq!(build_id_in(&all, align), Some(&b"\x01\x02\x03"[..]));
            for len in 0..all.len() - align {
                assert_eq!(build_id_in(&all[..len], align), None, "{align} {len}");
            }
        }
        for bytes in [&[0xff; 64][..], &[0; 64], &[]] {
            assert_eq!(build_id_in(bytes, 4), None);
        }
    }
}
