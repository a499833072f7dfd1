//! The program that tests in a terminal trace, by itself.

#[path = "../../../crates/cli/tests/terminal/server.rs"]
mod server;

fn main() {
    server::run();
}
