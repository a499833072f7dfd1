//! Life cycles of processes with areas: fork, shared memory, exec, death.

use std::ffi::CStr;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use syscalls::Sysno;
use usertrace_sys::uapi::{LTT_TRACEBUF_LIMITED, LttTracebuf};
use usertrace_tests::child::no_core_dump;
use usertrace_tests::random::Random;

use crate::actor::{Actor, CallResult, call, exit, nap, reap};
use crate::actors::{environment, traced};
use crate::calls::ltt;
use crate::kinds::Kind;
use crate::plan::pick;
use crate::probe;
use crate::run_state::ANYBODY;
use crate::scene::{SCENE, is_area};

/// The argument of a program that an actor executed.
pub(crate) const EXECUTED: &CStr = c"--executed";
/// Like [`EXECUTED`], for a program that shared its memory with its parent.
pub(crate) const EXECUTED_BY_SHARER: &CStr = c"--executed-by-sharer";
/// The stack of a child that shares its parent's memory.
const STACK: usize = 256 << 10;

/// The `is_child` actor of a child.
fn child_of(actor: &Actor) -> Actor {
    Actor {
        is_child: true,
        ..*actor
    }
}

/// Gives this process, which was just forked, its own family of words.
fn become_child(actor: &Actor) -> Actor {
    let child = child_of(actor);
    let family = std::process::id();
    child.run.join_family(family.cast_signed(), family);
    SCENE.fork(family);
    child
}

/// Forks; in the child, runs `body` and ends.
fn fork(actor: &Actor, kind: Kind, body: impl FnOnce(&Actor)) -> CallResult {
    actor.around(kind, || {
        // SAFETY: libc's fork leaves the child an allocator that it can use, and `body` takes no
        // other lock of this program's.
        match unsafe { libc::fork() } {
            -1 => Err(libc::EAGAIN),
            0 => {
                let child = become_child(actor);
                body(&child);
                exit(0);
            }
            pid => reap(pid as usize),
        }
    })
}

/// Reads where the parent's areas are: the child has none.
fn look(child: &Actor) {
    for area in SCENE.areas().iter().flatten() {
        if probe::read(area.start).is_ok() && is_area(area.start) {
            child.find(&format!("an area is in a child of fork(): {area:x?}"));
        }
    }
}

/// The first steps of a program.
fn begin(child: &Actor, random: &mut Random) {
    ltt::alloc(child, random);
    ltt::update_next(child, random);
    for _ in 0..random.below(8) {
        ltt::write(child, random);
    }
    ltt::commit(child, random);
    if random.below(2) == 0 {
        ltt::switch(child, random);
    }
    ltt::check(child, random);
}

/// `fork()`
pub(crate) fn forks(actor: &Actor, random: &mut Random) {
    let _ = match random.below(3) {
        0 => fork(actor, Kind::Fork, look),
        1 => {
            // Areas that the child is about to have in common with nobody.
            fork(actor, Kind::ForkAreas, |child| {
                look(child);
                begin(child, random);
            })
        }
        _ => fork(actor, Kind::ForkGrandchild, |child| {
            begin(child, random);
            // SAFETY: As in `fork`.
            if unsafe { libc::fork() } == 0 {
                let child = &become_child(child);
                // Its parent dies meanwhile.
                look(child);
                begin(child, random);
                exit(0);
            }
        }),
    };
}

/// Kills a child at a random point.
pub(crate) fn killed(actor: &Actor, random: &mut Random) {
    let micros = 50 + random.below(5000);
    let _ = actor.around(Kind::Killed, || {
        // SAFETY: As in `fork`.
        match unsafe { libc::fork() } {
            -1 => Err(libc::EAGAIN),
            0 => {
                let child = become_child(actor);
                for _ in 0..200 {
                    traced::simple(&child, random);
                }
                exit(0);
            }
            pid => {
                std::thread::sleep(std::time::Duration::from_micros(micros));
                let _ = call(Sysno::kill, [pid as usize, libc::SIGKILL as usize]);
                reap(pid as usize)
            }
        }
    });
}

