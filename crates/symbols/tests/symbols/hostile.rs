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

/// The origin of an inlined function may be itself, and the one of a function its own child.
///
/// Requirements: F4
#[test]
fn origins_in_circles_have_no_name() {
    let directory = tempfile::tempdir().unwrap();
    let kinds = "    .uleb128 5, 0x1d\n    .byte 0\n    .uleb128 0x31, 0x13, 0x11, 0x01, 0x12, 0x07\n    .byte 0, 0\n    \
        .uleb128 6, 0x2e\n    .byte 1\n    .uleb128 0x31, 0x13, 0x11, 0x01, 0x12, 0x07\n    .byte 0, 0\n    .uleb128 4, 0x2e\n";
    let source = START.replace("    .uleb128 4, 0x2e\n", kinds);
    let source = source.replace("    .long 2f - 1f\n", ".Linfo:\n    .long 2f - 1f\n");
    let entries = "\
.Lfunction:
    .uleb128 6
    .long .Linlined - .Linfo
    .quad main
    .quad end - main
.Linlined:
    .uleb128 5
    .long .Linlined - .Linfo
    .quad main
    .quad end - main
    .uleb128 5
    .long .Lfunction - .Linfo
    .quad main
    .quad end - main
    .byte 0, 0
2:
";
    let (frames, messages) = frames(directory.path(), &format!("{source}{entries}"));
    assert!(messages.is_empty(), "{messages:?}");
    assert!(
        frames.len() > 1 && frames.iter().all(|frame| !frame.is_empty()),
        "{frames:?}"
    );
    assert_eq!(frames.last().unwrap(), "main ?");
}

/// A section that would be unpacked to four gigabytes is not, and one that says so wrongly is not
/// used.
///
/// Requirements: F4
#[test]
fn large_compressed_sections_are_refused() {
    for (size, what) in [(4 << 30, "too large"), (1 << 29, "damaged"), (1, "damaged")] {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), LEAK_C, &["-gz=zlib"]);
        let sections = run(Command::new("readelf").arg("-SW").arg(&program.path));
        let mut words = sections.split_whitespace();
        words.find(|word| *word == ".debug_info").unwrap();
        let offset = usize::from_str_radix(words.nth(2).unwrap(), 16).unwrap();
        let mut bytes = fs::read(&program.path).unwrap();
        // In the header of a compressed section, the size is behind its kind.
        assert_eq!(bytes[offset..offset + 8], [1, 0, 0, 0, 0, 0, 0, 0]);
        bytes[offset + 8..offset + 16].copy_from_slice(&u64::to_le_bytes(size));
        fs::write(&program.path, bytes).unwrap();
        let (frames, messages) = resolve(&module(&program), program.here, &[]);
        assert_eq!(frames, ["work ?"], "{messages:?}");
        let says = format!("a compressed section is {what}");
        assert!(
            messages.len() == 1 && messages[0].contains(&says),
            "{messages:?}"
        );
    }
}

/// Names that a trace or debug information has are cut or left out, as there may be a million.
///
/// Requirements: F4
#[test]
fn long_names_are_cut() {
    let path = format!("/{}/{}", "d".repeat(40_000), "n".repeat(64 << 10));
    let module = usertrace_symbols::Module::new(0, Path::new(&path), None, None);
    assert_eq!(module.name().chars().count(), 256);
    let (frames, messages) = resolve(&module, 0x10, &[]);
    assert!(frames.is_empty(), "{frames:?}");
    assert!(
        messages.iter().map(String::len).sum::<usize>() < 1000,
        "{messages:?}"
    );
    let directory = tempfile::tempdir().unwrap();
    let function = "f".repeat(100_000);
    let source = LEAK_C.replace("work", &function).replace(
        "#include",
        &format!("# 1 \"/{}.c\"\n#include", "s".repeat(5000)),
    );
    let program = compile(directory.path(), &source, &[]);
    let (frames, messages) = resolve(&crate::build::module(&program), program.here, &[]);
    assert!(messages.is_empty(), "{messages:?}");
    assert!(
        frames.len() == 2 && frames.iter().all(|frame| frame.len() < 10_000),
        "{frames:?}"
    );
    assert!(frames[1].starts_with("fff"), "{frames:?}");
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
