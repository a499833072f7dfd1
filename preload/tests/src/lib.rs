//! Support for the tests of the libraries to preload.
//!
//! - [`isolated`] runs tests in separate processes, and [`Traced`] traces one of these with a
//!   simulated kernel. The library's functions interpose that process's, as they are linked.
//! - [`Libraries`] and [`Traces`] trace a program of another project with preloaded libraries and
//!   the fallback; [`compile`] compiles a program in C.

mod compile;
mod fake;
mod isolated;

pub use compile::{compile, compile_with};
pub use fake::{Event, Traced, update};
pub use isolated::isolated;
pub use usertrace_tests::libraries::Libraries;
pub use usertrace_tests::traces::Traces;