/// The arguments of a child that shares its parent's memory.
struct SharerArguments<'a> {
    actor: Actor,
    random: &'a mut Random,
    executes: bool,
}

extern "C" fn share(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: The parent gives a `SharerArguments`, and waits until this child has ended.
    let SharerArguments {
        actor,
        random,
        executes,
    } = unsafe { &mut *argument.cast::<SharerArguments<'_>>() };
    // With its first call, the kernel attributes the areas to this process. A program that it
    // executes writes its own words under the same process id.
    let pid = std::process::id().cast_signed();
    let family = if *executes { ANYBODY } else { SCENE.family() };
    actor.run.join_family(pid, family);
    if *executes {
        ltt::alloc(actor, random);
        execute(EXECUTED_BY_SHARER);
        return 1;
    }
    for _ in 0..1 + random.below(6) {
        traced::simple(actor, random);
    }
    0
}

/// `clone()` with CLONE_VM, with and without CLONE_VFORK.
pub(crate) fn sharers(actor: &Actor, random: &mut Random) {
    let (kind, flags, executes) = match random.below(8) {
        0 => (Kind::SharerExec, libc::CLONE_VM | libc::CLONE_VFORK, true),
        1..4 => (Kind::Vfork, libc::CLONE_VM | libc::CLONE_VFORK, false),
        _ => (Kind::SharerArguments, libc::CLONE_VM, false),
    };
    let mut stack = vec![0_u8; STACK];
    let top = (stack.as_mut_ptr() as usize + STACK) & !15;
    let mut sharer = SharerArguments {
        actor: child_of(actor),
        random,
        executes,
    };
    let _ = actor.around(kind, || {
        // SAFETY: The stack and the argument stay until the child has ended, which `reap` waits
        // for. The child uses this thread's local storage, and this thread does nothing meanwhile
        // but wait.
        let pid = unsafe {
            libc::clone(
                share,
                top as *mut libc::c_void,
                flags | libc::SIGCHLD,
                (&raw mut sharer).cast(),
            )
        };
        if pid < 0 {
            return Err(libc::EAGAIN);
        }
        reap(pid as usize)
    });
    drop(stack);
}

/// Executes this program again, which looks at what it finds. Returns if that fails.
fn execute(how: &'static CStr) {
    let pointers = [c"adversary".as_ptr(), how.as_ptr(), std::ptr::null()];
    let variables = [c"USERTRACE_BACKEND=off".as_ptr(), std::ptr::null()];
    // SAFETY: All are C strings, and both lists end with NULL.
    unsafe {
        libc::execve(
            c"/proc/self/exe".as_ptr(),
            pointers.as_ptr(),
            variables.as_ptr(),
        )
    };
}

/// Checks the state of an executed program: it has no areas, and no update signal of the old one.
pub(crate) fn executed(actor: &Actor, by_sharer: bool) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    if maps.contains("[ltt]") {
        actor.find("an executed program has areas of the one before");
    }
    let family = std::process::id();
    if !by_sharer {
        actor.run.join_family(family.cast_signed(), family);
    }
    SCENE.begin(family);
    let mut random = actor.stream(u64::from(family));
    begin(actor, &mut random);
}

/// `exec`
pub(crate) fn exec(actor: &Actor, random: &mut Random) {
    let done = fork(actor, Kind::Exec, |child| {
        begin(child, random);
        execute(EXECUTED);
        exit(9);
    });
    judge_executed(actor, done, 0);
}

/// Judges the status of an executed program. `signo`: the update signal of the one before.
fn judge_executed(actor: &Actor, done: CallResult, signo: i32) {
    if let Ok(status) = done
        && libc::WIFSIGNALED(status as i32)
        && signo != 0
        && libc::WTERMSIG(status as i32) == signo
    {
        actor.find(&format!(
            "the update signal, {signo}, kills the program that is executed next"
        ));
    }
}

