//! The extractor, on the memory of machines that crashed: whole dumps, and such that are cut, thinned out, damaged, or
//! made to mislead (C7, E6, E7, E8, F1, F4).

mod support;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use support::babeltrace;
use support::dump::{Machine, PAGE, Process, SYNC, Style, Trace, elf, file, machine, save};
use usertrace::crash::{
    Directory, DirectoryError, Dump, DumpError, ElfDump, ExtractError, Extraction, PhysicalMemory,
    Presence, Problems, extract,
};
use usertrace::ctf::Version;

fn at(ns: u64) -> u64 {
    SYNC[0] + 2 * ns
}

/// A process with `events` numbered events, dealt to its CPUs' rings.
fn process(number: u64, cpus: u32, events: u64) -> Process {
    let mut process = Process::new(number, 100 + number as u32, &format!("prog{number}"), cpus);
    process.control[0].meta(at(0), "1 t:number 6 u64 n");
    process.control[cpus as usize - 1].meta(at(1), "2 t:text 6 str s;u64 n");
    for n in 0..events {
        let ring = &mut process.main[(n % u64::from(cpus)) as usize];
        if n % 5 == 0 {
            let payload = [b"hello\0".as_slice(), &n.to_le_bytes()].concat();
            ring.event(2, at(10 * n), &payload);
        } else {
            ring.event(1, at(10 * n), &n.to_le_bytes());
        }
    }
    process
}

/// F7, C7.
#[test]
fn f7_contexts_are_extracted() {
    let mut process = process(1, 1, 0);
    process.control[0].meta(at(2), "@1 u32 vtid;c8[4] procname;u8 more");
    for n in 0..100u64 {
        let payload = [&b"\x07\0\0\0name\x09\0\0\0\0\0\0\0"[..], &n.to_le_bytes()].concat();
        process.main[0].event(1, at(10 * n), &payload);
    }
    let extracted = extract_machine(&machine(&[trace(7, "mine", vec![process])]));
    assert!(!extracted.extraction.is_damaged());
    let read = extracted.read();
    assert_eq!(numbers(&read), (0..100).collect::<Vec<_>>());
    let contexts = "{ vtid = 7, procname = \"name\", more = 9 }, { n = ";
    assert!(read.lines.iter().all(|line| line.contains(contexts)));
}

fn trace(generation: u64, name: &str, processes: Vec<Process>) -> Trace {
    Trace {
        generation,
        name: name.into(),
        processes,
    }
}

fn one(events: u64) -> Machine {
    machine(&[trace(7, "mine", vec![process(1, 2, events)])])
}

struct Extracted {
    directory: tempfile::TempDir,
    extraction: Extraction,
}

impl Extracted {
    fn read(&self) -> babeltrace::Read {
        babeltrace::read(&self.directory.path().join("out"))
    }
}

fn extract_file(bytes: &[u8]) -> Result<Extracted, ExtractError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    fs::write(&path, bytes).unwrap();
    let dump = ElfDump::open(&path).unwrap();
    let output = directory.path().join("out");
    fs::create_dir(&output).unwrap();
    let extraction = extract(
        &dump,
        dump.vmcoreinfo().root.unwrap(),
        None,
        &output,
        Version::default(),
    )?;
    Ok(Extracted {
        directory,
        extraction,
    })
}

fn extract_machine(machine: &Machine) -> Extracted {
    extract_file(&elf(machine, Style::Runs)).unwrap()
}

fn numbers(read: &babeltrace::Read) -> Vec<u64> {
    read.lines
        .iter()
        .map(|line| {
            let number = line.rsplit("n = ").next().unwrap();
            number.trim_end_matches(" }").parse().unwrap()
        })
        .collect()
}

