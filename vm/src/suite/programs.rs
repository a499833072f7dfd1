//! The test programs of the workspace: builds them, and runs each of their tests in a process of
//! its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::suite::process::{self, SILENCE};
use crate::suite::result::{TestResult, Verdict};
use crate::suite::tally::Tally;
use crate::suite::tier::Section;

/// A test program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The package's and the target's name.
    pub(crate) name: String,
    /// The executable.
    pub(crate) path: PathBuf,
    /// The package's directory, where its tests run.
    pub(crate) directory: PathBuf,
}

/// One test of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedTest {
    /// Its name.
    pub(crate) name: String,
    /// Its kind in libtest-mimic. Empty for other programs.
    pub(crate) kind: String,
    /// Whether the program runs it only with `--include-ignored`.
    pub(crate) is_ignored: bool,
}

/// The cargo that started this program, or the one in the path.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Builds all test programs, commands and libraries, and returns the test programs.
///
/// One run of cargo: separate ones would build the workspace's crates twice, as tests add features
/// to other people's crates.
pub(crate) fn build() -> Result<Vec<Program>, String> {
    let built = process::run(
        cargo(&[
            "build",
            "--workspace",
            "--locked",
            "--lib",
            "--bins",
            "--tests",
            "--quiet",
            "--message-format",
            "json-render-diagnostics",
        ]),
        SILENCE,
    );
    built
        .outcome
        .map_err(|why| format!("{why}\n{}", built.output))?;
    Ok(built.stdout.lines().filter_map(program).collect())
}

/// The test program that a line of cargo's messages is about.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = package_name(message["package_id"].as_str()?)?;
    let target = message["target"]["name"].as_str()?;
    // Unit tests have the library's name, which is the package's.
    let name = if target.replace('-', "_") == package.replace('-', "_") {
        package.to_owned()
    } else {
        format!("{package}::{target}")
    };
    Some(Program {
        name,
        path,
        directory: directory.to_owned(),
    })
}

/// The name in a package id of cargo's: `path+file:///a/b#0.1.0`, or `path+file:///a/b#name@0.1.0`.
fn package_name(id: &str) -> Option<&str> {
    let (url, rest) = id.split_once('#')?;
    match rest.split_once('@') {
        Some((name, _)) => Some(name),
        None => url.rsplit('/').next(),
    }
}

impl Program {
    /// All of its tests.
    pub(crate) fn list(&self) -> Result<Vec<ListedTest>, String> {
        let list = |arguments: &[&str]| {
            let mut command = self.command();
            command.args(arguments);
            let finished = process::run(command, SILENCE);
            match finished.outcome {
                Ok(()) => Ok(listed(&finished.stdout)),
                Err(why) => Err(format!("{why}\n{}", finished.output)),
            }
        };
        let ignored = list(&["--list", "--ignored"])?;
        let mut all = list(&["--list"])?;
        for test in &mut all {
            test.is_ignored = ignored.iter().any(|other| other.name == test.name);
        }
        Ok(all)
    }

    /// Runs one test in a process of its own.
    pub(crate) fn run_one(
        &self,
        section: Section,
        test: &str,
        variables: &[(String, String)],
        silence: Duration,
    ) -> TestResult {
        let mut command = self.command();
        command.args(["--exact", test, "--test-threads=1", "--include-ignored"]);
        // A test that cannot run here says so.
        command.arg("--nocapture");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let finished = process::run(command, silence);
        let ran = Tally::of_libtest(&finished.stdout);
        let verdict = match finished.outcome {
            Err(why) => Verdict::Failed(why),
            Ok(()) if ran.passed == 1 => {
                skip_reason(&finished.stdout, test).map_or(Verdict::Passed, Verdict::Skipped)
            }
            // A program that ends before its test does must not count as one that passed.
            Ok(()) => Verdict::Failed("the program ended without running the test".into()),
        };
        self.result(section, test, verdict, finished.time, finished.output)
    }

    /// Runs all tests in one process: they share something that is costly to set up.
    pub(crate) fn run_whole(
        &self,
        section: Section,
        tests: &[ListedTest],
        variables: &[(String, String)],
    ) -> Vec<TestResult> {
        let mut command = self.command();
        if tests.iter().any(|test| test.is_ignored) {
            command.arg("--include-ignored");
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let finished = process::run(command, SILENCE);
        let results = tests.iter().map(|test| {
            let verdict = verdict_in(&finished.stdout, &test.name);
            let output = match verdict {
                Verdict::Failed(_) => finished.output.clone(),
                _ => String::new(),
            };
            self.result(section, &test.name, verdict, Duration::ZERO, output)
        });
        let mut results: Vec<_> = results.collect();
        if let Err(why) = finished.outcome
            && !results.iter().any(TestResult::has_failed)
        {
            let verdict = Verdict::Failed(why);
            results.push(self.result(section, "", verdict, finished.time, finished.output));
        }
        results
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.directory)
            // Cargo sets this for tests, too.
            .env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }

