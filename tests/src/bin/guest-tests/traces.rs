//! Traces in the control file system: names, slots, geometry, creation and removal (A7, A9, C2, E1,
//! E2).

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use syscalls::Errno;
use usertrace_testing::wait;
use usertrace_tests::areas::{Areas, head_after, poke};
use usertrace_tests::child::{self, Child};
use usertrace_tests::control::{self, Trace};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    mkdir_creates_a_stopped_trace,
    start_and_stop_are_read_back,
    bad_trace_names_are_rejected,
    only_traces_can_be_created,
    sixteen_traces_can_be_active_at_once,
    geometry_is_read_back_and_used,
    bad_geometry_is_rejected_and_changes_nothing,
    first_start_fixes_the_geometry,
    each_trace_has_its_own_buffers,
    writer_survives_the_removal_of_its_trace,
    slot_is_reused_in_processes_that_acknowledged,
    process_exit_acknowledges_removals,
    only_root_reads_traces,
];

fn kind(result: std::io::Result<impl Sized>) -> Option<i32> {
    result.err().map(|e| e.raw_os_error().unwrap_or(0))
}

/// Requirements: E1
fn mkdir_creates_a_stopped_trace() {
    let trace = Trace::create("new");
    assert_eq!(trace.read("start"), "0\n");
    let stats = trace.stats();
    assert_ne!(stats.generation, 0);
    assert_eq!((stats.processes, stats.rings), (vec![], vec![]));
    for (channel, size, count) in [("control", 65536, 4), ("main", 262_144, 16)] {
        assert_eq!(
            trace.read(&format!("{channel}/subbuf_size")),
            format!("{size}\n")
        );
        assert_eq!(
            trace.read(&format!("{channel}/subbuf_count")),
            format!("{count}\n")
        );
        assert!(trace.consumer_files(channel).is_empty());
    }
    let path = trace.path().to_owned();
    trace.try_remove().expect("rmdir");
    assert!(!path.exists());
    // The name is free again, and its new trace is another one.
    let again = Trace::create("new");
    assert!(again.stats().generation > stats.generation);
}

/// Requirements: E1
fn start_and_stop_are_read_back() {
    let trace = Trace::create("start");
    for (text, read) in [("1", "1\n"), (" 1 \n", "1\n"), ("0\n", "0\n"), ("0", "0\n")] {
        trace.write("start", text).expect("good");
        assert_eq!(trace.read("start"), read);
    }
    trace.start();
    let before = (trace.read("start"), trace.stats());
    for bad in ["2", "-1", "01x", "start", "1 1", "\n", &"1".repeat(100)] {
        assert_eq!(
            kind(trace.write("start", bad)),
            Some(libc::EINVAL),
            "{bad:?}"
        );
        assert_eq!((trace.read("start"), trace.stats()), before, "{bad:?}");
    }
}

/// Requirements: E1
fn bad_trace_names_are_rejected() {
    let longest = "x".repeat(31);
    let entries = || fs::read_dir(control::ROOT).expect("a directory").count();
    let before = entries();
    let trace = Trace::create(&longest);
    assert_eq!(trace.read("start"), "0\n");
    let too_long = "x".repeat(32);
    for (name, errno) in [
        (too_long.as_str(), libc::ENAMETOOLONG),
        ("a b", libc::EINVAL),
        ("quote\"", libc::EINVAL),
        ("line\nbreak", libc::EINVAL),
        ("\u{e4}", libc::EINVAL),
        ("\u{7f}", libc::EINVAL),
        (longest.as_str(), libc::EEXIST),
        ("abi", libc::EEXIST),
    ] {
        assert_eq!(
            kind(Trace::try_create(name).map(std::mem::forget)),
            Some(errno),
            "{name:?}"
        );
    }
    assert_eq!(entries(), before + 1, "one trace");
}

