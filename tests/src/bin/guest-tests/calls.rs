//! The three system calls, with valid and with all kinds of invalid arguments (A1, A2, C1).

use std::mem::size_of;

use syscalls::Errno;
use usertrace_sys::uapi::LttTracebuf;
use usertrace_tests::areas::{Areas, calls};
use usertrace_tests::child;
use usertrace_tests::control::Trace;
use usertrace_tests::maps;
use usertrace_tests::raw::{self, KERNEL_ADDRESS, Pages};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    alloc_maps_three_areas,
    second_alloc_returns_the_same_areas,
    alloc_accepts_a_newer_struct_with_zeros,
    alloc_rejects_bad_arguments_and_maps_nothing,
    alloc_rejects_bad_arguments_and_changes_nothing,
    alloc_rejects_partly_unmapped_areas,
    update_returns_each_trace_once,
    update_returns_no_trace_before_its_first_start,
    update_fails_without_areas,
    update_rejects_bad_buffers,
    update_rejects_bad_pointers_and_returns_nothing,
    update_reports_a_destroyed_trace_once,
    switch_rejects_bad_buffers,
    switch_fails_without_areas,
    switch_does_not_acknowledge_a_destroyed_trace,
];

/// Requirements: C1
fn alloc_maps_three_areas() {
    child::run(|| {
        assert_eq!(maps::areas(), []);
        let areas = Areas::map(0);
        let at = areas.at;
        let mut mapped: Vec<_> = maps::areas()
            .into_iter()
            .map(|area| (area.start as u64, area.end as u64, area.rights))
            .collect();
        let mut told = vec![
            (at.buffers, at.buffers + at.buffers_len, "rw-s".to_owned()),
            (at.control, at.control + at.control_len, "rw-s".to_owned()),
            (at.info, at.info + at.info_len, "r--s".to_owned()),
        ];
        mapped.sort();
        told.sort();
        assert_eq!(mapped, told);
        assert_eq!((at.nr_slots, at.status), (16, 0), "16 slots (C2)");
        for (stride, len) in [
            (at.buffers_stride, at.buffers_len),
            (at.control_stride, at.control_len),
        ] {
            assert_eq!((stride % 4096, 16 * stride), (0, len), "of whole pages");
        }
        assert_eq!(at.info_len % 4096, 0);
    });
}

/// Requirements: C1
fn second_alloc_returns_the_same_areas() {
    child::run(|| {
        let first = Areas::map(0).at;
        let mappings = maps::areas();
        let second = Areas::map(0).at;
        assert_eq!(second, first);
        assert_eq!(maps::areas(), mappings);
    });
}

/// Requirements: C1
fn alloc_accepts_a_newer_struct_with_zeros() {
    child::run(|| {
        let mut words = [0u64; 512];
        // SAFETY: the words may be overwritten.
        let ret = unsafe {
            raw::alloc_tracebuf(
                &calls(),
                words.as_mut_ptr() as usize,
                size_of_val(&words),
                0,
            )
        };
        assert_eq!(ret, Ok(0));
        assert_ne!(words[0], 0);
        assert!(
            words[size_of::<LttTracebuf>() / 8..]
                .iter()
                .all(|&word| word == 0)
        );
    });
}

/// Fills a page with words at these indices, and returns its address.
type FillPage<'a> = dyn Fn(&[(usize, u64)]) -> usize + 'a;

/// A call of `alloc_tracebuf` with an address, a size and flags, which must fail with this error.
/// The first argument describes the case.
type CheckFailure<'a> = dyn Fn(&str, usize, usize, usize, Errno) + 'a;

/// Calls `alloc_tracebuf` with all kinds of invalid arguments. `state` must not change.
fn try_bad_allocs<T: PartialEq + std::fmt::Debug>(state: impl Fn() -> T) {
    const SIZE: usize = size_of::<LttTracebuf>();
    let calls = calls();
    let before = state();
    let check = |what: &str, args: usize, size: usize, flags: usize, errno: Errno| {
        // SAFETY: the kernel may write only to memory that the callers below allocated for this.
        let ret = unsafe { raw::alloc_tracebuf(&calls, args, size, flags) };
        assert_eq!(ret, Err(errno), "{what}");
        assert_eq!(state(), before, "{what}");
    };

    let page = Pages::new(1, libc::PROT_READ | libc::PROT_WRITE);
    let good = page.address();
    let words = |words: &[(usize, u64)]| {
        for at in 0..512 {
            let value = words
                .iter()
                .find(|(word, _)| *word == at)
                .map_or(0, |w| w.1);
            // SAFETY: within the page, which no Rust object is in.
            unsafe { (good as *mut u64).add(at).write_volatile(value) };
        }
        good
    };
    let signo = |signo: u64| words(&[(6, signo)]);

    try_bad_sizes(&words, &check);
    for flags in [1, 2, 1 << 31] {
        check(
            "an unknown flag of the call",
            words(&[]),
            SIZE,
            flags,
            Errno::EINVAL,
        );
    }
    for flags in [1u64, 1 << 31] {
        check(
            "an unknown flag",
            words(&[(6, flags << 32)]),
            SIZE,
            0,
            Errno::EINVAL,
        );
    }
    for bad in [9, 19, 65, 1 << 16, u64::from(u32::MAX)] {
        check(
            "a signal without handler",
            signo(bad),
            SIZE,
            0,
            Errno::EINVAL,
        );
    }
    try_bad_addresses(&check);
}

