//! The history of earlier runs in the cache: durations of tests and, for the full tier, the tests
//! that passed.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use usertrace_vm::{cache_dir, repository};

use crate::suite::result::{TestResult, Verdict};
use crate::suite::tier::Section;

/// How many files of passed tests are kept: one for each state of a section's inputs.
const KEPT: usize = 40;

/// The history of earlier runs.
#[derive(Debug)]
pub(crate) struct History {
    directory: PathBuf,
    durations: BTreeMap<String, u64>,
    passed: BTreeMap<Section, PassedTests>,
}

/// The tests of a section that have passed with the very same inputs.
#[derive(Debug)]
struct PassedTests {
    file: PathBuf,
    names: HashSet<String>,
}

impl History {
    /// Reads the history. Only the full tier continues a stopped run: for it, `sections` are the
    /// sections to continue.
    pub(crate) fn load(sections: &[Section]) -> Result<Self> {
        let directory = cache_dir()?.join("tests");
        fs::create_dir_all(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let durations = fs::read(directory.join("durations.json")).ok();
        let durations = durations.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut passed = BTreeMap::new();
        for &section in sections {
            let key = key(section)?;
            let file = directory.join(format!("passed-{}-{key}", section.name()));
            let text = fs::read_to_string(&file).unwrap_or_default();
            let names = text.lines().map(str::to_owned).collect();
            passed.insert(section, PassedTests { file, names });
        }
        prune(&directory);
        Ok(Self {
            directory,
            durations: durations.unwrap_or_default(),
            passed,
        })
    }

    /// The last duration of a test.
    pub(crate) fn expected(&self, name: &str) -> Option<Duration> {
        self.durations.get(name).copied().map(Duration::from_millis)
    }

    /// Whether a test has passed before, with the same inputs.
    pub(crate) fn has_passed(&self, section: Section, name: &str) -> bool {
        self.passed
            .get(&section)
            .is_some_and(|passed| passed.names.contains(name))
    }

    /// Notes a result. Writes it at once, because the run may be stopped at any time.
    pub(crate) fn note(&mut self, result: &TestResult) {
        let name = result.full_name();
        if !result.time.is_zero() {
            self.note_duration(&name, result.time);
        }
        let Some(passed) = self.passed.get_mut(&result.section) else {
            return;
        };
        if result.verdict == Verdict::Passed && passed.names.insert(name.clone()) {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&passed.file);
            // If the result cannot be stored, the next run repeats the test.
            let _ = file.and_then(|mut file| writeln!(file, "{name}"));
        }
    }

    /// Notes how long a test, or a job as a whole, took.
    pub(crate) fn note_duration(&mut self, name: &str, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let expected = self.durations.entry(name.to_owned()).or_default();
        // A job without work now, such as the check of an unchanged series, may have much work the
        // next time.
        *expected = millis.max(*expected / 2);
    }

    /// Forgets the passed tests, so that all run again.
    pub(crate) fn forget(&mut self) {
        for passed in self.passed.values_mut() {
            let _ = fs::remove_file(&passed.file);
            passed.names.clear();
        }
    }

    /// Writes the durations, and which of these sections passed as a whole now. Returns the
    /// summary's path.
    pub(crate) fn save(&self, tier: &str, whole: &[(Section, u64)]) -> Result<PathBuf> {
        let text = serde_json::to_vec_pretty(&self.durations)?;
        replace(&self.directory.join("durations.json"), &text)?;
        let path = self.directory.join("summary.json");
        let summary = fs::read(&path).ok();
        let summary = summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut summary: BTreeMap<String, Value> = summary.unwrap_or_default();
        for (section, tests) in whole {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            let value = json!({
                "last_passed": date(now.as_secs()),
                "commit": commit()?,
                "tests": tests,
            });
            summary.insert(format!("{tier} {}", section.name()), value);
        }
        replace(&path, &serde_json::to_vec_pretty(&summary)?)?;
        Ok(path)
    }
}

