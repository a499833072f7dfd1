//! Runs a program under ptrace up to one of its system calls that change files, and kills it there,
//! or fails the calls as on a full disk.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// How much of the call is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Half of the bytes, if it is a write.
    Half,
    All,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Killed,
    /// It ended by itself: it has fewer such calls.
    Exited(i32),
}

/// Runs the program up to its call number `last`, from 1 on, and kills it.
pub(crate) fn run_up_to(command: Command, last: u32, done: Done) -> End {
    run(command, last, done, None)
}

/// Runs the program, and makes `full` of its calls fail with a full disk, from number `first` on.
/// The first one may write a half, according to `done`. Returns the exit status; `None` if there
/// were fewer calls.
pub(crate) fn run_full(command: Command, first: u32, done: Done, mut full: u32) -> Option<i32> {
    match run(command, first, done, Some(&mut full)) {
        End::Exited(status) => (full == 0).then_some(status),
        End::Killed => unreachable!(),
    }
}

#[expect(
    clippy::zombie_processes,
    reason = "it is waited for by its number, as ptrace wants it"
)]
fn run(mut command: Command, last: u32, done: Done, mut full: Option<&mut u32>) -> End {
    // SAFETY: between fork and exec, the child makes one system call, which takes no lock or
    // memory.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.spawn().unwrap();
    let pid = child.id().cast_signed();
    assert!(wait(pid).is_ok(), "it stops when it is executed");
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SETOPTIONS, pid, options as usize);
    let (mut calls, mut inside, mut signal) = (0, false, 0);
    // Whether the present call fails.
    let mut fails = false;
    loop {
        ptrace(libc::PTRACE_SYSCALL, pid, signal as usize);
        signal = match wait(pid) {
            Err(status) => return End::Exited(status),
            Ok(stopped) if stopped == libc::SIGTRAP | 0x80 => 0,
            Ok(signal) => {
                assert_ne!(signal, libc::SIGTRAP);
                signal
            }
        };
        if signal != 0 {
            continue;
        }
        inside = !inside;
        if !inside {
            if std::mem::take(&mut fails) {
                let mut registers = registers(pid);
                registers.rax = -i64::from(libc::ENOSPC) as u64;
                ptrace(libc::PTRACE_SETREGS, pid, (&raw mut registers) as usize);
            }
            if calls == last && full.is_none() {
                // SAFETY: the signal goes to a child that was not waited for.
                assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
                while wait(pid).is_ok() {}
                return End::Killed;
            }
            continue;
        }
        let mut registers = registers(pid);
        if !changes_files(&registers) {
            continue;
        }
        calls += 1;
        let call = registers.orig_rax as i64;
        let writes = matches!(call, libc::SYS_write | libc::SYS_pwrite64);
        let takes_away = matches!(
            call,
            libc::SYS_unlink | libc::SYS_unlinkat | libc::SYS_rmdir
        );
        if calls == last && done == Done::Half && writes {
            registers.rdx /= 2;
            let at = (&raw mut registers) as usize;
            ptrace(libc::PTRACE_SETREGS, pid, at);
        } else if let Some(full) = &mut full
            && calls >= last
            && **full > 0
            && !takes_away
        {
            **full -= 1;
            fails = true;
            // Replace the call by an invalid one.
            registers.orig_rax = u64::MAX;
            let at = (&raw mut registers) as usize;
            ptrace(libc::PTRACE_SETREGS, pid, at);
        }
    }
}

fn changes_files(registers: &libc::user_regs_struct) -> bool {
    let creates = |flags: u64| flags as i32 & (libc::O_CREAT | libc::O_TRUNC) != 0;
    match registers.orig_rax as i64 {
        libc::SYS_openat => creates(registers.rdx),
        libc::SYS_open => creates(registers.rsi),
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_ftruncate
        | libc::SYS_mkdir
        | libc::SYS_mkdirat
        | libc::SYS_rename
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_rmdir => true,
        _ => false,
    }
}

fn ptrace(request: libc::c_uint, pid: i32, data: usize) {
    // SAFETY: callers pass requests that access no memory, or registers at `data`.
    let done = unsafe { libc::ptrace(request, pid, 0, data) };
    assert_eq!(done, 0, "ptrace: {}", std::io::Error::last_os_error());
}

fn registers(pid: i32) -> libc::user_regs_struct {
    // SAFETY: the structure consists of integers, so zeros are valid.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, pid, (&raw mut registers) as usize);
    registers
}

/// The signal that stopped it, or its exit status.
fn wait(pid: i32) -> Result<i32, i32> {
    let mut status = 0;
    // SAFETY: `status` has room for what the call writes.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    assert_eq!(waited, pid);
    if libc::WIFSTOPPED(status) {
        Ok(libc::WSTOPSIG(status))
    } else if libc::WIFEXITED(status) {
        Err(libc::WEXITSTATUS(status))
    } else {
        Err(-libc::WTERMSIG(status))
    }
}