#[test]
fn everything_that_was_committed_is_extracted_in_order() {
    for events in [0, 1, 2, 1000] {
        for style in [Style::Runs, Style::Tail, Style::Overlapping] {
            let extracted = extract_file(&elf(&one(events), style)).unwrap();
            let extraction = &extracted.extraction;
            assert!(!extraction.is_damaged(), "{:?}", extraction.problems);
            assert_eq!(extraction.traces.len(), 1);
            let trace = &extraction.traces[0];
            assert_eq!(
                (&trace.name[..], trace.generation, trace.active),
                ("mine", 7, true)
            );
            let process = &trace.processes[0];
            assert_eq!(
                (&process.comm[..], process.pid, process.process),
                ("prog1", 101, 1)
            );
            assert_eq!((process.events, process.lost), (events, 0));
            let last = events.checked_sub(1).map(|n| (SYNC[2] + 10 * n) as i64);
            assert_eq!(process.last_event_ns, last);
            let read = extracted.read();
            assert_eq!(numbers(&read), (0..events).collect::<Vec<_>>());
            assert_eq!(read.discarded, 0);
        }
    }
}

#[test]
fn a_full_ring_has_what_it_accepted_and_what_it_lost() {
    let process = process(1, 1, 5000);
    let (accepted, lost) = (process.main[0].accepted.clone(), process.main[0].lost);
    assert!(lost > 0);
    let extracted = extract_machine(&machine(&[trace(1, "full", vec![process])]));
    let read = extracted.read();
    let accepted: Vec<_> = accepted
        .iter()
        .map(|(_, _, payload)| u64::from_le_bytes(*payload.last_chunk().unwrap()))
        .collect();
    assert_eq!(numbers(&read), accepted);
    assert_eq!(read.discarded, lost);
    assert_eq!(accepted.len() as u64 + lost, 5000);
    assert!(!extracted.extraction.is_damaged());
}

#[test]
fn all_traces_and_processes_are_extracted() {
    let processes = |from, n| (from..from + n).map(|p| process(p, 2, 10 + p)).collect();
    // Two names that make the same name of a directory, and more entries than fit into a page.
    let machine = machine(&[
        trace(3, "a/b", processes(1, 20)),
        trace(4, "a b", processes(21, 2)),
        trace(5, "empty", vec![]),
    ]);
    assert!(machine.directory.len() > 2);
    let extracted = extract_machine(&machine);
    let extraction = &extracted.extraction;
    assert!(!extraction.is_damaged(), "{:?}", extraction.problems);
    let sizes: Vec<_> = extraction
        .traces
        .iter()
        .map(|t| t.processes.len())
        .collect();
    assert_eq!(sizes, [20, 2, 0]);
    let events = (1..23).map(|p| 10 + p).sum::<u64>();
    assert_eq!(extraction.events(), events);
    assert_eq!(extracted.read().lines.len() as u64, events);
}

/// C7, E2: each channel of a trace, whatever the dump says that it is called.
#[test]
fn further_channels_are_extracted() {
    let mut process = process(1, 2, 300);
    for (index, name, rings) in [(2, "net", 2), (5, "net", 1), (6, "main", 1), (9, "", 0)] {
        let mut rings: Vec<_> = (0..rings).map(support::dump::ring).collect();
        for ring in &mut rings {
            for n in 300..400u64 {
                assert!(ring.event(1, at(n), &n.to_le_bytes()));
            }
            ring.lost = 2;
        }
        process.further.push((index, name.into(), rings));
    }
    let extracted = extract_machine(&machine(&[trace(7, "mine", vec![process])]));
    assert_eq!(extracted.extraction.problems.messages, [""; 0]);
    let process = &extracted.extraction.traces[0].processes[0];
    assert_eq!((process.events, process.lost, process.damaged), (700, 8, 0));
    let read = extracted.read();
    assert_eq!((read.lines.len(), read.discarded), (700, 8));
    let files = fs::read_dir(&process.directory).unwrap();
    let mut files: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let names = [
        "channel-5-5_0",
        "channel-6-6_0",
        "main_0",
        "main_1",
        "metadata",
        "net_0",
        "net_1",
    ];
    assert_eq!(files, names);
}

#[test]
fn a_machine_on_which_nothing_was_traced_has_an_empty_directory() {
    let mut machine = one(0);
    machine.memory.store(machine.root + 32, 0);
    let extracted = extract_machine(&machine);
    assert_eq!(extracted.extraction, Extraction::default());
}

