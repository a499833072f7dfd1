//! Tests that run in a guest: passes their names to it, and reads its notes on each.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result};
use usertrace_vm::{KernelConfig, target_dir};

use crate::suite::ktap;
use crate::suite::process::{self, Finished, TEST_SILENCE};
use crate::suite::result::{TestResult, Verdict, full_name};
use crate::suite::schedule::ResultSender;
use crate::suite::tally::Tally;
use crate::suite::tier::Section;

/// The variable with the directory of the tests' names and progress.
/// `usertrace_tests::progress` reads it, too.
const DIRECTORY: &str = "USERTRACE_TEST_DIR";
/// What follows the program's name in that of the file with the tests to run, one a line.
const TESTS: &str = ".tests";
/// The file with a line when a test begins, and one when it ends.
const PROGRESS: &str = "progress";

/// The file with the kernel's log, in which KUnit reports.
const KUNIT: &str = "kunit";
/// The file with the output of the series' own test program in C.
const KSELFTEST: &str = "kselftest";
/// The file with the reasons of its failures.
const KSELFTEST_STDERR: &str = "kselftest.stderr";
/// A script that runs the first program of tests, the kernel's own, which need a system without
/// traces, and the other programs. Its arguments are the directory of reports, the series' own
/// program, and the programs.
const WITH_KSELFTEST: &str = r#"
out=$1 kselftest=$2 first=$3
shift 3
"$first"; status=$?
dmesg >"$out/kunit"
for trace in /sys/kernel/ltt/*/; do rmdir "$trace"; done
"$kselftest" >"$out/kselftest" 2>"$out/kselftest.stderr" || status=$?
for program; do "$program" || status=$?; done
exit $status"#;

/// How often the guest's progress is read.
const FOLLOW: Duration = Duration::from_millis(500);

/// A test that runs in a guest.
#[derive(Clone, Debug)]
pub(crate) struct GuestTest {
    /// The program that it belongs to.
    pub(crate) program: &'static str,
    /// Its name.
    pub(crate) name: String,
}

impl GuestTest {
    /// The name of its program in reports, with the kernel.
    fn program_on(&self, config: KernelConfig) -> String {
        format!("{} [{config}]", self.program)
    }

    /// Its full name in reports.
    pub(crate) fn full_name_on(&self, config: KernelConfig) -> String {
        full_name(&self.program_on(config), &self.name)
    }
}

/// Tests that run in one guest.
#[derive(Clone, Debug)]
pub(crate) struct GuestBatch {
    /// The section that its results belong to.
    pub(crate) section: Section,
    /// Its name in reports.
    pub(crate) name: String,
    /// The kernel.
    pub(crate) config: KernelConfig,
    /// More options of `scripts/guest`.
    pub(crate) options: Vec<String>,
    /// The tests, in the order in which they run. They have different names. Only where the
    /// kernel's own tests run, they can be of several programs.
    pub(crate) tests: Vec<GuestTest>,
    /// Variables of the tests' environment.
    pub(crate) variables: Vec<(String, String)>,
    /// The series' test program in C, if the kernel's own tests run here, too: KUnit does at boot.
    pub(crate) kselftest: Option<PathBuf>,
}

impl GuestBatch {
    /// Boots the guest, and runs the tests. Sends the results of tests that pass at once, and
    /// returns the others, with their output, at the end.
    pub(crate) fn run(&self, early: &ResultSender) -> Vec<TestResult> {
        match self.try_run(early) {
            Ok(results) => results,
            Err(e) => {
                vec![self.result(None, Verdict::Failed(format!("{e:#}")), Duration::ZERO, "")]
            }
        }
    }

    /// The programs, in the order in which they run.
    fn programs(&self) -> Vec<&'static str> {
        let mut programs: Vec<_> = self.tests.iter().map(|test| test.program).collect();
        programs.dedup();
        programs
    }

    fn try_run(&self, early: &ResultSender) -> Result<Vec<TestResult>> {
        let out = tempfile::tempdir().context("making the guest's /out")?;
        for program in self.programs() {
            let of_it = self.tests.iter().filter(|test| test.program == program);
            let names: String = of_it.map(|test| format!("{}\n", test.name)).collect();
            let file = out.path().join(format!("{program}{TESTS}"));
            fs::write(file, names).context("writing the tests' names")?;
        }
        let file = out.path().join(PROGRESS);
        let read = || fs::read_to_string(&file).unwrap_or_default();
        let (over, is_over) = channel::<()>();
        let (finished, told) = std::thread::scope(|scope| {
            let read = &read;
            let follow = scope.spawn(move || {
                let mut told = HashSet::new();
                // Ends when the other end is dropped.
                while is_over.recv_timeout(FOLLOW) == Err(RecvTimeoutError::Timeout) {
                    self.tell_passed(&read(), &mut told, early);
                }
                told
            });
            let finished = process::run(self.command(out.path()), TEST_SILENCE);
            drop(over);
            (finished, follow.join().unwrap_or_default())
        });
        let progress = read();
        let own = match &self.kselftest {
            Some(_) => kernels_own_tests(self.section, self.config, out.path()),
            None => Vec::new(),
        };
        Ok(self.rest(&finished, &progress, &told, own))
    }

    /// Sends the results of tests that have passed since the last call.
    fn tell_passed(&self, progress: &str, told: &mut HashSet<String>, early: &ResultSender) {
        let ended = ended(progress);
        for test in &self.tests {
            if let Some(ended) = ended.get(&*test.name)
                && ended.has_passed
                && told.insert(test.name.clone())
            {
                early.send(self.result(Some(test), Verdict::Passed, ended.time, ""));
            }
        }
    }

    /// Adds the results that were not sent yet.
    fn rest(
        &self,
        finished: &Finished,
        progress: &str,
        told: &HashSet<String>,
        mut results: Vec<TestResult>,
    ) -> Vec<TestResult> {
        let ended = ended(progress);
        for test in self.tests.iter().filter(|test| !told.contains(&test.name)) {
            let (verdict, time) = match ended.get(&*test.name) {
                Some(TestEnd { has_passed, time }) => (Verdict::of(*has_passed), *time),
                None if began(progress, &test.name) => {
                    let why = "the guest ended during this test".to_owned();
                    (Verdict::Failed(why), Duration::ZERO)
                }
                None => {
                    let why = "not run: the guest ended before".to_owned();
                    (Verdict::Skipped(why), Duration::ZERO)
                }
            };
            let output = match verdict {
                Verdict::Failed(_) => &about(&finished.output, &test.name),
                _ => "",
            };
            results.push(self.result(Some(test), verdict, time, output));
        }
        let counted = Tally::of_libtest(&finished.stdout);
        let passed = ended.values().filter(|ended| ended.has_passed).count() as u64;
        let why = match &finished.outcome {
            // The guest failed for another reason than a test: a splat, a hang, a panic.
            Err(why) if !results.iter().any(TestResult::has_failed) => Some(why.clone()),
            Err(_) => None,
            Ok(()) if passed != self.tests.len() as u64 => Some(format!(
                "the guest's status is 0, but {passed} of {} tests passed",
                self.tests.len()
            )),
            Ok(()) if counted.passed != passed => Some(format!(
                "{passed} tests passed, but the programs count {counted}"
            )),
            Ok(()) => None,
        };
        if let Some(why) = why {
            let verdict = Verdict::Failed(why);
            results.push(self.result(None, verdict, finished.time, &finished.output));
        }
        results
    }

    fn command(&self, out: &Path) -> Command {
        let mut command = Command::new(target_dir().join("debug/usertrace-vm"));
        command
            .args(["guest", "--config", &self.config.to_string()])
            // A test that hangs is silent; how long all take depends on the machine.
            .args(["--timeout", "7200", "--env"])
            .arg(format!("{DIRECTORY}=/out"))
            .args(&self.options);
        if self.kselftest.is_some() {
            command.args(["--append", "kunit.enable=1 kunit.autorun=1"]);
        }
        for (name, value) in &self.variables {
            // Some are for who boots the guest.
            command.env(name, value);
            command.arg("--env").arg(format!("{name}={value}"));
        }
        command.arg("--out").arg(out).arg("--");
        let path = |program| target_dir().join("debug").join(program);
        let programs = self.programs().into_iter().map(path);
        if let Some(kselftest) = &self.kselftest {
            command
                .args(["sh", "-c", WITH_KSELFTEST, "sh", "/out"])
                .arg(kselftest);
        }
        command.args(programs);
        command
    }

    /// The result of a test, or of the guest.
    fn result(
        &self,
        test: Option<&GuestTest>,
        verdict: Verdict,
        time: Duration,
        output: &str,
    ) -> TestResult {
        let (program, name) = match test {
            Some(test) => (test.program_on(self.config), test.name.clone()),
            None => (self.name.clone(), String::new()),
        };
        TestResult {
            section: self.section,
            program,
            name,
            verdict,
            time,
            output: output.into(),
        }
    }
}

/// How a test ended in the guest.
#[derive(Debug, PartialEq, Eq)]
struct TestEnd {
    has_passed: bool,
    time: Duration,
}

/// The tests that ended: `passed MILLISECONDS NAME` or `failed MILLISECONDS NAME`.
fn ended(progress: &str) -> HashMap<&str, TestEnd> {
    let line = |line| {
        let mut words = str::splitn(line, 3, ' ');
        let has_passed = match words.next()? {
            "passed" => true,
            "failed" => false,
            _ => return None,
        };
        let time = Duration::from_millis(words.next()?.parse().ok()?);
        Some((words.next()?, TestEnd { has_passed, time }))
    };
    progress.lines().filter_map(line).collect()
}

/// Whether the test began: `begins NAME`.
fn began(progress: &str, test: &str) -> bool {
    progress
        .lines()
        .any(|line| line.strip_prefix("begins ") == Some(test))
}

/// The output from this test's beginning, which standard error notes, to the next test's, and the
/// end of the output, where the harness prints the guest's outcome and its console log.
fn about(output: &str, test: &str) -> String {
    let begin = format!("begins {test}\n");
    let Some((_, rest)) = output.split_once(&begin) else {
        return output.to_owned();
    };
    match rest.split_once("\nbegins ") {
        None => rest.to_owned(),
        Some((part, _)) => {
            let harness = rest.find("--- the end of the console");
            let harness = harness.and_then(|at| rest.get(at..)).unwrap_or_default();
            format!("{part}\n{harness}")
        }
    }
}

/// The results of the kernel's own tests, whose reports are in this directory.
fn kernels_own_tests(section: Section, config: KernelConfig, out: &Path) -> Vec<TestResult> {
    let result = |name: String, verdict: Verdict, output: String| TestResult {
        section,
        program: format!("kernel's own tests [{config}]"),
        name,
        verdict,
        time: Duration::ZERO,
        output,
    };
    let read = |name| fs::read_to_string(out.join(name)).unwrap_or_default();
    // kselftest prints its expectations there. Results are read from standard output only.
    let reports = [
        ("KUnit", read(KUNIT), String::new()),
        ("kselftest", read(KSELFTEST), read(KSELFTEST_STDERR)),
    ];
    let mut results = Vec::new();
    for (suite, text, more) in reports {
        let output = format!("{text}{more}");
        let tests = ktap::read(&text);
        if tests.is_empty() {
            let why = Verdict::Failed("no test reported a result".into());
            results.push(result(suite.into(), why, output.clone()));
        }
        for (name, verdict) in tests {
            let output = match verdict {
                Verdict::Failed(_) => output.clone(),
                _ => String::new(),
            };
            results.push(result(format!("{suite}::{name}"), verdict, output));
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_the_outcome_of_each_test() {
        let progress = "begins a\npassed 12 a\nbegins b\nfailed 3 b\nbegins c\n";
        let ended = ended(progress);
        assert!(ended["a"].has_passed && !ended["b"].has_passed);
        assert_eq!(ended["a"].time, Duration::from_millis(12));
        assert!(began(progress, "c") && !ended.contains_key("c") && !began(progress, "d"));
    }

    #[test]
    fn failed_test_shows_its_own_output_and_the_harnesss() {
        let output = "begins a\n1\nbegins b\n2\nbegins c\n3\n--- the end of the console ---\n4\n";
        let text = about(output, "b");
        assert!(text.contains('2') && text.contains('4'), "{text}");
        assert!(!text.contains('1') && !text.contains('3'), "{text}");
    }

    fn test(name: &str) -> GuestTest {
        GuestTest {
            program: "guest-tests",
            name: name.into(),
        }
    }

    #[test]
    fn guest_that_dies_fails_its_test_and_skips_the_rest() {
        let batch = GuestBatch {
            section: Section::Guest,
            name: "guest".into(),
            config: KernelConfig::Release,
            options: Vec::new(),
            tests: ["a", "b", "c"].map(test).into(),
            variables: Vec::new(),
            kselftest: None,
        };
        let finished = |outcome| Finished {
            stdout: String::new(),
            output: "begins b\nboom\n".into(),
            outcome,
            time: Duration::ZERO,
        };
        let told = HashSet::from(["a".to_owned()]);
        let died = finished(Err("panic".into()));
        let results = batch.rest(&died, "begins a\npassed 1 a\nbegins b\n", &told, Vec::new());
        assert_eq!(results.len(), 2);
        assert!(results[0].has_failed() && results[0].output.contains("boom"));
        assert!(matches!(results[1].verdict, Verdict::Skipped(_)));
        // All tests passed, but the kernel reported an error of its own.
        let all = "passed 1 a\npassed 1 b\npassed 1 c\n";
        let told = ["a", "b", "c"].map(str::to_owned).into();
        assert!(batch.rest(&died, all, &told, Vec::new())[0].has_failed());
        // A status of 0 does not suffice if tests did not run.
        let results = batch.rest(
            &finished(Ok(())),
            "passed 1 a\n",
            &HashSet::new(),
            Vec::new(),
        );
        assert!(results.iter().any(TestResult::has_failed));
        assert!(
            batch
                .rest(&finished(Ok(())), "", &HashSet::new(), Vec::new())
                .iter()
                .any(TestResult::has_failed)
        );
    }
}
