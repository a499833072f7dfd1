//! Compiles programs in C.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a C program.
///
/// # Panics
/// If there is no C compiler, or it fails.
#[must_use]
pub fn compile(directory: &Path, source: &str) -> PathBuf {
    compile_with(directory, "program", source, &["-pthread"])
}

/// Compiles C into a file of this name.
///
/// # Panics
/// As for [`compile`].
#[must_use]
pub fn compile_with(directory: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let (file, program) = (directory.join("source.c"), directory.join(name));
    std::fs::write(&file, source).expect("a file");
    let status = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-Wall", "-Werror", "-o"])
        .args([&program, &file])
        .args(arguments)
        .arg("-ldl")
        .status()
        .expect("a C compiler");
    assert!(status.success());
    program
}
