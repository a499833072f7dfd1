//! The program that the tests of the control channel control, by itself.

#[path = "../../../usertrace/tests/control/controlled.rs"]
mod controlled;

fn main() {
    controlled::run();
}
