//! The functions that stand in front of the C library's.

use std::ffi::{c_int, c_void};

use usertrace::event;

use crate::events;
use crate::next::{self, first};

/// `malloc`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let ptr = unsafe { next::malloc(size) };
    event!(events::malloc, size as u64, ptr.addr() as u64);
    ptr
}

/// `calloc`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn calloc(nmemb: usize, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let ptr = unsafe { next::calloc(nmemb, size) };
    event!(events::calloc, nmemb as u64, size as u64, ptr.addr() as u64);
    ptr
}

/// `realloc`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn realloc(in_ptr: *mut c_void, size: usize) -> *mut c_void {
    let before = in_ptr.addr() as u64;
    // SAFETY: the caller's promise.
    let ptr = unsafe { next::realloc(in_ptr, size) };
    event!(events::realloc, before, size as u64, ptr.addr() as u64);
    ptr
}

/// `free`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn free(ptr: *mut c_void) {
    event!(events::free, ptr.addr() as u64);
    // SAFETY: the caller's promise.
    unsafe { next::free(ptr) };
}

/// `posix_memalign`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { next::posix_memalign(out, alignment, size) };
    let mut ptr = 0;
    if result == 0 {
        // SAFETY: the call went well, so it was written to.
        ptr = unsafe { (*out).addr() } as u64;
    }
    event!(
        events::posix_memalign,
        alignment as u64,
        size as u64,
        result,
        ptr
    );
    result
}

/// `aligned_alloc`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let ptr = unsafe { next::aligned_alloc(alignment, size) };
    event!(
        events::aligned_alloc,
        alignment as u64,
        size as u64,
        ptr.addr() as u64
    );
    ptr
}

/// `memalign`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let ptr = unsafe { next::memalign(alignment, size) };
    event!(
        events::memalign,
        alignment as u64,
        size as u64,
        ptr.addr() as u64
    );
    ptr
}

/// `valloc`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let ptr = unsafe { next::valloc(size) };
    event!(events::valloc, size as u64, ptr.addr() as u64);
    ptr
}

/// `pvalloc`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pvalloc(size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let ptr = unsafe { next::pvalloc(size) };
    event!(events::pvalloc, size as u64, ptr.addr() as u64);
    ptr
}

/// `reallocarray`, by the program's `realloc`, as the C library has it: whoever replaces that need not know of this
/// one. But some do, and their own would come to no event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn reallocarray(
    in_ptr: *mut c_void,
    nmemb: usize,
    size: usize,
) -> *mut c_void {
    let Some(bytes) = nmemb.checked_mul(size) else {
        // SAFETY: a thread's own number.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's promise.
    unsafe { first::realloc(in_ptr, bytes) }
}

/// `free_sized`, which C23 defines by `free`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn free_sized(ptr: *mut c_void, _size: usize) {
    // SAFETY: the caller's promise.
    unsafe { first::free(ptr) };
}

/// `free_aligned_sized`, likewise.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn free_aligned_sized(
    ptr: *mut c_void,
    _alignment: usize,
    _size: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { first::free(ptr) };
}
