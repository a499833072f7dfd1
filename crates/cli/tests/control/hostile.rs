//! Malformed packets, to the program and from it (F4).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use usertrace_control::{Client, Report};
use usertrace_scenarios::control::error;

use crate::Program;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("random_requests_do_no_harm", requests),
    ("random_answers_do_no_harm", answers),
    ("too_many_controllers_are_rejected", too_many),
];

fn address(pid: u32) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let name = format!("usertrace/control/{pid}");
    for (to, byte) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    (address, (2 + 1 + name.len()) as libc::socklen_t)
}

fn socket() -> OwnedFd {
    // SAFETY: a new descriptor.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0);
        OwnedFd::from_raw_fd(socket)
    }
}

fn send(socket: &OwnedFd, packet: &[u8]) -> bool {
    let (from, flags) = (packet.as_ptr().cast(), libc::MSG_NOSIGNAL);
    // SAFETY: there is that much.
    let sent = unsafe { libc::send(socket.as_raw_fd(), from, packet.len(), flags) };
    sent == packet.len() as isize
}

fn receive(socket: &OwnedFd) -> Vec<u8> {
    let mut room = vec![0; 1 << 16];
    // SAFETY: there is that much room.
    let len = unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
    room.truncate(usize::try_from(len).unwrap());
    room
}

fn connect(pid: u32) -> OwnedFd {
    let (socket, (address, len)) = (socket(), address(pid));
    // SAFETY: the address is that long.
    let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) };
    assert_eq!(done, 0);
    socket
}

/// Random bytes, and almost valid requests. None of them loads a library.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "1",
        "2",
        "list",
        "probes",
        "connect",
        "activate",
        "disconnect",
        "flush",
        "watch",
        "load",
        "-1",
        "18446744073709551616",
        "test:*",
        "count",
        "*",
        "x",
        "",
        "\n",
        "\0",
    ]);
    let text = prop::collection::vec(words, 1..6).prop_map(|words| words.join(" ").into_bytes());
    // An empty packet is read as the end of the connection.
    prop_oneof![text, prop::collection::vec(any::<u8>(), 1..300)]
        .prop_filter("empty", |packet| !packet.is_empty())
}

/// Requirements: F4
fn requests() {
    for mode in ["signal", "thread"] {
        let mut program = Program::start(&[("USERTRACE_CONTROL", mode)]);
        let socket = connect(program.pid());
        let mut runner = TestRunner::new(Config::with_cases(300));
        let answered = runner.run(&packet(), |packet| {
            prop_assert!(send(&socket, &packet));
            let answer = String::from_utf8(receive(&socket)).unwrap();
            prop_assert!(
                answer.starts_with("1 ok") || answer.starts_with("1 error "),
                "{answer}"
            );
            Ok(())
        });
        answered.unwrap();
        assert!(send(&socket, &[b'x'; 20_000]));
        assert_eq!(receive(&socket), b"1 error the request is too long");
        // An empty packet ends the connection.
        assert!(send(&socket, b""));
        assert_eq!(receive(&socket), b"");
        assert_eq!(program.client().events().unwrap().len(), 1);
        assert_eq!(program.request("event 1"), "Off");
        program.kill();
    }
}

/// This process plays a program that answers anything.
///
/// Requirements: F4
fn answers() {
    let pid = std::process::id();
    let (listener, (address, len)) = (socket(), address(pid));
    // SAFETY: the address is that long.
    unsafe {
        let bound = libc::bind(listener.as_raw_fd(), (&raw const address).cast(), len);
        assert_eq!((bound, libc::listen(listener.as_raw_fd(), 8)), (0, 0));
    }
    let patient = Duration::from_secs(120);
    let pair = |patience| {
        let client = Client::connect(pid, patience).unwrap();
        let null = std::ptr::null_mut::<libc::sockaddr>();
        // SAFETY: the address is not asked for.
        let other = unsafe { libc::accept(listener.as_raw_fd(), null, null.cast()) };
        // SAFETY: a new descriptor.
        (client, unsafe { OwnedFd::from_raw_fd(other) })
    };
    for (answer, expected) in [
        (&b"1 ok 3\n0 a:b 6\nnext 0"[..], "goes on with"),
        (b"1 ok 3\n0 a:b 6\nnext -1", "goes on with"),
        (b"1 ok 3\n7 a:b 6\nend", "a list of events has"),
        (b"1 ok", "goes on with"),
        (b"2 ok", "another version"),
        (b"1 maybe", "no answer"),
        (b"1 \xff", "no text"),
        (b"1 error \x1b[31mred", "\u{fffd}[31mred"),
        (&[b'1'; 20_000], "too long a packet"),
        (b"", "closed the channel"),
    ] {
        let (client, other) = pair(patient);
        assert!(send(&other, answer));
        let text = error(client.events());
        assert!(text.contains(expected), "{text}");
    }
    let (client, _other) = pair(Duration::from_millis(50));
    let text = error(client.events());
    assert!(text.contains("does not answer"), "{text}");

    let strategy = prop::collection::vec(any::<u8>(), 1..300);
    let mut runner = TestRunner::new(Config::with_cases(200));
    let (client, other) = pair(patient);
    let any = runner.run(&strategy, |mut packet| {
        packet.splice(0..0, *b"1 report ");
        prop_assert!(send(&other, &packet));
        prop_assert!(!matches!(client.report(), Ok(Report::Closed)));
        Ok(())
    });
    any.unwrap();
}

/// Requirements: F4
fn too_many() {
    let program = Program::start(&[("USERTRACE_CONTROL", "signal")]);
    let clients: Vec<_> = (0..8).map(|_| program.client()).collect();
    clients
        .iter()
        .for_each(|client| drop(client.ask("watch").unwrap()));
    let text = error(program.client().ask("list 0"));
    assert!(text.contains("there are too many controllers"), "{text}");
    drop(clients);
    assert_eq!(program.client().events().unwrap().len(), 1);
    program.kill();
}
