//! `usertrace export --parquet`: its statuses, and what DuckDB finds in its tables (E8, F1).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use nix::sys::resource::{Resource, setrlimit};
use serde_json::{Value, json};
use usertrace_ctf::{StreamChannel, StreamOwner, StreamWriter, TraceWriter};
use usertrace_sys::Scope;
use usertrace_testing::exited::{self, size};
use usertrace_testing::processes::{clock, event, info, random, shop_trace};
use usertrace_testing::spark::SparkCluster;
use usertrace_testing::tools::duckdb;

fn export(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.arg("export").args(arguments).current_dir(directory);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Checks the status, and that standard error has the text.
fn says(output: &Output, status: i32, expected: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    assert!(stderr.contains(expected), "{stderr}");
}

/// A trace of a process on a machine, with a stream of CPU 0, whose events have these contexts.
fn trace(
    directory: &Path,
    host: &str,
    contexts: &str,
    events: &[&str],
) -> (TraceWriter, StreamWriter) {
    shop_trace(&directory.join(format!("{host}-7")), host, contexts, events)
}

/// Writes numbered events, one each second, in a stream of so many bytes.
fn numbered(directory: &Path, count: u64) {
    let (_trace, mut stream) = trace(
        directory,
        "web1",
        "@1 u32 vtid",
        &["1 t:number 6 u64 n", "2 t:text 6 str s;s16 z"],
    );
    for n in 0..count {
        let time = 1_000_000 + n * 1_000_000_000;
        let thread = u32::to_ne_bytes(40 + (n % 3) as u32);
        match n % 5 {
            4 => {
                let payload = [b"it's\n\0".as_slice(), &i16::to_ne_bytes(-(n as i16))].concat();
                stream.event(2, time, &thread, &payload).unwrap();
            }
            _ => stream.event(1, time, &thread, &n.to_ne_bytes()).unwrap(),
        }
        if n % 100 == 99 {
            stream.discard(n);
            stream.flush().unwrap();
        }
    }
    stream.finish().unwrap();
}

/// The directories of tables of the first day.
fn tables(directory: &Path) -> Vec<String> {
    let tables = fs::read_dir(directory.join("out/host=web1/date=2023-11-14")).unwrap();
    let names = tables.map(|table| table.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn failed_exports_leave_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    numbered(path, 12);
    let refused = export(path, &["--parquet", "out", "-o", "file", "."]);
    says(&refused, 2, "cannot be used with");
    says(
        &export(path, &["--parquet", "out", "--json", "."]),
        2,
        "cannot be used with",
    );
    says(
        &export(path, &["--parquet", "out", "none"]),
        1,
        "none: No such file",
    );
    says(
        &export(path, &["--parquet", "out", "-e", "a/b", "."]),
        2,
        "is no pattern",
    );
    says(
        &export(path, &["--parquet", "no/out", "."]),
        1,
        "cannot write no",
    );
    assert_eq!(fs::read_dir(path).unwrap().count(), 1);
    says(&export(path, &["--parquet", ".", "."]), 1, "not empty");
    says(&export(path, &["--parquet", "web1-7", "."]), 1, "not empty");
    assert_eq!(fs::read_dir(path).unwrap().count(), 1);
    says(&export(path, &["--parquet", "out", "."]), 0, "");
    // It is replaced by what is selected now.
    says(
        &export(path, &["--parquet", "out", "-e", "text", "web1-7"]),
        0,
        "",
    );
    assert_eq!(tables(path), ["event=t%3Atext"]);
}

/// Runs the command with a limit of file size, as a substitute for a full disk.
fn export_with_limit(bytes: u64, directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    let limit = move || Ok(setrlimit(Resource::RLIMIT_FSIZE, bytes, bytes)?);
    // SAFETY: between fork and exec, the child makes one system call and touches no shared state.
    unsafe { command.pre_exec(limit) };
    let command = command.args(["export", "--parquet", "out", "traces"]);
    command.current_dir(directory).output().unwrap()
}

/// The error names the file, and what was written before is gone. An earlier export stays.
#[test]
fn full_disk_is_an_error_that_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::create_dir(path.join("traces")).unwrap();
    numbered(&path.join("traces"), 5000);
    let file = "cannot write out/host=web1/date=2023-11-14/event=t%3Anumber/part-0000";
    for bytes in [0, 3, 1000] {
        let failed = export_with_limit(bytes, path);
        says(&failed, 1, "File too large");
        says(
            &failed,
            1,
            "cannot write out/host=web1/date=2023-11-14/event=",
        );
        assert_eq!(fs::read_dir(path).unwrap().count(), 1, "with {bytes} bytes");
    }
    says(
        &export(path, &["--parquet", "out", "-e", "text", "traces"]),
        0,
        "",
    );
    let failed = export_with_limit(2000, path);
    says(&failed, 1, file);
    assert_eq!(fs::read_dir(path).unwrap().count(), 2);
    assert_eq!(tables(path), ["event=lost", "event=t%3Atext"]);
}

/// What can be read is in the tables, and the status says that something is missing.
#[test]
fn cut_trace_is_exported_as_far_as_it_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    numbered(path, 12);
    let stream = path.join("web1-7/main_0");
    let bytes = fs::read(&stream).unwrap();
    fs::write(&stream, &bytes[..bytes.len() - 8]).unwrap();
    let cut = export(path, &["--parquet", "out", "."]);
    says(&cut, 3, "a packet is cut short");
    let count = &["select count(*)::int from 'out/**/*.parquet'"];
    assert_eq!(duckdb(path, count), [[[json!(11)]]]);
}

