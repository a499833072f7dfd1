//! A client of a relay that answers any bytes: each session ends, with an error that can be
//! printed.
//!
//! The input is everything that the relay says on the control connection, which it then ends.
#![no_main]

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use usertrace_os::socket;
use usertrace_relay::message::escaped;
use usertrace_relay::{
    Address, Cancel, Connection, Index, NO_PACKET, RelayError, Session, SourceError, TimeLimits,
};

/// The longest answer, in bytes: less than sockets buffer while nobody reads them.
const LONGEST: usize = 32 << 10;

/// A relay in the client's own thread. It answers when a connection is made, as all that it says is
/// known then. A thread of its own would cost each session several switches.
struct Relay {
    control: TcpListener,
    data: TcpListener,
    /// The thread that reads data, and so closes the connection when the client has ended.
    reader: Sender<TcpStream>,
}

static RELAY: LazyLock<Relay> = LazyLock::new(|| {
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (reader, connections) = channel::<TcpStream>();
    thread::spawn(move || {
        for mut connection in connections {
            let mut buffer = [0; 4096];
            while connection.read(&mut buffer).is_ok_and(|read| read > 0) {}
        }
    });
    Relay {
        control: listen(),
        data: listen(),
        reader,
    }
});

fn port(of: &TcpListener) -> u16 {
    of.local_addr().expect("a bound socket").port()
}

impl Relay {
    fn address(&self) -> Address {
        Address {
            host: "127.0.0.1".into(),
            control: port(&self.control),
            data: port(&self.data),
        }
    }

    /// Accepts the connection that the client has just made. Returns it if it is the control one.
    fn accept(&self, client: &TcpStream, answer: &[u8]) -> io::Result<Option<TcpStream>> {
        if client.peer_addr()?.port() == port(&self.data) {
            let (connection, _) = self.data.accept()?;
            let _ = self.reader.send(connection);
            return Ok(None);
        }
        let (mut connection, _) = self.control.accept()?;
        connection.write_all(answer)?;
        connection.shutdown(Shutdown::Write)?;
        Ok(Some(connection))
    }
}

/// Uses each command, with a relay that answers this.
fn send(answer: &[u8]) -> Result<(), RelayError> {
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
    // Open until the session has ended.
    let control = RefCell::new(None);
    let prepare = |client: &TcpStream| {
        // Without a reset at the end, ports are used up for a minute.
        socket::drop_queue_on_close(client)?;
        if let Some(accepted) = RELAY.accept(client, answer)? {
            control.replace(Some(accepted));
        }
        Ok(())
    };
    let address = RELAY.address();
    let mut connection = Connection::open(&address, &session, limits, &cancel, &prepare)?;
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
    if let Err(error) = send(&bytes[..bytes.len().min(LONGEST)]) {
        let text = error.to_string();
        assert!(
            text.len() < 1000 && !text.contains(char::is_control),
            "{text:?}"
        );
    }
    assert!(escaped(bytes).is_ascii());
});
