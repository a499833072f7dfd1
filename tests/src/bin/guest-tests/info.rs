//! The info area: consistent, and read without a system call (C3, C8).

use std::sync::atomic::{AtomicU32, Ordering};

use usertrace_sys::uapi::{
    LTT_ABI_VERSION, LTT_CLOCK_TSC, LTT_INFO_MAGIC, LTT_MODE_DISCARD, LTT_PROTOCOL_RSEQ,
    LTT_SCOPE_CPU, LttInfo, LttInfoChannel, LttInfoSlot, LttRingControl,
};
use usertrace_tests::areas::{Areas, Detail, SLOTS, peek};
use usertrace_tests::child::{self, Child};
use usertrace_tests::control::Trace;
use usertrace_tests::guest::scaled;

use crate::{Case, cases};

pub(crate) const BEFORE_THE_FIRST_TRACE: &[Case] = cases![info_area_is_zero_until_the_first_trace];

pub(crate) const CASES: &[Case] = cases![
    info_describes_a_trace,
    info_follows_traces_in_a_running_program,
    info_is_always_consistent,
];

/// Requirements: C3
fn info_area_is_zero_until_the_first_trace() {
    child::run(|| {
        let areas = Areas::map(0);
        // SAFETY: the first word of the area.
        let magic = unsafe { AtomicU32::from_ptr(areas.at.info as *mut u32) };
        assert_eq!(
            magic.load(Ordering::Relaxed),
            0,
            "this test must be the first after boot"
        );
        let is_zero = || {
            (0..areas.at.info_len as usize)
                // SAFETY: within the area.
                .map(|at| unsafe { peek(areas.at.info as usize + at) })
                .all(|byte| byte == 0)
        };
        assert!(is_zero());
        // A trace that is not active changes nothing.
        let trace = Trace::create("first");
        assert!(is_zero());
        // No signal: the program must see the new pages in the old mapping.
        trace.start();
        assert_eq!(magic.load(Ordering::Acquire), LTT_INFO_MAGIC);
        let slot = trace.stats().slot;
        assert_eq!(name(&areas.info(slot).1.trace.name), "first");
        // The pages stay when the trace is removed.
        drop(trace);
        assert_eq!(magic.load(Ordering::Relaxed), LTT_INFO_MAGIC);
    });
}

fn name(bytes: &[u8]) -> &str {
    let len = bytes.iter().position(|&b| b == 0).expect("a NUL");
    std::str::from_utf8(&bytes[..len]).expect("a text")
}

/// Requirements: C8
fn info_describes_a_trace() {
    child::run(|| {
        let trace = Trace::create("what");
        trace.set_geometry("main", 8192, 32);
        trace.set_geometry("control", 4096, 8);
        trace.start();
        let stats = trace.stats();
        let areas = Areas::map(0);
        let (info, detail) = areas.info(stats.slot);
        assert_eq!(
            (info.magic, info.version),
            (LTT_INFO_MAGIC, LTT_ABI_VERSION)
        );
        assert_eq!(detail.trace.clock, LTT_CLOCK_TSC);
        assert_eq!(info.nr_slots, areas.at.nr_slots);
        assert_eq!(info.active, 1 << stats.slot);
        let cpus = info.nr_cpus as usize;
        assert!(cpus >= std::thread::available_parallelism().map_or(1, Into::into));
        assert_eq!(
            detail.slot,
            LttInfoSlot {
                generation: stats.generation,
                active: 1,
                filter: u32::MAX,
                nr_channels: 2,
                reserved: [0; 3],
            }
        );
        assert_eq!(detail.trace.generation, stats.generation);
        assert_eq!(name(&detail.trace.name), "what");
        let mut end = 0;
        for (channel, (text, size, count)) in detail
            .channel
            .iter()
            .zip([("control", 4096, 8), ("main", 8192, 32)])
        {
            assert_eq!(name(&channel.name), text);
            assert_eq!((channel.subbuf_size, channel.subbuf_count), (size, count));
            assert_eq!(channel.nr_rings as usize, cpus);
            assert!(channel.control_stride as usize >= size_of::<LttRingControl>());
            assert_eq!(channel.scope, LTT_SCOPE_CPU);
            assert_eq!(channel.mode, LTT_MODE_DISCARD);
            assert_eq!(channel.protocol, LTT_PROTOCOL_RSEQ);
            assert!(channel.buffers_offset >= end && channel.buffers_offset % 4096 == 0);
            end = channel.buffers_offset + u64::from(size) * u64::from(count) * cpus as u64;
            assert!(end <= areas.at.buffers_stride);
        }
        drop(trace);
        let (info, detail) = areas.info(stats.slot);
        assert!(info.active == 0 && detail.is_empty(), "{detail:?}");
    });
}