/// DuckDB finds as many events as `view` prints, and the same sums of their fields, and all losses.
///
/// Requirements: E8
#[test]
fn duckdb_counts_what_view_prints() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    numbered(path, 5000);
    says(&export(path, &["--parquet", "out", "web1-7"]), 0, "");
    let view = Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .args(["view", "web1-7"])
        .current_dir(path)
        .output()
        .unwrap();
    let mut printed: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for line in text(&view.stdout).lines() {
        let event = ["t:number", "t:text"]
            .into_iter()
            .find(|event| line.contains(event));
        let number = line.rsplit_once(" = ").unwrap().1.trim_end_matches(" }");
        let (count, sum) = printed.entry(event.unwrap()).or_default();
        *count += 1;
        *sum += number.parse::<i64>().unwrap();
    }
    let tables = "create view events as select * from read_parquet('out/**/*.parquet', \
        hive_partitioning = true, union_by_name = true)";
    let answers = duckdb(
        path,
        &[
            tables,
            "select event, count(*)::int, sum(coalesce(n::bigint, z))::bigint from events \
            where lost is null group by event order by event",
            "select count(*)::int, sum(lost_count)::bigint, min(lost), min(event), min(cpu) \
            from events where lost is not null",
            "select distinct host, process, pid, cpu, provider, date::text, typeof(n), typeof(z) \
            from events where event = 't:number' and time < 1700000001000000000",
            "select tid, count(*)::int from events where lost is null group by tid order by tid",
            "select s from events where s is not null limit 1",
        ],
    );
    let printed: Vec<_> = printed
        .into_iter()
        .map(|(event, (count, sum))| vec![json!(event), json!(count), json!(sum)])
        .collect();
    assert_eq!(answers[1], printed);
    let discarded: u64 = (0..5000).filter(|n| n % 100 == 99).sum();
    let lost = [[
        json!(50),
        json!(discarded),
        json!("events"),
        json!("lost"),
        json!(0),
    ]];
    assert_eq!(answers[2], lost);
    let shop = json!([
        "web1",
        "shop",
        7,
        0,
        "t",
        "2023-11-14",
        "UBIGINT",
        "SMALLINT"
    ]);
    assert_eq!(json!(answers[3]), json!([shop]));
    assert_eq!(
        json!(answers[4]),
        json!([[40, 1667], [41, 1667], [42, 1666]])
    );
    assert_eq!(answers[5], [[json!("it's\n")]]);
}

