//! A user's attacks on the tracer cost other users little (F2). Each attack stopped or slowed all
//! others with the first version of the kernel series.
//!
//! The attackers are on one CPU and the victim is on another, so that they share only the kernel's
//! data.

use std::fmt;
use std::fs;
use std::mem::{ManuallyDrop, size_of};
use std::os::fd::AsRawFd as _;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::wait::wait;
use nix::unistd::{ForkResult, fork};
use usertrace_sys::uapi::LttTracebuf;
use usertrace_tests::accounting::Cgroup;
use usertrace_tests::areas::{Areas, Slot, calls};
use usertrace_tests::child::{self, Child, Link};
use usertrace_tests::control::{Limit, Trace};
use usertrace_tests::cpu::pin;
use usertrace_tests::raw;

use crate::isolation::become_user;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    user_above_its_memory_limit_slows_no_other_user,
    full_buffers_of_dead_processes_slow_no_other_user,
    constant_updates_slow_no_other_user,
    unmapping_areas_during_alloc_slows_no_other_user,
    removing_a_trace_full_of_dead_buffers_slows_no_other_user,
];

/// How many times longer an operation may take during an attack.
const MOST: u64 = 3;
/// Like [`MOST`], for operations in directories, which the VFS locks: a lock holder that is
/// preempted waits for its turn among the attackers.
const MOST_IN_DIRECTORIES: u64 = 20;
/// Samples of each measurement.
const SAMPLES: usize = 100;
/// How long the attackers run before the measurement.
const WARM_UP: Duration = Duration::from_secs(2);
/// How often a disturbed measurement is repeated.
const ATTEMPTS: usize = 3;
/// The CPUs of the attackers and of the victim.
const CPUS: [usize; 2] = [0, 1];
const ATTACKER: u32 = 3001;
const VICTIM: u32 = 3002;
/// The trace that the victim writes to.
const VICTIMS: &str = "victim";
/// Pages that come with one fault.
const AROUND: usize = 16;
const PAGE: usize = 4096;
/// New pages that the victim writes to, for one sample.
const FAULTS: usize = 8;
/// How much memory the attackers may have before the kernel throttles them: a page.
const HIGH: u64 = 4096;

/// Mean times, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Times {
    alloc: u64,
    fault: u64,
    switch: u64,
    start: u64,
    create: u64,
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "alloc_tracebuf {} ns, fault {} ns, first ltt_switch {} ns, start {} ns, mkdir {} ns",
            self.alloc, self.fault, self.switch, self.start, self.create
        )
    }
}

impl Times {
    fn is_little_more_than(&self, alone: &Self) -> bool {
        self.alloc <= MOST * alone.alloc
            && self.fault <= MOST * alone.fault
            && self.start <= MOST * alone.start
            && self.switch <= MOST_IN_DIRECTORIES * alone.switch
            && self.create <= MOST_IN_DIRECTORIES * alone.create
    }
}

/// The duration of an operation, and whether the thread waited in it.
#[derive(Clone, Copy)]
struct Sample {
    nanoseconds: u64,
    has_waited: bool,
}

impl Sample {
    fn of(body: impl FnOnce()) -> Self {
        let waits = waits();
        let begun = Instant::now();
        body();
        let nanoseconds = begun.elapsed().as_nanos() as u64;
        let has_waited = self::waits() != waits;
        Self {
            nanoseconds,
            has_waited,
        }
    }

    fn tell(self, link: &mut Link) {
        link.send(self.nanoseconds);
        link.send(self.has_waited.into());
    }

    fn hear(link: &mut Link) -> Self {
        Self {
            nanoseconds: link.receive(),
            has_waited: link.receive() != 0,
        }
    }
}

/// How often this thread has given up its processor to wait for something.
fn waits() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("usage");
    usage.voluntary_context_switches()
}

/// The buffer of a trace with this name.
fn slot_of(areas: &Areas, name: &str) -> Slot {
    loop {
        let slot = areas.must_next();
        let (_, trace) = areas.info(slot.index);
        if trace.trace.name.starts_with(name.as_bytes()) {
            return slot;
        }
    }
}

/// A mean that is robust against other load: of the samples without waits, the longest tenth counts
/// as the mean of the others. Waits count in full, because a lock that is held for long may be
/// rare.
fn mean(samples: &[Sample]) -> u64 {
    let of = |has_waited| {
        let samples = samples.iter();
        let samples = samples.filter(move |sample| sample.has_waited == has_waited);
        samples.map(|sample| sample.nanoseconds)
    };
    let mut undisturbed: Vec<_> = of(false).collect();
    undisturbed.sort_unstable();
    let count = undisturbed.len();
    undisturbed.truncate(count - count / 10);
    let usual = undisturbed.iter().sum::<u64>() / undisturbed.len().max(1) as u64;
    (usual * count as u64 + of(true).sum::<u64>()) / samples.len() as u64
}

