//! The functions that come after ours: the C library's, or those of another preloaded allocator.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

// What glibc's functions are called whoever interposes them.
unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(nmemb: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(ptr: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_free(ptr: *mut c_void);
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
}

/// `posix_memalign` by what glibc has another name for.
unsafe extern "C" fn libc_posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: as the caller of posix_memalign promises.
    unsafe {
        let ptr = __libc_memalign(alignment, size);
        if ptr.is_null() {
            return libc::ENOMEM;
        }
        *out = ptr;
    }
    0
}

/// A function of another library.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address; nothing while it is being looked up.
    #[inline(always)]
    fn get(&self) -> Option<*mut c_void> {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            self.find()
        } else {
            Some(address)
        }
    }

    #[cold]
    fn find(&self) -> Option<*mut c_void> {
        resolve();
        let address = self.address.load(Ordering::Relaxed);
        (!address.is_null()).then_some(address)
    }
}

/// Declares the next functions; `next::NAME(…)` calls one.
macro_rules! next {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?, else $own:path;)*) => {
        /// All of them.
        static ALL: &[&Next] = &[$(&statics::$name),*];

        #[allow(non_upper_case_globals, reason = "named as the functions")]
        mod statics {
            use super::Next;

            $(pub(super) static $name: Next = {
                const NAME: &str = concat!(stringify!($name), "\0");
                match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                    Ok(name) => Next::new(name),
                    Err(_) => unreachable!(),
                }
            };)*
        }

        $(
            /// # Safety
            /// As the C function's.
            #[inline(always)]
            pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
                match statics::$name.get() {
                    // SAFETY: the dynamic linker found it under this name, so it has this type; and the caller's
                    // promise.
                    Some(address) => unsafe {
                        std::mem::transmute::<*mut c_void, Function>(address)($($argument),*)
                    },
                    // SAFETY: the caller's promise.
                    None => unsafe { $own($($argument),*) },
                }
            }
        )*
    };
}

next! {
    malloc(size: usize) -> *mut c_void, else __libc_malloc;
    calloc(nmemb: usize, size: usize) -> *mut c_void, else __libc_calloc;
    realloc(ptr: *mut c_void, size: usize) -> *mut c_void, else __libc_realloc;
    free(ptr: *mut c_void), else __libc_free;
    posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int, else libc_posix_memalign;
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void, else __libc_memalign;
    memalign(alignment: usize, size: usize) -> *mut c_void, else __libc_memalign;
}

/// Looks all of them up.
///
/// This is done at the first call of any of them, which may come from another library's constructor before ours runs:
/// what an allocator gave must go back to the same one. What is called while the lookup itself is at work goes to glibc.
pub(crate) fn resolve() {
    static BUSY: AtomicBool = AtomicBool::new(false);
    if BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    for next in ALL {
        if next.address.load(Ordering::Relaxed).is_null() {
            // SAFETY: a name that ends with NUL.
            let address = unsafe { libc::dlsym(libc::RTLD_NEXT, next.name.as_ptr()) };
            next.address.store(address, Ordering::Relaxed);
        }
    }
    BUSY.store(false, Ordering::Release);
}
