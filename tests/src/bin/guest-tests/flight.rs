//! Flight recorders: channels that overwrite, and switch to and from that mode while they are
//! written and read (E3, D3).

use std::sync::atomic::Ordering;

use usertrace::Outcome;
use usertrace_sys::uapi::LttSubbuf;
use usertrace_testing::wait;
use usertrace_tests::child::Child;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{self, RECORD_LEN};
use usertrace_tests::guest::scaled;
use usertrace_tests::reader::Reader;
use usertrace_tests::shared::Shared;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    ten_thousand_mode_changes_tear_no_record_and_count_all_losses,
    flight_recorder_keeps_the_newest_events,
];

const THREADS: usize = 3;
const FLIPS: u64 = 10_000;
const SUBBUF: u64 = 4096;
const SCOPES: [&str; 3] = ["cpu", "thread", "global"];

/// The length of a record. In rings with several writers, it has a word that marks it as complete.
fn record_len(scope: &str) -> u64 {
    RECORD_LEN as u64 + if scope == "cpu" { 0 } else { 8 }
}

/// How many events the threads of a child recorded, and how many they lost.
struct WriterCounts {
    recorded: [Shared; THREADS],
    lost: Shared,
}

/// Starts a child whose threads write until `stop` is set.
fn writers(stop: &Shared, written: &WriterCounts) -> Child {
    let mut child = Child::spawn(|link| {
        event::attach();
        link.send(0);
        std::thread::scope(|scope| {
            for (thread, recorded) in written.recorded.iter().enumerate() {
                scope.spawn(move || {
                    let mut number = 0;
                    while stop.get().load(Ordering::Relaxed) == 0 {
                        match event::write(thread as u32, number) {
                            // Only recorded events have numbers.
                            Outcome::Recorded => {
                                number += 1;
                                recorded.get().store(number, Ordering::Relaxed);
                            }
                            Outcome::Lost => {
                                written.lost.get().fetch_add(1, Ordering::Relaxed);
                            }
                            Outcome::Off => {}
                        }
                    }
                });
            }
        });
    });
    child.link.receive();
    child
}

/// The numbers of each thread that were read: a bit for each.
#[derive(Default)]
struct NumbersRead {
    numbers: Vec<u64>,
    count: u64,
}

impl NumbersRead {
    fn note(&mut self, number: u64) {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if self.numbers.len() <= word {
            self.numbers.resize(word + 1, 0);
        }
        assert_eq!(self.numbers[word] & bit, 0, "{number} was read twice");
        self.numbers[word] |= bit;
        self.count += 1;
    }
}

/// Requirements: D3, E3
fn ten_thousand_mode_changes_tear_no_record_and_count_all_losses() {
    for scope in SCOPES {
        let flips = scaled(FLIPS / SCOPES.len() as u64);
        let trace = Trace::started_of("flips", scope, SUBBUF as u32, 4);
        let stop = Shared::new();
        let written = WriterCounts {
            recorded: std::array::from_fn(|_| Shared::new()),
            lost: Shared::new(),
        };
        let writers = writers(&stop, &written);
        let path = wait::until_some("there is a file", || trace.consumer_files("main").pop());
        let mut reader = Reader::open(&path).expect("the file");
        let mut read: [NumbersRead; THREADS] = Default::default();
        let mut turn = |read: &mut [NumbersRead; THREADS]| {
            reader.drain(|_, (thread, number)| read[thread as usize].note(number))
        };
        // Otherwise all switches may be over before a thread has run.
        wait::until("each thread was read", || {
            turn(&mut read);
            read.iter().all(|read| read.count > 0)
        });
        let flipper = Child::spawn(|_| {
            for flip in 0..flips {
                trace
                    .write("main/flight", ["1", "0"][flip as usize % 2])
                    .expect("flight");
            }
        });
        while flipper.is_alive() {
            turn(&mut read);
        }
        flipper.join();
        stop.get().store(1, Ordering::Relaxed);
        writers.join();
        while !turn(&mut read) {}
        turn(&mut read);
        let counts = reader.counts();
        let recorded: u64 = written
            .recorded
            .iter()
            .map(|recorded| recorded.get().load(Ordering::Relaxed))
            .sum();
        let was_read: u64 = read.iter().map(|read| read.count).sum();
        assert_eq!(reader.lost(), written.lost.get().load(Ordering::Relaxed));
        // Missing events were overwritten: no more than the reader missed, and, where writers
        // pass over no place, so much as there was room for in it, less what is no record there.
        let record = record_len(scope);
        let missing = (recorded - was_read) * record;
        // The header, padding, and a full time stamp.
        let no_records = size_of::<LttSubbuf>() as u64 + record + 16;
        let least = counts
            .overwritten_bytes
            .saturating_sub(counts.overwritten * no_records)
            * u64::from(scope == "cpu");
        assert!(
            (least..=counts.overwritten_bytes).contains(&missing),
            "{scope}: {missing} bytes of {recorded} records are missing, {counts:?}"
        );
        println!(
            "{scope}: {flips} flips, {recorded} recorded, {was_read} read, {} lost, {} sub-buffers overwritten",
            reader.lost(),
            counts.overwritten
        );
    }
}

/// Requirements: E3
fn flight_recorder_keeps_the_newest_events() {
    for scope in SCOPES {
        let trace = Trace::create("newest");
        trace.write("main/scope", scope).expect("scope");
        trace.set_geometry("main", SUBBUF as u32, 4);
        trace.write("main/flight", "1").expect("flight");
        trace.start();
        let count = scaled(100_000);
        let child = Child::spawn(|_| {
            event::attach();
            for number in 0..count {
                assert_eq!(event::write(0, number), Outcome::Recorded);
            }
        });
        child.join();
        let path = wait::until_some("there is a file", || trace.consumer_files("main").pop());
        let mut reader = Reader::open(&path).expect("the file");
        let mut numbers = Vec::new();
        wait::until("it is dead", || {
            reader.drain(|_, (_, number)| numbers.push(number))
        });
        numbers.sort_unstable();
        // One CPU at least kept all of its newest, down to the last one.
        assert_eq!(numbers.last(), Some(&(count - 1)), "{scope}");
        let newest = numbers.iter().rev().zip((0..count).rev());
        let in_a_row = newest
            .take_while(|(number, expected)| *number == expected)
            .count() as u64;
        let least = 2 * (SUBBUF - 128) / record_len(scope);
        assert!(
            in_a_row >= least,
            "{scope}: {in_a_row} of {}",
            numbers.len()
        );
        assert_eq!(
            trace
                .stats()
                .rings
                .iter()
                .map(|ring| ring.lost)
                .sum::<u64>(),
            0
        );
        assert!(reader.counts().overwritten > 0);
    }
}
