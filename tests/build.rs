//! Compiles what is in C of the programs that are tested in guests, too.

use std::path::{Path, PathBuf};

fn main() {
    fields();
    probes();
}

/// The program of all kinds of fields.
fn fields() {
    let c = Path::new("../c");
    let sources = ["fields.c", "other.c"].map(|name| c.join("tests/programs").join(name));
    cc::Build::new()
        .include(c.join("include"))
        .define("main", "c_program")
        .files(&sources)
        .cargo_metadata(false)
        .compile("c_program");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says it"));
    // All of it, as nothing refers to its constructors.
    println!("cargo::rustc-link-arg-bin=c-program=-Wl,--whole-archive");
    println!(
        "cargo::rustc-link-arg-bin=c-program={}",
        out.join("libc_program.a").display()
    );
    println!("cargo::rustc-link-arg-bin=c-program=-Wl,--no-whole-archive");
    println!("cargo::rerun-if-changed=../c/include");
    println!("cargo::rerun-if-changed=../c/tests/programs");
}

/// Libraries of probes, each of which has a second probe of its name.
fn probes() {
    let source = "../usertrace/tests/control/probes.c";
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says it"));
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