#[test]
fn a_page_that_is_not_in_the_dump_costs_its_own_events() {
    let whole = one(1000);
    // Each page of the buffers of the process in turn: all but the directory and the root.
    let pages: Vec<_> = whole.memory.pages.keys().copied().collect();
    let mut damaged = 0;
    for page in pages {
        if page == whole.root || whole.directory.contains(&page) {
            continue;
        }
        let mut machine = machine(&[trace(7, "mine", vec![process(1, 2, 1000)])]);
        machine.memory.pages.remove(&page);
        let extracted = extract_machine(&machine);
        let extraction = &extracted.extraction;
        assert!(extraction.is_damaged(), "page {page:#x}");
        assert!(extraction.problems.messages[0].contains("are not in the dump"));
        assert!(extraction.problems.messages[0].contains("prog1"));
        let read = extracted.read();
        assert_eq!(read.lines.len() as u64, extraction.events());
        damaged += u32::from(extraction.events() > 0);
    }
    assert!(damaged > 4, "{damaged}");
}

/// F2, C7: pages that there was no memory for cost what was in them, which is counted, and nothing is damaged.
#[test]
fn f2_a_page_without_memory_costs_its_own_events() {
    let whole = one(1000);
    let [buffers, control] = whole.trees[0];
    let table = |word: u64| word & !(PAGE - 1);
    // Rings of the channel `main` begin behind two of descriptions, and two pages; each sub-buffer is a page.
    let leaves = table(whole.memory.load(table(buffers)));
    let main = (10..18).map(|page| leaves + 8 * page);
    let used: Vec<_> = main.filter(|&leaf| whole.memory.load(leaf) != 0).collect();
    assert!(used.len() > 4, "{used:?}");
    let lose = |leaf| {
        let mut machine = one(1000);
        machine.memory.store(leaf, 2);
        extract_machine(&machine)
    };
    for leaf in used {
        let extracted = lose(leaf);
        let extraction = &extracted.extraction;
        assert!(!extraction.is_damaged(), "{:?}", extraction.problems);
        let process = &extraction.traces[0].processes[0];
        assert_eq!((process.holes, process.damaged), (1, 0));
        assert!((500..1000).contains(&process.events), "{}", process.events);
        let read = extracted.read();
        assert_eq!(
            (read.lines.len() as u64, read.discarded),
            (process.events, 1)
        );
        // What is there, is there once and in order.
        assert!(numbers(&read).is_sorted_by(|a, b| a < b));
    }
    // Where the rings end is not known then.
    let extraction = lose(table(control) + 8 * 2).extraction;
    assert_eq!(extraction.events(), 0);
    assert_eq!(extraction.problems.count, 1, "{:?}", extraction.problems);
    let message = &extraction.problems.messages[0];
    assert!(
        message.contains("no memory for what says where 2 rings end"),
        "{message}"
    );
}

#[test]
fn a_dump_that_was_cut_short_has_what_is_before_the_cut() {
    let bytes = elf(&one(1000), Style::Runs);
    let headers = bytes.len() - one(1000).memory.pages.len() * PAGE as usize;
    let mut partly = 0;
    for len in (headers..bytes.len()).step_by(3001) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmcore");
        fs::write(&path, &bytes[..len]).unwrap();
        let dump = ElfDump::open(&path).unwrap();
        assert!(dump.is_cut_short());
        let output = directory.path().join("out");
        fs::create_dir(&output).unwrap();
        match extract(
            &dump,
            dump.vmcoreinfo().root.unwrap(),
            None,
            &output,
            Version::default(),
        ) {
            Ok(extraction) => {
                let read = babeltrace::read(&output);
                assert_eq!(read.lines.len() as u64, extraction.events());
                assert!(extraction.is_damaged() || extraction.events() == 1000);
                partly += u32::from(extraction.events() > 0 && extraction.is_damaged());
            }
            Err(error) => assert!(matches!(
                error,
                ExtractError::Directory(DirectoryError::Missing(_))
            )),
        }
    }
    assert!(partly > 0);
}

