//! Requests to a traced program, and users whose requests it rejects (B3).

use super::{Backend, Program, Reader as _, Tests, Trace as _};

impl<B: Backend> Tests<B> {
    pub const BUFFERS: &[(&str, fn())] = &[
        ("controller_lists_events_and_controls_buffers", || {
            ["signal", "thread", "signal:50"]
                .iter()
                .for_each(|mode| buffers::<B>(mode));
        }),
        ("another_user_is_rejected", another_user::<B>),
    ];
}

/// Requirements: B3
fn buffers<B: Backend>(mode: &str) {
    let trace = B::Trace::new();
    let mut program = Program::<B>::traced(mode, &trace);
    let client = program.client();
    let events = client.events().unwrap();
    let listed: Vec<_> = events
        .iter()
        .map(|event| (event.description.as_str(), event.enabled))
        .collect();
    assert_eq!(listed, [("test:numbered 6 u64 n", true)]);
    let reader = trace.reader();
    assert_eq!(program.request("event 1"), "Recorded");
    assert_eq!(client.ask("flush").unwrap(), "");
    reader.wait_until_woken();
    assert_eq!(client.ask("finalise").unwrap(), "");
    assert_eq!(program.request("event 2"), "Off");
    assert!(!client.events().unwrap()[0].enabled);
    assert_eq!(client.ask("initialise").unwrap(), "");
    assert_eq!(program.request("event 3"), "Recorded");
    drop(client);
    assert!(program.end().success());
    assert_eq!(trace.events(), 2);
}

/// Requirements: B3
fn another_user<B: Backend>() {
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: another_user_is_rejected is for root");
        return;
    }
    let trace = B::Trace::new();
    let program = Program::<B>::traced("thread", &trace);
    let mut stranger = Program::<B>::start(&[]);
    let answer = stranger.request(&format!("stranger {}", program.pid()));
    assert_eq!(
        answer,
        "Err(\"the process says: this process is another user's\")"
    );
    // Root and the program's own user are accepted.
    assert_eq!(program.client().events().unwrap().len(), 1);
    program.kill();
    stranger.kill();
}
