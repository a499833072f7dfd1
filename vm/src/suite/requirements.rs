//! The table of `docs/requirements.md`: each requirement has tests, which exist, name it, and run.

use std::collections::BTreeMap;
use std::fs;

use usertrace_vm::repository;

use crate::suite::result::{TestResult, Verdict};

/// A line for each test that shows a requirement, but did not pass in a run of the whole middle
/// tier.
pub(crate) fn not_shown(results: &[TestResult]) -> Result<Vec<String>, String> {
    let path = repository().join("docs/requirements.md");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut lines = Vec::new();
    for (id, tests) in table(&text)? {
        for test in tests {
            let mut named = results.iter().filter(|result| is_named(result, &test));
            if !named.any(|result| result.verdict == Verdict::Passed) {
                lines.push(format!("{id}: {test} did not pass in this run"));
            }
        }
    }
    Ok(lines)
}

/// Whether the table means this test by `program::test`, where the program is the last part of its
/// own name.
fn is_named(result: &TestResult, test: &str) -> bool {
    let Some((program, name)) = test.split_once("::") else {
        return false;
    };
    // Guest tests have their kernel in brackets.
    let of = result.program.split(" [").next().unwrap_or_default();
    let is_program = of == program || of.rsplit("::").next() == Some(program);
    let is_test = result.name == name
        || result
            .name
            .rsplit_once(name)
            .is_some_and(|(module, _)| module.ends_with("::"));
    // A program that is one test.
    is_program && (is_test || result.name.is_empty())
}

