//! B3: the channel of programs, traced or not.

use std::time::Duration;

use usertrace::control::Client;

use super::program::{Program, client, error};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("b3_a_program_that_cannot_be_traced", untraced),
    ("b3_ten_thousand_events", ten_thousand_events),
    ("b3_a_handler_that_was_there_is_called", chaining),
    ("b3_nothing_is_there_unless_asked_for", nothing_when_off),
    ("b3_children_have_channels_of_their_own", || {
        ["signal", "thread"].iter().for_each(|mode| children(mode));
    }),
];

fn untraced() {
    let program = Program::start(&[("USERTRACE_CONTROL", "signal")]);
    let client = program.client();
    assert_eq!(client.events().unwrap().len(), 1);
    for request in ["flush", "initialise", "finalise"] {
        let error = error(client.ask(request));
        assert!(
            error.contains("no buffers: USERTRACE_BACKEND is off"),
            "{error}"
        );
    }
    program.kill();
}

fn ten_thousand_events() {
    for mode in ["signal", "thread"] {
        let mut program = Program::start(&[("USERTRACE_CONTROL", mode)]);
        assert_eq!(program.tell("declare 10000"), "0");
        let events = program.client().events().unwrap();
        assert_eq!(events.len(), 10_001);
        let last = "many:event_9999 6 u64 first;str second";
        assert_eq!(events[10_000].description, last);
        program.kill();
    }
}

fn chaining() {
    let mut program = Program::start(&[]);
    assert_eq!(program.tell("handle"), "Ok(())");
    assert_eq!(program.tell("raise"), "1");
    let client = program.client();
    for _ in 0..10 {
        assert_eq!(client.events().unwrap().len(), 1);
    }
    // It was not called for what is the channel's.
    assert_eq!(program.tell("raise"), "2");
    drop(client);
    assert_eq!(program.tell("handle"), "Err(Started)");
    program.kill();
}

fn nothing_when_off() {
    let mut off = Program::start(&[]);
    let error = error(Client::connect(off.pid(), Duration::from_secs(1)));
    assert!(error.contains("USERTRACE_CONTROL"), "{error}");
    let nothing = off.tell("surroundings");
    assert!(nothing.starts_with("1 "), "{nothing}");
    assert!(!nothing.contains("socket"), "{nothing}");
    let mut unknown = Program::start(&[("USERTRACE_CONTROL", "on")]);
    assert_eq!(unknown.tell("surroundings"), nothing);
    // The test would see them.
    let mut signal = Program::start(&[("USERTRACE_CONTROL", "signal")]);
    assert!(signal.tell("surroundings").contains("socket"));
    let mut thread = Program::start(&[("USERTRACE_CONTROL", "thread")]);
    assert!(thread.tell("surroundings").starts_with("2 "));
    [off, unknown, signal, thread]
        .into_iter()
        .for_each(Program::kill);
}

fn children(mode: &str) {
    let mut program = Program::start(&[("USERTRACE_CONTROL", mode)]);
    let of_parent = program.client();
    of_parent.ask("connect test:numbered count").unwrap();
    let child: u32 = program.tell("fork").parse().unwrap();
    // It says its number when it may not be there yet.
    let of_child = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        Client::connect(child, Duration::from_secs(20)).ok()
    });
    let of_child = of_child.expect("the child has a channel");
    assert_eq!(of_child.events().unwrap().len(), 1);
    // It has what its parent had, and undoes it for itself.
    assert_eq!(of_child.ask("disconnect test:numbered count").unwrap(), "1");
    assert_eq!(of_parent.ask("activate test:numbered count").unwrap(), "1");
    assert_eq!(of_parent.events().unwrap().len(), 1);
    drop(of_child);
    // SAFETY: the program's child, which waits.
    unsafe { libc::kill(child as i32, libc::SIGKILL) };
    assert_eq!(client(program.pid()).events().unwrap().len(), 1);
    program.kill();
}
