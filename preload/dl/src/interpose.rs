//! The functions that stand in front of the C library's.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::Lmid_t;
use usertrace::event_at;

use crate::{caller, events, next};

/// A function that asks another one where to go on, with its own arguments and its return address,
/// and jumps there with the stack as it found it.
macro_rules! jumps {
    ($($(#[$attribute:meta])* $function:ident($($argument:ident: $type:ty),*) by $choose:path;)*) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $function($($argument: $type),*) -> *mut c_void {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "mov rcx, [rsp + 24]",
                "call {choose}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                choose = sym $choose,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-48]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "mov x3, x30",
                "bl {choose}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                "br x16",
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

/// Where `dlopen` goes on: there is a third register that it does not use.
unsafe extern "C" fn choose_dlopen(
    name: *const c_char,
    flags: c_int,
    _: usize,
    caller: usize,
) -> *mut c_void {
    usertrace_next::resolve(next::ALL);
    if events::dlopen_req::CALLSITE.is_enabled() | events::dlopen::CALLSITE.is_enabled() {
        // SAFETY: the program's own arguments, as it gave them to this function in place of that
        // one.
        let name = unsafe { bytes(name) };
        event_at!(
            caller,
            events::dlopen_req,
            text(name),
            flags.cast_unsigned(),
            caller as u64
        );
        if !caller::matters(name, caller) {
            return watched_dlopen as Dlopen as *mut c_void;
        }
    }
    next::statics::dlopen.address()
}

/// Where `dlmopen` goes on.
unsafe extern "C" fn choose_dlmopen(
    namespace: Lmid_t,
    name: *const c_char,
    flags: c_int,
    caller: usize,
) -> *mut c_void {
    usertrace_next::resolve(next::ALL);
    if events::dlmopen_req::CALLSITE.is_enabled() | events::dlmopen::CALLSITE.is_enabled() {
        // SAFETY: the program's own arguments, as it gave them to this function in place of that
        // one.
        let name = unsafe { bytes(name) };
        event_at!(
            caller,
            events::dlmopen_req,
            namespace,
            text(name),
            flags.cast_unsigned(),
            caller as u64
        );
        if !caller::matters(name, caller) {
            return watched_dlmopen as Dlmopen as *mut c_void;
        }
    }
    next::statics::dlmopen.address()
}

usertrace_next::interpose! {
    /// Where `dlopen` goes on if its result can be an event.
    fn watched_dlopen(name: *const c_char, flags: c_int) -> *mut c_void = told_dlopen;
    /// Where `dlmopen` goes on if its result can be an event.
    fn watched_dlmopen(namespace: Lmid_t, name: *const c_char, flags: c_int) -> *mut c_void
        = told_dlmopen;
    /// `dlclose`, and two events.
    #[unsafe(no_mangle)]
    pub fn dlclose(handle: *mut c_void) -> c_int = told_dlclose;
}

unsafe extern "C-unwind" fn told_dlopen(
    name: *const c_char,
    flags: c_int,
    caller: usize,
) -> *mut c_void {
    // SAFETY: the program's own arguments, as it gave them to this function in place of that one.
    let handle = unsafe { next::dlopen(name, flags) };
    if events::dlopen::CALLSITE.is_enabled() {
        // SAFETY: the program's own name, which ends with NUL; and a handle that was just given.
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

unsafe extern "C-unwind" fn told_dlmopen(
    namespace: Lmid_t,
    name: *const c_char,
    flags: c_int,
    caller: usize,
) -> *mut c_void {
    // SAFETY: the program's own arguments, as it gave them to this function in place of that one.
    let handle = unsafe { next::dlmopen(namespace, name, flags) };
    if events::dlmopen::CALLSITE.is_enabled() {
        // SAFETY: the program's own name, which ends with NUL; and a handle that was just given.
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

unsafe extern "C-unwind" fn told_dlclose(handle: *mut c_void, caller: usize) -> c_int {
    event_at!(caller, events::dlclose_req, handle.addr() as u64);
    // SAFETY: the program's own arguments, as it gave them to this function in place of that one.
    let result = unsafe { next::dlclose(handle) };
    event_at!(caller, events::dlclose, handle.addr() as u64, result);
    result
}

/// What a handle is of.
struct Loaded<'a> {
    base: u64,
    path: &'a str,
}

impl Loaded<'_> {
    /// # Safety
    /// The handle is valid, or NULL.
    unsafe fn of(handle: *mut c_void) -> Self {
        /// The first fields of `struct link_map`, which `link.h` has for everybody.
        #[repr(C)]
        struct LinkMap {
            base: usize,
            path: *const c_char,
        }

        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: the handle is one that the linker just gave; an object's map stays as long as its
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

/// A C string; NULL is an empty one.
///
/// # Safety
/// It stays as long as it is used.
unsafe fn bytes<'a>(string: *const c_char) -> &'a [u8] {
    if string.is_null() {
        return &[];
    }
    // SAFETY: the program's own arguments, as it gave them to this function in place of that one.
    unsafe { CStr::from_ptr(string) }.to_bytes()
}

/// A field of text can have no other bytes than UTF-8.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_else(|error| {
        std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
    })
}
