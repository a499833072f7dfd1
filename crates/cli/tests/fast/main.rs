//! The fallback as a whole: programs, rings, daemons, traces (D, F3, F2, A5, A10).
//!
//! Each test runs this executable once more as a traced program, and reads what the daemons wrote.

mod chunks;
mod complaints;
mod containers;
mod contexts;
mod controlled;
mod daemons;
mod disk;
mod fields;
mod filter;
mod hosts;
mod kills;
mod output;
mod processes;
mod programs;
mod relay;
mod relay_send;
mod run;
mod stat;
mod stepped;
mod tables;
mod trace;
mod unnoticed;
mod unwritable;
mod victims;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Makes a list of trials from test functions.
macro_rules! trials {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            $module::$name();
            Ok(())
        })),*]
    };
}

/// Processes and their families, environments and outputs.
fn of_processes() -> Vec<Trial> {
    trials![
        processes::library_is_ready_before_main,
        processes::each_thread_has_a_readable_stream,
        processes::threads_may_run_before_the_library_starts,
        processes::rings_of_ended_threads_serve_others,
        processes::children_have_their_own_traces,
        processes::children_are_traced_without_fork_handlers,
        processes::end_of_the_first_thread_keeps_the_trace,
        processes::signal_handler_may_fork,
        processes::events_before_exec_are_written,
        processes::daemons_stay_for_an_orphaned_child,
        processes::no_way_to_end_loses_an_event,
        processes::closed_descriptors_do_no_harm,
        processes::lost_permissions_do_no_harm,
        processes::refused_system_calls_do_no_harm,
        processes::short_lived_children_wait_for_slots,
        processes::late_exit_detection_loses_no_child,
        processes::processes_without_slot_are_reported,
        processes::rings_respect_the_limit_of_address_space,
        containers::process_1_ends_when_its_trace_is_written,
        containers::process_1_is_recorded,
        containers::children_in_other_namespaces_are_distinguished,
        containers::subreaper_waits_for_its_own_children_only,
        containers::containers_write_to_a_volume,
        containers::recorder_as_process_1_completes_a_killed_programs_trace,
        containers::profile_that_refuses_the_discovery_leaves_the_fallback,
        unwritable::blocking_ends_when_output_is_unwritable,
        unwritable::daemons_may_be_refused_or_killed_by_a_filter,
        unwritable::recording_fails_on_full_disk,
        unwritable::fifo_blocks_no_process,
        unwritable::symbolic_links_are_not_followed,
        unnoticed::tracing_changes_nothing_that_a_program_sees,
        unnoticed::daemons_share_nothing_visible_with_the_program,
    ]
}

/// The contents of traces, and what is reported.
fn of_output() -> Vec<Trial> {
    trials![
        output::idle_process_makes_no_files,
        output::first_switch_writes_the_files,
        output::trace_is_complete_when_program_ends,
        output::null_output_loses_nothing_and_writes_no_file,
        output::each_thread_has_its_own_file,
        output::all_pages_are_allocated_early_on_request,
        output::report_names_chosen_back_end,
        output::blocking_loses_nothing,
        output::every_loss_is_counted,
        output::full_disk_is_reported,
        output::record_writes_whole_recording,
        output::record_names_busiest_process,
        output::record_writes_ctf_2,
        output::record_advises_on_losses,
        output::one_recording_has_one_time_of_day,
        output::record_applies_trace_options,
        fields::each_field_type_is_read_as_written,
        contexts::contexts_are_read_as_written,
        contexts::numbers_are_known_before_a_program_filters_its_calls,
        complaints::invalid_variable_is_reported_once,
        complaints::process_family_reports_it_once,
        complaints::reports_need_no_reader,
        complaints::filter_variable_takes_patterns_of_record,
        stat::stat_counts_all_processes,
        stat::stat_counts_what_it_is_asked_for,
        stat::stat_counts_killed_programs,
        stat::stat_shows_intervals,
        stat::stat_reports_overflow,
    ]
}

