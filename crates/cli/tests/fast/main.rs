//! The fallback as a whole: programs, rings, daemons, traces (D, F3, F2, A5, A10).
//!
//! Each test runs this very executable once more as a program that is traced, and reads what the
//! daemons wrote.

mod chunks;
mod complaints;
mod containers;
mod contexts;
mod daemons;
mod disk;
mod fields;
mod filter;
mod kills;
mod output;
mod processes;
mod programs;
mod run;
mod steered;
mod stepped;
mod trace;
mod unnoticed;
mod unwritable;
mod victims;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Trials of functions.
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
        processes::a_handler_that_forks,
        processes::another_program,
        processes::a_daemon,
        processes::all_ways_to_end,
        processes::without_descriptors,
        processes::without_permissions,
        processes::filtered_calls,
        processes::children_that_live_for_a_moment,
        processes::children_whose_end_is_noticed_late,
        processes::those_for_whom_there_is_no_room_are_told,
        processes::a_limit_of_address_space,
        containers::process_1_ends_when_its_trace_is_written,
        containers::process_1_is_recorded,
        containers::children_in_other_namespaces,
        containers::a_subreaper_waits_for_its_own_children,
        unwritable::blocking_ends_where_nothing_can_be_written,
        unwritable::daemons_below_a_filter,
        unwritable::a_recording_without_room_fails,
        unwritable::nobody_waits_at_a_fifo,
        unwritable::links_lead_to_no_other_file,
        unnoticed::surroundings_are_the_same,
        unnoticed::the_daemons_are_apart,
        output::nothing_is_made_for_nothing,
        output::files_come_with_the_first_switch,
        output::what_a_program_wrote_is_there_when_it_has_ended,
        output::null_output,
        output::each_thread_has_a_file_of_its_own,
        output::pages_that_were_asked_for,
        output::the_report_says_what_was_chosen,
        output::blocking_loses_nothing,
        output::losses_are_told,
        output::a_full_disk,
        output::the_command_records,
        output::the_command_says_how_to_see_the_busiest_process,
        output::f1_the_command_records_ctf_2,
        output::the_command_says_what_keeps_events,
        output::one_recording_has_one_time_of_day,
        output::e4_the_command_records_what_is_asked_for,
        fields::b1_each_type_comes_back,
        contexts::f7_contexts_come_back,
        complaints::a_bad_value_is_told_once,
        complaints::a_family_tells_it_once,
        complaints::nobody_has_to_read_it,
        complaints::a_filter_is_what_record_has,
        daemons::daemons_share_the_rings_until_the_program_ends,
        daemons::a_full_subbuffer_is_written_while_the_program_runs,
        daemons::writing_is_not_charged_to_the_program,
        daemons::the_worker_is_replaced,
        stepped::a_worker_that_is_killed_at_any_call_is_replaced,
        stepped::a_worker_that_is_killed_while_it_wipes_is_replaced,
        daemons::the_guardian_is_replaced,
        daemons::either_one_again_and_again,
        daemons::both_are_killed,
        daemons::nobody_waits_for_the_dead,
        chunks::each_event_is_in_one_chunk,
        chunks::chunks_of_a_process_are_one_process,
        chunks::chunks_are_followed,
        chunks::events_are_in_the_chunk_of_their_time,
        chunks::old_chunks_are_removed,
        chunks::notes_that_were_there_are_not_taken,
        chunks::a_recording_that_is_too_large_ends,
        chunks::daemons_are_killed_between_chunks,
        chunks::a_new_guardian_keeps_no_chunk,
        chunks::short_children_are_in_some_chunk,
        chunks::short_children_of_killed_daemons_are_in_some_chunk,
        chunks::rings_of_threads_are_in_chunks,
        chunks::a_wrong_name_leads_nowhere_else,
        chunks::nothing_makes_no_chunk,
        chunks::process_1_is_in_chunks,
        chunks::chunks_without_room_fail,
        chunks::a_killed_recorder_leaves_chunks_that_can_be_read,
        chunks::others_may_remove_what_they_like,
        chunks::a_daemon_that_stands_still_holds_up_nobody,
        steered::snapshots_of_programs_that_run,
        steered::programs_that_run_are_found_by_their_names,
        steered::snapshots_of_nothing,
        steered::programs_that_run_are_steered,
        kills::discard,
        kills::discard_threads,
        kills::overwrite,
        kills::overwrite_threads,
        kills::block,
        kills::block_threads,
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
