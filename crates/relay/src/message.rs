//! Messages of the protocol. All numbers are big-endian, and nothing is padded.

use crate::RelayError;

/// Version of the protocol that this crate speaks.
pub const VERSION: (u32, u32) = (2, 11);
/// The reply of success.
pub const OK: u32 = 10;
/// Sequence number that stands for no packet.
pub const NO_PACKET: u64 = u64::MAX;
/// Length of the header of a command.
pub const COMMAND_LEN: usize = 24;
/// Length of the header of a packet.
pub const DATA_LEN: usize = 32;
/// Longest path in a reply, with its NUL: the limit that lttng-tools has.
pub const MAX_PATH: u32 = 4096;

/// Commands of the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// Adds a stream to the session.
    AddStream = 1,
    /// Creates the session of the connection.
    CreateSession = 2,
    /// Agrees on a version.
    Version = 5,
    /// Appends metadata. It has no reply.
    SendMetadata = 6,
    /// No packet follows.
    CloseStream = 7,
    /// Asks whether a packet was written.
    DataPending = 8,
    /// Describes a packet.
    SendIndex = 13,
    /// Publishes new streams to viewers.
    StreamsSent = 16,
    /// Empties the file of a metadata stream.
    ResetMetadata = 17,
    /// Creates the chunk in which streams are.
    CreateChunk = 19,
}

impl Command {
    /// The command with this number.
    #[must_use]
    pub fn of_number(number: u32) -> Option<Self> {
        [
            Self::AddStream,
            Self::CreateSession,
            Self::Version,
            Self::SendMetadata,
            Self::CloseStream,
            Self::DataPending,
            Self::SendIndex,
            Self::StreamsSent,
            Self::ResetMetadata,
            Self::CreateChunk,
        ]
        .into_iter()
        .find(|command| *command as u32 == number)
    }

    /// What it does, for errors.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::AddStream => "add a stream",
            Self::CreateSession => "create a session",
            Self::Version => "say its version",
            Self::SendMetadata => "take metadata",
            Self::CloseStream => "close a stream",
            Self::DataPending => "confirm a packet",
            Self::SendIndex => "take an index",
            Self::StreamsSent => "publish streams",
            Self::ResetMetadata => "replace metadata",
            Self::CreateChunk => "create a chunk",
        }
    }
}

/// The session of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Name of the session, as viewers see it.
    pub name: String,
    /// Name of the host.
    pub host: String,
    /// Directory below the host's. A session with the same one replaces the streams of an earlier
    /// one that have the same names.
    pub base_path: String,
    /// Period of live sessions in µs; 0 for others.
    pub live_us: u32,
    /// Start of the recording, in seconds since 1970.
    pub created: u64,
    /// Identifies the sender. Must differ between connections, and not be zero.
    pub uuid: [u8; 16],
}

/// The description of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Bits of the packet.
    pub packet_size: u64,
    /// Bits of it that are used.
    pub content_size: u64,
    /// Time of its first event, in cycles.
    pub begin: u64,
    /// Time of its last event.
    pub end: u64,
    /// Discarded events so far.
    pub discarded: u64,
    /// Id of the class of streams.
    pub class: u64,
    /// Number of the stream in its class.
    pub instance: u64,
    /// Number of the packet.
    pub packet: u64,
}

/// Builds a message.
#[derive(Default)]
struct Builder(Vec<u8>);

impl Builder {
    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Adds a text with a NUL. A NUL within would end it earlier than its length says.
    fn text(self, text: &str) -> Self {
        let clean = text.replace('\0', "_");
        self.bytes(clean.as_bytes()).u8(0)
    }
}

/// Length of a text with its NUL.
fn len(text: &str) -> u32 {
    u32::try_from(text.len() + 1).unwrap_or(u32::MAX)
}

/// A command with its payload.
#[must_use]
pub fn command(command: Command, payload: &[u8]) -> Vec<u8> {
    let header = Builder::default().u64(0).u64(payload.len() as u64);
    header.u32(command as u32).u32(0).bytes(payload).0
}