#[test]
fn an_entry_that_is_missing_is_named() {
    for (kind, message) in [
        (1, "does not have trace 7"),
        (2, "does not have channel"),
        (3, "does not have the process of buffers 1"),
    ] {
        let mut machine = one(100);
        let page = machine.directory[0];
        for entry in 0..15 {
            let address = page + 256 + entry * 256;
            if machine.memory.load(address) == kind {
                machine.memory.store(address, 0);
            }
        }
        let extracted = extract_machine(&machine);
        let problems = &extracted.extraction.problems;
        assert!(problems.messages[0].contains(message), "{problems:?}");
        let events = if kind == 2 { 0 } else { 100 };
        assert_eq!(extracted.extraction.events(), events);
        assert_eq!(extracted.read().lines.len(), events as usize);
    }
}

#[test]
fn of_two_entries_the_later_one_counts() {
    let mut machine = one(10);
    let page = machine.directory[0];
    // The last entry of this machine is the buffers'; the process's is before it.
    let used: Vec<_> = (0..15)
        .map(|n| page + 256 + n * 256)
        .filter(|&entry| machine.memory.load(entry) == 3)
        .collect();
    for (slot, serial, pid) in [(12, 2, 44), (13, 1000, 66), (14, 1, 55)] {
        let copy = page + 256 + slot * 256;
        for word in 0..32 {
            let value = machine.memory.load(used[0] + word * 8);
            machine.memory.store(copy + word * 8, value);
        }
        machine.memory.store(copy + 8, serial);
        machine.memory.store(copy + 16 + 16, pid);
    }
    let extracted = extract_machine(&machine);
    assert_eq!(extracted.extraction.traces[0].processes[0].pid, 66);
}

#[test]
fn a_directory_that_goes_in_circles_ends() {
    let mut machine = one(10);
    let page = machine.directory[0];
    machine.memory.store(page + 8, page);
    let extracted = extract_machine(&machine);
    assert!(extracted.extraction.problems.messages[0].contains("leads back"));
    assert_eq!(extracted.extraction.events(), 10);
}

#[test]
fn a_page_that_is_no_directory_is_named() {
    let mut machine = one(10);
    let (page, root) = (machine.directory[0], machine.root);
    machine.memory.store(page + 8, root);
    let extracted = extract_machine(&machine);
    assert!(extracted.extraction.problems.messages[0].contains("no page of the directory"));
    assert_eq!(extracted.extraction.events(), 10);
    machine.memory.store(page + 8, 0xdead_0000);
    let extracted = extract_machine(&machine);
    assert!(extracted.extraction.problems.messages[0].contains("not in the dump"));
    assert_eq!(extracted.extraction.events(), 10);
}

#[test]
fn a_root_that_is_none_is_refused() {
    let error = |at: u64, change: fn(u64) -> u64| {
        let mut machine = one(1);
        let old = machine.memory.load(machine.root + at);
        machine.memory.store(machine.root + at, change(old));
        match extract_file(&elf(&machine, Style::Runs)) {
            Err(ExtractError::Directory(error)) => error,
            other => panic!("{:?}", other.map(|e| e.extraction)),
        }
    };
    assert!(matches!(error(0, |_| 5), DirectoryError::Magic(_, 5)));
    assert_eq!(error(8, |word| word + 1), DirectoryError::Version(2));
    assert!(matches!(error(24, |word| word + 1), DirectoryError::Sum(_)));
    // With a sum that is right, but sizes that are not.
    let mut machine = one(1);
    let root = machine.root;
    let words: Vec<_> = [0, 8, 16, 24]
        .map(|at| machine.memory.load(root + at))
        .into();
    for (word, by) in [(1, 1 << 32), (2, 4096), (2, 1u64.wrapping_neg())] {
        machine
            .memory
            .store(root + 8 * word, words[word as usize].wrapping_add(by));
        machine.memory.store(root + 24, words[3].wrapping_sub(by));
        assert!(matches!(
            extract_file(&elf(&machine, Style::Runs)),
            Err(ExtractError::Directory(DirectoryError::Sizes { .. }))
        ));
        machine.memory.store(root + 8 * word, words[word as usize]);
    }
}

