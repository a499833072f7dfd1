//! Tests of traces after a kernel panic: boots guests, panics them, and reads their dumps (C7, E6,
//! E7, F1).
//!
//! This runs on the host. Most cases panic a kernel right after the program's last event. The dump
//! must have all events that the rings had accepted, in order, and no others.

mod corrupt;
mod dracut;
mod drgn;
mod guest;
mod instants;
mod kdump_tools;
mod leak;
mod load;
mod reset;
mod stepped;
mod stopped_guest;
mod sweep;
mod symbols;
mod traces;
mod writers;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::guest::{Crash, Crashed};
use crate::leak::Leaking;
use crate::traces::{Expected, Writer};

/// The capacity of rings without a reader, for `numbered`'s events.
fn capacity(subbuf_size: u64, subbuf_count: u64) -> u64 {
    let header = size_of::<usertrace_sys::uapi::LttSubbuf>() as u64;
    (subbuf_size - header) / usertrace_tests::event::RECORD_LEN as u64 * subbuf_count
}

/// The default ring of `main`.
const DEFAULT: (u64, u64) = (262_144, 16);
const SMALL: (u64, u64) = (4096, 16);
const TINY: (u64, u64) = (4096, 2);

/// One thread writes `events`, and panics the kernel.
fn one_thread(geometry: (u64, u64), events: u64) {
    let accepted = events.min(capacity(geometry.0, geometry.1));
    Crash::of(geometry)
        .numbered(&["--panic", "--events", &events.to_string()])
        .expect(&Expected {
            lost: events - accepted,
            writers: vec![Writer::exactly(0, accepted)],
        });
}

/// Requirements: C7
fn panic_before_the_first_event() {
    one_thread(DEFAULT, 0);
}

/// Requirements: C7
fn panic_after_1_event() {
    one_thread(DEFAULT, 1);
}

/// Requirements: C7
fn panic_after_1000_events() {
    one_thread(DEFAULT, 1000);
}

/// Requirements: C7
fn panic_after_several_sub_buffers() {
    // Five, and a part of the sixth.
    one_thread(SMALL, 5 * capacity(4096, 1) + 3);
}

/// Requirements: C7
fn panic_at_the_end_of_a_sub_buffer() {
    one_thread(SMALL, 2 * capacity(4096, 1));
}

/// Requirements: C7
fn panic_with_a_full_discarding_ring() {
    one_thread(TINY, 3 * capacity(4096, 2) + 7);
}

/// A trace for each state that a ring may be in; the full tier has a panic for each.
///
/// Requirements: C7
fn panic_with_rings_in_each_state() {
    let events = 5 * capacity(4096, 1);
    // At the end of a sub-buffer, full, and in the middle of the third one.
    let rings = [
        ("end", (4096, 16)),
        ("full", (4096, 2)),
        ("part", (8192, 16)),
    ];
    let crash = rings
        .iter()
        .fold(Crash::of(DEFAULT), |crash, &(name, geometry)| {
            crash.with_trace(name, geometry)
        });
    let accepted = rings.map(|(name, (size, count))| (name, events.min(capacity(size, count))));
    let all: Vec<_> = [("crash", events)].into_iter().chain(accepted).collect();
    crash
        .numbered(&["--panic", "--events", &events.to_string()])
        .expect_rings(events, &all);
}

/// Requirements: C7
fn panic_with_threads_on_all_cpus() {
    let events = 3 * capacity(4096, 1) + 5;
    Crash::of(SMALL)
        .numbered(&["--panic", "--threads", "2", "--events", &events.to_string()])
        .expect(&Expected {
            lost: 0,
            writers: vec![Writer::exactly(0, events), Writer::exactly(1, events)],
        });
}

