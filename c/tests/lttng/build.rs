//! Builds programs with the installed headers for LTTng-UST programs, or with LTTng-UST itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::c_library::succeed;

use crate::INSTALLED;

pub(crate) const COMPILERS: &[(&str, &[&str])] = &[
    ("c_by_gcc", &["gcc", "-std=c11", "-O2"]),
    ("c_by_clang", &["clang-19", "-std=c11", "-O2"]),
    ("c_without_optimisation", &["gcc", "-std=gnu17", "-O0"]),
    ("cpp_by_gcc", &["g++", "-x", "c++", "-std=c++17", "-O2"]),
    (
        "cpp_by_clang",
        &["clang++-19", "-x", "c++", "-std=c++17", "-O2"],
    ),
];

/// Directory of the sources. They are compiled there with `-I.`, as their authors do.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lttng/providers")
}

/// Output of `pkg-config` for our directory in place of LTTng-UST.
fn flags(what: &str) -> Vec<String> {
    INSTALLED.flags("lib/usertrace/lttng-ust/pkgconfig", &[what, "lttng-ust"])
}

/// Compiles and links with our headers, without a warning.
pub(crate) fn build(compiler: &[&str], args: &[&str], to: &Path) {
    let output = Command::new(compiler[0])
        .current_dir(sources())
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Werror", "-I."])
        .args(flags("--cflags"))
        .args(args)
        .arg("-o")
        .arg(to)
        .args(flags("--libs"))
        .arg(format!(
            "-Wl,-rpath,{}",
            INSTALLED.prefix().join("lib").display()
        ))
        .output()
        .unwrap();
    succeed(&output);
}

/// Compiles and links with LTTng-UST, whose headers cause warnings.
pub(crate) fn build_with_lttng(compiler: &[&str], args: &[&str], to: &Path) {
    let output = Command::new(compiler[0])
        .current_dir(sources())
        .args(&compiler[1..])
        .args(["-w", "-I."])
        .args(args)
        .arg("-o")
        .arg(to)
        .args(["-llttng-ust", "-ldl"])
        .output()
        .unwrap();
    succeed(&output);
}
