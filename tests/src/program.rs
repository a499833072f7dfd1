//! The paths of programs that were built together with this one.

use std::env;
use std::path::PathBuf;

/// The path of the program or library `name`, beside the program that runs.
///
/// # Panics
/// If it was not built.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let own = env::current_exe().expect("the kernel knows what runs");
    let path = own.with_file_name(name);
    assert!(
        path.exists(),
        "{} is not built: cargo build --workspace",
        path.display()
    );
    path
}
