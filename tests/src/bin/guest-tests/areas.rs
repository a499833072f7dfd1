//! The three areas: where their pages come from, what a program may do to the mappings, and which
//! processes have them (C1–C3, C9, A5, F2).

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use nix::sys::signal::Signal;
use usertrace_testing::wait;
use usertrace_tests::accounting::{Cgroup, resident_pages};
use usertrace_tests::areas::{Areas, Slot, head_after, peek, poke};
use usertrace_tests::child::{self, Child};
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::Trace;
use usertrace_tests::guest::scaled;
use usertrace_tests::raw::Pages;
use usertrace_tests::{cpu, maps};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    reading_an_untouched_area_allocates_nothing,
    first_write_to_a_ring_allocates_one_page,
    write_inside_a_ring_allocates_surrounding_pages,
    write_replaces_the_zero_page_in_every_mapping,
    pages_are_charged_to_the_programs_cgroup,
    info_area_cannot_be_written,
    rights_of_areas_cannot_be_changed,
    areas_cannot_be_split_or_moved,
    writes_without_a_trace_do_no_harm,
    buffers_come_when_the_program_asks,
    fork_child_has_no_areas,
    fork_child_gets_its_own_areas,
    exec_unmaps_the_areas,
    written_events_survive_exit,
];

/// Addresses of all pages that a trace's slot uses, and of some in all others.
fn sample(areas: &Areas, slot: &Slot) -> Vec<usize> {
    let at = &areas.at;
    let mut pages = Vec::new();
    for channel in 0..2 {
        for ring in 0..slot.channel(channel).nr_rings as usize {
            let ring = slot.ring(channel, ring);
            pages.extend((ring.address..ring.address + ring.len).step_by(4096));
        }
    }
    pages.extend(
        (at.control..at.control + at.control_len)
            .step_by(4096)
            .map(|a| a as usize),
    );
    let step = at.buffers_len / scaled(8192);
    pages.extend(
        (at.buffers..at.buffers + at.buffers_len)
            .step_by(step as usize)
            .map(|a| a as usize & !4095),
    );
    pages
}

/// Requirements: C3
fn reading_an_untouched_area_allocates_nothing() {
    child::run(|| {
        let trace = Trace::started("untouched");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        let group = Cgroup::enter("untouched");
        let pages = sample(&areas, &slot);
        let count = pages.len() as u64;
        assert!(count > 1024, "enough to be seen in the cgroup's account");
        let before = (trace.stats(), resident_pages(), group.kernel_pages());
        for &page in &pages {
            // SAFETY: within the areas.
            assert_eq!(unsafe { peek(page) }, 0);
        }
        assert_eq!(trace.stats(), before.0);
        assert_eq!(trace.stats().pages(), 0, "the kernel's own account");
        // Resident memory has not changed: the vector above was allocated before.
        let resident = resident_pages();
        assert!(
            resident < before.1 + count / 4,
            "{resident} from {}",
            before.1
        );
        let charged = group.kernel_pages();
        assert!(
            charged < before.2 + count / 4,
            "{charged} from {}",
            before.2
        );
    });
}

/// A trace whose rings all lie in 2 MiB, and this process's buffers of it. The pages of the tree
/// exist, so each page that is allocated from now on belongs to a ring.
fn with_tree(name: &str) -> (Trace, Slot, u64) {
    let trace = Trace::create(name);
    trace.set_geometry("control", 4096, 2);
    trace.set_geometry("main", 65536, 4);
    trace.start();
    let slot = Areas::map(0).must_next();
    slot.ring(0, 0).write(0, 1);
    let pages = trace.stats().pages();
    // The page that was written, and one of the tree for each level.
    assert!((2..=4).contains(&pages), "{pages}");
    (trace, slot, pages)
}

/// Requirements: C3
fn first_write_to_a_ring_allocates_one_page() {
    child::run(|| {
        let (trace, slot, tree) = with_tree("first");
        let rings = [slot.ring(1, 0), slot.ring(1, 1)];
        for (ring, before) in rings.iter().zip(tree..) {
            assert_eq!(ring.read(0), 0);
            assert_eq!(trace.stats().pages(), before, "reading allocates nothing");
            ring.write(0, 1);
            assert_eq!(trace.stats().pages(), before + 1);
            ring.write(4095, 1);
            assert_eq!(ring.read(4096), 0);
            assert_eq!(trace.stats().pages(), before + 1, "the page is there");
        }
        // The control blocks have a tree of their own, here of one level, and one page is
        // enough for all.
        let before = trace.stats().pages();
        rings[0].lost().store(1, Ordering::Relaxed);
        let after = trace.stats().pages();
        assert_eq!(after, before + 2);
        rings[1].head().store(1, Ordering::Relaxed);
        assert_eq!(trace.stats().pages(), after);
    });
}

