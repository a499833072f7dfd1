//! Which tiers run a test. Tests that are not named here run on the release kernel in the middle
//! tier, and on both kernels in the full tier.

/// The middle tier runs these on the debug kernel, too.
///
/// The series' own tests in C and the adversary run there as well. These tests change the kernel's
/// state in ways that those do not, so that KASAN, lockdep, PROVE_RCU and kmemleak look at each
/// path of the series at least once.
pub(crate) const CHANGE_STATE: &[&str] = &[
    // Control groups and limits.
    "f6_pages_are_charged_to_the_programs_cgroup",
    "f6_a_limit_of_a_process_is_kept",
    "f6_a_limit_of_a_user_is_kept_over_its_processes",
    // Traces that end while somebody writes, and processes that end without having been told.
    "a9_a_writer_survives_the_end_of_its_trace",
    "a9_a_process_that_ends_acknowledges",
    // Updates, beside readers.
    "c8_info_is_always_consistent",
    // Positions that make no sense.
    "a11_forged_positions_harm_nobody_else",
    // What the kernel does to rings of other processors, and processors that go.
    "f2_e8_no_event_is_lost_while_a_cpu_goes_and_comes",
    "f2_a_cpu_that_comes_after_the_start_has_its_ring",
    // Channels, modes.
    "e3_d3_ten_thousand_flips_tear_no_record_and_all_is_counted",
    "a7_d3_e4_e5_each_event_is_in_the_traces_that_want_it_and_memory_comes_back",
    // Processes that share memory, and ways to die.
    "a5_children_of_every_kind_of_clone_have_their_own_buffers",
    "a5_the_areas_live_as_long_as_the_last_who_shares_them",
    "a10_no_way_to_die_loses_a_committed_event",
    // Mappings.
    "c2_areas_cannot_be_grown_copied_or_covered_in_part",
    "a10_unmapped_areas_leave_what_was_written",
    "f2_no_advice_changes_an_area",
    "f2_no_area_is_mapped_again",
    "f2_the_kernel_takes_no_reference_to_a_page_of_an_area",
    "f2_proc_shows_the_areas_and_changes_nothing",
    "f5_nobody_reaches_an_area_from_outside",
    // Everything at once.
    "c7_the_running_machine_is_a_dump_too",
    "a9_c8_ten_thousand_traces_come_and_go_while_eight_threads_trace",
];

/// Long tests, which only the full tier runs. Each needs many seconds of a processor. The comments
/// say which shorter tests of the middle tier show the same in part.
pub(crate) const LONG: &[&str] = &[
    // `terminal` tries the same examples with the fallback.
    "e1_f1_examples_of_the_manual_work",
    // `tools::daemon` shows what the daemon tells systemd.
    "c5_f1_systemd_starts_restarts_rotates_and_stops_the_daemon",
    // The tests of sqlite3, ls and a shell remain. With the fallback, `load::python_with_threads`
    // does; in the middle tier nothing shows that redis-server is not changed.
    "f2_redis_server_under_load_is_not_changed_by_all_libraries_at_once",
    "f2_python_with_threads_is_not_changed_by_all_libraries_at_once",
    // `restart` fills the disk at each write of the same recorder.
    "e7_c5_a_disk_that_is_full_loses_nothing_silently",
    "c5_a_disk_that_is_full_to_the_end_is_said_and_the_rest_comes_later",
    "c5_files_that_may_get_no_larger_are_a_full_disk",
    // `e7_what_a_full_ring_discards_is_told` and the tests of each mode remain.
    "e7_d7_e3_a_recorder_that_stands_still_for_a_minute_loses_what_the_mode_says",
    // `e1_e2_e3_e4_commands_do_what_they_say` remains.
    "e1_f1_traces_are_made_and_read_by_hand",
    // The series' own tests do what each of these attackers does. Two other attackers remain.
    "f2_a_user_who_leaves_full_buffers_of_dead_processes_slows_nobody_else",
    "f2_a_user_who_unmaps_areas_in_the_making_slows_nobody_else",
    "f2_removing_a_trace_full_of_a_users_dead_buffers_slows_nobody_else",
];
