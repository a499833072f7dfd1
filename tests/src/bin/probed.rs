//! A program with probes. Its argument is the directory of the trace that it is traced by, which it
//! stops and starts.

use std::path::PathBuf;

use usertrace::Status;
use usertrace_tests::control;

#[path = "../../../usertrace/tests/probes/scenario.rs"]
mod scenario;

fn main() {
    let trace = PathBuf::from(std::env::args_os().nth(1).expect("the trace's directory"));
    scenario::run(&|active| {
        control::write(&trace.join("start"), if active { "1" } else { "0" }).expect("start");
        assert_eq!(usertrace::init(), Status::Attached);
    });
}
