//! Checks the manual pages of the system calls: their form, their lists of errors, and their
//! example (A1, A2).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGES: [&str; 3] = ["alloc_tracebuf", "ltt_update", "ltt_switch"];

/// The sections, in the order of the Linux man-pages project.
const SECTIONS: [&str; 12] = [
    "NAME",
    "LIBRARY",
    "SYNOPSIS",
    "DESCRIPTION",
    "RETURN VALUE",
    "ERRORS",
    "STANDARDS",
    "HISTORY",
    "NOTES",
    "CAVEATS",
    "EXAMPLES",
    "SEE ALSO",
];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the repository")
}

fn page(name: &str) -> PathBuf {
    repository().join("docs/man").join(format!("{name}.2"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Fails if the program reports anything about the page.
fn is_silent(program: &str, args: &[&str], page: &Path) {
    let output = Command::new(program)
        .args(args)
        .arg(page)
        .output()
        .unwrap_or_else(|e| panic!("{program} (scripts/setup installs it): {e}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{program}: {}",
        String::from_utf8_lossy(&said)
    );
}

/// Requirements: A1, A2
#[test]
fn manual_pages_have_no_mistakes() {
    for page in PAGES.map(page) {
        is_silent("groff", &["-ww", "-z", "-man", "-Tutf8"], &page);
        is_silent("mandoc", &["-Tlint", "-Wwarning"], &page);
    }
}

/// Requirements: A1, A2
#[test]
fn manual_pages_have_all_sections() {
    for name in PAGES {
        let text = read(&page(name));
        let sections: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .collect();
        assert_eq!(sections, SECTIONS, "{name}");
    }
}

/// The source of an example, as a reader of the formatted page sees it.
fn example(page: &str) -> String {
    let source = page
        .split_once(".\\\" SRC BEGIN")
        .and_then(|(_, rest)| rest.split_once(".EX\n"));
    let source = source.and_then(|(_, rest)| rest.split_once(".EE\n.\\\" SRC END"));
    let (source, _) = source.expect("the page has an example");
    source
        .replace("\\&", "")
        .replace("\\-", "-")
        .replace("\\[rs]", "\\")
}

/// Requirements: A1
#[test]
fn manual_page_example_compiles() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("show_traces.c");
    fs::write(&source, example(&read(&page("alloc_tracebuf")))).expect("written");
    let output = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(repository().join("sys/include"))
        .arg("-o")
        .arg(directory.path().join("show_traces"))
        .arg(&source)
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
