//! The program that the tests of the control channel control.

use usertrace::event;
use usertrace_scenarios::control::controlled;

usertrace_testing::numbered_event!(n);

fn main() {
    controlled::run(|n| event!(numbered, n));
}
