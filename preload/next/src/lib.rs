//! Support for the libraries to preload: interposing functions.
//!
//! Each library defines functions that interpose those of the C library, or of another preloaded
//! library. [`next!`] declares the interposed functions, and [`start`] runs before `main`.
//!
//! Once the functions are found, none of this takes a lock, allocates, or uses thread-local storage
//! of its own.

mod lookup;
mod macros;
mod release;

pub use usertrace::__private::Caller;

pub use lookup::{Next, Replaced, SearchScope, missing, resolve};
pub use release::of_release;

usertrace::share!();

/// Initialises a library before the program's own constructors and `main`: finds the interposed
/// functions, and prepares for tracing.
pub fn start(all: &[&Next]) {
    resolve(all);
    release::start();
    // A failure is silent: the program must not notice it.
    let _ = usertrace::init();
}
