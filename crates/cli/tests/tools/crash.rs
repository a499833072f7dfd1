//! The extractor, on dumps of crashed machines: complete, cut, thinned out, damaged and forged ones
//! (C7, E6, E7, E8, F1, F4).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use usertrace_crash::{
    Candidate, Directory, DirectoryError, Dump, DumpError, ElfDump, ExtractError, ExtractOptions,
    Extraction, PhysicalMemory, Presence, Problems, RootLocation, RootSearch, RootTarget, extract,
    find_roots,
};
use usertrace_ctf::Crash;
use usertrace_reader::{Counters, Item, Reader, Selection};
use usertrace_sys::crash::LttCrashRoot;

use usertrace_testing::babeltrace;
use usertrace_testing::count_table::{CountTableWriter, Key};
use usertrace_testing::dump::{
    Machine, PAGE, Process, SYNC, Style, Trace, elf, file, machine, save, save_raw, save_reserved,
};

fn at(ns: u64) -> u64 {
    SYNC[0] + 2 * ns
}

/// A process with `events` numbered events, distributed over its CPUs' rings.
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

/// Requirements: C7, F7
#[test]
fn contexts_are_extracted() {
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

/// Requirements: C7
#[test]
fn command_lines_are_extracted() {
    let mut process = process(1, 2, 10);
    process.control[0].meta(at(2), "$ .%2Fserver%20--port%2080");
    // Another library of the process describes another command line.
    process.control[1].meta(at(3), "$ other");
    let extracted = extract_machine(&machine(&[trace(7, "mine", vec![process])]));
    assert!(!extracted.extraction.is_damaged());
    let process = &extracted.extraction.traces[0].processes[0];
    assert_eq!(process.cmdline.as_deref(), Some("./server --port 80"));
    let metadata = fs::read_to_string(process.directory.join("metadata")).unwrap();
    assert!(metadata.contains("cmdline = \"./server --port 80\";"));
    assert_eq!(numbers(&extracted.read()), (0..10).collect::<Vec<_>>());
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
    fn read(&self) -> babeltrace::Lines {
        babeltrace::lines(&self.directory.path().join("out"))
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
        &ExtractOptions::default(),
        &output,
    )?;
    Ok(Extracted {
        directory,
        extraction,
    })
}

fn extract_machine(machine: &Machine) -> Extracted {
    extract_file(&elf(machine, Style::Runs)).unwrap()
}

fn numbers(read: &babeltrace::Lines) -> Vec<u64> {
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
fn full_ring_has_accepted_records_and_a_loss_count() {
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
    // Two names that map to the same directory name, and more entries than fit into a page.
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

/// All channels of a trace are extracted, whatever their names in the dump.
///
/// Requirements: C7, E2
#[test]
fn further_channels_are_extracted() {
    let mut process = process(1, 2, 300);
    for (index, name, rings) in [(2, "net", 2), (5, "net", 1), (6, "main", 1), (9, "", 0)] {
        let mut rings: Vec<_> = (0..rings).map(usertrace_testing::dump::ring).collect();
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

/// Counters are extracted as they were at the crash, also of a table whose control block is not in
/// the dump.
///
/// Requirements: C7, E7
#[test]
fn counters_are_extracted() {
    for has_control in [true, false] {
        let mut process = process(1, 2, 10);
        process.control[0].meta(at(2), "#2 n -");
        let mut tables: Vec<_> = (0..2).map(|_| CountTableWriter::new(16384, true)).collect();
        for n in 0..1000 {
            tables[n as usize % 2].count(1, &Key::None, Some(n));
        }
        // The kernel stopped in the middle of an update.
        let update = tables[0].update(1, &Key::None, Some(5));
        for store in &update[..update.len() - 1] {
            tables[0].store(*store);
        }
        let mut rings: Vec<_> = tables.iter().map(|table| table.in_ring(4096)).collect();
        rings[0].lost = 3;
        process.further.push((2, "sizes".into(), rings));
        let mut machine = machine(&[trace(7, "mine", vec![process])]);
        if !has_control {
            // The control blocks of the channel are on a page of their own: the last one.
            let [_, control] = machine.trees[0];
            let entries = machine.memory.copy(control & !1);
            let last = entries
                .chunks_exact(8)
                .rev()
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            let last = last.into_iter().find(|&word| word != 0).unwrap();
            machine.memory.pages.remove(&(last & !1));
        }
        let extracted = extract_machine(&machine);
        assert_eq!(extracted.extraction.is_damaged(), !has_control);
        let out = extracted.directory.path().join("out");
        let mut reader = Reader::open(&[out], Selection::default()).unwrap();
        let (mut counters, mut lost) = (Counters::default(), 0);
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => drop(counters.add(&event)),
                Item::Lost(_) => lost += 1,
                Item::Error(error) => panic!("{error}"),
            }
        }
        let sums = counters.sums();
        assert_eq!(sums.len(), 1, "{sums:?}");
        let sum = &sums[0];
        assert_eq!(
            (&*sum.event, &*sum.channel, sum.count),
            ("t:number", "sizes", 1000)
        );
        assert_eq!((sum.sum, sum.min, sum.max), (499_500, 0, 999));
        let values = [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 488];
        assert_eq!(sum.histogram, values);
        assert_eq!(lost, u64::from(has_control));
    }
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
    // Remove each page of the process's buffers in turn, but not the directory and the root.
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
        assert!(extraction.problems.messages[0].contains("not in the dump"));
        assert!(extraction.problems.messages[0].contains("prog1"));
        let read = extracted.read();
        assert_eq!(read.lines.len() as u64, extraction.events());
        damaged += u32::from(extraction.events() > 0);
    }
    assert!(damaged > 4, "{damaged}");
}

/// Without a page of ring positions, only the newest sub-buffers are missing, and the trace reports
/// them.
///
/// Requirements: C7, E7
#[test]
fn missing_control_page_costs_newest_subbuffers() {
    let whole = one(1000);
    let [_, control] = whole.trees[0];
    let table = control & !(PAGE - 1);
    // The pages with the control blocks of descriptions and of events.
    for (index, is_of_events) in [(0, false), (2, true)] {
        let page = whole.memory.load(table + 8 * index) & !(PAGE - 1);
        let mut machine = one(1000);
        machine.memory.pages.remove(&page);
        let extracted = extract_machine(&machine);
        let process = &extracted.extraction.traces[0].processes[0];
        let messages = extracted.extraction.problems.messages.join("\n");
        let said = "nothing says where 2 rings end (the pages with that are not in the dump)";
        assert!(messages.contains(said), "{messages}");
        assert_eq!((process.holes, process.damaged), (2, 0));
        let read = extracted.read();
        let got = numbers(&read);
        assert_eq!(got.len() as u64, process.events);
        if !is_of_events {
            assert_eq!(got, (0..1000).collect::<Vec<_>>());
            continue;
        }
        assert_eq!(read.discarded, 2);
        for ring in 0..2 {
            let of_ring: Vec<_> = got.iter().copied().filter(|n| n % 2 == ring).collect();
            let expected = (0..500).map(|n| 2 * n + ring).take(of_ring.len());
            assert_eq!(of_ring, expected.collect::<Vec<_>>());
            // Two of three sub-buffers, each with 4032 bytes for events of 16 and 24 bytes.
            assert!(
                (2 * 160..2 * 252).contains(&of_ring.len()),
                "{}",
                of_ring.len()
            );
        }
    }
}

/// Pages that found no memory cost their events, which are counted, and nothing is damaged. Pages
/// that the dump excludes are distinguished from missing ones, and reported by ring.
///
/// Requirements: C7, F2
#[test]
fn excluded_pages_are_reported() {
    let whole = one(1000);
    let extracted = extract_machine(&whole);
    let rings = &extracted.extraction.traces[0].processes[0].rings;
    let events: u64 = rings.iter().map(|ring| ring.events).sum();
    assert_eq!(
        (events, rings.iter().any(|ring| ring.damaged > 0)),
        (1000, false)
    );
    assert!(rings.iter().all(|ring| ring.channel == "main"));

    let (mut reported, mut of_control) = (0, 0);
    for out in whole.memory.pages.keys().copied() {
        let Ok(extracted) = extract_file(&elf(&whole, Style::LeavingOut(out))) else {
            continue;
        };
        let messages = extracted.extraction.problems.messages.join("\n");
        let is_reported =
            messages.contains("1 pages of its areas were left out when the dump was made");
        let processes = || {
            let traces = extracted.extraction.traces.iter();
            traces.flat_map(|trace| &trace.processes)
        };
        let is_cut = processes().any(|process| process.damaged + process.holes > 0);
        assert_eq!(is_reported, is_cut, "{out:#x}: {messages}");
        of_control += u32::from(messages.contains("that was left out when the dump was made"));
        // Each missing event is reported.
        let is_whole = extracted.extraction.events() == 1000;
        assert!(
            is_whole || extracted.extraction.is_damaged(),
            "{out:#x}: {messages}"
        );
        reported += u32::from(is_reported && extracted.extraction.events() > 0);
    }
    assert!(reported > 0 && of_control > 0);
}

/// Requirements: F2
#[test]
fn a_page_without_memory_costs_its_own_events() {
    let whole = one(1000);
    let [buffers, control] = whole.trees[0];
    let table = |word: u64| word & !(PAGE - 1);
    // The rings of channel `main` begin after two of descriptions and two pages. Each sub-buffer is
    // a page.
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
        // The remaining events are there once and in order.
        assert!(numbers(&read).is_sorted_by(|a, b| a < b));
    }
    // The ends of the rings are unknown then, so they are read up to their newest sub-buffers.
    let extraction = lose(table(control) + 8 * 2).extraction;
    let process = &extraction.traces[0].processes[0];
    assert!((640..1000).contains(&process.events), "{}", process.events);
    assert_eq!((process.holes, process.damaged), (2, 0));
    assert_eq!(extraction.problems.count, 1, "{:?}", extraction.problems);
    let message = &extraction.problems.messages[0];
    assert!(
        message.contains("nothing says where 2 rings end (there was no memory for that)"),
        "{message}"
    );
}

#[test]
fn truncated_dump_has_the_data_before_the_cut() {
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
            &ExtractOptions::default(),
            &output,
        ) {
            Ok(extraction) => {
                let read = babeltrace::lines(&output);
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
    // The last entry of this machine is that of the buffers; the process's is before it.
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
fn invalid_root_page_is_refused() {
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
    assert_eq!(error(8, |word| word + 1), DirectoryError::Version(3));
    assert!(matches!(error(24, |word| word + 1), DirectoryError::Sum(_)));
    // The checksum is right, but the sizes are wrong.
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
    // The tree of the write area: its root, pages and depth.
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
    // A tree that contains itself.
    assert_eq!(
        changed(&[(root, page | 1), (depth, 5), (page, page | 1)]).events(),
        0
    );
}

/// Trees with repeated pages do not multiply the events of a dump.
///
/// Requirements: F4
#[test]
fn a_page_is_at_one_place() {
    let mut machine = one(1000);
    // The tree has two levels. The second entry of the page table is replaced by the first.
    let table = machine.memory.load(machine.trees[0][0] & !0xfff) & !0xfff;
    let used: Vec<_> = (0..512)
        .map(|n| table + n * 8)
        .filter(|&at| machine.memory.load(at) & 1 != 0)
        .collect();
    let first = machine.memory.load(used[0]);
    for at in &used[1..] {
        machine.memory.store(*at, first);
    }
    let extraction = extract_machine(&machine).extraction;
    let messages = extraction.problems.messages.join("\n");
    let expected = format!(
        "{} pages of its write area are at another place, too",
        used.len() - 1
    );
    assert!(messages.contains(&expected), "{messages}");
    assert!(extraction.events() < 1000);
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
fn invalid_dumps_are_refused() {
    let good = elf(&one(1), Style::Runs);
    assert!(open(&good).is_ok());
    assert!(matches!(open(b""), Err(DumpError::Unknown)));
    assert!(matches!(open(b"QEV"), Err(DumpError::Unknown)));
    for saved in ["QEVM\0\0\0\x03", "LibvirtQemudSave", "LibvirtQemudPart"] {
        let refused = open(saved.as_bytes());
        assert!(matches!(refused, Err(DumpError::Machine)), "{saved}");
    }
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

/// The root page is found in memory without a header, or with one that does not name it.
///
/// Requirements: C7
#[test]
fn root_page_is_found_without_its_address() {
    let machine = one(100);
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let without = directory.path().join("without-notes");
    save_raw(&image, &machine);
    fs::write(&without, elf(&machine, Style::WithoutNotes)).unwrap();
    for (name, dump) in [
        ("image", Dump::open_raw(&image).unwrap()),
        ("without-notes", Dump::open(&without).unwrap()),
    ] {
        assert!(dump.vmcoreinfo().is_none());
        let search = dump.find_roots();
        assert_eq!((search.candidates, search.consistent), (1, 1), "{name}");
        let root = search.root().unwrap();
        assert_eq!(
            (root.address, root.location, root.leads_to),
            (machine.root, RootLocation::Memory, RootTarget::Directory)
        );
        assert!(!root.is_certain());
        let output = directory.path().join(format!("{name}-traces"));
        fs::create_dir(&output).unwrap();
        let extraction = extract(&dump, machine.root, &ExtractOptions::default(), &output).unwrap();
        assert_eq!(
            numbers(&babeltrace::lines(&output)),
            (0..100).collect::<Vec<_>>()
        );
        assert!(!extraction.is_damaged());
    }
    assert!(matches!(Dump::open(&image), Err(DumpError::Unknown)));

    // A page that only looks like a root page, and one that leads nowhere.
    let mut machine = machine;
    let page = machine.memory.copy(machine.root);
    let mut damaged = page.clone();
    damaged[16] ^= 1;
    machine.memory.page(&damaged);
    let other = machine.memory.page(&root_to(&machine, machine.root));
    assert_eq!(search(&machine).candidates, 2);
    assert_eq!(search(&machine).root().unwrap().address, machine.root);
    // A copy leads to the same directory, so either can be read.
    machine.memory.pages.insert(other, page);
    let found = search(&machine);
    assert_eq!((found.candidates, found.consistent), (2, 1));
    assert!([machine.root, other].contains(&found.root().unwrap().address));
}

/// A copy of the machine's root page that leads to another directory.
fn root_to(machine: &Machine, directory: u64) -> Vec<u8> {
    let mut page = machine.memory.copy(machine.root);
    let at = std::mem::offset_of!(LttCrashRoot, directory);
    page[at..at + 8].copy_from_slice(&directory.to_le_bytes());
    page
}

/// Searches an image of the machine's memory.
fn search(machine: &Machine) -> RootSearch {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    save_raw(&image, machine);
    Dump::open_raw(&image).unwrap().find_roots()
}

/// A page that a program forged: a copy of another one, with one word changed.
type ForgedPage = (Rc<Vec<u8>>, usize, u64);

/// The memory of a machine on which a program has forged pages. They are generated, as a test may
/// not have memory for all.
struct Flooded<'a> {
    machine: &'a Machine,
    forged: BTreeMap<u64, ForgedPage>,
    /// Number of forged root pages.
    roots: u64,
    reads: Cell<u64>,
}

impl PhysicalMemory for Flooded<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        self.reads.set(self.reads.get() + 1);
        let page = address & !(PAGE - 1);
        let at = (address - page) as usize;
        assert!(at + buffer.len() <= PAGE as usize);
        let mut bytes = if let Some(page) = self.machine.memory.pages.get(&page) {
            page.clone()
        } else if let Some((page, at, word)) = self.forged.get(&page) {
            let mut page = page.to_vec();
            page[*at..at + 8].copy_from_slice(&word.to_le_bytes());
            page
        } else {
            buffer.fill(0);
            return Presence::Missing;
        };
        bytes.drain(..at);
        buffer.copy_from_slice(&bytes[..buffer.len()]);
        Presence::Whole
    }
}

/// Kinds of forged root pages, by what they lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forged {
    /// Each to another address without memory.
    Nowhere,
    /// No directory at all.
    Nothing,
    /// A page that leads to itself.
    Loop,
    /// Each to its own page; these lead to a page that leads to itself.
    Loops,
    /// An entry of an unknown kind.
    Nonsense,
    /// Trees of an impossible depth.
    DeepTrees,
    /// Trees whose root is outside memory.
    TreesElsewhere,
    /// The real entries with a different name, so that the rings are real.
    RealRings,
}

const FORGED: [Forged; 8] = [
    Forged::Nowhere,
    Forged::Nothing,
    Forged::Loop,
    Forged::Loops,
    Forged::Nonsense,
    Forged::DeepTrees,
    Forged::TreesElsewhere,
    Forged::RealRings,
];

impl<'a> Flooded<'a> {
    fn new(machine: &'a Machine) -> Self {
        Self {
            machine,
            forged: BTreeMap::new(),
            roots: 0,
            reads: Cell::new(0),
        }
    }

    /// Searches all memory for root pages.
    fn search(&self) -> RootSearch {
        find_roots(self, std::iter::once(0..2 << 30), true)
    }

    /// Fills memory with forged pages of a kind.
    fn fill(&mut self, kind: Forged, memory: std::ops::Range<u64>) {
        const DIRECTORY: usize = std::mem::offset_of!(LttCrashRoot, directory);
        const NEXT: usize = 8;
        let memory = memory.step_by(PAGE as usize);
        let mut memory = memory.filter(|at| !self.machine.memory.pages.contains_key(at));
        let root = Rc::new(self.machine.memory.copy(self.machine.root));
        let mut page = self.machine.memory.copy(self.machine.directory[0]);
        // The offset of the first entry of this kind.
        let entry_of = |page: &[u8], kind: u8| {
            let mut entries = (256..PAGE as usize).step_by(256);
            entries.find(|&at| page[at] == kind).unwrap()
        };
        let (process, buffer) = (entry_of(&page, 3), entry_of(&page, 4));
        let mut set = |at: usize, value: u64| {
            page[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        match kind {
            Forged::Nonsense => set(process, 77),
            Forged::DeepTrees => set(buffer + 48, 60),
            Forged::TreesElsewhere => set(buffer + 32, 1 << 45 | 1),
            Forged::RealRings => set(process + 48, u64::from_le_bytes(*b"somebody")),
            Forged::Nowhere | Forged::Nothing | Forged::Loop | Forged::Loops => {}
        }
        let page = Rc::new(page);
        let first = memory.next().unwrap();
        let next = match kind {
            Forged::Loop | Forged::Loops => first,
            _ => 0,
        };
        self.forged.insert(first, (page.clone(), NEXT, next));
        while let Some(at) = memory.next() {
            let to = match kind {
                Forged::Nowhere => at << 20,
                Forged::Nothing => 0,
                Forged::Loops => {
                    let Some(own) = memory.next() else {
                        break;
                    };
                    self.forged.insert(own, (page.clone(), NEXT, first));
                    own
                }
                _ => first,
            };
            self.forged.insert(at, (root.clone(), DIRECTORY, to));
            self.roots += 1;
        }
    }
}

/// Addresses at which these tests' machines have no memory: before and after it.
const BEFORE: std::ops::Range<u64> = 0xc_0000..0x10_0000;
const BEHIND: std::ops::Range<u64> = 0x2000_0000..0x2004_0000;

/// Forged root pages of each kind, before and after the real one, cost no event. If a forged
/// directory is as good as the real one, none is chosen.
///
/// Requirements: F4
#[test]
fn forged_root_pages_are_distinguished_from_the_real_one() {
    let machine = one(20);
    for kind in FORGED {
        for memory in [BEFORE, BEHIND] {
            let mut flooded = Flooded::new(&machine);
            flooded.fill(kind, memory);
            let found = flooded.search();
            assert!(flooded.roots > 30);
            assert_eq!(found.candidates, flooded.roots + 1, "{kind:?}");
            if kind == Forged::RealRings {
                assert_eq!((found.root(), found.consistent), (None, 2));
                let mut best = found.best.iter();
                assert!(best.any(|candidate| candidate.address == machine.root));
                assert!(found.best.iter().all(|candidate| candidate.buffers == 1));
                continue;
            }
            let root = found.root().unwrap();
            assert_eq!(
                (root.address, root.location, found.consistent),
                (machine.root, RootLocation::Memory, 1),
                "{kind:?}"
            );
        }
    }
}

/// If a search meets more plausible forged directories than it keeps, it chooses no root page.
///
/// Requirements: F4
#[test]
fn forged_directories_do_not_hide_the_real_one() {
    let machine = one(20);
    let mut flooded = Flooded::new(&machine);
    flooded.fill(Forged::RealRings, BEFORE);
    // Each root page gets its own copy.
    let (page, ..) = flooded.forged[&BEFORE.start].clone();
    for (_, at, directory) in flooded.forged.values_mut().skip(1) {
        *at = std::mem::offset_of!(LttCrashRoot, directory);
        *directory += 1;
    }
    let roots: Vec<_> = flooded.forged.keys().skip(1).copied().collect();
    for (n, root) in (0..).zip(roots) {
        let own = BEHIND.start + n * PAGE;
        flooded.forged.get_mut(&root).unwrap().2 = own;
        flooded.forged.insert(own, (page.clone(), 8, 0));
    }
    let found = flooded.search();
    assert_eq!(found.consistent, flooded.roots + 1);
    assert_eq!(found.root(), None);
    assert!(found.best.len() < 20);

    // All kept candidates but one turn out to be circular, further on than a search looks at first.
    let (first, others) = (BEHIND.start, BEHIND.start + (1 << 20));
    let chain = |n: u64| others + n % 12 * PAGE;
    for n in 0..12 {
        flooded
            .forged
            .insert(chain(n), (page.clone(), 8, chain(n + 1)));
    }
    let pages: Vec<_> = flooded
        .forged
        .range(first + 1..others)
        .map(|(at, _)| *at)
        .collect();
    for at in pages {
        flooded.forged.insert(at, (page.clone(), 8, chain(0)));
    }
    let found = flooded.search();
    assert!(found.consistent > 1);
    assert_eq!(found.root(), None);
    let is_consistent = |candidate: &&Candidate| candidate.leads_to == RootTarget::Directory;
    let consistent: Vec<_> = found.best.iter().filter(is_consistent).collect();
    assert_eq!(consistent.len(), 1, "{consistent:x?}");
    assert_ne!(consistent[0].address, machine.root);
}

/// Hundreds of thousands of forged root pages cost a search a few reads each.
///
/// Requirements: F4
#[test]
fn hundreds_of_thousands_of_forged_root_pages_cost_little() {
    const EACH: u64 = 45_000 * PAGE;
    let machine = one(20);
    let mut flooded = Flooded::new(&machine);
    let kinds = FORGED.into_iter().filter(|&kind| kind != Forged::RealRings);
    let mut at = 0x10_0000;
    for kind in kinds {
        flooded.fill(kind, at..at + EACH);
        at += EACH;
    }
    let real = *machine.memory.pages.keys().next_back().unwrap();
    assert!(flooded.forged.range(real..).count() > 100_000);
    assert!(flooded.forged.range(..real).count() > 10_000);
    assert!(flooded.roots > 262_144);
    let found = find_roots(&flooded, std::iter::once(0..at), true);
    assert_eq!(found.root().unwrap().address, machine.root);
    assert_eq!((found.candidates, found.consistent), (flooded.roots + 1, 1));
    // One read of each page of memory, and for each root page that read and at most two more.
    let reads = flooded.reads.get();
    assert!(reads < at / PAGE + 4 * flooded.roots, "{reads} reads");
}

/// Entries of page tables.
const TABLE: u64 = 0b11;
const READ_ONLY: u64 = 1;
const WRITABLE: u64 = 0b11;
const TEXT: u64 = READ_ONLY;
const NO_EXECUTE: u64 = 1 << 63;

/// Writes page tables into the machine's memory that map these pages, and a page of text, as the
/// kernel's image. `top` is the address of the top table.
fn map_image(machine: &mut Machine, top: u64, levels: u32, pages: &[(u64, u64)]) {
    let table = |entries: &[(usize, u64)]| {
        let mut bytes = vec![0; PAGE as usize];
        for (at, entry) in entries {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&entry.to_le_bytes());
        }
        bytes
    };
    let memory = &mut machine.memory;
    let text = memory.page(&[0xcc; PAGE as usize]);
    let mut entries = vec![(3, text | TEXT)];
    entries.extend((4..).zip(pages.iter().map(|(page, flags)| page | flags | NO_EXECUTE)));
    let small = memory.page(&table(&entries));
    let large = memory.page(&table(&[
        (8, small | TABLE),
        (9, 0x4000_0000 | 0x80 | NO_EXECUTE | WRITABLE),
    ]));
    let mut next = memory.page(&table(&[(510, large | TABLE), (511, text | TABLE)]));
    if levels == 5 {
        next = memory.page(&table(&[(511, next | TABLE)]));
    }
    memory
        .pages
        .insert(top, table(&[(0, 0x1000 | TABLE), (511, next | TABLE)]));
}

/// Address of the kernel's page table for starting processors.
const LOW: u64 = 0x9_a000;

/// A root page in read-only memory of the kernel's image is certain, as no program can write there.
/// Nothing else is searched.
///
/// Requirements: F4
#[test]
fn the_root_page_in_the_kernels_image_is_certain() {
    for levels in [4, 5] {
        let mut machine = one(20);
        let freed = BEHIND.start + 5 * PAGE;
        let root = machine.root;
        map_image(
            &mut machine,
            LOW,
            levels,
            &[(freed, WRITABLE), (root, READ_ONLY)],
        );
        for kind in FORGED {
            let mut flooded = Flooded::new(&machine);
            flooded.fill(kind, BEFORE);
            flooded.fill(kind, BEHIND);
            let found = flooded.search();
            let root = found.root().unwrap();
            assert_eq!(
                (root.address, root.location),
                (machine.root, RootLocation::ReadOnlyImage)
            );
            assert!(root.is_certain());
            assert_eq!(found.candidates, 1);
            assert!(flooded.reads.get() < 1000, "{}", flooded.reads.get());
        }
        // The same if the dump lacks the directory.
        let directory = machine.directory[0];
        machine.memory.pages.remove(&directory);
        let root = search(&machine).root().unwrap();
        assert_eq!(
            (root.address, root.leads_to),
            (machine.root, RootTarget::Nowhere)
        );
    }
}

/// Other memory of the image may have been freed at boot and belong to a program.
///
/// Requirements: F4
#[test]
fn a_root_page_in_writable_parts_of_the_image_is_not_certain() {
    let mut machine = one(20);
    let freed = BEHIND.start + 5 * PAGE;
    let root = machine.root;
    map_image(&mut machine, LOW, 4, &[(freed, WRITABLE), (root, WRITABLE)]);
    for kind in FORGED {
        // Forged pages elsewhere make no difference.
        let mut flooded = Flooded::new(&machine);
        flooded.fill(kind, BEFORE);
        let found = flooded.search();
        let root = found.root().unwrap();
        assert_eq!(
            (root.address, root.location),
            (machine.root, RootLocation::Image),
            "{kind:?}"
        );
        assert!(!root.is_certain());
        flooded.fill(kind, BEHIND);
        let found = flooded.search().root();
        match kind {
            Forged::RealRings => assert_eq!(found, None),
            _ => assert_eq!(found.unwrap().address, machine.root, "{kind:?}"),
        }
    }
}

/// Page tables above the first 640 KiB may be a program's, and are ignored. So is an image without
/// a root page.
///
/// Requirements: F4
#[test]
fn page_tables_of_a_program_are_not_believed() {
    let is_ignored = |change: &dyn Fn(&mut Machine, u64)| {
        let mut machine = one(20);
        let copy = machine
            .memory
            .page(&root_to(&machine, machine.directory[0]));
        change(&mut machine, copy);
        let root = search(&machine).root().unwrap();
        assert_eq!(root.location, RootLocation::Memory);
    };
    for top in [0xa_0000, 0xb_8000, 0xf_f000, BEHIND.start] {
        is_ignored(&|machine, copy| map_image(machine, top, 4, &[(copy, READ_ONLY)]));
    }
    // User-accessible memory and memory without text are not the kernel's image.
    is_ignored(&|machine, copy| {
        const USER: u64 = 1 << 2;
        map_image(machine, LOW, 4, &[(copy, READ_ONLY | USER)]);
        let mut table = LOW;
        for at in [511, 510, 8] {
            let entry = machine.memory.load(table + 8 * at);
            machine.memory.store(table + 8 * at, entry | USER);
            table = entry & !(PAGE - 1);
        }
    });
    is_ignored(&|machine, copy| {
        map_image(machine, LOW, 4, &[(copy, READ_ONLY)]);
        let pages = [511, 510, 8].into_iter().fold(LOW, |table, at| {
            machine.memory.load(table + 8 * at) & !(PAGE - 1)
        });
        let text = machine.memory.load(pages + 8 * 3);
        machine.memory.store(pages + 8 * 3, text | NO_EXECUTE);
    });
    is_ignored(&|machine, _| map_image(machine, LOW, 4, &[]));
    // A missing table.
    is_ignored(&|machine, copy| {
        map_image(machine, LOW, 4, &[(copy, READ_ONLY)]);
        machine.memory.store(LOW + 511 * 8, 0x7000_0000 | TABLE);
    });

    // Of two kernels, one ran earlier, and its page tables may be in a program's memory now.
    let mut machine = one(20);
    let (root, other) = (machine.root, machine.memory.page(&root_to(&machine, 0)));
    map_image(&mut machine, LOW, 4, &[(other, READ_ONLY)]);
    map_image(&mut machine, LOW - PAGE, 4, &[(root, READ_ONLY)]);
    let found = search(&machine).root().unwrap();
    assert_eq!((found.address, found.is_certain()), (machine.root, false));
}

/// The first bytes of an image are memory, which a program may have filled with the header of a
/// dump.
///
/// Requirements: F4
#[test]
fn an_image_is_read_as_it_is() {
    let machine = one(20);
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    for magic in [
        &b"makedumpfile\0\0\0\0"[..],
        b"KDUMP   ",
        b"\x7fELF",
        &0x5345_5253_44ab_544cu64.to_le_bytes(),
    ] {
        save_raw(&image, &machine);
        let file = fs::File::options().write(true).open(&image).unwrap();
        file.write_all_at(magic, 0).unwrap();
        let search = Dump::open_raw(&image).unwrap().find_roots();
        assert_eq!(
            search.root().unwrap().address,
            machine.root,
            "{}",
            magic.escape_ascii()
        );
    }
}

/// Names of processes may contain control sequences of a terminal.
///
/// Requirements: F4
#[test]
fn names_in_messages_have_no_control_characters() {
    let mut hostile = process(1, 1, 100);
    hostile.comm = "\x1b[2J\x1b]0;x\x07".into();
    let mut machine = machine(&[trace(7, "mine", vec![hostile])]);
    let table = machine.trees[0][0] & !(PAGE - 1);
    machine
        .memory
        .pages
        .remove(&(machine.memory.load(table) & !(PAGE - 1)));
    let messages = extract_machine(&machine).extraction.problems.messages;
    assert!(
        messages
            .iter()
            .any(|message| message.contains("not in the dump")),
        "{messages:?}"
    );
    assert!(
        !messages
            .iter()
            .any(|message| message.contains(char::is_control)),
        "{messages:?}"
    );
}

/// A search reads only what the file has, whatever its headers say.
///
/// Requirements: F4
#[test]
fn a_search_ends_where_the_file_does() {
    let mut bytes = elf(&one(10), Style::WithoutNotes);
    let count = usize::from(u16::from_le_bytes([bytes[56], bytes[57]]));
    for segment in 0..count {
        // The segment's size in the file.
        let at = 64 + 56 * segment + 32;
        bytes[at..at + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
    }
    let dump = open(&bytes).unwrap();
    assert!(dump.is_cut_short());
    // A search through all that the headers claim would take years.
    let search = dump.find_roots();
    assert!(search.candidates < 2, "{search:x?}");
}

/// The previous boot's traces in reserved memory are extracted, wherever that memory is.
///
/// Requirements: C7
#[test]
fn reserved_memory_of_a_previous_boot_is_extracted() {
    let machine = one(100);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("previous_boot");
    save_reserved(&path, &machine);
    let Dump::Reserved(dump) = Dump::open(&path).unwrap() else {
        panic!("it is something else");
    };
    assert_eq!(dump.boot(), 7);
    assert!(!dump.is_cut_short());
    let output = directory.path().join("traces");
    fs::create_dir(&output).unwrap();
    let extraction = extract(&*dump, dump.root(), &ExtractOptions::default(), &output).unwrap();
    assert!(!extraction.is_damaged(), "{:?}", extraction.problems);
    assert_eq!(
        numbers(&babeltrace::lines(&output)),
        (0..100).collect::<Vec<_>>()
    );

    // Only a part of the memory.
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(Dump::open(&path).unwrap().is_cut_short());
    // Each bit of the words that the checksum covers, other than the magic number.
    for bit in 64..5 * 64 {
        let mut damaged = whole[..PAGE as usize].to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, damaged).unwrap();
        assert!(matches!(Dump::open(&path), Err(DumpError::Reserved(_))));
    }
    // An impossible address.
    let mut high = whole[..PAGE as usize].to_vec();
    let start = u64::from_le_bytes(*high[8..].first_chunk().unwrap());
    let sum = u64::from_le_bytes(*high[32..].first_chunk().unwrap());
    high[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    high[32..40].copy_from_slice(&sum.wrapping_add(start).wrapping_add(1).to_le_bytes());
    fs::write(&path, high).unwrap();
    assert!(matches!(Dump::open(&path), Err(DumpError::Reserved(_))));
    // A file smaller than the first page.
    fs::write(&path, &whole[..40]).unwrap();
    assert!(matches!(Dump::open(&path), Err(DumpError::Io { .. })));
}

#[test]
fn only_selected_traces_are_extracted() {
    let machine = machine(&[
        trace(1, "net-in", vec![process(1, 1, 10), process(2, 1, 20)]),
        trace(2, "disk", vec![process(1, 1, 30)]),
        trace(3, "net-out", vec![process(2, 1, 40)]),
    ]);
    let asked = |traces: &[&str], processes: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmcore");
        save(&path, &machine, Style::Runs);
        let dump = ElfDump::open(&path).unwrap();
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let options = ExtractOptions {
            traces: strings(traces),
            processes: strings(processes),
            ..ExtractOptions::default()
        };
        let output = directory.path().join("out");
        fs::create_dir(&output).unwrap();
        let extraction = extract(&dump, machine.root, &options, &output).unwrap();
        let directories = fs::read_dir(&output).unwrap().count();
        assert_eq!(directories, extraction.traces.len());
        let events = extraction.traces.iter().map(|trace| {
            let counts = trace.processes.iter().map(|process| process.events);
            (trace.name.clone(), counts.collect::<Vec<_>>())
        });
        (events.collect::<Vec<_>>(), extraction.others)
    };
    let all = |traces: &[(&str, &[u64])]| {
        let traces = traces.iter();
        traces
            .map(|(name, counts)| ((*name).to_owned(), counts.to_vec()))
            .collect::<Vec<_>>()
    };
    let (found, others) = asked(&["net*"], &[]);
    assert_eq!(found, all(&[("net-in", &[10, 20]), ("net-out", &[40])]));
    assert_eq!(others, ["disk"]);
    let pid = process(2, 1, 0).pid.to_string();
    let (found, others) = asked(&[], &[&pid]);
    assert_eq!(
        found,
        all(&[("net-in", &[20]), ("disk", &[]), ("net-out", &[40])])
    );
    assert!(others.is_empty());
    let comm = process(1, 1, 0).comm;
    let pattern = format!("{}*", &comm[..2]);
    assert_eq!(asked(&["disk"], &[&pattern]).0, all(&[("disk", &[30])]));
    assert_eq!(asked(&["none"], &[]).1.len(), 3);
}

/// Earlier losses are counted, but are not part of the selected end.
///
/// Requirements: C7
#[test]
fn only_the_last_before_the_crash_is_extracted() {
    const EVENTS: u64 = 1600;
    let mut process = process(1, 2, 0);
    for n in 0..EVENTS {
        let ring = &mut process.main[(n % 2) as usize];
        ring.event(1, at(10 * n), &n.to_le_bytes());
        ring.lost += match n {
            100 => 5,
            1400 => 3,
            _ => 0,
        };
    }
    // The other process has no events in that time.
    let machine = machine(&[trace(1, "mine", vec![process, self::process(2, 1, 20)])]);
    let crash = |cycles| Crash {
        cycles,
        ..Crash::default()
    };
    let extracted = |last, crash| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmcore");
        save(&path, &machine, Style::Runs);
        let dump = ElfDump::open(&path).unwrap();
        let options = ExtractOptions {
            crash,
            last: Some(Duration::from_nanos(last)),
            ..ExtractOptions::default()
        };
        let output = directory.path().join("out");
        fs::create_dir(&output).unwrap();
        let extraction = extract(&dump, machine.root, &options, &output)?;
        Ok::<_, ExtractError>(Extracted {
            directory,
            extraction,
        })
    };
    let check = |last, first, discarded| {
        let extracted = extracted(last, crash(Some(at(10 * EVENTS)))).unwrap();
        assert!(!extracted.extraction.is_damaged());
        let read = extracted.read();
        assert_eq!(numbers(&read), (first..EVENTS).collect::<Vec<_>>());
        assert_eq!(read.discarded, discarded);
        let [process, other] = &extracted.extraction.traces[0].processes[..] else {
            panic!("{:?}", extracted.extraction);
        };
        assert_eq!((process.events, process.earlier), (EVENTS - first, first));
        assert_eq!((other.events, other.earlier), (0, 20));
        // The total of losses, at any time.
        assert_eq!(process.lost, 8);
        let rings: u64 = process.rings.iter().map(|ring| ring.events).sum();
        assert_eq!(rings, EVENTS - first);
        let ns = SYNC[2] as i64 + 10 * first as i64;
        assert_eq!(process.first_event_ns, Some(ns));
    };
    check(3000, 1300, 3);
    check(15_800, 20, 8);
    let error = extracted(3000, crash(None)).err().unwrap();
    assert!(matches!(error, ExtractError::NoInstant), "{error}");
    // An instant before the clock's start.
    let error = extracted(3000, crash(Some(1))).err().unwrap();
    assert!(matches!(error, ExtractError::NoInstant), "{error}");
}

/// The cost of an extraction depends only on the amount of traced data.
///
/// Requirements: C7
#[test]
fn extraction_reads_only_needed_pages() {
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
        &ExtractOptions::default(),
        directory.path(),
    )
    .unwrap();
    assert_eq!(extraction.events(), 100);
    assert!(counting.1.get() < 100 * PAGE, "{}", counting.1.get());
}