extern "C" fn nothing(_signal: libc::c_int) {}

extern "C" fn execute_in_handler(_signal: libc::c_int) {
    execute(EXECUTED);
    exit(9);
}

fn handle(signal: i32, handler: extern "C" fn(libc::c_int), blocks_all: bool) {
    // SAFETY: Zeros are a sigaction without flags, and the handlers are of the right type.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        if blocks_all {
            libc::sigfillset(&raw mut action.sa_mask);
        }
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Installs a handler that does nothing.
pub(crate) fn handle_by_nothing(signal: i32) {
    handle(signal, nothing, false);
}

/// `exec` in the handler of a lower signal, which blocks all, while traces change.
pub(crate) fn exec_pending(actor: &Actor, random: &mut Random) {
    let signo = 34 + random.below(31) as i32;
    let wait = random.below(20);
    let done = fork(actor, Kind::ExecPending, |child| {
        handle(signo, nothing, false);
        handle(libc::SIGUSR1, execute_in_handler, true);
        let mut args = LttTracebuf {
            signo: signo.unsigned_abs(),
            ..LttTracebuf::default()
        };
        let _ = child.around(Kind::Alloc, || {
            ltt::alloc_raw(&raw mut args as usize, size_of::<LttTracebuf>(), 0)
        });
        nap(wait);
        // SAFETY: The handler only executes a program.
        unsafe { libc::raise(libc::SIGUSR1) };
    });
    judge_executed(actor, done, signo);
}

/// A core dump, of a program that has areas.
pub(crate) fn core(actor: &Actor, random: &mut Random) {
    let pid = AtomicUsize::new(0);
    let _ = actor.around(Kind::Core, || {
        // SAFETY: As in `fork`.
        match unsafe { libc::fork() } {
            -1 => Err(libc::EAGAIN),
            0 => {
                let child = become_child(actor);
                begin(&child, random);
                let limit = libc::rlimit {
                    rlim_cur: 64 << 20,
                    rlim_max: libc::RLIM_INFINITY,
                };
                // SAFETY: It reads the structure; the process ends.
                unsafe {
                    libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
                    libc::abort();
                }
            }
            child => {
                pid.store(child as usize, Ordering::Relaxed);
                let status = reap(child as usize)?;
                if libc::WCOREDUMP(status as i32) {
                    Ok(status)
                } else {
                    Err(libc::ENOENT)
                }
            }
        }
    });
    let _ = fs::remove_file(format!(
        "{}/core.{}",
        crate::supervisor::CORES,
        pid.load(Ordering::Relaxed)
    ));
}

/// Too little address space, and a name space of this user's own.
pub(crate) fn limits(actor: &Actor, random: &mut Random) {
    if random.below(3) != 0 {
        let _ = fork(actor, Kind::Limit, |child| {
            // Less than what all slots take: 16 GiB with two CPUs.
            let limit = (1 << 28) + (random.below(1 << 20) << 12);
            let rlimit = libc::rlimit {
                rlim_cur: limit,
                rlim_max: libc::RLIM_INFINITY,
            };
            // SAFETY: It reads the structure.
            unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const rlimit) };
            let mut args = LttTracebuf::default();
            let done = ltt::alloc_raw(&raw mut args as usize, size_of::<LttTracebuf>(), 0);
            let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
            let len = args.buffers_len + args.control_len + args.info_len;
            let is_well = match done {
                Ok(_) => len <= limit / 8 && args.status & LTT_TRACEBUF_LIMITED != 0,
                Err(_) => !maps.contains("[ltt]"),
            };
            if !is_well {
                child.find(&format!(
                    "alloc_tracebuf with RLIMIT_AS {limit}: {done:?}, {len} bytes, status {}",
                    args.status
                ));
            }
        });
        return;
    }
    let _ = fork(actor, Kind::Namespaces, |child| {
        let flags = (libc::CLONE_NEWUSER | libc::CLONE_NEWNS) as usize;
        if call(Sysno::unshare, [flags]).is_err() {
            return;
        }
        let [none, place, kind] = [c"none", c"/tmp", c"ltt"].map(|text| text.as_ptr() as usize);
        if call(Sysno::mount, [none, place, kind, 0, 0]).is_ok() {
            child.find("the control file system is mounted in a user namespace");
        }
        begin(child, random);
    });
}

