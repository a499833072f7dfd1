//! Which tier runs a test, where that is not the middle tier on the release kernel and the full tier on both.

/// The middle tier runs these on the debug kernel, too.
///
/// Each changes the kernel's state in a way of its own: mappings, faults, slots, files, processors, processes that end.
/// KASAN, lockdep, PROVE_RCU and kmemleak look at each path of the series at least once. The full tier runs all tests.
pub(crate) const CHANGE_STATE: &[&str] = &[
    // Before any trace.
    "c3_the_info_area_is_zero_until_the_first_trace",
    // Areas: allocation, refusal, faults, charges, the end of a process.
    "c1_alloc_maps_three_areas",
    "c1_alloc_refuses_bad_arguments_and_changes_nothing",
    "c1_alloc_refuses_areas_that_are_partly_gone",
    "c3_the_first_write_to_a_ring_allocates_one_page",
    "c3_a_write_replaces_the_zero_page_in_every_mapping",
    "f6_pages_are_charged_to_the_programs_cgroup",
    "a5_a_fork_child_gets_its_own",
    "a5_exec_ends_the_areas",
    "a10_exit_leaves_what_was_written",
    // Traces: slots, geometry, removal.
    "a1_update_of_a_destroyed_trace_says_so_once",
    "e1_there_are_sixteen_slots",
    "e2_bad_geometry_is_refused_and_changes_nothing",
    "e2_geometry_is_read_back_and_used",
    "a9_a_writer_survives_the_end_of_its_trace",
    "a9_a_slot_is_given_again_to_those_who_acknowledged",
    "a9_a_process_that_ends_acknowledges",
    // Updates: seqlock, signals.
    "a4_each_change_is_signalled",
    "a4_a_sleeping_program_is_woken",
    "f2_a_blocked_update_is_not_left_pending",
    "f2_no_update_survives_exec",
    "c8_info_is_always_consistent",
    // Consumer files.
    "c4_the_first_switch_makes_the_files",
    "c5_bad_ioctls_are_refused_and_change_nothing",
    "c5_poll_tells_of_records_and_of_the_end",
    "a10_the_last_close_frees_what_was_read",
    "a9_an_open_file_outlives_its_trace",
    "a11_forged_positions_harm_nobody_else",
    // Memory: limits, shortage, prefault.
    "f2_prefault_brings_all_pages_at_once",
    "f6_a_limit_of_a_process_is_kept",
    "f6_a_limit_of_a_user_is_kept_over_its_processes",
    "f6_what_dead_processes_left_counts",
    "f2_what_is_lost_is_told_and_ends_with_the_shortage",
    // What the kernel does to rings of other processors, and processors that go.
    "d4_a_sub_buffer_of_an_idle_writer_ends",
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
    // Other users, hostile memory, calls in the wrong order.
    "f5_who_has_no_rights_reads_nothing_and_changes_nothing",
    "a11_f4_garbage_in_all_buffers_harms_nobody_else",
    // Everything at once.
    "c7_the_running_machine_is_a_dump_too",
    "a9_c8_ten_thousand_traces_come_and_go_while_eight_threads_trace",
];

/// Long tests that only the full tier runs: each needs many seconds of a processor, and says more of what shorter tests
/// show, too.
pub(crate) const LONG: &[&str] = &[];