#[test]
fn hostile_trees_are_refused_or_end() {
    let whole = one(100);
    let page = whole.directory[0];
    let buffer = (0..15)
        .map(|n| page + 256 + n * 256)
        .find(|&entry| whole.memory.load(entry) == 4)
        .unwrap();
    // The write area's tree: its root, pages and depth.
    let [root, pages, depth] = [32, 40, 48].map(|at| buffer + at);
    let changed = |changes: &[(u64, u64)]| {
        let mut machine = one(100);
        for &(address, word) in changes {
            machine.memory.store(address, word);
        }
        extract_machine(&machine).extraction
    };
    for (what, changes) in [
        ("depth", &[(depth, 0)][..]),
        ("depth", &[(depth, u64::from(u32::MAX))]),
        ("pages", &[(pages, u64::MAX)]),
        ("pages", &[(pages, (1 << 18) + 1)]),
        ("larger than its areas", &[(pages, 1)]),
        ("not in the dump", &[(root, u64::MAX)]),
    ] {
        let extraction = changed(changes);
        assert!(extraction.is_damaged(), "{what}: {changes:x?}");
        let messages = extraction.problems.messages.join("\n");
        assert!(messages.contains(what), "{what}: {messages}");
    }
    assert_eq!(changed(&[(root, 0)]).events(), 0);
    // A tree that is its own branch.
    assert_eq!(
        changed(&[(root, page | 1), (depth, 5), (page, page | 1)]).events(),
        0
    );
}

#[test]
fn memory_is_found_however_the_segments_lie() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    let notes: [(&str, u32, &[u8]); 0] = [];
    let segments = [
        (0x1000, vec![1; 0x800], 0x2000),
        (0x1400, vec![2; 0x800], 0x800),
        (0x4000, vec![3; 0x10], 0x10),
        (u64::MAX - 7, vec![4; 8], 64),
    ];
    fs::write(&path, file(&notes, &segments)).unwrap();
    let dump = ElfDump::open(&path).unwrap();
    assert_eq!(dump.vmcoreinfo().root, None);
    let mut bytes = [9; 4];
    for (address, presence, want) in [
        (0x1000, Presence::Whole, [1, 1, 1, 1]),
        (0x17fe, Presence::Whole, [1, 1, 2, 2]),
        (0x1bfe, Presence::Excluded, [2, 2, 0, 0]),
        (0x2ffe, Presence::Missing, [0, 0, 0, 0]),
        (0x0ffe, Presence::Missing, [0, 0, 1, 1]),
        (0x3ffe, Presence::Missing, [0, 0, 3, 3]),
        (u64::MAX - 7, Presence::Whole, [4, 4, 4, 4]),
        (u64::MAX - 1, Presence::Missing, [4, 0, 0, 0]),
    ] {
        assert_eq!(dump.read(address, &mut bytes), presence, "{address:#x}");
        assert_eq!(bytes, want, "{address:#x}");
    }
}

fn open(bytes: &[u8]) -> Result<Dump, DumpError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    fs::write(&path, bytes).unwrap();
    Dump::open(&path)
}

#[test]
fn what_is_no_dump_is_refused() {
    let good = elf(&one(1), Style::Runs);
    assert!(open(&good).is_ok());
    assert!(matches!(open(b""), Err(DumpError::Unknown)));
    assert!(matches!(
        open(b"not a dump at all"),
        Err(DumpError::Unknown)
    ));
    assert!(matches!(
        open(&[b"KDUMP   ".as_slice(), &[0; 99]].concat()),
        Err(DumpError::Io { .. })
    ));
    assert!(matches!(open(&good[..30]), Err(DumpError::Io { .. })));
    assert!(matches!(open(&good[..100]), Err(DumpError::Io { .. })));
    for (at, value) in [(4, 1), (5, 2), (16, 2), (54, 32)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert!(matches!(open(&bytes), Err(DumpError::NotADump)), "{at}");
    }
    assert!(matches!(
        ElfDump::open(Path::new("/nonexistent")),
        Err(DumpError::Io { .. })
    ));
}

