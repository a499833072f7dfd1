//! How often the tracer's locks are taken, as lockdep counts it. Frequent operations of many CPUs
//! or processes must not queue for a lock (F2, C3).
//!
//! `/proc/lockdep` has counts on the debug kernel only. They do not depend on how fast a processor
//! is, or how many there are.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use usertrace_testing::wait;
use usertrace_tests::areas::Areas;
use usertrace_tests::child;
use usertrace_tests::control::Trace;
use usertrace_tests::guest::{is_debug, scaled};
use usertrace_tests::shared::Shared;

use crate::{Case, cases};

pub(crate) const ON_THE_DEBUG_KERNEL: &[Case] = cases![
    new_page_takes_no_lock_that_others_wait_for,
    change_takes_each_global_lock_once_per_process,
];

/// Global locks, shared by all processes.
const GLOBAL: &[&str] = &["REGISTRY", "SIGNALLED", "USERS", "DIRECTORY", "DEAD"];
/// The prefix of the names of the tracer's object locks.
const OF_OBJECTS: &str = "ltt::";
/// A lock of one process, held while a pointer is copied.
const BUFFERS: &str = "ltt::Process::buffers";
/// The most pages that one fault maps.
const AROUND: usize = 16;
const PAGE: usize = 4096;

/// How often each lock of the tracer was taken since boot, by name.
fn taken() -> BTreeMap<String, u64> {
    assert!(is_debug(), "only the debug kernel counts");
    let text = fs::read_to_string("/proc/lockdep").expect("the kernel has lockdep");
    let mut taken = BTreeMap::new();
    for line in text.lines() {
        // "0000000012345678 OPS:      42 FD:    1 BD:    1 +.+.: NAME", where NAME of a second
        // class of the same lock ends with "#2".
        let Some((_, rest)) = line.split_once(" OPS:") else {
            continue;
        };
        let count = rest.split_whitespace().next();
        let count: u64 = count.and_then(|count| count.parse().ok()).expect(line);
        let name = rest.rsplit_once(": ").expect(line).1;
        let name = name.split(['#', '/']).next().expect("at least one part");
        if name.starts_with(OF_OBJECTS) || GLOBAL.contains(&name) {
            *taken.entry(name.to_owned()).or_default() += count;
        }
    }
    assert!(
        taken.contains_key("REGISTRY") && taken.contains_key(BUFFERS),
        "the kernel does not count (CONFIG_DEBUG_LOCKDEP), or calls its locks something else: {taken:?}"
    );
    taken
}

/// How often each lock was taken while `body` ran.
fn taken_by(body: impl FnOnce()) -> BTreeMap<String, u64> {
    let before = taken();
    body();
    let mut after = taken();
    for (name, count) in &mut after {
        *count -= before.get(name).unwrap_or(&0);
    }
    after
}

/// Sixteen threads that write to new pages do not wait for each other in the tracer: they take only
/// the lock of the process's slots, for some instructions.
///
/// Requirements: C3, F2
fn new_page_takes_no_lock_that_others_wait_for() {
    const THREADS: usize = 16;
    let _trace = Trace::started_with("pages", 1 << 20, 8);
    child::run(|| {
        let slot = Areas::map(0).must_next();
        let ring = slot.ring(1, 0);
        // The first fault allocates tables, too.
        ring.write(0, 1);
        let step = AROUND * PAGE;
        let faults = (ring.len / step - 1) as u64;
        let counts = taken_by(|| {
            thread::scope(|scope| {
                for number in 0..THREADS {
                    scope.spawn(move || {
                        for at in (1 + number..ring.len / step).step_by(THREADS) {
                            ring.write(at * step, 1);
                        }
                    });
                }
            });
        });
        println!("for {faults} new pages: {counts:?}");
        for (name, count) in counts {
            let most = match &*name {
                // To find the buffer, and to see that it is the same one afterwards; a fault that
                // is repeated does so again.
                BUFFERS => 4 * faults,
                // A page of the tree, for which the directory has an entry, has room for hundreds.
                _ => 8 + faults / 16,
            };
            assert!(
                count <= most,
                "{name}: {count} times for {faults} new pages"
            );
        }
    });
}

/// A gate at which processes wait. It lets one of them through at a time: thousands that wake at
/// once would wait minutes for a lock of the pipe, or of the memory that they share.
struct Gate {
    reader: io::PipeReader,
    writer: Option<io::PipeWriter>,
}

impl Gate {
    fn new() -> Self {
        let (reader, writer) = io::pipe().expect("a pipe");
        Self {
            reader,
            writer: Some(writer),
        }
    }

    /// Waits to be let through. Fails if the process that opens the gate is gone.
    fn pass(&mut self) {
        self.writer = None;
        self.reader.read_exact(&mut [0]).expect("a pipe");
    }

    /// Lets one of the waiting processes through.
    fn let_through(&mut self) {
        let writer = self.writer.as_mut().expect("the process that opens it");
        writer.write_all(&[0]).expect("a pipe");
    }
}

/// Each of many processes: attaches, waits for a change, and follows it.
fn look_once(done: &AtomicU64, change: &mut Gate, end: &mut Gate) {
    let areas = Areas::map(0);
    let slot = areas.must_next();
    slot.ring(1, 0).write(0, 1);
    end.writer = None;
    done.fetch_add(1, Ordering::Relaxed);
    change.pass();
    // The change that it is about, and whether there is another trace.
    slot.update().expect("the trace is there");
    assert!(areas.next().is_none());
    done.fetch_add(1, Ordering::Relaxed);
    end.pass();
}

/// When many processes follow one change, each takes each global lock at most once.
///
/// Requirements: A4, F2
fn change_takes_each_global_lock_once_per_process() {
    let trace = Trace::started("many");
    let count = scaled(10_000);
    let done = Shared::new();
    let (mut change, mut end) = (Gate::new(), Gate::new());
    for _ in 0..count {
        // SAFETY: this process has one thread, so no lock is held that the child would need.
        match unsafe { fork() }.expect("a process") {
            ForkResult::Child => {
                let body = || look_once(done.get(), &mut change, &mut end);
                let is_well = catch_unwind(AssertUnwindSafe(body)).is_ok();
                child::exit(i32::from(!is_well));
            }
            ForkResult::Parent { .. } => {}
        }
    }
    let all = || done.get().load(Ordering::Relaxed) == count;
    wait::until("all have their buffer", all);
    trace.stop();
    let counts = taken_by(|| {
        for number in 1..=count {
            change.let_through();
            let has = || done.get().load(Ordering::Relaxed) == count + number;
            wait::until("one more has acknowledged", has);
        }
    });
    for _ in 0..count {
        end.let_through();
        let ended = waitpid(None, None);
        assert!(matches!(ended, Ok(WaitStatus::Exited(_, 0))), "{ended:?}");
    }
    println!("for {count} processes: {counts:?}");
    for name in GLOBAL {
        let often = counts.get(*name).copied().unwrap_or(0);
        assert!(
            often <= count + 8,
            "{name}: {often} times for {count} processes"
        );
    }
}
