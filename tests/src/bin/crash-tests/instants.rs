//! The memory of a busy guest, at any instant (C7, A10): it is stopped between two instructions, whatever its processors and its
//! kernel are at, again and again; or it panics there, and the crash kernel saves the memory.

use std::sync::mpsc::channel;
use std::time::Duration;

use usertrace::crash::Dump;
use usertrace_tests::random::Random;
use usertrace_vm::{Outcome, Streams};

use crate::load::{self, Memory, Seen};

const MEMORY_MIB: u64 = 384;
/// How often it is stopped, if `USERTRACE_INSTANTS` does not say it.
const INSTANTS: u32 = 25;
/// A crash kernel is in there, too.
const CRASH_MEMORY_MIB: u64 = 512;
/// How often a guest panics, if `USERTRACE_PANICS` does not say it.
const PANICS: u32 = 2;

/// A number that the environment may have.
pub(crate) fn times(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

pub(crate) fn c7_a10_memory_at_any_instant() {
    let instants = times("USERTRACE_INSTANTS", INSTANTS);
    let directory = tempfile::tempdir().expect("a directory");
    let (give, monitor) = channel();
    let memory = Memory::new();
    let guest = load::guest(directory.path())
        .memory_mib(MEMORY_MIB)
        .memory_file(memory.path())
        .give_monitor(give);
    let run = std::thread::spawn(move || guest.run(Streams::capture()).expect("a guest"));
    let monitor = monitor.recv().expect("QEMU's monitor");
    load::wait_until_busy(directory.path(), &run);
    let mut random = Random::new();
    let mut seen = Seen::default();
    for instant in 0..instants {
        if run.is_finished() {
            break;
        }
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        let traces = directory.path().join("traces");
        monitor.stop().expect("it stops");
        let dump = memory.dump();
        seen.check(&dump, MEMORY_MIB, &traces, &format!("instant {instant}"));
        monitor.resume().expect("it goes on");
        std::fs::remove_dir_all(&traces).expect("traces");
    }
    std::fs::write(directory.path().join("stop"), "").expect("a file");
    let run = run.join().expect("a guest");
    assert_eq!(run.outcome, Outcome::Passed, "{}", run.explain());
    println!("{instants} instants: {seen:?}");
    assert!(
        seen.in_flight > 0,
        "an event was told before its thread was: {seen:?}"
    );
}

pub(crate) fn c7_a10_panic_at_any_instant() {
    let panics = times("USERTRACE_PANICS", PANICS);
    let mut random = Random::new();
    for panic in 0..panics {
        let directory = tempfile::tempdir().expect("a directory");
        let (give, monitor) = channel();
        let guest = load::guest(directory.path())
            .memory_mib(CRASH_MEMORY_MIB)
            .append("unknown_nmi_panic")
            .crash(true)
            .give_monitor(give);
        let run = std::thread::spawn(move || guest.run(Streams::capture()).expect("a guest"));
        let monitor = monitor.recv().expect("QEMU's monitor");
        load::wait_until_busy(directory.path(), &run);
        std::thread::sleep(Duration::from_micros(random.below(1_000_000)));
        let interrupted = monitor.interrupt();
        let run = run.join().expect("a guest");
        assert!(interrupted.is_ok(), "{interrupted:?}: {}", run.explain());
        let Some(Ok(vmcore)) = &run.dump else {
            panic!("panic {panic}: there is no dump: {}", run.explain());
        };
        let dump = Dump::open(vmcore).expect("a dump");
        let traces = directory.path().join("traces");
        let what = format!("panic {panic}");
        let mut seen = Seen::default();
        seen.check(&dump, CRASH_MEMORY_MIB, &traces, &what);
        println!("{what}: {seen:?}");
    }
}
