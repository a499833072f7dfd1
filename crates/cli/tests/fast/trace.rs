//! Reads the streams of these tests' traces, more strictly than other readers do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Length of a packet's header: magic, UUID, stream id, instance; begin, end, content, packet,
/// number, discarded; CPU or thread.
const HEADER_LEN: usize = 4 + 16 + 4 + 8 + 6 * 8 + 4;

/// An event `numbered` in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) time: u64,
    pub(crate) thread: u32,
    pub(crate) n: u64,
}

/// The contents of streams.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) events: Vec<Seen>,
    pub(crate) discarded: u64,
    pub packets_lost: u64,
    pub(crate) streams: Vec<PathBuf>,
}

impl Trace {
    /// The numbers of each thread's events, ordered by time.
    pub(crate) fn threads(&self) -> BTreeMap<u32, Vec<u64>> {
        let mut events = self.events.clone();
        events.sort();
        let mut threads = BTreeMap::<u32, Vec<u64>>::new();
        for seen in events {
            threads.entry(seen.thread).or_default().push(seen.n);
        }
        threads
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Directories of traces below `directory`. The hidden one has the recorder's notes.
pub(crate) fn directories(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let entries = entries.map(Result::unwrap);
    let visible = entries.filter(|entry| !entry.file_name().as_bytes().starts_with(b"."));
    let paths = visible.map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

/// Temporary name of new metadata, which replaces the old when complete.
const NEW_METADATA: &str = ".metadata.new";
/// File that marks an unfinished trace.
const UNFINISHED: &str = ".unfinished";

/// Reads the finished trace of one process.
pub(crate) fn read(directory: &Path) -> Trace {
    for name in [NEW_METADATA, UNFINISHED] {
        assert!(!directory.join(name).exists(), "{name}");
    }
    read_unfinished(directory)
}

/// Reads the trace of one process, finished or not.
pub(crate) fn read_unfinished(directory: &Path) -> Trace {
    let mut trace = Trace::default();
    let metadata = fs::read_to_string(directory.join("metadata")).unwrap();
    assert!(metadata.starts_with("/* CTF 1.8 */"));
    // The only event of these tests has one of the first ids.
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("main_") {
            read_stream(&fs::read(&path).unwrap(), &mut trace);
            trace.streams.push(path);
        } else {
            let known = ["metadata", "modules", NEW_METADATA, UNFINISHED];
            assert!(known.contains(&name), "{name}");
        }
    }
    trace
}

/// Reads one stream.
pub(crate) fn read_file(path: &Path) -> Trace {
    let mut trace = Trace::default();
    read_stream(&fs::read(path).unwrap(), &mut trace);
    trace
}

fn read_stream(mut bytes: &[u8], trace: &mut Trace) {
    let mut number = None;
    let (mut discarded, mut time) = (0, 0);
    while !bytes.is_empty() {
        assert_eq!(bytes[..4], 0xc1fc_1fc1u32.to_le_bytes());
        let [begin, end, content, packet, seq, lost] =
            [0, 1, 2, 3, 4, 5].map(|n| u64_at(bytes, 32 + 8 * n));
        // Long packets are padded to whole blocks.
        assert!(content <= packet && packet - content < 8 * 4096);
        let (len, packet) = (content as usize / 8, packet as usize / 8);
        assert!(bytes[len..packet].iter().all(|&byte| byte == 0));
        trace.packets_lost += number.map_or(0, |before: u64| seq.checked_sub(before + 1).unwrap());
        number = Some(seq);
        assert!(lost >= discarded && begin >= time && end >= begin);
        discarded = lost;
        let mut at = HEADER_LEN;
        time = begin;
        while at < len {
            // An event begins at a multiple of 8, with its id and the low 48 bits of its time.
            at = at.next_multiple_of(8);
            time += (u64_at(bytes, at) >> 16).wrapping_sub(time) & (u64::MAX >> 16);
            assert!(time <= end);
            trace.events.push(Seen {
                time,
                thread: u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()),
                n: u64_at(bytes, at + 12),
            });
            at += 20;
        }
        assert_eq!(at, len);
        time = end;
        bytes = &bytes[packet..];
    }
    trace.discarded += discarded;
}
