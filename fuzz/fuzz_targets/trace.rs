//! A directory that may be a CTF trace: reads and prints it.
//!
//! The input is the trace's files, separated by a line: the metadata, and streams.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use usertrace_testing::extraction::read_all;
use usertrace_fuzz::{BETWEEN, scratch};

/// The most streams.
const MOST: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let directory = scratch();
    let mut rest = bytes;
    for name in std::iter::once("metadata".to_owned()).chain((0..MOST).map(|n| format!("main_{n}")))
    {
        let end = rest
            .windows(BETWEEN.len())
            .position(|window| window == BETWEEN);
        let file = &rest[..end.unwrap_or(rest.len())];
        fs::write(directory.path().join(name), file).expect("a file in memory");
        match end {
            Some(end) => rest = &rest[end + BETWEEN.len()..],
            None => break,
        }
    }
    read_all(directory.path());
});