/// One thread is in the middle of an event, on another CPU, when the kernel dies.
///
/// Requirements: C7
fn panic_in_the_middle_of_an_event() {
    // Room for more than the other can write meanwhile; if it does, it only loses what comes then.
    let geometry = (1 << 20, 32);
    Crash::of(geometry)
        .numbered(&["--panic-meanwhile", "--threads", "2", "--events", "20000"])
        .expect_at_least(&[Writer::exactly(0, 20_000), Writer::at_least(1, 1)]);
}

/// One thread has counted its events, and another is in the middle of an update, on another CPU,
/// when the kernel dies. A trace that records them has the same ones of the first thread.
///
/// Requirements: C7
fn counts_survive_a_panic_exactly() {
    let events = 20_000;
    Crash::of((1 << 20, 32))
        .before("mkdir $ltt/counted $ltt/counted/counts; cd $ltt/counted/counts")
        .before("echo count > mode; echo number > value; echo thread > key; echo numbered > filter")
        .before("echo 1 > ../start")
        .numbered(&[
            "--panic-meanwhile",
            "--threads",
            "2",
            "--events",
            &events.to_string(),
        ])
        .expect_counts(&[(0, events, false), (1, 1, true)]);
}

/// The dump says what the program had loaded, so the address of each event leads to its function,
/// and the blocks of another program to the function that leaked them.
///
/// Requirements: C7, F1, F7
fn modules_and_call_stacks_survive_a_panic() {
    let leaking = Leaking::new();
    let crashed = leaking
        .in_guest(Crash::without_trace())
        .before("mkdir $ltt/crash; cd $ltt/crash")
        .before("echo 'vpid ip callstack:4' > main/contexts; echo 1 > start")
        .numbered(&["--panic", "--events", "100"]);
    crashed.expect_symbols("crash", "numbered", 100);
    leaking.check_is_found(&crashed);
}

/// Two traces, one of them stopped, and two processes, one of them dead.
fn two_traces() -> Crashed {
    Crash::of(DEFAULT)
        .before("mkdir $ltt/other; echo 1 > $ltt/other/start")
        .before("\"$numbered\" --events 500")
        .before("echo 0 > $ltt/other/start")
        .numbered(&["--panic", "--events", "300"])
}

/// The dump has the events of a process that was killed before and not read, and those of a stopped
/// trace: in each format that a dump may have, and as far as it is intact.
///
/// Requirements: C7, F4
fn panic_with_a_dead_process_and_a_stopped_trace() {
    let crashed = two_traces();
    crashed.expect_traces(&[
        ("crash", true, &[500, 300]),
        // The second process was given a buffer of it, and had nothing to write there.
        ("other", false, &[500]),
    ]);
    crashed.is_the_same_in_each_format();
    crashed.is_what_drgn_finds("crash");
    crashed.is_cut_by_time("other");
    crashed.survives_corruption(["crash", "other"]);
}

/// Without a crash kernel, QEMU's dump of the guest has the same traces.
fn saved_by_qemu(has_vmcoreinfo: bool) {
    Crash::of(DEFAULT)
        .before("mkdir $ltt/other; echo 1 > $ltt/other/start")
        .before("\"$numbered\" --events 500")
        .before("echo 0 > $ltt/other/start")
        .saved_by_qemu(
            has_vmcoreinfo,
            &["--panic", "--events", "300"],
            &[("crash", true, &[500, 300]), ("other", false, &[500])],
        );
}

/// Requirements: C7
fn memory_saved_by_qemu() {
    saved_by_qemu(true);
}

/// Requirements: C7
fn memory_saved_by_qemu_without_vmcoreinfo_device() {
    saved_by_qemu(false);
}

/// Requirements: F4
fn true_root_page_is_found_among_forged_ones() {
    Crash::of(DEFAULT)
        .before("mkdir $ltt/other; echo 1 > $ltt/other/start")
        .before("\"$numbered\" --events 500")
        .before("echo 0 > $ltt/other/start")
        .found_among_forged(
            &["--panic", "--events", "300"],
            &[("crash", true, &[500, 300]), ("other", false, &[500])],
        );
}

