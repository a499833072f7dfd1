//! Runs test cases one after the other, and records their progress: the guest may end in the middle
//! of one.
//!
//! `scripts/test` names the tests to run in a file for each program, and reads of each when it
//! began, how it ended, and how long it took: its `vm/src/suite/guests.rs` is the other side.
//! Without such a file, the command line selects as in any test program.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use libtest_mimic::{Arguments, Trial};

/// Names the directory of both files. `vm/src/suite/guests.rs` sets it.
const DIRECTORY: &str = "USERTRACE_TEST_DIR";
/// The tests to run, one a line.
const TESTS: &str = "tests";
/// `begins NAME`, `passed MILLISECONDS NAME` and `failed MILLISECONDS NAME`.
const PROGRESS: &str = "progress";

/// A test case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The words that `--list` shows in brackets, by which the runner selects.
    pub kind: &'static str,
    /// Its function, which panics to fail.
    pub test: fn(),
}

impl Case {
    /// Whether this is one of the words of its kind.
    #[must_use]
    pub fn is_of(&self, word: &str) -> bool {
        self.kind.split(' ').any(|of| of == word)
    }
}

/// Whether `scripts/test` names the tests to run.
#[must_use]
pub fn is_driven() -> bool {
    std::env::var_os(DIRECTORY).is_some()
}

/// Runs the selected cases, one at a time, each after `before`.
///
/// # Panics
/// If the files of `scripts/test` cannot be read or written, or name a test that does not exist.
#[must_use]
pub fn run(mut arguments: Arguments, cases: &[Case], before: fn()) -> ExitCode {
    // Tests fork, and share the traces and slots of the system.
    arguments.test_threads = Some(1);
    let directory = std::env::var_os(DIRECTORY).map(PathBuf::from);
    let chosen = match &directory {
        Some(directory) if !arguments.list => named(cases, &tests_file(directory)),
        _ => cases.to_vec(),
    };
    let trials = chosen
        .into_iter()
        .map(|case| {
            let directory = directory.clone();
            let run = move || {
                before();
                let mut progress = directory.as_deref().map(open);
                note(progress.as_mut(), &format!("begins {}", case.name));
                let begun = Instant::now();
                let ended = catch_unwind(AssertUnwindSafe(case.test));
                let word = if ended.is_ok() { "passed" } else { "failed" };
                let millis = begun.elapsed().as_millis();
                note(progress.as_mut(), &format!("{word} {millis} {}", case.name));
                ended.map_err(|panic| resume_unwind(panic))
            };
            Trial::test(case.name, run).with_kind(case.kind)
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The file with the names of this program's tests.
fn tests_file(directory: &Path) -> PathBuf {
    let program = std::env::current_exe().expect("this program's path");
    directory
        .join(program.file_name().expect("a name"))
        .with_extension(TESTS)
}

/// The cases whose names are in this file, in their own order.
fn named(cases: &[Case], file: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(file).expect("the file with the tests' names");
    let names: Vec<_> = text.lines().collect();
    for name in &names {
        let is_known = cases.iter().any(|case| case.name == *name);
        assert!(is_known, "there is no test {name}");
    }
    let is_named = |case: &&Case| names.contains(&case.name);
    cases.iter().filter(is_named).copied().collect()
}

/// Opens the file of progress. A test may close all descriptors, so each test opens it again.
fn open(directory: &Path) -> File {
    let path = directory.join(PROGRESS);
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.expect("the file of the progress")
}

/// Writes a line at once, and to standard error, where it stands between what tests print.
fn note(progress: Option<&mut File>, line: &str) {
    if let Some(progress) = progress {
        let line = format!("{line}\n");
        // One write: what a guest leaves that ends here is a whole line, or none.
        progress.write_all(line.as_bytes()).expect("it is written");
        // The test program may have begun a line.
        eprint!("\n{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes() {}

    #[test]
    fn named_cases_keep_their_order() {
        let cases = ["a", "b", "c"].map(|name| Case {
            name,
            kind: "",
            test: passes,
        });
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(TESTS);
        std::fs::write(&file, "c\na\n").unwrap();
        let names: Vec<_> = named(&cases, &file).iter().map(|case| case.name).collect();
        assert_eq!(names, ["a", "c"]);
        std::fs::write(&file, "d\n").unwrap();
        assert!(catch_unwind(|| named(&cases, &file)).is_err());
    }
}
