//! How costs grow with processors and processes: the same measurements while more and more
//! processes have a buffer of the trace.
//!
//! ```sh
//! scripts/guest --smp 64 --icount --memory 6G -- target/release/guest-bench growth 1 100 10000
//! ```
//!
//! The counter counts the instructions of all processors. So this program and its children run on
//! one of them, and the others are idle: the results have what a call does, but not what its
//! processors wait for each other.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use usertrace::clock::cycles;
use usertrace_bench::{Growth, GrowthRow, median};
use usertrace_sys::uapi::LttRingPositions;
use usertrace_sys::{Calls, files};

use crate::control::{Trace, counted_write, write};
use crate::kernel::{self, Traced, register};
use crate::process::{Process, all_sleep, apart, until_ready};
use crate::{last_error, no, ours};

/// The geometry of the rings: slightly larger than the records of all batches of events.
const SUBBUF_SIZE: u32 = 65536;
const SUBBUFS: u32 = 32;
/// Pages of a ring that are written for the first time; fewer than it has.
const PAGES: usize = 192;
/// Starts, stops and calls that are measured. The result is their median.
const TIMES: usize = 5;
/// Timeout of each wait. A guest of 64 processors, on one, takes its time.
const LIMIT: Duration = Duration::from_secs(900);

pub(crate) fn growth(counts: &[usize]) -> Result<Growth> {
    ensure!(
        !counts.is_empty() && counts.is_sorted() && counts[0] > 0,
        "growth: the numbers of processes must ascend, from 1 on"
    );
    stay_on_one_processor()?;
    let event_by_cid = {
        let trace = Trace::create("cid")?;
        write(&trace.channel().join("scope"), "mm_cid")?;
        trace.set_geometry(SUBBUF_SIZE, SUBBUFS)?;
        write(&trace.start_file(), "1")?;
        let [_, later] = apart(|| ours(&trace))?;
        later
    };
    let mut sleepers = Vec::new();
    let rows = counts
        .iter()
        .map(|&count| row(&mut sleepers, count).with_context(|| format!("{count} processes")))
        .collect::<Result<_>>()?;
    Ok(Growth {
        processors: configured_processors()?,
        event_by_cid,
        rows,
    })
}

fn row(sleepers: &mut Vec<Process>, count: usize) -> Result<GrowthRow> {
    while sleepers.len() < count {
        sleepers.push(sleeper()?);
    }
    all_sleep(sleepers, LIMIT)?;
    let by_process = |instructions: u64| instructions as f64 / count as f64;

    // The first start fixes the channels and makes the tables; the next ones are measured, too.
    let free = free_memory()?;
    let trace = Trace::create("growth")?;
    trace.set_geometry(SUBBUF_SIZE, SUBBUFS)?;
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        starts.push(by_process(counted_write(&trace.start_file(), "1")?));
        all_sleep(sleepers, LIMIT)?;
        stops.push(by_process(counted_write(&trace.start_file(), "0")?));
        all_sleep(sleepers, LIMIT)?;
    }
    write(&trace.start_file(), "1")?;
    all_sleep(sleepers, LIMIT)?;
    let memory_taken = free.saturating_sub(free_memory()?) as f64 / count as f64;
    let memory = accounted()? as f64 / count as f64;

    let [event_fresh, event] = apart(|| ours(&trace))?;
    let [fault] = apart(|| Ok([kernel::first_touch(Traced::new()?.ring(), 0..PAGES)?.count]))?;
    let (mut allocs, mut updates, mut exits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let [alloc, update, exit] = life()?;
        allocs.push(alloc);
        updates.push(update);
        exits.push(exit);
    }
    let [_, update_idle, _] = apart(|| kernel::idle_counts(&Traced::new()?))?;
    let snapshot = by_process(positions_of_all(&trace, count)?);

    write(&trace.start_file(), "0")?;
    all_sleep(sleepers, LIMIT)?;
    let begin = cycles();
    drop(trace);
    let destroy = by_process(cycles() - begin);
    all_sleep(sleepers, LIMIT)?;
    Ok(GrowthRow {
        processes: count,
        event,
        event_fresh,
        fault,
        alloc: median(&allocs),
        update: median(&updates),
        update_idle,
        start: median(&starts),
        stop: median(&stops),
        snapshot,
        destroy,
        exit: median(&exits),
        memory,
        memory_taken,
    })
}