/// Daemons and programs that are killed.
fn of_daemons() -> Vec<Trial> {
    trials![
        daemons::daemons_share_the_rings_until_the_program_ends,
        daemons::full_subbuffer_is_written_while_the_program_runs,
        daemons::writing_is_not_charged_to_the_program,
        daemons::killed_worker_is_replaced,
        stepped::worker_killed_at_any_system_call_is_replaced,
        stepped::worker_killed_while_wiping_is_replaced,
        daemons::killed_watchdog_is_replaced,
        daemons::repeatedly_killed_daemons_lose_no_event,
        daemons::events_survive_death_of_both_daemons,
        daemons::blocking_ends_when_daemons_are_dead,
        kills::killed_program_keeps_all_events_in_discard_mode,
        kills::killed_program_keeps_all_events_in_rings_of_threads,
        kills::killed_program_keeps_the_newest_events_in_overwrite_mode,
        kills::killed_program_keeps_the_newest_events_in_overwritten_rings_of_threads,
        kills::killed_program_loses_nothing_in_block_mode,
        kills::killed_program_loses_nothing_in_blocking_rings_of_threads,
    ]
}

/// Recordings in chunks, and programs that are controlled while they run.
fn of_chunks() -> Vec<Trial> {
    trials![
        tables::chunks_become_tables_as_they_end,
        tables::full_disk_of_tables_is_reported,
        tables::tables_need_chunks,
        chunks::each_event_is_in_one_chunk,
        chunks::chunks_of_a_process_are_one_process,
        chunks::chunks_are_followed,
        chunks::events_are_in_the_chunk_of_their_time,
        chunks::old_chunks_are_removed,
        chunks::stale_checkpoints_are_ignored,
        chunks::recording_ends_at_size_limit,
        chunks::killed_daemons_lose_no_event_in_chunks,
        chunks::replaced_watchdog_keeps_no_chunk,
        chunks::each_short_lived_child_is_in_a_chunk,
        chunks::each_short_lived_child_of_killed_daemons_is_in_a_chunk,
        chunks::rings_of_threads_are_written_to_chunks,
        chunks::forged_chunk_name_does_not_redirect_output,
        chunks::idle_process_makes_no_chunk,
        chunks::process_1_is_recorded_in_chunks,
        chunks::full_disk_is_reported_with_chunks,
        chunks::killed_recorder_leaves_readable_chunks,
        chunks::chunks_may_be_removed_while_written,
        chunks::stopped_daemon_delays_no_other_process,
        controlled::snapshot_copies_the_rings_of_running_programs,
        controlled::snapshot_has_each_process_that_has_written,
        controlled::running_programs_are_found_by_name,
        controlled::commands_name_programs_that_they_cannot_reach,
        controlled::running_programs_are_controlled,
    ]
}

/// Recordings that are sent to a relay.
fn of_relays() -> Vec<Trial> {
    trials![
        relay::relay_has_each_event_once_and_nothing_waits,
        relay::killed_relay_gets_the_rest_when_it_is_back,
        relay::absent_relay_leaves_events_in_the_rings_and_counts_the_rest,
        relay::absent_relay_makes_only_blocking_writers_wait,
        relay::killed_recorder_leaves_nothing_twice,
        relay::recording_without_a_relay_is_sent_later,
        relay::hostile_relay_is_an_error_and_loses_nothing,
        relay::killed_workers_leave_nothing_twice,
        relay::live_viewer_reads_what_is_written,
        relay::live_viewer_finds_a_process_while_others_are_idle,
        relay::live_viewer_waits_for_a_program_without_a_trace,
        relay::invalid_combinations_are_refused,
        relay::killed_recorder_with_a_full_spool_lets_writers_go_on,
        relay::marks_tell_of_no_event_that_stays_in_a_ring,
        relay::spool_leaves_room_on_the_disk,
        relay::spool_leaves_room_while_the_recorder_is_stopped,
        relay::signal_ends_the_wait_for_a_relay,
        relay_send::directory_without_a_recording_is_refused,
        relay_send::recording_has_one_sender,
        relay_send::recording_is_sent_while_it_is_written,
        relay_send::odd_names_stay_below_the_relays_directory,
        relay_send::links_in_a_recording_are_not_sent,
        hosts::three_hosts_are_read_live,
    ]
}

/// Tests that only the full tier runs. A minute of a processor; the tests of `relay` break one
/// connection each.
fn long() -> Vec<Trial> {
    let long = trials![hosts::three_hosts_have_each_event_once_whatever_breaks];
    let ignored = |trial: Trial| trial.with_ignored_flag(true);
    long.into_iter().map(ignored).collect()
}

fn main() -> ExitCode {
    if programs::run() {
        return ExitCode::SUCCESS;
    }
    let lists = [
        of_processes(),
        of_output(),
        of_daemons(),
        of_chunks(),
        of_relays(),
        long(),
    ];
    let trials = lists.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
