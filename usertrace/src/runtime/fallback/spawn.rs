//! Processes that the traced program does not notice.

use std::fs::OpenOptions;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use syscalls::Errno;
use usertrace_ctf::recording::{DAEMON, RUNNING, WRITE_NOW};
use usertrace_os::{files, process::pidfd_open};

use super::header::DetachState;
use crate::os::file;
use crate::os::process::{fork, wait};

/// Ends the process, with nothing that is done at its end.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Runs `body` in a process that has left the program's session and files, and returns when it has.
///
/// It becomes nobody's child, so that the program never waits for it. If this process is where
/// orphans go, it stays a child, but one that no `wait` finds without `__WCLONE` or `__WALL`.
pub(super) fn detached(
    directory: Option<&Path>,
    detach_state: &DetachState,
    body: impl FnOnce(Option<OwnedFd>),
) -> Result<(), Errno> {
    let parent = std::process::id();
    let adopts = adopts_orphans();
    let child = if threads() == Some(1) {
        // SAFETY: there is one thread.
        unsafe { fork(0) }?
    } else {
        fork_beside_threads()?
    };
    if child == 0 {
        let pidfd = detach(parent);
        detach_state.set_done(lock_running_file(directory));
        if adopts {
            body(pidfd);
            exit(0);
        }
        // SAFETY: a copy of a process has one thread.
        match unsafe { fork(libc::SIGCHLD) } {
            Ok(0) => body(pidfd),
            Ok(_) => exit(0),
            Err(errno) => exit(errno.into_raw() & 0x7f),
        }
        exit(0);
    }
    if adopts {
        return wait_until_detached(child, detach_state);
    }
    match wait(child) {
        Ok(status) => started(status),
        // Another thread waits for all children, and was faster.
        Err(_) if detach_state.is_done() => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Orphans below this process become its children.
fn adopts_orphans() -> bool {
    let mut subreaper: libc::c_int = 0;
    // SAFETY: the kernel writes to `subreaper`.
    let ret = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper) };
    ret == 0 && subreaper != 0 || std::process::id() == 1
}

/// `fork`, from a process whose other threads may hold locks: the C library leaves those of its
/// allocator to the child in order, and the daemons take no others.
fn fork_beside_threads() -> Result<u32, Errno> {
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        -1 => Err(last_errno()),
        pid => Ok(pid as u32),
    }
}

fn last_errno() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::new(error.raw_os_error().unwrap_or(libc::EAGAIN))
}

/// What the exit status of the process between says.
fn started(status: i32) -> Result<(), Errno> {
    match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
        Some(0) => Ok(()),
        Some(errno) => Err(Errno::new(errno)),
        None => Err(Errno::ECHILD),
    }
}

/// Waits for a child that stays.
fn wait_until_detached(child: u32, detach_state: &DetachState) -> Result<(), Errno> {
    while !detach_state.is_done() {
        detach_state.wait();
        let (mut status, pid) = (0, child as libc::pid_t);
        // SAFETY: writes to `status`.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if ended == pid && !detach_state.is_done() {
            return started(status).and(Err(Errno::ECHILD));
        }
    }
    Ok(())
}

/// Runs `body` in a process that is nobody's child, at the end of this one, which may have many
/// threads.
pub(super) fn rescue(directory: Option<&Path>, body: impl FnOnce(Option<OwnedFd>)) {
    let parent = std::process::id();
    // SAFETY: `fork` gives the child an allocator that works, and what it does there needs nothing
    // else of the program.
    match unsafe { libc::fork() } {
        0 => {}
        child => {
            if child > 0 {
                let _ = wait(child as u32);
            }
            return;
        }
    }
    let pidfd = detach(parent);
    lock_running_file(directory);
    // SAFETY: the child of `fork` has one thread.
    if let Ok(0) = unsafe { fork(libc::SIGCHLD) } {
        body(pidfd);
    }
    exit(0);
}