/// Bad sizes of the structure, and newer structures with contents that the kernel does not know.
fn try_bad_sizes(words: &FillPage<'_>, check: &CheckFailure<'_>) {
    const SIZE: usize = size_of::<LttTracebuf>();
    for size in [0, 1, SIZE - 8, SIZE - 1] {
        check("a size too small", words(&[]), size, 0, Errno::EINVAL);
    }
    check("a size too large", words(&[]), 4097, 0, Errno::E2BIG);
    check("a huge size", words(&[]), usize::MAX, 0, Errno::E2BIG);
    check(
        "a newer struct that asks for more",
        words(&[(SIZE / 8, 1)]),
        SIZE + 8,
        0,
        Errno::E2BIG,
    );
    check(
        "a newer struct, odd size",
        words(&[(SIZE / 8, 1)]),
        SIZE + 1,
        0,
        Errno::E2BIG,
    );
    check(
        "a page with a bit at its end",
        words(&[(511, 1 << 63)]),
        4096,
        0,
        Errno::E2BIG,
    );
}

/// Bad addresses of the structure.
fn try_bad_addresses(check: &CheckFailure<'_>) {
    const SIZE: usize = size_of::<LttTracebuf>();
    check("NULL", 0, SIZE, 0, Errno::EFAULT);
    check("a kernel address", KERNEL_ADDRESS, SIZE, 0, Errno::EFAULT);
    let unmapped = Pages::new(1, libc::PROT_NONE);
    check(
        "an unmapped address",
        unmapped.address(),
        SIZE,
        0,
        Errno::EFAULT,
    );
    let read_only = Pages::new(1, libc::PROT_READ);
    check(
        "read-only memory",
        read_only.address(),
        SIZE,
        0,
        Errno::EFAULT,
    );
    let end = Pages::new(2, libc::PROT_READ | libc::PROT_WRITE);
    let second = (end.address() + 4096) as *mut libc::c_void;
    // SAFETY: the second page is this function's own, and nothing is in it.
    let ret = unsafe { libc::munmap(second, 4096) };
    assert_eq!(ret, 0);
    check(
        "memory that ends too early",
        end.address() + 4096 - 8,
        SIZE,
        0,
        Errno::EFAULT,
    );
}

/// Requirements: C1
fn alloc_rejects_bad_arguments_and_maps_nothing() {
    child::run(|| {
        try_bad_allocs(maps::areas);
        assert_eq!(maps::areas(), []);
        assert_eq!(calls().update(&mut None), Err(Errno::ENXIO));
        // And nothing is broken.
        let _ = Areas::map(0);
    });
}

/// Requirements: C1
fn alloc_rejects_bad_arguments_and_changes_nothing() {
    child::run(|| {
        let trace = Trace::started("bad-alloc");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        slot.ring(1, 0).write_records(3);
        let before = trace.stats();
        try_bad_allocs(|| (maps::areas(), trace.stats()));
        assert_eq!(Areas::map(0).at, areas.at);
        assert_eq!(trace.stats(), before);
        assert_eq!(slot.ring(1, 0).read(0), 0);
        assert_eq!(slot.ring(1, 0).read(28), 0x53, "the magic is still there");
    });
}

