//! What a user does to the tracer costs other users little (F2): each attack is one that stopped, or
//! slowed, all others with the first version of the kernel series.
//!
//! The attackers are on one CPU and the victim is on another, so that they share nothing but what
//! the kernel has them share.

use std::fmt;
use std::fs;
use std::mem::size_of;
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use usertrace_sys::uapi::LttTracebuf;
use usertrace_tests::accounts::Cgroup;
use usertrace_tests::areas::{Areas, Slot, calls};
use usertrace_tests::child::{self, Child};
use usertrace_tests::control::{Limit, Trace};
use usertrace_tests::cpu::pin;
use usertrace_tests::raw;

use crate::isolation::become_user;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    f2_a_user_above_its_memory_limit_slows_nobody_else,
    f2_a_user_who_leaves_full_buffers_of_dead_processes_slows_nobody_else,
    f2_a_user_whose_programs_look_for_changes_all_the_time_slows_nobody_else,
    f2_a_user_who_unmaps_areas_in_the_making_slows_nobody_else,
    f2_removing_a_trace_full_of_a_users_dead_buffers_slows_nobody_else,
];

/// As many times as long as alone may things take beside an attack.
const MOST: u64 = 3;
/// How often each thing is done for a measurement.
const SAMPLES: usize = 50;
/// How long the attackers are let go on before the others are measured beside them.
const WARM_UP: Duration = Duration::from_secs(2);
/// A measurement that was disturbed by something else is repeated.
const ATTEMPTS: usize = 3;
/// Where the attackers are, and where the victim is.
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
/// What the attackers may have before they are slowed down: a page.
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
    fn is_at_most(&self, factor: u64, alone: &Self) -> bool {
        self.alloc <= factor * alone.alloc
            && self.fault <= factor * alone.fault
            && self.switch <= factor * alone.switch
            && self.start <= factor * alone.start
            && self.create <= factor * alone.create
    }
}

fn nanoseconds(body: impl FnOnce()) -> u64 {
    let begun = Instant::now();
    body();
    begun.elapsed().as_nanos() as u64
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

/// The mean of all but the largest tenth, in which is what else the machine does.
fn mean(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times.truncate(times.len() - times.len() / 10);
    times.iter().sum::<u64>() / times.len() as u64
}

/// What takes how long for a user, and for root, who starts and creates traces.
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
        starts.push(nanoseconds(|| trace.start()));
        let mut created = None;
        creates.push(nanoseconds(|| created = Some(Trace::create("created"))));
        drop(created);
        let mut child = Child::spawn(|link| {
            become_user(VICTIM);
            let mut areas = None;
            link.tell(nanoseconds(|| areas = Some(Areas::map(0))));
            let slot = slot_of(&areas.expect("areas"), VICTIMS);
            let ring = slot.ring(1, CPUS[1]);
            // What comes with the first page comes once.
            ring.write(0, 1);
            link.tell(nanoseconds(|| {
                for number in 1..=FAULTS {
                    ring.write(number * AROUND * PAGE, 1);
                }
            }));
            // Makes the files, in directories where others have theirs.
            link.tell(nanoseconds(|| slot.switch().expect("files")));
        });
        allocs.push(child.link.hear());
        faults.push(child.link.hear() / FAULTS as u64);
        switches.push(child.link.hear());
        child.join();
    }
    Times {
        alloc: mean(allocs),
        fault: mean(faults),
        switch: mean(switches),
        start: mean(starts),
        create: mean(creates),
    }
}

/// Does `attack` again and again in a process of a user, and in its control group, while the others
/// are measured; `janitor`, too, as root.
fn compare(name: &str, attack: impl Fn(), janitor: impl Fn()) {
    let trace = Trace::started_with(VICTIMS, 1 << 20, 2);
    let group = Cgroup::new(name);
    group.slow_down_above(HIGH);
    let mut said = String::new();
    for _ in 0..ATTEMPTS {
        let alone = measure(&trace);
        let attacker = Child::spawn(|link| {
            pin(CPUS[0]);
            group.join();
            become_user(ATTACKER);
            link.tell(0);
            loop {
                attack();
            }
        });
        let janitor = Child::spawn(|_| {
            pin(CPUS[0]);
            loop {
                janitor();
            }
        });
        thread::sleep(WARM_UP);
        let attacked = measure(&trace);
        assert!(attacker.is_alive(), "{name}: the attacker has ended");
        assert!(janitor.is_alive(), "{name}: root's process has ended");
        group.kill();
        drop((attacker, janitor));
        said += &format!("\n  alone:    {alone}\n  attacked: {attacked}");
        if attacked.is_at_most(MOST, &alone) {
            println!("{name}: {said}");
            return;
        }
    }
    panic!("{name}: more than {MOST} times as long as alone: {said}");
}

