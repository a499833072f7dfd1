//! The output of a run: each test as it ends, and the summary.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use crate::suite::result::{TestResult, Verdict, tally};
use crate::suite::schedule::Span;
use crate::suite::tally::Tally;
use crate::suite::tier::Section;

/// How many of the slowest tests are named, and of the jobs that took most processor time.
const SLOWEST: usize = 10;
/// How much of a failed test's output is printed, from its end: a guest's console may be long.
const OUTPUT: usize = 64 << 10;

/// Prints a line, even where standard output is closed: the tests go on.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints a result, and what a failed test printed.
pub(crate) fn show(result: &TestResult) {
    print(&line(result));
    if result.has_failed() && !result.output.is_empty() {
        print(&format!(
            "--- output of {}\n{}\n--- end of output",
            result.full_name(),
            end_of(&result.output).trim_end()
        ));
    }
}

fn line(result: &TestResult) -> String {
    let (word, why) = match &result.verdict {
        Verdict::Passed => ("ok", ""),
        Verdict::Failed(why) => ("FAILED", &**why),
        Verdict::Skipped(why) => ("skipped", &**why),
    };
    let seconds = result.time.as_secs_f64();
    let name = result.full_name();
    let section = result.section.name();
    let why = if why.is_empty() {
        String::new()
    } else {
        format!("  ({why})")
    };
    format!("{word:>8} {seconds:>8.2} s  {section:<8} {name}{why}")
}

fn end_of(output: &str) -> &str {
    let mut at = output.len().saturating_sub(OUTPUT);
    while !output.is_char_boundary(at) {
        at += 1;
    }
    output.get(at..).unwrap_or(output)
}

/// The results at the end of a run.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    /// All results of the run.
    pub(crate) results: &'a [TestResult],
    /// All jobs of the run.
    pub(crate) spans: &'a [Span],
    /// The whole run's time.
    pub(crate) time: Duration,
    /// The parts that the run did not cover.
    pub(crate) left_out: &'a [String],
    /// Tests that passed in an earlier run, with the same inputs.
    pub(crate) kept: &'a BTreeMap<Section, u64>,
}

impl Report<'_> {
    /// The count of tests, including those that passed in an earlier run.
    pub(crate) fn tally(&self) -> Tally {
        let mut sum = tally(self.results);
        sum.passed += self.kept.values().sum::<u64>();
        sum
    }

    /// Prints the summary; the sum of all tests comes last.
    pub(crate) fn print(&self) {
        let failed: Vec<_> = self
            .results
            .iter()
            .filter(|result| result.has_failed())
            .collect();
        if !failed.is_empty() {
            print("\nfailed:");
            for result in failed {
                print(&line(result));
            }
        }
        print("\nslowest tests:");
        for (time, name) in self.slowest() {
            print(&format!("{:>8.1} s  {name}", time.as_secs_f64()));
        }
        print("\nmost processor time, with all children:");
        for span in self.costliest() {
            let name = format!("{} ({})", span.name, span.section.name());
            print(&format!("{:>8.1} s  {name}", span.cpu_time.as_secs_f64()));
        }
        print("\nsection    tests                                    time   processor time");
        for (section, sum) in self.sections() {
            let (time, cpu) = self.times(|span| span.section == section && !span.is_build);
            let sum = sum.to_string();
            let name = section.name();
            print(&format!("{name:<10} {sum:<38} {time:>6.0} s {cpu:>8.0} s"));
        }
        let (time, cpu) = self.times(|span| span.is_build);
        print(&format!("{:<49} {time:>6.0} s {cpu:>8.0} s", "builds"));
        print(&format!(
            "{:<49} {:>6.0} s",
            "whole run, with jobs beside each other",
            self.time.as_secs_f64()
        ));
        for (section, count) in self.kept {
            print(&format!(
                "{}: {count} tests passed in an earlier run",
                section.name()
            ));
        }
        print("\nleft out:");
        for what in self.left_out {
            print(&format!("  {what}"));
        }
        if self.left_out.is_empty() {
            print("  nothing");
        }
        print(&self.tally().to_string());
    }

    /// Single tests, and programs whose tests are not timed one by one.
    fn slowest(&self) -> Vec<(Duration, String)> {
        let tests = self
            .results
            .iter()
            .map(|result| (result.time, result.full_name()));
        let programs = self
            .spans
            .iter()
            .filter(|span| !span.is_build && span.is_whole)
            .map(|span| (span.time, format!("{} (all its tests)", span.name)));
        let mut all: Vec<_> = tests.chain(programs).collect();
        all.sort_by(|a, b| b.cmp(a));
        all.truncate(SLOWEST);
        all
    }

    fn sections(&self) -> Vec<(Section, Tally)> {
        let mut sections: BTreeMap<Section, Tally> = BTreeMap::new();
        for result in self.results {
            *sections.entry(result.section).or_default() += tally([result]);
        }
        sections.into_iter().collect()
    }

    /// The jobs with the most processor time.
    fn costliest(&self) -> Vec<&Span> {
        let mut spans: Vec<_> = self.spans.iter().collect();
        spans.sort_by_key(|span| Reverse(span.cpu_time));
        spans.truncate(SLOWEST);
        spans
    }

    /// The time of some jobs, and their processor time, in seconds.
    fn times(&self, wanted: impl Fn(&Span) -> bool) -> (f64, f64) {
        let spans = self.spans.iter().filter(|span| wanted(span));
        spans.fold((0.0, 0.0), |(time, cpu), span| {
            let (more, more_cpu) = (span.time.as_secs_f64(), span.cpu_time.as_secs_f64());
            (time + more, cpu + more_cpu)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, verdict: Verdict, millis: u64) -> TestResult {
        TestResult {
            section: Section::Host,
            program: "p".into(),
            name: name.into(),
            verdict,
            time: Duration::from_millis(millis),
            output: String::new(),
        }
    }

    fn report<'a>(
        results: &'a [TestResult],
        spans: &'a [Span],
        kept: &'a BTreeMap<Section, u64>,
    ) -> Report<'a> {
        Report {
            results,
            spans,
            time: Duration::ZERO,
            left_out: &[],
            kept,
        }
    }

    #[test]
    fn line_has_verdict_time_and_reason() {
        let failed = line(&result("a", Verdict::Failed("x".into()), 1500));
        assert!(failed.contains("FAILED"), "{failed}");
        assert!(
            failed.contains("1.50 s") && failed.contains("p::a  (x)"),
            "{failed}"
        );
    }

    #[test]
    fn ten_slowest_are_named_slowest_first() {
        let results: Vec<_> = (0..20)
            .map(|n| result(&n.to_string(), Verdict::Passed, n))
            .collect();
        let kept = BTreeMap::new();
        let slowest = report(&results, &[], &kept).slowest();
        assert_eq!(slowest.len(), SLOWEST);
        assert_eq!(slowest[0], (Duration::from_millis(19), "p::19".into()));
    }

    #[test]
    fn tests_that_passed_earlier_count() {
        let results = [
            result("a", Verdict::Passed, 1),
            result("b", Verdict::Skipped("s".into()), 1),
        ];
        let kept = BTreeMap::from([(Section::Crash, 5)]);
        let tally = report(&results, &[], &kept).tally();
        assert_eq!(tally.to_string(), "6 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn long_output_is_cut_at_its_beginning() {
        let output = format!("a{}", "é".repeat(OUTPUT));
        let end = end_of(&output);
        assert!(end.len() <= OUTPUT && end.ends_with('é'));
        assert_eq!(end_of("ab"), "ab");
    }
}
