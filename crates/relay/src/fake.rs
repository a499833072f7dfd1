//! A relay in this process, for tests: it keeps files in memory, and breaks when it is told to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Address;
use crate::message::{COMMAND_LEN, Command, DATA_LEN, NO_PACKET, OK};

/// How a relay breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It closes the connection.
    Close,
    /// It neither reads nor writes any more.
    Stall,
    /// It writes other bytes than it should.
    Garbage(u8),
}

/// A connection on which the relay breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Bytes of the connection, of both directions, before that.
    pub after: usize,
    /// How.
    pub kind: FaultKind,
}

/// What a stream received.
#[derive(Clone, Debug)]
struct FakeStream {
    key: String,
    is_published: bool,
    is_metadata: bool,
    connection: u64,
    data: u64,
    index: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By path.
    files: BTreeMap<String, Vec<u8>>,
    streams: HashMap<u64, FakeStream>,
    last_stream: u64,
    last_connection: u64,
    closed: Vec<String>,
    published: Vec<Vec<String>>,
    beacons: Vec<(String, u64)>,
    sessions: Vec<String>,
    control_faults: VecDeque<Option<Fault>>,
    data_faults: VecDeque<Option<Fault>>,
}

/// A relay that listens on two ports of the loopback device.
#[derive(Debug)]
pub struct FakeRelay {
    address: Address,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
}

impl FakeRelay {
    /// Starts a relay.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn start() -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (control, data) = (listen(), listen());
        let port = |of: &TcpListener| of.local_addr().expect("a bound socket").port();
        let relay = Self {
            address: Address {
                host: "127.0.0.1".into(),
                control: port(&control),
                data: port(&data),
            },
            state: Arc::default(),
            stop: Arc::default(),
        };
        for (listener, is_control) in [(control, true), (data, false)] {
            let (state, stop) = (relay.state.clone(), relay.stop.clone());
            thread::spawn(move || {
                for socket in listener.incoming().flatten() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let (state, stop) = (state.clone(), stop.clone());
                    thread::spawn(move || serve(socket, is_control, &state, &stop));
                }
            });
        }
        relay
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Adds faults of the next control and data connections. `None`: a connection without one.
    pub fn add_faults(&self, control: Option<Fault>, data: Option<Fault>) {
        let mut state = lock(&self.state);
        state.control_faults.push_back(control);
        state.data_faults.push_back(data);
    }

    /// Its files, by path.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        lock(&self.state).files.clone()
    }

    /// Paths of streams that were closed by command.
    #[must_use]
    pub fn closed(&self) -> Vec<String> {
        lock(&self.state).closed.clone()
    }

    /// Paths of the streams that each command published to viewers.
    #[must_use]
    pub fn published(&self) -> Vec<Vec<String>> {
        lock(&self.state).published.clone()
    }

    /// Beacons: paths and times.
    #[must_use]
    pub fn beacons(&self) -> Vec<(String, u64)> {
        lock(&self.state).beacons.clone()
    }

    /// Directories of the sessions so far.
    #[must_use]
    pub fn sessions(&self) -> Vec<String> {
        lock(&self.state).sessions.clone()
    }
}

impl Drop for FakeRelay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for port in [self.address.control, self.address.data] {
            // Wakes the listening thread. It is gone if this fails.
            let _ = TcpStream::connect(("127.0.0.1", port));
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket that breaks after a number of bytes.
struct Faulty<'a> {
    socket: TcpStream,
    fault: Option<Fault>,
    bytes: usize,
    stop: &'a AtomicBool,
}

