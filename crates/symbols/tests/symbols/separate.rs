//! Debug information in files of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::compiled::{Compiled, LEAK_C, compile, run};

use crate::build::{FRAMES_C, linked, module, resolve};

/// A stripped program, and its debug file.
fn split(directory: &Path, arguments: &[&str]) -> (Compiled, PathBuf) {
    let program = compile(directory, LEAK_C, arguments);
    let debug = program.split();
    (program, debug)
}

fn place_of(id: &str) -> String {
    format!("{}/{}.debug", &id[..2], &id[2..])
}

/// Debug files are found by the build ID, with the program and without it, as on another machine.
///
/// Requirements: F1
#[test]
fn debug_files_are_found_by_build_id() {
    for arguments in [&[][..], &["-no-pie"]] {
        let directory = tempfile::tempdir().unwrap();
        let (program, debug) = split(directory.path(), arguments);
        let (frames, messages) = resolve(&module(&program), program.here, &[]);
        assert!(frames.is_empty(), "{frames:?} {messages:?}");
        let id = program.build_id.clone().unwrap();
        for below in [".build-id", "", "usr/lib/debug/.build-id"] {
            let root = tempfile::tempdir().unwrap();
            let place = root.path().join(below).join(place_of(&id));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::copy(&debug, place).unwrap();
            for is_here in [true, false] {
                let moved = directory.path().join("moved");
                if !is_here {
                    fs::rename(&program.path, &moved).unwrap();
                }
                let (frames, messages) = resolve(&module(&program), program.here, &[root.path()]);
                assert_eq!(frames, FRAMES_C, "{below} {messages:?}");
                assert!(messages.is_empty(), "{messages:?}");
                if !is_here {
                    fs::rename(&moved, &program.path).unwrap();
                }
            }
        }
    }
}

/// A directory may be a copy of the file system that the program saw, or just have the files.
#[test]
fn debug_directories_are_searched_by_path_and_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let (program, debug) = split(directory.path(), &[]);
    let path = program.path.strip_prefix("/").unwrap();
    for place in [
        path.to_owned(),
        path.with_file_name("shop.debug"),
        Path::new("usr/lib/debug")
            .join(path)
            .with_file_name("shop.debug"),
        "shop".into(),
        "shop.debug".into(),
    ] {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(&debug, &place).unwrap();
        let (frames, messages) = resolve(&module(&program), program.here, &[root.path()]);
        assert_eq!(frames, FRAMES_C, "{place:?} {messages:?}");
    }
}

/// A file with the right name and another build ID is not used.
#[test]
fn debug_files_of_other_builds_are_said_and_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let (program, _) = split(directory.path(), &[]);
    let (changed, debug) = split(other.path(), &["-DOTHER", "-O1"]);
    fs::rename(&debug, other.path().join("shop.debug")).unwrap();
    let (frames, messages) = resolve(&module(&program), program.here, &[other.path()]);
    assert!(frames.is_empty(), "{frames:?}");
    let ids = [&program, &changed].map(|program| program.build_id.clone().unwrap());
    assert!(
        ids.iter().all(|id| messages[0].contains(id)),
        "{messages:?}"
    );
}

