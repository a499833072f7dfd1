//! Adds up the summaries of test programs.

/// How many tests there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed, and parts of the run that broke.
    pub(crate) failed: u64,
    /// Tests that were not run.
    pub(crate) skipped: u64,
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
    /// The sum of the summaries in the output of libtest or libtest-mimic, one for each test
    /// program.
    ///
    /// Tests that were filtered out do not count.
    pub(crate) fn of_libtest(output: &str) -> Self {
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
    }
}
