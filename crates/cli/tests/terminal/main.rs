//! The commands of a new user, and their output, in a real terminal (F1), without the kernel's
//! buffers (D, F3). The tests in the guest have the kernel's buffers.

mod fallback;

use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use usertrace_scenarios::server;

usertrace_scenarios::server_events!();

fn main() -> ExitCode {
    let own = std::env::args_os().next().unwrap_or_default();
    if Path::new(&own).file_name() == Some(server::NAME.as_ref()) {
        server::run::<Events>();
        return ExitCode::SUCCESS;
    }
    let trials = fallback::ALL.iter().map(|&(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
