//! Charges and limits of pages, and what happens without memory (C3, F2, F6).

use std::fs;
use std::sync::atomic::Ordering;

use usertrace::Outcome;
use usertrace_sys::uapi::LttSubbuf;
use usertrace_testing::wait;
use usertrace_tests::accounting::Cgroup;
use usertrace_tests::areas::Areas;
use usertrace_tests::child::{self, Child};
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::{self, Trace};
use usertrace_tests::event::{self, attach};
use usertrace_tests::reader::Reader;
use usertrace_tests::shared::Shared;
use usertrace_tests::{cpu, parse};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    idle_processes_and_traces_cost_no_page,
    idle_cpus_cost_no_page,
    memory_use_follows_the_documented_formula,
    prefault_allocates_all_pages_at_once,
    process_limit_is_enforced,
    user_limit_covers_all_processes_of_the_user,
    total_limit_is_enforced_and_can_be_raised,
    buffers_of_dead_processes_count,
    losses_are_reported_and_end_with_the_shortage,
    overwriting_ring_recovers_from_a_shortage,
    full_cgroup_keeps_a_reserve_for_the_program,
];

const PAGE: usize = 4096;

fn wait_for_nothing_held() {
    wait::until("nothing is held", || control::memory().total == 0);
}

/// Writes to each page of a ring, in order.
fn fill(ring: &usertrace_tests::areas::Ring, pages: usize) {
    (0..pages).for_each(|page| ring.write(page * PAGE, 1));
}

/// Requirements: C3
fn idle_processes_and_traces_cost_no_page() {
    wait_for_nothing_held();
    let _stopped = Trace::create("stopped");
    let active = Trace::started("active");
    // They have buffers, and write nothing.
    let mut idle: Vec<_> = (0..3)
        .map(|_| {
            let mut child = Child::spawn(|link| {
                attach();
                link.send(0);
                link.receive();
            });
            child.link.receive();
            child
        })
        .collect();
    let stats = active.stats();
    assert_eq!(stats.processes.len(), 3);
    // The library describes the event that this program has: that is a page of one ring and one of
    // control blocks, and what leads there.
    let described = stats.pages();
    for process in &mut idle {
        process.link.send(0);
        process.wait();
    }
    assert!(
        (1..=3 * 5).contains(&described),
        "{described} pages of three"
    );
    wait_for_nothing_held();
    // By hand, without an event to describe: nothing at all.
    child::run(|| {
        let areas = Areas::map(0);
        let slot = areas.must_next();
        assert!(
            areas.next().is_none(),
            "none of a trace that was not started"
        );
        assert_eq!(slot.ring(1, 0).read(0), 0);
        assert_eq!(active.stats().pages(), 0);
        assert_eq!(control::memory().total, 0);
    });
}

/// Requirements: C3
fn idle_cpus_cost_no_page() {
    wait_for_nothing_held();
    let trace = Trace::started_with("processors", 65536, 4);
    child::run(|| {
        cpu::pin(0);
        attach();
        let before = trace.stats().pages();
        assert_eq!(event::write(0, 0), Outcome::Recorded);
        let one = trace.stats().pages() - before;
        // Its page, and those that lead there; no more for the other processors.
        assert!((1..=3).contains(&one), "{one} pages");
        for number in 1..100 {
            event::write(0, number);
        }
        assert_eq!(trace.stats().pages() - before, one);
    });
}

/// Requirements: C3
fn memory_use_follows_the_documented_formula() {
    const SUBBUFS: usize = 8;
    const SUBBUF: usize = 65536;
    wait_for_nothing_held();
    let trace = Trace::started_with("formula", SUBBUF as u32, SUBBUFS as u32);
    child::run(|| {
        let slot = Areas::map(0).must_next();
        for rings in 1..=2 {
            let ring = slot.ring(1, rings - 1);
            ring.head().store(0, Ordering::Relaxed);
            fill(&ring, SUBBUF * SUBBUFS / PAGE);
            let ring_pages = SUBBUF * SUBBUFS / PAGE;
            // Rings used * (pages of a ring + those of the tree) + control blocks + 4.
            let most = rings * (ring_pages + ring_pages.div_ceil(512)) + 1 + 4;
            let pages = trace.stats().pages() as usize;
            assert!(
                (rings * ring_pages..=most).contains(&pages),
                "{pages}, not {most}"
            );
            assert_eq!(control::memory().total, (pages * PAGE) as u64);
        }
    });
}

