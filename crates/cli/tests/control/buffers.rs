//! B3: what the channel can do with a program that is traced, and who may do it.

use super::backend::Trace;
use super::program::Program;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("b3_events_are_listed_and_buffers_controlled", || {
        ["signal", "thread", "signal:50"]
            .iter()
            .for_each(|mode| buffers(mode));
    }),
    ("b3_another_user_is_refused", another_user),
];

/// Requirements: B3
fn buffers(mode: &str) {
    let trace = Trace::new();
    let mut program = Program::traced(mode, &trace);
    let client = program.client();
    let events = client.events().unwrap();
    let listed: Vec<_> = events
        .iter()
        .map(|event| (event.description.as_str(), event.enabled))
        .collect();
    assert_eq!(listed, [("test:numbered 6 u64 n", true)]);
    let reader = trace.reader();
    assert_eq!(program.tell("event 1"), "Recorded");
    assert_eq!(client.ask("flush").unwrap(), "");
    reader.wait_until_woken();
    assert_eq!(client.ask("finalise").unwrap(), "");
    assert_eq!(program.tell("event 2"), "Off");
    assert!(!client.events().unwrap()[0].enabled);
    assert_eq!(client.ask("initialise").unwrap(), "");
    assert_eq!(program.tell("event 3"), "Recorded");
    drop(client);
    assert!(program.end().success());
    assert_eq!(trace.events(), 2);
}

fn another_user() {
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: b3_another_user_is_refused is for root");
        return;
    }
    let trace = Trace::new();
    let program = Program::traced("thread", &trace);
    let mut stranger = Program::start(&[]);
    let said = stranger.tell(&format!("stranger {}", program.pid()));
    assert_eq!(
        said,
        "Err(\"the process says: this process is another user's\")"
    );
    // Root, and its own user, are none.
    assert_eq!(program.client().events().unwrap().len(), 1);
    program.kill();
    stranger.kill();
}
