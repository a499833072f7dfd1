//! The headers' code compiles without a warning, under all warnings that a program's authors may
//! enable.

use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::c_library::succeed;
use usertrace_testing::documents::pages;

use crate::events::source;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("warnings_headers_have_none", headers),
    ("warnings_lttng_providers_have_none", providers),
    ("warnings_examples_of_headers_and_docs_have_none", examples),
];

const STANDARDS_OF_C: [&str; 2] = ["-std=c11", "-std=gnu17"];
const STANDARDS_OF_CPP: [&str; 4] = ["-std=c++11", "-std=c++14", "-std=c++17", "-std=c++20"];

/// Warnings of both compilers. Only the program's own functions have unused parameters.
const WARNINGS: &[&str] = &[
    "-Werror",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wshadow",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wcast-qual",
];
const WARNINGS_OF_CPP: &[&str] = &["-Wold-style-cast", "-Wzero-as-null-pointer-constant"];

/// All available compilers, with their warnings and each standard.
pub(crate) fn compilers() -> Vec<Vec<&'static str>> {
    let mut all = Vec::new();
    for compiler in ["gcc", "clang-19", "clang"] {
        for standard in STANDARDS_OF_C {
            all.push(vec![compiler, "-x", "c", standard]);
        }
    }
    for compiler in ["g++", "clang++-19", "clang++"] {
        for standard in STANDARDS_OF_CPP {
            let mut command = vec![compiler, "-x", "c++", standard];
            command.extend(WARNINGS_OF_CPP);
            // Clang lacks this warning.
            command.extend((compiler == "g++").then_some("-Wuseless-cast"));
            all.push(command);
        }
    }
    let is_there = |command: &Vec<_>| Command::new(command[0]).arg("--version").output().is_ok();
    all.retain(is_there);
    assert!(!all.is_empty());
    all
}

pub(crate) fn include(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("include")
        .join(below)
}

/// Compiles a file with each compiler; warnings are errors.
fn compile(file: &Path, more: &[&str]) {
    for compiler in compilers() {
        let output = Command::new(compiler[0])
            .args(&compiler[1..])
            .args(WARNINGS)
            .args(more)
            .arg("-O2")
            .arg("-I")
            .arg(include(""))
            .arg("-c")
            .arg(file)
            .args(["-o", "/dev/null"])
            .output();
        println!("{compiler:?}");
        succeed(&output.unwrap());
    }
}

/// Requirements: F7
fn headers() {
    compile(&source("strict.c"), &["-Wpedantic"]);
}

/// Requirements: F7
fn providers() {
    let providers = source("../lttng/providers");
    let (own, lttng) = (
        providers.to_str().unwrap().to_owned(),
        include("usertrace/lttng-ust"),
    );
    let directories = ["-I", &own, "-I", lttng.to_str().unwrap()];
    for file in ["define.c", "probes.c", "strange.c", "messages.c"] {
        compile(&providers.join(file), &directories);
    }
}

/// The examples in the comments of `usertrace.h`: declarations, and calls.
fn of_header() -> (String, String) {
    let header = std::fs::read_to_string(include("usertrace.h")).unwrap();
    let lines = |start: &str| {
        let lines = header.lines().filter_map(|line| line.strip_prefix(" *\t"));
        let examples: Vec<_> = lines.filter(|line| line.starts_with(start)).collect();
        assert!(!examples.is_empty(), "{start}");
        examples.join("\n")
    };
    (lines("USERTRACE_EVENT"), lines("usertrace("))
}

/// The blocks of C in a document.
fn of_document(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```c\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

/// Requirements: F7
fn examples() {
    let (declarations, calls) = of_header();
    let mut programs = vec![format!(
        "#include <usertrace.h>\n{declarations}\nvoid example(uint64_t n);\n\
         void example(uint64_t n) {{\n{calls}\n}}\n"
    )];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let blocks: Vec<_> = pages(&root)
        .iter()
        .flat_map(|path| of_document(path))
        .filter(|block| block.contains("#include <usertrace"))
        .collect();
    assert!(blocks.len() >= 2, "{blocks:?}");
    // The examples use these, which the rest of their program declares.
    let rest = "#include <stdint.h>\nuint64_t size_of(const char *path);\n";
    programs.extend(blocks.iter().map(|block| format!("{rest}{block}")));
    let directory = tempfile::tempdir().unwrap();
    for program in programs {
        let file = directory.path().join("example.c");
        std::fs::write(&file, &program).unwrap();
        println!("{program}");
        compile(&file, &[]);
    }
}
