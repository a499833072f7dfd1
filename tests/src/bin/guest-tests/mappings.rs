//! System calls on the areas' memory, by the program and by others (A5, A10, C2, C9, F2, F5).
//!
//! These tests prove the table in `docs/lifecycle.md`. Whatever a call does, the trace has the
//! events from before and after it, and another traced program loses nothing.

use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use syscalls::{Errno, Sysno};
use usertrace_testing::wait;
use usertrace_tests::areas::{Areas, head_after, peek, poke};
use usertrace_tests::child::{self, Child};
use usertrace_tests::control::Trace;
use usertrace_tests::event::{attach, check_prefix};
use usertrace_tests::maps::{self, Mapping};
use usertrace_tests::raw::{Pages, call};

use crate::lifecycle::{Numbers, Scene};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    written_events_survive_unmapped_areas,
    areas_cannot_be_grown_copied_or_partly_covered,
    madvise_changes_no_area,
    mlock_locks_no_area,
    calls_for_mapped_files_change_no_area,
    area_cannot_be_mapped_again,
    adjacent_mappings_do_not_grow_into_an_area,
    stack_does_not_grow_into_an_area,
    userfaultfd_cannot_register_an_area,
    kernel_takes_no_reference_to_pages_of_areas,
    read_and_write_access_areas_like_loads_and_stores,
    proc_shows_the_areas_and_changes_nothing,
    areas_cannot_be_accessed_from_outside,
];

const READ: usize = libc::PROT_READ as usize;
const WRITE: usize = libc::PROT_WRITE as usize;
const PR_SET_VMA: usize = 0x5356_4d41;
const ANONYMOUS: usize = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
const PAGE: usize = 4096;

/// The result of a system call.
type SyscallResult = Result<usize, Errno>;

/// Runs `body` in a traced process, which writes events before and after it. Checks that all events
/// are recorded, the areas have not changed, and a bystander lost nothing.
fn amid_events(name: &str, body: impl FnOnce(&mut Numbers, &[Mapping])) {
    let scene = Scene::new(name);
    let mut child = Child::spawn(|link| {
        attach();
        let mut numbers = Numbers::default();
        numbers.write(10);
        let areas = maps::areas();
        assert_eq!(areas.len(), 3);
        body(&mut numbers, &areas);
        numbers.write(10);
        assert_eq!(maps::areas(), areas);
        link.send(numbers.written());
    });
    let written = child.link.try_receive();
    child.join();
    assert_eq!(Some(check_prefix(&scene.end_of_one())), written);
}

const WHOLE: &str = "whole";