/// Requirements: E1
fn only_traces_can_be_created() {
    let trace = Trace::create("fixed");
    let channel = trace.path().join("main");
    for path in [
        trace.path().join("file"),
        channel.join("file"),
        control::ROOT.to_owned().into(),
    ] {
        let made = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path.join("x"));
        assert!(made.is_err());
    }
    assert!(fs::create_dir(channel.join("x")).is_err());
    assert!(fs::remove_file(trace.path().join("start")).is_err());
    assert!(fs::remove_dir(&channel).is_err());
    assert!(fs::rename(trace.path(), format!("{}/other", control::ROOT)).is_err());
    assert!(fs::remove_file(format!("{}/abi", control::ROOT)).is_err());
    assert_eq!(trace.read("start"), "0\n");
}

/// Creates as many traces as possible.
fn fill() -> Vec<Trace> {
    let mut traces = Vec::new();
    loop {
        match Trace::try_create(&format!("fill-{}", traces.len())) {
            Ok(trace) => traces.push(trace),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::StorageFull, "ENOSPC");
                return traces;
            }
        }
    }
}

/// Requirements: C2, E1
fn sixteen_traces_can_be_active_at_once() {
    let mut traces = fill();
    assert_eq!(traces.len(), 16);
    let mut slots: Vec<_> = traces.iter().map(|trace| trace.stats().slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..16).collect::<Vec<_>>());
    // Removing one makes room for another.
    drop(traces.remove(7));
    let again = Trace::create("again");
    assert_eq!(
        kind(Trace::try_create("more").map(std::mem::forget)),
        Some(libc::ENOSPC)
    );
    // All can be active at once, in one process (C2).
    traces.push(again);
    traces.iter().for_each(Trace::start);
    child::run(|| {
        let areas = Areas::map(0);
        let given: Vec<_> = std::iter::from_fn(|| areas.next()).collect();
        assert_eq!(given.len(), 16);
        for (slot, update) in &given {
            assert!(update.active);
            slot.ring(1, 0).write(0, slot.index as u8 + 1);
        }
        for (slot, _) in &given {
            assert_eq!(slot.ring(1, 0).read(0), slot.index as u8 + 1);
        }
        assert_eq!(areas.info(0).0.active, 0xffff);
    });
}

/// Requirements: E2
fn geometry_is_read_back_and_used() {
    child::run(|| {
        let areas = Areas::map(0);
        for (size, count) in [(4096, 2), (8192, 128), (1 << 25, 2), (4096, 1 << 14)] {
            let trace = Trace::started_with("geometry", size, count);
            assert_eq!(trace.read("main/subbuf_size"), format!("{size}\n"));
            assert_eq!(trace.read("main/subbuf_count"), format!("{count}\n"));
            let slot = areas.must_next();
            let channel = slot.channel(1);
            assert_eq!((channel.subbuf_size, channel.subbuf_count), (size, count));
            // Both ends of the last ring can be written.
            let ring = slot.ring(1, channel.nr_rings as usize - 1);
            ring.write(0, 1);
            ring.write(ring.len - 1, 2);
            assert_eq!((ring.read(0), ring.read(ring.len - 1)), (1, 2));
            let slot_len = areas.at.buffers_len as usize / 16;
            assert!(ring.address + ring.len <= slot.address + slot_len);
            drop(trace);
            assert_eq!(slot.update(), Err(Errno::ENOENT));
        }
    });
}

/// Requirements: E2
fn bad_geometry_is_rejected_and_changes_nothing() {
    let trace = Trace::create("bad-geometry");
    for channel in ["main", "control"] {
        let (size, count) = (
            format!("{channel}/subbuf_size"),
            format!("{channel}/subbuf_count"),
        );
        let before = (trace.read(&size), trace.read(&count));
        for bad in [
            "0",
            "1",
            "2048",
            "4095",
            "4097",
            "12288",
            "67108864",
            "134217728",
            "4294967296",
            "18446744073709551616",
            "-4096",
            "0x1000",
            "4k",
            "",
            "\n",
            "4096 4096",
        ] {
            assert_eq!(
                kind(trace.write(&size, bad)),
                bad_write(bad),
                "{size}: {bad:?}"
            );
        }
        for bad in [
            "0",
            "1",
            "3",
            "17",
            "1048576",
            "-2",
            "9223372036854775808",
            "two",
        ] {
            assert_eq!(
                kind(trace.write(&count, bad)),
                bad_write(bad),
                "{count}: {bad:?}"
            );
        }
        assert_eq!((trace.read(&size), trace.read(&count)), before);
    }
}