/// Leaves session, terminal, files and directory of the program. Gives a descriptor of the program,
/// if that can be had.
///
/// Done while the program waits: when it goes on, nobody else has its files open, and its id is
/// still its own.
fn detach(parent: u32) -> Option<OwnedFd> {
    // SAFETY: calls with numbers and constants, in a process of its own.
    unsafe {
        libc::setsid();
        close_all();
        // In the place of the standard descriptors stands something that takes and gives nothing.
        // Where there is no /dev/null: something else that is not a file of the trace.
        for _ in 0..3 {
            if libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) < 0 {
                libc::eventfd(0, libc::EFD_NONBLOCK);
            }
        }
        libc::chdir(c"/".as_ptr());
    }
    pidfd_open(parent).ok()
}

/// Leaves the rest: signals, limits, name.
pub(super) fn reset_inherited() {
    // SAFETY: calls with numbers and constants, in a process of its own.
    unsafe {
        libc::umask(0o077);
        reset_signals();
        reset_limits();
        libc::prctl(libc::PR_SET_NAME, DAEMON.as_ptr());
    }
    rename();
}

/// Writes the name over the program's arguments, by which people and scripts look for the program's
/// processes.
fn rename() {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut fields = fields.split_ascii_whitespace().skip(45);
    let mut address = || fields.next()?.parse::<usize>().ok();
    let (Some(start), Some(end)) = (address(), address()) else {
        return;
    };
    let name = DAEMON.to_bytes_with_nul();
    if start == 0 || end.saturating_sub(start) < name.len() {
        return;
    }
    let arguments = std::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: this process's copy of its arguments, as the kernel says; nobody here reads them.
    unsafe {
        arguments.write_bytes(0, end - start);
        arguments.copy_from_nonoverlapping(name.as_ptr(), name.len());
    }
}

/// Locks that file as long as there are daemons, if it is there. Says whether it is.
fn lock_running_file(directory: Option<&Path>) -> bool {
    let open =
        |directory: &Path| files::open(OpenOptions::new().read(true), &directory.join(RUNNING));
    let file = directory.and_then(|directory| open(directory).ok());
    let held = file.filter(|file| files::flock(file, libc::LOCK_SH).is_ok());
    // It stays open, and children share it.
    held.map(std::mem::forget).is_some()
}

unsafe fn close_all() {
    // SAFETY: the caller has no descriptor that it needs.
    unsafe {
        if file::close_range(0, u32::MAX).is_ok() {
            return;
        }
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        // Descriptors may be above the limit if that was lowered; the directory says it exactly,
        // where it is there.
        let mut highest = (limit.rlim_cur.min(1 << 20) as RawFd).max(1024);
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            let numbers =
                entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
            highest = numbers.max().unwrap_or(highest);
        }
        for fd in 0..=highest {
            libc::close(fd);
        }
    }
}

/// The program's handlers are not for this process. What people send to end programs is ignored:
/// this process ends by itself when the programs that it serves have ended, and until then has to
/// keep what they still write.
unsafe fn reset_signals() {
    // SAFETY: dispositions of a process of its own.
    unsafe {
        for signo in 1..=libc::SIGRTMAX() {
            let disposition = match signo {
                // The worker has a handler for the last one.
                libc::SIGHUP
                | libc::SIGINT
                | libc::SIGTERM
                | libc::SIGPIPE
                | libc::SIGXFSZ
                | WRITE_NOW => libc::SIG_IGN,
                _ => libc::SIG_DFL,
            };
            libc::signal(signo, disposition);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Limits that were meant for the program: as high as they may be. No core dump: it would look like
/// the program's.
unsafe fn reset_limits() {
    let raised = [
        libc::RLIMIT_NOFILE,
        libc::RLIMIT_FSIZE,
        libc::RLIMIT_CPU,
        libc::RLIMIT_AS,
        libc::RLIMIT_DATA,
    ];
    // SAFETY: limits of a process of its own.
    unsafe {
        for which in raised {
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(which, &raw mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(which, &raw const limit);
            }
        }
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
    }
}

/// Threads of this process; nothing if that cannot be said.
pub(super) fn threads() -> Option<usize> {
    // SAFETY: a path, and memory of this function's. No descriptor is needed.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::stat(c"/proc/self/task".as_ptr(), &raw mut status) == 0)
            .then(|| status.st_nlink.saturating_sub(2) as usize)
    }
}
