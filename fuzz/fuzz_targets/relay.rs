//! A client of a relay that answers any bytes: each session ends, with an error that can be
//! printed.
//!
//! The input is everything that the relay says on the control connection, which it then ends.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use usertrace_os::socket;
use usertrace_relay::message::escaped;
use usertrace_relay::{
    Address, Cancel, Connection, Index, NO_PACKET, RelayError, Session, SourceError, TimeLimits,
};

/// What the relay answers next.
static ANSWER: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// A relay whose threads run until the end.
static RELAY: LazyLock<Address> = LazyLock::new(|| {
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (control, data) = (listen(), listen());
    let port = |of: &TcpListener| of.local_addr().expect("a bound socket").port();
    let address = Address {
        host: "127.0.0.1".into(),
        control: port(&control),
        data: port(&data),
    };
    thread::spawn(move || {
        for socket in control.incoming().flatten() {
            let answer = ANSWER.lock().unwrap_or_else(PoisonError::into_inner);
            serve(socket, &answer.clone());
        }
    });
    thread::spawn(move || {
        data.incoming()
            .flatten()
            .for_each(|socket| serve(socket, &[]))
    });
    address
});

/// Sends an answer, and takes everything until the client closes the connection.
fn serve(mut socket: TcpStream, answer: &[u8]) {
    // The client may have closed it already.
    let _ = socket.write_all(answer);
    if !answer.is_empty() {
        let _ = socket.shutdown(Shutdown::Write);
    }
    let mut buffer = [0; 4096];
    while socket.read(&mut buffer).is_ok_and(|read| read > 0) {}
}

/// Uses each command.
fn send() -> Result<(), RelayError> {
    let session = Session {
        name: "web".into(),
        host: "host".into(),
        base_path: "web-1".into(),
        live_us: 1,
        created: 1,
        uuid: [1; 16],
    };
    let limits = TimeLimits {
        connect: Duration::from_secs(1),
        answer: Duration::from_secs(1),
    };
    let cancel = Cancel::default();
    // Without a reset at the end, ports are used up for a minute.
    let prepare = |socket: &TcpStream| socket::drop_queue_on_close(socket);
    let mut connection = Connection::open(&RELAY, &session, limits, &cancel, &prepare)?;
    let path = connection.path();
    assert!(
        path.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
        "{path:?}"
    );
    let metadata = connection.add_stream("prog", "metadata")?;
    let stream = connection.add_stream("prog", "main_0")?;
    connection.publish_streams()?;
    connection.send_metadata(metadata, b"/* CTF 1.8 */\n")?;
    for n in 0..3 {
        let sent = connection.send_packet(stream, n, 4, &mut &[0; 4][..]);
        sent.map_err(|error| match error {
            SourceError::Relay(error) => error,
            SourceError::Source(error) => panic!("{error}"),
        })?;
        connection.send_index(stream, n, &Index::default())?;
    }
    connection.send_beacon(stream, 0, 5)?;
    connection.reset_metadata(metadata, 1)?;
    connection.is_pending(stream, 2)?;
    connection.close_stream(stream, 2)?;
    connection.close_stream(metadata, NO_PACKET)?;
    connection.finish()
}

fuzz_target!(|bytes: &[u8]| {
    // Without an answer, the client waits for as long as it may.
    if bytes.is_empty() {
        return;
    }
    *ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
    if let Err(error) = send() {
        let text = error.to_string();
        assert!(
            text.len() < 1000 && !text.contains(char::is_control),
            "{text:?}"
        );
    }
    assert!(escaped(bytes).is_ascii());
});
