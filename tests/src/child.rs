//! Child processes, for parts of tests that need a process without areas, or one that dies.
//!
//! A test program forks while it has one thread, so its child may do all that the parent may.

use std::any::Any;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use usertrace_testing::wait::{self, LIMIT};

/// One end of the connection between a child and its parent.
#[derive(Debug)]
pub struct Link {
    read: File,
    write: File,
}

impl Link {
    /// Sends a number to the other side.
    ///
    /// # Panics
    /// If the other side is gone.
    pub fn send(&mut self, number: u64) {
        self.write
            .write_all(&number.to_ne_bytes())
            .expect("the other process is there");
    }

    /// Waits for the next number from the other side.
    ///
    /// # Panics
    /// If the other side is gone, or sends nothing.
    pub fn receive(&mut self) -> u64 {
        self.try_receive().expect("the other process is there")
    }

    /// Whether a number can be received, or the other side is gone. Waits up to `timeout`.
    ///
    /// # Panics
    /// If `poll` fails.
    pub fn is_ready(&self, timeout: PollTimeout) -> bool {
        match poll(
            &mut [PollFd::new(self.read.as_fd(), PollFlags::POLLIN)],
            timeout,
        ) {
            Ok(ready) => ready > 0,
            Err(nix::errno::Errno::EINTR) => false,
            Err(error) => panic!("poll: {error}"),
        }
    }

    /// Waits for the next number from the other side. None: the other side is gone.
    ///
    /// # Panics
    /// If the other side sends nothing.
    pub fn try_receive(&mut self) -> Option<u64> {
        wait_for_input(self.read.as_fd(), "the other process says something");
        let mut bytes = [0; 8];
        self.read.read_exact(&mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }
}

fn wait_for_input(fd: BorrowedFd<'_>, what: &str) {
    let begun = Instant::now();
    loop {
        let left = LIMIT.saturating_sub(begun.elapsed()).as_millis();
        assert!(left > 0, "waited in vain until {what}");
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        // A signal may interrupt the call.
        if let Ok(1..) = poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout) {
            return;
        }
    }
}

/// A child, which is killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// The message of its panic.
    message: File,
    reaped: bool,
    /// The connection to it.
    pub link: Link,
}

impl Child {
    /// Runs `body` in a new process.
    ///
    /// # Panics
    /// If `fork` fails.
    #[must_use]
    pub fn spawn(body: impl FnOnce(&mut Link)) -> Self {
        let (message_read, message_write) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        let (to_child, from_parent) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        let (to_parent, from_child) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        // SAFETY: this process has one thread, so no lock is held that the child would need.
        match unsafe { fork() }.expect("a process") {
            ForkResult::Child => {
                drop((message_read, from_parent, to_parent));
                let mut link = Link {
                    read: to_child.into(),
                    write: from_child.into(),
                };
                let result = catch_unwind(AssertUnwindSafe(|| body(&mut link)));
                let status = match result {
                    Ok(()) => 0,
                    Err(panic) => {
                        let _ = File::from(message_write).write_all(text(&*panic).as_bytes());
                        1
                    }
                };
                // SAFETY: no memory is involved. The parent's exit handlers do not run in the
                // child.
                unsafe { libc::_exit(status) }
            }
            ForkResult::Parent { child } => {
                drop((message_write, to_child, from_child));
                Self {
                    pid: child,
                    message: message_read.into(),
                    reaped: false,
                    link: Link {
                        read: to_parent.into(),
                        write: from_parent.into(),
                    },
                }
            }
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the child still runs.
    ///
    /// # Panics
    /// If it was reaped before.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT | WaitPidFlag::WEXITED;
        nix::sys::wait::waitid(nix::sys::wait::Id::Pid(self.pid), flags).expect("a child")
            == WaitStatus::StillAlive
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // The child may be dead already.
        let _ = kill(self.pid, signal);
    }

    /// Waits for its end, by exit or signal. For a child that is ptraced, a stop counts, too.
    ///
    /// # Panics
    /// If it does not end.
    pub fn wait(&mut self) -> WaitStatus {
        let status = wait::until_some("a child ends", || {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)).expect("a child") {
                WaitStatus::StillAlive => None,
                ended => Some(ended),
            }
        });
        self.reaped = matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
        status
    }

    /// Waits until the child has exited with status 0.
    ///
    /// # Panics
    /// If it panicked, with its message, or ended in another way.
    pub fn join(mut self) {
        let status = self.wait();
        if status == WaitStatus::Exited(self.pid, 0) {
            return;
        }
        let mut message = String::new();
        let _ = self.message.read_to_string(&mut message);
        panic!("in a child: {message} ({status:?})");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else {
        "a panic without a text".to_owned()
    }
}

/// Runs `body` in a process of its own, which must exit with status 0.
pub fn run(body: impl FnOnce()) {
    Child::spawn(|_| body()).join();
}

/// Runs `body` in a process of its own, which this signal must kill.
///
/// # Panics
/// If it does not.
pub fn run_to_death(signal: Signal, body: impl FnOnce()) {
    let mut child = Child::spawn(|_| {
        no_core_dump();
        body();
    });
    match child.wait() {
        WaitStatus::Signaled(_, killer, _) if killer == signal => {}
        other => panic!("{other:?} instead of death by {signal}"),
    }
}

/// Turns off core dumps of this process.
pub fn no_core_dump() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: it only reads the structure.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}

/// Ends this process at once.
pub fn exit(status: i32) -> ! {
    // SAFETY: no memory is involved, and no exit handler is needed here.
    unsafe { libc::_exit(status) }
}
