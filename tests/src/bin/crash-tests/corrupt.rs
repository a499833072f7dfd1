//! A real dump, corrupted field by field (C7, F4): extraction ends, reports what is wrong, and
//! extracts the other traces unchanged.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use usertrace_crash::{
    Directory, Dump, ExtractOptions, Extraction, PhysicalMemory, Presence, Problems, TraceSummary,
};
use usertrace_sys::crash::{LTT_CRASH_ADDRESS, LTT_CRASH_PRESENT, LttCrashRoot};
use usertrace_testing::counts::counts;
use usertrace_tests::random::Random;

use usertrace_testing::extraction::{check_error, extract_all};

const PAGE: u64 = 4096;
const WORDS: u64 = PAGE / 8;
/// How many of some ten thousand changes are tried: usually, and in the full tier.
const SAMPLE: (u64, u64) = (700, 2000);
/// The variable with which all changes are tried.
const ALL: &str = "USERTRACE_CORRUPT_ALL";
/// How many truncations are tried.
const CUTS: u64 = 100;
/// The most bytes that an extraction may write. The traces have some ten kilobytes.
const MOST_BYTES: u64 = 64 << 20;
/// The highest peak of this process's memory.
const MOST_MEMORY_KIB: u64 = 256 << 10;

/// A dump with one changed word, which notes the pages that are read.
struct Patched<'a> {
    dump: &'a Dump,
    change: Option<(u64, u64)>,
    read: RefCell<BTreeSet<u64>>,
}

impl PhysicalMemory for Patched<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        let presence = self.dump.read(address, buffer);
        let end = address.saturating_add(buffer.len() as u64);
        self.read
            .borrow_mut()
            .extend((address / PAGE..end.div_ceil(PAGE)).map(|page| page * PAGE));
        if let Some((at, value)) = self.change {
            for (at, byte) in (at..).zip(value.to_le_bytes()) {
                let index = at.checked_sub(address).map(|index| index as usize);
                if let Some(to) = index.and_then(|index| buffer.get_mut(index)) {
                    *to = byte;
                }
            }
        }
        presence
    }
}

impl<'a> Patched<'a> {
    fn new(dump: &'a Dump, change: Option<(u64, u64)>) -> Self {
        Self {
            dump,
            change,
            read: RefCell::default(),
        }
    }
}

/// Extracts, and checks what must hold for any memory. None: there is no directory.
fn extracted(memory: &impl PhysicalMemory, root: u64, trace: &str) -> Option<Extraction> {
    let output = tempfile::tempdir().expect("a directory");
    let options = ExtractOptions {
        traces: vec![trace.into()],
        ..ExtractOptions::default()
    };
    let mut extraction = extract_all(memory, root, &options, output.path())?;
    let processes = || extraction.traces.iter().flat_map(|trace| &trace.processes);
    assert!(processes().map(|process| process.bytes).sum::<u64>() < MOST_BYTES);
    for trace in &mut extraction.traces {
        for process in &mut trace.processes {
            process.directory.clear();
        }
    }
    Some(extraction)
}

/// Changes of words in these pages: the page, the address, and the new value.
fn changes(dump: &Dump, root: u64, pages: &[u64]) -> Vec<(u64, u64, u64)> {
    let mut changes = Vec::new();
    for (n, &page) in pages.iter().enumerate() {
        let words = if page == root {
            size_of::<LttCrashRoot>() as u64 / 8
        } else {
            WORDS
        };
        for word in 0..words {
            let address = page + word * 8;
            let mut old = [0; 8];
            dump.read(address, &mut old);
            // Unused words are all alike.
            if u64::from_le_bytes(old) == 0 && word % 61 != 0 {
                continue;
            }
            let another = pages[(n + 1) % pages.len()];
            let values = [
                0,
                u64::MAX,
                page | LTT_CRASH_PRESENT,
                another | LTT_CRASH_PRESENT,
                1 << 40,
            ];
            let values = values
                .into_iter()
                .filter(|value| value.to_le_bytes() != old);
            changes.extend(values.map(|value| (page, address, value)));
        }
    }
    changes
}