/// Requirements: F2
fn prefault_allocates_all_pages_at_once() {
    wait_for_nothing_held();
    let trace = Trace::create("prefault");
    trace.set_geometry("main", 16384, 4);
    trace.write("main/prefault", "1").expect("prefault");
    trace.start();
    child::run(|| {
        let areas = Areas::map(0);
        let slot = areas.must_next();
        let rings = slot.channel(1).nr_rings as usize;
        let pages = trace.stats().pages();
        assert!(pages as usize >= rings * 16, "{pages}");
        let touch = |which: std::ops::Range<usize>| {
            for ring in which {
                fill(&slot.ring(1, ring), 16);
                slot.ring(1, ring).head().store(0, Ordering::Relaxed);
            }
        };
        // The code that writes comes by fault, too: the very same, as its pages may be brought in
        // one by one.
        touch(0..1);
        minor_faults();
        let faults = minor_faults();
        touch(1..rings);
        // Neither a fault nor a page: this is what it is for.
        assert_eq!(minor_faults(), faults);
        assert_eq!(trace.stats().pages(), pages);
    });
}

fn minor_faults() -> libc::c_long {
    // SAFETY: all zeros is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it is written to.
    let done = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(done, 0);
    usage.ru_minflt
}

/// Writes to many pages in a process of a user, and returns how many it got.
fn pages_got(trace: &Trace, uid: u32) -> u64 {
    let before = trace.stats().sunk;
    let mut child = Child::spawn(|link| {
        // SAFETY: no arguments that are pointers.
        assert_eq!(unsafe { libc::setresuid(uid, uid, uid) }, 0);
        let slot = Areas::map(0).must_next();
        let ring = slot.ring(1, 0);
        ring.head().store(0, Ordering::Relaxed);
        fill(&ring, 256);
        link.send(0);
        link.receive();
    });
    child.link.receive();
    let held = control::memory();
    let of_user = held.users.iter().find(|user| user.0 == uid);
    let pages = of_user.expect("the user").1 / PAGE as u64;
    // The rest was lost, and counted: each first write to a page.
    assert!(trace.stats().sunk > before || pages >= 256);
    child.link.send(0);
    child.join();
    pages
}

/// Requirements: F6
fn process_limit_is_enforced() {
    wait_for_nothing_held();
    let trace = Trace::started_with("limited", 65536, 16);
    assert!(pages_got(&trace, 0) >= 256);
    wait_for_nothing_held();
    let limit = control::Limit::new("limit_process");
    limit.set(&(100 * PAGE).to_string());
    let got = pages_got(&trace, 0);
    assert!((85..=100).contains(&got), "{got}");
    limit.set("max");
    wait_for_nothing_held();
    assert!(pages_got(&trace, 0) >= 256);
}

/// Requirements: F6
fn user_limit_covers_all_processes_of_the_user() {
    wait_for_nothing_held();
    let trace = Trace::started_with("limited", 65536, 16);
    let limit = control::Limit::new("limit_user");
    limit.set(&(100 * PAGE).to_string());
    let mut first = Child::spawn(|link| {
        // SAFETY: no arguments that are pointers.
        assert_eq!(unsafe { libc::setresuid(1000, 1000, 1000) }, 0);
        let slot = Areas::map(0).must_next();
        fill(&slot.ring(1, 0), 50);
        link.send(0);
        link.receive();
    });
    first.link.receive();
    // Another process of that user has what is left, and another user all.
    let got = pages_got(&trace, 1000);
    assert!((85..=100).contains(&got), "{got} with those of the first");
    let got = pages_got(&trace, 1001);
    assert!((85..=100).contains(&got), "{got}");
    first.link.send(0);
    first.join();
}

/// Requirements: F6
fn total_limit_is_enforced_and_can_be_raised() {
    wait_for_nothing_held();
    let trace = Trace::started_with("limited", 65536, 16);
    let limit = control::Limit::new("limit_total");
    limit.allow_more(100 * PAGE as u64);
    let got = pages_got(&trace, 1000);
    assert!((85..=100).contains(&got), "{got}");
    wait_for_nothing_held();
    limit.set("max");
    assert!(pages_got(&trace, 1000) >= 256);
}

/// Requirements: F6
fn buffers_of_dead_processes_count() {
    wait_for_nothing_held();
    let trace = Trace::started_with("left", 65536, 16);
    child::run(|| {
        let slot = Areas::map(0).must_next();
        let ring = slot.ring(1, 0);
        ring.write_records(10);
        fill(&ring, 50);
    });
    wait::until("it is dead", || !trace.consumer_files("main").is_empty());
    let held = control::memory();
    assert!(held.total >= 50 * PAGE as u64);
    let of_users: Vec<_> = held.users.iter().filter(|user| user.1 != 0).collect();
    assert_eq!(of_users, [&(0, held.total)]);
    drop(trace);
    wait_for_nothing_held();
    assert!(control::memory().users.iter().all(|user| user.1 == 0));
}

/// Starts a program that receives a count, writes as many events on one CPU, switches, and sends
/// the total. It counts events on lost pages as recorded.
fn writer() -> Child {
    Child::spawn(|link| {
        cpu::pin(0);
        attach();
        let mut number = 0;
        while let Some(count) = link.try_receive() {
            for _ in 0..count {
                event::write(0, number);
                number += 1;
            }
            usertrace::flush().expect("its files");
            link.send(number);
        }
    })
}

