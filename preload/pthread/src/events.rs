//! The events.

usertrace_next::events! { "pthread":
    mutex_lock_req "mutex_lock_req" { mutex: x64, thread: x64 }
    mutex_lock_acq "mutex_lock_acq" { mutex: x64, thread: x64, result: i32 }
    mutex_timedlock_req "mutex_timedlock_req" { mutex: x64, thread: x64 }
    mutex_timedlock_acq "mutex_timedlock_acq" { mutex: x64, thread: x64, result: i32 }
    mutex_clocklock_req "mutex_clocklock_req" { mutex: x64, thread: x64 }
    mutex_clocklock_acq "mutex_clocklock_acq" { mutex: x64, thread: x64, result: i32 }
    mutex_trylock "mutex_trylock" { mutex: x64, thread: x64, result: i32 }
    mutex_unlock "mutex_unlock" { mutex: x64, thread: x64 }
    mutex_unlock_failed "mutex_unlock_failed" { mutex: x64, thread: x64, result: i32 }

    rwlock_rdlock_req "rwlock_rdlock_req" { rwlock: x64, thread: x64 }
    rwlock_rdlock_acq "rwlock_rdlock_acq" { rwlock: x64, thread: x64, result: i32 }
    rwlock_timedrdlock_req "rwlock_timedrdlock_req" { rwlock: x64, thread: x64 }
    rwlock_timedrdlock_acq "rwlock_timedrdlock_acq" { rwlock: x64, thread: x64, result: i32 }
    rwlock_clockrdlock_req "rwlock_clockrdlock_req" { rwlock: x64, thread: x64 }
    rwlock_clockrdlock_acq "rwlock_clockrdlock_acq" { rwlock: x64, thread: x64, result: i32 }
    rwlock_wrlock_req "rwlock_wrlock_req" { rwlock: x64, thread: x64 }
    rwlock_wrlock_acq "rwlock_wrlock_acq" { rwlock: x64, thread: x64, result: i32 }
    rwlock_timedwrlock_req "rwlock_timedwrlock_req" { rwlock: x64, thread: x64 }
    rwlock_timedwrlock_acq "rwlock_timedwrlock_acq" { rwlock: x64, thread: x64, result: i32 }
    rwlock_clockwrlock_req "rwlock_clockwrlock_req" { rwlock: x64, thread: x64 }
    rwlock_clockwrlock_acq "rwlock_clockwrlock_acq" { rwlock: x64, thread: x64, result: i32 }
    rwlock_tryrdlock "rwlock_tryrdlock" { rwlock: x64, thread: x64, result: i32 }
    rwlock_trywrlock "rwlock_trywrlock" { rwlock: x64, thread: x64, result: i32 }
    rwlock_unlock "rwlock_unlock" { rwlock: x64, thread: x64 }
    rwlock_unlock_failed "rwlock_unlock_failed" { rwlock: x64, thread: x64, result: i32 }

    cond_wait_req "cond_wait_req" { cond: x64, mutex: x64, thread: x64 }
    cond_wait_acq "cond_wait_acq" { cond: x64, mutex: x64, thread: x64, result: i32 }
    cond_timedwait_req "cond_timedwait_req" { cond: x64, mutex: x64, thread: x64 }
    cond_timedwait_acq "cond_timedwait_acq" { cond: x64, mutex: x64, thread: x64, result: i32 }
    cond_clockwait_req "cond_clockwait_req" { cond: x64, mutex: x64, thread: x64 }
    cond_clockwait_acq "cond_clockwait_acq" { cond: x64, mutex: x64, thread: x64, result: i32 }
    cond_signal "cond_signal" { cond: x64, thread: x64 }
    cond_signal_failed "cond_signal_failed" { cond: x64, thread: x64, result: i32 }
    cond_broadcast "cond_broadcast" { cond: x64, thread: x64 }
    cond_broadcast_failed "cond_broadcast_failed" { cond: x64, thread: x64, result: i32 }

    create "create" { created: x64, start: x64, thread: x64, result: i32 }
    start "start" { thread: x64, start: x64 }
    end "end" { thread: x64 }
    join_req "join_req" { joined: x64, thread: x64 }
    join_done "join_done" { joined: x64, thread: x64, result: i32 }
}
