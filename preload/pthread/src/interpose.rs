//! The functions that interpose those of the C library.
//!
//! The traced path is a function of its own, behind one branch. So without a trace, nothing is
//! saved across the call, and the function ends in a jump to the interposed one. `caller` is the
//! return address of the program's call.

use std::ffi::{c_int, c_void};

use libc::{
    clockid_t, pthread_attr_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t,
    timespec,
};
use usertrace::__private::Caller;
use usertrace::event_at;
use usertrace_next::of_release;

use crate::events;
use crate::next::{self, Start};
use crate::thread::{self, thread};

/// Whether a trace wants one of two events.
macro_rules! enabled {
    ($one:ident, $other:ident) => {
        events::$one::CALLSITE.is_enabled() | events::$other::CALLSITE.is_enabled()
    };
}

/// Defines functions with an event before the call, and one with the result after it. The first
/// part of the arguments are addresses for the events.
macro_rules! waits {
    ($(
        $function:ident($($address:ident: $pointer:ty),*; $($argument:ident: $type:ty),*) $before:ident, $after:ident;
    )*) => {
        usertrace_next::interpose! {$(
            #[doc = concat!("`", stringify!($function), "`, and two events.")]
            #[unsafe(no_mangle)]
            pub fn $function($($address: $pointer,)* $($argument: $type),*) -> c_int = waits::$function;
        )*}

        mod waits {
            use super::*;

            $(pub(super) unsafe extern "C-unwind" fn $function(
                $($address: $pointer,)* $($argument: $type,)* caller: Caller,
            ) -> c_int {
                #[inline(never)]
                unsafe extern "C-unwind" fn traced(
                    $($address: $pointer,)* $($argument: $type,)* caller: Caller,
                ) -> c_int {
                    event_at!(caller, events::$before, $($address.addr() as u64,)* thread());
                    // SAFETY: the program's arguments, which it passed to the interposed function.
                    let result = unsafe { next::$function($($address,)* $($argument),*) };
                    event_at!(caller, events::$after, $($address.addr() as u64,)* thread(), result);
                    result
                }

                if enabled!($before, $after) {
                    // SAFETY: the program's arguments, which it passed to the interposed function.
                    unsafe { traced($($address,)* $($argument,)* caller) }
                } else {
                    // SAFETY: the program's arguments, which it passed to the interposed function.
                    unsafe { next::$function($($address,)* $($argument),*) }
                }
            })*
        }
    };
}

/// Defines functions with an event after the call, with the result.
macro_rules! tries {
    ($($function:ident($address:ident: $pointer:ty) $after:ident;)*) => {
        usertrace_next::interpose! {$(
            #[doc = concat!("`", stringify!($function), "`, and an event.")]
            #[unsafe(no_mangle)]
            pub fn $function($address: $pointer) -> c_int = tries::$function;
        )*}

        mod tries {
            use super::*;

            $(pub(super) unsafe extern "C-unwind" fn $function($address: $pointer, caller: Caller) -> c_int {
                #[inline(never)]
                unsafe extern "C-unwind" fn traced($address: $pointer, caller: Caller) -> c_int {
                    // SAFETY: the program's arguments, which it passed to the interposed function.
                    let result = unsafe { next::$function($address) };
                    event_at!(caller, events::$after, $address.addr() as u64, thread(), result);
                    result
                }

                if events::$after::CALLSITE.is_enabled() {
                    // SAFETY: the program's arguments, which it passed to the interposed function.
                    unsafe { traced($address, caller) }
                } else {
                    // SAFETY: the program's arguments, which it passed to the interposed function.
                    unsafe { next::$function($address) }
                }
            })*
        }
    };
}

/// Defines functions with an event before the call, and another if the call fails. The object at
/// the address may be gone after the call.
macro_rules! releases {
    ($($function:ident($address:ident: $pointer:ty) $before:ident, $failed:ident;)*) => {
        usertrace_next::interpose! {$(
            #[doc = concat!("`", stringify!($function), "`, and an event.")]
            #[unsafe(no_mangle)]
            pub fn $function($address: $pointer) -> c_int = releases::$function;
        )*}

        mod releases {
            use super::*;

            $(pub(super) unsafe extern "C-unwind" fn $function($address: $pointer, caller: Caller) -> c_int {
                #[inline(never)]
                unsafe extern "C-unwind" fn traced($address: $pointer, caller: Caller) -> c_int {
                    event_at!(of_release(caller), events::$before, $address.addr() as u64, thread());
                    // SAFETY: the program's arguments, which it passed to the interposed function.
                    let result = unsafe { next::$function($address) };
                    if result != 0 {
                        event_at!(caller, events::$failed, $address.addr() as u64, thread(), result);
                    }
                    result
                }

                if enabled!($before, $failed) {
                    // SAFETY: the program's arguments, which it passed to the interposed function.
                    unsafe { traced($address, caller) }
                } else {
                    // SAFETY: the program's arguments, which it passed to the interposed function.
                    unsafe { next::$function($address) }
                }
            })*
        }
    };
}

