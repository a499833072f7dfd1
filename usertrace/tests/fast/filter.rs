//! Filters of system calls.

/// Refuses every call that is not as old as Unix, with this error.
pub(crate) fn refuse_new_calls(errno: u32) {
    let allowed = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigprocmask,
        libc::SYS_brk,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_clone,
        libc::SYS_wait4,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_futex,
        libc::SYS_set_robust_list,
        libc::SYS_sigaltstack,
        libc::SYS_madvise,
    ];
    install(
        &allowed,
        libc::SECCOMP_RET_ALLOW,
        libc::SECCOMP_RET_ERRNO | errno,
    );
}

/// Refuses these calls, in this way, to this process and all that come from it.
pub(crate) fn refuse(calls: &[libc::c_long], action: u32) {
    install(calls, action, libc::SECCOMP_RET_ALLOW);
}

/// One answer for these calls, and another one for all others.
fn install(calls: &[libc::c_long], answer: u32, other: u32) {
    let statement = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load, equal, ret) = (0x20, 0x15, 0x06);
    let mut filter = vec![statement(load, 0, 0, 0)];
    for (n, number) in calls.iter().enumerate() {
        filter.push(statement(equal, (calls.len() - n) as u8, 0, *number as u32));
    }
    filter.push(statement(ret, 0, 0, other));
    filter.push(statement(ret, 0, 0, answer));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: a filter of that length.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, 0, 0),
            0
        );
    }
}
