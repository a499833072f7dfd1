//! Sockets: options that the standard library does not have.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

/// Makes the kernel drop what is queued when the socket is closed, and tell the peer by a reset.
/// Otherwise the kernel keeps sending it, for minutes if the link is down, after the descriptor was
/// closed.
///
/// # Errors
/// If the system call fails.
pub fn drop_queue_on_close(socket: &TcpStream) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the kernel reads `size_of::<linger>()` bytes of `linger`, which lives until the call
    // returns, and `socket` keeps the descriptor open.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes that were written to the socket and that the peer has not confirmed yet.
///
/// # Errors
/// If the system call fails.
pub fn queued(socket: &TcpStream) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one `int` to `bytes`, which lives until the call returns, and
    // `socket` keeps the descriptor open. For sockets, `TIOCOUTQ` is `SIOCOUTQ`.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match asked {
        0 => Ok(bytes.cast_unsigned()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn closed_socket_resets_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        drop_queue_on_close(&socket).unwrap();
        socket.write_all(b"x").unwrap();
        drop(socket);
        let mut bytes = Vec::new();
        let error = peer.read_to_end(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn unread_bytes_are_queued() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(queued(&socket).unwrap(), 0);
        // More than the peer's buffer has room for.
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 1 << 16]).is_ok() {}
        assert_ne!(queued(&socket).unwrap(), 0);
    }
}