/// Requirements: C1
fn alloc_rejects_partly_unmapped_areas() {
    for gone in 0..3 {
        child::run(|| {
            let areas = Areas::map(0);
            let at = areas.at;
            let (start, len) = [
                (at.buffers, at.buffers_len),
                (at.control, at.control_len),
                (at.info, at.info_len),
            ][gone];
            // SAFETY: nothing refers to the area from here on.
            let ret = unsafe { libc::munmap(start as *mut libc::c_void, len as usize) };
            assert_eq!(ret, 0);
            let left = maps::areas();
            assert_eq!(left.len(), 2);
            assert_eq!(areas.calls.alloc_tracebuf(0), Err(Errno::EBUSY));
            assert_eq!(areas.calls.update(&mut None), Err(Errno::ENXIO));
            assert_eq!(maps::areas(), left);
            // When all areas are gone, new ones can be allocated.
            for area in left {
                // SAFETY: as above.
                let ret =
                    unsafe { libc::munmap(area.start as *mut libc::c_void, area.end - area.start) };
                assert_eq!(ret, 0);
            }
            let _ = Areas::map(0);
            assert_eq!(maps::areas().len(), 3);
        });
    }
}

/// Requirements: A1
fn update_returns_each_trace_once() {
    child::run(|| {
        let traces = ["a", "b", "c"].map(Trace::started);
        traces[1].stop();
        let areas = Areas::map(0);
        let given: Vec<_> = std::iter::from_fn(|| areas.next()).collect();
        assert_eq!(given.len(), 3);
        for (trace, (slot, update)) in traces.iter().zip(&given) {
            assert_eq!(slot.index, trace.stats().slot);
            assert_eq!(update.active, trace.name() != "b");
            assert_eq!(update.filter, u32::MAX, "all events by default (E4)");
            assert_eq!(slot.update(), Ok(*update));
        }
        // If the call returns NULL, active and filter are undefined.
        let mut none = None;
        let update = areas.calls.update(&mut none).expect("ltt_update");
        assert_eq!((none, update.active, update.filter), (None, false, 0));
        // The call returns the new trace, and no old one again.
        let fourth = Trace::started("d");
        assert_eq!(areas.must_next().index, fourth.stats().slot);
        assert!(areas.next().is_none());
        // The answer for a buffer follows its trace.
        traces[0].stop();
        assert!(!given[0].0.update().expect("ltt_update").active);
        traces[1].start();
        assert!(given[1].0.update().expect("ltt_update").active);
    });
}

/// Requirements: A1
fn update_returns_no_trace_before_its_first_start() {
    child::run(|| {
        let areas = Areas::map(0);
        let trace = Trace::create("quiet");
        assert!(areas.next().is_none(), "its channels are not fixed yet");
        trace.start();
        assert!(areas.next().is_some());
    });
}

/// Requirements: A1
fn update_fails_without_areas() {
    child::run(|| {
        let _trace = Trace::started("none");
        let (mut buffer, mut active, mut filter) = (0usize, 7i32, 7i32);
        // SAFETY: all three may be overwritten.
        let ret = unsafe {
            raw::update(
                &calls(),
                &raw mut buffer as usize,
                &raw mut active as usize,
                &raw mut filter as usize,
            )
        };
        assert_eq!(ret, Err(Errno::ENXIO));
        assert_eq!((buffer, active, filter), (0, 7, 7));
    });
}

/// Values that name no buffer of this process, which has one in `slot` of `slots`.
fn bad_buffers(areas: &Areas, slot: usize, heap: &u64) -> Vec<(&'static str, usize)> {
    let at = &areas.at;
    let slot_len = at.buffers_len as usize / 16;
    let start = at.buffers as usize;
    let buffer = start + slot * slot_len;
    vec![
        // The addresses below stand for triggers.
        ("unaligned", buffer + 257),
        ("inside, behind all triggers", buffer + 256),
        ("inside, by a page", buffer + 4096),
        ("inside, by half a slot", buffer + slot_len / 2),
        ("the next slot, not given", buffer + slot_len),
        ("the last slot, not given", start + 15 * slot_len),
        ("behind the area", start + 16 * slot_len),
        ("before the area", start - slot_len),
        ("1", 1),
        ("the control area", at.control as usize),
        ("the info area", at.info as usize),
        ("foreign: the heap", std::ptr::from_ref(heap) as usize),
        ("the kernel's", KERNEL_ADDRESS),
        ("the last address", usize::MAX),
    ]
}

/// Requirements: A1
fn update_rejects_bad_buffers() {
    child::run(|| {
        let trace = Trace::started("bad-update");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        let state = || (trace.stats(), maps::areas(), slot.update());
        let before = state();
        let heap = Box::new(0);
        for (what, bad) in bad_buffers(&areas, slot.index, &heap) {
            let (mut buffer, mut active, mut filter) = (bad, 7i32, 7i32);
            // SAFETY: all three may be overwritten.
            let ret = unsafe {
                raw::update(
                    &areas.calls,
                    &raw mut buffer as usize,
                    &raw mut active as usize,
                    &raw mut filter as usize,
                )
            };
            assert_eq!(ret, Err(Errno::EINVAL), "{what}");
            assert_eq!((buffer, active, filter), (bad, 7, 7), "{what}");
            assert_eq!(state(), before, "{what}");
        }
        assert!(areas.next().is_none());
    });
}

