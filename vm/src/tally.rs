//! Adds up what test programs say about themselves.

/// How many tests there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed, and parts of the run that broke.
    pub failed: u64,
    /// Tests that were not run.
    pub skipped: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

impl Tally {
    /// The sum of the summaries in the output of libtest or libtest-mimic, one for each test program.
    ///
    /// A test that is filtered out was not asked for, and is not counted.
    #[must_use]
    pub fn of_libtest(output: &str) -> Self {
        let mut sum = Self::default();
        for line in output.lines() {
            let Some(summary) = line.trim_start().strip_prefix("test result: ") else {
                continue;
            };
            let Some((_, counts)) = summary.split_once(". ") else {
                continue;
            };
            for count in counts.split("; ") {
                let Some((number, what)) = count.split_once(' ') else {
                    continue;
                };
                let Ok(number) = number.parse::<u64>() else {
                    continue;
                };
                match what {
                    "passed" => sum.passed += number,
                    "failed" => sum.failed += number,
                    "ignored" => sum.skipped += number,
                    _ => {}
                }
            }
        }
        sum
    }

    /// The sum of the results of the innermost tests in KTAP output, as KUnit prints it on the console.
    #[must_use]
    pub fn of_ktap(output: &str) -> Self {
        let mut sum = Self::default();
        // A suite's own result comes after those of its tests, and less indented.
        let mut inner: Option<usize> = None;
        for line in output.lines() {
            let line = without_stamp(line);
            let text = line.trim_start();
            let depth = line.len() - text.len();
            let ok = if text.starts_with("ok ") {
                true
            } else if text.starts_with("not ok ") {
                false
            } else {
                continue;
            };
            let is_sum = inner.is_some_and(|inner| depth < inner);
            inner = Some(depth);
            if is_sum {
                continue;
            }
            if text.contains("# SKIP") {
                sum.skipped += 1;
            } else if ok {
                sum.passed += 1;
            } else {
                sum.failed += 1;
            }
        }
        sum
    }
}

/// The line without the kernel's time stamp and its one space.
#[must_use]
pub fn without_stamp(line: &str) -> &str {
    match line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
    {
        Some((stamp, rest))
            if stamp
                .bytes()
                .all(|b| b.is_ascii_digit() || b" .".contains(&b)) =>
        {
            rest
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtests_summaries_are_added() {
        let output = "running 2 tests\n..\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 5 filtered out; finished in 0.00s\n\
            test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n";
        assert_eq!(
            Tally::of_libtest(output),
            Tally {
                passed: 5,
                failed: 4,
                skipped: 1
            }
        );
    }

    #[test]
    fn other_output_counts_nothing() {
        assert_eq!(
            Tally::of_libtest("ok. 5 passed; test result\n5 passed; 1 failed"),
            Tally::default()
        );
        assert_eq!(Tally::of_ktap("[    1.0] okay\n"), Tally::default());
    }

    #[test]
    fn kunits_innermost_results_are_added() {
        let output = "[    0.5] KTAP version 1\n\
            [    0.5] 1..2\n\
            [    0.5]     KTAP version 1\n\
            [    0.5]     # Subtest: ltt\n\
            [    0.5]     1..3\n\
            [    0.5]     ok 1 one\n\
            [    0.5]     not ok 2 two\n\
            [    0.5]     ok 3 three # SKIP no reason\n\
            [    0.5] # ltt: pass:1 fail:1 skip:1 total:3\n\
            [    0.5] not ok 1 ltt\n\
            [    0.5]     ok 1 other\n\
            [    0.5] ok 2 others\n";
        assert_eq!(
            Tally::of_ktap(output),
            Tally {
                passed: 2,
                failed: 1,
                skipped: 1
            }
        );
    }
}
