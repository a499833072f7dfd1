//! A program with probes. Its argument is the directory of the trace that covers it, which it stops
//! and starts.

use std::path::PathBuf;

use usertrace::Status;
use usertrace_scenarios::probes;
use usertrace_tests::control;

usertrace_scenarios::probes_events!();

fn main() {
    let trace = PathBuf::from(std::env::args_os().nth(1).expect("the trace's directory"));
    probes::run::<Events>(&|active| {
        control::write(&trace.join("start"), if active { "1" } else { "0" }).expect("start");
        assert_eq!(usertrace::init(), Status::Attached);
    });
}
