//! An unprivileged traced program, which does all that a program can do to its areas.

use std::sync::atomic::Ordering;

use syscalls::Sysno;
use usertrace_tests::random::Random;

use crate::actor::{Actor, call, exit, nap};
use crate::actors::{Weighted, choose, environment};
use crate::calls::{access, life, ltt, mm};
use crate::files;
use crate::kinds::Kind;
use crate::pattern;
use crate::plan::one_in;
use crate::probe;
use crate::run_state::THREADS;
use crate::scene::{PAGE, SCENE};

type Step = fn(&Actor, &mut Random);

/// Steps that need no other process.
const SIMPLE: &[Weighted<Step>] = &[
    (60, ltt::alloc),
    (6, ltt::alloc_wrong),
    (50, ltt::update_next),
    (40, ltt::update_of),
    (6, ltt::update_wrong),
    (40, ltt::switch),
    (6, ltt::switch_wrong),
    (40, ltt::read),
    (80, ltt::write),
    (20, ltt::write_control),
    (60, ltt::commit),
    (10, ltt::info),
    (40, ltt::check),
    (8, mm::unmap),
    (12, mm::unmap_part),
    (10, mm::unmap_two_and_map_again),
    (40, mm::remap),
    (8, mm::remap_onto),
    (10, mm::remap_pages),
    (12, mm::fixed),
    (30, mm::protect),
    (40, mm::others),
    (60, mm::advise),
    (16, mm::process_advise),
    (16, access::userfault),
    (6, access::map_files),
    (16, access::mem),
    (20, access::vm),
    (30, access::copy),
    (16, access::direct),
    (16, access::splice),
    (16, access::io_uring),
    (6, access::getfd),
    (10, life::handlers),
];

/// Steps with other processes.
const PROCESSES: &[Weighted<Step>] = &[
    (16, life::forks),
    (12, life::killed),
    (20, life::sharers),
    (3, life::exec),
    (4, life::exec_pending),
    (3, life::core),
    (6, life::limits),
    (1, life::sender),
    (5, life::ptrace),
    (12, receive),
];

/// One step that needs no other process.
pub(crate) fn simple(actor: &Actor, random: &mut Random) {
    let (_, step) = choose(random, SIMPLE);
    step(actor, random);
}

/// Receives descriptors from a consumer, and uses them.
fn receive(actor: &Actor, _random: &mut Random) {
    let Some((fd, pid)) = files::receive(actor) else {
        return;
    };
    let rights = libc::PROT_READ as usize;
    let shared = libc::MAP_SHARED as usize;
    let done = actor.call(
        Kind::PassUse,
        Sysno::mmap,
        [0, 4 * PAGE, rights, shared, fd, 0],
    );
    if let Ok(at) = done {
        for page in 0..4 {
            if let Ok(word) = probe::read(at + page * PAGE)
                && pattern::foreign(word, actor.run.family(pid)).is_some()
            {
                crate::oracle::judge_consumed(actor, pid, page * PAGE, word);
            }
        }
        let _ = call(Sysno::munmap, [at, 4 * PAGE]);
    }
    let _ = call(Sysno::close, [fd]);
}

/// A step in which one allocation or user access of the kernel fails.
fn fail(actor: &Actor, random: &mut Random) {
    let cwd = libc::AT_FDCWD as usize;
    let path = c"/proc/thread-self/fail-nth".as_ptr() as usize;
    let number = format!("{}", 1 + random.below(12));
    if !environment::can_fail() {
        return simple(actor, random);
    }
    let fd = actor.around(Kind::FailNth, || {
        let fd = call(Sysno::openat, [cwd, path, libc::O_RDWR as usize, 0])?;
        call(Sysno::write, [fd, number.as_ptr() as usize, number.len()])
            .map(|_| fd)
            .inspect_err(|_| {
                let _ = call(Sysno::close, [fd]);
            })
    });
    let (_, step) = choose(random, SIMPLE);
    step(actor, random);
    if let Ok(fd) = fd {
        let none = c"0".as_ptr() as usize;
        let _ = call(Sysno::write, [fd, none, 1]);
        let _ = call(Sysno::close, [fd]);
    }
}

/// One step of a thread, and what goes into the run's sum.
fn step(actor: &Actor, step: u64) -> u64 {
    let mut random = actor.stream(step);
    match random.below(100) {
        0..8 => {
            let (which, step) = choose(&mut random, PROCESSES);
            step(actor, &mut random);
            1000 + which
        }
        8..14 => {
            fail(actor, &mut random);
            2000
        }
        _ => {
            let (which, step) = choose(&mut random, SIMPLE);
            step(actor, &mut random);
            which
        }
    }
}

fn steps(actor: &Actor, count: u64) {
    for number in 0..count {
        if !actor.begin_step() {
            return;
        }
        let what = step(actor, number);
        actor.end_step(number, what);
    }
}

/// Runs the program until its end.
pub(crate) fn run(actor: &Actor) {
    let pid = std::process::id();
    actor.run.join_family(pid.cast_signed(), pid);
    SCENE.begin(pid);
    let mut random = actor.stream(u64::MAX);
    let threads = match random.below(3) {
        _ if actor.plan.turns => 1,
        0 => 1,
        _ => 2 + random.below(THREADS as u64 - 1) as usize,
    };
    let count = 20 + random.below(400);
    if threads > 1 {
        SCENE.alone.store(false, Ordering::Relaxed);
    }
    for thread in 1..threads {
        let mut other = *actor;
        other.who.thread = thread;
        std::thread::spawn(move || {
            // SAFETY: It asks for a number.
            let tid = unsafe { libc::gettid() };
            other.run.now[other.who.actor][thread]
                .tid
                .store(tid, Ordering::Relaxed);
            steps(&other, count);
        });
    }
    steps(actor, count);
    // An actor ends within its turn, so that the order of the following steps is deterministic.
    let _ = actor.wait_for_turn();
    end(actor, &mut random);
}

/// Ends in one of several ways.
fn end(actor: &Actor, random: &mut Random) {
    match random.below(6) {
        // SAFETY: The process ends.
        0 => unsafe {
            libc::kill(libc::getpid(), libc::SIGKILL);
        },
        1 => {
            // With everything unmapped before.
            mm::unmap_all(actor);
            if one_in(random, 2) {
                nap(random.below(10));
                ltt::check(actor, random);
            }
        }
        _ => {}
    }
    exit(0);
}