/// Handlers of the update signal, and masks.
pub(crate) fn handlers(actor: &Actor, random: &mut Random) {
    let signo = match SCENE.signo.load(Ordering::Relaxed) {
        0 => return,
        signo => signo.cast_signed(),
    };
    let way = random.below(4);
    let _ = actor.around(Kind::Handler, || {
        match way {
            0 => handle(signo, nothing, random.below(2) == 0),
            // SAFETY: No handler runs.
            1 => unsafe {
                libc::signal(signo, libc::SIG_IGN);
            },
            // SAFETY: No handler runs.
            2 => unsafe {
                libc::signal(signo, libc::SIG_DFL);
            },
            _ => {
                // SAFETY: It writes and reads the set.
                unsafe {
                    let mut set: libc::sigset_t = std::mem::zeroed();
                    libc::sigaddset(&raw mut set, signo);
                    let how = pick(random, &[libc::SIG_BLOCK, libc::SIG_UNBLOCK]);
                    libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
                }
            }
        }
        Ok(0)
    });
}

/// Signals to the other programs of this user.
pub(crate) fn sender(actor: &Actor, random: &mut Random) {
    let other = random.below(actor.run.pids.len() as u64) as usize;
    let pid = actor.run.pids[other].load(Ordering::Relaxed);
    if pid <= 1 || other == actor.who.actor {
        return;
    }
    let signal = pick(random, &[libc::SIGCONT, libc::SIGKILL]);
    let done = actor.call(Kind::Sender, Sysno::kill, [pid as usize, signal as usize]);
    if done.is_ok() && signal != libc::SIGCONT && actor.plan.turns {
        environment::await_death(pid);
    }
}

/// `ptrace()` of a child that has areas.
pub(crate) fn ptrace(actor: &Actor, random: &mut Random) {
    let Some(address) = SCENE.address(random) else {
        return;
    };
    let _ = actor.around(Kind::Ptrace, || {
        // SAFETY: As in `fork`.
        match unsafe { libc::fork() } {
            -1 => Err(libc::EAGAIN),
            0 => {
                let child = child_of(actor);
                no_core_dump();
                let family = std::process::id();
                child.run.join_family(family.cast_signed(), family);
                SCENE.fork(family);
                begin(&child, random);
                let _ = call(Sysno::ptrace, [0, 0, 0, 0]);
                let _ = call(Sysno::kill, [family as usize, libc::SIGSTOP as usize]);
                exit(0);
            }
            pid => {
                let mut status = 0_i32;
                let pid = pid as usize;
                call(
                    Sysno::wait4,
                    [pid, &raw mut status as usize, libc::__WALL as usize, 0],
                )?;
                if libc::WIFSTOPPED(std::hint::black_box(status)) {
                    const PEEKDATA: usize = 2;
                    const POKEDATA: usize = 5;
                    let mut word = 0_u64;
                    let to = &raw mut word as usize;
                    // The child's areas are where this program's were, or elsewhere.
                    let peeked = call(Sysno::ptrace, [PEEKDATA, pid, address, to]);
                    let poked = call(Sysno::ptrace, [POKEDATA, pid, address, 1]);
                    let _ = std::hint::black_box(word);
                    let _ = call(Sysno::kill, [pid, libc::SIGKILL as usize]);
                    reap(pid)?;
                    return peeked.and(poked);
                }
                Err(libc::ESRCH)
            }
        }
    });
}