/// Measures operations of a user, and of root, who creates and starts traces.
fn measure(trace: &Trace) -> Times {
    pin(CPUS[1]);
    let [
        mut allocs,
        mut faults,
        mut switches,
        mut starts,
        mut creates,
    ] = [(); 5].map(|()| Vec::new());
    for _ in 0..SAMPLES {
        trace.stop();
        starts.push(Sample::of(|| trace.start()));
        let mut created = None;
        creates.push(Sample::of(|| created = Some(Trace::create("created"))));
        drop(created);
        let mut child = Child::spawn(|link| {
            become_user(VICTIM);
            let mut areas = None;
            Sample::of(|| areas = Some(Areas::map(0))).tell(link);
            let slot = slot_of(&areas.expect("areas"), VICTIMS);
            let ring = slot.ring(1, CPUS[1]);
            // The first fault allocates tables, too.
            ring.write(0, 1);
            let faults = Sample::of(|| {
                for number in 1..=FAULTS {
                    ring.write(number * AROUND * PAGE, 1);
                }
            });
            faults.tell(link);
            // The switch creates the files, in directories with those of other processes.
            Sample::of(|| slot.switch().expect("files")).tell(link);
        });
        for samples in [&mut allocs, &mut faults, &mut switches] {
            samples.push(Sample::hear(&mut child.link));
        }
        child.join();
    }
    Times {
        alloc: mean(&allocs),
        fault: mean(&faults) / FAULTS as u64,
        switch: mean(&switches),
        start: mean(&starts),
        create: mean(&creates),
    }
}

/// Measures while a user's process runs `attack`, which does not end, in its control group, and
/// root runs `janitor` again and again. The kernel throttles attackers with more than `high` bytes
/// only once they run: otherwise they would hardly attack.
fn compare(group: &Cgroup, high: Option<u64>, attack: impl Fn(), janitor: impl Fn()) {
    let trace = Trace::started_with(VICTIMS, 1 << 20, 2);
    let mut said = String::new();
    for _ in 0..ATTEMPTS {
        let alone = measure(&trace);
        group.slow_down_above(u64::MAX);
        let attacker = Child::spawn(|link| {
            pin(CPUS[0]);
            group.join();
            become_user(ATTACKER);
            link.send(0);
            attack();
        });
        let janitor = Child::spawn(|_| {
            pin(CPUS[0]);
            loop {
                janitor();
            }
        });
        thread::sleep(WARM_UP);
        if let Some(bytes) = high {
            group.slow_down_above(bytes);
            thread::sleep(WARM_UP);
        }
        let attacked = measure(&trace);
        assert!(attacker.is_alive(), "the attacker has ended");
        assert!(janitor.is_alive(), "root's process has ended");
        group.kill();
        drop((attacker, janitor));
        said += &format!("\n  alone:    {alone}\n  attacked: {attacked}");
        if attacked.is_little_more_than(&alone) {
            println!("{said}");
            return;
        }
    }
    panic!("more than {MOST} times as long as alone, in directories {MOST_IN_DIRECTORIES}: {said}");
}

/// Runs `body` in a process, and returns at once.
fn fork_off(body: impl FnOnce()) -> nix::unistd::Pid {
    // SAFETY: this process has one thread, so no lock is held that the child would need.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => {
            body();
            child::exit(0)
        }
        ForkResult::Parent { child } => child,
    }
}

/// Keeps `count` processes running: replaces each one that ends.
fn keep_running(count: usize, body: impl Fn(usize)) {
    let start = |number| fork_off(|| body(number));
    let mut running: Vec<_> = (0..count).map(start).collect();
    loop {
        let ended = wait().expect("a child").pid();
        for (number, pid) in running.iter_mut().enumerate() {
            if Some(*pid) == ended {
                *pid = start(number);
            }
        }
    }
}

/// Writes to each page of the main rings, if there are any.
fn fill(slot: &Slot) {
    for number in 0..slot.channel(1).nr_rings as usize {
        let ring = slot.ring(1, number);
        for at in (0..ring.len).step_by(AROUND * PAGE) {
            ring.write(at, 1);
        }
    }
}

/// Starts a process that fills all its buffers.
fn full_buffers() {
    let areas = Areas::map(0);
    while let Some((slot, _)) = areas.next() {
        fill(&slot);
        // The trace may have gone.
        let _ = slot.switch();
    }
}

/// Findings 2 and 3 of the review: above `memory.high`, a process that takes many pages in one
/// system call waits within it, for up to two seconds, with all locks that it holds.
///
/// Requirements: F2, F6
fn user_above_its_memory_limit_slows_no_other_user() {
    const READERS: usize = 4;
    const MAPPERS: usize = 32;
    let _other = Trace::started_with("filled", 1 << 20, 4);
    let attack = || {
        keep_running(READERS + MAPPERS, |number| {
            match number.checked_sub(READERS) {
                None => read_into_buffers(),
                Some(mapper) => map_areas_beside_a_populating_thread(mapper as u32),
            }
        });
    };
    compare(&Cgroup::new("high"), Some(HIGH), attack, thread::park);
}