/// Writes a bad text, and returns the error. An empty write makes no call, and has none.
fn bad_write(text: &str) -> Option<i32> {
    (!text.is_empty()).then_some(libc::EINVAL)
}

/// Requirements: E2
fn first_start_fixes_the_geometry() {
    let trace = Trace::started("fixed");
    for when in ["started", "stopped", "started again"] {
        match when {
            "stopped" => trace.stop(),
            "started again" => trace.start(),
            _ => {}
        }
        for (file, value) in [
            ("main/subbuf_size", "4096"),
            ("main/subbuf_count", "2"),
            ("control/subbuf_size", "4096"),
            ("main/subbuf_size", "262144"),
        ] {
            assert_eq!(
                kind(trace.write(file, value)),
                Some(libc::EBUSY),
                "{when}: {file}"
            );
        }
    }
    assert_eq!(trace.read("main/subbuf_size"), "262144\n");
}

/// Requirements: A7
fn each_trace_has_its_own_buffers() {
    child::run(|| {
        let (a, b) = (Trace::started("a"), Trace::started("b"));
        let areas = Areas::map(0);
        let mut slots = [areas.must_next(), areas.must_next()];
        // In the order of creation: the second trace may have a lower slot, freed after the first
        // was created.
        slots.sort_by_key(|slot| areas.info(slot.index).1.slot.generation);
        let [of_a, of_b] = slots;
        assert_ne!(of_a.index, of_b.index);
        of_a.ring(1, 0).write_records(1);
        of_b.ring(1, 0).write_records(2);
        of_b.ring(1, 1).lost().store(7, Ordering::Relaxed);
        assert_eq!(of_a.ring(1, 1).lost().load(Ordering::Relaxed), 0);
        assert_eq!(
            of_a.ring(1, 0).read(head_after(1) as usize + 8),
            0,
            "one record"
        );
        assert_eq!(
            of_b.ring(1, 0).read(head_after(1) as usize + 8),
            1,
            "two records"
        );
        let heads = |trace: &Trace| -> Vec<_> {
            trace
                .stats()
                .rings
                .iter()
                .map(|ring| (ring.head, ring.lost))
                .collect()
        };
        assert_eq!(heads(&a), [(head_after(1), 0)]);
        assert_eq!(heads(&b), [(head_after(2), 0), (0, 7)]);
        // Each has its own active flag.
        a.stop();
        assert!(!of_a.update().expect("a").active);
        assert!(of_b.update().expect("b").active);
        let active = areas.info(of_b.index).0.active;
        assert_eq!(active, 1 << of_b.index);
        // Each ends alone.
        drop(a);
        assert_eq!(of_a.update(), Err(Errno::ENOENT));
        assert_eq!(of_b.ring(1, 0).read(head_after(1) as usize + 8), 1);
        assert!(of_b.update().expect("b").active);
    });
}

/// Requirements: A9
fn writer_survives_the_removal_of_its_trace() {
    for round in 0..3 {
        let trace = Trace::started_with("ends", 4096, 1024);
        let mut child = Child::spawn(|link| {
            let areas = Areas::map(0);
            let slot = areas.must_next();
            let ring = slot.ring(1, 0);
            link.send(0);
            // The writer gets no signal and makes no call. It writes to new and old pages of the
            // rings and control blocks.
            let mut written = 0u64;
            while areas.info(slot.index).1.slot.generation != 0 || written < 4096 {
                let offset = (written as usize * 4096) % ring.len;
                ring.write(offset, 1);
                let _ = ring.read((offset + ring.len / 2) % ring.len);
                ring.head().store(written, Ordering::Release);
                written += 1;
            }
            // It continues after the end, until it looks for changes.
            for offset in (0..ring.len).step_by(4096) {
                ring.write(offset, 2);
            }
            assert_eq!(slot.update(), Err(Errno::ENOENT));
            // SAFETY: within the write area, where no Rust object lies.
            unsafe { poke(ring.address, 3) };
        });
        child.link.receive();
        wait::until("it writes", || trace.stats().pages() > 16 * (round + 1));
        drop(trace);
        child.join();
    }
}

