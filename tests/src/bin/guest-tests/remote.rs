//! Changes of a ring by other processes while its writer writes (D4, E8): sub-buffers that end on
//! request.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use nix::sys::signal::Signal;
use usertrace::Outcome;
use usertrace_sys::uapi::LTT_RING_ALL;
use usertrace_sys::{Errno, files};
use usertrace_testing::wait;
use usertrace_tests::child::{Child, exit};
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{self, attach, check_prefix};
use usertrace_tests::guest::scaled;
use usertrace_tests::shared::Shared;
use usertrace_tests::{cpu, parse};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    forced_switch_loses_no_event_of_a_running_writer,
    forced_switch_ends_the_sub_buffer_of_an_idle_writer,
];

/// The kernel changes `head` between any two instructions of a writer's sequence. If the sequence
/// did not restart, it would overwrite the padding, or reset `head`.
///
/// Requirements: D4
fn forced_switch_loses_no_event_of_a_running_writer() {
    const BATCH: u64 = 200;
    let rounds = scaled(2_000);
    let trace = Trace::started_with("switched", 4096, 8192);
    let (wanted, written) = (Shared::new(), Shared::new());
    let child = Child::spawn(|_| {
        cpu::pin(1);
        attach();
        usertrace::flush().expect("its files");
        let mut number = 0;
        while number < rounds * BATCH {
            if number == wanted.get().load(Ordering::Acquire) {
                std::hint::spin_loop();
            } else if event::write(0, number) == Outcome::Recorded {
                number += 1;
                written.get().store(number, Ordering::Release);
            } else {
                exit(2);
            }
        }
    });
    let file = wait::until_some("there is a file", || trace.consumer_files("main").pop());
    let consumer = Consumer::open(&file);
    for round in 1..=rounds {
        wanted.get().store(round * BATCH, Ordering::Release);
        // Now it writes.
        match files::end_subbuf(consumer.file().as_fd(), LTT_RING_ALL) {
            // The writer may have come first, again and again.
            Ok(()) | Err(Errno::EAGAIN) => {}
            Err(error) => panic!("{error}"),
        }
        wait::until("it has written", || {
            written.get().load(Ordering::Acquire) == round * BATCH
        });
    }
    child.join();
    let rings = parse::rings(&consumer);
    assert!(rings[0].events.is_empty());
    let numbers: Vec<_> = rings[1].events.iter().map(|event| event.1).collect();
    assert_eq!(check_prefix(&numbers), rounds * BATCH);
    assert_eq!(rings[1].lost, 0);
    // The sub-buffers did end early: the records and the headers alone need less.
    let full = numbers.len() as u64 * event::RECORD_LEN as u64;
    let head = consumer.positions()[1].head;
    assert!(
        head > full * 102 / 100,
        "{head} for {full} bytes of records"
    );
}

/// The sub-buffer of a sleeping writer, whose CPU runs other tasks, and of a killed one.
///
/// Requirements: D4
fn forced_switch_ends_the_sub_buffer_of_an_idle_writer() {
    let trace = Trace::started_with("idle", 4096, 16);
    let mut child = Child::spawn(|link| {
        cpu::pin(1);
        attach();
        usertrace::flush().expect("its files");
        let mut number = 0;
        while let Some(count) = link.try_receive() {
            for _ in 0..count {
                assert_eq!(event::write(0, number), Outcome::Recorded);
                number += 1;
            }
            link.send(number);
        }
    });
    let mut write = |count| {
        child.link.send(count);
        child.link.receive()
    };
    write(0);
    let file = wait::until_some("there is a file", || trace.consumer_files("main").pop());
    let consumer = Consumer::open(&file);
    let end = || files::end_subbuf(consumer.file().as_fd(), LTT_RING_ALL).expect("an end");
    let head = || consumer.positions()[1].head;
    end();
    assert_eq!(head(), 0, "there is nothing to be ended");
    write(1);
    end();
    assert_eq!(head(), 4096);
    end();
    assert_eq!(head(), 4096, "the next one is empty");
    write(2);
    child.signal(Signal::SIGKILL);
    child.wait();
    end();
    assert_eq!(head(), 8192);
    let rings = parse::rings(&consumer);
    let numbers: Vec<_> = rings[1].events.iter().map(|event| event.1).collect();
    assert_eq!(check_prefix(&numbers), 3);
}