/// The parts of an area on which calls are tried.
fn parts(area: &Mapping) -> [(&'static str, usize, usize); 4] {
    let len = area.end - area.start;
    [
        (WHOLE, area.start, len),
        ("first page", area.start, PAGE),
        ("a page inside", area.start + PAGE, PAGE),
        ("last page", area.end - PAGE, PAGE),
    ]
}

fn writable(area: &Mapping) -> bool {
    area.rights.contains('w')
}

/// Runs a call, which must change no mapping.
///
/// # Safety
/// As [`call`]'s.
unsafe fn harmless<const N: usize>(number: Sysno, arguments: [usize; N]) -> SyscallResult {
    let before = maps::areas();
    // SAFETY: the caller keeps the contract of `call`.
    let ret = unsafe { call(number, arguments) };
    assert_eq!(maps::areas(), before, "{number} {arguments:x?}");
    ret
}

/// A way to remove an area.
type RemoveArea<'a> = &'a dyn Fn(&Mapping) -> SyscallResult;

/// Every subset of the areas, unmapped or covered by the program's own memory.
///
/// Requirements: A10
fn written_events_survive_unmapped_areas() {
    let cover = |area: &Mapping| {
        let flags = ANONYMOUS | (libc::MAP_FIXED | libc::MAP_NORESERVE) as usize;
        // SAFETY: nothing refers to the area from here on.
        unsafe {
            call(
                Sysno::mmap,
                [area.start, area.len(), READ | WRITE, flags, usize::MAX, 0],
            )
        }
    };
    // SAFETY: as above.
    let unmap = |area: &Mapping| unsafe { call(Sysno::munmap, [area.start, area.len()]) };
    let ways: [(&str, RemoveArea); 2] = [("munmap", &unmap), ("MAP_FIXED", &cover)];
    for (what, take) in ways {
        let scene = Scene::new("unmapped");
        for subset in 1..8 {
            let mut child = Child::spawn(|link| {
                let areas = Areas::map(0);
                areas.must_next().ring(1, 0).write_records(5);
                remove_areas(what, take, subset);
                let left = maps::areas();
                let expected = if left.is_empty() {
                    Ok(())
                } else {
                    Err(Errno::EBUSY)
                };
                assert_eq!(areas.calls.update(&mut None).map(|_| ()), Err(Errno::ENXIO));
                link.send(0);
                link.receive();
                assert_eq!(areas.calls.alloc_tracebuf(0).map(|_| ()), expected);
                link.send(0);
                link.receive();
            });
            child.link.receive();
            let state = || scene.state(child.pid());
            if subset == 7 {
                wait::until("it is as a dead one", || state().as_deref() == Some("dead"));
            } else {
                assert_eq!(state().as_deref(), Some("alive"), "{what} of {subset:b}");
            }
            child.link.send(0);
            child.link.receive();
            child.link.send(0);
            let prefix = format!("{}.", child.pid());
            child.join();
            let rings = rings_of_dead(&scene.trace, &prefix);
            assert_eq!(rings, [(0, head_after(5))], "{what} of {subset:b}");
        }
        scene.check();
    }
}

/// Removes the areas whose bits are set in `subset` from this process.
fn remove_areas(what: &str, take: RemoveArea<'_>, subset: u32) {
    let mapped = maps::areas();
    let chosen = mapped.iter().enumerate();
    for (_, area) in chosen.filter(|(at, _)| subset >> at & 1 == 1) {
        take(area).expect(what);
    }
    let left = maps::areas();
    assert_eq!(left.len(), 3 - subset.count_ones() as usize);
    // The memory in place of an area is the program's own.
    if what == "MAP_FIXED" {
        for area in mapped.iter().filter(|area| !left.contains(area)) {
            // SAFETY: the page is this process's own.
            unsafe { poke(area.start, 42) };
        }
    }
}

/// The rings of a process, with their heads. Waits until the trace shows the process as dead. The
/// names of its files begin with `prefix`.
fn rings_of_dead(trace: &Trace, prefix: &str) -> Vec<(u32, u64)> {
    wait::until("it is dead", || {
        let processes = trace.stats().processes;
        let mut own = processes
            .iter()
            .filter(|process| process.name.starts_with(prefix));
        own.all(|process| process.state == "dead")
    });
    let rings = trace.stats().rings.into_iter();
    let own = rings.filter(|ring| ring.name.starts_with(prefix));
    own.map(|ring| (ring.ring, ring.head)).collect()
}

/// Calls that would grow, copy or cover an area in part, and their errors. `elsewhere` are two
/// pages of other memory.
fn partial_changes(
    area: &Mapping,
    elsewhere: usize,
) -> [(&'static str, Sysno, [usize; 6], Errno); 10] {
    let (start, len) = (area.start, area.len());
    let fixed = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    let keep = (libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP) as usize;
    let noreplace = ANONYMOUS | libc::MAP_FIXED_NOREPLACE as usize;
    let move_ = libc::MREMAP_MAYMOVE as usize;
    let none = usize::MAX;
    [
        (
            "a copy",
            Sysno::mremap,
            [start, 0, len, move_, 0, 0],
            Errno::EFAULT,
        ),
        (
            "a copy of a page",
            Sysno::mremap,
            [start, 0, PAGE, move_, 0, 0],
            Errno::EFAULT,
        ),
        (
            "growth",
            Sysno::mremap,
            [start, len, 2 * len, move_, 0, 0],
            Errno::EFAULT,
        ),
        (
            "growth in place",
            Sysno::mremap,
            [start, len, 2 * len, 0, 0, 0],
            Errno::EFAULT,
        ),
        (
            "a smaller one",
            Sysno::mremap,
            [start, len, len - PAGE, 0, 0, 0],
            Errno::EINVAL,
        ),
        (
            "half, moved",
            Sysno::mremap,
            [start, PAGE, PAGE, fixed, elsewhere, 0],
            Errno::EINVAL,
        ),
        (
            "moved, and kept",
            Sysno::mremap,
            [start, len, len, keep, 0, 0],
            Errno::EINVAL,
        ),
        (
            "memory moved over",
            Sysno::mremap,
            // The first page went when something was to be moved there.
            [elsewhere + PAGE, PAGE, PAGE, fixed, start, 0],
            Errno::EINVAL,
        ),
        (
            "mapped over",
            Sysno::mmap,
            [start, len, READ, noreplace, none, 0],
            Errno::EEXIST,
        ),
        (
            "a page mapped over",
            Sysno::mmap,
            [start, PAGE, READ, noreplace, none, 0],
            Errno::EEXIST,
        ),
    ]
}

/// Requirements: C2
fn areas_cannot_be_grown_copied_or_partly_covered() {
    amid_events("covered", |numbers, areas| {
        let mut wrong = Vec::new();
        for area in areas {
            let other = Pages::new(2, libc::PROT_READ | libc::PROT_WRITE);
            for (what, number, arguments, errno) in partial_changes(area, other.address()) {
                // SAFETY: it must fail; if it does not, so does the test.
                let ret = unsafe { harmless(number, arguments) };
                if ret != Err(errno) {
                    wrong.push(format!("{what} of {}: {ret:?}, not {errno}", area.rights));
                }
                numbers.write(1);
            }
            // System V memory is another way to map over something.
            // SAFETY: no memory is concerned.
            let id = unsafe { call(Sysno::shmget, [libc::IPC_PRIVATE as usize, PAGE, 0o600]) }
                .expect("shmget");
            let remap = 0o40000;
            // SAFETY: it must fail.
            let ret = unsafe { harmless(Sysno::shmat, [id, area.start, remap]) };
            // SAFETY: no memory is concerned.
            unsafe { call(Sysno::shmctl, [id, libc::IPC_RMID as usize, 0]) }.expect("shmctl");
            assert_eq!(ret, Err(Errno::EINVAL), "SHM_REMAP over a page of {area:?}");
            numbers.write(1);
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

/// The expected result of an advice for a whole area, or for a part.
///
/// An accepted advice only changes a flag of the mapping, so a part cannot differ from the rest.
fn answer(advice: i32, area: &Mapping, whole: bool) -> SyscallResult {
    match advice {
        libc::MADV_NORMAL | libc::MADV_RANDOM | libc::MADV_HUGEPAGE if !whole => Err(Errno::EINVAL),
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_WILLNEED
        | libc::MADV_DONTFORK
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_DONTDUMP
        | libc::MADV_KEEPONFORK => Ok(0),
        libc::MADV_REMOVE if writable(area) => Err(Errno::ENODEV),
        libc::MADV_REMOVE => Err(Errno::EACCES),
        libc::MADV_HWPOISON | libc::MADV_SOFT_OFFLINE => Err(Errno::EFAULT),
        // Advice that would drop or move pages, or copy them to children or core dumps, and invalid
        // advice.
        _ => Err(Errno::EINVAL),
    }
}

/// Requirements: F2
fn madvise_changes_no_area() {
    amid_events("advice", |numbers, areas| {
        let mut wrong = Vec::new();
        for area in areas {
            for (part, start, len) in parts(area) {
                for advice in (0..=25).chain(100..=104) {
                    // SAFETY: an area has no Rust object in it.
                    let ret = unsafe { harmless(Sysno::madvise, [start, len, advice as usize]) };
                    let expected = answer(advice, area, part == WHOLE);
                    if ret != expected {
                        wrong.push(format!(
                            "{advice}, {part} of {}: {ret:?}, not {expected:?}",
                            area.rights
                        ));
                    }
                    numbers.write(1);
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

/// Requirements: F2
fn mlock_locks_no_area() {
    let locked = || {
        let text = fs::read_to_string("/proc/self/smaps").expect("/proc is mounted");
        let mut lines = text.lines();
        let mut locked = Vec::new();
        while let Some(line) = lines.next() {
            if line.contains("[ltt]") {
                let line = lines
                    .find(|line| line.starts_with("Locked:"))
                    .expect("a line");
                locked.push(line.split_whitespace().nth(1).expect("a number").to_owned());
            }
        }
        assert_eq!(locked, ["0", "0", "0"]);
    };
    let flags = |flags: i32| [flags as usize, 0, 0];
    amid_events("locked", |numbers, areas| {
        let mut try_all = |what: &str, number, arguments: [usize; 3]| {
            // SAFETY: which pages are in memory is no matter to any object.
            let ret = unsafe { harmless(number, arguments) };
            assert_eq!(ret, Ok(0), "{what}");
            numbers.write(1);
            locked();
        };
        for area in areas {
            for (what, start, len) in parts(area) {
                try_all(what, Sysno::mlock, [start, len, 0]);
                try_all(what, Sysno::mlock2, [start, len, 0]);
                try_all(
                    what,
                    Sysno::mlock2,
                    [start, len, libc::MLOCK_ONFAULT as usize],
                );
                try_all(what, Sysno::munlock, [start, len, 0]);
            }
        }
        for all in [
            libc::MCL_CURRENT,
            libc::MCL_FUTURE,
            libc::MCL_CURRENT | libc::MCL_FUTURE,
            libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT,
        ] {
            try_all("mlockall", Sysno::mlockall, flags(all));
        }
        try_all("munlockall", Sysno::munlockall, flags(0));
    });
    // Areas that are mapped when all is locked: not one page comes of that.
    child::run(|| {
        // SAFETY: as above.
        unsafe {
            call(
                Sysno::mlockall,
                [(libc::MCL_CURRENT | libc::MCL_FUTURE) as usize],
            )
        }
        .expect("mlockall");
        let trace = Trace::started("after");
        let slot = Areas::map(0).must_next();
        locked();
        assert_eq!(trace.stats().pages(), 0);
        slot.ring(1, 0).write_records(1);
        assert_eq!(trace.stats().rings[0].head, head_after(1));
    });
}

/// Requirements: F2
fn calls_for_mapped_files_change_no_area() {
    amid_events("files", |numbers, areas| {
        let mut residency = vec![0u8; 1 << 20];
        let mut wrong = Vec::new();
        for area in areas {
            for (what, start, len) in parts(area) {
                let pages = (len / PAGE).min(residency.len());
                let (sync, later) = (libc::MS_SYNC as usize, libc::MS_ASYNC as usize);
                let invalidate = libc::MS_INVALIDATE as usize;
                let residency = residency.as_mut_ptr() as usize;
                let name = c"name".as_ptr() as usize;
                let rows: &[(&str, Sysno, [usize; 5], SyscallResult)] = &[
                    // There is nothing behind it that could be written.
                    (
                        "MS_SYNC",
                        Sysno::msync,
                        [start, len, sync, 0, 0],
                        Err(Errno::EINVAL),
                    ),
                    ("MS_ASYNC", Sysno::msync, [start, len, later, 0, 0], Ok(0)),
                    (
                        "MS_INVALIDATE",
                        Sysno::msync,
                        [start, len, invalidate, 0, 0],
                        Ok(0),
                    ),
                    (
                        "mincore",
                        Sysno::mincore,
                        [start, pages * PAGE, residency, 0, 0],
                        Ok(0),
                    ),
                    (
                        "PR_SET_VMA",
                        Sysno::prctl,
                        [PR_SET_VMA, 0, start, len, name],
                        Err(Errno::EINVAL),
                    ),
                ];
                // Of the whole, this takes the area away: see the next test.
                let arguments = [start, len, 0, pgoff(start), 0];
                let remap = (
                    "remap_file_pages",
                    Sysno::remap_file_pages,
                    arguments,
                    Err(Errno::EINVAL),
                );
                let remap = (what != WHOLE).then_some(&remap);
                for &(call, number, arguments, expected) in rows.iter().chain(remap) {
                    // SAFETY: an area has no Rust object in it, and `residency` is long enough.
                    let ret = unsafe { harmless(number, arguments) };
                    if ret != expected {
                        wrong.push(format!(
                            "{call}, {what} of {}: {ret:?}, not {expected:?}",
                            area.rights
                        ));
                    }
                    numbers.write(1);
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

/// Only `alloc_tracebuf` maps the areas' file. Another mapping of it could be created after the end
/// of the process, and have pages that belong to others by then. The events are recorded all the
/// same.
///
/// Requirements: F2
fn area_cannot_be_mapped_again() {
    for left in [3, 1] {
        let scene = Scene::new("again");
        child::run(|| {
            attach();
            Numbers::default().write(10);
            let areas = maps::areas();
            let (last, others) = areas.split_last().expect("three");
            let last = (last.start, last.end - last.start, pgoff(last.start));
            for area in others.iter().filter(|_| left == 1) {
                // SAFETY: no Rust object lies in an area.
                unsafe { call(Sysno::munmap, [area.start, area.end - area.start]) }
                    .expect("munmap");
            }
            let (start, len, pgoff) = last;
            for pgoff in [pgoff, 0, pgoff] {
                // SAFETY: as above. The first one takes the area away, as a mapping at a fixed
                // place does that fails.
                let ret = unsafe { call(Sysno::remap_file_pages, [start, len, 0, pgoff, 0, 0]) };
                assert!(matches!(ret, Err(Errno::EPERM | Errno::EINVAL)), "{ret:?}");
            }
            assert_eq!(maps::areas().len(), left - 1);
        });
        assert_eq!(check_prefix(&scene.end_of_one()), 10);
    }
}

/// The file offset of the mapping at an address, in pages.
fn pgoff(address: usize) -> usize {
    let text = fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let start = format!("{address:x}-");
    let line = text.lines().find(|line| line.starts_with(&start));
    let offset = line
        .and_then(|line| line.split_whitespace().nth(2))
        .unwrap_or("0");
    usize::from_str_radix(offset, 16).expect("a number") / PAGE
}

/// A stack that grows towards the areas cannot grow into them: the program dies.
///
/// Requirements: A10
fn stack_does_not_grow_into_an_area() {
    let scene = Scene::new("stack");
    child::run_to_death(Signal::SIGSEGV, || {
        attach();
        Numbers::default().write(10);
        let areas = maps::areas();
        let end = areas.iter().map(|area| area.end).max().expect("three");
        let top = (512..1 << 20).map(|page| end + page * PAGE).find(|&at| {
            let flags = ANONYMOUS | (libc::MAP_FIXED_NOREPLACE | libc::MAP_GROWSDOWN) as usize;
            // SAFETY: a new mapping, where nothing is.
            unsafe { call(Sysno::mmap, [at, PAGE, READ | WRITE, flags, usize::MAX, 0]) }.is_ok()
        });
        for at in (end - PAGE..top.expect("there is room"))
            .rev()
            .step_by(PAGE)
        {
            // SAFETY: this process is meant to die of it.
            unsafe { poke(at, 1) };
        }
    });
    assert_eq!(check_prefix(&scene.end_of_one()), 10);
}

/// Requirements: F2
fn adjacent_mappings_do_not_grow_into_an_area() {
    amid_events("neighbours", |numbers, areas| {
        for area in areas {
            // A page before, if there is room, which cannot grow.
            let flags = ANONYMOUS | libc::MAP_FIXED_NOREPLACE as usize;
            let before = area.start - PAGE;
            // SAFETY: a new mapping, where nothing is.
            if unsafe {
                call(
                    Sysno::mmap,
                    [before, PAGE, READ | WRITE, flags, usize::MAX, 0],
                )
            }
            .is_ok()
            {
                // SAFETY: it must fail.
                let ret = unsafe { harmless(Sysno::mremap, [before, PAGE, 2 * PAGE, 0]) };
                assert_eq!(ret, Err(Errno::ENOMEM));
                // SAFETY: the page is this function's own.
                unsafe { call(Sysno::munmap, [before, PAGE]) }.expect("munmap");
            }
            numbers.write(1);
        }
        // SAFETY: no memory in use is concerned.
        let heap = unsafe { libc::sbrk(1 << 20) };
        assert_ne!(heap as isize, -1);
        numbers.write(1);
    });
}

/// `struct uffdio_api`, `UFFDIO_API` and so on, of `linux/userfaultfd.h`.
const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;

/// Requirements: F2
fn userfaultfd_cannot_register_an_area() {
    amid_events("userfaultfd", |numbers, areas| {
        // SAFETY: no memory is concerned.
        let fd = unsafe { call(Sysno::userfaultfd, [libc::O_CLOEXEC as usize]) };
        let fd = fd.expect("the kernel has CONFIG_USERFAULTFD") as i32;
        // SAFETY: it is a new descriptor, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut api = [UFFD_API, 0, 0];
        // SAFETY: the structure may be written.
        let ret = unsafe {
            call(
                Sysno::ioctl,
                [
                    fd.as_raw_fd() as usize,
                    UFFDIO_API,
                    api.as_mut_ptr() as usize,
                ],
            )
        };
        assert_eq!(ret, Ok(0));
        let register = |start: usize, len: usize, mode: u64| {
            let mut range = [start as u64, len as u64, mode, 0];
            let arguments = [
                fd.as_raw_fd() as usize,
                UFFDIO_REGISTER,
                range.as_mut_ptr() as usize,
            ];
            // SAFETY: the structure may be written; an area has no Rust object in it.
            unsafe { harmless(Sysno::ioctl, arguments) }
        };
        // The call succeeds for other memory, so its arguments are right.
        let other = Pages::new(1, libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(register(other.address(), PAGE, 1), Ok(0));
        for area in areas {
            for (what, start, len) in parts(area) {
                // Missing pages, write protection, and minor faults.
                for mode in [1, 2, 4, 3] {
                    let errno = register(start, len, mode).expect_err("refused");
                    assert_eq!(errno, Errno::EINVAL, "mode {mode}, {what} of {area:?}");
                    numbers.write(1);
                }
            }
        }
    });
}

/// Calls that take references to pages get none: the pages belong to the trace only.
///
/// Requirements: F2
fn kernel_takes_no_reference_to_pages_of_areas() {
    amid_events("references", |numbers, areas| {
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        for area in areas {
            for (what, start, len) in parts(area) {
                let len = len.min(PAGE);
                let vector = [start, len];
                let vector_at = vector.as_ptr() as usize;
                for flags in [0, libc::SPLICE_F_GIFT as usize] {
                    let arguments = [writer.as_raw_fd() as usize, vector_at, 1, flags];
                    // SAFETY: the area is only read.
                    let ret = unsafe { harmless(Sysno::vmsplice, arguments) };
                    assert_eq!(ret, Err(Errno::EFAULT), "vmsplice, {what} of {area:?}");
                }
                // A ring of another kind: `io_uring` wants to keep the pages.
                let ring = io_uring();
                let arguments = [ring.as_raw_fd() as usize, 0, vector_at, 1];
                // SAFETY: nothing is read into the buffers.
                let ret = unsafe { harmless(Sysno::io_uring_register, arguments) };
                assert_eq!(ret, Err(Errno::EFAULT), "io_uring, {what} of {area:?}");
                numbers.write(1);
            }
        }
        drop(reader);
    });
}

/// An `io_uring` of one entry.
fn io_uring() -> OwnedFd {
    let mut parameters = [0u32; 30];
    // SAFETY: the parameters are a structure of 120 bytes, which may be written.
    let fd = unsafe { call(Sysno::io_uring_setup, [1, parameters.as_mut_ptr() as usize]) };
    // SAFETY: it is a new descriptor, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd.expect("the kernel has CONFIG_IO_URING") as i32) }
}

/// Requirements: F2
fn read_and_write_access_areas_like_loads_and_stores() {
    amid_events("copies", |numbers, areas| {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&[42; PAGE], 0).expect("written");
        for area in areas {
            // The last page: nobody uses it.
            let at = area.end - PAGE;
            // SAFETY: within the area.
            unsafe {
                // Out of it: as a load.
                let ret = call(Sysno::pwrite64, [file.as_raw_fd() as usize, at, PAGE, PAGE]);
                assert_eq!(ret, Ok(PAGE), "write, {area:?}");
                let mut bytes = [0xff; PAGE];
                file.read_exact_at(&mut bytes, PAGE as u64).expect("read");
                // In the info area, it has the rules of the last trace that was in the last slot.
                assert!(!writable(area) || bytes == [0; PAGE], "write, {area:?}");
                // Into it: as a store.
                let ret = call(Sysno::pread64, [file.as_raw_fd() as usize, at, PAGE, 0]);
                let expected = if writable(area) {
                    Ok(PAGE)
                } else {
                    Err(Errno::EFAULT)
                };
                assert_eq!(ret, expected, "read, {area:?}");
                // No trace is there, so what was stored is lost; but nobody dies of it.
                let _ = peek(at);
            }
            numbers.write(1);
        }
        // Direct I/O takes references to the pages.
        let own = std::env::current_exe().expect("a path");
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(own)
            .expect("O_DIRECT");
        for area in areas {
            let arguments = [direct.as_raw_fd() as usize, area.end - PAGE, PAGE, 0];
            // SAFETY: nobody uses that page.
            let ret = unsafe { harmless(Sysno::pread64, arguments) };
            assert_eq!(ret, Err(Errno::EFAULT), "O_DIRECT, {area:?}");
            numbers.write(1);
        }
    });
}

/// Requirements: F2
fn proc_shows_the_areas_and_changes_nothing() {
    amid_events("proc", |numbers, areas| {
        for file in [
            "maps",
            "smaps",
            "smaps_rollup",
            "status",
            "statm",
            "map_files",
        ] {
            let path = format!("/proc/self/{file}");
            if file == "map_files" {
                for area in areas {
                    let link = format!("{path}/{:x}-{:x}", area.start, area.end);
                    let target = fs::read_link(&link).expect("a link");
                    assert_eq!(target.to_str(), Some("anon_inode:[ltt]"));
                }
            } else {
                assert!(!fs::read(&path).expect("/proc").is_empty());
            }
            numbers.write(1);
        }
        // Of no page is the place in memory told as one that is this process's.
        let pagemap = fs::File::open("/proc/self/pagemap").expect("pagemap");
        for area in areas {
            let mut bytes = vec![0; 8 * 64];
            pagemap
                .read_exact_at(&mut bytes, (area.start / PAGE * 8) as u64)
                .expect("64 pages");
            numbers.write(1);
        }
        // Which pages were used, and dirty: forgotten, and that is all.
        for what in 1..=5 {
            fs::write("/proc/self/clear_refs", what.to_string()).expect("clear_refs");
            numbers.write(1);
        }
    });
}

/// Root tries: unprivileged processes are refused earlier.
///
/// Requirements: F5
fn areas_cannot_be_accessed_from_outside() {
    let scene = Scene::new("outside");
    let mut child = Child::spawn(|link| {
        attach();
        let mut numbers = Numbers::default();
        numbers.write(10);
        let areas = maps::areas();
        let info = || {
            areas
                .iter()
                .filter(|area| !writable(area))
                .map(bytes)
                .collect::<Vec<_>>()
        };
        let before = info();
        for area in &areas {
            link.send(area.start as u64);
            link.send(area.end as u64);
        }
        link.receive();
        assert_eq!(info(), before, "nobody forged what the kernel says");
        assert_eq!(maps::areas(), areas);
        numbers.write(10);
    });
    let areas = [(); 3].map(|()| (child.link.receive() as usize, child.link.receive() as usize));
    let pid = child.pid();
    // SAFETY: the child is stopped, and goes on.
    unsafe {
        call(
            Sysno::ptrace,
            [libc::PTRACE_ATTACH as usize, pid.as_raw() as usize, 0, 0],
        )
    }
    .expect("ptrace");
    assert_eq!(child.wait(), WaitStatus::Stopped(pid, Signal::SIGSTOP));
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .expect("mem");
    // SAFETY: no memory is concerned.
    let pidfd =
        unsafe { call(Sysno::pidfd_open, [pid.as_raw() as usize, 0]) }.expect("a descriptor");
    for (start, end) in areas {
        for at in [start, start + PAGE, end - PAGE] {
            from_outside(pid, pidfd, &memory, at);
        }
        let file = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
        let error = fs::File::open(&file).expect_err("it is no file that can be opened");
        assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
    }
    // SAFETY: as above.
    unsafe {
        call(
            Sysno::ptrace,
            [libc::PTRACE_DETACH as usize, pid.as_raw() as usize, 0, 0],
        )
    }
    .expect("ptrace");
    // SAFETY: the descriptor is this function's own.
    unsafe { libc::close(pidfd as i32) };
    child.link.send(0);
    child.join();
    assert_eq!(check_prefix(&scene.end_of_one()), 20);
}

/// The contents of an area.
fn bytes(area: &Mapping) -> Vec<u8> {
    // SAFETY: all of it can be read.
    (area.start..area.end)
        .map(|at| unsafe { peek(at) })
        .collect()
}

/// Tries to read and to write a page of a stopped process.
fn from_outside(pid: Pid, pidfd: usize, memory: &fs::File, at: usize) {
    let pid = pid.as_raw() as usize;
    let mut word = [0x55u8; 8];
    let word_at = word.as_mut_ptr() as usize;
    let (local, remote) = ([word_at, 8], [at, 8]);
    let (local, remote) = (local.as_ptr() as usize, remote.as_ptr() as usize);
    let page = [at, PAGE];
    let advice = |advice: i32| [pidfd, page.as_ptr() as usize, 1, advice as usize, 0, 0];
    let rows: &[(&str, Sysno, [usize; 6], Errno)] = &[
        (
            "PEEKDATA",
            Sysno::ptrace,
            [libc::PTRACE_PEEKDATA as usize, pid, at, word_at, 0, 0],
            Errno::EIO,
        ),
        (
            "POKEDATA",
            Sysno::ptrace,
            [libc::PTRACE_POKEDATA as usize, pid, at, usize::MAX, 0, 0],
            Errno::EIO,
        ),
        (
            "POKETEXT",
            Sysno::ptrace,
            [libc::PTRACE_POKETEXT as usize, pid, at, usize::MAX, 0, 0],
            Errno::EIO,
        ),
        (
            "process_vm_readv",
            Sysno::process_vm_readv,
            [pid, local, 1, remote, 1, 0],
            Errno::EFAULT,
        ),
        (
            "process_vm_writev",
            Sysno::process_vm_writev,
            [pid, local, 1, remote, 1, 0],
            Errno::EFAULT,
        ),
        (
            "pread of mem",
            Sysno::pread64,
            [memory.as_raw_fd() as usize, word_at, 8, at, 0, 0],
            Errno::EIO,
        ),
        (
            "pwrite of mem",
            Sysno::pwrite64,
            [memory.as_raw_fd() as usize, word_at, 8, at, 0, 0],
            Errno::EIO,
        ),
        (
            "process_madvise",
            Sysno::process_madvise,
            advice(libc::MADV_PAGEOUT),
            Errno::EINVAL,
        ),
        (
            "process_madvise",
            Sysno::process_madvise,
            advice(libc::MADV_DONTNEED),
            Errno::EINVAL,
        ),
    ];
    for &(what, number, arguments, errno) in rows {
        // SAFETY: what may be written is `word`, and memory of the child that has no object in it.
        let ret = unsafe { call(number, arguments) };
        assert_eq!(ret, Err(errno), "{what} at {at:#x}");
    }
    assert_eq!(word, [0x55; 8], "nothing was read");
}
