//! Debug information that asks for endless time, memory or stack.

use std::fs;
use std::path::Path;
use std::process::Command;

use usertrace_testing::compiled::{Compiled, LEAK_C, compile, run};

use crate::build::{module, resolve};

/// Start of a file: a unit, and a function that has `here`. Its children follow.
const START: &str = r#"
.text
.globl here, main
.type main, @function
main:
    nop
here:
    nop
end:
    ret
.section .debug_abbrev,"",@progbits
.Labbrev:
    .uleb128 1, 0x11
    .byte 1
    .uleb128 0x11, 0x01, 0x12, 0x07
    .byte 0, 0
    .uleb128 2, 0x2e
    .byte 1
    .uleb128 0x11, 0x01, 0x12, 0x07
    .byte 0, 0
    .uleb128 3, 0x1d
    .byte 1
    .byte 0, 0
    .uleb128 4, 0x2e
    .byte 0
    .uleb128 0x55, 0x17
    .byte 0, 0
    .byte 0
.section .debug_info,"",@progbits
    .long 2f - 1f
1:  .short 4
    .long .Labbrev
    .byte 8
    .uleb128 1
    .quad main
    .quad end - main
"#;

/// The frames at `here`, and the messages.
fn frames(directory: &Path, source: &str) -> (Vec<String>, Vec<String>) {
    let (path, source_path) = (directory.join("shop"), directory.join("shop.s"));
    fs::write(&source_path, source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-nostdlib", "-no-pie", "-Wl,-e,main", "-Wl,--build-id"]);
    run(gcc.arg("-o").arg(&path).arg(&source_path));
    let program = Compiled::of(path);
    resolve(&module(&program), program.here, &[])
}

/// Half a million inlined functions within each other would need a gigabyte of stack.
///
/// Requirements: F4
#[test]
fn deeply_nested_functions_do_not_overflow_the_stack() {
    let directory = tempfile::tempdir().unwrap();
    let nested = "    .uleb128 2\n    .quad main\n    .quad end - main\n    .fill 500000, 1, 3\n    .fill 500002, 1, 0\n2:\n";
    let (frames, messages) = frames(directory.path(), &format!("{START}{nested}"));
    assert_eq!(frames, ["main ?"], "{messages:?}");
    assert!(messages[0].contains("too long"), "{messages:?}");
}

/// A hundred thousand functions share a list of a hundred thousand ranges: 160 GB if all were kept.
///
/// Requirements: F4
#[test]
fn shared_range_lists_do_not_exhaust_memory() {
    let directory = tempfile::tempdir().unwrap();
    let functions = r#"
    .rept 100000
    .uleb128 4
    .long 0
    .endr
    .byte 0
2:
.section .debug_ranges,"",@progbits
    .rept 100000
    .quad 1, 2
    .endr
    .quad 0, 0
"#;
    let (frames, messages) = frames(directory.path(), &format!("{START}{functions}"));
    assert_eq!(frames, ["main ?"], "{messages:?}");
    assert!(messages[0].contains("too long"), "{messages:?}");
}

/// Thirty million inlined functions of one byte each would take four gigabytes.
///
/// Requirements: F4
#[test]
fn tiny_entries_do_not_exhaust_memory() {
    let directory = tempfile::tempdir().unwrap();
    let source = START.replace(
        "    .uleb128 3, 0x1d\n    .byte 1\n",
        "    .uleb128 3, 0x1d\n    .byte 0\n",
    );
    assert_ne!(source, START);
    let tiny = "    .uleb128 2\n    .quad main\n    .quad end - main\n    .fill 30000000, 1, 3\n    .fill 2, 1, 0\n2:\n";
    let (frames, messages) = frames(directory.path(), &format!("{source}{tiny}"));
    assert_eq!(frames, ["main ?"], "{messages:?}");
    assert!(messages[0].contains("too long"), "{messages:?}");
}

/// A trace may have any address. The fuzzer found that the last one overflowed.
///
/// Requirements: F4
#[test]
fn last_addresses_have_no_name() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["-no-pie"]] {
        let program = compile(directory.path(), LEAK_C, arguments);
        for offset in [u64::MAX, u64::MAX - 1, u64::MAX - program.lowest] {
            let (frames, messages) = resolve(&module(&program), offset, &[]);
            assert!(
                frames.is_empty() && messages.is_empty(),
                "{frames:?} {messages:?}"
            );
        }
    }
}
