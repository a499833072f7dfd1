//! The library that the test programs share.
//!
//! - `guest-tests` runs as root in the guest, and tests what the kernel and the library promise to
//!   programs.
//! - `crash-tests` runs on the host: it boots guests, panics them, and reads their dumps.
//! - `numbered` is the program that both trace. Its events carry their own number.
//!
//! ```sh
//! scripts/test guest crash debug
//! cargo build --workspace && scripts/guest -- target/debug/guest-tests fork_child
//! ```
//!
//! The names of tests begin with the requirement that they show. Tests wait for conditions, never
//! for time to pass. `USERTRACE_TEST_COUNTS=full` asks for the full counts of random searches:
//! see [`usertrace_testing::counts::counts`]. `USERTRACE_TEST_SCALE=N` divides the large counts by
//! N; on the debug kernel N is 20 unless it is set. `USERTRACE_FUZZ_SECONDS`,
//! `USERTRACE_TEST_PROCESSES`, `USERTRACE_TEST_KILLS`, and on the host `USERTRACE_TEST_ROUNDS` (how
//! often libraries are loaded), `USERTRACE_INSTANTS`, `USERTRACE_PANICS` and `USERTRACE_SWEEP` (how
//! often a busy guest is stopped, how many panic, and how often all is stepped through) ask for as
//! many of what takes minutes. (`usertrace-vm guest --env NAME=N` hands them on.)

pub mod accounting;
pub mod areas;
pub mod bystander;
pub mod child;
pub mod consumer;
pub mod control;
pub mod cpu;
pub mod directory;
pub mod event;
pub mod guest;
pub mod instants;
pub mod libraries;
pub mod lock_audit;
pub mod lttng;
pub mod malloc_audit;
pub mod maps;
pub mod page_tables;
pub mod parse;
pub mod proc_snapshot;
pub mod program;
pub mod progress;
pub mod random;
pub mod raw;
pub mod reader;
pub mod record;
pub mod redis;
pub mod running;
pub mod shared;
pub mod traces;

/// Functions for scripts that start systemd in a guest.
pub const SYSTEMD: &str = include_str!("systemd.sh");
