//! The interposed functions: those of the C library, or of another preloaded allocator.

use std::ffi::{c_int, c_void};

// Names of glibc's functions that other libraries do not interpose.
unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(nmemb: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(ptr: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_free(ptr: *mut c_void);
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_valloc(size: usize) -> *mut c_void;
    fn __libc_pvalloc(size: usize) -> *mut c_void;
}

/// `posix_memalign`, for which glibc has no other name, by `memalign`.
unsafe extern "C" fn libc_posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: the caller of `posix_memalign` passes a valid `out`.
    unsafe {
        let ptr = __libc_memalign(alignment, size);
        if ptr.is_null() {
            return libc::ENOMEM;
        }
        *out = ptr;
    }
    0
}

usertrace_next::next! {
    malloc(size: usize) -> *mut c_void, else __libc_malloc;
    calloc(nmemb: usize, size: usize) -> *mut c_void, else __libc_calloc;
    realloc(ptr: *mut c_void, size: usize) -> *mut c_void, else __libc_realloc;
    free(ptr: *mut c_void), else __libc_free;
    posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int, else libc_posix_memalign;
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void, else __libc_memalign;
    memalign(alignment: usize, size: usize) -> *mut c_void, else __libc_memalign;
    valloc(size: usize) -> *mut c_void, else __libc_valloc;
    pvalloc(size: usize) -> *mut c_void, else __libc_pvalloc;
}

/// The functions that the program itself calls: its own, or those of the first library that has
/// them.
pub(crate) mod first {
    use std::ffi::c_void;

    use crate::next::{__libc_free, __libc_realloc};

    usertrace_next::next! {
        realloc(ptr: *mut c_void, size: usize) -> *mut c_void, from Default, else __libc_realloc;
        free(ptr: *mut c_void), from Default, else __libc_free;
    }
}
