//! The socket's system calls. All are async-signal-safe, but change `errno`.
//!
//! Descriptors are plain numbers: the program's end keeps them in memory that all copies of the
//! library in the process share.

use std::sync::atomic::{AtomicI32, Ordering};

use syscalls::Errno;

use crate::answer::Text;
use crate::protocol::NAME;

/// An optional descriptor. All zeros mean none.
#[derive(Debug)]
#[repr(transparent)]
pub struct Descriptor(AtomicI32);

impl Descriptor {
    /// The descriptor, if there is one.
    #[must_use]
    pub fn get(&self) -> Option<i32> {
        self.0
            .load(Ordering::Relaxed)
            .checked_sub(1)
            .filter(|&fd| fd >= 0)
    }

    /// Stores an open descriptor.
    pub fn set(&self, descriptor: i32) {
        self.0.store(descriptor + 1, Ordering::Relaxed);
    }

    /// Closes the descriptor, if there is one.
    pub fn close(&self) {
        let descriptor = self.get();
        self.0.store(0, Ordering::Relaxed);
        if let Some(descriptor) = descriptor {
            close(descriptor);
        }
    }
}

fn check(returned: i32) -> Result<i32, Errno> {
    if returned >= 0 {
        return Ok(returned);
    }
    // SAFETY: the C library returns a valid pointer to the calling thread's `errno`.
    Err(Errno::new(unsafe { *libc::__errno_location() }))
}

/// Closes a socket.
pub fn close(descriptor: i32) {
    // SAFETY: the call accesses no memory, and the channel owns the descriptor.
    unsafe { libc::close(descriptor) };
}

/// The abstract name of a process's socket: a NUL, a prefix, and the process id.
fn address(process: u32) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: `sockaddr_un` consists of integers, for which zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let mut room = [0; NAME.len() + 10];
    let mut text = Text::new(&mut room);
    // Cannot fail: a `u32` has at most ten digits.
    let _ = text.push(format_args!("{NAME}{process}"));
    for (to, byte) in address.sun_path[1..].iter_mut().zip(text.bytes()) {
        *to = *byte as libc::c_char;
    }
    let start = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    (address, (start + 1 + text.len()) as libc::socklen_t)
}

fn new(flags: i32) -> Result<i32, Errno> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
    // SAFETY: the call accesses no memory of this process.
    check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Creates the socket on which a process waits for controllers.
///
/// # Errors
/// Those of the kernel; `EADDRINUSE` if another process has the name.
pub fn listen(process: u32) -> Result<i32, Errno> {
    let socket = new(libc::SOCK_NONBLOCK)?;
    let (address, len) = address(process);
    // SAFETY: `address` is valid for `len` bytes, as the function `address` computed it.
    let done = unsafe {
        check(libc::bind(socket, (&raw const address).cast(), len))
            .and_then(|_| check(libc::listen(socket, 8)))
    };
    done.map(|_| socket).inspect_err(|_| close(socket))
}

/// Creates a socket that is connected to a process.
///
/// # Errors
/// Those of the kernel; `ECONNREFUSED` if no process waits there.
#[cfg(feature = "client")]
pub fn connect(process: u32) -> Result<i32, Errno> {
    let socket = new(0)?;
    let (address, len) = address(process);
    // SAFETY: `address` is valid for `len` bytes, as the function `address` computed it.
    let done = check(unsafe { libc::connect(socket, (&raw const address).cast(), len) });
    done.map(|_| socket).inspect_err(|_| close(socket))
}

/// Wakes all waiters of a socket, which reads as closed from now on.
pub fn wake(socket: i32) {
    // SAFETY: the call accesses no memory of this process.
    unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
}

/// Accepts the next controller, if one waits.
#[must_use]
pub fn accept(listener: i32) -> Option<i32> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let null = std::ptr::null_mut();
    loop {
        // SAFETY: null pointers mean that the peer's address is not requested, so nothing is
        // written.
        match check(unsafe { libc::accept4(listener, null, null.cast(), flags) }) {
            Err(Errno::EINTR | Errno::ECONNABORTED) => {}
            accepted => return accepted.ok(),
        }
    }
}

/// The credentials of the process that created the other end.
///
/// # Errors
/// Those of the kernel.
pub fn peer(socket: i32) -> Result<libc::ucred, Errno> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let to = (&raw mut peer).cast();
    // SAFETY: `peer` and `len` are valid, and `len` is the size of `peer`.
    let done = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            to,
            &raw mut len,
        )
    };
    check(done).map(|_| peer)
}

/// Whether a user may control this process.
#[must_use]
pub fn may_control(user: u32) -> bool {
    // SAFETY: the call has no preconditions.
    user == 0 || user == unsafe { libc::geteuid() }
}

/// From `linux/fcntl.h` (`asm-generic`); the crate `libc` defines it for some C libraries only.
const F_SETSIG: i32 = 10;

/// Makes the kernel send a signal to `process` when the socket is readable.
///
/// # Errors
/// Those of the kernel.
pub fn notify(socket: i32, process: u32, signal: i32) -> Result<(), Errno> {
    // SAFETY: these calls take numbers, and access no memory of this process.
    unsafe {
        check(libc::fcntl(socket, libc::F_SETOWN, process as i32))?;
        check(libc::fcntl(socket, F_SETSIG, signal))?;
        check(libc::fcntl(
            socket,
            libc::F_SETFL,
            libc::O_NONBLOCK | libc::O_ASYNC,
        ))?;
    }
    Ok(())
}

/// Receives a packet into `room`, truncated if necessary, and returns its full length; 0 if the
/// other end is closed.
///
/// # Errors
/// Those of the kernel; `EAGAIN` if there is no packet.
pub fn receive(socket: i32, room: &mut [u8], flags: i32) -> Result<usize, Errno> {
    loop {
        let flags = flags | libc::MSG_TRUNC;
        // SAFETY: `room` is valid for writes of its length.
        let len = unsafe { libc::recv(socket, room.as_mut_ptr().cast(), room.len(), flags) };
        match check(len as i32) {
            Err(Errno::EINTR) => {}
            len => return len.map(|len| len as usize),
        }
    }
}

/// Sends a packet without blocking.
///
/// # Errors
/// Those of the kernel; `EAGAIN` if the buffer is full.
pub fn send(socket: i32, packet: &[u8]) -> Result<(), Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: `packet` is valid for reads of its length.
        let sent = unsafe { libc::send(socket, packet.as_ptr().cast(), packet.len(), flags) };
        match check(sent as i32) {
            Err(Errno::EINTR) => {}
            sent => return sent.map(|_| ()),
        }
    }
}

/// Whether the other end is closed, even if unread packets remain.
#[must_use]
pub fn is_peer_closed(socket: i32) -> bool {
    let mut entry = libc::pollfd {
        fd: socket,
        events: 0,
        revents: 0,
    };
    // SAFETY: `entry` is one valid `pollfd`, as the count says.
    let found = unsafe { libc::poll(&raw mut entry, 1, 0) };
    found > 0 && entry.revents & libc::POLLHUP != 0
}
