//! Extraction from the memory of a kernel with two traces, of which words are changed. The
//! extracted traces must be readable. The first trace must be intact if neither it nor the
//! directory was changed.
//!
//! The input is a list of changes, each of 12 bytes: see `Change`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use usertrace_crash::{ExtractOptions, TraceSummary};
use usertrace_testing::extraction::extract_all;
use usertrace_testing::dump::{Machine, PAGE};
use usertrace_fuzz::{Memory, scratch, traced};

/// The most changes.
const MOST: usize = 64;

/// The machine before it is changed.
struct UnchangedMachine {
    machine: Machine,
    /// Its pages, in the order of changes: the root, the directory's, and all others.
    pages: Vec<u64>,
    /// The index of the first page that only the second trace has.
    second: usize,
    /// The extraction of the first trace.
    first: TraceSummary,
}

static WHOLE: LazyLock<UnchangedMachine> = LazyLock::new(|| {
    let (one, machine) = (traced(1), traced(2));
    let is_data =
        |machine: &Machine, page: &u64| *page != machine.root && !machine.directory.contains(page);
    let mut pages = vec![machine.root];
    pages.extend(&machine.directory);
    pages.extend(one.memory.pages.keys().filter(|page| is_data(&one, page)));
    let second = pages.len();
    let others = machine.memory.pages.keys().copied();
    let others: Vec<_> = others.filter(|page| !pages.contains(page)).collect();
    pages.extend(others);
    let extracted = extract(&Memory(machine.memory.pages.clone()), machine.root);
    let traces = extracted.expect("nothing was changed");
    let first = traces.into_iter().next().expect("there are two");
    UnchangedMachine {
        machine,
        pages,
        second,
        first,
    }
});

/// Extracts the traces, without their paths.
fn extract(memory: &Memory, root: u64) -> Option<Vec<TraceSummary>> {
    let output = scratch();
    let mut extraction = extract_all(memory, root, &ExtractOptions::default(), output.path())?;
    for process in extraction
        .traces
        .iter_mut()
        .flat_map(|trace| &mut trace.processes)
    {
        process.directory.clear();
    }
    Some(extraction.traces)
}

fuzz_target!(|bytes: &[u8]| {
    let UnchangedMachine {
        machine,
        pages,
        second,
        first,
    } = &*WHOLE;
    let mut memory = Memory(machine.memory.pages.clone());
    let mut is_first_whole = true;
    let (changes, _) = bytes.as_chunks::<12>();
    for change in changes.iter().take(MOST) {
        let [page, kind, low, high, value @ ..] = *change;
        let index = usize::from(page) % pages.len();
        is_first_whole &= index >= *second;
        let word = usize::from(u16::from_le_bytes([low, high])) % (PAGE as usize / 8);
        let value = u64::from_le_bytes(value);
        let other = pages[value as usize % pages.len()];
        let value = match kind % 8 {
            // Any numbers, small ones, and ones that differ little from the old word.
            0 => value,
            1 => value % 256,
            2 => old(&memory, pages[index], word).wrapping_add_signed(value as i64 % 256),
            3 => old(&memory, pages[index], word) ^ 1 << (value % 64),
            // Addresses of this page or another, with the flags of words in trees.
            4 => pages[index] | 1,
            5 => other | value >> 8 & 3,
            // The page is missing in the dump, or equals another one.
            6 => {
                memory.0.remove(&pages[index]);
                continue;
            }
            _ => {
                let copy = machine.memory.pages[&other].clone();
                memory.0.insert(pages[index], copy);
                continue;
            }
        };
        if let Some(page) = memory.0.get_mut(&pages[index]) {
            page[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let extracted = extract(&memory, machine.root);
    if is_first_whole {
        assert_eq!(
            extracted.expect("its directory is whole").first(),
            Some(first)
        );
    }
});

fn old(memory: &Memory, page: u64, word: usize) -> u64 {
    let page = memory.0.get(&page);
    let bytes = page.and_then(|page| page[word * 8..].first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
