//! Compiles the program in C that is tested in guests, too.

use std::path::{Path, PathBuf};

fn main() {
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