/// Requirements: C8
fn info_follows_traces_in_a_running_program() {
    child::run(|| {
        let areas = Areas::map(0);
        let trace = Trace::started("follow");
        let slot = trace.stats().slot;
        let (mut last, before) = areas.info(slot);
        for round in 0..10 {
            if round % 2 == 0 {
                trace.stop()
            } else {
                trace.start()
            }
            let (now, detail) = areas.info(slot);
            assert!(now.generation > last.generation);
            assert_eq!(now.active, u32::from(round % 2 == 1) << slot);
            assert_eq!(detail.slot.generation, before.slot.generation);
            assert_ne!(now.seq, last.seq);
            last = now;
        }
    });
}

/// Checks a slot whose traces have matching names, geometries and generations.
fn check_consistent(info: &LttInfo, detail: &Detail, slot: usize) {
    let summary = &detail.slot;
    assert_eq!(
        info.active >> slot & 1,
        u32::from(summary.active != 0),
        "{info:?}"
    );
    let generation = detail.trace.generation;
    assert_eq!(summary.generation, generation, "{info:?} {detail:?}");
    if generation == 0 {
        assert!(detail.is_empty(), "{detail:?}");
        return;
    }
    let channel = &detail.channel[1];
    if summary.nr_channels == 0 {
        // The trace was created, but not started yet.
        assert_eq!((summary.active, *channel), (0, LttInfoChannel::default()));
        return;
    }
    assert_eq!(
        name(&detail.trace.name),
        format!("s{}-c{}", channel.subbuf_size, channel.subbuf_count),
        "{detail:?}"
    );
}

/// Requirements: C8
fn info_is_always_consistent() {
    // With fewer, the test would miss a `seq` that is not odd meanwhile. The debug kernel takes two
    // minutes for so many.
    const CHANGES: u64 = 200;
    let slot = Trace::started("s262144-c16").stats().slot;
    // All others are taken, so that this one is taken again each time.
    let others: Vec<_> = (1..SLOTS)
        .map(|n| Trace::create(&format!("other-{n}")))
        .collect();
    assert!(others.iter().all(|trace| trace.stats().slot != slot));
    let reader = |link: &mut child::Link| {
        let areas = Areas::map(0);
        link.send(0);
        let (mut last, mut changes) = (0, 0u64);
        loop {
            let (info, detail) = areas.info(slot);
            check_consistent(&info, &detail, slot);
            assert!(info.generation >= last, "{} after {last}", info.generation);
            changes += u64::from(info.generation != last);
            last = info.generation;
            // This marks the end.
            if info.active.count_ones() == 2 {
                break;
            }
        }
        link.send(changes);
    };
    let mut readers: Vec<_> = (0..2).map(|_| Child::spawn(reader)).collect();
    for reader in &mut readers {
        reader.link.receive();
    }
    for round in 0..scaled(20 * CHANGES).min(CHANGES) {
        let (size, count) = if round % 2 == 0 {
            (4096, 64)
        } else {
            (65536, 2)
        };
        let trace = Trace::started_with(&format!("s{size}-c{count}"), size, count);
        assert_eq!(trace.stats().slot, slot);
        for _ in 0..5 {
            trace.stop();
            trace.start();
        }
    }
    let _last = Trace::started("s262144-c16");
    others[0].start();
    for mut reader in readers {
        let seen = reader.link.receive();
        assert!(seen > 1, "it saw the area change");
        reader.join();
    }
}
