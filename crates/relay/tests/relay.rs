//! The client against a relay in this process, which breaks at any byte.

use std::io;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use usertrace_relay::fake::{FakeRelay, Fault, FaultKind};
use usertrace_relay::{
    Cancel, Connection, Index, NO_PACKET, RelayError, Session, SourceError, TimeLimits, message,
};

/// Short, so that stalls end soon.
const LIMITS: TimeLimits = TimeLimits {
    connect: Duration::from_millis(500),
    answer: Duration::from_millis(50),
};

/// Longer than any step takes on a busy machine: only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(120);

const METADATA: &[u8] = b"/* CTF 1.8 */\n";

fn session() -> Session {
    Session {
        name: "web".into(),
        host: "host".into(),
        base_path: "web-1".into(),
        live_us: 0,
        created: 1,
        uuid: [1; 16],
    }
}

fn open(relay: &FakeRelay, limits: TimeLimits) -> Result<Connection, RelayError> {
    let cancel = Cancel::default();
    Connection::open(relay.address(), &session(), limits, &cancel, &|_| Ok(()))
}

/// Everything that a sender does once.
fn send(relay: &FakeRelay, limits: TimeLimits) -> Result<(), RelayError> {
    let mut connection = open(relay, limits)?;
    let metadata = connection.add_stream("chunk/prog-1", "metadata")?;
    let stream = connection.add_stream("chunk/prog-1", "main_0")?;
    connection.publish_streams()?;
    connection.send_metadata(metadata, METADATA)?;
    for n in 0..3u64 {
        let index = Index {
            packet_size: 800,
            packet: n,
            ..Index::default()
        };
        let packet = [n as u8; 100];
        let sent = connection.send_packet(stream, n, 100, &mut &packet[..]);
        sent.map_err(|error| match error {
            SourceError::Relay(error) => error,
            SourceError::Source(error) => panic!("{error}"),
        })?;
        connection.send_index(stream, n, &index)?;
    }
    connection.reset_metadata(metadata, 1)?;
    connection.send_metadata(metadata, METADATA)?;
    let begun = Instant::now();
    while connection.is_pending(stream, 2)? {
        if begun.elapsed() > limits.answer.max(Duration::from_secs(5)) {
            let what = "confirm a packet";
            return Err(RelayError::TimedOut { what });
        }
    }
    connection.close_stream(stream, 2)?;
    connection.close_stream(metadata, NO_PACKET)?;
    connection.finish()
}

fn is_complete(relay: &FakeRelay) -> bool {
    let files = relay.files();
    let data: Vec<u8> = (0..3).flat_map(|n| [n; 100]).collect();
    files.get("host/web-1/chunk/prog-1/main_0") == Some(&data)
        && files.get("host/web-1/chunk/prog-1/metadata") == Some(&METADATA.to_vec())
}

#[test]
fn streams_arrive_completely() {
    let relay = FakeRelay::start();
    send(&relay, TimeLimits::default()).unwrap();
    assert!(is_complete(&relay), "{:?}", relay.files());
    assert_eq!(relay.closed().len(), 2);
    assert_eq!(relay.sessions(), ["host/web-1"]);
}

/// A session with the same names replaces what an earlier one left, wherever that broke.
#[test]
fn connection_that_breaks_at_any_byte_is_an_error_and_leaves_nothing_twice() {
    // The control connection has about 1,000 bytes, the data connection 400.
    for (control, data) in
        [(true, 0..=1100), (false, 0..=410)]
            .into_iter()
            .flat_map(|(is_control, range)| {
                range.step_by(3).map(move |after| {
                    let kind = FaultKind::Close;
                    let fault = Some(Fault { after, kind });
                    match is_control {
                        true => (fault, None),
                        false => (None, fault),
                    }
                })
            })
    {
        let relay = FakeRelay::start();
        relay.add_faults(control, data);
        let limits = TimeLimits {
            answer: Duration::from_secs(5),
            ..LIMITS
        };
        let first = send(&relay, limits);
        if first.is_ok() {
            assert!(is_complete(&relay), "{control:?} {data:?}");
        }
        send(&relay, TimeLimits::default()).unwrap();
        assert!(is_complete(&relay), "{control:?} {data:?}");
    }
}

#[test]
fn stalled_relay_is_an_error_in_time() {
    for after in (0..1000).step_by(97) {
        let relay = FakeRelay::start();
        let kind = FaultKind::Stall;
        relay.add_faults(Some(Fault { after, kind }), None);
        let begun = Instant::now();
        // The fault may be beyond the last byte.
        let _ = send(&relay, LIMITS);
        assert!(begun.elapsed() < PATIENCE, "{after}");
    }
}

#[test]
fn cancelled_sender_gives_up_at_once() {
    let relay = FakeRelay::start();
    let kind = FaultKind::Stall;
    relay.add_faults(Some(Fault { after: 0, kind }), None);
    let cancel = Cancel::default();
    cancel.cancel();
    let limits = TimeLimits::default();
    let error = Connection::open(relay.address(), &session(), limits, &cancel, &|_| Ok(()));
    assert!(matches!(error, Err(RelayError::Cancelled)), "{error:?}");
}

#[test]
fn failed_source_is_no_error_of_the_relay() {
    let relay = FakeRelay::start();
    let mut connection = open(&relay, TimeLimits::default()).unwrap();
    let stream = connection.add_stream("a", "b").unwrap();
    let error = connection.send_packet(stream, 0, 10, &mut &b"short"[..]);
    let Err(SourceError::Source(error)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn nobody_listens_is_an_error_with_the_address() {
    let relay = FakeRelay::start();
    let mut address = relay.address().clone();
    // Nobody may listen on this port without privileges.
    address.control = 1;
    let cancel = Cancel::default();
    let error = Connection::open(&address, &session(), LIMITS, &cancel, &|_| Ok(()));
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "cannot connect to 127.0.0.1:1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Wrong bytes from any position on are an error, or change nothing.
    #[test]
    fn garbage_never_hangs_nor_panics(after in 0usize..600, byte in 1u8..=255) {
        let relay = FakeRelay::start();
        let kind = FaultKind::Garbage(byte);
        relay.add_faults(Some(Fault { after, kind }), None);
        let begun = Instant::now();
        let limits = TimeLimits { answer: Duration::from_millis(300), ..LIMITS };
        // Whether it fails depends on the bytes.
        let _ = send(&relay, limits);
        prop_assert!(begun.elapsed() < PATIENCE);
    }

    /// Parsers take any bytes, and no length leads to a large allocation.
    #[test]
    fn replies_of_any_bytes_are_parsed(bytes in proptest::array::uniform16(any::<u8>())) {
        if let Ok(len) = message::parse_session(bytes) {
            prop_assert!(len <= message::MAX_PATH);
        }
        let first = |n: usize| bytes[..n].to_vec();
        let _ = message::parse_version(first(8).try_into().unwrap());
        let _ = message::parse_stream(first(12).try_into().unwrap());
        let _ = message::parse_pending(first(4).try_into().unwrap());
    }

    #[test]
    fn escaped_names_are_printable(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let text = message::escaped(&bytes);
        prop_assert!(text.bytes().all(|b| (b' '..=b'~').contains(&b)));
    }
}