/// Writes so many events of a server with two CPUs: allocations, requests and numbers.
fn many(directory: &Path, count: u64) {
    let path = directory.join("server-7");
    let mut trace =
        TraceWriter::create(&path, info("server", 7, Some("web1")), clock(1_000_000_000));
    let trace = trace.as_mut().unwrap();
    trace.declare_class(Scope::Cpu).unwrap();
    for line in [
        "1 libc:malloc 12 u64 size;x64 ptr",
        "2 libc:free 12 x64 ptr",
        "3 shop:served 6 u16 status;u64 bytes;str path",
        "4 test:numbered 6 u32 thread;u64 number",
    ] {
        trace.declare(&event(line)).unwrap();
    }
    let channel = StreamChannel::new("main", 1);
    let mut streams = [0, 1].map(|cpu| trace.stream(&channel, StreamOwner::Cpu(cpu)).unwrap());
    let (mut random, mut time) = (random(1), 1_000_000);
    for n in 0..count {
        let drawn = random();
        time += drawn % 300;
        let pointer = (0x5581_0000_0000 + (drawn >> 8 & 0xffff) * 16).to_ne_bytes();
        let size = (drawn >> 30 & 0x3ff).to_ne_bytes();
        let (id, payload) = match n % 10 {
            0..=3 => (1, [size, pointer].concat()),
            4..=7 => (2, pointer.to_vec()),
            8 => {
                let path = format!("/item/{}\0", drawn >> 40 & 0xfff);
                (
                    3,
                    [&200u16.to_ne_bytes()[..], &size, path.as_bytes()].concat(),
                )
            }
            _ => (
                4,
                [&(n as u32 % 8).to_ne_bytes()[..], &n.to_ne_bytes()].concat(),
            ),
        };
        let stream = &mut streams[(drawn >> 20 & 1) as usize];
        stream.event(id, time, &[], &payload).unwrap();
    }
    for mut stream in streams {
        stream.finish().unwrap();
    }
}

/// The number of events that `view` prints, and the sums of the fields `size` and `number`.
fn viewed(directory: &Path) -> [u64; 3] {
    let mut view = Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .args(["view", "traces"])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut sums = [0; 3];
    for line in BufReader::new(view.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let number = |name: &str| {
            let (_, value) = line.rsplit_once(name)?;
            value.split([',', ' ']).next()?.parse::<u64>().ok()
        };
        sums[0] += 1;
        sums[1] += number(" size = ").unwrap_or(0);
        sums[2] += number(" number = ").unwrap_or(0);
    }
    assert!(view.wait().unwrap().success());
    sums
}

/// The number of events of a large trace.
fn large() -> u64 {
    let events = std::env::var("USERTRACE_TEST_EVENTS");
    events.map_or(100_000, |events| events.parse().unwrap())
}

/// A large trace takes bounded memory, and DuckDB finds what `view` prints. docs/bench.md has the
/// figures of `USERTRACE_TEST_EVENTS=10000000` in a release build, which this prints.
///
/// Requirements: E8
#[test]
fn large_traces_become_tables_in_bounded_memory() {
    let events = large();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::create_dir(path.join("traces")).unwrap();
    many(&path.join("traces"), events);
    println!(
        "{events} events: {} KiB of CTF",
        size(&path.join("traces")).unwrap() >> 10
    );
    // In turns, so that other work on the machine costs both as much.
    let turns = if events > 1_000_000 { 3 } else { 1 };
    for (format, output) in [("--json", "json"), ("--parquet", "tables")].repeat(turns) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        command.args(["export", format]);
        match format {
            "--json" => command.args(["-o", output]),
            _ => command.arg(output),
        };
        let (exited, elapsed) = exited::run(command.arg("traces").current_dir(path)).unwrap();
        assert!(exited.status.success(), "{}", exited.status);
        println!(
            "{format}: {elapsed:.2?}, {:.2?} of processors, {} KiB of memory, {} KiB written",
            exited.processor,
            exited.peak_kib,
            size(&path.join(output)).unwrap() >> 10
        );
        assert!(exited.peak_kib < 128 << 10, "{} KiB", exited.peak_kib);
    }
    let sums = [
        "create view events as select * from read_parquet('tables/**/*.parquet', \
        union_by_name = true)",
        "select count(*)::bigint, sum(size)::bigint, sum(number)::bigint from events",
    ];
    let answers = duckdb(path, &sums);
    assert_eq!(json!(answers[1]), json!([viewed(path)]));
}