/// Seconds since 1970, as a date in UTC.
fn date(seconds: u64) -> String {
    let output = Command::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"])
        .output();
    output.map_or_else(
        |_| seconds.to_string(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// Replaces a file at once: a run that is stopped leaves the old one, or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes).with_context(|| format!("writing {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("renaming {}", new.display()))
}

/// Removes the oldest files of passed tests.
fn prune(directory: &Path) {
    let mut files: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("passed-"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    for (_, path) in files.iter().rev().skip(KEPT) {
        let _ = fs::remove_file(path);
    }
}

/// The commit that is checked out, and whether the work tree differs from it.
pub(crate) fn commit() -> Result<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"], None)?;
    let is_clean = git(&["status", "--porcelain"], None)?.is_empty();
    Ok(if is_clean {
        commit
    } else {
        format!("{commit} with changes")
    })
}

/// A key of all that a section's results depend on: its files as they are in the work tree, the
/// compiler, and QEMU.
fn key(section: Section) -> Result<String> {
    // An index of its own, as the user's must stay as it is.
    let directory = tempfile::tempdir()?;
    let index = directory.path().join("index");
    git(&["add", "--all"], Some(&index))?;
    let tree = git(&["write-tree"], Some(&index))?;
    let mut arguments = vec!["ls-tree", "-r", &tree, "--"];
    arguments.extend(section.inputs());
    let mut text = git(&arguments, None)?;
    for (program, argument) in [("rustc", "-vV"), ("qemu-system-x86_64", "--version")] {
        let output = Command::new(program).arg(argument).output();
        text += &output.map_or_else(
            |e| e.to_string(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        );
    }
    let path = directory.path().join("text");
    fs::write(&path, text)?;
    let path = path.to_string_lossy();
    git(&["hash-object", "--no-filters", &path], None)
}

fn git(arguments: &[&str], index: Option<&Path>) -> Result<String> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(repository());
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    let output = command.output().context("running git")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("git {}: {}", arguments.join(" "), why.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(directory: &Path) -> History {
        let file = directory.join("passed-host-1");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let names = text.lines().map(str::to_owned).collect();
        History {
            directory: directory.to_owned(),
            durations: BTreeMap::new(),
            passed: BTreeMap::from([(Section::Host, PassedTests { file, names })]),
        }
    }

    fn result(name: &str, verdict: Verdict) -> TestResult {
        TestResult {
            section: Section::Host,
            program: "p".into(),
            name: name.into(),
            verdict,
            time: Duration::from_millis(5),
            output: String::new(),
        }
    }

    #[test]
    fn passed_tests_are_known_to_the_next_run_until_they_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = history(directory.path());
        first.note(&result("a", Verdict::Passed));
        first.note(&result("b", Verdict::Failed("x".into())));
        let mut next = history(directory.path());
        assert!(next.has_passed(Section::Host, "p::a"));
        assert!(!next.has_passed(Section::Host, "p::b"));
        assert!(!next.has_passed(Section::Guest, "p::a"));
        next.forget();
        assert!(!history(directory.path()).has_passed(Section::Host, "p::a"));
    }

    #[test]
    fn key_is_of_the_inputs() {
        assert_eq!(key(Section::Fuzz).unwrap(), key(Section::Fuzz).unwrap());
        assert_ne!(key(Section::Fuzz).unwrap(), key(Section::Host).unwrap());
    }

    #[test]
    fn summary_has_time_and_commit_of_the_last_pass_of_a_section() {
        let directory = tempfile::tempdir().unwrap();
        let mut history = history(directory.path());
        history.note(&result("a", Verdict::Passed));
        let path = history.save("full", &[(Section::Host, 3)]).unwrap();
        let path = history.save("full", &[]).map(|_| path).unwrap();
        let summary: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let host = &summary["full host"];
        assert_eq!(host["tests"], 3);
        assert!(host["commit"].as_str().unwrap().len() >= 12, "{host}");
        assert!(
            host["last_passed"].as_str().unwrap().ends_with('Z'),
            "{host}"
        );
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn job_that_had_nothing_to_do_once_is_still_a_long_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut history = history(directory.path());
        history.note_duration("check", Duration::from_secs(100));
        history.note_duration("check", Duration::from_secs(1));
        assert_eq!(history.expected("check"), Some(Duration::from_secs(50)));
        history.note_duration("check", Duration::from_secs(120));
        assert_eq!(history.expected("check"), Some(Duration::from_secs(120)));
    }
}