#[test]
fn a_dump_may_have_more_segments_than_its_header_can_say() {
    let mut bytes = elf(&one(10), Style::Runs);
    let count = u32::from(u16::from_le_bytes([bytes[56], bytes[57]]));
    bytes[56..58].copy_from_slice(&[0xff, 0xff]);
    let section = bytes.len() as u64;
    bytes[40..48].copy_from_slice(&section.to_le_bytes());
    bytes.extend([0; 64]);
    let info = section as usize + 44;
    bytes[info..info + 4].copy_from_slice(&count.to_le_bytes());
    assert_eq!(extract_file(&bytes).unwrap().extraction.events(), 10);
    bytes[info..info + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(open(&bytes), Err(DumpError::Segments(u32::MAX))));
}

/// C7: what an extraction costs depends on what was traced.
#[test]
fn only_what_is_needed_is_read() {
    use std::cell::Cell;
    struct Counting<'a>(&'a ElfDump, Cell<u64>);
    impl PhysicalMemory for Counting<'_> {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
            self.1.set(self.1.get() + buffer.len() as u64);
            self.0.read(address, buffer)
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    let mut machine = one(100);
    for _ in 0..20_000 {
        machine.memory.page(&[0xaa; PAGE as usize]);
    }
    save(&path, &machine, Style::Runs);
    let dump = ElfDump::open(&path).unwrap();
    let counting = Counting(&dump, Cell::new(0));
    let extraction = extract(
        &counting,
        machine.root,
        None,
        directory.path(),
        Version::default(),
    )
    .unwrap();
    assert_eq!(extraction.events(), 100);
    assert!(counting.1.get() < 100 * PAGE, "{}", counting.1.get());
}

/// Extraction of whatever this is ends, without a panic, and with a trace that can be read.
fn survive(bytes: &[u8], read: bool) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    fs::write(&path, bytes).unwrap();
    let Ok(dump) = ElfDump::open(&path) else {
        return;
    };
    let output = directory.path().join("out");
    fs::create_dir(&output).unwrap();
    let Some(root) = dump.vmcoreinfo().root else {
        return;
    };
    if let Ok(extraction) = extract(&dump, root, None, &output, Version::default())
        && read
    {
        let read = babeltrace::read(&output);
        assert_eq!(read.lines.len() as u64, extraction.events());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// F4: the file.
    #[test]
    fn no_file_is_too_strange(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        headers_only in any::<bool>(),
        len in any::<prop::sample::Index>(),
    ) {
        let mut bytes = elf(&one(30), Style::Runs);
        let reach = if headers_only { 64 + 56 * 4 } else { bytes.len() };
        for (at, value) in changes {
            bytes[at.index(reach)] = value;
        }
        survive(&bytes, false);
        survive(&bytes[..len.index(bytes.len())], false);
    }

    /// F4: the kernel's memory, where words are changed to such that mean something.
    #[test]
    fn no_directory_is_too_strange(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), 0u64..512, prop_oneof![
                any::<u64>(),
                0u64..5,
                (0u64..64).prop_map(|bit| 1 << bit),
                (0u64..100).prop_map(|page| 0x10_0000 + page * 7919 % 65521 * 4096 + 1),
            ]), 1..8),
        of_directory in any::<bool>(),
    ) {
        let mut machine = one(30);
        let pages: Vec<_> = if of_directory {
            machine.directory.clone()
        } else {
            machine.memory.pages.keys().copied().filter(|&page| page != machine.root).collect()
        };
        for (page, word, value) in changes {
            let address = pages[page.index(pages.len())] + word * 8;
            machine.memory.store(address, value);
        }
        survive(&elf(&machine, Style::Runs), true);
    }

    /// F4: any bytes as the directory's root.
    #[test]
    fn no_root_is_too_strange(words in prop::collection::vec(any::<u64>(), 10), known in 0usize..5) {
        struct Root(Vec<u8>);
        impl PhysicalMemory for Root {
            fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
                buffer.fill(0);
                for (n, byte) in buffer.iter_mut().enumerate() {
                    *byte = self.0[(address as usize).wrapping_add(n) % self.0.len()];
                }
                Presence::Whole
            }
        }
        let machine = one(0);
        let mut bytes = Vec::new();
        for (n, word) in words.iter().enumerate() {
            let word = if n < known { machine.memory.load(machine.root + 8 * n as u64) } else { *word };
            support::words(&mut bytes, &[word]);
        }
        let _ = Directory::read(&Root(bytes), 0, &mut Problems::default());
    }
}
