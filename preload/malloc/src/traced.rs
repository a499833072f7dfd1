//! The traced functions of the malloc family. `caller` is the return address of the program's call.

use std::ffi::{c_int, c_void};

use usertrace::__private::Caller;
use usertrace::event_at;
use usertrace_next::of_release;

use crate::events;
use crate::next;

pub(crate) unsafe extern "C-unwind" fn malloc(size: usize, caller: Caller) -> *mut c_void {
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let ptr = unsafe { next::malloc(size) };
    event_at!(caller, events::malloc, size as u64, ptr.addr() as u64);
    ptr
}

pub(crate) unsafe extern "C-unwind" fn calloc(
    nmemb: usize,
    size: usize,
    caller: Caller,
) -> *mut c_void {
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let ptr = unsafe { next::calloc(nmemb, size) };
    event_at!(
        caller,
        events::calloc,
        nmemb as u64,
        size as u64,
        ptr.addr() as u64
    );
    ptr
}

pub(crate) unsafe extern "C-unwind" fn realloc(
    in_ptr: *mut c_void,
    size: usize,
    caller: Caller,
) -> *mut c_void {
    let before = in_ptr.addr() as u64;
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let ptr = unsafe { next::realloc(in_ptr, size) };
    event_at!(
        caller,
        events::realloc,
        before,
        size as u64,
        ptr.addr() as u64
    );
    ptr
}

pub(crate) unsafe extern "C-unwind" fn free(ptr: *mut c_void, caller: Caller) {
    event_at!(of_release(caller), events::free, ptr.addr() as u64);
    // SAFETY: the program's arguments, which it passed to the interposed function.
    unsafe { next::free(ptr) };
}

pub(crate) unsafe extern "C-unwind" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size: usize,
    caller: Caller,
) -> c_int {
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let result = unsafe { next::posix_memalign(out, alignment, size) };
    let mut ptr = 0;
    if result == 0 {
        // SAFETY: the call succeeded, so it has written `out`.
        ptr = unsafe { (*out).addr() } as u64;
    }
    event_at!(
        caller,
        events::posix_memalign,
        alignment as u64,
        size as u64,
        result,
        ptr
    );
    result
}

pub(crate) unsafe extern "C-unwind" fn aligned_alloc(
    alignment: usize,
    size: usize,
    caller: Caller,
) -> *mut c_void {
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let ptr = unsafe { next::aligned_alloc(alignment, size) };
    event_at!(
        caller,
        events::aligned_alloc,
        alignment as u64,
        size as u64,
        ptr.addr() as u64
    );
    ptr
}

pub(crate) unsafe extern "C-unwind" fn memalign(
    alignment: usize,
    size: usize,
    caller: Caller,
) -> *mut c_void {
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let ptr = unsafe { next::memalign(alignment, size) };
    event_at!(
        caller,
        events::memalign,
        alignment as u64,
        size as u64,
        ptr.addr() as u64
    );
    ptr
}

pub(crate) unsafe extern "C-unwind" fn valloc(size: usize, caller: Caller) -> *mut c_void {
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let ptr = unsafe { next::valloc(size) };
    event_at!(caller, events::valloc, size as u64, ptr.addr() as u64);
    ptr
}

pub(crate) unsafe extern "C-unwind" fn pvalloc(size: usize, caller: Caller) -> *mut c_void {
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let ptr = unsafe { next::pvalloc(size) };
    event_at!(caller, events::pvalloc, size as u64, ptr.addr() as u64);
    ptr
}
