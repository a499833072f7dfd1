//! Probes over the control channel, and libraries of probes (B2).

use std::path::Path;
use std::time::Duration;

use usertrace_control::{Client, ListedProbe};

use super::{Backend, Program, Tests, Trace as _, error};

impl<B: Backend> Tests<B> {
    pub const PROBES: &[(&str, fn())] = &[
        ("probes_are_connected_over_the_channel", || {
            ["signal", "thread"]
                .iter()
                .for_each(|mode| connected::<B>(mode));
        }),
        ("library_of_probes_is_loaded", loaded::<B>),
        ("library_of_probes_is_unloaded", unloaded::<B>),
        (
            "signal_handler_leaves_loading_to_the_program",
            loaded_by_serve::<B>,
        ),
    ];
}

/// Requirements: B2
fn connected<B: Backend>(mode: &str) {
    let trace = B::Trace::new();
    let traced = Program::<B>::traced(mode, &trace);
    let untraced = Program::<B>::start(&[("USERTRACE_CONTROL", mode)]);
    for (mut program, outcome) in [(traced, "Recorded"), (untraced, "Off")] {
        let client = program.client();
        let ask = |request: &str| client.ask(&format!("{request} test:* count"));
        assert_eq!(ask("connect").unwrap(), "1");
        assert_eq!(program.request("event 1"), outcome);
        assert_eq!(ask("activate").unwrap(), "1");
        assert_eq!(program.request("event 20"), outcome);
        assert_eq!(program.request("event 300"), outcome);
        assert_eq!(
            client.probes().unwrap(),
            [
                ListedProbe::Probe("count".to_owned()),
                ListedProbe::Connection {
                    events: "test:*".to_owned(),
                    probe: "count".to_owned(),
                    active: true,
                }
            ]
        );
        assert_eq!(ask("deactivate").unwrap(), "1");
        assert_eq!(program.request("event 4000"), outcome);
        assert_eq!(program.request("calls"), "2 320");
        assert_eq!(ask("disconnect").unwrap(), "1");
        assert!(error(ask("activate")).contains("the probe is not connected to events"));
        assert!(error(client.ask("connect a:b none")).contains("there is no such probe"));
        drop(client);
        assert!(program.end().success());
    }
}

/// Requirements: B2, B3
fn loaded<B: Backend>() {
    let directory = tempfile::tempdir().unwrap();
    let (good, bad) = (
        B::library(directory.path(), "other"),
        B::library(directory.path(), "count"),
    );
    let trace = B::Trace::new();
    let mut program = Program::<B>::traced("thread", &trace);
    let client = program.client();
    // The program has a probe of one of these names: none of them is registered.
    let load = |path: &Path| client.ask(&format!("load {}", path.display()));
    let text = error(load(&bad));
    assert!(
        text.contains("\"count\": there is a probe of that name"),
        "{text}"
    );
    assert_eq!(client.probes().unwrap().len(), 1);
    assert_eq!(load(&good).unwrap(), "2");
    assert_eq!(client.probes().unwrap().len(), 3);
    client.ask("connect test:numbered say").unwrap();
    client.ask("activate test:numbered say").unwrap();
    assert_eq!(program.request("event 17"), "said test:numbered 17");
    assert_eq!(program.line(), "Recorded");
    let missing = error(load(Path::new("/nowhere/lib.so")));
    assert!(missing.contains("/nowhere/lib.so"), "{missing}");
    program.kill();
}

/// `unload` unregisters the library's probes, and closes it when no thread executes them any more.
///
/// Requirements: B2
fn unloaded<B: Backend>() {
    let directory = tempfile::tempdir().unwrap();
    let library = B::library(directory.path(), "other");
    let go = directory.path().join("go");
    let mut program = Program::<B>::start(&[
        ("USERTRACE_CONTROL", "thread"),
        ("USERTRACE_TEST_GO", go.to_str().unwrap()),
    ]);
    let client = program.client();
    let is_mapped = |program: &Program<B>| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.pid())).unwrap();
        maps.contains(library.to_str().unwrap())
    };
    let load = format!("load {}", library.display());
    let unload = format!("unload {}", library.display());
    let none = |request: &str| {
        let text = error(client.ask(request));
        assert!(
            text.contains("no library of that name was loaded"),
            "{text}"
        );
    };
    none(&unload);
    assert_eq!(client.ask(&load).unwrap(), "2");
    // The program uses this library, but did not load it for probes.
    none("unload /lib/x86_64-linux-gnu/libc.so.6");
    assert!(is_mapped(&program));
    assert_eq!(client.ask(&unload).unwrap(), "2");
    assert!(!is_mapped(&program));
    none(&unload);
    assert_eq!(client.probes().unwrap().len(), 1);

    // A library that is loaded again has none of its connections.
    assert_eq!(client.ask(&load).unwrap(), "2");
    client.ask("connect test:numbered say").unwrap();
    client.ask("activate test:numbered say").unwrap();
    assert_eq!(program.request("spawn 1000"), "said test:numbered 1000");
    std::thread::scope(|scope| {
        let unloading = scope.spawn(|| client.ask(&unload));
        // Gives a wrong `unload` the time to unmap the code that the thread executes.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!unloading.is_finished());
        assert!(is_mapped(&program));
        std::fs::write(&go, "").unwrap();
        assert_eq!(unloading.join().unwrap().unwrap(), "2");
    });
    assert!(!is_mapped(&program));
    assert_eq!(program.line(), "Off");
    assert_eq!(program.request("event 1"), "Off");
    assert_eq!(client.ask(&load).unwrap(), "2");
    assert_eq!(program.request("event 1"), "Off");
    assert_eq!(client.probes().unwrap().len(), 3);
    program.kill();
}

/// Requirements: B2
fn loaded_by_serve<B: Backend>() {
    let directory = tempfile::tempdir().unwrap();
    let library = B::library(directory.path(), "other");
    let trace = B::Trace::new();
    let mut program = Program::<B>::traced("signal", &trace);
    let load = format!("load {}", library.display());
    let impatient = Client::connect(program.pid(), Duration::from_millis(50)).unwrap();
    let text = error(impatient.ask(&load));
    assert!(text.contains("usertrace_control_serve()"), "{text}");
    // The program answers other clients meanwhile.
    let client = program.client();
    assert_eq!(client.probes().unwrap().len(), 1);
    // The program notices that a client is gone before it answers the second request: it loads
    // nothing for that client.
    drop(impatient);
    for _ in 0..2 {
        assert_eq!(client.probes().unwrap().len(), 1);
    }
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| client.ask(&load));
        // `serve` may run before the request arrives, so it runs until the request is done.
        while !loading.is_finished() {
            assert_eq!(program.request("serve"), "served");
        }
        assert_eq!(loading.join().unwrap().unwrap(), "2");
    });
    assert_eq!(client.probes().unwrap().len(), 3);
    // Unloading is left to the program, too.
    let unload = format!("unload {}", library.display());
    std::thread::scope(|scope| {
        let unloading = scope.spawn(|| client.ask(&unload));
        while !unloading.is_finished() {
            assert_eq!(program.request("serve"), "served");
        }
        assert_eq!(unloading.join().unwrap().unwrap(), "2");
    });
    program.kill();
}
