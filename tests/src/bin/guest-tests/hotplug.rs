//! CPU hot-plug while programs trace (E8, F2).

use std::fs;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use usertrace::Outcome;
use usertrace_sys::files;
use usertrace_sys::uapi::{LttRingPositions, LttSubbuf};
use usertrace_testing::wait;
use usertrace_tests::child::Child;
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{self, attach, check_prefix, write};
use usertrace_tests::guest::scaled;
use usertrace_tests::shared::Shared;
use usertrace_tests::{cpu, parse};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    cpu_hotplug_loses_no_event,
    cpu_added_after_the_start_has_its_ring,
];

const SUBBUF: u32 = 65536;

const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";

/// The length of a sub-buffer's header.
const HEADER: u64 = size_of::<LttSubbuf>() as u64;

/// The second CPU, which is online again when this is dropped.
struct SecondCpu;

impl SecondCpu {
    fn set(&self, online: bool) {
        fs::write(ONLINE, if online { "1" } else { "0" })
            .expect("the guest has two CPUs, and CONFIG_HOTPLUG_CPU");
        let text = fs::read_to_string(ONLINE).expect("the file");
        assert_eq!(text.trim() == "1", online);
    }
}

impl Drop for SecondCpu {
    fn drop(&mut self) {
        let _ = fs::write(ONLINE, "1");
    }
}

/// Requirements: E8, F2
fn cpu_hotplug_loses_no_event() {
    /// One thread that runs anywhere, and one for each CPU.
    const THREADS: usize = 3;
    /// Events of each thread in each round.
    const EVENTS: u64 = 2000;
    let rounds = scaled(30).max(6).next_multiple_of(2);
    let trace = Trace::started_with("hotplug", SUBBUF, 256);
    // The current round, and the last round that each thread has finished.
    let round = Shared::new();
    let done: [Shared; THREADS] = std::array::from_fn(|_| Shared::new());
    let child = Child::spawn(|_| {
        attach();
        usertrace::flush().expect("its files");
        std::thread::scope(|scope| {
            for (thread, done) in done.iter().enumerate() {
                let round = &round;
                scope.spawn(move || {
                    for number in 1..=rounds {
                        while round.get().load(Ordering::Acquire) < number {
                            std::thread::yield_now();
                        }
                        if thread > 0 {
                            // The kernel moved the thread when its CPU went offline. The CPU may be
                            // offline now.
                            cpu::try_pin(thread - 1);
                        }
                        for event in (number - 1) * EVENTS..number * EVENTS {
                            assert_eq!(write(thread as u32, event), Outcome::Recorded);
                        }
                        done.get().store(number, Ordering::Release);
                    }
                });
            }
        });
    });
    let file = wait::until_some("there is a file", || trace.consumer_files("main").pop());
    let consumer = Consumer::open(&file);
    let mut ended = 0;
    let second = SecondCpu;
    for number in 1..=rounds {
        // The CPU goes offline or online while the threads write.
        let head = || consumer.positions()[1].head;
        let before = head();
        round.get().store(number, Ordering::Release);
        let comes = number % 2 == 0;
        if !comes {
            wait::until("somebody writes there", || head() > before);
        }
        second.set(comes);
        if !comes {
            // A sub-buffer can be ended for a CPU that is off (D4): nobody writes there.
            let begun = || head() % u64::from(SUBBUF);
            let before = begun();
            files::end_subbuf(consumer.file().as_fd(), 1).expect("an end");
            assert!(begun() <= HEADER, "{} since {before}", begun());
            ended += u32::from(before > HEADER);
        }
        wait::until("all have written", || {
            done.iter()
                .all(|done| done.get().load(Ordering::Acquire) == number)
        });
    }
    child.join();
    assert!(ended > 0, "there was something to be ended");
    let used = |at: &LttRingPositions| at.head > EVENTS * event::RECORD_LEN as u64;
    assert!(consumer.positions().iter().all(used), "both CPUs were used");
    // Each ring is in the order of time (E8).
    let threads = parse::threads(&consumer);
    assert_eq!(threads.len(), THREADS);
    for (thread, numbers) in threads {
        assert_eq!(check_prefix(&numbers), rounds * EVENTS, "thread {thread}");
    }
}

/// There is a ring for each possible CPU, not only for those that are online at the start of a
/// trace or of a program.
///
/// Requirements: F2
fn cpu_added_after_the_start_has_its_ring() {
    let second = SecondCpu;
    second.set(false);
    let trace = Trace::started_with("late", SUBBUF, 4);
    let mut child = Child::spawn(|link| {
        attach();
        for cpu in 0..2 {
            let number = link.receive();
            cpu::pin(cpu);
            assert_eq!(write(0, number), Outcome::Recorded);
            link.send(0);
        }
    });
    child.link.send(0);
    child.link.receive();
    second.set(true);
    child.link.send(1);
    child.link.receive();
    child.join();
    let rings = parse::rings(&parse::of_the_dead(&trace));
    let events: Vec<_> = rings.iter().map(|ring| ring.events.clone()).collect();
    assert_eq!(events, [[(0, 0)], [(0, 1)]]);
}