/// Without a build ID, the checksum of the debug link decides.
#[test]
fn debug_links_are_followed_if_the_checksum_fits() {
    let directory = tempfile::tempdir().unwrap();
    let (program, debug) = split(directory.path(), &["-Wl,--build-id=none"]);
    let crc = crc32fast::hash(&fs::read(&debug).unwrap());
    let own = directory.path().join("shop.dbg");
    let hidden = directory.path().join(".debug/shop.dbg");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(hidden.parent().unwrap()).unwrap();
    for place in [own.clone(), hidden, elsewhere.path().join("shop.dbg")] {
        if place != own {
            fs::rename(&own, &place).unwrap();
        }
        let (frames, messages) = resolve(
            &linked(&program, "shop.dbg", crc),
            program.here,
            &[elsewhere.path()],
        );
        assert_eq!(frames, FRAMES_C, "{place:?} {messages:?}");
        let (frames, messages) = resolve(
            &linked(&program, "shop.dbg", crc ^ 1),
            program.here,
            &[elsewhere.path()],
        );
        assert!(frames.is_empty(), "{frames:?}");
        assert!(messages[0].contains(&format!("{crc:08x}")), "{messages:?}");
        if place != own {
            fs::rename(&place, &own).unwrap();
        }
    }
    // The binary has the link, too.
    let mut objcopy = Command::new("objcopy");
    objcopy.current_dir(directory.path());
    run(objcopy
        .arg("--add-gnu-debuglink=shop.dbg")
        .arg(&program.path));
    let (frames, messages) = resolve(&module(&program), program.here, &[]);
    assert_eq!(frames, FRAMES_C, "{messages:?}");
}

/// Names may be in a file that several debug files share, as `dwz` makes it.
#[test]
fn names_in_shared_debug_files_are_found() {
    const SHARED: &str = r#"
.section .debug_str,"",@progbits
    .zero 8
    .asciz "shared_name"
.section .debug_info,"",@progbits
    .long 8
    .short 4
    .long 0
    .byte 8
    .byte 0
.section .debug_abbrev,"",@progbits
    .byte 0
"#;
    const OWN: &str = r#"
.text
.globl here, main
.type main, @function
main:
    nop
here:
    nop
end:
    ret
.section .debug_info,"",@progbits
    .long 2f - 1f
1:  .short 4
    .long .Labbrev
    .byte 8
    .uleb128 1
    .quad main
    .quad end - main
    .uleb128 2
    .quad main
    .quad end - main
    .long 8
    .byte 0
2:
.section .debug_abbrev,"",@progbits
.Labbrev:
    .uleb128 1, 0x11
    .byte 1
    .uleb128 0x11, 0x01, 0x12, 0x07
    .byte 0, 0
    .uleb128 2, 0x2e
    .byte 0
    .uleb128 0x11, 0x01, 0x12, 0x07, 0x03, 0x1f21
    .byte 0, 0
    .byte 0
"#;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let assemble = |name: &str, source: &str, arguments: &[&str]| {
        let (source_path, output) = (path(&format!("{name}.s")), path(name));
        fs::write(&source_path, source).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(arguments).args(["-nostdlib", "-Wl,--build-id"]);
        run(gcc.arg("-o").arg(&output).arg(&source_path));
        output
    };
    let shared = assemble("shared", SHARED, &["-shared"]);
    let own = assemble("shop", OWN, &["-no-pie", "-Wl,-e,main"]);
    let notes = run(Command::new("readelf").arg("-n").arg(&shared));
    let id = notes
        .split("Build ID:")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    let mut link = b"shared\0".to_vec();
    let digits = id
        .as_bytes()
        .chunks(2)
        .map(|two| std::str::from_utf8(two).unwrap());
    link.extend(digits.map(|two| u8::from_str_radix(two, 16).unwrap()));
    fs::write(path("link"), &link).unwrap();
    let mut objcopy = Command::new("objcopy");
    objcopy.current_dir(directory.path());
    run(objcopy
        .arg("--add-section=.gnu_debugaltlink=link")
        .arg(&own));
    let program = Compiled::of(own);
    let (frames, messages) = resolve(&module(&program), program.here, &[]);
    assert_eq!(frames, ["shared_name ?"], "{messages:?}");
    // By its build ID.
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join(place_of(id));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::rename(&shared, &place).unwrap();
    let (frames, messages) = resolve(&module(&program), program.here, &[root.path()]);
    assert_eq!(frames, ["shared_name ?"], "{messages:?}");
    // Without it, the symbol table has another name, and a message says what is missing.
    let (frames, messages) = resolve(&module(&program), program.here, &[]);
    assert_eq!(frames, ["main ?"], "{messages:?}");
    assert!(messages[0].contains(id), "{messages:?}");
}
