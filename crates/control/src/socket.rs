//! The socket's system calls. All are async-signal-safe, and change `errno`.
//!
//! Descriptors are numbers, as the program's end keeps them in memory that all copies of the
//! library in the process share.

use std::sync::atomic::{AtomicI32, Ordering};

use syscalls::Errno;

use crate::answer::Text;
use crate::protocol::NAME;

/// A descriptor; all zeros: none.
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

    /// Keeps a descriptor that is open, from now on.
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
    // SAFETY: a thread's own number.
    Err(Errno::new(unsafe { *libc::__errno_location() }))
}

/// Closes a socket.
pub fn close(descriptor: i32) {
    // SAFETY: a descriptor of the channel's.
    unsafe { libc::close(descriptor) };
}

/// The name of a process's channel: a NUL, which makes it one that is not in the file system, a
/// text, and the id.
fn address(process: u32) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let mut room = [0; NAME.len() + 10];
    let mut text = Text::new(&mut room);
    // A number of 32 bits has no more than ten digits.
    let _ = text.push(format_args!("{NAME}{process}"));
    for (to, byte) in address.sun_path[1..].iter_mut().zip(text.bytes()) {
        *to = *byte as libc::c_char;
    }
    let start = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    (address, (start + 1 + text.len()) as libc::socklen_t)
}

fn new(flags: i32) -> Result<i32, Errno> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
    // SAFETY: no memory is involved.
    check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Makes the socket on which a process waits for controllers.
///
/// # Errors
/// The kernel's. `EADDRINUSE`: another process has the name.
pub fn listen(process: u32) -> Result<i32, Errno> {
    let socket = new(libc::SOCK_NONBLOCK)?;
    let (address, len) = address(process);
    // SAFETY: the address is that long.
    let done = unsafe {
        check(libc::bind(socket, (&raw const address).cast(), len))
            .and_then(|_| check(libc::listen(socket, 8)))
    };
    done.map(|_| socket).inspect_err(|_| close(socket))
}

/// Makes a socket that leads to a process.
///
/// # Errors
/// The kernel's. `ECONNREFUSED`: no process waits there.
#[cfg(feature = "client")]
pub fn connect(process: u32) -> Result<i32, Errno> {
    let socket = new(0)?;
    let (address, len) = address(process);
    // SAFETY: the address is that long.
    let done = check(unsafe { libc::connect(socket, (&raw const address).cast(), len) });
    done.map(|_| socket).inspect_err(|_| close(socket))
}

/// Wakes whatever waits for a socket: it reads as closed from now on.
pub fn wake(socket: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
}

/// Accepts the next controller, if one waits.
#[must_use]
pub fn accept(listener: i32) -> Option<i32> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let null = std::ptr::null_mut();
    loop {
        // SAFETY: the address is not asked for.
        match check(unsafe { libc::accept4(listener, null, null.cast(), flags) }) {
            Err(Errno::EINTR | Errno::ECONNABORTED) => {}
            accepted => return accepted.ok(),
        }
    }
}

/// Tells who made the other end.
///
/// # Errors
/// The kernel's.
pub fn peer(socket: i32) -> Result<libc::ucred, Errno> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let to = (&raw mut peer).cast();
    // SAFETY: there is that much room.
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
    // SAFETY: no memory is involved.
    user == 0 || user == unsafe { libc::geteuid() }
}

/// `linux/fcntl.h` (`asm-generic`); the crate `libc` has it for some C libraries only.
const F_SETSIG: i32 = 10;

/// Has the kernel send a signal to `process` when there is something to read.
///
/// # Errors
/// The kernel's.
pub fn notify(socket: i32, process: u32, signal: i32) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
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

/// Receives a packet, and returns its length, of which `room` has as much as fits. 0: the other end
/// is closed.
///
/// # Errors
/// The kernel's. `EAGAIN`: there is none.
pub fn receive(socket: i32, room: &mut [u8], flags: i32) -> Result<usize, Errno> {
    loop {
        let flags = flags | libc::MSG_TRUNC;
        // SAFETY: there is that much room.
        let len = unsafe { libc::recv(socket, room.as_mut_ptr().cast(), room.len(), flags) };
        match check(len as i32) {
            Err(Errno::EINTR) => {}
            len => return len.map(|len| len as usize),
        }
    }
}

/// Sends a packet, if there is room for it now.
///
/// # Errors
/// The kernel's. `EAGAIN`: there is no room.
pub fn send(socket: i32, packet: &[u8]) -> Result<(), Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the packet is that long.
        let sent = unsafe { libc::send(socket, packet.as_ptr().cast(), packet.len(), flags) };
        match check(sent as i32) {
            Err(Errno::EINTR) => {}
            sent => return sent.map(|_| ()),
        }
    }
}

/// Whether the other end is closed, whatever it sent before.
#[must_use]
pub fn is_left(socket: i32) -> bool {
    let mut entry = libc::pollfd {
        fd: socket,
        events: 0,
        revents: 0,
    };
    // SAFETY: there is one.
    let found = unsafe { libc::poll(&raw mut entry, 1, 0) };
    found > 0 && entry.revents & libc::POLLHUP != 0
}