impl Faulty<'_> {
    /// Bytes up to the fault, at most `len`; an error at the fault.
    fn room(&self, len: usize) -> io::Result<usize> {
        let Some(Fault { after, kind }) = self.fault else {
            return Ok(len);
        };
        let left = after.saturating_sub(self.bytes);
        match kind {
            FaultKind::Garbage(_) => Ok(len),
            _ if left > 0 => Ok(len.min(left)),
            FaultKind::Close => Err(io::ErrorKind::ConnectionAborted.into()),
            FaultKind::Stall => {
                while !self.stop.load(Ordering::Relaxed) {
                    thread::park_timeout(Duration::from_millis(20));
                }
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let room = self.room(buffer.len() - filled)?;
            match self.socket.read(&mut buffer[filled..][..room])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => (filled, self.bytes) = (filled + read, self.bytes + read),
            }
        }
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        if let Some(Fault { after, kind }) = self.fault
            && let FaultKind::Garbage(byte) = kind
        {
            for (n, to) in bytes.iter_mut().enumerate() {
                if self.bytes + n >= after {
                    *to ^= byte;
                }
            }
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let room = self.room(rest.len())?;
            self.socket.write_all(&rest[..room])?;
            self.bytes += room;
            rest = &rest[room..];
        }
        Ok(())
    }
}

fn serve(socket: TcpStream, is_control: bool, state: &Mutex<State>, stop: &AtomicBool) {
    let (number, fault) = {
        let mut state = lock(state);
        state.last_connection += 1;
        let faults = match is_control {
            true => &mut state.control_faults,
            false => &mut state.data_faults,
        };
        let fault = faults.pop_front().flatten();
        (state.last_connection, fault)
    };
    let mut socket = Faulty {
        socket,
        fault,
        bytes: 0,
        stop,
    };
    let mut base = String::new();
    loop {
        let served = match is_control {
            true => serve_command(&mut socket, number, &mut base, state),
            false => serve_packet(&mut socket, state),
        };
        if served.is_err() {
            break;
        }
    }
    // As the real relay, it forgets the streams of a session with its control connection.
    lock(state).streams.retain(|_, of| of.connection != number);
    // The peer may have closed it already.
    let _ = socket.socket.shutdown(Shutdown::Both);
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    bytes.map(|of| u32::from_be_bytes(*of)).ok_or_else(invalid)
}

fn u64_at(bytes: &[u8], at: usize) -> io::Result<u64> {
    Ok(u64::from(u32_at(bytes, at)?) << 32 | u64::from(u32_at(bytes, at + 4)?))
}

/// Texts that end with NULs.
fn texts(bytes: &[u8]) -> Vec<String> {
    let texts = bytes.split(|&byte| byte == 0);
    texts
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}

fn serve_command(
    socket: &mut Faulty<'_>,
    connection: u64,
    base: &mut String,
    state: &Mutex<State>,
) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut header = [0; COMMAND_LEN];
    socket.read_exact(&mut header)?;
    let len = usize::try_from(u64_at(&header, 8)?).map_err(|_| invalid())?;
    if len > 1 << 20 {
        return Err(invalid());
    }
    let mut payload = vec![0; len];
    socket.read_exact(&mut payload)?;
    let command = Command::of_number(u32_at(&header, 16)?).ok_or_else(invalid)?;
    let ok = OK.to_be_bytes();
    let reply = match command {
        Command::Version => [2u32.to_be_bytes(), 13u32.to_be_bytes()].concat(),
        Command::CreateSession => {
            let names = texts(payload.get(59..).unwrap_or_default());
            let [_, host, path, ..] = &names[..] else {
                return Err(invalid());
            };
            *base = format!("{host}/{path}");
            lock(state).sessions.push(base.clone());
            let path = [base.as_bytes(), b"\0"].concat();
            let len = (path.len() as u32).to_be_bytes();
            [&connection.to_be_bytes()[..], &ok, &len, &path].concat()
        }
        Command::AddStream => {
            let names = texts(payload.get(32..).unwrap_or_default());
            let [name, path, ..] = &names[..] else {
                return Err(invalid());
            };
            let id = add_stream(state, connection, format!("{base}/{path}/{name}"));
            [&id.to_be_bytes()[..], &ok].concat()
        }
        Command::SendMetadata => {
            let mut state = lock(state);
            let key = key(&state, u64_at(&payload, 0)?)?;
            let file = state.files.entry(key).or_default();
            file.extend(payload.get(12..).unwrap_or_default());
            Vec::new()
        }
        Command::StreamsSent => {
            publish(&mut lock(state), connection);
            ok.to_vec()
        }
        _ => answer(command, &payload, state)?.to_be_bytes().to_vec(),
    };
    socket.write_all(&reply)
}

