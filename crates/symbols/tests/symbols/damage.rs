//! Damaged files.

use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::TempDir;
use usertrace_symbols::{Module, Options, Symbols};

use usertrace_testing::compiled::{Compiled, LEAK_CPP, compile};

use crate::build::id;

static PROGRAM: LazyLock<(TempDir, Compiled, Vec<u8>)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), LEAK_CPP, &[]);
    let bytes = fs::read(&program.path).unwrap();
    (directory, program, bytes)
});

/// What is done to a file.
#[derive(Clone, Debug)]
enum Damage {
    Byte(Index, u8),
    Word(Index, u64),
    Cut(Index),
    Swap(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let number = prop_oneof![
        any::<u64>(),
        Just(u64::MAX),
        Just(0),
        Just(1 << 63),
        0u64..0x1_0000
    ];
    prop_oneof![
        6 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        3 => (any::<Index>(), number).prop_map(|(at, word)| Damage::Word(at, word)),
        1 => any::<Index>().prop_map(Damage::Cut),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Damage::Swap(a, b)),
    ]
}

/// Ranges of a file that are read: its headers, and the sections that matter, from one byte on.
fn interesting(bytes: &[u8], at: Index, is_header: bool) -> usize {
    match is_header {
        true => at.index(1024.min(bytes.len())),
        false => at.index(bytes.len()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 150 } else { 2000 }))]

    /// Damaged files have fewer symbols, or wrong ones, and nothing else happens.
    ///
    /// Requirements: F4
    #[test]
    fn damaged_files_never_panic(
        damages in prop::collection::vec((damage(), prop::bool::weighted(0.2)), 1..12),
        offsets in prop::collection::vec(0u64..0x5000, 8),
    ) {
        let (directory, program, bytes) = &*PROGRAM;
        let mut bytes = bytes.clone();
        for (damage, is_header) in damages {
            if bytes.is_empty() {
                break;
            }
            let at = |index| interesting(&bytes, index, is_header);
            match damage {
                Damage::Byte(index, byte) => { let at = at(index); bytes[at] = byte; }
                Damage::Word(index, word) => {
                    let at = at(index);
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
                }
                Damage::Cut(index) => { let len = index.index(bytes.len()); bytes.truncate(len); }
                Damage::Swap(a, b) => { let (a, b) = (at(a), at(b)); bytes.swap(a, b); }
            }
        }
        let path = directory.path().join("damaged");
        fs::write(&path, &bytes).unwrap();
        // The note may be damaged, too.
        for build_id in [id(program), None] {
            let mut symbols = Symbols::new(Options { debug_dirs: Vec::new(), debuginfod: false });
            let module = Module::new(0, &path, build_id, None);
            for offset in offsets.iter().copied().chain([program.here]) {
                symbols.frames(&module, offset);
            }
        }
    }
}
