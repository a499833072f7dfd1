//! The functions that interpose those of the C library.

use std::ffi::{c_int, c_void};

use crate::traced;

usertrace_next::interpose! {
    /// `malloc`, and an event.
    #[unsafe(no_mangle)]
    pub fn malloc(size: usize) -> *mut c_void = traced::malloc;
    /// `calloc`, and an event.
    #[unsafe(no_mangle)]
    pub fn calloc(nmemb: usize, size: usize) -> *mut c_void = traced::calloc;
    /// `realloc`, and an event.
    #[unsafe(no_mangle)]
    pub fn realloc(in_ptr: *mut c_void, size: usize) -> *mut c_void = traced::realloc;
    /// `free`, and an event.
    #[unsafe(no_mangle)]
    pub fn free(ptr: *mut c_void) = traced::free;
    /// `posix_memalign`, and an event.
    #[unsafe(no_mangle)]
    pub fn posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int
        = traced::posix_memalign;
    /// `aligned_alloc`, and an event.
    #[unsafe(no_mangle)]
    pub fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void = traced::aligned_alloc;
    /// `memalign`, and an event.
    #[unsafe(no_mangle)]
    pub fn memalign(alignment: usize, size: usize) -> *mut c_void = traced::memalign;
    /// `valloc`, and an event.
    #[unsafe(no_mangle)]
    pub fn valloc(size: usize) -> *mut c_void = traced::valloc;
    /// `pvalloc`, and an event.
    #[unsafe(no_mangle)]
    pub fn pvalloc(size: usize) -> *mut c_void = traced::pvalloc;
}