/// The slot of a removed trace is free at once. A process keeps its buffer there, and gets no
/// other, until it has acknowledged the removal. Other processes do not wait for that.
///
/// Requirements: A9
fn slot_is_reused_in_processes_that_acknowledged() {
    const ACKNOWLEDGE: u64 = 0;
    const WRITE: u64 = 1;
    const TAKE: u64 = 2;
    const END: u64 = 3;
    const NOTHING: u64 = u64::MAX;
    let trace = Trace::started("old");
    let (old, generation) = (trace.stats().slot, trace.stats().generation);
    let holder = || {
        let mut child = Child::spawn(|link| {
            let areas = Areas::map(0);
            let slot = areas.must_next();
            let ring = slot.ring(1, 0);
            ring.write(0, 42);
            link.send(slot.index as u64);
            while let Some(order) = link.try_receive() {
                let answer = match order {
                    ACKNOWLEDGE => {
                        assert_eq!(slot.update(), Err(Errno::ENOENT));
                        NOTHING
                    }
                    WRITE => {
                        ring.write(0, 43);
                        NOTHING
                    }
                    TAKE => areas.next().map_or(NOTHING, |(slot, _)| slot.index as u64),
                    _ => return,
                };
                link.send(answer);
            }
        });
        assert_eq!(child.link.receive(), old as u64);
        child
    };
    let (mut first, mut second) = (holder(), holder());
    let order = |child: &mut Child, order| {
        child.link.send(order);
        child.link.receive()
    };
    drop(trace);
    let traces = fill();
    assert_eq!(traces.len(), 16, "nobody keeps a slot from others");
    let new = traces
        .iter()
        .find(|trace| trace.stats().slot == old)
        .expect("one has the slot");
    assert!(new.stats().generation > generation);
    new.start();
    // Another process has it at once.
    child::run(|| assert_eq!(Areas::map(0).must_next().index, old));

    // These still write to the old trace's memory, and get no buffer in the slot.
    for child in [&mut first, &mut second] {
        assert_eq!(order(child, TAKE), NOTHING);
        order(child, WRITE);
    }
    assert_eq!(new.stats().pages(), 0);
    order(&mut first, ACKNOWLEDGE);
    assert_eq!(order(&mut first, TAKE), old as u64);
    order(&mut first, WRITE);
    let pages = new.stats().pages();
    assert!(pages > 0);
    // Each process acknowledges for itself.
    assert_eq!(order(&mut second, TAKE), NOTHING);
    order(&mut second, WRITE);
    assert_eq!(new.stats().pages(), pages);
    for mut child in [first, second] {
        child.link.send(END);
        child.join();
    }
}

/// A process that ends acknowledges all removals.
///
/// Requirements: A9
fn process_exit_acknowledges_removals() {
    let held = || control::memory().total;
    wait::until("nothing is left of others", || held() == 0);
    let trace = Trace::started("held");
    let mut child = Child::spawn(|link| {
        let slot = Areas::map(0).must_next();
        slot.ring(1, 0).write(0, 1);
        link.send(0);
        link.receive();
    });
    child.link.receive();
    drop(trace);
    assert!(held() > 0, "it may still write there");
    child.signal(nix::sys::signal::Signal::SIGKILL);
    child.wait();
    wait::until("nothing is held", || held() == 0);
}

/// Requirements: F5
fn only_root_reads_traces() {
    let trace = Trace::started("private");
    child::run(|| {
        let slot = Areas::map(0).must_next();
        slot.ring(1, 0).write_records(1);
        slot.switch().expect("a consumer file");
    });
    let file = trace.consumer_files("main").remove(0);
    child::run(|| {
        let nobody = nix::unistd::Uid::from_raw(65534);
        nix::unistd::setuid(nobody).expect("setuid");
        for path in [
            &file,
            &trace.path().join("start"),
            &trace.path().join("stats"),
        ] {
            let error = fs::File::open(path).expect_err("not for everybody");
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        }
        assert!(fs::read_dir(trace.path()).is_err());
        assert!(trace.write("start", "0").is_err());
        assert!(Trace::try_create("mine").is_err());
        assert!(trace.try_remove().is_err());
        // But it may be traced.
        let _ = Areas::map(0).must_next();
    });
    assert_eq!(trace.read("start"), "1\n");
}
