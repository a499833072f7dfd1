//! The functions that stand in front of the C library's.

use std::ffi::{c_int, c_void};

use usertrace::event;

use crate::{events, next};

/// `malloc`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
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
pub unsafe extern "C" fn calloc(nmemb: usize, size: usize) -> *mut c_void {
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
pub unsafe extern "C" fn realloc(in_ptr: *mut c_void, size: usize) -> *mut c_void {
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
pub unsafe extern "C" fn free(ptr: *mut c_void) {
    event!(events::free, ptr.addr() as u64);
    // SAFETY: the caller's promise.
    unsafe { next::free(ptr) };
}

/// `posix_memalign`, and an event.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
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
pub unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
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
pub unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
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
