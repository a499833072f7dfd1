//! The results of tests.

use std::time::Duration;

use crate::suite::tally::Tally;
use crate::suite::tier::Section;

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It passed.
    Passed,
    /// It failed, for a reason in one line.
    Failed(String),
    /// It was not run, for a reason in one line.
    Skipped(String),
}

impl Verdict {
    /// The verdict of a test of which only success or failure is known.
    pub(crate) fn of(has_passed: bool) -> Self {
        if has_passed {
            Self::Passed
        } else {
            Self::Failed("failed".into())
        }
    }
}

/// One test's result.
#[derive(Clone, Debug)]
pub(crate) struct TestResult {
    /// The section that it belongs to.
    pub(crate) section: Section,
    /// The test program, or the step of which it is a part.
    pub(crate) program: String,
    /// The test's name within it; empty if the program is one test.
    pub(crate) name: String,
    /// How it ended.
    pub(crate) verdict: Verdict,
    /// How long it took.
    pub(crate) time: Duration,
    /// Its output, if it did not pass.
    pub(crate) output: String,
}

impl TestResult {
    /// The program's name and the test's, as reports show them.
    pub(crate) fn full_name(&self) -> String {
        full_name(&self.program, &self.name)
    }

    /// Whether it failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }
}

/// The name of a test in reports and in the history of durations.
pub(crate) fn full_name(program: &str, name: &str) -> String {
    if name.is_empty() {
        program.to_owned()
    } else {
        format!("{program}::{name}")
    }
}

/// How many of these passed, failed, and were skipped.
pub(crate) fn tally<'a>(results: impl IntoIterator<Item = &'a TestResult>) -> Tally {
    let mut tally = Tally::default();
    for result in results {
        match result.verdict {
            Verdict::Passed => tally.passed += 1,
            Verdict::Failed(_) => tally.failed += 1,
            Verdict::Skipped(_) => tally.skipped += 1,
        }
    }
    tally
}
