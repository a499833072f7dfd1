//! Lookup of interposed functions.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Where to search for a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchScope {
    /// In the libraries after this one (`RTLD_NEXT`).
    Next,
    /// In the program and all its libraries (`RTLD_DEFAULT`). This is what the program itself
    /// calls, possibly a function of this library.
    Default,
}

/// The symbol versions of a function that the C library has twice.
#[derive(Clone, Copy, Debug)]
pub struct Replaced {
    /// The C library's version for old programs.
    pub old: &'static CStr,
    /// The C library's version for all others.
    pub new: &'static CStr,
}

/// An interposed function of another library.
#[derive(Debug)]
pub struct Next {
    name: &'static CStr,
    from: SearchScope,
    replaced: Option<Replaced>,
    /// Resolver that finds the function and calls it.
    resolver: *mut c_void,
    /// The function, or `resolver` until it is found.
    address: AtomicPtr<c_void>,
}

// SAFETY: `resolver` is the address of a function, and all else is atomic or constant.
unsafe impl Sync for Next {}

impl Next {
    /// Offset of the function's address, for functions that consist of a jump there.
    pub const ADDRESS: usize = std::mem::offset_of!(Self, address);

    /// Made by [`next!`](crate::next!).
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        name: &'static CStr,
        from: SearchScope,
        replaced: Option<Replaced>,
        resolver: *mut c_void,
    ) -> Self {
        Self {
            name,
            from,
            replaced,
            resolver,
            address: AtomicPtr::new(resolver),
        }
    }

    /// The address to call, of a function of the declared type.
    #[inline(always)]
    pub fn address(&self) -> *mut c_void {
        // Relaxed: the code at the address does not depend on the thread that stored it.
        self.address.load(Ordering::Relaxed)
    }

    /// The function. `None` if there is none, or while this thread looks it up.
    #[must_use]
    pub fn found(&self, all: &[&Self]) -> Option<*mut c_void> {
        resolve(all);
        let address = self.address();
        (address != self.resolver).then_some(address)
    }

    /// Looks the function up, and returns whether it was found.
    fn look_up(&self) -> bool {
        let handle = match self.from {
            SearchScope::Next => libc::RTLD_NEXT,
            SearchScope::Default => libc::RTLD_DEFAULT,
        };
        // SAFETY: the name is a C string.
        let mut address = unsafe { libc::dlsym(handle, self.name.as_ptr()) };
        if let Some(Replaced { old, new }) = self.replaced {
            // SAFETY: the name and the version are C strings.
            let [old, new] = [old, new].map(|version| unsafe {
                libc::dlvsym(handle, self.name.as_ptr(), version.as_ptr())
            });
            address = newer(address, old, new);
        }
        if address.is_null() {
            return false;
        }
        self.address.store(address, Ordering::Relaxed);
        true
    }
}

/// Returns what `dlsym` found, unless that is the C library's old version.
///
/// With `RTLD_NEXT`, glibc before 2.36 finds the old one of two versions (its bug 14932). Asking
/// for the new version alone would be wrong, too: a function of a library in between has no
/// version, and would be skipped.
fn newer(found: *mut c_void, old: *mut c_void, new: *mut c_void) -> *mut c_void {
    if found == old && !new.is_null() {
        new
    } else {
        found
    }
}

/// Looks up functions that are not found yet.
///
/// The first call of any of them does this, possibly in another library's constructor before ours:
/// memory must go back to the allocator that returned it. Calls that the lookup itself makes in
/// this thread find nothing.
pub fn resolve(all: &[&Next]) {
    /// The thread that looks up, or 0. If several do so at once, this holds one of them, and calls
    /// within another's lookup look up once more. No thread waits, as it might wait for what
    /// another thread holds in the dynamic linker.
    static OWNER: AtomicUsize = AtomicUsize::new(0);
    let is_missing = |next: &&&Next| next.address() == next.resolver;
    if !all.iter().any(|next| is_missing(&next)) {
        return;
    }
    // SAFETY: `pthread_self` has no preconditions.
    let own = unsafe { libc::pthread_self() } as usize;
    // Relaxed: a thread only recognises its own store.
    if OWNER.swap(own, Ordering::Relaxed) == own {
        return;
    }
    let failed = all
        .iter()
        .filter(is_missing)
        .filter(|next| !next.look_up())
        .count();
    if failed != 0 {
        // Clear the error, so that the program does not take it for its own.
        // SAFETY: the returned text is not used.
        unsafe { libc::dlerror() };
    }
    OWNER.store(0, Ordering::Relaxed);
}

/// Ends a program that called a missing function. Without this library, it would not have started.
#[cold]
pub fn missing(name: &str) -> ! {
    let parts = ["usertrace: no library behind this one has ", name, "\n"];
    for part in parts {
        // SAFETY: the call reads `part`, which has this length.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: `abort` has no preconditions.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_version_is_not_used() {
        let [old, new, other] = [1, 2, 3].map(std::ptr::without_provenance_mut);
        let none = std::ptr::null_mut();
        assert_eq!(newer(old, old, new), new);
        assert_eq!(newer(new, old, new), new);
        // Another library's function.
        assert_eq!(newer(other, old, new), other);
        // A C library with one version only.
        assert_eq!(newer(new, none, new), new);
        assert_eq!(newer(old, old, none), old);
        assert_eq!(newer(none, none, none), none);
    }

    mod functions {
        use std::ffi::c_int;
        use std::sync::atomic::{AtomicU32, Ordering};

        crate::next! {
            getpid() -> c_int;
            usertrace_no_such_function(n: c_int) -> c_int, else replacement;
        }

        pub(super) static REPLACED_CALLS: AtomicU32 = AtomicU32::new(0);

        unsafe extern "C" fn replacement(n: c_int) -> c_int {
            REPLACED_CALLS.fetch_add(1, Ordering::Relaxed);
            n + 1
        }
    }

    /// The first call finds a function. A missing function's replacement is called each time.
    #[test]
    fn functions_are_found_when_they_are_called() {
        // SAFETY: neither function has preconditions.
        unsafe {
            assert_eq!(functions::getpid(), libc::getpid());
            assert_ne!(
                functions::statics::getpid.address(),
                functions::statics::getpid.resolver
            );
            assert_eq!(functions::usertrace_no_such_function(4), 5);
            assert_eq!(functions::usertrace_no_such_function(5), 6);
            assert_eq!(functions::REPLACED_CALLS.load(Ordering::Relaxed), 2);
            // The failed lookup left no error for the program.
            assert!(libc::dlerror().is_null());
        }
    }
}
