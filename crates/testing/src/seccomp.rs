//! Seccomp filters of system calls.

use std::ptr;

/// The action of a filter for one system call number.
pub type Verdict = (u32, u32);

/// Puts this process under a filter permanently. `otherwise` is the action for all other calls.
///
/// # Panics
/// If the kernel refuses it.
pub fn filter(verdicts: &[Verdict], otherwise: u32) {
    let instruction = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The number of the call is the first word of the filter's input.
    let mut program = vec![instruction(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        0,
        0,
        0,
    )];
    for &(number, verdict) in verdicts {
        program.push(instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            number,
            0,
            1,
        ));
        program.push(instruction(libc::BPF_RET | libc::BPF_K, verdict, 0, 0));
    }
    program.push(instruction(libc::BPF_RET | libc::BPF_K, otherwise, 0, 0));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `filter` points to `program`, both of which live until the call has copied them.
    let ret = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            ptr::from_ref(&filter),
        )
    };
    assert_eq!(ret, 0);
}
