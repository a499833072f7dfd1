//! Runs a program up to one of its calls by which it changes files, and kills it there, or lets the
//! disk be full.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// How much is done of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Half of what is to be written, if it writes.
    Half,
    All,
}

/// What became of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Killed,
    /// There are fewer such calls.
    Exited(i32),
}

/// Runs it up to its call number `last`, from 1 on, and kills it.
pub(crate) fn run_up_to(command: Command, last: u32, done: Done) -> End {
    run(command, last, done, None)
}

/// Runs it, and has its calls from number `first` on, `full` of them, find a disk that is full: of
/// the first one half is done, if it writes and that is asked for. Gives its exit status; none if
/// there were not so many such calls.
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
    // SAFETY: ptrace takes no lock and no memory.
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
    // This call fails.
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
                // SAFETY: a child of this process, that was not waited for.
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
            // No call at all.
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
    // SAFETY: requests that read nothing, or registers, from where `data` points to.
    let done = unsafe { libc::ptrace(request, pid, 0, data) };
    assert_eq!(done, 0, "ptrace: {}", std::io::Error::last_os_error());
}

fn registers(pid: i32) -> libc::user_regs_struct {
    // SAFETY: numbers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, pid, (&raw mut registers) as usize);
    registers
}

/// The signal by which it was stopped, or its exit status.
fn wait(pid: i32) -> Result<i32, i32> {
    let mut status = 0;
    // SAFETY: a child of this process.
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
