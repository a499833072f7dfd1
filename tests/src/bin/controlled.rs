//! The program that the tests of the control channel control, by itself.

#[path = "../../../crates/cli/tests/control/controlled.rs"]
mod controlled;

fn main() {
    controlled::run();
}
