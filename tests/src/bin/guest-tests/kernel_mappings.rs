//! The kernel's own mappings of the buffers: only the direct map, which has all memory (C6).

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use usertrace_sys::files;
use usertrace_sys::uapi::LTT_RING_ALL;
use usertrace_testing::wait;
use usertrace_tests::areas::Areas;
use usertrace_tests::child::Child;
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::Trace;
use usertrace_tests::guest::scaled;
use usertrace_tests::page_tables::KernelMemory;
use usertrace_tests::{event, parse};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    page_table_walk_finds_every_mapping,
    ring_pages_are_in_the_direct_map_only,
];

/// The kernel maps its image twice: where it runs, and in the direct map. So the walk finds a
/// second mapping, which [`ring_pages_are_in_the_direct_map_only`] relies on.
///
/// Requirements: C6
fn page_table_walk_finds_every_mapping() {
    let memory = KernelMemory::open();
    let (address, physical) = memory.top_table();
    let found = memory.mappings(&BTreeSet::from([physical]));
    let addresses = &found[&physical];
    assert!(addresses.contains(&address), "{addresses:x?}");
    assert_eq!(addresses.len(), 2, "{addresses:x?}");
}

/// Checks that the kernel maps each page of all rings, at least `least`, in the direct map only.
fn check(what: &str, least: usize) {
    let memory = KernelMemory::open();
    let (_, top) = memory.top_table();
    let pages = memory.ring_pages();
    assert!(pages.len() >= least, "{what}: {} pages", pages.len());
    let mut wanted = pages.clone();
    wanted.insert(top);
    let found = memory.mappings(&wanted);
    // The direct map has one distance for all pages. One mapping of the top table has it, too.
    let direct: Vec<_> = found[&top].iter().map(|at| at.wrapping_sub(top)).collect();
    for page in pages {
        let addresses = &found[&page];
        assert_eq!(addresses.len(), 1, "{what}: {page:#x} at {addresses:x?}");
        let distance = addresses[0].wrapping_sub(page);
        assert!(
            direct.contains(&distance),
            "{what}: {page:#x} at {addresses:x?}"
        );
    }
}

/// Checks the mappings after writes, after a consumer's reads and switch, after the death of the
/// process, and after the removal of the trace.
///
/// Requirements: C6
fn ring_pages_are_in_the_direct_map_only() {
    const SUBBUF: u32 = 65536;
    let count = scaled(20_000);
    let trace = Trace::started_with("pages", SUBBUF, 64);
    let mut child = Child::spawn(|link| {
        event::attach();
        for number in 0..count {
            event::write(0, number);
        }
        link.send(0);
        link.receive();
    });
    child.link.receive();
    let least = count as usize * event::RECORD_LEN / 4096;
    check("written", least);
    let consumer = Consumer::open(&trace.consumer_files("main")[0]);
    let events: usize = parse::rings(&consumer)
        .iter()
        .map(|ring| ring.events.len())
        .sum();
    assert_eq!(events as u64, count);
    // Only here the kernel itself writes to a ring: the padding that ends a sub-buffer.
    files::end_subbuf(consumer.file().as_fd(), LTT_RING_ALL).expect("it ends");
    consumer.consume_all();
    check("read", least);
    child.link.send(0);
    child.join();
    trace.stop();
    check("dead", least);
    drop(trace);
    check("removed", 0);
    drop(consumer);
    wait::until("all pages are free", || {
        KernelMemory::open().ring_pages().is_empty()
    });
    // The same for each page of a whole ring, without the library.
    let trace = Trace::started_with("by-hand", SUBBUF, 64);
    let mut child = Child::spawn(|link| {
        let slot = Areas::map(0).must_next();
        let ring = slot.ring(1, 0);
        for page in 0..ring.len / 4096 {
            ring.write(4096 * page, 1);
        }
        link.send((ring.len / 4096) as u64);
        link.receive();
    });
    let pages = child.link.receive() as usize;
    check("by hand", pages);
    child.link.send(0);
    child.join();
    drop(trace);
}