/// The names of tests by requirement, from the rows of the table.
fn table(text: &str) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [id, _, tests] = cells[..] else {
            return Err(format!("a row has three cells: {line}"));
        };
        if id == "id" || id.starts_with("--") {
            continue;
        }
        let tests = tests.split(',').map(|test| test.trim().trim_matches('`'));
        let tests = tests.filter(|test| !test.is_empty()).map(str::to_owned);
        if rows.insert(id.to_owned(), tests.collect()).is_some() {
            return Err(format!("{id} has two rows"));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::*;
    use crate::suite::tier::Section;

    #[test]
    fn tests_are_found_by_the_last_part_of_the_programs_name() {
        let result = |program: &str, name: &str| TestResult {
            section: Section::Host,
            program: program.into(),
            name: name.into(),
            verdict: Verdict::Passed,
            time: Duration::ZERO,
            output: String::new(),
        };
        let tools = result("usertrace-cli::tools", "ctf::lost");
        assert!(is_named(&tools, "tools::ctf::lost"));
        assert!(!is_named(&tools, "tools::lost_more") && !is_named(&tools, "rings::ctf::lost"));
        assert!(is_named(
            &result("guest-tests [release]", "a"),
            "guest-tests::a"
        ));
        assert!(is_named(
            &result("usertrace", "writer::tests::a"),
            "usertrace::a"
        ));
        assert!(is_named(&result("guest-bench", ""), "guest-bench::run"));
    }

    /// The sections of the list of requirements, and how many requirements each has.
    const SECTIONS: [(char, u32); 6] =
        [('A', 11), ('B', 6), ('C', 9), ('D', 8), ('E', 8), ('F', 10)];

    /// Directories that have test programs, by name.
    const PROGRAMS: [&str; 7] = [
        "tests/src/bin",
        "usertrace/tests",
        "crates/cli/tests",
        "crates/expression/tests",
        "crates/ring/tests",
        "bench/src/bin",
        "bench/tests",
    ];

    /// Directories of crates.
    const CRATES: [&str; 11] = [
        "bench",
        "c",
        "crates",
        "fuzz",
        "loom",
        "preload",
        "sys",
        "tests",
        "tracing",
        "usertrace",
        "vm",
    ];

    /// Directories of tests that several programs run.
    const SHARED: [(&str, &str); 2] = [
        ("guest-tests", "crates/scenarios/src/control"),
        ("control", "crates/scenarios/src/control"),
    ];

    /// The ids of all requirements.
    fn ids() -> BTreeSet<String> {
        let section =
            |(section, count)| (1..=count).map(move |number| format!("{section}{number}"));
        SECTIONS.into_iter().flat_map(section).collect()
    }

    /// Adds the Rust files below a path, which may be a file itself, except those that a build
    /// made.
    fn add_files(path: &Path, files: &mut Vec<PathBuf>) {
        if path.ends_with("target") {
            return;
        }
        if path.is_dir() {
            for entry in fs::read_dir(path).expect("a directory of this repository") {
                add_files(&entry.expect("an entry").path(), files);
            }
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path.to_owned());
        }
    }

    /// The sources of a program, or of a crate's unit tests.
    fn sources(program: &str) -> Vec<PathBuf> {
        let root = repository();
        let mut files = Vec::new();
        for directory in PROGRAMS {
            add_files(&root.join(directory).join(program), &mut files);
            let file = format!("{program}.rs");
            add_files(&root.join(directory).join(file), &mut files);
        }
        if files.is_empty() {
            add_files(&root.join(program).join("src"), &mut files);
        }
        for (_, directory) in SHARED.iter().filter(|(to, _)| *to == program) {
            add_files(&root.join(directory), &mut files);
        }
        files
    }

    /// The ids that a text names, as in `Requirements: A3, B6`.
    fn named(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let ids = ids();
        words
            .filter(|word| ids.contains(*word))
            .map(str::to_owned)
            .collect()
    }

    /// The ids in the comment above a line.
    fn ids_above(lines: &[&str], line: usize) -> BTreeSet<String> {
        let above = lines[..line].iter().rev().map(|line| line.trim_start());
        above
            .take_while(|line| line.starts_with("//") || line.starts_with("#["))
            .filter_map(|line| line.split_once("Requirements:"))
            .flat_map(|(_, ids)| named(ids))
            .collect()
    }

    /// The names in this source that begin with a requirement's id.
    fn named_after_ids(source: &str) -> Vec<&str> {
        let ids = ids();
        let is_id = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_lowercase()) && ids.contains(&word.to_uppercase())
        };
        let names = source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        names
            .filter(|name| name.split_once('_').is_some_and(|(first, _)| is_id(first)))
            .collect()
    }

    /// The line of a function of this name.
    fn function(lines: &[&str], name: &str) -> Option<usize> {
        lines.iter().position(|line| {
            let rest = line
                .split_once("fn ")
                .and_then(|(_, rest)| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(['(', '<']))
        })
    }

    /// The ids that a test in this source names, if the test is there.
    ///
    /// A test is a function, or a string in a table of tests. The comment stands above the function
    /// or above the entry of the table.
    fn ids_of_test(source: &str, name: &str) -> Option<BTreeSet<String>> {
        let lines: Vec<_> = source.lines().collect();
        if let Some(line) = function(&lines, name) {
            return Some(ids_above(&lines, line));
        }
        let text = format!("\"{name}\"");
        let line = lines.iter().position(|line| line.contains(&text))?;
        let mut ids = ids_above(&lines, line);
        let entry = lines[line..]
            .iter()
            .take(4)
            .flat_map(|line| line.split(['(', ',', ')', '|']));
        let mut functions = entry
            .map(|word| word.trim().trim_end_matches("::<B>"))
            .filter_map(|word| function(&lines, word));
        if let Some(function) = functions.next() {
            ids.extend(ids_above(&lines, function));
        }
        Some(ids)
    }

    /// Checks that a test of a requirement exists and names the requirement.
    fn check(id: &str, test: &str) -> Result<(), String> {
        let (program, rest) = test
            .split_once("::")
            .ok_or_else(|| format!("{id}: {test} names no program"))?;
        let name = rest.rsplit("::").next().unwrap_or(rest);
        let files = sources(program);
        if files.is_empty() {
            return Err(format!("{id}: there is no program {program}"));
        }
        // A module in the name is a file.
        let module = rest.rsplit("::").nth(1);
        let is_of_module = |path: &&PathBuf| {
            module.is_none_or(|module| path.file_stem().is_some_and(|stem| stem == module))
        };
        let found: Vec<_> = files
            .iter()
            .filter(is_of_module)
            .filter_map(|path| ids_of_test(&fs::read_to_string(path).ok()?, name))
            .collect();
        if found.is_empty() {
            return Err(format!("{id}: there is no test {test}"));
        }
        if !found.iter().any(|ids| ids.contains(id)) {
            return Err(format!("{id}: {test} does not name the requirement"));
        }
        Ok(())
    }

    #[test]
    fn each_requirement_has_tests_that_name_it() {
        let path = repository().join("docs/requirements.md");
        let text = fs::read_to_string(&path).expect("docs/requirements.md");
        let table = table(&text).expect("a table");
        let mut problems = Vec::new();
        for id in ids() {
            if table.get(&id).is_none_or(Vec::is_empty) {
                problems.push(format!("{id}: no test"));
            }
        }
        for (id, tests) in &table {
            if !ids().contains(id) {
                problems.push(format!("{id}: there is no such requirement"));
            }
            problems.extend(tests.iter().filter_map(|test| check(id, test).err()));
        }
        assert!(
            problems.is_empty(),
            "{}:\n{}",
            path.display(),
            problems.join("\n")
        );
    }

    #[test]
    fn no_name_begins_with_a_requirement() {
        assert!(named_after_ids("fn c11_atomics() { a_name(b7, E1_NAME, 0xa5_a5) }").is_empty());
        // In two parts, because the test reads this file, too.
        let source = ["fn f10", "_is_shown() {}"].concat();
        assert_eq!(named_after_ids(&source), ["f10\u{5f}is_shown"]);
        let mut files = Vec::new();
        for directory in CRATES {
            add_files(&repository().join(directory), &mut files);
        }
        assert!(files.len() > 100, "{files:?}");
        for path in files {
            let source = fs::read_to_string(&path).expect("a source file");
            let names = named_after_ids(&source);
            assert!(
                names.is_empty(),
                "{}: the ids of {names:?} belong into the doc comments",
                path.display()
            );
        }
    }

    #[test]
    fn rows_have_an_id_and_tests() {
        let text = "| id | what | tests |\n|---|---|---|\n| A1 | a call | `a::b`, `c::d` |\n| A2 | none | |\n";
        let rows = table(text).unwrap();
        assert_eq!(rows["A1"], ["a::b", "c::d"]);
        assert!(rows["A2"].is_empty());
        assert!(table("| A1 | x |").is_err());
        assert!(table("| A1 | x | y |\n| A1 | x | y |").is_err());
    }

    #[test]
    fn tests_name_requirements_in_comments() {
        let of = |source: &str, name: &str| -> Option<String> {
            let ids: Vec<_> = ids_of_test(source, name)?.into_iter().collect();
            Some(ids.join(" "))
        };
        let source = "\
/// It does.
///
/// Requirements: A3, B6
#[test]
fn it_does() {}

fn other() {}

/// Requirements: F10
fn tabled() {}
const ALL: &[(&str, fn())] = &[
    // Requirements: B5
    (\"in_a_table\", tabled),
    // Requirements: C6
    (\"with_a_body\", || other()),
    (\"for_each_mode\", || {
        [\"signal\", \"thread\"].iter().for_each(|mode| tabled(mode));
    }),
];
";
        assert_eq!(of(source, "it_does").as_deref(), Some("A3 B6"));
        assert_eq!(of(source, "other").as_deref(), Some(""));
        assert_eq!(of(source, "in_a_table").as_deref(), Some("B5 F10"));
        assert_eq!(of(source, "with_a_body").as_deref(), Some("C6"));
        assert_eq!(of(source, "for_each_mode").as_deref(), Some("F10"));
        assert_eq!(of(source, "it"), None);
        assert!(check("A1", "runtime::there_is_none_of_this_name").is_err());
        assert!(check("A1", "no-program::a_test").is_err());
        assert!(check("F10", "runtime::several_traces").is_err());
    }
}