/// Corrupts a dump that has two traces of these names.
pub(crate) fn survives(vmcore: &Path, names: [&str; 2]) {
    let dump = Dump::open(vmcore).expect("a dump");
    let root = dump.root().expect("a root page");
    let whole = extracted(&dump, root, "*").expect("traces");
    assert!(!whole.is_damaged());

    // The pages of the directory, of each trace, and of both.
    let pages = |trace: &str| {
        let memory = Patched::new(&dump, None);
        extracted(&memory, root, trace).expect("traces");
        memory.read.into_inner()
    };
    let directory = Patched::new(&dump, None);
    Directory::read(&directory, root, &mut Problems::default()).expect("a directory");
    let directory = directory.read.into_inner();
    let of_traces = names.map(pages);
    let of_trace =
        |n: usize, page: &u64| of_traces[n].contains(page) && !of_traces[1 - n].contains(page);
    let all: Vec<u64> = of_traces[0].union(&of_traces[1]).copied().collect();

    let mut changes = changes(&dump, root, &all);
    let mut random = Random::new();
    if std::env::var_os(ALL).is_none() {
        let sample = counts(SAMPLE.0, SAMPLE.1) as usize;
        println!(
            "{sample} changes of {}, by {random:x?}; {ALL}=1: all",
            changes.len()
        );
        for at in 0..sample.min(changes.len()) {
            let other = at as u64 + random.below((changes.len() - at) as u64);
            changes.swap(at, other as usize);
        }
        changes.truncate(sample);
    }
    let of = |extraction: &Extraction, name: &str| -> Option<TraceSummary> {
        extraction
            .traces
            .iter()
            .find(|trace| trace.name == name)
            .cloned()
    };
    let mut named = 0;
    for (page, address, value) in changes {
        let memory = Patched::new(&dump, Some((address, value)));
        let what = format!("{value:#x} at {address:#x}");
        let Some(extraction) = extracted(&memory, root, "*") else {
            assert_eq!(page, root, "{what}");
            continue;
        };
        named += u32::from(extraction.is_damaged());
        // No field of the directory has this value.
        if directory.contains(&page) && value == u64::MAX && extraction.events() < whole.events() {
            assert!(extraction.is_damaged(), "{what}");
        }
        for n in [0, 1] {
            if !of_trace(n, &page) {
                continue;
            }
            // If both trees have a page, the one that is read first keeps it.
            let is_claimed = of_trace(1 - n, &(value & LTT_CRASH_ADDRESS));
            if !(is_claimed && extraction.is_damaged()) {
                let other = names[1 - n];
                assert_eq!(of(&extraction, other), of(&whole, other), "{what}");
            }
        }
    }
    assert!(named > 0);
    cut(vmcore, &whole, &mut random);
    let peak = peak_memory_kib();
    assert!(peak < MOST_MEMORY_KIB, "{peak} KiB");
}

/// Truncates a copy of the file more and more.
fn cut(vmcore: &Path, whole: &Extraction, random: &mut Random) {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("vmcore");
    let mut len = fs::copy(vmcore, &copy).expect("a copy");
    let file = File::options().write(true).open(&copy).expect("the copy");
    for _ in 0..CUTS {
        // Half of the cuts are in headers, and what is at the beginning.
        len -= 1 + random.below((len / 10).max(1));
        file.set_len(len).expect("a shorter file");
        let dump = match Dump::open(&copy) {
            Ok(dump) => dump,
            Err(error) => {
                check_error(&error);
                continue;
            }
        };
        assert!(dump.is_cut_short(), "{len} bytes");
        let Some(root) = dump.root() else {
            continue;
        };
        if let Some(extraction) = extracted(&dump, root, "*") {
            assert!(
                extraction.is_damaged() || extraction.events() == whole.events(),
                "{len} bytes"
            );
        }
    }
}

/// The peak of this process's memory.
fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}
