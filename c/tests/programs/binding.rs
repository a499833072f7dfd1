//! The dynamic linker binds the functions that events call before the program runs. An event in a
//! signal handler never needs the large stack frame of lazy binding.

use std::process::Command;

use usertrace_testing::c_library::succeed;

use crate::events::source;
use crate::warnings::{compilers, include};

pub(crate) const ALL: &[(&str, fn())] = &[("binding_is_never_lazy", binding)];

/// Functions that are called only before `main` and at the end.
const MAY_BE_LAZY: [&str; 2] = ["usertrace_register", "usertrace_unregister"];

/// Requirements: F2, F7
fn binding() {
    let directory = tempfile::tempdir().unwrap();
    let object = directory.path().join("strict.o");
    let mut seen = 0;
    for compiler in compilers() {
        for level in ["-O0", "-O2"] {
            let output = Command::new(compiler[0])
                .args(&compiler[1..])
                .args([level, "-fPIE", "-I"])
                .arg(include(""))
                .arg("-c")
                .arg(source("strict.c"))
                .arg("-o")
                .arg(&object)
                .output();
            succeed(&output.unwrap());
            let relocations = Command::new("readelf").arg("-rW").arg(&object).output();
            for line in succeed(&relocations.unwrap()).lines() {
                let words: Vec<_> = line.split_whitespace().collect();
                // The linker makes an entry in the procedure linkage table for a call of a function
                // that another file defines, or where the relocation asks for one.
                let [_, _, kind, value, name, ..] = words[..] else {
                    continue;
                };
                let is_elsewhere = value.bytes().all(|digit| digit == b'0');
                let is_lazy = kind.contains("PLT32") || kind.contains("CALL26");
                seen += usize::from(is_lazy);
                assert!(
                    !is_lazy
                        || !is_elsewhere
                        || MAY_BE_LAZY.contains(&name)
                        || name.starts_with('.'),
                    "{compiler:?} {level}: {line}"
                );
            }
        }
    }
    assert!(seen > 0);
}
