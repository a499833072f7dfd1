//! Contexts in the kernel's buffers (F7).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::thread::Builder;

use usertrace::Outcome;
use usertrace_testing::babeltrace::{self, Printed};
use usertrace_tests::child::Child;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{self, attach};
use usertrace_tests::{program, record};

use crate::{Case, cases};

pub(crate) const ON_ONE_KERNEL: &[Case] = cases![
    each_event_has_its_channels_contexts,
    redirected_event_has_its_new_channels_contexts,
    recorder_sets_filters_and_contexts,
];

/// The events that are in a trace's rings now.
fn snapshot(trace: &Trace) -> Vec<Printed> {
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new(program::path("usertrace"))
        .arg("snapshot")
        .arg(trace.name())
        .arg("--output")
        .arg(directory.path().join("now"))
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    babeltrace::read(&directory.path().join("now")).events
}

/// The inode of a namespace. 0: the kernel has none of this kind.
fn inode(namespace: &str) -> u64 {
    let file = format!("/proc/self/ns/{namespace}");
    fs::metadata(file).map_or(0, |file| file.ino())
}

/// In rings of each scope, from threads with names of their own.
///
/// Requirements: F7
fn each_event_has_its_channels_contexts() {
    for scope in ["cpu", "thread", "global", "mm_cid"] {
        let trace = Trace::create("contexts");
        trace.write("main/scope", scope).expect("a scope");
        let names = "vpid vtid procname cpu_id ip mnt_ns net_ns app.thread callstack:4";
        trace.write("main/contexts", names).expect("contexts");
        trace.start();
        let mut child = Child::spawn(|link| {
            usertrace::thread_context! {
                static THREAD = "thread";
            }
            attach();
            THREAD.define().expect("a context");
            for thread in 1..=2u32 {
                let write = move || {
                    THREAD.set(u64::from(thread));
                    // SAFETY: no memory is involved.
                    let number = unsafe { libc::gettid() } as u64;
                    assert_eq!(event::write(thread, number), Outcome::Recorded);
                };
                let named = Builder::new().name(format!("writer {thread}"));
                named.spawn(write).expect("a thread").join().expect("done");
            }
            link.send(1);
            link.receive();
        });
        assert_eq!(child.link.receive(), 1);
        let events = snapshot(&trace);
        assert_eq!(events.len(), 2, "{scope}");
        for (thread, event) in (1..).zip(&events) {
            assert_eq!(event.field("app_thread"), thread);
            assert_eq!(event.field("thread"), thread);
            assert_eq!(event.field("vtid"), event.field("number"));
            assert_eq!(event.field("vpid"), child.pid().as_raw() as u64);
            assert_eq!(event.text("procname"), format!("writer {thread}"));
            assert!(event.address("ip") != 0);
            let first = event.element("callstack", 0).map(str::to_lowercase);
            assert_eq!(first, Some(format!("{:#x}", event.address("ip"))));
            assert_eq!(event.element("callstack", 4), None);
            assert!(inode("mnt") != 0);
            for namespace in ["mnt", "net"] {
                let value = event.field(&format!("{namespace}_ns"));
                assert_eq!(value, inode(namespace));
            }
        }
        child.link.send(1);
        child.join();
        trace.try_remove().expect("removed");
    }
}

/// Filters move a running process's events from `main`, which has no contexts, to a channel that
/// has.
///
/// Requirements: E4, F7
fn redirected_event_has_its_new_channels_contexts() {
    let trace = Trace::create("contexts");
    fs::create_dir(trace.path().join("apart")).expect("a channel");
    trace
        .write("apart/contexts", "vtid procname")
        .expect("contexts");
    trace.start();
    let mut child = Child::spawn(|link| {
        attach();
        loop {
            let number = link.receive();
            if number == 0 {
                return;
            }
            assert_eq!(event::write(0, number), Outcome::Recorded);
            link.send(number);
        }
    });
    for number in 1..=6 {
        let filter = if number % 2 == 0 { "numbered" } else { "0" };
        trace.write("apart/filter", filter).expect("a filter");
        child.link.send(number);
        assert_eq!(child.link.receive(), number);
    }
    let events = snapshot(&trace);
    assert_eq!(events.len(), 6);
    for event in &events {
        let has = event.fields.contains("vtid = ");
        assert_eq!(has, event.field("number") % 2 == 0, "{}", event.fields);
        if has {
            assert_eq!(event.field("vtid"), child.pid().as_raw() as u64);
        }
    }
    child.link.send(0);
    child.join();
}

/// The recorder sets the filters and contexts of a new trace.
///
/// Requirements: E3, E4, F7
fn recorder_sets_filters_and_contexts() {
    let trace = Trace::create("asked");
    let output = tempfile::tempdir().expect("a directory");
    let options = ["-e", "numbered,!other", "--flight", "--context", "vtid,ip"];
    let joined = [&options[..], &["--trace", "asked"]].concat();
    let recorded = record::command(&joined, output.path())
        .arg("--")
        .arg(program::path("numbered"))
        .args(["--events", "5"])
        .output()
        .expect("it runs");
    assert!(recorded.status.success(), "{recorded:?}");
    // A trace that was there stays.
    for (file, text) in [
        ("filter", "numbered\n!other\n"),
        ("main/flight", "1\n"),
        ("main/contexts", "vtid\nip\n"),
    ] {
        assert_eq!(trace.read(file), text, "{file}");
    }
    let events = babeltrace::read(output.path()).events;
    assert_eq!(events.len(), 5);
    assert!(
        events
            .iter()
            .all(|event| event.field("vtid") > 0 && event.address("ip") > 0)
    );
    let elsewhere = output.path().join("refused");
    let refused = record::command(&["--context", "tid"], &elsewhere).output();
    let refused = refused.expect("it runs");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("'tid' for '--context") && said.contains("no such context"),
        "{said}"
    );
}