    fn result(
        &self,
        section: Section,
        name: &str,
        verdict: Verdict,
        time: Duration,
        output: String,
    ) -> TestResult {
        TestResult {
            section,
            program: self.name.clone(),
            name: name.into(),
            output: match verdict {
                Verdict::Failed(_) => output,
                _ => String::new(),
            },
            verdict,
            time,
        }
    }
}

/// The tests in the output of `--list`.
fn listed(output: &str) -> Vec<ListedTest> {
    let test = |line: &str| {
        let line = line.strip_suffix(": test")?;
        let (kind, name) = match line
            .strip_prefix('[')
            .and_then(|line| line.split_once("] "))
        {
            Some((kind, name)) => (kind, name),
            None => ("", line),
        };
        Some(ListedTest {
            name: name.into(),
            kind: kind.into(),
            is_ignored: false,
        })
    };
    output.lines().filter_map(test).collect()
}

/// The verdict of a test in libtest's output, which has one line a test.
fn verdict_in(output: &str, test: &str) -> Verdict {
    let outcome = output.lines().find_map(|line| {
        let rest = line.strip_prefix("test ")?.strip_prefix(test)?;
        // `should panic` stands between the two.
        rest.split_once(" ... ").map(|(_, outcome)| outcome)
    });
    match outcome {
        Some("ok") => Verdict::Passed,
        Some("FAILED") => Verdict::Failed("failed".into()),
        Some(outcome) if outcome.starts_with("ignored") => Verdict::Skipped("ignored".into()),
        _ => Verdict::Failed("the program ended without running the test".into()),
    }
}

/// Why a test that ended well did not test anything, if it says so: `skipped: WHY`.
fn skip_reason(output: &str, test: &str) -> Option<String> {
    let begin = format!("test {test} ... ");
    output.lines().find_map(|line| {
        let said = line.strip_prefix(&begin).unwrap_or(line);
        said.strip_prefix("skipped: ").map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_say_why_they_are_skipped() {
        let says = |output| skip_reason(output, "a::b");
        let first = "\nrunning 1 test\ntest a::b ... skipped: not root\nok\n";
        assert_eq!(says(first).as_deref(), Some("not root"));
        let later = "test a::b ... begun\nskipped: no such program\nok\n";
        assert_eq!(says(later).as_deref(), Some("no such program"));
        assert_eq!(says("test a::b ... 3 are skipped: x\nok\n"), None);
    }

    #[test]
    fn cargos_messages_name_test_programs() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///a b/c#usertrace-c@0.1.0",
            "manifest_path":"/a b/c/Cargo.toml","target":{"name":"lttng"},"profile":{"test":true},
            "executable":"/a b/target/debug/deps/lttng-1"}"#;
        let found = program(line).unwrap();
        assert_eq!(found.name, "usertrace-c::lttng");
        assert_eq!(found.directory, Path::new("/a b/c"));
        assert_eq!(program(&line.replace("true", "false")), None);
        assert_eq!(program("warning: text"), None);
    }

    #[test]
    fn unit_tests_have_the_packages_name() {
        assert_eq!(
            package_name("path+file:///a/usertrace#0.1.0"),
            Some("usertrace")
        );
        assert_eq!(
            package_name("path+file:///a/vm#usertrace-vm@0.1.0"),
            Some("usertrace-vm")
        );
    }

    #[test]
    fn listed_tests_may_have_a_kind() {
        let tests = listed("a::b: test\n[state] c: test\nd: benchmark\n\n2 tests, 1 benchmark\n");
        let pairs: Vec<_> = tests
            .iter()
            .map(|test| (&*test.kind, &*test.name))
            .collect();
        assert_eq!(pairs, [("", "a::b"), ("state", "c")]);
    }

    #[test]
    fn each_line_has_a_verdict() {
        let output = "test a ... ok\ntest ab ... FAILED\ntest c - should panic ... ok\n\
            test d ... ignored, slow\n";
        assert_eq!(verdict_in(output, "a"), Verdict::Passed);
        assert!(matches!(verdict_in(output, "ab"), Verdict::Failed(_)));
        assert_eq!(verdict_in(output, "c"), Verdict::Passed);
        assert!(matches!(verdict_in(output, "d"), Verdict::Skipped(_)));
        assert!(matches!(verdict_in(output, "e"), Verdict::Failed(_)));
    }
}
