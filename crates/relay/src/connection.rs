//! A client's connection to a relay.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use crate::limits::{LimitedStream, SLICE};
use crate::message::{self, Command, Index, Session};
use crate::{Address, Cancel, RelayError, TimeLimits};

/// How many indexes may be unanswered. More hide the latency of no usual link, and fewer bytes of
/// replies than any socket buffers.
const MAX_UNANSWERED: u32 = 64;
/// Bytes of a packet that are in memory at a time, and of metadata that one command has: the relay
/// bounds the length of a command.
pub const PART: usize = 64 << 10;

/// A connection with its session.
#[derive(Debug)]
pub struct Connection {
    control: LimitedStream,
    data: LimitedStream,
    /// Indexes whose replies were not read yet.
    unanswered: u32,
    buffer: Vec<u8>,
    /// The session's directory, as the relay names it, escaped.
    path: String,
}

/// Why a packet could not be sent.
#[derive(Debug)]
pub enum SourceError {
    /// The packet cannot be read. The connection cannot be used any more.
    Source(io::Error),
    /// The relay does not take it.
    Relay(RelayError),
}

impl From<RelayError> for SourceError {
    fn from(error: RelayError) -> Self {
        Self::Relay(error)
    }
}

impl Connection {
    /// Connects to a relay and creates a session. `prepare` is called for both sockets.
    ///
    /// # Errors
    /// If nobody answers in time, or the relay refuses the session.
    pub fn open(
        address: &Address,
        session: &Session,
        limits: TimeLimits,
        cancel: &Cancel,
        prepare: &dyn Fn(&TcpStream) -> io::Result<()>,
    ) -> Result<Self, RelayError> {
        let open = |port| {
            let socket = connect(&address.host, port, limits, cancel)?;
            let name = || format!("{}:{port}", address.host);
            let stream = prepare(&socket)
                .and_then(|()| LimitedStream::new(socket, limits.answer, cancel.clone()));
            stream.map_err(|source| RelayError::Connect {
                address: name(),
                source,
            })
        };
        let mut connection = Self {
            control: open(address.control)?,
            data: open(address.data)?,
            unanswered: 0,
            buffer: vec![0; PART],
            path: String::new(),
        };
        connection.start(session)?;
        Ok(connection)
    }

    fn start(&mut self, session: &Session) -> Result<(), RelayError> {
        let reply = self.ask(Command::Version, &message::version())?;
        message::parse_version(reply)?;
        let command = Command::CreateSession;
        let reply = self.ask(command, &message::create_session(session))?;
        let mut path = vec![0; message::parse_session(reply)? as usize];
        self.control.read(command.what(), &mut path)?;
        self.path = message::escaped(&path);
        self.accept(
            Command::CreateChunk,
            &message::create_chunk(session.created),
        )
    }

    /// The session's directory below the relay's output, as the relay names it, escaped.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The socket of the data connection.
    #[must_use]
    pub fn data_socket(&self) -> &TcpStream {
        self.data.socket()
    }

    /// Adds a stream: the file `name` in the directory `path` of the session. The relay takes a
    /// stream named `metadata` for one of metadata.
    ///
    /// # Errors
    /// If the relay refuses it, or the connection broke.
    pub fn add_stream(&mut self, path: &str, name: &str) -> Result<u64, RelayError> {
        let reply = self.ask(Command::AddStream, &message::add_stream(path, name))?;
        message::parse_stream(reply)
    }

