//! Builds programs with the installed library.

use std::path::Path;
use std::process::Command;

use usertrace_testing::c_library::succeed;

use crate::INSTALLED;

/// Output of `pkg-config` for the library.
fn flags(what: &[&str]) -> Vec<String> {
    INSTALLED.flags("lib/pkgconfig", &[what, &["usertrace"]].concat())
}

/// Compiles and links, without a warning.
pub(crate) fn build(compiler: &[&str], sources: &[&Path], to: &Path) {
    let output = Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(to)
        .args(flags(&["--cflags"]))
        .args(sources)
        .args(flags(&["--libs"]))
        .arg(format!(
            "-Wl,-rpath,{}",
            INSTALLED.prefix().join("lib").display()
        ))
        .output()
        .unwrap();
    succeed(&output);
}

/// Like [`build`], with the archive instead of the library.
pub(crate) fn build_static(compiler: &[&str], sources: &[&Path], to: &Path) {
    let output = Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-static", "-o"])
        .arg(to)
        .args(flags(&["--cflags"]))
        .args(sources)
        .args(flags(&["--static", "--libs"]))
        .output()
        .unwrap();
    succeed(&output);
}
