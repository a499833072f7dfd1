//! The queries of a server's requests: axum, tower-http and sqlx under load (B1, E8).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use usertrace_testing::requests::{self, Server};

const CLIENTS: u64 = 8;
const REQUESTS: u64 = 25;

/// Builds the server, and returns its path.
fn build() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_BIN_EXE_usertrace")).parent().unwrap();
    let target = target.join("sqlx");
    // By the proxy of rustup, if there is one: a crate names a compiler of its own.
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(repository.join("tracing/sqlx/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    target.join("debug/sqlx-server")
}

/// Sends a request of this id, and checks the answer.
fn request(port: u16, id: u64) {
    let answer = requests::get(port, &format!("/items/{id}"), id);
    let expected = format!("\r\n\r\n{} {}", count(id), id % 5 + 1);
    assert!(answer.ends_with(&expected), "{answer}");
}

/// The number of items of the owner that a request asks for: of 1 to 1000, by 7.
fn count(id: u64) -> u64 {
    (1..=1000).filter(|item| item % 7 == id % 7).count() as u64
}

/// Records the server while clients send requests at once.
fn record(server: &Path, directory: &Path) {
    let mut command = Command::new(server);
    command.arg(directory.join("items.db"));
    let server = Server::start(&mut command, &directory.join("traces"));
    server.load(CLIENTS, REQUESTS, request);
    server.end();
}

/// Runs `usertrace spans`. The fallback's daemon may still be writing.
fn spans(directory: &Path, arguments: &[&str]) -> String {
    let begun = Instant::now();
    loop {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        command.arg("spans").args(arguments).arg("traces");
        let output = command.current_dir(directory).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if output.status.success() {
            assert_eq!(said, "");
            return String::from_utf8(output.stdout).unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{said}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The slowest request has its queries with their fields, whichever thread of the database ran
/// them, and each other request has its own. A request is found by the text of its query.
///
/// Requirements: B1, E8
#[test]
#[ignore = "long: it compiles sqlx and SQLite"]
fn slowest_request_shows_its_queries() {
    let directory = tempfile::tempdir().unwrap();
    record(&build(), directory.path());
    let all = (CLIENTS * REQUESTS).to_string();
    let listed = spans(directory.path(), &["--slowest", &all, "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let roots = listed["roots"].as_array().unwrap();
    assert_eq!(roots.len() as u64, CLIENTS * REQUESTS);
    for (number, root) in roots.iter().enumerate() {
        let id: u64 = root["fields"]["id"].as_str().unwrap().parse().unwrap();
        let expected = [
            format!("select count(*), {id} from items where owner = {}", id % 7),
            format!(
                "select id, {id} from items where owner = {} limit {}",
                id % 7,
                id % 5 + 1
            ),
        ];
        // All are listed; a few are shown.
        if number % 20 > 0 {
            continue;
        }
        let span = root["id"].as_str().unwrap();
        let tree = spans(directory.path(), &["--show", span, "--json"]);
        let tree: Value = serde_json::from_str(&tree).unwrap();
        let events = tree["spans"][0]["events"].as_array().unwrap();
        let queries: Vec<&Value> = events
            .iter()
            .filter(|event| event["event"].as_str().unwrap().starts_with("sqlx.query:"))
            .map(|event| &event["fields"])
            .collect();
        assert_eq!(queries.len(), 2, "{tree:#}");
        for (query, text) in queries.iter().zip(&expected) {
            // A long text is a field of its own, and the summary its beginning.
            let statement = query["db_statement"].as_str().unwrap().trim();
            let whole = match statement {
                "" => query["summary"].as_str().unwrap(),
                statement => statement,
            };
            assert_eq!(whole, text);
        }
        let rows = queries
            .iter()
            .map(|query| query["rows_returned"].as_str().unwrap());
        assert!(rows.eq(["1", &(id % 5 + 1).to_string()]), "{tree:#}");
        if number == 0 {
            let waterfall = spans(directory.path(), &["--show", span]);
            assert!(
                waterfall.contains(&format!("id = {id}, items = {}", count(id))),
                "{waterfall}"
            );
            assert_eq!(waterfall.matches(" sqlx.query:").count(), 2, "{waterfall}");
            assert!(waterfall.contains("rows_returned = "), "{waterfall}");
        }
    }
}
