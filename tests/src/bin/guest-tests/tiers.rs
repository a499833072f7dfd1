//! Which tiers run a test. Tests that are not named here run on the release kernel in the middle
//! tier, and on both kernels in the full tier.

/// The middle tier runs these on the debug kernel, too.
///
/// The series' own tests in C and the adversary run there as well. These tests change the kernel's
/// state in ways that those do not, so that KASAN, lockdep, PROVE_RCU and kmemleak look at each
/// path of the series at least once.
pub(crate) const CHANGE_STATE: &[&str] = &[
    // Control groups and limits.
    "pages_are_charged_to_the_programs_cgroup",
    "process_limit_is_enforced",
    "user_limit_covers_all_processes_of_the_user",
    // Traces that end while somebody writes, and processes that end without having been told.
    "writer_survives_the_removal_of_its_trace",
    "process_exit_acknowledges_removals",
    // Updates, beside readers.
    "info_is_always_consistent",
    // Positions that make no sense.
    "forged_positions_harm_no_other_process",
    // What the kernel does to rings of other processors, and processors that go.
    "cpu_hotplug_loses_no_event",
    "cpu_added_after_the_start_has_its_ring",
    // Channels, modes.
    "ten_thousand_mode_changes_tear_no_record_and_count_all_losses",
    "each_event_reaches_its_traces_and_memory_is_freed",
    // Programs that change traces, with any rights and in any namespace.
    "flight_recorder_stopped_by_an_event_keeps_what_led_to_it",
    "programs_fire_triggers_from_anywhere",
    // Processes that share memory. The adversary kills them in each way.
    "children_of_every_kind_of_clone_have_their_own_buffers",
    "areas_live_until_the_last_sharing_process_ends",
    // Mappings. The adversary gives each advice.
    "areas_cannot_be_grown_copied_or_partly_covered",
    "written_events_survive_unmapped_areas",
    "area_cannot_be_mapped_again",
    "kernel_takes_no_reference_to_pages_of_areas",
    "proc_shows_the_areas_and_changes_nothing",
    "areas_cannot_be_accessed_from_outside",
    // Everything at once.
    "traces_are_extracted_from_live_memory",
    "ten_thousand_traces_come_and_go_under_eight_writers",
];

/// Long tests, which only the full tier runs. Each needs many seconds of a processor. The comments
/// say which shorter tests of the middle tier show the same in part.
pub(crate) const LONG: &[&str] = &[
    // `terminal` runs the documents' commands, with the fallback and as another user.
    "commands_of_the_documents_work",
    // On the host, `fast::tables`, `fast::chunks`, `fast::relay`, `restart` and `tools::consumer`
    // try the same recorder and daemon with the fallback. Of the tests with the kernel,
    // `record_saves_exactly_the_written_events` remains, and
    // `repeatedly_killed_recorder_loses_and_repeats_nothing`.
    "daemon_makes_tables_of_each_finished_chunk",
    "daemon_sends_each_event_to_a_relay_once",
    "kernel_events_of_a_killed_recorder_are_in_no_other_recording",
    "killed_recorder_repeats_and_omits_no_kernel_event",
    "old_chunks_are_removed_at_the_limits",
    "recorder_raises_its_limit_of_open_files",
    "recording_of_a_pid_ends_with_the_process",
    "recordings_in_ctf_2_equal_those_in_ctf_1_8",
    "restarted_and_rotating_daemon_loses_and_repeats_nothing",
    "second_recorder_is_rejected",
    "snapshot_has_the_newest_events_and_stops_no_writer",
    "undescribed_events_are_reported",
    "viewers_read_a_recording_live",
    // On the host, `terminal`, `tools::top` and `control` try the same commands with the fallback.
    // `shell_commands_control_traces` and `command_controls_a_program` remain.
    "list_asks_processes_for_missing_descriptions",
    "list_shows_the_events_of_processes",
    "record_and_top_update_the_terminal",
    "terminal_shows_the_progress_of_a_recording",
    "top_counts_without_consuming",
    "top_marks_estimates",
    "traces_outlive_the_commands_that_create_them",
    // `losses_are_reported_and_end_with_the_shortage` remains.
    "events_lost_for_lack_of_memory_are_reported",
    // `user_above_its_memory_limit_slows_no_other_user` remains.
    "constant_updates_slow_no_other_user",
    "slow_watcher_delays_no_program",
    // `tracing_does_not_change_sqlite3` remains, and `programs` on the host.
    "tracing_does_not_change_a_shell_and_its_children",
    "tracing_does_not_change_ls",
    // `sigkill_loses_no_committed_event` remains, and
    // `each_scope_records_exactly_the_written_events`.
    "sigkill_loses_no_committed_event_in_any_scope",
    "vfork_child_leaves_rings_of_each_scope_alone",
    // `kernel_events_are_ordered_among_program_events` remains.
    "kernel_event_fields_equal_the_kernels_own_text",
    "missing_tracefs_and_unknown_kernel_events_are_named",
    "overwritten_kernel_events_are_counted",
    // `terminal` tries the same examples with the fallback.
    "examples_of_the_manual_work",
    // `tools::daemon` shows what the daemon tells systemd.
    "systemd_starts_restarts_rotates_and_stops_the_daemon",
    // The test of sqlite3 remains. With the fallback, `load::python_with_threads`
    // does; in the middle tier nothing shows that redis-server is not changed.
    "all_libraries_do_not_change_redis_server_under_load",
    "all_libraries_do_not_change_python_with_threads",
    // `restart` fills the disk at each write of the same recorder.
    "full_disk_loses_nothing_silently",
    "recording_stopped_by_a_full_disk_can_be_continued",
    "file_size_limit_acts_like_a_full_disk",
    // `discarded_events_are_reported` and the tests of each mode remain.
    "stalled_recorder_loses_per_mode",
    // `shell_commands_control_traces` remains.
    "command_line_controls_and_reads_traces",
    // The series' own tests do what each of these attackers does. Two other attackers remain.
    "full_buffers_of_dead_processes_slow_no_other_user",
    "unmapping_areas_during_alloc_slows_no_other_user",
    "removing_a_trace_full_of_dead_buffers_slows_no_other_user",
];