waits! {
    pthread_mutex_lock(mutex: *mut pthread_mutex_t;) mutex_lock_req, mutex_lock_acq;
    pthread_mutex_timedlock(mutex: *mut pthread_mutex_t; until: *const timespec)
        mutex_timedlock_req, mutex_timedlock_acq;
    pthread_mutex_clocklock(mutex: *mut pthread_mutex_t; clock: clockid_t, until: *const timespec)
        mutex_clocklock_req, mutex_clocklock_acq;
    pthread_rwlock_rdlock(rwlock: *mut pthread_rwlock_t;) rwlock_rdlock_req, rwlock_rdlock_acq;
    pthread_rwlock_timedrdlock(rwlock: *mut pthread_rwlock_t; until: *const timespec)
        rwlock_timedrdlock_req, rwlock_timedrdlock_acq;
    pthread_rwlock_clockrdlock(rwlock: *mut pthread_rwlock_t; clock: clockid_t, until: *const timespec)
        rwlock_clockrdlock_req, rwlock_clockrdlock_acq;
    pthread_rwlock_wrlock(rwlock: *mut pthread_rwlock_t;) rwlock_wrlock_req, rwlock_wrlock_acq;
    pthread_rwlock_timedwrlock(rwlock: *mut pthread_rwlock_t; until: *const timespec)
        rwlock_timedwrlock_req, rwlock_timedwrlock_acq;
    pthread_rwlock_clockwrlock(rwlock: *mut pthread_rwlock_t; clock: clockid_t, until: *const timespec)
        rwlock_clockwrlock_req, rwlock_clockwrlock_acq;
    pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t;) cond_wait_req, cond_wait_acq;
    pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t; until: *const timespec)
        cond_timedwait_req, cond_timedwait_acq;
    pthread_cond_clockwait(
        cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t; clock: clockid_t, until: *const timespec
    ) cond_clockwait_req, cond_clockwait_acq;
}

tries! {
    pthread_mutex_trylock(mutex: *mut pthread_mutex_t) mutex_trylock;
    pthread_rwlock_tryrdlock(rwlock: *mut pthread_rwlock_t) rwlock_tryrdlock;
    pthread_rwlock_trywrlock(rwlock: *mut pthread_rwlock_t) rwlock_trywrlock;
}

releases! {
    pthread_mutex_unlock(mutex: *mut pthread_mutex_t) mutex_unlock, mutex_unlock_failed;
    pthread_rwlock_unlock(rwlock: *mut pthread_rwlock_t) rwlock_unlock, rwlock_unlock_failed;
    pthread_cond_signal(cond: *mut pthread_cond_t) cond_signal, cond_signal_failed;
    pthread_cond_broadcast(cond: *mut pthread_cond_t) cond_broadcast, cond_broadcast_failed;
}

usertrace_next::interpose! {
    /// `pthread_create`, and an event; and two of the new thread, if a trace wants those.
    #[unsafe(no_mangle)]
    pub fn pthread_create(
        created: *mut pthread_t,
        attr: *const pthread_attr_t,
        start: Start,
        arg: *mut c_void
    ) -> c_int = traced_create;
    /// `pthread_join`, and two events.
    #[unsafe(no_mangle)]
    pub fn pthread_join(joined: pthread_t, result_of: *mut *mut c_void) -> c_int = traced_join;
}

unsafe extern "C-unwind" fn traced_create(
    created: *mut pthread_t,
    attr: *const pthread_attr_t,
    start: Start,
    arg: *mut c_void,
    caller: Caller,
) -> c_int {
    let result = if enabled!(start, end) {
        // SAFETY: the program's arguments, which it passed to the interposed function.
        unsafe { thread::create(created, attr, start, arg) }
    } else {
        // SAFETY: the program's arguments, which it passed to the interposed function.
        unsafe { next::pthread_create(created, attr, start, arg) }
    };
    if events::create::CALLSITE.is_enabled() {
        // SAFETY: on success, the call has written `created`.
        let created = if result == 0 { unsafe { *created } } else { 0 };
        event_at!(
            caller,
            events::create,
            created,
            start as usize as u64,
            thread(),
            result
        );
    }
    result
}

unsafe extern "C-unwind" fn traced_join(
    joined: pthread_t,
    result_of: *mut *mut c_void,
    caller: Caller,
) -> c_int {
    event_at!(caller, events::join_req, joined, thread());
    // SAFETY: the program's arguments, which it passed to the interposed function.
    let result = unsafe { next::pthread_join(joined, result_of) };
    event_at!(caller, events::join_done, joined, thread(), result);
    result
}