/// The payload of [`Command::Version`].
#[must_use]
pub fn version() -> Vec<u8> {
    Builder::default().u32(VERSION.0).u32(VERSION.1).0
}

/// The payload of [`Command::CreateSession`].
#[must_use]
pub fn create_session(session: &Session) -> Vec<u8> {
    let lengths = Builder::default()
        .u32(len(&session.name))
        .u32(len(&session.host))
        .u32(len(&session.base_path));
    // It is no snapshot, the name does not contain the time, and there is no chunk yet.
    let options = lengths.u32(session.live_us).u8(0).u8(0);
    let identity = options.bytes(&session.uuid).u64(0).u64(session.created);
    let names = identity.u8(0).u64(0).text(&session.name);
    names.text(&session.host).text(&session.base_path).0
}

/// The payload of [`Command::CreateChunk`]: the only chunk of the session, without a name.
#[must_use]
pub fn create_chunk(created: u64) -> Vec<u8> {
    Builder::default().u64(0).u64(created).u32(0).0
}

/// The payload of [`Command::AddStream`]: the stream `name` in the directory `path`.
#[must_use]
pub fn add_stream(path: &str, name: &str) -> Vec<u8> {
    let lengths = Builder::default().u32(len(name)).u32(len(path));
    // One file without a limit, in the session's chunk.
    let file = lengths.u64(0).u64(0).u64(0);
    file.text(name).text(path).0
}

/// The payload of [`Command::SendMetadata`].
#[must_use]
pub fn metadata(stream: u64, text: &[u8]) -> Vec<u8> {
    Builder::default().u64(stream).u32(0).bytes(text).0
}

/// The payload of commands about a stream with one number: [`Command::CloseStream`],
/// [`Command::DataPending`] and [`Command::ResetMetadata`].
#[must_use]
pub fn of_stream(stream: u64, number: u64) -> Vec<u8> {
    Builder::default().u64(stream).u64(number).0
}

/// The payload of [`Command::SendIndex`].
#[must_use]
pub fn index(stream: u64, sequence: u64, index: &Index) -> Vec<u8> {
    let numbers = [
        stream,
        sequence,
        index.packet_size,
        index.content_size,
        index.begin,
        index.end,
        index.discarded,
        index.class,
        index.instance,
        index.packet,
    ];
    numbers.into_iter().fold(Builder::default(), Builder::u64).0
}

/// The header of a packet on the data connection.
#[must_use]
pub fn data(stream: u64, sequence: u64, len: u32) -> Vec<u8> {
    let header = Builder::default().u64(0).u64(stream).u64(sequence);
    header.u32(len).u32(0).0
}

/// Reads numbers from a reply of known length.
fn number<const N: usize>(reply: &[u8], at: usize) -> [u8; N] {
    let bytes = reply.get(at..).and_then(<[u8]>::first_chunk::<N>);
    bytes.copied().unwrap_or([0; N])
}

fn u32_at(reply: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(number(reply, at))
}

fn u64_at(reply: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(number(reply, at))
}

fn accepted(command: Command, code: u32) -> Result<(), RelayError> {
    let what = command.what();
    match code {
        OK => Ok(()),
        code => Err(RelayError::Refused { what, code }),
    }
}

/// Parses a reply that has only a code.
///
/// # Errors
/// If the relay refused the command.
pub fn parse_code(command: Command, reply: [u8; 4]) -> Result<(), RelayError> {
    accepted(command, u32::from_be_bytes(reply))
}

/// Checks the relay's version.
///
/// # Errors
/// If this crate does not speak it.
pub fn parse_version(reply: [u8; 8]) -> Result<(), RelayError> {
    let (major, minor) = (u32_at(&reply, 0), u32_at(&reply, 4));
    match major == VERSION.0 && minor >= VERSION.1 {
        true => Ok(()),
        false => Err(RelayError::Version { major, minor }),
    }
}

