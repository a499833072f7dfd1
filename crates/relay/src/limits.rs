//! Time limits of a connection, and reads and writes that keep them.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::RelayError;

/// How long a call may block before [`Cancel`] is looked at again.
pub(crate) const SLICE: Duration = Duration::from_millis(200);

/// How long a relay may take.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimits {
    /// To accept a connection.
    pub connect: Duration,
    /// For a reply as a whole, and for any progress in taking data.
    pub answer: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(10),
        }
    }
}

/// Makes a sender give up, from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Makes the sender give up: its current call fails within a fraction of a second.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the sender is to give up.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A socket with time limits.
#[derive(Debug)]
pub(crate) struct LimitedStream {
    socket: TcpStream,
    limit: Duration,
    cancel: Cancel,
}

impl LimitedStream {
    pub(crate) fn new(socket: TcpStream, limit: Duration, cancel: Cancel) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let slice = Some(SLICE.min(limit).max(Duration::from_millis(1)));
        socket.set_read_timeout(slice)?;
        socket.set_write_timeout(slice)?;
        Ok(Self {
            socket,
            limit,
            cancel,
        })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Writes all bytes. Fails if the peer takes nothing for as long as the limit.
    pub(crate) fn write(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), RelayError> {
        let mut rest = bytes;
        let mut progress = Instant::now();
        while !rest.is_empty() {
            if self.cancel.is_cancelled() {
                return Err(RelayError::Cancelled);
            }
            match self.socket.write(rest) {
                Ok(0) => return Err(broken(what, ErrorKind::WriteZero.into())),
                Ok(written) => {
                    rest = &rest[written..];
                    progress = Instant::now();
                }
                Err(error) if is_slice(&error) => {
                    if progress.elapsed() >= self.limit {
                        return Err(RelayError::TimedOut { what });
                    }
                }
                Err(error) => return Err(broken(what, error)),
            }
        }
        Ok(())
    }

    /// Checks that the peer, which has nothing to say, has not closed the connection.
    pub(crate) fn check(&self, what: &'static str) -> Result<(), RelayError> {
        let mut byte = [0];
        let peeked = self.socket.set_nonblocking(true).and_then(|()| {
            let peeked = self.socket.peek(&mut byte);
            // The timeouts stay as they are.
            self.socket.set_nonblocking(false)?;
            peeked
        });
        match peeked {
            Err(error) if is_slice(&error) => Ok(()),
            Err(error) => Err(broken(what, error)),
            Ok(0) => Err(broken(what, ErrorKind::UnexpectedEof.into())),
            Ok(_) => Err(RelayError::Invalid {
                what,
                why: "it is on the data connection".to_owned(),
            }),
        }
    }

    /// Fills the buffer. Fails if that takes longer than the limit: a peer that sends byte by byte
    /// does not extend it.
    pub(crate) fn read(&mut self, what: &'static str, buffer: &mut [u8]) -> Result<(), RelayError> {
        let begun = Instant::now();
        let mut filled = 0;
        while filled < buffer.len() {
            if self.cancel.is_cancelled() {
                return Err(RelayError::Cancelled);
            }
            match self.socket.read(&mut buffer[filled..]) {
                Ok(0) => return Err(broken(what, ErrorKind::UnexpectedEof.into())),
                Ok(read) => filled += read,
                Err(error) if is_slice(&error) => {}
                Err(error) => return Err(broken(what, error)),
            }
            if filled < buffer.len() && begun.elapsed() >= self.limit {
                return Err(RelayError::TimedOut { what });
            }
        }
        Ok(())
    }
}

fn broken(what: &'static str, source: io::Error) -> RelayError {
    RelayError::Broken { what, source }
}

/// Whether a call only ended because of [`SLICE`], or of a signal.
fn is_slice(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
