//! Starts the daemons, as processes that the traced program does not notice.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use syscalls::Errno;
use usertrace_ctf::recording::{Confirmation, DAEMON, RUNNING, WRITE_NOW};
use usertrace_os::{files, process::pidfd_open};

use super::header::DetachState;
use crate::clock::monotonic;
use crate::os::process::{fork, wait};
use crate::os::signal::SignalMaskGuard;
use crate::os::{file, memory};

/// Ends the process at once, without handlers of `atexit`.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// What a daemon has opened before the program goes on.
pub(super) struct Opened {
    /// A descriptor of the program, if there is one.
    pub(super) program: Option<OwnedFd>,
    /// Says how far the daemons have written everything, if somebody wants to know.
    pub(super) confirmation: Option<Confirmation>,
}

/// Runs `body` in a new process that is detached from the program's session and files. Returns when
/// it has detached.
///
/// The process becomes an orphan, so that the program never waits for it. If orphans become
/// children of this process, it stays a child, but one that no `wait` finds without `__WCLONE` or
/// `__WALL`.
pub(super) fn detached(
    directory: Option<&Path>,
    detach_state: &DetachState,
    body: impl FnOnce(Opened),
) -> Result<(), Errno> {
    let adopts = adopts_orphans();
    let mut intermediate = Intermediate {
        parent: std::process::id(),
        adopts,
        directory,
        detach_state,
        body: Some(body),
    };
    let child = if threads() != Some(1) {
        fork_beside_threads()?
    } else if adopts {
        // SAFETY: this process has one thread, as just counted.
        unsafe { fork(0) }?
    } else {
        // SAFETY: likewise.
        unsafe { intermediate.start_in_this_memory() }?
    };
    if child == 0 {
        // SAFETY: this is the new process.
        unsafe { intermediate.become_daemon() };
    }
    if adopts {
        return wait_until_detached(child, detach_state);
    }
    match wait(child) {
        Ok(status) => start_result(status),
        // Another thread of the program waits for all children, and was faster.
        Err(_) if detach_state.is_done() => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The process between the program and the daemon, whose end makes the daemon an orphan. If this
/// process adopts orphans, it becomes the daemon itself.
struct Intermediate<'a, F> {
    parent: u32,
    adopts: bool,
    directory: Option<&'a Path>,
    detach_state: &'a DetachState,
    /// The daemon takes it out of its copy of the memory.
    body: Option<F>,
}

impl<F: FnOnce(Opened)> Intermediate<'_, F> {
    /// Starts the intermediate process, and returns its id when it has ended.
    ///
    /// It uses this process's memory, as a child of `vfork` does, so it needs no copy of that: the
    /// daemon's copy is the only one. Meanwhile this process waits.
    ///
    /// # Safety
    /// This process must have one thread.
    unsafe fn start_in_this_memory(&mut self) -> Result<u32, Errno> {
        // A handler of the program would run in the wrong process. The daemon's signals are blocked
        // until it has reset them.
        let _held = SignalMaskGuard::new();
        let stack = memory::map_zeros(STACK)?;
        // A daemon that uses up its stack must not go on in other memory. If that fails, it will
        // not notice, as it will not need so much.
        // SAFETY: the lower end of the new mapping.
        let _ = unsafe { memory::protect(stack, GUARD, libc::PROT_NONE) };
        // SAFETY: the child has a stack of its own, and this thread is stopped until the child has
        // ended. So what it has borrowed stays valid. It shares no descriptors: those that it
        // closes stay open here. There is no other thread, as this function's caller promises.
        let child = unsafe {
            libc::clone(
                Self::start,
                stack.wrapping_add(STACK).cast(),
                libc::CLONE_VM | libc::CLONE_VFORK,
                std::ptr::from_mut(self).cast(),
            )
        };
        let started = match child {
            -1 => Err(last_errno()),
            child => Ok(child as u32),
        };
        // SAFETY: the child has ended, and the daemon has a copy.
        unsafe { memory::unmap(stack, STACK) };
        started
    }

    extern "C" fn start(this: *mut c_void) -> libc::c_int {
        // SAFETY: `start_in_this_memory` passed the address of such an object, and waits. This is
        // the new process.
        unsafe { (*this.cast::<Self>()).become_daemon() }
    }

    /// Detaches this process, and runs `body` in it or in its child.
    ///
    /// # Safety
    /// This process must be the one that was just started, so it has one thread.
    unsafe fn become_daemon(&mut self) -> ! {
        let program = detach(self.parent);
        let running = lock_running_file(self.directory);
        // The program has written no event yet.
        let confirmation = begin_confirmation(self.directory, monotonic());
        self.detach_state.set_done(running);
        if !self.adopts {
            // SAFETY: this process has one thread, as this function's caller promises.
            match unsafe { fork(libc::SIGCHLD) } {
                Ok(0) => {}
                Ok(_) => exit(0),
                Err(errno) => exit(errno.into_raw() & 0x7f),
            }
        }
        if let Some(body) = self.body.take() {
            body(Opened {
                program,
                confirmation,
            });
        }
        exit(0)
    }
}