/// Lets this program, and the processes that it starts, run on the first processor only.
fn stay_on_one_processor() -> Result<()> {
    // SAFETY: a set of zeros is an empty one, and the call only reads it.
    let ret = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    ensure!(ret == 0, "sched_setaffinity: {}", last_error());
    Ok(())
}

fn configured_processors() -> Result<usize> {
    // SAFETY: `sysconf` only takes a number.
    let number = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    Ok(usize::try_from(number)?)
}

/// Starts a process that takes the buffer of each trace, writes to two pages of it, and sleeps
/// until the next signal for an update.
fn sleeper() -> Result<Process> {
    until_ready(|ready| {
        kernel::handle(libc::SIGUSR1)?;
        let all = block_signal()?;
        let (calls, areas) = register(libc::SIGUSR1.cast_unsigned())?;
        ready()?;
        loop {
            let mut buffer = None;
            calls.update(&mut buffer).map_err(no)?;
            if let Some(buffer) = buffer {
                // One of `control`, with which a slot begins, and one of `main`: a program
                // describes its events, and writes some.
                for page in [buffer.as_ptr(), kernel::ring(&areas, buffer)] {
                    // SAFETY: the page is mapped and writable, and has no Rust object.
                    unsafe { page.cast::<u64>().write_volatile(1) };
                }
                calls.switch(buffer).map_err(no)?;
            }
            // The update signal goes to no thread that waits for it by `sigwait`.
            // SAFETY: the call only reads the set.
            unsafe { libc::sigsuspend(&raw const all) };
        }
    })
}

/// Blocks the signal for updates, so that it comes only while the process sleeps, and returns the
/// empty set to sleep with.
fn block_signal() -> Result<libc::sigset_t> {
    // SAFETY: `sigemptyset` makes the sets, which the other calls change and read.
    unsafe {
        let (mut empty, mut set) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut empty);
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        let ret = libc::sigprocmask(libc::SIG_BLOCK, &raw const set, null_mut());
        ensure!(ret == 0, "sigprocmask: {}", last_error());
        Ok(empty)
    }
}

/// Instructions of `alloc_tracebuf`, of the `ltt_update` that returns a buffer, and of the end of
/// the process.
fn life() -> Result<[f64; 3]> {
    let [alloc, update, last] = apart(|| {
        // Discovers the calls, whose first use reads a file.
        let calls = Calls::discover()?;
        let begin = cycles();
        calls.alloc_tracebuf(0).map_err(no)?;
        let allocated = cycles();
        let mut buffer = None;
        calls.update(&mut buffer).map_err(no)?;
        let updated = cycles();
        let buffer = buffer.context("no buffer")?;
        calls.switch(buffer).map_err(no)?;
        let numbers = [allocated - begin, updated - allocated, cycles()];
        Ok(numbers.map(|number| number as f64))
    })?;
    Ok([alloc, update, cycles() as f64 - last])
}

/// Instructions of opening all consumer files of `main`, and reading where their rings are.
fn positions_of_all(trace: &Trace, count: usize) -> Result<u64> {
    let mut rings = vec![LttRingPositions::default(); 64];
    let begin = cycles();
    let mut found = 0;
    for entry in fs::read_dir(trace.channel())? {
        let path = entry?.path();
        if path.extension().is_some() {
            let file = File::open(&path)?;
            files::positions(file.as_fd(), &mut rings).map_err(no)?;
            found += 1;
        }
    }
    let instructions = cycles() - begin;
    // Those of the processes that were measured and have ended may be there as well.
    ensure!(
        found >= count,
        "{found} consumer files of {count} processes"
    );
    Ok(instructions * count as u64 / found as u64)
}

/// Bytes that buffers hold, by the kernel's account.
fn accounted() -> Result<u64> {
    let text = fs::read_to_string("/sys/kernel/ltt/memory")?;
    let line = text.lines().next().context("memory: empty")?;
    let number = line
        .split_whitespace()
        .last()
        .context("memory: no number")?;
    number.parse().with_context(|| format!("memory: {line}"))
}

/// Bytes of memory that is not used.
fn free_memory() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("MemFree")?.parse::<u64>()? * 1024)
}