    /// Publishes the streams that were added to live viewers.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn publish_streams(&mut self) -> Result<(), RelayError> {
        self.accept(Command::StreamsSent, &[])
    }

    /// Appends to a stream of metadata. The next reply confirms it.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn send_metadata(&mut self, stream: u64, text: &[u8]) -> Result<(), RelayError> {
        for part in text.chunks(PART) {
            self.send(Command::SendMetadata, &message::metadata(stream, part))?;
        }
        Ok(())
    }

    /// Empties a stream of metadata. Live sessions refuse that.
    ///
    /// # Errors
    /// If the relay refuses it, or the connection broke.
    pub fn reset_metadata(&mut self, stream: u64, version: u64) -> Result<(), RelayError> {
        let payload = message::of_stream(stream, version);
        self.accept(Command::ResetMetadata, &payload)
    }

    /// Sends `len` bytes of `source` as packet number `sequence` of a stream.
    ///
    /// # Errors
    /// If the packet cannot be read, or the connection broke. The connection cannot be used then.
    pub fn send_packet(
        &mut self,
        stream: u64,
        sequence: u64,
        len: u32,
        source: &mut dyn Read,
    ) -> Result<(), SourceError> {
        let what = "take a packet";
        self.data
            .write(what, &message::data(stream, sequence, len))?;
        let mut left = len as usize;
        while left > 0 {
            let part = &mut self.buffer[..left.min(PART)];
            source.read_exact(part).map_err(SourceError::Source)?;
            self.data.write(what, part)?;
            left -= part.len();
        }
        Ok(())
    }

    /// Sends the index of a packet. Its reply is read later.
    ///
    /// # Errors
    /// If the relay refused an index, or the connection broke.
    pub fn send_index(
        &mut self,
        stream: u64,
        sequence: u64,
        index: &Index,
    ) -> Result<(), RelayError> {
        if self.unanswered >= MAX_UNANSWERED {
            self.read_index_reply()?;
        }
        let payload = message::index(stream, sequence, index);
        self.send(Command::SendIndex, &payload)?;
        self.unanswered += 1;
        Ok(())
    }

    /// Tells live viewers that a stream has no events before the time `now`, in cycles.
    ///
    /// # Errors
    /// As for [`send_index`](Self::send_index).
    pub fn send_beacon(&mut self, stream: u64, class: u64, now: u64) -> Result<(), RelayError> {
        // A packet without a length is a beacon.
        let beacon = Index {
            end: now,
            class,
            ..Index::default()
        };
        self.send_index(stream, message::NO_PACKET, &beacon)
    }

    /// Whether the relay has yet to write packet number `sequence` of a stream, or its index.
    ///
    /// # Errors
    /// If the relay does not know the stream, or a connection broke.
    pub fn is_pending(&mut self, stream: u64, sequence: u64) -> Result<bool, RelayError> {
        // The relay would say yes for ever.
        self.data.check("take a packet")?;
        let payload = message::of_stream(stream, sequence);
        let reply = self.ask(Command::DataPending, &payload)?;
        message::parse_pending(reply)
    }

    /// Ends a stream. `sequence`: its last packet, or [`message::NO_PACKET`].
    ///
    /// # Errors
    /// If the relay does not know the stream, or the connection broke.
    pub fn close_stream(&mut self, stream: u64, sequence: u64) -> Result<(), RelayError> {
        let payload = message::of_stream(stream, sequence);
        self.accept(Command::CloseStream, &payload)
    }

    /// Ends the session, and waits until the relay has closed the connections.
    ///
    /// # Errors
    /// If it does not do so in time.
    pub fn finish(mut self) -> Result<(), RelayError> {
        let what = "end the session";
        while self.unanswered > 0 {
            self.read_index_reply()?;
        }
        for stream in [&mut self.data, &mut self.control] {
            let ended = stream.socket().shutdown(std::net::Shutdown::Write);
            ended.map_err(|source| RelayError::Broken { what, source })?;
            match stream.read(what, &mut [0]) {
                Err(RelayError::Broken { .. }) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    let why = "more bytes than were asked for".to_owned();
                    return Err(RelayError::Invalid { what, why });
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, command: Command, payload: &[u8]) -> Result<(), RelayError> {
        let message = message::command(command, payload);
        self.control.write(command.what(), &message)
    }

    /// Sends a command and reads the reply.
    fn ask<const N: usize>(
        &mut self,
        command: Command,
        payload: &[u8],
    ) -> Result<[u8; N], RelayError> {
        while self.unanswered > 0 {
            self.read_index_reply()?;
        }
        self.send(command, payload)?;
        let mut reply = [0; N];
        self.control.read(command.what(), &mut reply)?;
        Ok(reply)
    }

    fn accept(&mut self, command: Command, payload: &[u8]) -> Result<(), RelayError> {
        let reply = self.ask(command, payload)?;
        message::parse_code(command, reply)
    }

    fn read_index_reply(&mut self) -> Result<(), RelayError> {
        let mut reply = [0; 4];
        let command = Command::SendIndex;
        self.control.read(command.what(), &mut reply)?;
        self.unanswered -= 1;
        message::parse_code(command, reply)
    }
}

/// Finds the addresses of a host. Servers of names may take much longer than the limit.
fn resolve(
    host: &str,
    port: u16,
    limits: TimeLimits,
    cancel: &Cancel,
) -> Result<Vec<SocketAddr>, RelayError> {
    let failed = |source| RelayError::Connect {
        address: format!("{host}:{port}"),
        source,
    };
    // An address needs no resolver, and no thread for it.
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (found, addresses) = mpsc::channel();
    let name = host.to_owned();
    // The library's call cannot be interrupted. Its thread ends some time after a failure.
    let resolver = thread::Builder::new().name("relay-resolver".to_owned());
    let resolver = resolver.spawn(move || {
        let resolved = (&name[..], port).to_socket_addrs();
        // Nobody waits any more if this fails.
        let _ = found.send(resolved.map(Iterator::collect));
    });
    resolver.map_err(failed)?;
    let begun = Instant::now();
    loop {
        match addresses.recv_timeout(SLICE.min(limits.connect)) {
            Ok(resolved) => return resolved.map_err(failed),
            Err(_) if cancel.is_cancelled() => return Err(RelayError::Cancelled),
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < limits.connect => {}
            Err(_) => {
                let why = "its name is not resolved in time";
                return Err(failed(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
        }
    }
}

/// Connects to the first address of the host that answers.
fn connect(
    host: &str,
    port: u16,
    limits: TimeLimits,
    cancel: &Cancel,
) -> Result<TcpStream, RelayError> {
    let failed = |source| RelayError::Connect {
        address: format!("{host}:{port}"),
        source,
    };
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in resolve(host, port, limits, cancel)? {
        if cancel.is_cancelled() {
            return Err(RelayError::Cancelled);
        }
        match TcpStream::connect_timeout(&address, limits.connect) {
            Ok(socket) => return Ok(socket),
            Err(refused) => error = refused,
        }
    }
    Err(failed(error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// No time is left to wait for a resolver.
    #[test]
    fn addresses_need_no_resolver() {
        let limits = TimeLimits {
            connect: Duration::ZERO,
            answer: Duration::ZERO,
        };
        let cancel = Cancel::default();
        cancel.cancel();
        for (host, address) in [("127.0.0.1", "127.0.0.1:7"), ("::1", "[::1]:7")] {
            let found = resolve(host, 7, limits, &cancel).unwrap();
            assert_eq!(found, [address.parse().unwrap()]);
        }
    }
}
