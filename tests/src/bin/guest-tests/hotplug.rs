//! CPUs that go and come back while programs trace (E8, F2).

use std::fs;
use std::sync::atomic::Ordering;

use usertrace::Outcome;
use usertrace_tests::child::Child;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{self, attach, check_prefix, write};
use usertrace_tests::guest::scaled;
use usertrace_tests::shared::Shared;
use usertrace_tests::{cpu, parse, wait};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![f2_e8_no_event_is_lost_while_a_cpu_goes_and_comes,];

const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";

/// The second CPU, which is there again when this is dropped.
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

fn f2_e8_no_event_is_lost_while_a_cpu_goes_and_comes() {
    /// One that goes where it likes, and one for each CPU.
    const THREADS: usize = 3;
    /// Of each thread in each round.
    const EVENTS: u64 = 1000;
    let rounds = scaled(30).max(6).next_multiple_of(2);
    let trace = Trace::started_with("hotplug", 65536, 256);
    // The round that is on, and what each thread is through with.
    let round = Shared::new();
    let done: [Shared; THREADS] = std::array::from_fn(|_| Shared::new());
    let child = Child::spawn(|_| {
        attach();
        std::thread::scope(|scope| {
            for (thread, done) in done.iter().enumerate() {
                let round = &round;
                scope.spawn(move || {
                    for number in 1..=rounds {
                        while round.get().load(Ordering::Acquire) < number {
                            std::thread::yield_now();
                        }
                        if thread > 0 {
                            // It was moved when its CPU went. It may be gone now.
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
    let second = SecondCpu;
    for number in 1..=rounds {
        // They begin to write, and meanwhile the CPU goes, or comes.
        round.get().store(number, Ordering::Release);
        second.set(number % 2 == 0);
        wait::until("all have written", || {
            done.iter()
                .all(|done| done.get().load(Ordering::Acquire) == number)
        });
    }
    child.join();
    let consumer = parse::of_the_dead(&trace);
    let used =
        |at: &usertrace_sys::uapi::LttRingPositions| at.head > EVENTS * event::RECORD_LEN as u64;
    assert!(consumer.positions().iter().all(used), "both CPUs were used");
    // Each ring is in the order of time (E8).
    let threads = parse::threads(&consumer);
    assert_eq!(threads.len(), THREADS);
    for (thread, numbers) in threads {
        assert_eq!(check_prefix(&numbers), rounds * EVENTS, "thread {thread}");
    }
}