/// Runs `body` in a process, and returns at once.
fn fork_off(body: impl FnOnce()) -> nix::unistd::Pid {
    // SAFETY: This process has one thread, so the child is as complete as it is.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => {
            body();
            child::exit(0)
        }
        ForkResult::Parent { child } => child,
    }
}

/// Runs `count` processes at once, and waits for their ends.
fn run_all(count: usize, body: impl Fn(usize)) {
    let children: Vec<_> = (0..count).map(|number| fork_off(|| body(number))).collect();
    for child in children {
        waitpid(child, None).expect("a child");
    }
}

/// Writes to each page of the main rings, of which there may be none.
fn fill(slot: &Slot) {
    for number in 0..slot.channel(1).nr_rings as usize {
        let ring = slot.ring(1, number);
        for at in (0..ring.len).step_by(AROUND * PAGE) {
            ring.write(at, 1);
        }
    }
}

/// All buffers of a new process, full.
fn full_buffers() {
    let areas = Areas::map(0);
    while let Some((slot, _)) = areas.next() {
        fill(&slot);
        // The trace may have gone.
        let _ = slot.switch();
    }
}

/// Findings 2 and 3 of the review: above `memory.high`, whoever takes many pages in one system call
/// waits in the middle of it, for up to two seconds, with all that it holds.
///
/// Requirements: F2, F6
fn f2_a_user_above_its_memory_limit_slows_nobody_else() {
    let _other = Trace::started_with("filled", 1 << 20, 4);
    let attack = || {
        run_all(8, |number| {
            if number % 2 == 0 {
                return read_into_buffers();
            }
            // One thread has the address space's lock for long, another wants the areas.
            let pages = raw::Pages::new(4096, libc::PROT_READ | libc::PROT_WRITE);
            let at = pages.address();
            thread::scope(|scope| {
                scope.spawn(move || {
                    let at = at as *mut libc::c_void;
                    // SAFETY: The pages are this process's, and nothing is in them.
                    unsafe { libc::madvise(at, 4096 * PAGE, libc::MADV_POPULATE_WRITE) };
                });
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(100));
                    Areas::map(0)
                });
            });
        });
    };
    compare("high", attack, thread::park);
}

/// Has the kernel write to each page of the main rings of a new process, in one call for a ring, and
/// make its files.
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

/// Finding 6: what the dead left is full, and each new process that dies has something evicted.
///
/// Requirements: F2, F6
fn f2_a_user_who_leaves_full_buffers_of_dead_processes_slows_nobody_else() {
    let _other = Trace::started_with("filled", 65536, 4);
    let limit = Limit::new("limit_dead");
    limit.set(&(2 << 20).to_string());
    compare("dead", || run_all(4, |_| full_buffers()), thread::park);
}

/// Finding 10: after each change, hundreds of programs look for what has changed.
///
/// Requirements: A4, F2
fn f2_a_user_whose_programs_look_for_changes_all_the_time_slows_nobody_else() {
    const PROGRAMS: usize = 64;
    const LOOKS: usize = 1_000;
    let attack = || {
        run_all(PROGRAMS, |_| {
            let areas = Areas::map(0);
            let slot = areas.must_next();
            for _ in 0..LOOKS {
                assert!(areas.next().is_none());
                slot.update().expect("the trace is there");
                slot.switch().expect("its files");
            }
        });
    };
    compare("changes", attack, thread::park);
}

/// Finding 14: one thread unmaps what another is being given.
///
/// Requirements: C1, F2
fn f2_a_user_who_unmaps_areas_in_the_making_slows_nobody_else() {
    const ROUNDS: usize = 200;
    let attack = || {
        run_all(2, |_| {
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
    compare("unmaps", attack, thread::park);
}

/// Finding 15: root removes traces in which a user has left what nobody has read.
///
/// Requirements: E1, F2
fn f2_removing_a_trace_full_of_a_users_dead_buffers_slows_nobody_else() {
    let attack = || run_all(16, |_| full_buffers());
    let janitor = || {
        let trace = Trace::started_with("removed", 4096, 2);
        thread::sleep(Duration::from_millis(200));
        drop(trace);
    };
    compare("removes", attack, janitor);
}
