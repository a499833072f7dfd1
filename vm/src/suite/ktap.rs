//! Reads KTAP, in which KUnit and kselftest report.

use crate::suite::result::Verdict;

/// The innermost tests in KTAP output. A plan `1..N` announces N results: missing ones count as
/// failures.
pub(crate) fn read(output: &str) -> Vec<(String, Verdict)> {
    let mut tests: Vec<(String, Verdict)> = Vec::new();
    // For each depth, the plan, and how many results have come.
    let mut plans: Vec<(usize, u64, u64)> = Vec::new();
    let mut inner: Option<usize> = None;
    for line in output.lines() {
        let line = without_stamp(line);
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if let Some(count) = text
            .strip_prefix("1..")
            .and_then(|count| count.parse().ok())
        {
            plans.push((depth, count, 0));
            continue;
        }
        let (has_passed, rest) = match (text.strip_prefix("ok "), text.strip_prefix("not ok ")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => continue,
        };
        // The plans of deeper levels end here.
        while let Some(&(of, promised, came)) = plans.last()
            && of > depth
        {
            plans.pop();
            if came < promised {
                tests.push(missing(promised - came));
            }
        }
        if let Some((of, _, came)) = plans.last_mut()
            && *of == depth
        {
            *came += 1;
        }
        // A suite's own result follows those of its tests, and is less indented.
        let is_sum = inner.is_some_and(|inner| depth < inner);
        inner = Some(depth);
        if is_sum {
            continue;
        }
        let name = rest.split_once(' ').map_or(rest, |(_, name)| name);
        let (name, comment) = name.split_once('#').unwrap_or((name, ""));
        let name = name.trim_start_matches("- ").trim().to_owned();
        let verdict = if comment.trim_start().starts_with("SKIP") {
            Verdict::Skipped(comment.trim().into())
        } else {
            Verdict::of(has_passed)
        };
        tests.push((name, verdict));
    }
    for (_, promised, came) in plans {
        if came < promised {
            tests.push(missing(promised - came));
        }
    }
    tests
}

fn missing(count: u64) -> (String, Verdict) {
    let why = format!("{count} promised results did not come");
    ("plan".into(), Verdict::Failed(why))
}

/// The line without the kernel's time stamp and its one space.
fn without_stamp(line: &str) -> &str {
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

    const KUNIT: &str = "[    0.5] KTAP version 1\n\
        [    0.5] 1..2\n\
        [    0.5]     KTAP version 1\n\
        [    0.5]     # Subtest: ltt\n\
        [    0.5]     1..3\n\
        [    0.5]     ok 1 one\n\
        [    0.5]     not ok 2 two\n\
        [    0.5]     ok 3 three # SKIP no reason\n\
        [    0.5] # ltt: pass:1 fail:1 skip:1 total:3\n\
        [    0.5] not ok 1 ltt\n\
        [    0.5]     1..1\n\
        [    0.5]     ok 1 other\n\
        [    0.5] ok 2 others\n";

    #[test]
    fn innermost_ktap_results_are_tests() {
        let tests = read(KUNIT);
        let names: Vec<_> = tests.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["one", "two", "three", "other"]);
        assert_eq!(tests[0].1, Verdict::Passed);
        assert!(matches!(tests[1].1, Verdict::Failed(_)));
        assert!(matches!(tests[2].1, Verdict::Skipped(_)));
    }

    #[test]
    fn results_that_ktap_promised_and_did_not_print_fail() {
        let lines: Vec<_> = KUNIT.lines().filter(|line| !line.contains("one")).collect();
        let tests = read(&lines.join("\n"));
        assert!(tests.iter().any(|(name, _)| name == "plan"), "{tests:?}");
        let flat = read("TAP version 13\n1..2\nok 1 a.b\n");
        assert_eq!(flat.len(), 2);
        assert!(matches!(flat[1].1, Verdict::Failed(_)));
    }
}