/// One thread holds the address space's lock while it waits for memory. Another wants the lock to
/// map the areas, which is possible once in an address space. So each process has one turn, after
/// the throttling has begun.
fn map_areas_beside_a_populating_thread(turn: u32) {
    const PAGES: usize = 4096;
    // They stay until the process ends, as the thread does.
    let pages = ManuallyDrop::new(raw::Pages::new(PAGES, libc::PROT_READ | libc::PROT_WRITE));
    let at = pages.address();
    thread::spawn(move || {
        loop {
            for advice in [libc::MADV_POPULATE_WRITE, libc::MADV_DONTNEED] {
                // SAFETY: The pages are this process's until it ends, and nothing is in them.
                unsafe { libc::madvise(at as *mut libc::c_void, PAGES * PAGE, advice) };
            }
        }
    });
    thread::sleep(WARM_UP + turn * Duration::from_millis(100));
    let _ = Areas::map(0);
}

/// Makes the kernel write to each page of the main rings of a new process, with one call for each
/// ring, and create its files.
fn read_into_buffers() {
    let zeros = fs::File::open("/dev/zero").expect("/dev/zero");
    let areas = Areas::map(0);
    while let Some((slot, _)) = areas.next() {
        for number in 0..slot.channel(1).nr_rings as usize {
            let ring = slot.ring(1, number);
            let at = ring.address as *mut libc::c_void;
            // SAFETY: Within the ring, where no Rust object lies.
            unsafe { libc::read(zeros.as_raw_fd(), at, ring.len) };
        }
        // So its files are made while it waits for memory. The trace may have gone.
        let _ = slot.switch();
    }
}

/// Finding 6: the limit of dead processes' buffers is reached, and each death evicts some.
///
/// Requirements: F2, F6
fn full_buffers_of_dead_processes_slow_no_other_user() {
    let _other = Trace::started_with("filled", 65536, 4);
    let limit = Limit::new("limit_dead");
    limit.set(&(2 << 20).to_string());
    compare(
        &Cgroup::new("dead"),
        None,
        || keep_running(4, |_| full_buffers()),
        thread::park,
    );
}

/// Finding 10: after each change, hundreds of programs follow it.
///
/// Requirements: A4, F2
fn constant_updates_slow_no_other_user() {
    const PROGRAMS: usize = 64;
    const LOOKS: usize = 10_000;
    let attack = || {
        keep_running(PROGRAMS, |_| {
            let areas = Areas::map(0);
            let slot = areas.must_next();
            for _ in 0..LOOKS {
                assert!(areas.next().is_none());
                slot.update().expect("the trace is there");
                slot.switch().expect("its files");
            }
        });
    };
    compare(&Cgroup::new("changes"), None, attack, thread::park);
}

/// Finding 14: one thread unmaps areas while another maps them.
///
/// Requirements: C1, F2
fn unmapping_areas_during_alloc_slows_no_other_user() {
    const ROUNDS: usize = 200;
    let attack = || {
        keep_running(2, |_| {
            // Where the areas of this address space come to be, most of the time.
            let at = Areas::map(0).at;
            let areas = [
                (at.info, at.info_len),
                (at.control, at.control_len),
                (at.buffers, at.buffers_len),
            ];
            thread::scope(|scope| {
                for thread in 0..2 {
                    scope.spawn(move || {
                        let calls = calls();
                        for round in 0..ROUNDS {
                            if thread == 0 {
                                let mut args = LttTracebuf::default();
                                let at = &raw mut args as usize;
                                // SAFETY: It is written to a structure of this size.
                                let _ = unsafe {
                                    raw::alloc_tracebuf(&calls, at, size_of::<LttTracebuf>(), 0)
                                };
                                continue;
                            }
                            let (start, len) = areas[round % areas.len()];
                            // SAFETY: Nothing of this process is there but the areas.
                            unsafe { libc::munmap(start as *mut libc::c_void, len as usize) };
                        }
                    });
                }
            });
        });
    };
    compare(&Cgroup::new("unmaps"), None, attack, thread::park);
}

/// Finding 15: root removes traces that are full of a user's unread buffers.
///
/// Requirements: E1, F2
fn removing_a_trace_full_of_dead_buffers_slows_no_other_user() {
    let attack = || keep_running(16, |_| full_buffers());
    let janitor = || {
        // Its own, as one of an attempt before can still be there.
        let name = format!("removed-{}", process::id());
        let trace = Trace::started_with(&name, 4096, 2);
        thread::sleep(Duration::from_millis(200));
        drop(trace);
    };
    compare(&Cgroup::new("removes"), None, attack, janitor);
}
