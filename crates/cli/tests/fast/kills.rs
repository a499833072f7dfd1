//! SIGKILL at random instants; the full tier kills 1,000 times in each mode (A10).

use std::collections::HashMap;

use super::run::Run;
use super::trace::{self, Trace};
use super::victims::THREADS;
use usertrace_testing::babeltrace;
use usertrace_testing::counts::counts;

/// Counts of a victim's threads when it was killed: recorded and lost events.
type Witness = [(u64, u64); THREADS];

fn kill(variables: &[(&str, &str)], check: impl Fn(&Witness, Trace)) {
    let run = Run::new();
    let all = counts(30, 1000) as usize;
    let count = all.to_string();
    let sizes = [
        ("COUNT", count.as_str()),
        ("USERTRACE_SUBBUF_SIZE", "4096"),
        ("USERTRACE_SUBBUF_COUNT", "4"),
    ];
    let text = run.success("victims", &[&sizes, variables].concat());
    let mut directories = HashMap::<u32, Vec<_>>::new();
    for directory in run.directories() {
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        let pid = name.rsplit('-').nth(1).unwrap().parse().unwrap();
        directories.entry(pid).or_default().push(directory);
    }
    let (mut kills, mut events) = (0, 0);
    for line in text.lines() {
        let mut words = line
            .split_whitespace()
            .map(|word| word.parse::<u64>().unwrap());
        let pid = words.next().unwrap() as u32;
        let witness: Witness =
            std::array::from_fn(|_| (words.next().unwrap(), words.next().unwrap()));
        // If a process id was used twice, its traces are in the order of the processes.
        let trace = match directories.get_mut(&pid) {
            Some(found) if !found.is_empty() => {
                if kills % 100 == 0 {
                    let read = babeltrace::lines(&found[0]);
                    let trace = trace::read(&found[0]);
                    assert_eq!(read.lines.len(), trace.events.len());
                    assert_eq!(read.discarded, trace.discarded);
                    assert_eq!(read.discarded_packets, trace.packets_lost);
                }
                trace::read(&found.remove(0))
            }
            _ => Trace::default(),
        };
        events += trace.events.len();
        check(&witness, trace);
        kills += 1;
    }
    assert_eq!(kills, all);
    assert!(events > all, "{events} events in {all} processes");
    let unknown: Vec<_> = directories.into_values().flatten().collect();
    assert!(unknown.is_empty(), "traces of no victim: {unknown:?}");
}

/// Asserts that each thread's events are a prefix of those it wrote, at most one longer than its
/// own count.
fn assert_prefixes(witness: &Witness, trace: &Trace) {
    for (thread, numbers) in trace.threads() {
        let count = numbers.len() as u64;
        assert!(
            numbers.iter().copied().eq(0..count),
            "{thread}: {numbers:?}"
        );
    }
    for (thread, (recorded, _)) in (0..).zip(witness) {
        let count = trace.threads().get(&thread).map_or(0, Vec::len) as u64;
        assert!(
            (*recorded..=recorded + 1).contains(&count),
            "{thread}: {recorded} {count}"
        );
    }
}

/// Asserts the number of discarded events: those lost in full rings, and at most one unfinished
/// record of each thread.
fn assert_counts(witness: &Witness, trace: &Trace) {
    let lost: u64 = witness.iter().map(|(_, lost)| lost).sum();
    let most = lost + THREADS as u64;
    assert!(
        (lost..=most).contains(&trace.discarded),
        "{lost} {}",
        trace.discarded
    );
    assert_eq!(trace.packets_lost, 0);
}

/// Requirements: A10
pub(crate) fn killed_program_keeps_all_events_in_discard_mode() {
    kill(&[("USERTRACE_MODE", "discard")], |witness, trace| {
        assert_prefixes(witness, &trace);
        assert_counts(witness, &trace);
    });
}

pub(crate) fn killed_program_keeps_all_events_in_rings_of_threads() {
    kill(&[("USERTRACE_RINGS", "thread")], |witness, trace| {
        assert_prefixes(witness, &trace);
        assert_counts(witness, &trace);
    });
}

/// Asserts that each ring's newest events are there, each once, and that missing ones are counted.
/// `own`: each thread has a ring, so no other thread can overwrite its newest events.
fn assert_newest(witness: &Witness, trace: &Trace, own: bool) {
    let threads = trace.threads();
    let (mut whole, mut newest) = (true, 0);
    for (thread, (recorded, _)) in (0..).zip(witness) {
        let numbers = threads.get(&thread).map_or(&[][..], Vec::as_slice);
        assert!(numbers.is_sorted_by(|a, b| a < b), "{thread}: {numbers:?}");
        let count = numbers.last().map_or(0, |last| last + 1);
        assert!(count <= recorded + 1, "{thread}: {recorded} {count}");
        newest += usize::from(count >= *recorded);
        whole &= count >= *recorded && numbers.len() as u64 == count;
    }
    assert!(newest >= if own { THREADS } else { 1 }, "{witness:?}");
    assert_eq!(whole, trace.packets_lost == 0);
    let lost: u64 = witness.iter().map(|(_, lost)| lost).sum();
    assert!((lost..=lost + THREADS as u64).contains(&trace.discarded));
}

pub(crate) fn killed_program_keeps_the_newest_events_in_overwrite_mode() {
    kill(&[("USERTRACE_MODE", "overwrite")], |witness, trace| {
        assert_newest(witness, &trace, false);
    });
}

pub(crate) fn killed_program_keeps_the_newest_events_in_overwritten_rings_of_threads() {
    let variables = [
        ("USERTRACE_MODE", "overwrite"),
        ("USERTRACE_RINGS", "thread"),
    ];
    kill(&variables, |witness, trace| {
        assert_newest(witness, &trace, true);
        for numbers in trace.threads().values() {
            let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
            assert!(numbers.iter().copied().eq(first..=last));
        }
    });
}

fn assert_nothing_lost(witness: &Witness, trace: &Trace) {
    assert_prefixes(witness, trace);
    assert_counts(witness, trace);
    assert!(witness.iter().all(|(_, lost)| *lost == 0));
}

/// Requirements: D7
pub(crate) fn killed_program_loses_nothing_in_block_mode() {
    kill(&[("USERTRACE_MODE", "block")], |witness, trace| {
        assert_nothing_lost(witness, &trace);
    });
}

/// Requirements: D7
pub(crate) fn killed_program_loses_nothing_in_blocking_rings_of_threads() {
    let variables = [("USERTRACE_MODE", "block"), ("USERTRACE_RINGS", "thread")];
    kill(&variables, |witness, trace| {
        assert_nothing_lost(witness, &trace)
    });
}
