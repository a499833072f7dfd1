//! The requests of an asynchronous server under load, as the trees of their spans (B1, E8).
//!
//! The server moves its tasks between threads, and serves many requests at once. Its trace is
//! compared with the ids that the client sent.

mod server;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use usertrace::Status;
use usertrace_reader::{Item, LossKind, Reader, Selection};
use usertrace_report::spans::{Collected, Collector, Ending, Options, Span, Tree};
use usertrace_testing::requests::{self, Server};

/// Environment variable of the process that is the server.
const VARIABLE: &str = "REQUESTS_TEST";

const CLIENTS: u64 = 8;
const REQUESTS: u64 = 60;
const KINDS: [&str; 3] = ["one", "both", "task"];

fn main() -> ExitCode {
    if std::env::var_os(VARIABLE).is_some() {
        server::run();
        return ExitCode::SUCCESS;
    }
    if usertrace::status() == Status::Attached {
        eprintln!("skipped: this kernel has trace buffers of its own");
        return ExitCode::SUCCESS;
    }
    let trial = Trial::test("each_request_is_the_tree_that_its_client_knows", || {
        each_request_is_the_tree_that_its_client_knows();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

/// Runs the server with clients that send requests at once, and records it.
fn record(directory: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let server = Server::start(command.env(VARIABLE, "1"), directory);
    server.load(CLIENTS, REQUESTS, request);
    // The late spans end.
    thread::sleep(Duration::from_millis(200));
    server.end();
}

/// Sends a request of this id, and checks the answer.
fn request(port: u16, id: u64) {
    let kind = KINDS[id as usize % KINDS.len()];
    let answer = requests::get(port, &format!("/{kind}/{id}"), id);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with(&format!("\r\n\r\n{id}")), "{answer}");
}

/// Reads the trace when the fallback's daemon has written all of it.
fn collect(directory: &Path) -> Collected {
    let begun = Instant::now();
    loop {
        let mut reader = Reader::open(&[directory.to_owned()], Selection::default()).unwrap();
        let mut collector = Collector::new(Options {
            keep: 10_000,
            ..Options::default()
        });
        let mut problems = Vec::new();
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => collector.event(&event),
                Item::Lost(lost) => {
                    let (LossKind::Events(n) | LossKind::Packets(n)) = lost.kind;
                    panic!("{n} lost");
                }
                Item::Error(error) => problems.push(error.to_string()),
            }
        }
        if problems.is_empty() {
            return collector.finish(reader.traces());
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{problems:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The fields of a span or an event by name, as text.
fn fields<'a>(
    parts: impl IntoIterator<Item = &'a usertrace_report::spans::Part>,
) -> HashMap<String, String> {
    let texts = parts.into_iter().flat_map(|part| part.texts());
    let pairs = texts.map(|text| {
        let (name, value) = text.split_once(" = ").unwrap();
        (name.to_owned(), value.trim_matches('"').to_owned())
    });
    pairs.collect()
}

/// A span without its provider.
fn name(span: &Span) -> &str {
    span.class.name.split_once(':').unwrap().1
}

/// What a tree looks like: depth, name and table of each span, in order.
fn shape(tree: &Tree) -> Vec<String> {
    let mut shape: Vec<String> = tree
        .below(0)
        .into_iter()
        .map(|(index, depth)| {
            let span = &tree.spans[index];
            let table = fields(&span.fields).remove("table").unwrap_or_default();
            format!("{depth} {} {table}", name(span))
                .trim_end()
                .to_owned()
        })
        .collect();
    // Two queries at once begin in either order.
    shape[1..].sort();
    shape
}

/// Each request that a client sent is one tree, with the spans and events of that request and no
/// others, whichever threads ran it.
///
/// Requirements: B1, E8
fn each_request_is_the_tree_that_its_client_knows() {
    let directory = tempfile::tempdir().unwrap();
    record(directory.path());
    let collected = collect(directory.path());
    assert_eq!(collected.left_out.unbegun, 0);
    let mut requests: BTreeMap<u64, &Tree> = BTreeMap::new();
    let mut later: BTreeMap<u64, &Tree> = BTreeMap::new();
    for tree in &collected.trees {
        let root = &tree.spans[0];
        let id: u64 = fields(&root.fields)["id"].parse().unwrap();
        let known = match name(root) {
            "request" => &mut requests,
            "later" => &mut later,
            other => panic!("{other}"),
        };
        assert!(known.insert(id, tree).is_none(), "{id} twice");
        assert_eq!((tree.left_out, root.is_orphan), (0, false));
    }
    let sent: Vec<u64> = (0..CLIENTS * REQUESTS).collect();
    assert!(requests.keys().eq(&sent));
    let mut moved = 0;
    for (&id, tree) in &requests {
        let kind = KINDS[id as usize % KINDS.len()];
        let root = &tree.spans[0];
        let of_root = fields(&root.fields);
        assert_eq!(
            (&of_root["kind"][..], &of_root["path"]),
            (kind, &format!("/{kind}/{id}"))
        );
        let expected: &[&str] = match kind {
            "task" => &["0 request", "1 work", "2 query users"],
            _ => &["0 request", "1 query items", "1 query users"],
        };
        assert_eq!(shape(tree), expected);
        let mut threads = HashSet::new();
        for span in &tree.spans {
            assert_eq!(fields(&span.fields)["id"], id.to_string());
            assert_eq!(span.ending, Ending::Closed);
            assert!(span.busy >= 0 && span.busy <= span.duration());
            assert!(span.in_children <= span.duration());
            for stay in &span.stays {
                assert!(span.begin <= stay.begin && stay.end <= span.end);
                threads.insert(stay.thread.unwrap());
            }
            if name(span) == "query" {
                let [event] = &span.events[..] else {
                    panic!("{:?}", span.events)
                };
                let of_event = fields([event]);
                assert_eq!(
                    (&of_event["id"], &of_event["message"][..]),
                    (&id.to_string(), "rows")
                );
                assert_eq!(of_event["table"], fields(&span.fields)["table"]);
                // A query waits longer than it runs.
                assert!(span.duration() >= 200_000);
            }
        }
        moved += usize::from(threads.len() > 1);
        // The queries' time is within the request's.
        let queries: Vec<&Span> = tree
            .spans
            .iter()
            .filter(|span| name(span) == "query")
            .collect();
        let sum: i64 = queries.iter().map(|span| span.duration()).sum();
        assert!(root.duration() >= queries.iter().map(|span| span.duration()).max().unwrap());
        if kind == "one" {
            assert!(root.in_children == sum && root.duration() >= sum);
        }
    }
    assert!(moved > 0, "no request was run by several threads");
    let tasks = sent.iter().filter(|id| **id % 3 == 2);
    assert!(later.keys().eq(tasks));
    for (id, tree) in &later {
        assert_eq!(shape(tree), ["0 later", "1 query late"]);
        assert_eq!(tree.spans[0].follows, [requests[id].spans[0].ids]);
    }
    let query = collected
        .names
        .iter()
        .find(|name| name.name.ends_with(":query"));
    assert_eq!(query.unwrap().count(), 2 * CLIENTS * REQUESTS);
}
