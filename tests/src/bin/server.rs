//! The program that tests in a terminal trace.

usertrace_scenarios::server_events!();

fn main() {
    usertrace_scenarios::server::run::<Events>();
}
