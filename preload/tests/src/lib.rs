//! What the tests of the libraries to preload share.
//!
//! - [`isolated`] runs tests in processes of their own, and [`Traced`] has one of these traced by a
//!   kernel that is not there; the library's functions are in front of that process's, as they are
//!   linked in.
//! - [`Libraries`] and [`Traces`] have a program of somebody else's traced by the fallback, with
//!   libraries that are preloaded; [`compile`] makes a program of C.

mod isolated;
mod compile;
mod fake;

pub use isolated::isolated;
pub use compile::{compile, compile_with};
pub use fake::{Event, Traced, update};
pub use usertrace_tests::libraries::Libraries;
pub use usertrace_tests::traces::Traces;
