//! What the layer records of programs that use `tracing` and `log` (B1), on the fake kernel. Each
//! test is a process of its own, because a process has one subscriber and one runtime.

mod events;
mod limits;
mod others;
mod spans;
mod traced;

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use usertrace::Status;

/// Environment variable with the name of this process's test.
const VARIABLE: &str = "USERTRACE_LAYER_TEST";

macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => {
        [$((concat!(stringify!($module), "::", stringify!($name)), $module::$name as fn())),*]
    };
}

const TESTS: [(&str, fn()); 23] = tests![
    events::events_have_their_fields,
    events::values_of_all_types,
    events::types_may_change,
    events::types_that_several_threads_bring,
    events::names_and_levels,
    events::callsites_at_one_address,
    events::log_records,
    events::nothing_without_a_trace,
    events::filters,
    spans::life_of_a_span_is_recorded,
    spans::nested_spans,
    spans::chosen_parents,
    spans::several_threads,
    limits::long_values,
    limits::many_layouts,
    limits::many_fields,
    limits::values_in_any_order,
    limits::long_names,
    limits::no_allocation,
    others::other_layers_see_all,
    others::subscribers_have_their_own_spans,
    others::spans_that_are_kept_from_it,
    others::children_have_events_of_their_own,
];

fn main() -> ExitCode {
    if let Some((_, test)) = std::env::var_os(VARIABLE)
        .and_then(|wanted| TESTS.into_iter().find(|(name, _)| wanted == *name))
    {
        test();
        return ExitCode::SUCCESS;
    }
    if usertrace::status() == Status::Attached {
        eprintln!("skipped: this kernel has trace buffers of its own");
        return ExitCode::SUCCESS;
    }
    let trials = TESTS.into_iter().map(|(name, _)| {
        Trial::test(name, move || {
            let status = Command::new(std::env::current_exe()?)
                .env(VARIABLE, name)
                .status()?;
            match status.success() {
                true => Ok(()),
                false => Err(Failed::from(status.to_string())),
            }
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