/// The crash kernel itself writes the traces, without a saved dump, in as little memory as it may
/// have.
///
/// Requirements: C7
fn crash_kernel_extracts_the_traces() {
    Crash::of(DEFAULT)
        .before("\"$numbered\" --events 500")
        .extracted_in_crash_kernel(64, &["--panic", "--threads", "2", "--events", "20000"]);
}

/// Extracting a trace costs as much from a large machine's dump as from a small one's, and takes
/// little memory. `USERTRACE_LARGE_MIB` sets the size of the large one.
///
/// Requirements: C7
fn extraction_cost_depends_on_the_trace_only() {
    let large = std::env::var("USERTRACE_LARGE_MIB").map_or(4096, |text| {
        text.parse().expect("USERTRACE_LARGE_MIB: a number")
    });
    let [small, large] = [512, large].map(|memory_mib| {
        Crash::of(DEFAULT).cost(
            memory_mib,
            &["--panic", "--threads", "2", "--events", "50000"],
        )
    });
    println!(
        "{} and {} bytes read, {:?} and {:?}",
        small.read, large.read, small.time, large.time
    );
    assert_eq!((small.events, large.events), (100_000, 100_000));
    // Only a bit for each page of memory is added.
    assert!(
        large.read * 2 < small.read * 3,
        "what is read grows with memory"
    );
}

/// Requirements: C7
fn panic_without_any_trace() {
    Crash::without_trace()
        .numbered(&["--panic"])
        .expect_nothing();
}

/// Tests that only the full tier runs.
const LONG: &[&str] = &[
    // Panics in one state each: `panic_with_rings_in_each_state` has them all in one.
    "panic_before_the_first_event",
    "panic_after_1000_events",
    "panic_after_1_event",
    "panic_after_several_sub_buffers",
    "panic_at_the_end_of_a_sub_buffer",
    "panic_with_a_full_discarding_ring",
    // `panic_at_any_instant` and `crash_kernel_extracts_the_traces` remain.
    "panic_in_the_middle_of_an_event",
    "panic_with_threads_on_all_cpus",
    "panic_without_any_trace",
    // `crash_kernel_extracts_the_traces` runs the same command in the crash kernel, and
    // `kdump_tools_and_our_units_have_no_ordering_cycle` remains.
    "kdump_tools_runs_the_extraction_first",
    "dracut_saves_traces_in_the_root_file_system",
    "dracut_saves_traces_where_kdump_saves_memory",
    // `memory_saved_by_qemu` remains, and `true_root_page_is_found_among_forged_ones`.
    "memory_saved_by_qemu_without_vmcoreinfo_device",
    // `panic_at_any_instant` and `reset_at_any_instant` remain.
    "memory_at_any_instant",
    // `each_boot_finds_the_previous_boots_traces` and `reset_at_any_instant` remain.
    "changed_root_page_is_rejected_and_reported",
    "full_reserved_memory_loses_events_and_reports_it",
    "missing_previous_boot_is_explained",
    "dump_with_reserved_memory_is_extracted",
    "machine_that_resets_itself_finds_its_traces",
    // The cost of reading a large machine's dump.
    "extraction_cost_depends_on_the_trace_only",
    // A dump, or the memory, at each instruction: hours.
    "memory_at_each_instruction_of_directory_changes",
    "memory_at_each_instruction_of_writers",
];

