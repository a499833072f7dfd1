//! The functions that interpose those of the C library.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::Lmid_t;
use usertrace::__private::{Caller, notice_objects};
use usertrace::event_at;

use crate::{caller, events, next};

/// Defines functions that ask another one for a target, with their own arguments and the caller.
/// They jump there with the stack as they found it. The compiler makes no unwind tables for naked
/// functions, so the directives do.
macro_rules! jumps {
    ($($(#[$attribute:meta])* $function:ident($($argument:ident: $type:ty),*) by $choose:path;)*) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $function($($argument: $type),*) -> *mut c_void {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "mov rcx, [rsp + 24]",
                "mov r8, rbp",
                "call {choose}",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "jmp rax",
                ".cfi_endproc",
                choose = sym $choose,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-48]!",
                ".cfi_def_cfa_offset 48",
                ".cfi_offset 29, -48",
                ".cfi_offset 30, -40",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "mov x3, x30",
                "ldr x4, [sp]",
                "bl {choose}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore 29",
                ".cfi_restore 30",
                "br x16",
                ".cfi_endproc",
                choose = sym $choose,
            );
        }
    )*};
}

jumps! {
    /// `dlopen`, and its events.
    dlopen(name: *const c_char, flags: c_int) by choose_dlopen;
    /// `dlmopen`, and its events.
    dlmopen(namespace: Lmid_t, name: *const c_char, flags: c_int) by choose_dlmopen;
}

type Dlopen = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;
type Dlmopen = unsafe extern "C-unwind" fn(Lmid_t, *const c_char, c_int) -> *mut c_void;

/// Chooses the target of `dlopen`, which does not use the third register.
unsafe extern "C" fn choose_dlopen(
    name: *const c_char,
    flags: c_int,
    _: usize,
    caller: Caller,
) -> *mut c_void {
    usertrace_next::resolve(next::ALL);
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let name = unsafe { bytes(name) };
    event_at!(
        caller,
        events::dlopen_req,
        text(name),
        flags.cast_unsigned(),
        caller.ip as u64
    );
    match caller::matters(name, caller.ip) {
        true => next::statics::dlopen.address(),
        false => watched_dlopen as Dlopen as *mut c_void,
    }
}

/// Chooses the target of `dlmopen`.
unsafe extern "C" fn choose_dlmopen(
    namespace: Lmid_t,
    name: *const c_char,
    flags: c_int,
    caller: Caller,
) -> *mut c_void {
    usertrace_next::resolve(next::ALL);
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let name = unsafe { bytes(name) };
    event_at!(
        caller,
        events::dlmopen_req,
        namespace,
        text(name),
        flags.cast_unsigned(),
        caller.ip as u64
    );
    match caller::matters(name, caller.ip) {
        true => next::statics::dlmopen.address(),
        false => watched_dlmopen as Dlmopen as *mut c_void,
    }
}

usertrace_next::interpose! {
    /// Target of `dlopen` if its result can be an event.
    fn watched_dlopen(name: *const c_char, flags: c_int) -> *mut c_void = traced_dlopen;
    /// Target of `dlmopen` if its result can be an event.
    fn watched_dlmopen(namespace: Lmid_t, name: *const c_char, flags: c_int) -> *mut c_void
        = traced_dlmopen;
    /// `dlclose`, and two events.
    #[unsafe(no_mangle)]
    pub fn dlclose(handle: *mut c_void) -> c_int = traced_dlclose;
}

unsafe extern "C-unwind" fn traced_dlopen(
    name: *const c_char,
    flags: c_int,
    caller: Caller,
) -> *mut c_void {
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let handle = unsafe { next::dlopen(name, flags) };
    notice_objects();
    if events::dlopen::CALLSITE.is_enabled() {
        // SAFETY: the program's name, which ends with NUL, and a handle just returned.
        let (name, loaded) = unsafe { (bytes(name), Loaded::of(handle)) };
        event_at!(
            caller,
            events::dlopen,
            text(name),
            flags.cast_unsigned(),
            handle.addr() as u64,
            loaded.base,
            loaded.path
        );
    }
    handle
}

unsafe extern "C-unwind" fn traced_dlmopen(
    namespace: Lmid_t,
    name: *const c_char,
    flags: c_int,
    caller: Caller,
) -> *mut c_void {
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let handle = unsafe { next::dlmopen(namespace, name, flags) };
    notice_objects();
    if events::dlmopen::CALLSITE.is_enabled() {
        // SAFETY: the program's name, which ends with NUL, and a handle just returned.
        let (name, loaded) = unsafe { (bytes(name), Loaded::of(handle)) };
        event_at!(
            caller,
            events::dlmopen,
            namespace,
            text(name),
            flags.cast_unsigned(),
            handle.addr() as u64,
            loaded.base,
            loaded.path
        );
    }
    handle
}

unsafe extern "C-unwind" fn traced_dlclose(handle: *mut c_void, caller: Caller) -> c_int {
    event_at!(caller, events::dlclose_req, handle.addr() as u64);
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let result = unsafe { next::dlclose(handle) };
    notice_objects();
    event_at!(caller, events::dlclose, handle.addr() as u64, result);
    result
}

/// The object of a handle.
struct Loaded<'a> {
    base: u64,
    path: &'a str,
}

impl Loaded<'_> {
    /// # Safety
    /// The handle is valid, or NULL.
    unsafe fn of(handle: *mut c_void) -> Self {
        /// The first fields of `struct link_map`, which `link.h` makes public.
        #[repr(C)]
        struct LinkMap {
            base: usize,
            path: *const c_char,
        }

        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: the caller passes a valid handle or NULL. An object's map stays as long as its
        // handle.
        unsafe {
            if !handle.is_null() {
                libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast());
            }
            map.as_ref().map_or(Self { base: 0, path: "" }, |map| Self {
                base: map.base as u64,
                path: text(bytes(map.path)),
            })
        }
    }
}

/// The bytes of a C string; empty for NULL.
///
/// # Safety
/// The string must be valid for `'a`.
unsafe fn bytes<'a>(string: *const c_char) -> &'a [u8] {
    if string.is_null() {
        return &[];
    }
    // SAFETY: the program's arguments, which it passed to the interposed function.
    unsafe { CStr::from_ptr(string) }.to_bytes()
}

/// The text up to the first byte that is not UTF-8, since a text field must be UTF-8.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_else(|error| {
        std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
    })
}
