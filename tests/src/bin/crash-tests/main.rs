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

fn c7_panic_before_the_first_event() {
    one_thread(DEFAULT, 0);
}

fn c7_panic_after_1_event() {
    one_thread(DEFAULT, 1);
}

/// Requirements: C7
fn c7_panic_after_1000_events() {
    one_thread(DEFAULT, 1000);
}

fn c7_panic_after_several_sub_buffers() {
    // Five, and a part of the sixth.
    one_thread(SMALL, 5 * capacity(4096, 1) + 3);
}

fn c7_panic_at_the_end_of_a_sub_buffer() {
    one_thread(SMALL, 2 * capacity(4096, 1));
}

fn c7_panic_with_a_full_discarding_ring() {
    one_thread(TINY, 3 * capacity(4096, 2) + 7);
}

/// A trace for each state that a ring may be in; the full tier has a panic for each.
///
/// Requirements: C7
fn c7_panic_with_rings_in_each_state() {
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
fn c7_panic_with_threads_on_all_cpus() {
    let events = 3 * capacity(4096, 1) + 5;
    Crash::of(SMALL)
        .numbered(&["--panic", "--threads", "2", "--events", &events.to_string()])
        .expect(&Expected {
            lost: 0,
            writers: vec![Writer::exactly(0, events), Writer::exactly(1, events)],
        });
}

/// One thread is in the middle of an event, on another CPU, when the kernel dies.
fn c7_panic_in_the_middle_of_an_event() {
    // Room for more than the other can write meanwhile; if it does, it only loses what comes then.
    let geometry = (1 << 20, 32);
    Crash::of(geometry)
        .numbered(&["--panic-meanwhile", "--threads", "2", "--events", "20000"])
        .expect_at_least(&[Writer::exactly(0, 20_000), Writer::at_least(1, 1)]);
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
/// trace: in each format that a dump may have.
///
/// Requirements: C7
fn c7_panic_with_a_dead_process_and_a_stopped_trace() {
    let crashed = two_traces();
    crashed.expect_traces(&[
        ("crash", true, &[500, 300]),
        // The second process was given a buffer of it, and had nothing to write there.
        ("other", false, &[500]),
    ]);
    crashed.is_the_same_in_each_format();
    crashed.is_what_drgn_finds("crash");
    crashed.is_cut_by_time("other");
}

/// Requirements: F4
fn f4_whatever_is_damaged_the_rest_is_extracted() {
    two_traces().survives_corruption(["crash", "other"]);
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

fn c7_memory_saved_by_qemu() {
    saved_by_qemu(true);
}

fn c7_memory_saved_by_qemu_without_its_vmcoreinfo_device() {
    saved_by_qemu(false);
}

/// Requirements: F4
fn f4_forged_root_pages_in_a_programs_memory() {
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
fn c7_extraction_in_the_crash_kernel() {
    Crash::of(DEFAULT)
        .before("\"$numbered\" --events 500")
        .extracted_in_crash_kernel(64, &["--panic", "--threads", "2", "--events", "20000"]);
}

/// Extracting a trace costs as much from a large machine's dump as from a small one's, and takes
/// little memory. `USERTRACE_LARGE_MIB` sets the size of the large one.
fn c7_extraction_costs_by_trace_not_by_memory() {
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

fn c7_panic_without_any_trace() {
    Crash::without_trace()
        .numbered(&["--panic"])
        .expect_nothing();
}

/// Tests that only the full tier runs.
const LONG: &[&str] = &[
    // Panics in one state each: `c7_panic_with_rings_in_each_state` has them all in one.
    "c7_panic_before_the_first_event",
    "c7_panic_after_1000_events",
    "c7_panic_after_1_event",
    "c7_panic_after_several_sub_buffers",
    "c7_panic_at_the_end_of_a_sub_buffer",
    "c7_panic_with_a_full_discarding_ring",
    // `kdump_tools` and the other test of dracut remain.
    "c7_dracut_where_kdump_saves_memory",
    // `c7_reset_each_boot_finds_the_one_before` remains.
    "c7_reset_a_dump_has_it_too",
    "c7_reset_a_machine_that_resets_itself",
    // The cost of reading a large machine's dump.
    "c7_extraction_costs_by_trace_not_by_memory",
    // A dump, or the memory, at each instruction: hours.
    "c7_a10_memory_at_each_instruction_of_the_directorys_changes",
    "c7_a10_memory_at_each_instruction_of_writers",
];

const CASES: &[(&str, fn())] = &[
    (
        "c7_panic_before_the_first_event",
        c7_panic_before_the_first_event,
    ),
    ("c7_panic_after_1_event", c7_panic_after_1_event),
    ("c7_panic_after_1000_events", c7_panic_after_1000_events),
    (
        "c7_panic_after_several_sub_buffers",
        c7_panic_after_several_sub_buffers,
    ),
    (
        "c7_panic_at_the_end_of_a_sub_buffer",
        c7_panic_at_the_end_of_a_sub_buffer,
    ),
    (
        "c7_panic_with_a_full_discarding_ring",
        c7_panic_with_a_full_discarding_ring,
    ),
    (
        "c7_panic_with_rings_in_each_state",
        c7_panic_with_rings_in_each_state,
    ),
    (
        "c7_panic_with_threads_on_all_cpus",
        c7_panic_with_threads_on_all_cpus,
    ),
    (
        "c7_panic_in_the_middle_of_an_event",
        c7_panic_in_the_middle_of_an_event,
    ),
    (
        "c7_panic_with_a_dead_process_and_a_stopped_trace",
        c7_panic_with_a_dead_process_and_a_stopped_trace,
    ),
    (
        "f4_whatever_is_damaged_the_rest_is_extracted",
        f4_whatever_is_damaged_the_rest_is_extracted,
    ),
    ("c7_memory_saved_by_qemu", c7_memory_saved_by_qemu),
    (
        "c7_memory_saved_by_qemu_without_its_vmcoreinfo_device",
        c7_memory_saved_by_qemu_without_its_vmcoreinfo_device,
    ),
    (
        "f4_forged_root_pages_in_a_programs_memory",
        f4_forged_root_pages_in_a_programs_memory,
    ),
    (
        "c7_extraction_in_the_crash_kernel",
        c7_extraction_in_the_crash_kernel,
    ),
    (
        "c7_dracut_in_the_root_file_system",
        dracut::in_the_root_file_system,
    ),
    (
        "c7_dracut_where_kdump_saves_memory",
        dracut::where_kdump_saves_memory,
    ),
    (
        "c7_kdump_tools_its_crash_kernel_takes_traces_out_first",
        kdump_tools::its_crash_kernel_takes_traces_out_first,
    ),
    (
        "c7_kdump_tools_its_units_and_ours_are_in_some_order",
        kdump_tools::its_units_and_ours_are_in_some_order,
    ),
    (
        "c7_extraction_costs_by_trace_not_by_memory",
        c7_extraction_costs_by_trace_not_by_memory,
    ),
    (
        "c7_a10_memory_at_any_instant",
        instants::c7_a10_memory_at_any_instant,
    ),
    (
        "c7_a10_panic_at_any_instant",
        instants::c7_a10_panic_at_any_instant,
    ),
    (
        "c7_a10_reset_at_any_instant",
        instants::c7_a10_reset_at_any_instant,
    ),
    (
        "c7_a10_memory_at_each_instruction_of_the_directorys_changes",
        sweep::c7_a10_memory_at_each_instruction_of_the_directorys_changes,
    ),
    (
        "c7_a10_memory_at_each_instruction_of_writers",
        writers::c7_a10_memory_at_each_instruction_of_writers,
    ),
    ("c7_panic_without_any_trace", c7_panic_without_any_trace),
    (
        "c7_reset_each_boot_finds_the_one_before",
        reset::each_boot_finds_the_one_before,
    ),
    (
        "c7_reset_a_machine_that_resets_itself",
        reset::a_machine_that_resets_itself,
    ),
    (
        "c7_reset_without_a_previous_boot_it_says_why",
        reset::without_a_previous_boot_it_says_why,
    ),
    (
        "c7_reset_what_is_not_intact_is_said",
        reset::what_is_not_intact_is_said,
    ),
    (
        "c7_reset_what_does_not_fit_is_lost",
        reset::what_does_not_fit_is_lost,
    ),
    ("c7_reset_a_dump_has_it_too", reset::a_dump_has_it_too),
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
