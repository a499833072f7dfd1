//! The memory of a busy guest, at random instants (C7, A10). Each guest is stopped between two
//! instructions, again and again; or it panics there, and the crash kernel saves the memory; or the
//! machine is reset, and the next boot finds what was in reserved memory.

use std::sync::mpsc::channel;
use std::time::Duration;

use usertrace_crash::Dump;
use usertrace_testing::wait;
use usertrace_tests::random::Random;
use usertrace_vm::{Outcome, Streams};

use crate::guest::said;
use crate::load::{self, ImageSummary, Memory};

const MEMORY_MIB: u64 = 384;
/// The default of `USERTRACE_INSTANTS`: how often the guest is stopped.
const INSTANTS: u32 = 25;
/// The memory of a guest with a crash kernel.
const CRASH_MEMORY_MIB: u64 = 512;
/// The default of `USERTRACE_PANICS`: how often a guest panics.
const PANICS: u32 = 1;
/// The default of `USERTRACE_RESETS`: how often a guest is reset.
const RESETS: u32 = 1;
/// The reserved memory. A boot uses half of it, which is more than all rings have.
const RESERVE: &str = "reserve_mem=96M:4096:ltt nokaslr";
/// A script that copies what the previous boot left, if there was one.
const COPY: &str = "if grep -q '^previous_boot none' reserved; then :
                    elif grep -q '^previous_boot not' reserved; then cat reserved >&2; exit 1
                    else cp previous_boot /out/copying; mv /out/copying /out/previous-boot; fi";

/// A number from an environment variable.
pub(crate) fn times(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// Requirements: A10, C7
pub(crate) fn memory_at_any_instant() {
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
    let mut seen = ImageSummary::default();
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
    assert!(seen.turned > 0, "nothing was read: {seen:?}");
}

/// Requirements: A10, C7
pub(crate) fn panic_at_any_instant() {
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
        let mut seen = ImageSummary::default();
        seen.check(&dump, CRASH_MEMORY_MIB, &traces, &what);
        println!("{what}: {seen:?}");
    }
}

/// Requirements: A10, C7
pub(crate) fn reset_at_any_instant() {
    let resets = times("USERTRACE_RESETS", RESETS);
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let (give, monitor) = channel();
    let memory = Memory::new();
    let guest = load::guest_that_first(COPY, directory.path())
        .memory_mib(MEMORY_MIB)
        .memory_file(memory.path())
        .append(RESERVE)
        .restarts(true)
        .give_monitor(give);
    let run = std::thread::spawn(move || guest.run(Streams::capture()).expect("a guest"));
    let monitor = monitor.recv().expect("QEMU's monitor");
    let mut random = Random::new();
    let mut seen = ImageSummary::default();
    for reset in 0..resets {
        let what = format!("reset {reset}");
        load::wait_until_busy(directory.path(), &run);
        std::thread::sleep(Duration::from_micros(random.below(300_000)));
        monitor.stop().expect("it stops");
        let counts = {
            let image = memory.dump();
            let page = load::page(&image, MEMORY_MIB);
            let counts = load::counts(&image, page);
            // The next boot has one of its own.
            memory.clear(page);
            counts
        };
        std::fs::remove_file(path("ready")).expect("it was busy");
        monitor.reset().expect("it is reset");
        monitor.resume().expect("it boots");
        let has_copied = || path("previous-boot").exists() || run.is_finished();
        wait::until("the next boot has copied", has_copied);
        if !path("previous-boot").exists() {
            panic!("{what}: {}", said(&run.join().expect("a guest")));
        }
        let dump = Dump::open(&path("previous-boot")).expect("what a boot has left");
        let Dump::Reserved(left) = &dump else {
            panic!("{what}: not reserved memory: {dump:?}");
        };
        assert_eq!(left.boot(), u64::from(reset) + 1, "{what}");
        seen.check_traces(&dump, left.root(), &counts, &path("traces"), &what);
        std::fs::remove_dir_all(path("traces")).expect("traces");
        std::fs::remove_file(path("previous-boot")).expect("a copy");
    }
    load::wait_until_busy(directory.path(), &run);
    std::fs::write(path("stop"), "").expect("a file");
    let run = run.join().expect("a guest");
    assert_eq!(run.outcome, Outcome::Passed, "{}", said(&run));
    println!("{resets} resets: {seen:?}");
}
