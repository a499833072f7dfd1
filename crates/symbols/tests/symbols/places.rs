//! Functions, files and lines of programs.

use std::process::Command;

use usertrace_testing::compiled::{Compiled, LEAK_C, LEAK_CPP, LEAK_RUST, compile, run};

use crate::build::{FRAMES_C, module, resolve};

/// Inlined functions come first, and each has its own place.
///
/// Requirements: F1
#[test]
fn inlined_functions_are_named_with_their_lines() {
    for arguments in [
        &[][..],
        &["-no-pie"],
        &["-static-pie"],
        &["-gdwarf-4"],
        &["-gz=zlib"],
        &["-fPIC", "-shared"],
        &["-Wl,-Ttext-segment=0x7654000", "-no-pie"],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), LEAK_C, arguments);
        let (frames, messages) = resolve(&module(&program), program.here, &[]);
        assert_eq!(frames, FRAMES_C, "{arguments:?}");
        assert!(messages.is_empty(), "{messages:?}");
    }
}

#[test]
fn sections_compressed_by_zstd_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &[]);
    let mut objcopy = Command::new("objcopy");
    run(objcopy
        .arg("--compress-debug-sections=zstd")
        .arg(&program.path));
    let (frames, messages) = resolve(&module(&program), program.here, &[]);
    assert_eq!(frames, FRAMES_C, "{messages:?}");
}

#[test]
fn names_of_cpp_are_demangled() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_CPP, &[]);
    let (frames, _) = resolve(&module(&program), program.here, &[]);
    let expected = [
        "shop::Cart::leak<unsigned int>(unsigned int) shop.cc:8",
        "shop::Cart::work(unsigned int) shop.cc:13",
    ];
    assert_eq!(frames, expected);
}

#[test]
fn names_of_rust_are_demangled() {
    for mangling in [&[][..], &["-Csymbol-mangling-version=v0"]] {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), LEAK_RUST, mangling);
        let (frames, _) = resolve(&module(&program), program.here, &[]);
        assert_eq!(
            frames,
            ["shop::shop::leak shop.rs:7", "shop::shop::work shop.rs:12"]
        );
    }
}

/// Without debug information, the symbol table has the function.
#[test]
fn symbol_tables_name_functions() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &["-g0"]);
    let (frames, messages) = resolve(&module(&program), program.here, &[]);
    assert_eq!(frames, ["work ?"], "{messages:?}");
    // A library that was stripped still exports its functions.
    let library = compile(directory.path(), LEAK_C, &["-g0", "-fPIC", "-shared"]);
    run(Command::new("strip").arg(&library.path));
    let (frames, messages) = resolve(&module(&library), library.here, &[]);
    assert_eq!(frames, ["work ?"], "{messages:?}");
    // An address outside of all functions has no name.
    let (frames, _) = resolve(&module(&library), 0x10_0000, &[]);
    assert!(frames.is_empty(), "{frames:?}");
}

/// Assembly may give no size of a function. It ends with its section at the latest.
#[test]
fn functions_without_a_size_end_with_their_section() {
    const SOURCE: &str = r#"
.section .one,"ax",@progbits
.type function, @function
function:
    nop
.globl there
there:
    nop
.section .two,"ax",@progbits
.globl here
here:
    nop
"#;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop");
    let source = directory.path().join("shop.s");
    std::fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-nostdlib", "-no-pie", "-Wl,--build-id", "-Wl,-e,there"]);
    run(gcc.arg("-o").arg(&path).arg(&source));
    let program = Compiled::of(path);
    let (frames, _) = resolve(&module(&program), program.there, &[]);
    assert_eq!(frames, ["function ?"]);
    let (frames, _) = resolve(&module(&program), program.here, &[]);
    assert!(frames.is_empty(), "{frames:?}");
}

/// A file at the module's path with another build ID is not used, and a message has both IDs.
#[test]
fn other_builds_are_said_and_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let traced = compile(directory.path(), LEAK_C, &[]);
    let other = compile(directory.path(), &LEAK_C.replace("n + 1", "n + 2"), &[]);
    assert_ne!(traced.build_id, other.build_id);
    let (frames, messages) = resolve(&module(&traced), traced.here, &[]);
    assert!(frames.is_empty(), "{frames:?}");
    let ids = [&traced, &other].map(|program| program.build_id.clone().unwrap());
    assert!(
        messages.len() == 1 && ids.iter().all(|id| messages[0].contains(id)),
        "{messages:?}"
    );
    // Neither is one without a build ID.
    let mut objcopy = Command::new("objcopy");
    run(objcopy.args(["-R", ".note.gnu.build-id"]).arg(&other.path));
    let (frames, messages) = resolve(&module(&traced), traced.here, &[]);
    assert!(
        frames.is_empty() && messages[0].contains("no build ID"),
        "{messages:?}"
    );
}

/// Without a build ID, nothing says that the file is the traced one.
#[test]
fn files_without_build_ids_are_used_with_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_C, &["-Wl,--build-id=none"]);
    assert_eq!(program.build_id, None);
    let (frames, messages) = resolve(&module(&program), program.here, &[]);
    assert_eq!(frames, FRAMES_C);
    assert!(
        messages.len() == 1 && messages[0].contains("no build ID"),
        "{messages:?}"
    );
}

#[test]
fn missing_files_are_listed_once() {
    let program = Compiled {
        path: "/nonexistent/shop".into(),
        build_id: None,
        lowest: 0,
        size: 1 << 20,
        here: 0,
        there: 0,
    };
    let (frames, messages) = resolve(&module(&program), 0x1234, &[]);
    assert!(frames.is_empty());
    assert!(
        messages.len() == 1 && messages[0].contains("no symbols of 1 module: shop"),
        "{messages:?}"
    );
}