/// Requirements: C3
fn write_inside_a_ring_allocates_surrounding_pages() {
    child::run(|| {
        let (trace, slot, tree) = with_tree("inside");
        let ring = slot.ring(1, 0);
        // To the end of the aligned group of 16.
        ring.write(4096 * 33, 1);
        assert_eq!(trace.stats().pages(), tree + 15);
        for page in 33..48 {
            ring.write(4096 * page, 1);
        }
        assert_eq!(trace.stats().pages(), tree + 15, "they are there already");
        // Up to the next page that is there.
        ring.write(4096 * 32, 1);
        assert_eq!(trace.stats().pages(), tree + 16);
        // Never beyond the ring, and the next one's first page is one.
        ring.write(ring.len - 1, 1);
        assert_eq!(trace.stats().pages(), tree + 17);
        slot.ring(1, 1).write(0, 1);
        assert_eq!(trace.stats().pages(), tree + 18);
    });
}

/// Requirements: C3
fn write_replaces_the_zero_page_in_every_mapping() {
    child::run(|| {
        let trace = Trace::started("replaced");
        let slot = Areas::map(0).must_next();
        let ring = slot.ring(1, 0);
        slot.switch().expect("a consumer file");
        let consumer = Consumer::open(&trace.consumer_files("main")[0]);
        let view = consumer.map();
        for offset in [0, 4096 * 20, 4096 * 21] {
            assert_eq!((ring.read(offset), view.read(offset)), (0, 0));
        }
        for offset in [0, 4096 * 20, 4096 * 21] {
            ring.write(offset, 42);
            assert_eq!((ring.read(offset), view.read(offset)), (42, 42));
        }
        // Both map the same page, so later writes are visible, too.
        ring.write(1, 43);
        assert_eq!(view.read(1), 43);
    });
}

/// Requirements: F6
fn pages_are_charged_to_the_programs_cgroup() {
    child::run(|| {
        let trace = Trace::started_with("charged", 1 << 20, 16);
        let slot = Areas::map(0).must_next();
        let group = Cgroup::enter("charged");
        let ring = slot.ring(1, 0);
        let (pages, before) = (ring.len / 4096, group.kernel_pages());
        for page in 0..pages {
            ring.write(4096 * page, 1);
        }
        let stats = trace.stats().pages();
        assert!(
            (pages as u64..pages as u64 + 64).contains(&stats),
            "{stats}"
        );
        let charged = group.kernel_pages() - before;
        assert!(
            (stats * 3 / 4..stats * 5 / 4).contains(&charged),
            "{charged} for {stats}"
        );
        // The pages are freed when the trace is gone and the program has acknowledged that.
        drop(trace);
        let _ = slot.update();
        wait::until("the pages are given back", || {
            group.kernel_pages() < before + charged / 4
        });
    });
}