/// Bytes of the daemons' stack. Only those in use are memory.
const STACK: usize = 1 << 20;

/// Bytes at its end that are not accessible, a multiple of every page size.
const GUARD: usize = 64 << 10;

/// Whether orphans below this process become its children.
fn adopts_orphans() -> bool {
    let mut subreaper: libc::c_int = 0;
    // SAFETY: the kernel writes to `subreaper` alone.
    let ret = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper) };
    ret == 0 && subreaper != 0 || std::process::id() == 1
}

/// Forks from a process whose other threads may hold locks. The C library's `fork` makes its
/// allocator usable in the child, and the daemons need no other locks.
fn fork_beside_threads() -> Result<u32, Errno> {
    // SAFETY: the child needs no lock of another thread, see above.
    match unsafe { libc::fork() } {
        -1 => Err(last_errno()),
        pid => Ok(pid as u32),
    }
}

/// The C library's `errno`.
fn last_errno() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::new(error.raw_os_error().unwrap_or(libc::EAGAIN))
}

/// The result in the exit status of the intermediate process.
fn start_result(status: i32) -> Result<(), Errno> {
    match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
        Some(0) => Ok(()),
        Some(errno) => Err(Errno::new(errno)),
        None => Err(Errno::ECHILD),
    }
}

/// Waits until a daemon that stays a child has detached.
fn wait_until_detached(child: u32, detach_state: &DetachState) -> Result<(), Errno> {
    while !detach_state.is_done() {
        detach_state.wait();
        let (mut status, pid) = (0, child as libc::pid_t);
        // SAFETY: the kernel writes to `status` alone.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if ended == pid && !detach_state.is_done() {
            return start_result(status).and(Err(Errno::ECHILD));
        }
    }
    Ok(())
}

/// Runs `body` in a detached process, at the end of this one, which may have many threads. Returns
/// when that has detached.
pub(super) fn rescue(directory: Option<&Path>, body: impl FnOnce(Opened)) {
    let parent = std::process::id();
    // SAFETY: the C library's `fork` makes its allocator usable in the child, which needs no other
    // lock of the program.
    match unsafe { libc::fork() } {
        0 => {}
        child => {
            if child > 0 {
                let _ = wait(child as u32);
            }
            return;
        }
    }
    let program = detach(parent);
    lock_running_file(directory);
    let confirmation = begin_confirmation(directory, 0);
    // SAFETY: the child of `fork` has one thread.
    if let Ok(0) = unsafe { fork(libc::SIGCHLD) } {
        body(Opened {
            program,
            confirmation,
        });
    }
    exit(0);
}

