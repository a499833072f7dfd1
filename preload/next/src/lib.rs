//! What the libraries to preload share.
//!
//! Each of them defines functions that stand in front of others: those of the C library, or of
//! another library that is preloaded. [`next!`] declares these others; [`start`] is what a library
//! does before `main`.
//!
//! None of it takes a lock, allocates, or uses thread-local storage of its own, once the functions
//! are found.

mod lookup;
mod macros;

pub use lookup::{Next, Replaced, Where, missing, resolve};

usertrace::share!();

/// What a library does before the program's own constructors and `main`: finds the functions that
/// come next, and gets ready to trace.
pub fn start(all: &[&Next]) {
    resolve(all);
    // It says nothing where it cannot trace: the program must not notice.
    let _ = usertrace::init();
}
