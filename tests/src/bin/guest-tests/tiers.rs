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
    // Processes that share memory, and ways to die.
    "children_of_every_kind_of_clone_have_their_own_buffers",
    "areas_live_until_the_last_sharing_process_ends",
    "no_way_to_die_loses_a_committed_event",
    // Mappings.
    "areas_cannot_be_grown_copied_or_partly_covered",
    "written_events_survive_unmapped_areas",
    "madvise_changes_no_area",
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
    // `terminal` tries the same examples with the fallback.
    "examples_of_the_manual_work",
    // `tools::daemon` shows what the daemon tells systemd.
    "systemd_starts_restarts_rotates_and_stops_the_daemon",
    // The tests of sqlite3, ls and a shell remain. With the fallback, `load::python_with_threads`
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