/// Requirements: C9
fn info_area_cannot_be_written() {
    let _trace = Trace::started("info");
    let mut touched = 0;
    for page in 0..17 {
        child::run_to_death(Signal::SIGSEGV, || {
            let areas = Areas::map(0);
            let address = areas.at.info as usize + 4096 * page;
            // SAFETY: within the area, which may be read. The write is meant to kill this process
            // die.
            unsafe {
                let _ = peek(address);
                poke(address, 1);
            }
        });
        touched += 1;
    }
    assert_eq!(touched, 17);
    // Nor through /proc.
    child::run(|| {
        let areas = Areas::map(0);
        let before = areas.info(0);
        let memory = OpenOptions::new()
            .write(true)
            .open("/proc/self/mem")
            .expect("/proc/self/mem");
        assert!(memory.write_all_at(&[1], areas.at.info + 8).is_err());
        assert_eq!(areas.info(0), before);
    });
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn mprotect(address: usize, len: usize, rights: i32) -> Result<(), i32> {
    // SAFETY: rights to the areas, to which no reference is held.
    match unsafe { libc::mprotect(address as *mut libc::c_void, len, rights) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Requirements: C9
fn rights_of_areas_cannot_be_changed() {
    child::run(|| {
        let _trace = Trace::started("rights");
        let areas = Areas::map(0);
        let before = maps::areas();
        let at = areas.at;
        let (read, write, exec) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
        for rights in [write, read | write, read | exec, read | write | exec] {
            let ret = mprotect(at.info as usize, at.info_len as usize, rights);
            assert_eq!(ret, Err(libc::EACCES), "info, {rights}");
            // The kernel would have to split the mapping.
            let ret = mprotect(at.info as usize, 4096, rights);
            assert!(ret.is_err(), "a page of info, {rights}");
        }
        for (start, len) in [(at.buffers, at.buffers_len), (at.control, at.control_len)] {
            for rights in [read | exec, read | write | exec] {
                let ret = mprotect(start as usize, len as usize, rights);
                assert_eq!(ret, Err(libc::EACCES), "{rights}");
            }
            assert!(mprotect(start as usize, 4096, read).is_err());
        }
        assert_eq!(maps::areas(), before);
    });
}

/// Requirements: C2
fn areas_cannot_be_split_or_moved() {
    child::run(|| {
        let _trace = Trace::started("split");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        slot.ring(1, 0).write(0, 42);
        let before = maps::areas();
        let at = areas.at;
        for (start, len) in [
            (at.buffers as usize, at.buffers_len as usize),
            (at.control as usize, at.control_len as usize),
            (at.info as usize, at.info_len as usize),
        ] {
            for (from, size) in [
                (start, 4096),
                (start + len - 4096, 4096),
                (start + 4096, 4096),
            ] {
                // SAFETY: it must fail; if it does not, nothing refers to the page.
                let ret = unsafe { libc::munmap(from as *mut libc::c_void, size) };
                assert_eq!((ret, errno()), (-1, libc::EINVAL), "munmap of {from:#x}");
                // SAFETY: likewise.
                let over = unsafe {
                    libc::mmap(
                        from as *mut libc::c_void,
                        size,
                        libc::PROT_READ,
                        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                        -1,
                        0,
                    )
                };
                assert_eq!((over, errno()), (libc::MAP_FAILED, libc::EINVAL));
            }
            for (what, size) in [
                ("less", len - 4096),
                ("as it is", len),
                ("more", len + 4096),
            ] {
                // SAFETY: likewise.
                let moved = unsafe {
                    libc::mremap(start as *mut libc::c_void, len, size, libc::MREMAP_MAYMOVE)
                };
                let failed = moved == libc::MAP_FAILED;
                if what == "as it is" {
                    // There is nothing to do, so the call may succeed.
                    assert!(failed || moved as usize == start);
                } else {
                    let errno = errno();
                    assert!(
                        failed && [libc::EINVAL, libc::EFAULT].contains(&errno),
                        "{what}"
                    );
                }
            }
            let target = Pages::new(len / 4096, libc::PROT_NONE);
            // SAFETY: likewise; the target is this function's own.
            let moved = unsafe {
                libc::mremap(
                    start as *mut libc::c_void,
                    len,
                    len,
                    libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                    target.address() as *mut libc::c_void,
                )
            };
            let errno = errno();
            assert_eq!(moved, libc::MAP_FAILED);
            assert!([libc::EINVAL, libc::EFAULT].contains(&errno), "{errno}");
        }
        assert_eq!(maps::areas(), before);
        assert_eq!(slot.ring(1, 0).read(0), 42);
        assert!(slot.update().is_ok());
    });
}

/// Requirements: F2
fn writes_without_a_trace_do_no_harm() {
    child::run(|| {
        let areas = Areas::map(0);
        let at = areas.at;
        let slot_len = at.buffers_len as usize / 16;
        // Slots without a trace, and their ends.
        for slot in 0..16 {
            for offset in [0, 4096, slot_len - 4096] {
                let address = at.buffers as usize + slot * slot_len + offset;
                // SAFETY: within the area, where nothing else is.
                unsafe {
                    assert_eq!(peek(address), 0);
                    poke(address, 1);
                    let _ = peek(address);
                }
            }
        }
        for address in (at.control..at.control + at.control_len).step_by(4096) {
            // SAFETY: likewise.
            unsafe { poke(address as usize, 1) };
        }
        // A new trace begins with zeros.
        let trace = Trace::started("clean");
        let slot = areas.must_next();
        let ring = slot.ring(1, 0);
        assert_eq!(ring.read(0), 0);
        assert_eq!(ring.head().load(Ordering::Relaxed), 0);
        assert_eq!(slot.ring(0, 0).read(0), 0);
        assert_eq!(trace.stats().pages(), 0);
    });
}

/// An active trace gives a process nothing by itself: `alloc_tracebuf` maps the areas, and
/// `ltt_update` gives the buffer. A write before that reaches no buffer.
///
/// Requirements: A6
fn buffers_come_when_the_program_asks() {
    child::run(|| {
        let own = nix::unistd::getpid();
        let trace = Trace::started("asked");
        assert_eq!(maps::areas(), []);
        assert_eq!(trace.process(own), None);
        let areas = Areas::map(0);
        assert_eq!(maps::areas().len(), 3);
        assert_eq!(trace.process(own), None);
        let slot_len = areas.at.buffers_len as usize / 16;
        let early = areas.at.buffers as usize + trace.stats().slot * slot_len;
        // SAFETY: within the write area, where no Rust object is.
        unsafe { poke(early, 1) };
        assert_eq!(trace.process(own), None);
        let slot = areas.must_next();
        assert_eq!(slot.address, early);
        assert_eq!(trace.process(own).map(|process| process.pages), Some(0));
        assert_eq!(slot.ring(0, 0).read(0), 0);
        slot.ring(1, 0).write(0, 42);
        assert_eq!(slot.ring(1, 0).read(0), 42);
        assert!(trace.stats().pages() > 0);
    });
}

/// Requirements: A5
fn fork_child_has_no_areas() {
    child::run(|| {
        let trace = Trace::started("parent");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        slot.ring(1, 0).write(0, 42);
        let info = areas.at.info as usize;
        for address in [slot.address, slot.ring(1, 0).control, info] {
            child::run_to_death(Signal::SIGSEGV, || {
                // SAFETY: this process is meant to die.
                let _ = unsafe { peek(address) };
            });
        }
        child::run(|| {
            assert_eq!(maps::areas(), []);
            assert_eq!(areas.calls.update(&mut None), Err(syscalls::Errno::ENXIO));
            assert_eq!(slot.switch(), Err(syscalls::Errno::ENXIO));
        });
        // The parent lost nothing.
        assert_eq!(slot.ring(1, 0).read(0), 42);
        assert_eq!(trace.stats().processes.len(), 1);
        assert!(slot.update().is_ok());
    });
}

/// Requirements: A5
fn fork_child_gets_its_own_areas() {
    child::run(|| {
        let trace = Trace::started("own");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        slot.ring(1, 0).write_records(1);
        let mut child = Child::spawn(|link| {
            let own = Areas::map(0).must_next();
            assert_eq!(own.ring(1, 0).read(28), 0, "it begins with zeros");
            own.ring(1, 0).write_records(2);
            link.send(0);
            link.receive();
        });
        child.link.receive();
        let stats = trace.stats();
        assert_eq!(stats.processes.len(), 2);
        let mut heads: Vec<_> = stats.rings.iter().map(|ring| ring.head).collect();
        heads.sort_unstable();
        assert_eq!(heads, [head_after(1), head_after(2)]);
        child.link.send(0);
        child.join();
    });
}

/// Requirements: A5
fn exec_unmaps_the_areas() {
    let trace = Trace::started("exec");
    let child = Child::spawn(|_| {
        let slot = Areas::map(0).must_next();
        slot.ring(1, 0).write_records(1);
        let program = CString::from(c"/bin/sh");
        // The new program has no areas, and lives as long as its standard input is
        // open.
        let script = CString::from(c"! grep -q '\\[ltt\\]' /proc/$$/maps");
        let _ = nix::unistd::execv(&program, &[c"sh", c"-c", &script]);
        panic!("exec failed");
    });
    let name = format!("{}.", child.pid());
    child.join();
    // The events from before are there.
    wait::until("the file of the old program", || {
        trace.consumer_files("main").len() == 1
    });
    let stats = trace.stats();
    assert!(stats.processes[0].name.starts_with(&name));
    assert_eq!(stats.processes[0].state, "dead");
    assert_eq!(stats.rings[0].head, head_after(1));
}

/// Requirements: A10
fn written_events_survive_exit() {
    let trace = Trace::started("exit");
    child::run(|| {
        cpu::pin(0);
        Areas::map(0).must_next().ring(1, 0).write_records(5);
    });
    wait::until("the kernel knows of the end", || {
        trace
            .stats()
            .processes
            .iter()
            .all(|process| process.state == "dead")
    });
    let stats = trace.stats();
    assert_eq!(stats.rings.len(), 1);
    assert_eq!(stats.rings[0].head, head_after(5));
}
