//! The results as JUnit XML, which CI systems read.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::suite::result::{TestResult, Verdict};

/// Writes the results to a file: a suite for each test program.
pub(crate) fn write(path: &Path, results: &[TestResult], time: Duration) -> Result<()> {
    let text = report(results, time).to_string()?;
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn report(results: &[TestResult], time: Duration) -> Report {
    let mut suites: BTreeMap<String, TestSuite> = BTreeMap::new();
    for result in results {
        let name = format!("{}/{}", result.section.name(), result.program);
        let suite = suites
            .entry(name.clone())
            .or_insert_with(|| TestSuite::new(name));
        suite.add_test_case(case(result));
    }
    let mut report = Report::new("usertrace");
    report.set_time(time);
    report.add_test_suites(suites.into_values());
    report
}

fn case(result: &TestResult) -> TestCase {
    let mut status = match &result.verdict {
        Verdict::Passed => TestCaseStatus::success(),
        Verdict::Failed(_) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Verdict::Skipped(_) => TestCaseStatus::skipped(),
    };
    if let Verdict::Failed(why) | Verdict::Skipped(why) = &result.verdict {
        status.set_message(why.as_str());
    }
    let name = if result.name.is_empty() {
        &result.program
    } else {
        &result.name
    };
    let mut case = TestCase::new(name.as_str(), status);
    case.set_classname(result.program.as_str());
    case.set_time(result.time);
    if !result.output.is_empty() {
        case.set_system_out(result.output.as_str());
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::tier::Section;

    fn result(name: &str, verdict: Verdict) -> TestResult {
        TestResult {
            section: Section::Guest,
            program: "guest-tests [release]".into(),
            name: name.into(),
            verdict,
            time: Duration::from_millis(1500),
            output: "\u{1b}[1mbold <&> \u{0} end".into(),
        }
    }

    #[test]
    fn results_of_a_program_are_one_suite() {
        let results = [
            result("a", Verdict::Passed),
            result("b", Verdict::Failed("why <not>".into())),
            result("c", Verdict::Skipped("ignored".into())),
        ];
        let text = report(&results, Duration::from_secs(2))
            .to_string()
            .unwrap();
        let again = Report::deserialize_from_str(&text).unwrap();
        assert_eq!(again.test_suites.len(), 1);
        let suite = &again.test_suites[0];
        assert_eq!((suite.tests, suite.failures), (3, 1));
        let skipped = &suite.test_cases[2].status;
        assert!(matches!(skipped, TestCaseStatus::Skipped { .. }));
        assert!(text.contains("why &lt;not&gt;"), "{text}");
    }
}
