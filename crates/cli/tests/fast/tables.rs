//! `record --parquet`: finished chunks become tables (E8, F1).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use usertrace_testing::tools::duckdb;
use usertrace_testing::wait::until;

use super::chunks::{chunks, end, record, start, until_finished};
use super::disk::Disk;
use super::run::{Run, assert_success};

/// The directories of chunks' tables, with the file that says that they are complete.
fn tables(root: &Path) -> Vec<PathBuf> {
    let below = |path: &Path, begin: &'static str| {
        let entries = fs::read_dir(path).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(move |path| {
            let name = path.file_name().unwrap();
            name.as_encoded_bytes().starts_with(begin.as_bytes())
        })
    };
    let of_recordings = below(root, "recording=").flat_map(|path| below(&path, "chunk="));
    let mut tables: Vec<_> = of_recordings
        .filter(|path| path.join("_usertrace.json").exists())
        .collect();
    tables.sort();
    tables
}

/// Each chunk of the recording has tables, and nothing else is there.
fn assert_chunks_have_tables(run: &Run, root: &Path) {
    let names = chunks(run).into_iter().map(|chunk| {
        let name = chunk.file_name().unwrap().to_str().unwrap().to_owned();
        format!("chunk={name}")
    });
    let tables = tables(root).into_iter();
    let tables = tables.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    assert!(tables.eq(names));
    assert_eq!(fs::read_dir(root).unwrap().count(), 1, "{}", root.display());
}

/// How many events and numbers of events DuckDB finds in the tables.
fn counted(run: &Run) -> Vec<Vec<serde_json::Value>> {
    let count = "select count(*)::bigint, count(distinct (thread, n))::bigint \
        from read_parquet('tables/recording=*/**/*.parquet', union_by_name = true) \
        where n is not null";
    duckdb(run.path(), &[count]).remove(0)
}

/// Each event is in the tables of one chunk. They appear while the recording goes on.
///
/// Requirements: E8
pub(crate) fn chunks_become_tables_as_they_end() {
    let run = Run::new();
    let root = run.path().join("tables");
    let root_option = root.to_str().unwrap();
    let options = ["--rotate-size", "20k", "--subbuf-size", "4096", "--block"];
    let options = [&options[..], &["--parquet", root_option]].concat();
    let mut child = start(record(&run, &options, "steps"));
    until("tables are there", || tables(&root).len() >= 2);
    until_finished(&run, 3);
    let (written, lost, status, said) = end(&mut child);
    assert_success(status, said.as_bytes());
    assert_eq!(lost, 0);
    assert!(said.contains(": tables in "), "{said}");
    assert_chunks_have_tables(&run, &root);
    assert_eq!(counted(&run), [[json!(written), json!(written)]]);
}

/// The recording is whole when there is no room for tables, and the message names the directory.
pub(crate) fn full_disk_of_tables_is_reported() {
    // SAFETY: `geteuid` takes no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let run = Run::new();
    let Some(disk) = Disk::new(&run, "8k") else {
        return;
    };
    let root = disk.path().to_str().unwrap().to_owned();
    let options = ["--rotate-size", "20k", "--subbuf-size", "4096", "--block"];
    let options = [&options[..], &["--parquet", &root]].concat();
    let mut child = start(record(&run, &options, "steps"));
    until_finished(&run, 2);
    let (written, lost, status, said) = end(&mut child);
    assert_eq!(status.code(), Some(125), "{said}");
    assert!(
        said.contains("is not in the tables yet: cannot write"),
        "{said}"
    );
    assert!(said.contains("No space left on device"), "{said}");
    assert!(
        said.contains(&format!("{written} events of 1 process ")),
        "{said}"
    );
    assert_eq!(lost, 0);
}

/// Wrong command lines are refused before anything runs.
pub(crate) fn tables_need_chunks() {
    let run = Run::new();
    let file = run.path().join("file");
    fs::write(&file, "").unwrap();
    let record = |options: &[&str]| {
        let mut command = record(&run, options, "one");
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    let (status, said) = record(&["--parquet", "tables"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--parquet is for chunks"), "{said}");
    let (status, said) = record(&["--parquet", "tables", "--relay", "tcp://localhost"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("cannot be used with"), "{said}");
    let (status, said) = record(&["--rotate-time", "1s", "--parquet", file.to_str().unwrap()]);
    assert_eq!(status, Some(125), "{said}");
    assert!(
        said.contains("cannot write") && said.contains("file"),
        "{said}"
    );
}