/// Requirements: A1
fn update_rejects_bad_pointers_and_returns_nothing() {
    child::run(|| {
        let trace = Trace::started("bad-pointers");
        let areas = Areas::map(0);
        let none = trace.stats();
        assert_eq!(none.processes, []);
        let good = Pages::new(1, libc::PROT_READ | libc::PROT_WRITE);
        let read_only = Pages::new(1, libc::PROT_READ);
        let unmapped = Pages::new(1, libc::PROT_NONE);
        let (buffer, active, filter) = (good.address(), good.address() + 8, good.address() + 16);
        for bad in [
            0,
            1,
            KERNEL_ADDRESS,
            unmapped.address(),
            read_only.address(),
        ] {
            for (what, arguments) in [
                ("buffer", (bad, active, filter)),
                ("active", (buffer, bad, filter)),
                ("filter", (buffer, active, bad)),
                ("all", (bad, bad, bad)),
            ] {
                // SAFETY: what may be written is in `good`, which no Rust object is in.
                let ret =
                    unsafe { raw::update(&areas.calls, arguments.0, arguments.1, arguments.2) };
                assert_eq!(ret, Err(Errno::EFAULT), "{what} at {bad:#x}");
                // SAFETY: the page is mapped.
                let left = unsafe { (buffer as *const usize).read_volatile() };
                assert_eq!(left, 0, "{what} at {bad:#x}");
                assert_eq!(trace.stats(), none, "{what} at {bad:#x}");
            }
        }
        // The failed calls did not consume the trace.
        let slot = areas.must_next();
        assert_eq!(slot.index, none.slot);
        // SAFETY: a word of the page.
        unsafe { (buffer as *mut usize).write_volatile(slot.address) };
        // SAFETY: as above.
        let ret = unsafe { raw::update(&areas.calls, buffer, KERNEL_ADDRESS, filter) };
        assert_eq!(ret, Err(Errno::EFAULT));
        assert!(slot.update().is_ok());
    });
}

/// Requirements: A1
fn update_reports_a_destroyed_trace_once() {
    child::run(|| {
        let trace = Trace::started("destroyed");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        drop(trace);
        assert_eq!(slot.update(), Err(Errno::ENOENT));
        assert_eq!(slot.update(), Err(Errno::EINVAL), "it was acknowledged");
        assert!(areas.next().is_none());
    });
}

/// Requirements: A2
fn switch_rejects_bad_buffers() {
    child::run(|| {
        let trace = Trace::started("bad-switch");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        let before = (trace.stats(), maps::areas());
        let heap = Box::new(0);
        let mut bad = bad_buffers(&areas, slot.index, &heap);
        bad.push(("NULL", 0));
        for (what, bad) in bad {
            assert_eq!(raw::switch(&areas.calls, bad), Err(Errno::EINVAL), "{what}");
            assert_eq!((trace.stats(), maps::areas()), before, "{what}");
            for channel in ["control", "main"] {
                assert!(trace.consumer_files(channel).is_empty(), "{what}");
            }
        }
        slot.switch().expect("a good one");
        assert_eq!(trace.consumer_files("main").len(), 1);
    });
}

/// Requirements: A2
fn switch_fails_without_areas() {
    child::run(|| {
        let _trace = Trace::started("none");
        for buffer in [0, 4096, KERNEL_ADDRESS] {
            assert_eq!(raw::switch(&calls(), buffer), Err(Errno::ENXIO));
        }
        // Unmapped areas do not count.
        let areas = Areas::map(0);
        let slot = areas.must_next();
        // SAFETY: nothing refers to the area from here on.
        unsafe {
            libc::munmap(
                areas.at.info as *mut libc::c_void,
                areas.at.info_len as usize,
            )
        };
        assert_eq!(slot.switch(), Err(Errno::ENXIO));
    });
}

/// Requirements: A9
fn switch_does_not_acknowledge_a_destroyed_trace() {
    child::run(|| {
        let trace = Trace::started("destroyed");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        drop(trace);
        // Any thread may switch while others write.
        assert_eq!(slot.switch(), Err(Errno::ENOENT));
        assert_eq!(slot.switch(), Err(Errno::ENOENT));
        assert_eq!(slot.update(), Err(Errno::ENOENT));
        assert_eq!(slot.switch(), Err(Errno::EINVAL), "it was acknowledged");
    });
}
