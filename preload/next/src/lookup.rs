//! Finding functions.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Where to look for a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In the libraries behind this one.
    Behind,
    /// In the program and all its libraries, as the program itself finds it: this may be the
    /// caller's own function.
    First,
}

/// A version of a function that another one has replaced.
#[derive(Clone, Copy, Debug)]
pub struct Replaced {
    /// What the C library has for programs that were linked before.
    pub old: &'static CStr,
    /// What it has for all others.
    pub new: &'static CStr,
}

/// A function of another library.
#[derive(Debug)]
pub struct Next {
    name: &'static CStr,
    from: Where,
    replaced: Option<Replaced>,
    /// Stands in until the function is found: finds it, and calls it.
    finds: *mut c_void,
    /// The function, or `finds`.
    address: AtomicPtr<c_void>,
}

// SAFETY: `finds` is the address of a function, and all else is atomic or constant.
unsafe impl Sync for Next {}

impl Next {
    /// Where in it is whom to call, for functions that are nothing but a jump there.
    pub const ADDRESS: usize = std::mem::offset_of!(Self, address);

    /// Made by [`next!`](crate::next!).
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        name: &'static CStr,
        from: Where,
        replaced: Option<Replaced>,
        finds: *mut c_void,
    ) -> Self {
        Self {
            name,
            from,
            replaced,
            finds,
            address: AtomicPtr::new(finds),
        }
    }

    /// Whom to call: a function of the type that was declared.
    #[inline(always)]
    pub fn address(&self) -> *mut c_void {
        // Relaxed: what is at the address does not depend on who stored it.
        self.address.load(Ordering::Relaxed)
    }

    /// The function; nothing if there is none, or while this thread looks it up.
    #[must_use]
    pub fn found(&self, all: &[&Self]) -> Option<*mut c_void> {
        resolve(all);
        let address = self.address();
        (address != self.finds).then_some(address)
    }

    /// Looks it up, and says whether it was found.
    fn look_up(&self) -> bool {
        let handle = match self.from {
            Where::Behind => libc::RTLD_NEXT,
            Where::First => libc::RTLD_DEFAULT,
        };
        // SAFETY: names and versions are C strings.
        let mut address = unsafe { libc::dlsym(handle, self.name.as_ptr()) };
        if let Some(Replaced { old, new }) = self.replaced {
            // SAFETY: likewise.
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

/// What `dlsym` found, unless that is the C library's replaced version.
///
/// It finds that where there are two, with `RTLD_NEXT`, in glibc before 2.36 (its bug 14932). To
/// ask for the new version alone would be wrong, too: the function of a library between the two has
/// no version, and would be passed over.
fn newer(found: *mut c_void, old: *mut c_void, new: *mut c_void) -> *mut c_void {
    if found == old && !new.is_null() {
        new
    } else {
        found
    }
}

/// Looks up those that are not found yet.
///
/// This is done at the first call of any of them, which may come from another library's constructor
/// before ours runs: what an allocator gave must go back to the same one. What the lookup itself
/// calls in this thread finds nothing.
pub fn resolve(all: &[&Next]) {
    /// The thread that looks up; 0: none. With several at once, one of them may not be here, and
    /// what its lookup calls looks up once more: nobody waits, as a thread might wait for what
    /// another one holds in the dynamic linker.
    static OWNER: AtomicUsize = AtomicUsize::new(0);
    let is_missing = |next: &&&Next| next.address() == next.finds;
    if !all.iter().any(|next| is_missing(&next)) {
        return;
    }
    // SAFETY: always there.
    let own = unsafe { libc::pthread_self() } as usize;
    // Relaxed: a thread looks for what it stored itself.
    if OWNER.swap(own, Ordering::Relaxed) == own {
        return;
    }
    let failed = all
        .iter()
        .filter(is_missing)
        .filter(|next| !next.look_up())
        .count();
    if failed != 0 {
        // The program is not to find our failure where it looks for its own.
        // SAFETY: what it returns is not used.
        unsafe { libc::dlerror() };
    }
    OWNER.store(0, Ordering::Relaxed);
}

/// The program called a function that there is not, which would have kept it from starting without
/// us.
#[cold]
pub fn missing(name: &str) -> ! {
    let parts = ["usertrace: no library behind this one has ", name, "\n"];
    for part in parts {
        // SAFETY: a string is read.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_version_is_not_taken() {
        let [old, new, other] = [1, 2, 3].map(std::ptr::without_provenance_mut);
        let none = std::ptr::null_mut();
        assert_eq!(newer(old, old, new), new);
        assert_eq!(newer(new, old, new), new);
        // Another library's.
        assert_eq!(newer(other, old, new), other);
        // A C library that has one version only.
        assert_eq!(newer(new, none, new), new);
        assert_eq!(newer(old, old, none), old);
        assert_eq!(newer(none, none, none), none);
    }

    mod functions {
        use std::ffi::c_int;
        use std::sync::atomic::{AtomicU32, Ordering};

        crate::next! {
            getpid() -> c_int;
            usertrace_no_such_function(n: c_int) -> c_int, else stands_in;
        }

        pub(super) static STOOD_IN: AtomicU32 = AtomicU32::new(0);

        unsafe extern "C" fn stands_in(n: c_int) -> c_int {
            STOOD_IN.fetch_add(1, Ordering::Relaxed);
            n + 1
        }
    }

    /// The first call finds it, and a function that is not there is stood in for at each call.
    #[test]
    fn functions_are_found_when_they_are_called() {
        // SAFETY: the C library's function, and ours.
        unsafe {
            assert_eq!(functions::getpid(), libc::getpid());
            assert_ne!(
                functions::statics::getpid.address(),
                functions::statics::getpid.finds
            );
            assert_eq!(functions::usertrace_no_such_function(4), 5);
            assert_eq!(functions::usertrace_no_such_function(5), 6);
            assert_eq!(functions::STOOD_IN.load(Ordering::Relaxed), 2);
            // What failed here is no failure of the program's.
            assert!(libc::dlerror().is_null());
        }
    }
}
