//! Results of the kernel's selftests, as `scripts/compare` prints them: a line `=== PROGRAM` before
//! the output of each program, and `=== status N` after it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

type Error = Box<dyn std::error::Error>;

/// The results of a program, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// None: the program was still running when the guest ended.
    status: Option<i32>,
    /// Its tests in order, each with its result.
    tests: Vec<(String, Verdict)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    NotOk,
    Skip,
}

type Outcomes = BTreeMap<String, Outcome>;

/// Prints a table of the results, and the differences. Returns whether there are none.
pub(crate) fn compare(unpatched: &Path, patched: &Path) -> Result<bool, Error> {
    let read = |path: &Path| {
        let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok::<_, Error>(parse(&String::from_utf8_lossy(&bytes)))
    };
    let (before, after) = (read(unpatched)?, read(patched)?);
    if before.is_empty() {
        return Err(format!("{}: no program was run", unpatched.display()).into());
    }
    println!("| program | status | ok | not ok | skipped |\n|---|---|---|---|---|");
    for (program, outcome) in &before {
        let count = |verdict| {
            outcome
                .tests
                .iter()
                .filter(|test| test.1 == verdict)
                .count()
        };
        println!(
            "| `{program}` | {} | {} | {} | {} |",
            outcome
                .status
                .map_or("none".into(), |status| status.to_string()),
            count(Verdict::Ok),
            count(Verdict::NotOk),
            count(Verdict::Skip),
        );
    }
    let differences = differences(&before, &after);
    for difference in &differences {
        println!("{difference}");
    }
    let tests: usize = before.values().map(|outcome| outcome.tests.len()).sum();
    println!(
        "{} programs, {tests} tests, {} differences",
        before.len(),
        differences.len()
    );
    Ok(differences.is_empty())
}

/// Parses the programs, with their arguments, and their results.
fn parse(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let mut program = None;
    for line in text.lines() {
        if let Some(status) = line.strip_prefix("=== status ") {
            if let Some(outcome) = program
                .take()
                .and_then(|name: String| outcomes.get_mut(&name))
            {
                outcome.status = status.trim().parse().ok();
            }
        } else if let Some(name) = line.strip_prefix("=== ") {
            outcomes.insert(name.into(), Outcome::default());
            program = Some(name.into());
        } else if let Some(test) = test(line)
            && let Some(outcome) = program.as_ref().and_then(|name| outcomes.get_mut(name))
        {
            outcome.tests.push(test);
        }
    }
    outcomes
}

/// A line `ok N - WHAT` or `not ok N WHAT # SKIP WHY`. Programs that begin in the middle of one
/// have text before it.
fn test(line: &str) -> Option<(String, Verdict)> {
    let line = line.trim_start_matches(['#', ' ']);
    let (rest, verdict) = match line.strip_prefix("not ok ") {
        Some(rest) => (rest, Verdict::NotOk),
        None => (line.strip_prefix("ok ")?, Verdict::Ok),
    };
    let (number, what) = rest.split_once(' ').unwrap_or((rest, ""));
    number.parse::<u32>().ok()?;
    let (what, directive) = what.split_once(" # ").unwrap_or((what, ""));
    let verdict = if directive.starts_with("SKIP") {
        Verdict::Skip
    } else {
        verdict
    };
    Some((what.trim_start_matches("- ").trim().into(), verdict))
}

fn differences(before: &Outcomes, after: &Outcomes) -> Vec<String> {
    let mut differences = Vec::new();
    let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (Some(before), Some(after)) = (before.get(name), after.get(name)) else {
            differences.push(format!("{name}: was run on one of the kernels only"));
            continue;
        };
        if before.status.is_none() || before.status != after.status {
            differences.push(format!(
                "{name}: status {:?} without the series, {:?} with it",
                before.status, after.status
            ));
        }
        if before.tests.len() != after.tests.len() {
            differences.push(format!(
                "{name}: {} tests without the series, {} with it",
                before.tests.len(),
                after.tests.len()
            ));
        }
        for (before, after) in before.tests.iter().zip(&after.tests) {
            if before != after {
                differences.push(format!(
                    "{name}: {} ({:?}) without the series, {} ({:?}) with it",
                    before.0, before.1, after.0, after.1
                ));
            }
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "TAP version 13\n\
        === mm/mremap_test\n\
        1..3\n\
        # ok 1 - 5KB mremap\n\
        not ok 2 second\n\
        ok 3 third # SKIP no memory\n\
        oktett\n\
        === status 1\n\
        === rseq/basic_test\n\
        testing current cpu\n\
        === status 0\n";

    #[test]
    fn selftest_results_are_parsed() {
        let outcomes = parse(LOG);
        let mremap = &outcomes["mm/mremap_test"];
        assert_eq!(mremap.status, Some(1));
        assert_eq!(
            mremap.tests,
            [
                ("5KB mremap".into(), Verdict::Ok),
                ("second".into(), Verdict::NotOk),
                ("third".into(), Verdict::Skip),
            ]
        );
        assert_eq!(outcomes["rseq/basic_test"].status, Some(0));
    }

    #[test]
    fn each_difference_of_selftests_is_found() {
        let before = parse(LOG);
        assert_eq!(differences(&before, &before), [""; 0]);
        for (from, to) in [
            ("not ok 2", "ok 2"),
            ("# SKIP", "# what"),
            ("=== status 0", "=== status 4"),
            ("=== status 0\n", ""),
            ("# ok 1 - 5KB mremap\n", ""),
            ("rseq/basic_test", "rseq/other_test"),
        ] {
            let after = parse(&LOG.replace(from, to));
            assert_ne!(differences(&before, &after), [""; 0], "{from}");
        }
        // A guest that dies on both kernels proves nothing.
        let cut = parse(&LOG.replace("=== status 0\n", ""));
        assert_ne!(differences(&cut, &cut), [""; 0]);
    }
}
