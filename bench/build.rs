//! Compiles the events in C, for the benchmark that measures them beside Rust's.

use std::path::PathBuf;

fn main() {
    cc::Build::new()
        .include("../c/include")
        .file("benches/event/c.c")
        // As release builds have it, whatever this is built as.
        .opt_level(2)
        .cargo_metadata(false)
        .compile("events");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says it"));
    // All of it, as nothing refers to its constructors.
    println!("cargo::rustc-link-arg-benches=-Wl,--whole-archive");
    println!(
        "cargo::rustc-link-arg-benches={}",
        out.join("libevents.a").display()
    );
    println!("cargo::rustc-link-arg-benches=-Wl,--no-whole-archive");
    println!("cargo::rerun-if-changed=../c/include");
    println!("cargo::rerun-if-changed=benches/event/c.c");
}