/// Detaches from session, terminal, files and directory of the program. Returns a descriptor of the
/// program, unless the kernel refuses.
///
/// The program waits meanwhile. So when it goes on, no other process has its files open; and its id
/// still means the program when the descriptor is opened.
fn detach(parent: u32) -> Option<OwnedFd> {
    // SAFETY: calls with numbers and constant strings, in a new process that needs no descriptor.
    unsafe {
        libc::setsid();
        close_all();
        // The standard descriptors must be open, or else files of the trace would get their
        // numbers. Where there is no /dev/null, an eventfd serves.
        for _ in 0..3 {
            if libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) < 0 {
                libc::eventfd(0, libc::EFD_NONBLOCK);
            }
        }
        libc::chdir(c"/".as_ptr());
    }
    pidfd_open(parent).ok()
}

/// Resets what else the process inherited from the program: file mode mask, signals, limits, name.
pub(super) fn reset_inherited() {
    // SAFETY: calls with numbers and constant strings, in a process of the daemons' own.
    unsafe {
        libc::umask(0o077);
        reset_signals();
        reset_limits();
        libc::prctl(libc::PR_SET_NAME, DAEMON.as_ptr());
    }
    rename();
}

/// Writes the daemon's name over the program's arguments: people and scripts find the program's
/// processes by these.
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
    // SAFETY: this process's copy of the arguments, at the address that the kernel reports. No code
    // of the daemons reads them.
    unsafe {
        arguments.write_bytes(0, end - start);
        arguments.copy_from_nonoverlapping(name.as_ptr(), name.len());
    }
}

/// Locks the file [`RUNNING`] until the daemons end, if it exists. Returns whether it did.
fn lock_running_file(directory: Option<&Path>) -> bool {
    let open =
        |directory: &Path| files::open(OpenOptions::new().read(true), &directory.join(RUNNING));
    let file = directory.and_then(|directory| open(directory).ok());
    let held = file.filter(|file| files::flock(file, libc::LOCK_SH).is_ok());
    // The descriptor is never closed, and children share the lock.
    held.map(std::mem::forget).is_some()
}

/// Creates the file that says how far the daemons have written everything: up to `time` now.
fn begin_confirmation(directory: Option<&Path>, time: u64) -> Option<Confirmation> {
    directory.and_then(|directory| Confirmation::begin(directory, time))
}

/// Closes all descriptors.
///
/// # Safety
/// No code of this process may use one of them afterwards.
unsafe fn close_all() {
    // SAFETY: no code uses a descriptor any more, as this function's caller promises.
    unsafe {
        if file::close_range(0, u32::MAX).is_ok() {
            return;
        }
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        // Descriptors may be above the limit if that was lowered. Where /proc is mounted, it lists
        // them.
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

/// Removes the program's signal handlers. Ignores the signals that people send to end programs: a
/// daemon ends by itself after its programs, and until then has to store their events.
///
/// # Safety
/// No code of this process may rely on the program's handlers.
unsafe fn reset_signals() {
    // SAFETY: no code relies on the handlers, as this function's caller promises.
    unsafe {
        for signo in 1..=libc::SIGRTMAX() {
            let disposition = match signo {
                // The worker installs a handler for the last one.
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

/// Raises the program's limits to their maximum. Disables core dumps, which would look like the
/// program's.
///
/// # Safety
/// The process must not be the program itself.
unsafe fn reset_limits() {
    let raised = [
        libc::RLIMIT_NOFILE,
        libc::RLIMIT_FSIZE,
        libc::RLIMIT_CPU,
        libc::RLIMIT_AS,
        libc::RLIMIT_DATA,
    ];
    // SAFETY: limits of a daemon, as this function's caller promises.
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

/// Number of threads of this process; none if `/proc` is not mounted.
pub(super) fn threads() -> Option<usize> {
    // SAFETY: the path ends with a NUL, and the kernel writes to `status` alone. (It needs no
    // descriptor.)
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::stat(c"/proc/self/task".as_ptr(), &raw mut status) == 0)
            .then(|| status.st_nlink.saturating_sub(2) as usize)
    }
}