/// The blocks of SQL on the page, in order.
fn recipes() -> Vec<String> {
    let text = page();
    let blocks = text.split("```sql\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap().to_owned());
    blocks.collect()
}

fn page() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/columns.md");
    fs::read_to_string(page).unwrap()
}

/// Writes what a shop did on a machine: requests of so many ms each, one each second, and
/// allocations of two callers.
fn shop(directory: &Path, host: &str, requests: &[u64]) {
    let (_trace, mut stream) = trace(
        directory,
        host,
        "@1 u32 vtid;x64 ip",
        &[
            "1 shop:request_begin 6 str path",
            "2 shop:request_end 6 u16 status",
            "3 libc:malloc 12 u64 size;x64 ptr",
        ],
    );
    for (n, ms) in (0u64..).zip(requests) {
        let begin = 1_000_000 + n * 1_000_000_000;
        let context = |ip: u64| [&51u32.to_ne_bytes()[..], &ip.to_ne_bytes()].concat();
        let path = format!("/item/{n}\0").into_bytes();
        stream.event(1, begin, &context(0), &path).unwrap();
        for (ip, size) in [(0x1000, 10u64), (0x2000, 500)] {
            let payload = [size.to_ne_bytes(), 0xf000u64.to_ne_bytes()].concat();
            stream.event(3, begin + 10, &context(ip), &payload).unwrap();
        }
        let end = begin + ms * 1_000_000;
        stream
            .event(2, end, &context(0), &200u16.to_ne_bytes())
            .unwrap();
    }
    stream.finish().unwrap();
}

/// Writes what the shop did on three machines, and the tables of all.
fn shops(path: &Path) {
    shop(path, "web1", &[10, 20, 30, 40]);
    shop(path, "web2", &[5, 5, 900]);
    // Its last event is 2.1 s after the first event of all.
    shop(path, "db1", &[1, 1, 100]);
    says(
        &export(path, &["--parquet", "columns", "web1-7", "web2-7", "db1-7"]),
        0,
        "",
    );
}

/// Each recipe of the page works, and finds what was written.
#[test]
fn recipes_of_the_page_work() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    shops(path);
    let recipes = recipes();
    let queries: Vec<_> = recipes.iter().map(String::as_str).collect();
    let answers = duckdb(path, &queries);
    let [view, allocators, requests, percentiles, crash] = &answers[..] else {
        panic!("{} recipes", answers.len());
    };
    assert_eq!(*view, Vec::<Vec<Value>>::new());
    assert_eq!(
        json!(allocators),
        json!([
            ["web1", "shop", "2000", 4, 2000],
            ["db1", "shop", "2000", 3, 1500],
            ["web2", "shop", "2000", 3, 1500],
            ["web1", "shop", "1000", 4, 40],
            ["db1", "shop", "1000", 3, 30],
            ["web2", "shop", "1000", 3, 30],
        ])
    );
    assert_eq!(
        json!(requests[..3]),
        json!([
            ["web2", "shop", 51, "/item/2", 900.0],
            ["db1", "shop", 51, "/item/2", 100.0],
            ["web1", "shop", 51, "/item/3", 40.0],
        ])
    );
    assert_eq!(
        json!(percentiles),
        json!([
            ["db1", 3, 1.0, 98.02, 100.0],
            ["web1", 4, 25.0, 39.7, 40.0],
            ["web2", 3, 5.0, 882.1, 900.0],
        ])
    );
    // From 2.0 s on, within 150 ms: web1's and web2's third request begins, and web1's ends.
    let near: Vec<_> = crash.iter().map(|row| (&row[1], &row[3])).collect();
    let of = |host, event| (json!(host), json!(event));
    let expected = [
        of("web1", "shop:request_begin"),
        of("web2", "shop:request_begin"),
        of("web1", "libc:malloc"),
        of("web1", "libc:malloc"),
        of("web2", "libc:malloc"),
        of("web2", "libc:malloc"),
        of("web1", "shop:request_end"),
    ];
    let expected: Vec<_> = expected.iter().map(|(host, event)| (host, event)).collect();
    assert_eq!(near, expected);
}

