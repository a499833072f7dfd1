//! Programs that tests trace, and tests of them, for two places: on the host, the fallback traces
//! the programs; in a guest, the kernel does.
//!
//! - [`control`] has a program with a control channel, and the tests of that channel.
//! - [`probes`] is what a program with probes does and checks.
//! - [`server`] is a program that writes events until it is killed.
//!
//! Each program is a `main` of a line or two in `tests/src/bin`, and the tests on the host start
//! their own executable as the program. Nothing here declares an event: the linker would keep it
//! in every executable that uses this crate, and each program must have its own events only.
//! [`probes_events!`] and [`server_events!`] declare them where they stand.
//!
//! This crate is apart from `usertrace-testing`, because it depends on the library `usertrace`,
//! whose unit tests cannot link a second copy of the library.
#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    clippy::new_without_default,
    reason = "a test panics where something is wrong"
)]

pub mod control;
pub mod probes;
pub mod server;
