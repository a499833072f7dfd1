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
mod kills;
mod output;
mod processes;
mod programs;
mod run;
mod stepped;
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

fn main() -> ExitCode {
    if programs::run() {
        return ExitCode::SUCCESS;
    }
    let trials = trials![
        processes::ready_before_main,
        processes::threads_have_streams,
        processes::threads_before_the_library,
        processes::rings_of_threads_are_used_again,
        processes::children_have_traces_of_their_own,
        processes::children_without_handlers,
        processes::the_first_thread_ends,
        processes::signal_handler_may_fork,
        processes::another_program,
        processes::a_daemon,
        processes::all_ways_to_end,
        processes::without_descriptors,
        processes::without_permissions,
        processes::filtered_calls,
        processes::short_lived_children_wait_for_slots,
        processes::late_exit_detection_loses_no_child,
        processes::processes_without_slot_are_reported,
        processes::a_limit_of_address_space,
        containers::process_1_ends_when_its_trace_is_written,
        containers::process_1_is_recorded,
        containers::children_in_other_namespaces,
        containers::a_subreaper_waits_for_its_own_children,
        unwritable::blocking_ends_when_output_is_unwritable,
        unwritable::daemons_below_a_filter,
        unwritable::recording_fails_on_full_disk,
        unwritable::nobody_waits_at_a_fifo,
        unwritable::symbolic_links_are_not_followed,
        unnoticed::surroundings_are_the_same,
        unnoticed::the_daemons_are_apart,
        output::idle_process_makes_no_files,
        output::files_come_with_the_first_switch,
        output::trace_is_complete_when_program_ends,
        output::null_output,
        output::each_thread_has_a_file_of_its_own,
        output::pages_are_allocated_early_on_request,
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
        fields::each_field_type_comes_back,
        contexts::contexts_come_back,
        complaints::invalid_variable_is_reported_once,
        complaints::process_family_reports_it_once,
        complaints::reports_need_no_reader,
        complaints::filter_variable_takes_patterns_of_record,
        daemons::daemons_share_the_rings_until_the_program_ends,
        daemons::a_full_subbuffer_is_written_while_the_program_runs,
        daemons::writing_is_not_charged_to_the_program,
        daemons::killed_worker_is_replaced,
        stepped::worker_killed_at_any_system_call_is_replaced,
        stepped::worker_killed_while_wiping_is_replaced,
        daemons::killed_watchdog_is_replaced,
        daemons::daemons_are_killed_repeatedly,
        daemons::events_survive_death_of_both_daemons,
        daemons::blocking_ends_when_daemons_are_dead,
        chunks::each_event_is_in_one_chunk,
        chunks::chunks_of_a_process_are_one_process,
        chunks::chunks_are_followed,
        chunks::events_are_in_the_chunk_of_their_time,
        chunks::old_chunks_are_removed,
        chunks::stale_checkpoints_are_ignored,
        chunks::recording_ends_at_size_limit,
        chunks::daemons_are_killed_between_chunks,
        chunks::replaced_watchdog_keeps_no_chunk,
        chunks::short_children_are_in_some_chunk,
        chunks::short_children_of_killed_daemons_are_in_some_chunk,
        chunks::rings_of_threads_are_in_chunks,
        chunks::forged_chunk_name_does_not_redirect_output,
        chunks::idle_process_makes_no_chunk,
        chunks::process_1_is_in_chunks,
        chunks::chunks_without_room_fail,
        chunks::killed_recorder_leaves_readable_chunks,
        chunks::chunks_may_be_removed_while_written,
        chunks::stopped_daemon_delays_no_other_process,
        controlled::snapshots_of_running_programs,
        controlled::running_programs_are_found_by_name,
        controlled::snapshots_of_nothing,
        controlled::running_programs_are_controlled,
        kills::discard,
        kills::discard_threads,
        kills::overwrite,
        kills::overwrite_threads,
        kills::block,
        kills::block_threads,
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