/// Counts, sums and times of each kind of event of a large trace, in the SQL of all engines.
const SUMS: &str = "
SELECT event, CAST(count(*) AS BIGINT), CAST(sum(size) AS BIGINT), CAST(sum(number) AS BIGINT),
       CAST(sum(bytes) AS BIGINT), CAST(sum(length(path)) AS BIGINT), CAST(sum(cpu) AS BIGINT),
       CAST(min(time) AS BIGINT), CAST(max(time) AS BIGINT)
FROM events
GROUP BY event
ORDER BY event";

/// Whether two tables are the same. Their numbers that are no integers have 12 digits in common:
/// engines need not compute percentiles in the same order.
fn are_same(one: &[Vec<Value>], other: &[Vec<Value>]) -> bool {
    let is_same = |(one, other): (&Value, &Value)| match (one, other) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-12 * a.abs()
        }
        _ => one == other,
    };
    let are_same = |(one, other): (&Vec<Value>, &Vec<Value>)| {
        one.len() == other.len() && one.iter().zip(other).all(is_same)
    };
    one.len() == other.len() && one.iter().zip(other).all(are_same)
}

/// In Spark, the page's view and its recipes, and the counts and sums of a large trace
/// (`USERTRACE_TEST_EVENTS`), have the rows that they have in DuckDB. `USERTRACE_PYSPARK` is the
/// directory into which pip installed PySpark; without it, this does nothing.
///
/// Requirements: E8
#[test]
#[ignore = "full tier: runs up to six Java virtual machines at a time"]
fn spark_on_two_workers_finds_the_same() {
    let cluster = match SparkCluster::start(2) {
        Ok(cluster) => cluster,
        Err(reason) => {
            println!("skipped: {reason}");
            return;
        }
    };
    let page = page();
    let (_, view) = page.split_once("In Spark, `").unwrap();
    let view = view.split('`').next().unwrap();
    let recipes = recipes();
    let (create, recipes) = recipes.split_first().unwrap();
    let recipes: Vec<_> = recipes.iter().map(String::as_str).collect();
    let compare = |path: &Path, queries: &[&str]| {
        let begun = Instant::now();
        let answers = cluster.run(path, view, queries);
        println!(
            "{} queries in Spark: {:.1?}",
            queries.len(),
            begun.elapsed()
        );
        let expected = duckdb(path, &[&[create.as_str()], queries].concat());
        for ((query, expected), mut rows) in queries.iter().zip(&expected[1..]).zip(answers) {
            let mut expected = expected.clone();
            // The slowest requests have no order among those that are as slow.
            if query.contains("ORDER BY ms DESC\nLIMIT") {
                for rows in [&mut expected, &mut rows] {
                    rows.sort_by_key(|row| json!(row).to_string());
                }
            }
            assert!(!rows.is_empty(), "{query}");
            assert!(
                are_same(&rows, &expected),
                "{query}: {rows:?}, and not {expected:?}"
            );
        }
    };

    let directory = tempfile::tempdir().unwrap();
    shops(directory.path());
    compare(directory.path(), &recipes);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::create_dir(path.join("traces")).unwrap();
    many(&path.join("traces"), large());
    says(&export(path, &["--parquet", "columns", "traces"]), 0, "");
    compare(path, &[SUMS]);
    cluster.stop();
}
