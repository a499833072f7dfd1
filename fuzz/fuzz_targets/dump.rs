//! A file that may be a dump: opens it in the format of its header, or as an image of memory,
//! searches for root pages, and extracts their traces.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use usertrace_crash::{Dump, DumpError, ExtractOptions};
use usertrace_testing::extraction::{check_error, extract_all};
use usertrace_fuzz::scratch;

fuzz_target!(|bytes: &[u8]| {
    let directory = scratch();
    let path = directory.path().join("vmcore");
    fs::write(&path, bytes).expect("a file in memory");
    let dump = match Dump::open(&path) {
        Err(DumpError::Unknown) => Dump::open_raw(&path),
        opened => opened,
    };
    let dump = match dump {
        Ok(dump) => dump,
        Err(error) => return check_error(&error),
    };
    let search = dump.find_roots();
    let candidates = search.best.iter().map(|candidate| candidate.address);
    let mut roots: Vec<_> = candidates.take(2).collect();
    roots.extend(dump.root());
    for (n, root) in roots.into_iter().enumerate() {
        let output = directory.path().join(format!("traces-{n}"));
        fs::create_dir(&output).expect("a directory in memory");
        extract_all(&dump, root, &ExtractOptions::default(), &output);
    }
});