/// Handles commands whose replies are a number.
fn answer(command: Command, payload: &[u8], state: &Mutex<State>) -> io::Result<u32> {
    let mut state = lock(state);
    match command {
        Command::ResetMetadata => {
            let key = key(&state, u64_at(payload, 0)?)?;
            state.files.insert(key, Vec::new());
        }
        Command::CloseStream => {
            let id = u64_at(payload, 0)?;
            let key = key(&state, id)?;
            state.closed.push(key);
            state.streams.remove(&id);
        }
        Command::SendIndex => {
            let (id, sequence) = (u64_at(payload, 0)?, u64_at(payload, 8)?);
            let key = key(&state, id)?;
            if u64_at(payload, 16)? == 0 {
                let time = u64_at(payload, 40)?;
                state.beacons.push((key, time));
            } else if let Some(stream) = state.streams.get_mut(&id) {
                stream.index = sequence;
            }
        }
        Command::DataPending => {
            let stream = state.streams.get(&u64_at(payload, 0)?);
            let Some(stream) = stream else {
                return Ok(u32::MAX);
            };
            // Both begin at the number before 0.
            let last = u64_at(payload, 8)?.wrapping_add(1);
            let data = stream.data.wrapping_add(1);
            let index = stream.index.wrapping_add(1);
            return Ok(u32::from(data.min(index) < last));
        }
        _ => {}
    }
    Ok(OK)
}

fn key(state: &State, id: u64) -> io::Result<String> {
    let stream = state.streams.get(&id);
    let unknown = || io::Error::from(io::ErrorKind::NotFound);
    stream.map(|stream| stream.key.clone()).ok_or_else(unknown)
}

/// Publishes the streams that a connection has added since the last time.
fn publish(state: &mut State, connection: u64) {
    let streams = state.streams.values_mut();
    let mut keys: Vec<_> = streams
        .filter(|of| of.connection == connection && !of.is_published)
        .map(|stream| {
            stream.is_published = true;
            stream.key.clone()
        })
        .collect();
    keys.sort();
    state.published.push(keys);
}

/// Adds a stream, whose file is replaced.
fn add_stream(state: &Mutex<State>, connection: u64, key: String) -> u64 {
    let mut state = lock(state);
    state.last_stream += 1;
    let id = state.last_stream;
    state.files.insert(key.clone(), Vec::new());
    let stream = FakeStream {
        is_metadata: key.ends_with("/metadata"),
        is_published: false,
        key,
        connection,
        data: NO_PACKET,
        index: NO_PACKET,
    };
    state.streams.insert(id, stream);
    id
}

fn serve_packet(socket: &mut Faulty<'_>, state: &Mutex<State>) -> io::Result<()> {
    let mut header = [0; DATA_LEN];
    socket.read_exact(&mut header)?;
    let (id, sequence) = (u64_at(&header, 8)?, u64_at(&header, 16)?);
    let mut left = u32_at(&header, 24)? as usize;
    while left > 0 {
        let mut part = vec![0; left.min(4096)];
        socket.read_exact(&mut part)?;
        left -= part.len();
        let mut state = lock(state);
        let key = key(&state, id)?;
        // As the real relay, it writes what it has of a packet.
        state.files.entry(key).or_default().extend(part);
    }
    let mut state = lock(state);
    match state.streams.get_mut(&id) {
        Some(stream) if !stream.is_metadata => stream.data = sequence,
        _ => return Err(io::ErrorKind::NotFound.into()),
    }
    Ok(())
}