/// Parses the first part of the reply to [`Command::CreateSession`], and returns the length of the
/// path that follows.
///
/// # Errors
/// If there is no session, or the path is too long.
pub fn parse_session(reply: [u8; 16]) -> Result<u32, RelayError> {
    let command = Command::CreateSession;
    accepted(command, u32_at(&reply, 8))?;
    match u32_at(&reply, 12) {
        len @ ..=MAX_PATH => Ok(len),
        len => Err(RelayError::Invalid {
            what: command.what(),
            why: format!("a path of {len} bytes"),
        }),
    }
}

/// Parses the reply to [`Command::AddStream`], and returns the stream's id.
///
/// # Errors
/// If the relay refused the stream.
pub fn parse_stream(reply: [u8; 12]) -> Result<u64, RelayError> {
    accepted(Command::AddStream, u32_at(&reply, 8))?;
    Ok(u64_at(&reply, 0))
}

/// Parses the reply to [`Command::DataPending`]: whether the packet is not written yet.
///
/// # Errors
/// If it is neither yes nor no.
pub fn parse_pending(reply: [u8; 4]) -> Result<bool, RelayError> {
    match u32::from_be_bytes(reply) {
        0 => Ok(false),
        1 => Ok(true),
        code => accepted(Command::DataPending, code).and_then(|()| {
            Err(RelayError::Invalid {
                what: Command::DataPending.what(),
                why: format!("{code} is neither 0 nor 1"),
            })
        }),
    }
}

/// Escapes a path that came from a relay.
#[must_use]
pub fn escaped(path: &[u8]) -> String {
    let text = path.strip_suffix(b"\0").unwrap_or(path);
    text.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets as in `struct lttcomm_relayd_*` of lttng-tools, which are packed.
    #[test]
    fn messages_have_the_layout_of_lttng() {
        let session = Session {
            name: "web".into(),
            host: "h".into(),
            base_path: "web-1".into(),
            live_us: 0x0102_0304,
            created: 7,
            uuid: [9; 16],
        };
        let bytes = create_session(&session);
        assert_eq!(bytes.len(), 59 + 4 + 2 + 6);
        assert_eq!(bytes[..12], [0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 6]);
        assert_eq!(bytes[12..18], [1, 2, 3, 4, 0, 0]);
        assert_eq!(bytes[18..34], [9; 16]);
        assert_eq!(bytes[42..50], 7u64.to_be_bytes());
        assert_eq!(bytes[59..], *b"web\0h\0web-1\0");
        assert_eq!(add_stream("a/b", "c")[32..], *b"c\0a/b\0");
        assert_eq!(index(1, 2, &Index::default()).len(), 80);
        assert_eq!(data(1, 2, 3).len(), DATA_LEN);
        let command = command(Command::StreamsSent, &[]);
        assert_eq!(command.len(), COMMAND_LEN);
        assert_eq!(command[16..20], [0, 0, 0, 16]);
        assert_eq!(create_chunk(5).len(), 20);
        assert_eq!(metadata(3, b"x")[8..], [0, 0, 0, 0, b'x']);
    }

    #[test]
    fn texts_end_where_their_length_says() {
        assert_eq!(add_stream("a\0b", "c")[32..], *b"c\0a_b\0");
    }

    #[test]
    fn commands_are_known_by_their_numbers() {
        for number in 0..100 {
            if let Some(command) = Command::of_number(number) {
                assert_eq!(command as u32, number);
                assert!(!command.what().is_empty());
            }
        }
    }

    #[test]
    fn unsuitable_versions_are_rejected() {
        let version = |major: u32, minor: u32| {
            let mut reply = [0; 8];
            reply[..4].copy_from_slice(&major.to_be_bytes());
            reply[4..].copy_from_slice(&minor.to_be_bytes());
            parse_version(reply)
        };
        for minor in [11, 13, 16, u32::MAX] {
            version(2, minor).unwrap();
        }
        for (major, minor) in [(2, 10), (1, 13), (3, 0), (0, 0)] {
            let error = version(major, minor).unwrap_err().to_string();
            assert!(error.contains(&format!("{major}.{minor}")), "{error}");
        }
    }

    #[test]
    fn names_of_a_relay_are_escaped() {
        assert_eq!(escaped(b"a\x1b[31m\xff\n\0"), "a\\x1b[31m\\xff\\n");
    }
}
