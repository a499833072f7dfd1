//! Compiles the C sources of programs and libraries that guests use.

use std::path::{Path, PathBuf};

fn main() {
    program(
        "c-program",
        "c_program",
        "programs",
        &["fields.c", "other.c"],
    );
    program(
        "lttng-program",
        "lttng_program",
        "lttng/providers",
        &["program.c", "messages.c", "define.c", "probes.c"],
    );
    probes();
    println!("cargo::rerun-if-changed=../c/include");
}

/// A program of this crate that is in C but for its `main`, which calls the function `entry`
/// instead.
fn program(name: &str, entry: &str, directory: &str, sources: &[&str]) {
    let include = Path::new("../c/include");
    let directory = Path::new("../c/tests").join(directory);
    cc::Build::new()
        .includes([include, &include.join("usertrace/lttng-ust"), &directory])
        .define("main", entry)
        // `__FILE__` as if their authors compiled them in that directory.
        .flag(format!("-fmacro-prefix-map={}/=", directory.display()))
        .files(sources.iter().map(|source| directory.join(source)))
        .cargo_metadata(false)
        .compile(entry);
    let archive = out().join(format!("lib{entry}.a"));
    // All of it, as nothing refers to its constructors.
    for argument in [
        "-Wl,--whole-archive",
        &archive.to_string_lossy(),
        "-Wl,--no-whole-archive",
    ] {
        println!("cargo::rustc-link-arg-bin={name}={argument}");
    }
    println!("cargo::rerun-if-changed={}", directory.display());
}

/// Libraries of probes, each of which has a second probe of its name.
fn probes() {
    let source = "../crates/scenarios/src/control/probes.c";
    let out = out();
    let compiler = cc::Build::new()
        .include("../c/include")
        .cargo_metadata(false)
        .get_compiler();
    for second in ["other", "count"] {
        let status = compiler
            .to_command()
            .args(["-shared", "-fPIC", "-Wno-unused-result"])
            .arg(format!("-DSECOND=\"{second}\""))
            .args([source, "-o"])
            .arg(out.join(format!("{second}.so")))
            .status()
            .expect("a C compiler");
        assert!(status.success());
    }
    println!("cargo::rustc-env=USERTRACE_PROBES={}", out.display());
    println!("cargo::rerun-if-changed={source}");
}

fn out() -> PathBuf {
    PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says it"))
}