const CASES: &[(&str, fn())] = &[
    ("panic_before_the_first_event", panic_before_the_first_event),
    ("panic_after_1_event", panic_after_1_event),
    ("panic_after_1000_events", panic_after_1000_events),
    (
        "panic_after_several_sub_buffers",
        panic_after_several_sub_buffers,
    ),
    (
        "panic_at_the_end_of_a_sub_buffer",
        panic_at_the_end_of_a_sub_buffer,
    ),
    (
        "panic_with_a_full_discarding_ring",
        panic_with_a_full_discarding_ring,
    ),
    (
        "panic_with_rings_in_each_state",
        panic_with_rings_in_each_state,
    ),
    (
        "panic_with_threads_on_all_cpus",
        panic_with_threads_on_all_cpus,
    ),
    (
        "panic_in_the_middle_of_an_event",
        panic_in_the_middle_of_an_event,
    ),
    (
        "counts_survive_a_panic_exactly",
        counts_survive_a_panic_exactly,
    ),
    (
        "modules_and_call_stacks_survive_a_panic",
        modules_and_call_stacks_survive_a_panic,
    ),
    (
        "panic_with_a_dead_process_and_a_stopped_trace",
        panic_with_a_dead_process_and_a_stopped_trace,
    ),
    ("memory_saved_by_qemu", memory_saved_by_qemu),
    (
        "memory_saved_by_qemu_without_vmcoreinfo_device",
        memory_saved_by_qemu_without_vmcoreinfo_device,
    ),
    (
        "true_root_page_is_found_among_forged_ones",
        true_root_page_is_found_among_forged_ones,
    ),
    (
        "crash_kernel_extracts_the_traces",
        crash_kernel_extracts_the_traces,
    ),
    (
        "dracut_saves_traces_in_the_root_file_system",
        dracut::saves_traces_in_the_root_file_system,
    ),
    (
        "dracut_saves_traces_where_kdump_saves_memory",
        dracut::saves_traces_where_kdump_saves_memory,
    ),
    (
        "kdump_tools_runs_the_extraction_first",
        kdump_tools::runs_the_extraction_first,
    ),
    (
        "kdump_tools_and_our_units_have_no_ordering_cycle",
        kdump_tools::units_have_no_ordering_cycle,
    ),
    (
        "extraction_cost_depends_on_the_trace_only",
        extraction_cost_depends_on_the_trace_only,
    ),
    ("memory_at_any_instant", instants::memory_at_any_instant),
    ("panic_at_any_instant", instants::panic_at_any_instant),
    ("reset_at_any_instant", instants::reset_at_any_instant),
    (
        "memory_at_each_instruction_of_directory_changes",
        sweep::memory_at_each_instruction_of_directory_changes,
    ),
    (
        "memory_at_each_instruction_of_writers",
        writers::memory_at_each_instruction_of_writers,
    ),
    ("panic_without_any_trace", panic_without_any_trace),
    (
        "each_boot_finds_the_previous_boots_traces",
        reset::each_boot_finds_the_previous_boots_traces,
    ),
    (
        "machine_that_resets_itself_finds_its_traces",
        reset::machine_that_resets_itself_finds_its_traces,
    ),
    (
        "missing_previous_boot_is_explained",
        reset::missing_previous_boot_is_explained,
    ),
    (
        "changed_root_page_is_rejected_and_reported",
        reset::changed_root_page_is_rejected_and_reported,
    ),
    (
        "full_reserved_memory_loses_events_and_reports_it",
        reset::full_reserved_memory_loses_events_and_reports_it,
    ),
    (
        "dump_with_reserved_memory_is_extracted",
        reset::dump_with_reserved_memory_is_extracted,
    ),
];

fn main() -> ExitCode {
    for name in LONG {
        let is_there = CASES.iter().any(|(case, _)| case == name);
        assert!(is_there, "there is no test {name}");
    }
    let mut arguments = Arguments::from_args();
    if !arguments.list && std::env::var_os("USERTRACE_GUEST").is_some() {
        eprintln!("crash-tests: these tests boot guests, and run on the host only");
        return ExitCode::FAILURE;
    }
    // Each guest has two processors, and waits for its disk most of the time.
    arguments.test_threads.get_or_insert(2);
    let trials = CASES
        .iter()
        .map(|&(name, test)| {
            let kind = if LONG.contains(&name) { "full" } else { "" };
            let run = move || {
                test();
                Ok(())
            };
            Trial::test(name, run).with_kind(kind)
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