/// A program continues to trace when memory is short. The reader gets each event that had memory,
/// and a report of the gap. When memory is available again and the reader has consumed the gap,
/// nothing is lost any more.
///
/// Requirements: F2
fn losses_are_reported_and_end_with_the_shortage() {
    wait_for_nothing_held();
    let trace = Trace::started_with("shortage", 65536, 4);
    let limit = control::Limit::new("limit_total");
    let mut child = writer();
    let mut write = |count| {
        child.link.send(count);
        child.link.receive()
    };
    // Half of the first sub-buffer.
    let there = write(1000);
    limit.allow_more(0);
    // The rest of it, and the one after that.
    let all = write(4000);
    let file = &trace.consumer_files("main")[0];
    let consumer = Consumer::open(file);
    let sunk = consumer.info().sunk;
    assert!(sunk > 0 && trace.stats().sunk == sunk);
    let rings = parse::rings(&consumer);
    let numbers: Vec<_> = rings[0].events.iter().map(|event| event.1).collect();
    let got = event::check_prefix(&numbers);
    // All that was there before, and what fitted into the pages that had come.
    assert!((there..all).contains(&got), "{got} of {there}");
    assert!(rings[0].missing > 0, "it is told");

    limit.set("max");
    // The reader is through with them.
    consumer.consume_all();
    let from = write(20_000) - 20_000;
    assert_eq!(consumer.info().sunk, sunk, "nothing more was lost");
    let rings = parse::rings(&consumer);
    // The rest of the lost page's sub-buffer is lost, too. All else is there, to the
    // last one that the ring has room for.
    let numbers: Vec<_> = rings[0].events.iter().map(|event| event.1).collect();
    assert!(numbers.len() > 5000, "{}", numbers.len());
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    assert!(numbers[0] >= from);
    drop(child);
}

/// A ring that overwrites has no consumer to mark lost pages as read: a shortage ends when writers
/// come to these pages again.
///
/// Requirements: F2
fn overwriting_ring_recovers_from_a_shortage() {
    wait_for_nothing_held();
    let trace = Trace::create("flight");
    trace.set_geometry("main", 65536, 4);
    trace.write("main/flight", "1").expect("flight");
    trace.start();
    let limit = control::Limit::new("limit_total");
    let mut child = writer();
    let mut write = |count| {
        child.link.send(count);
        child.link.receive()
    };
    // A part of the first sub-buffer, and then all places of the ring without memory.
    write(1000);
    limit.allow_more(0);
    write(30_000);
    let file = &trace.consumer_files("main")[0];
    let look = || {
        let (mut numbers, mut gaps) = (Vec::new(), 0);
        let mut reader = Reader::open(file).expect("its file");
        reader.look(|_, (_, number)| numbers.push(number), |_, _| gaps += 1);
        (numbers, gaps)
    };
    assert!(look().1 > 0 && trace.stats().sunk > 0);
    limit.set("max");
    let (numbers, all) = wait::until_some("all that it writes is there again", || {
        // Each place of the ring twice.
        let all = write(20_000);
        let (numbers, gaps) = look();
        (gaps == 0).then_some((numbers, all))
    });
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    assert_eq!(numbers.last(), Some(&(all - 1)));
    // Three sub-buffers of four at least.
    let room = 3 * (65536 - size_of::<LttSubbuf>()) / event::RECORD_LEN;
    assert!(numbers.len() >= room, "{} of {room}", numbers.len());
}

/// Buffers, which cannot be reclaimed, may take seven eighths of a cgroup. The rest is for the
/// program, which the kernel would kill without memory of its own.
///
/// Requirements: F2
fn full_cgroup_keeps_a_reserve_for_the_program() {
    const LIMIT: u64 = 32 << 20;
    let trace = Trace::started_with("reserve", 1 << 20, 32);
    let group = Cgroup::new("reserve");
    let go_on = Shared::new();
    let mut child = Child::spawn(|link| {
        group.join();
        group.allow_more(Some(LIMIT));
        let slot = Areas::map(0).must_next();
        slot.switch().expect("its files");
        for ring in 0..2 {
            fill(&slot.ring(1, ring), (32 << 20) / PAGE);
        }
        link.send(0);
        link.receive();
        // Its own memory: what it opens, and what it allocates.
        let files: Vec<_> = (0..200)
            .map(|_| fs::File::open("/proc/self/stat").expect("a file"))
            .collect();
        let own = vec![1u8; (LIMIT / 16) as usize];
        go_on
            .get()
            .store(files.len() as u64 + u64::from(own[17]), Ordering::Release);
    });
    child.link.receive();
    let stats = trace.stats();
    assert!(stats.sunk > 0, "there was not memory for all");
    let held = stats.pages() * PAGE as u64;
    assert!(
        (LIMIT / 2..LIMIT * 15 / 16).contains(&held),
        "{held} bytes of {LIMIT}"
    );
    child.link.send(0);
    child.join();
    assert_eq!(go_on.get().load(Ordering::Acquire), 201);
    group.allow_more(None);
}
