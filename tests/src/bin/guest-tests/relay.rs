//! Recordings of the kernel's rings that are sent to LTTng's relay daemon (D3, D7, E8).

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use nix::sys::signal::Signal;
use usertrace_testing::babeltrace;
use usertrace_testing::relayd::{LiveViewer, Relayd, is_empty};
use usertrace_testing::wait;
use usertrace_tests::control::Trace;
use usertrace_tests::running::Running;
use usertrace_tests::shared::Shared;

use crate::long_running::{
    Daemon, StderrLog, WriterCounts, check, consumed, signal, usertrace, writers,
};
use crate::{Case, cases};

pub(crate) const ON_ONE_KERNEL: &[Case] = cases![
    daemon_sends_each_event_to_a_relay_once,
    viewers_read_a_recording_live,
];

/// The daemon and the relay are killed meanwhile, and one of them is away for a while.
///
/// Requirements: D7, E8
fn daemon_sends_each_event_to_a_relay_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut relay = Relayd::start();
    let address = relay.address();
    let options = ["--relay", &address, "--rotate-size", "100k"];
    let trace = Trace::started_with("relay", 65536, 64);
    let (stop, written) = (Shared::new(), [(); 3].map(|()| WriterCounts::new()));
    let daemon = Daemon::start(&options, directory.path());
    let writing = writers(&stop, &written);
    let until_read = || {
        let before = consumed(&trace);
        wait::until("it reads", || consumed(&trace) > before + 100_000);
    };
    until_read();
    wait::until("the relay gets something", || !is_empty(&relay.output()));
    // Whatever it had sent is sent again, and replaced.
    drop(daemon);
    let mut daemon = Daemon::start(&options, directory.path());
    until_read();
    relay.kill();
    until_read();
    relay.restart();
    until_read();
    stop.get().store(1, Ordering::Relaxed);
    writing.join();
    wait::until("all was read", || trace.stats().processes.is_empty());
    drop(trace);
    wait::until("it says so", || daemon.log.count("relay was removed: ") > 0);
    let spool = directory.path().join("out/relay");
    wait::until("all was sent", || {
        let left = std::fs::read_dir(&spool).expect("the directory");
        !left
            .map(|entry| entry.expect("an entry").file_name())
            .any(|name| name.as_encoded_bytes().starts_with(b"2"))
    });
    signal(&daemon.running, Signal::SIGTERM);
    assert!(daemon.running.wait().success(), "{}", daemon.log.text());
    check(&babeltrace::read(&relay.output()), &written);
}

/// What a viewer prints while the recorder runs is what the relay has at the end.
///
/// Requirements: E8
fn viewers_read_a_recording_live() {
    let directory = tempfile::tempdir().expect("a directory");
    let relay = Relayd::start();
    let trace = Trace::started_with("live", 65536, 64);
    let (stop, written) = (Shared::new(), [(); 3].map(|()| WriterCounts::new()));
    let address = relay.address();
    let arguments = ["record", "--trace", "live", "--relay", &address, "--live"];
    let mut command = usertrace(&arguments, &directory.path().join("spool"));
    let log = StderrLog::by(&mut command, directory.path().join("said"));
    let mut recorder = Running::start(&mut command);
    let writing = writers(&stop, &written);
    wait::until("the host has a directory", || !is_empty(&relay.output()));
    let mut viewer = LiveViewer::start(&relay, &host(&relay), "live");
    wait::until("the viewer has attached", || {
        relay.log().contains("Attach session ID")
    });
    // It prints what comes after that.
    viewer.wait_for_events(&relay, 1001);
    stop.get().store(1, Ordering::Relaxed);
    writing.join();
    wait::until("all was read", || trace.stats().processes.is_empty());
    signal(&recorder, Signal::SIGINT);
    recorder.wait();
    let read = babeltrace::read(&relay.output());
    check(&read, &written);
    let seen = viewer.end();
    assert!(seen.len() > 1000 && seen.len() <= read.events.len());
    println!("{} of {} events seen live", seen.len(), read.events.len());
    assert!(
        !log.text().contains("waits for the relay"),
        "{}",
        log.text()
    );
}

/// The only host that the relay knows.
fn host(relay: &Relayd) -> String {
    let hosts = std::fs::read_dir(relay.output()).expect("its directory");
    let hosts: Vec<PathBuf> = hosts.map(|host| host.expect("an entry").path()).collect();
    let [host] = &hosts[..] else {
        panic!("{hosts:?}");
    };
    let name = host.file_name().expect("a name");
    name.to_str().expect("text").to_owned()
}
