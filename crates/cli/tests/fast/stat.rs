//! `usertrace stat`: counts of running programs (C7, E7).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use usertrace_testing::open_metrics;

use super::programs::write;
use super::run::{VARIABLE, assert_success};

/// Runs `usertrace stat` with one of the programs, in a new directory.
fn stat(program: &str, arguments: &[&str]) -> (Output, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .arg("stat")
        .args(arguments)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .env(VARIABLE, program)
        .env("TMPDIR", directory.path())
        .current_dir(directory.path())
        .output()
        .unwrap();
    // Nothing is left of what the daemons wrote.
    let left: Vec<PathBuf> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(left, [] as [&Path; 0]);
    (output, directory)
}

fn json(directory: &tempfile::TempDir, name: &str) -> Value {
    let text = fs::read_to_string(directory.path().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn sum_of(state: &Value, key: &str) -> u64 {
    let counters = state["counters"].as_array().unwrap().iter();
    counters.filter_map(|counter| counter[key].as_u64()).sum()
}

/// Requirements: E7, C7
pub(crate) fn stat_counts_all_processes() {
    let arguments = [
        "-e",
        "test:numbered hist(n) by thread",
        "--json=state",
        "--openmetrics",
        "prom",
    ];
    let (output, directory) = stat("fork", &arguments);
    assert_success(output.status, &output.stderr);
    assert_eq!(output.stdout, b"");
    let state = json(&directory, "state");
    assert_eq!((&state["lost"], &state["overflow"]), (&0.into(), &0.into()));
    let mut counters: Vec<_> = state["counters"].as_array().unwrap().clone();
    counters.sort_by_key(|counter| counter["key"].as_str().unwrap().to_owned());
    let keys: Vec<_> = counters
        .iter()
        .map(|of| of["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["1", "2", "3", "4", "9"]);
    for counter in &counters[..4] {
        assert_eq!(
            (&counter["count"], &counter["sum"]),
            (&1000.into(), &499_500.into())
        );
        assert_eq!((&counter["min"], &counter["max"]), (&0.into(), &999.into()));
        let buckets = counter["histogram"].as_array().unwrap().iter();
        let buckets: Vec<_> = buckets.map(|of| of["count"].as_u64().unwrap()).collect();
        assert_eq!(buckets, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 488]);
    }
    assert_eq!(
        (&counters[4]["count"], &counters[4]["sum"]),
        (&5.into(), &10.into())
    );
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.starts_with("EVENT          KEY       VALUE  COUNT "),
        "{text}"
    );
    assert!(
        text.contains("test:numbered n thread=1:\n(..., 0]         1 |@"),
        "{text}"
    );
    let metrics = fs::read_to_string(directory.path().join("prom")).unwrap();
    let families = open_metrics::parse(&metrics);
    let samples = families["usertrace_events"].samples.iter();
    assert_eq!(samples.map(|sample| sample.value).sum::<f64>(), 4005.0);
}

/// Without `-e`, each kind of event is counted. Several `-e` share the events.
pub(crate) fn stat_counts_what_it_is_asked_for() {
    let (output, directory) = stat("ten", &["--json=state"]);
    assert_success(output.status, &output.stderr);
    assert_eq!(sum_of(&json(&directory, "state"), "count"), 10);
    let arguments = [
        "-e",
        "test:numbered sum(n)",
        "-e",
        "* by thread",
        "--json=state",
    ];
    let (output, directory) = stat("ten", &arguments);
    let state = json(&directory, "state");
    assert_eq!((sum_of(&state, "count"), sum_of(&state, "sum")), (10, 45));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains('@'), "no histogram is wanted: {text}");
    // An event is for the first one whose pattern matches it, whatever its condition says.
    for (what, expected) in [
        (&["test:numbered sum(n) if n >= 7"][..], (3, 24)),
        (&["* sum(n) if n >= 7 && n != 8", "* by thread"], (2, 16)),
        (&["*:numbered sum(n)", "* if n >= 7"], (10, 45)),
        (
            &["other:* if n == 1", "test:* sum(n) by n if n < 2"],
            (2, 1),
        ),
    ] {
        let mut arguments = vec!["--json=state"];
        what.iter().for_each(|what| arguments.extend(["-e", what]));
        let (output, directory) = stat("ten-filtered", &arguments);
        assert_success(output.status, &output.stderr);
        let state = json(&directory, "state");
        let counted = (sum_of(&state, "count"), sum_of(&state, "sum"));
        assert_eq!(counted, expected, "{what:?}");
    }
    let (output, _) = stat("ten", &["-e", "test:numbered if n >"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("  n >\n") && text.contains('^'), "{text}");
    let (output, directory) = stat("idle", &["-e", "other:*", "--json=state"]);
    assert_success(output.status, &output.stderr);
    assert_eq!(sum_of(&json(&directory, "state"), "count"), 0);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no event was counted"));
}

/// Counts, and is killed.
pub(crate) fn counts_and_dies() {
    let threads: Vec<_> = (1..4)
        .map(|thread| std::thread::spawn(move || write(thread, 0..10_000)))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    // SAFETY: the signal goes to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Requirements: A10, C7
pub(crate) fn stat_counts_killed_programs() {
    let (output, directory) = stat("counts_and_dies", &["-e", "test:* hist(n)", "--json=state"]);
    assert_eq!(output.status.code(), Some(128 + libc::SIGKILL));
    let state = json(&directory, "state");
    assert_eq!(sum_of(&state, "count"), 30_000);
    assert_eq!(sum_of(&state, "sum"), 3 * 49_995_000);
}

/// Counts a hundred events, and waits, some times.
pub(crate) fn counts_slowly() {
    for round in 0..20 {
        write(1, round * 100..(round + 1) * 100);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Each interval has a state that is not behind the one before, and the last one is exact.
pub(crate) fn stat_shows_intervals() {
    let arguments = ["-e", "test:* sum(n)", "--interval", "0.3", "--json"];
    let (output, _directory) = stat("counts_slowly", &arguments);
    assert_success(output.status, &output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    let states: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let counts: Vec<_> = states.iter().map(|state| sum_of(state, "count")).collect();
    assert!(counts.is_sorted(), "{counts:?}");
    let steps = counts.chunk_by(|a, b| a == b).count();
    assert!(steps >= 3, "{counts:?}");
    assert_eq!(
        (counts.last(), sum_of(states.last().unwrap(), "sum")),
        (Some(&2000), 1_999_000)
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Counts events of many keys.
pub(crate) fn counts_many_keys() {
    write(1, 0..50_000);
}

/// Events without room in a table are counted together.
///
/// Requirements: E7
pub(crate) fn stat_reports_overflow() {
    let arguments = ["-e", "test:* sum(n) by n", "--top", "5", "--json=state"];
    let (output, directory) = stat("counts_many_keys", &arguments);
    assert_success(output.status, &output.stderr);
    let state = json(&directory, "state");
    let overflow = state["overflow"].as_u64().unwrap();
    assert!(overflow > 0);
    assert_eq!(sum_of(&state, "count") + overflow, 50_000);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains(&format!("{overflow} events found no room in a table")),
        "{text}"
    );
    assert!(text.contains("counters with fewer events"), "{text}");
}
