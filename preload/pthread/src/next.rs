//! The interposed functions: those of the C library, or of another preloaded library.

use std::ffi::{c_int, c_void};

use libc::{
    clockid_t, pthread_attr_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t,
    timespec,
};
use usertrace_next::Replaced;

/// C11's functions for mutexes. In glibc the objects are the same, and no library interposes these
/// functions. They serve within lookups: `dlsym` may allocate, and an allocator may lock.
mod c11 {
    use crate::next::{c_int, pthread_mutex_t};

    // Results in glibc's `threads.h`, besides 0 for success.
    const BUSY: c_int = 1;
    const NO_MEMORY: c_int = 3;

    unsafe extern "C" {
        fn mtx_lock(mutex: *mut pthread_mutex_t) -> c_int;
        fn mtx_trylock(mutex: *mut pthread_mutex_t) -> c_int;
        fn mtx_unlock(mutex: *mut pthread_mutex_t) -> c_int;
    }

    /// Converts a result to that of POSIX.
    fn result(result: c_int) -> c_int {
        match result {
            0 => 0,
            BUSY => libc::EBUSY,
            NO_MEMORY => libc::ENOMEM,
            _ => libc::EINVAL,
        }
    }

    pub(super) unsafe fn lock(mutex: *mut pthread_mutex_t) -> c_int {
        // SAFETY: the program passed a valid mutex.
        result(unsafe { mtx_lock(mutex) })
    }

    pub(super) unsafe fn trylock(mutex: *mut pthread_mutex_t) -> c_int {
        // SAFETY: the program passed a valid mutex.
        result(unsafe { mtx_trylock(mutex) })
    }

    pub(super) unsafe fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
        // SAFETY: the program passed a valid mutex.
        result(unsafe { mtx_unlock(mutex) })
    }
}

/// A thread's routine. Cancellation and `pthread_exit` unwind it.
pub(crate) type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Versions of the functions of conditions. On x86-64, the C library also has conditions from
/// before 2003, which are different objects. Newer architectures have one version.
const CONDITIONS: Option<Replaced> = if cfg!(target_arch = "x86_64") {
    Some(Replaced {
        old: c"GLIBC_2.2.5",
        new: c"GLIBC_2.3.2",
    })
} else {
    None
};

usertrace_next::next! {
    pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int, else c11::lock;
    pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int, else c11::trylock;
    pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int, else c11::unlock;
    pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int;
    pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int;
    pthread_rwlock_rdlock(rwlock: *mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_tryrdlock(rwlock: *mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_timedrdlock(rwlock: *mut pthread_rwlock_t, until: *const timespec) -> c_int;
    pthread_rwlock_clockrdlock(rwlock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int;
    pthread_rwlock_wrlock(rwlock: *mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_trywrlock(rwlock: *mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_timedwrlock(rwlock: *mut pthread_rwlock_t, until: *const timespec) -> c_int;
    pthread_rwlock_clockwrlock(rwlock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int;
    pthread_rwlock_unlock(rwlock: *mut pthread_rwlock_t) -> c_int;
    pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int, replaced CONDITIONS;
    pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int,
        replaced CONDITIONS;
    pthread_cond_clockwait(
        cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec
    ) -> c_int;
    pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int, replaced CONDITIONS;
    pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int, replaced CONDITIONS;
    pthread_create(created: *mut pthread_t, attr: *const pthread_attr_t, start: Start, arg: *mut c_void) -> c_int;
    pthread_join(joined: pthread_t, result: *mut *mut c_void) -> c_int;
}