/// Extracts arbitrary bytes: it must end without a panic, and any trace must be readable.
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
    if let Ok(extraction) = extract(&dump, root, &ExtractOptions::default(), &output)
        && read
    {
        let read = babeltrace::lines(&output);
        assert_eq!(read.lines.len() as u64, extraction.events());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any bytes in the file.
    ///
    /// Requirements: F4
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

    /// Memory of the kernel in which words are replaced by meaningful ones.
    ///
    /// Requirements: F4
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

    /// Any words in the kernel's page tables, and in the pages that they lead to.
    ///
    /// Requirements: F4
    #[test]
    fn no_page_tables_are_too_strange(
        changes in prop::collection::vec((0usize..5, 0u64..512, any::<u64>(), any::<bool>()), 1..20),
    ) {
        let mut machine = one(0);
        let root = machine.root;
        map_image(&mut machine, LOW, 5, &[(root, READ_ONLY)]);
        let mut tables = vec![LOW];
        for at in [511, 511, 510, 8] {
            let table = machine.memory.load(tables.last().unwrap() + 8 * at) & !(PAGE - 1);
            tables.push(table);
        }
        for (table, at, word, is_table) in changes {
            let word = if is_table { tables[word as usize % tables.len()] | TABLE } else { word };
            machine.memory.store(tables[table] + 8 * at, word);
        }
        let found = find_roots(&Flooded::new(&machine), std::iter::once(0..1 << 22), true);
        prop_assert!(found.best.len() <= 16);
    }

    /// Any bytes as the root page.
    ///
    /// Requirements: F4
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
            usertrace_testing::words(&mut bytes, &[word]);
        }
        let _ = Directory::read(&Root(bytes), 0, &mut Problems::default());
    }
}
