//! A program or debug file: looking up addresses in it ends, with names that can be printed.
//!
//! The input is the file.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use usertrace_symbols::{BuildId, Module, Options, Symbols};

static DIRECTORY: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
static FILE: LazyLock<PathBuf> = LazyLock::new(|| DIRECTORY.path().join("file"));

fuzz_target!(|input: &[u8]| {
    fs::write(&*FILE, input).unwrap();
    let Ok(build_id) = BuildId::of_file(&FILE) else {
        return;
    };
    let mut symbols = Symbols::new(Options {
        debug_dirs: Vec::new(),
        debuginfod: false,
    });
    let module = Module::new(0, &FILE, build_id, None);
    // The seeds have functions there.
    for offset in (0x110..0x128).chain(0x230..0x248).step_by(4).chain([0, u64::MAX]) {
        for frame in symbols.frames(&module, offset).iter() {
            assert!(!frame.function.is_empty() && !frame.to_string().contains(char::is_control));
        }
    }
    for message in symbols.take_messages() {
        assert!(!message.contains(char::is_control));
    }
});
