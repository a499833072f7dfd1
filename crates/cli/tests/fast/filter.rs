//! Filters of system calls, for programs that run in a sandbox.

use usertrace_testing::seccomp::filter;

/// Refuses every system call newer than Unix, with this error.
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
    let verdict = |number: libc::c_long| (number as u32, libc::SECCOMP_RET_ALLOW);
    filter(&allowed.map(verdict), libc::SECCOMP_RET_ERRNO | errno);
}

/// Refuses these calls with the given action, for this process and its descendants.
pub(crate) fn refuse<const N: usize>(calls: [libc::c_long; N], action: u32) {
    let verdict = |number: libc::c_long| (number as u32, action);
    filter(&calls.map(verdict), libc::SECCOMP_RET_ALLOW);
}
