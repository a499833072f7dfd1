//! Buffers when a program forks, executes another, dies, or changes its environment (A5, A10, F2).
//!
//! These tests prove the table in `docs/lifecycle.md`. In each case another program is traced, too,
//! and must lose nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid, chroot, execv, setgid, setuid};
use syscalls::Sysno;
use usertrace::Outcome;
use usertrace_testing::wait::{self, spin};
use usertrace_tests::areas::{Areas, head_after};
use usertrace_tests::bystander::Bystander;
use usertrace_tests::child::{self, Child, exit};
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{attach, check_prefix, write};
use usertrace_tests::guest::scaled;
use usertrace_tests::random::Random;
use usertrace_tests::shared::Shared;
use usertrace_tests::{maps, parse, program, raw};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    children_of_every_kind_of_clone_have_their_own_buffers,
    processes_that_share_memory_share_the_areas,
    areas_live_until_the_last_sharing_process_ends,
    exec_in_a_vfork_child_keeps_the_parents_areas,
    events_of_ended_threads_remain,
    exit_of_the_first_thread_keeps_the_areas,
    no_way_to_die_loses_a_committed_event,
    core_dump_omits_the_contents_of_areas,
    setuid_program_is_traced_like_any_other,
    tracing_continues_after_changes_of_rights_and_namespaces,
];

/// A trace, and a bystander that is traced during the test.
pub(crate) struct Scene {
    pub(crate) trace: Trace,
    bystander: Bystander,
}

impl Scene {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            trace: Bystander::trace(name),
            bystander: Bystander::start(),
        }
    }

    /// Checks that the bystander lost nothing, and returns the events of the other processes, which
    /// must be dead: by process and thread.
    pub(crate) fn end(self) -> BTreeMap<String, BTreeMap<u32, Vec<u64>>> {
        self.bystander.check_beside(&self.trace)
    }

    /// Checks that the bystander lost nothing. Other processes may live.
    pub(crate) fn check(self) {
        let _written = self.bystander.check(&self.trace);
    }

    /// Like [`Scene::end`], for a single other process in which only thread 0 wrote.
    pub(crate) fn end_of_one(self) -> Vec<u64> {
        let mut threads = only(self.end());
        let numbers = threads.remove(&0).unwrap_or_default();
        assert!(threads.is_empty());
        numbers
    }

    /// The state of a process in `stats`.
    pub(crate) fn state(&self, pid: Pid) -> Option<String> {
        self.trace.process(pid).map(|process| process.state)
    }
}

/// The events of a dead process in a trace, by thread.
fn of(pid: Pid, trace: &Trace) -> BTreeMap<u32, Vec<u64>> {
    let prefix = format!("{pid}.");
    let mut processes = parse::processes(trace).into_iter();
    let found = processes.find(|(name, _)| name.starts_with(&prefix));
    found.expect("the process is in the trace").1
}

fn only<K, V>(map: BTreeMap<K, V>) -> V {
    assert_eq!(map.len(), 1);
    map.into_values().next().expect("one")
}

/// Writes events with numbers from one on, as thread 0.
#[derive(Debug, Default)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn write(&mut self, count: u64) {
        for _ in 0..count {
            assert_eq!(write(0, self.0), Outcome::Recorded, "event {}", self.0);
            self.0 += 1;
        }
    }

    pub(crate) fn written(&self) -> u64 {
        self.0
    }
}

/// `clone3` without memory in common: returns twice, as `fork`.
fn clone3(flags: i32) -> Option<Pid> {
    let mut pidfd = 0i32;
    let arguments: [u64; 8] = [
        u64::from(flags as u32),
        &raw mut pidfd as u64,
        0,
        0,
        libc::SIGCHLD as u64,
        0,
        0,
        0,
    ];
    // SAFETY: this process has one thread, so no lock is held that the child would need.
    let pid = unsafe {
        raw::call(
            Sysno::clone3,
            [arguments.as_ptr() as usize, size_of_val(&arguments)],
        )
    };
    match pid.expect("clone3") {
        0 => None,
        pid => Some(Pid::from_raw(pid as i32)),
    }
}

fn wait_for_success(pid: Pid, what: &str) {
    assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, 0)), "{what}");
}

/// `CLONE_CLEAR_SIGHAND` does not fit into the flags of `libc`'s.
const KINDS: &[(&str, i32)] = &[
    ("fork", 0),
    ("FILES", libc::CLONE_FILES),
    ("FS", libc::CLONE_FS),
    (
        "FILES, FS, IO, SYSVSEM, PIDFD",
        libc::CLONE_FILES
            | libc::CLONE_FS
            | libc::CLONE_IO
            | libc::CLONE_SYSVSEM
            | libc::CLONE_PIDFD,
    ),
    ("NEWUSER", libc::CLONE_NEWUSER),
    ("NEWPID", libc::CLONE_NEWPID),
    ("NEWNS", libc::CLONE_NEWNS),
    ("NEWCGROUP", libc::CLONE_NEWCGROUP),
    (
        "NEWUSER, NEWPID, NEWNS, NEWIPC, NEWUTS",
        libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS,
    ),
];

/// Requirements: A5
fn children_of_every_kind_of_clone_have_their_own_buffers() {
    let scene = Scene::new("clones");
    child::run(|| {
        attach();
        let mut numbers = Numbers::default();
        for (thread, (what, flags)) in (1..).zip(KINDS) {
            numbers.write(10);
            match clone3(*flags) {
                None => {
                    // It has none of its parent's, and then its own.
                    let good = maps::areas().is_empty()
                        && (0..20).all(|number| write(thread, number) == Outcome::Recorded)
                        && maps::areas().len() == 3;
                    exit(i32::from(!good));
                }
                Some(pid) => {
                    // Meanwhile.
                    numbers.write(10);
                    wait_for_success(pid, what);
                }
            }
        }
        numbers.write(10);
    });
    let processes = scene.end();
    assert_eq!(processes.len(), 1 + KINDS.len());
    let mut found = BTreeMap::new();
    for threads in processes.into_values() {
        assert_eq!(threads.len(), 1, "no process has another's events");
        found.extend(threads);
    }
    for (thread, numbers) in found {
        let expected = if thread == 0 {
            20 * KINDS.len() as u64 + 10
        } else {
            20
        };
        assert_eq!(check_prefix(&numbers), expected, "thread {thread}");
    }
}

/// `clone` with shared memory: runs `body` on another stack, with the caller's thread-local
/// storage.
fn clone_vm(flags: i32, body: extern "C" fn(*mut libc::c_void) -> i32) -> Pid {
    // Never freed: the other process may outlive this one.
    let stack = Vec::leak(vec![0u128; 4096]);
    // SAFETY: the stack is the new process's own; what it does is right in a process that shares
    // memory.
    let pid = unsafe {
        libc::clone(
            body,
            stack.as_mut_ptr_range().end.cast(),
            libc::CLONE_VM | flags | libc::SIGCHLD,
            std::ptr::null_mut(),
        )
    };
    assert!(pid > 0, "clone: {}", std::io::Error::last_os_error());
    Pid::from_raw(pid)
}

/// Requirements: A5
fn processes_that_share_memory_share_the_areas() {
    /// The areas and the slot of the address space, for the other process.
    static AT: std::sync::OnceLock<(Areas, usertrace_tests::areas::Slot)> =
        std::sync::OnceLock::new();
    extern "C" fn body(_: *mut libc::c_void) -> i32 {
        let (areas, slot) = AT.get().expect("the one who cloned has set it");
        slot.ring(1, 1).write_records(4);
        let same = areas.calls.alloc_tracebuf(0).is_ok_and(|at| at == areas.at);
        i32::from(!(same && slot.update().is_ok() && slot.switch().is_ok()))
    }
    for (what, flags) in [
        ("VM", 0),
        ("VM, VFORK", libc::CLONE_VFORK),
        ("VM, FS, FILES", libc::CLONE_FS | libc::CLONE_FILES),
        (
            "VM, FS, FILES, SIGHAND",
            libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND,
        ),
        ("VM, PARENT_SETTID off, UNTRACED", libc::CLONE_UNTRACED),
    ] {
        let trace = Trace::started("shared");
        let child = Child::spawn(|_| {
            let areas = Areas::map(0);
            let slot = areas.must_next();
            AT.set((areas, slot)).expect("once");
            slot.ring(1, 0).write_records(3);
            wait_for_success(clone_vm(flags, body), what);
            // The other process's events are in the shared buffers, and its end removed nothing.
            assert_eq!(
                slot.ring(1, 1).head().load(Ordering::Acquire),
                head_after(4)
            );
            assert_eq!(maps::areas().len(), 3);
            assert!(slot.update().is_ok());
            slot.ring(1, 0).write_records(5);
        });
        let name = format!("{}.", child.pid());
        child.join();
        wait::until("it is dead", || {
            trace.stats().processes.iter().all(|p| p.state == "dead")
        });
        let stats = trace.stats();
        assert_eq!(stats.processes.len(), 1, "{what}");
        assert!(stats.processes[0].name.starts_with(&name), "{what}");
        let heads: Vec<_> = stats.rings.iter().map(|ring| ring.head).collect();
        assert_eq!(heads, [head_after(5), head_after(4)], "{what}");
    }
}

/// Requirements: A5
fn areas_live_until_the_last_sharing_process_ends() {
    /// The steps of both processes. Inherited, so set before the other process exists.
    static STEP: std::sync::OnceLock<Shared> = std::sync::OnceLock::new();
    static RING: std::sync::OnceLock<usertrace_tests::areas::Ring> = std::sync::OnceLock::new();
    extern "C" fn body(_: *mut libc::c_void) -> i32 {
        let step = STEP.get().expect("set").get();
        while step.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        RING.get().expect("set").write_records(4);
        step.store(2, Ordering::Release);
        while step.load(Ordering::Acquire) == 2 {
            std::hint::spin_loop();
        }
        0
    }
    let scene = Scene::new("outlived");
    STEP.set(Shared::new()).expect("once in this process");
    let step = STEP.get().expect("set").get();
    let mut first = Child::spawn(|link| {
        let slot = Areas::map(0).must_next();
        slot.ring(1, 0).write_records(3);
        RING.set(slot.ring(1, 1)).expect("once");
        let _ = clone_vm(0, body);
        link.send(0);
        link.receive();
    });
    first.link.receive();
    first.signal(Signal::SIGKILL);
    first.wait();
    assert_eq!(scene.state(first.pid()).as_deref(), Some("alive"));
    step.store(1, Ordering::Release);
    wait::until("the other one wrote", || step.load(Ordering::Acquire) == 2);
    assert_eq!(scene.state(first.pid()).as_deref(), Some("alive"));
    step.store(3, Ordering::Release);
    wait::until("both are dead", || {
        scene.state(first.pid()).as_deref() == Some("dead")
    });
    let prefix = format!("{}.", first.pid());
    let rings = scene.trace.stats().rings;
    let heads = rings
        .iter()
        .filter(|ring| ring.name.starts_with(&prefix))
        .map(|ring| ring.head);
    assert_eq!(heads.collect::<Vec<_>>(), [head_after(3), head_after(4)]);
    scene.check();
}

/// Requirements: A5
fn exec_in_a_vfork_child_keeps_the_parents_areas() {
    extern "C" fn execute(_: *mut libc::c_void) -> i32 {
        let _ = execv(c"/bin/true", &[c"true"]);
        1
    }
    let scene = Scene::new("vfork");
    child::run(|| {
        attach();
        let mut numbers = Numbers::default();
        let areas = maps::areas();
        numbers.write(10);
        wait_for_success(clone_vm(libc::CLONE_VFORK, execute), "vfork and exec");
        numbers.write(10);
        // The C library's own way, which this takes.
        assert!(
            Command::new("/bin/true")
                .status()
                .expect("posix_spawn")
                .success()
        );
        numbers.write(10);
        assert!(Command::new("/nonexistent").status().is_err());
        numbers.write(10);
        assert_eq!(maps::areas(), areas);
    });
    assert_eq!(check_prefix(&scene.end_of_one()), 40);
}

/// Requirements: A10
fn events_of_ended_threads_remain() {
    const THREADS: u32 = 6;
    let count = scaled(2000);
    let scene = Scene::new("threads");
    child::run(|| {
        attach();
        let recorded = |thread, from, to| (from..to).all(|n| write(thread, n) == Outcome::Recorded);
        assert!(recorded(0, 0, 10));
        // Side by side, and one after the other.
        std::thread::scope(|scope| {
            for thread in 1..THREADS {
                scope.spawn(move || assert!(recorded(thread, 0, count)));
            }
        });
        for thread in 1..THREADS {
            std::thread::spawn(move || assert!(recorded(thread, count, 2 * count)))
                .join()
                .expect("ok");
        }
        assert!(recorded(0, 10, 20));
    });
    let threads = only(scene.end());
    assert_eq!(threads.len(), THREADS as usize);
    for (thread, numbers) in threads {
        let expected = if thread == 0 { 20 } else { 2 * count };
        assert_eq!(check_prefix(&numbers), expected, "thread {thread}");
    }
}

/// Requirements: A10
fn exit_of_the_first_thread_keeps_the_areas() {
    let scene = Scene::new("leader");
    let go_on = Shared::new();
    let mut child = Child::spawn(|_| {
        attach();
        Numbers::default().write(10);
        let go_on = &go_on;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while go_on.get().load(Ordering::Acquire) == 0 {
                    std::hint::spin_loop();
                }
                let good = (0..1000).all(|number| write(1, number) == Outcome::Recorded);
                exit(i32::from(!good));
            });
            // SAFETY: the stack of this thread stays, and what is on it: the process lives on.
            let _ = unsafe { raw::call(Sysno::exit, [0]) };
        });
    });
    wait::until("the first thread is gone", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.pid())).expect("a process");
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'))
    });
    assert_eq!(scene.state(child.pid()).as_deref(), Some("alive"));
    // The process follows changes of traces.
    let later = Bystander::trace("later");
    later.wait_for(child.pid());
    go_on.get().store(1, Ordering::Release);
    assert_eq!(child.wait(), WaitStatus::Exited(child.pid(), 0));
    let threads = only(scene.end());
    let counts: Vec<_> = threads
        .values()
        .map(|numbers| check_prefix(numbers))
        .collect();
    assert_eq!(counts, [10, 1000]);
    assert_eq!(check_prefix(&of(child.pid(), &later)[&1]), 1000);
}

/// Ways to die, each caused by a thread that is not the first.
const DEATHS: &[(&str, fn())] = &[
    ("SIGKILL", || kill_itself(Signal::SIGKILL)),
    ("SIGSEGV", || kill_itself(Signal::SIGSEGV)),
    ("SIGTERM", || kill_itself(Signal::SIGTERM)),
    ("a store to nowhere", || {
        // SAFETY: the process is meant to die of it.
        unsafe { usertrace_tests::areas::poke(8, 1) };
    }),
    ("abort", || std::process::abort()),
    ("exit", || std::process::exit(0)),
    ("exit_group", || exit(0)),
    ("exec", || {
        let _ = execv(c"/bin/true", &[c"true"]);
    }),
    ("exec of a script", || {
        let _ = execv(c"/bin/sh", &[c"sh", c"-c", c"exit 3"]);
    }),
];

fn kill_itself(signal: Signal) {
    // The standard library has a handler for SIGSEGV, which takes one that was sent for a fault
    // that comes again.
    if signal != Signal::SIGKILL {
        // SAFETY: no handler is installed.
        unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl) }
            .expect("the default");
    }
    nix::sys::signal::kill(Pid::this(), signal).expect("itself");
    loop {
        std::hint::spin_loop();
    }
}

/// Requirements: A10
fn no_way_to_die_loses_a_committed_event() {
    const THREADS: usize = 3;
    let mut random = Random::new();
    let mut recorded = 0;
    for round in 0..scaled(4) {
        for (what, die) in DEATHS {
            let trace = Trace::started_with("deaths", 65536, 256);
            let witnesses: [Shared; THREADS] = std::array::from_fn(|_| Shared::new());
            let after = Duration::from_micros(random.below(5000));
            let mut child = Child::spawn(|_| {
                child::no_core_dump();
                attach();
                let write_events = |thread: usize| {
                    for number in 0.. {
                        if write(thread as u32, number) != Outcome::Recorded {
                            break;
                        }
                        // The event is committed before it is counted.
                        witnesses[thread].get().store(number + 1, Ordering::Release);
                    }
                    loop {
                        std::hint::spin_loop();
                    }
                };
                std::thread::scope(|scope| {
                    for thread in 1..THREADS {
                        scope.spawn(move || write_events(thread));
                    }
                    scope.spawn(move || {
                        spin(after);
                        die();
                        exit(4);
                    });
                    write_events(0);
                });
            });
            let end = child.wait();
            assert_ne!(end, WaitStatus::Exited(child.pid(), 4), "{what}");
            let seen = witnesses
                .each_ref()
                .map(|witness| witness.get().load(Ordering::Acquire));
            let mut processes = parse::processes(&trace);
            assert!(processes.len() <= 1, "{what}: one process");
            let mut threads = processes
                .pop_first()
                .map(|(_, threads)| threads)
                .unwrap_or_default();
            for (thread, &seen) in seen.iter().enumerate() {
                let count = check_prefix(&threads.remove(&(thread as u32)).unwrap_or_default());
                // The last one may have been committed and not yet counted; there is no other that
                // could be.
                assert!(
                    count == seen || count == seen + 1,
                    "{what}: {count} of thread {thread} recorded, {seen} witnessed, round {round}"
                );
                recorded += count;
            }
        }
    }
    assert!(recorded > 0, "they did write");
}

/// The program headers of a core dump: address, length in memory, length in the file.
fn loads(core: &[u8]) -> Vec<[u64; 3]> {
    let word = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().expect("8 bytes"));
    let half = |at: usize| usize::from(u16::from_le_bytes([core[at], core[at + 1]]));
    assert_eq!(&core[..4], b"\x7fELF");
    let (start, size, count) = (word(32) as usize, half(54), half(56));
    (0..count)
        .map(|at| start + at * size)
        .filter(|&at| word(at) as u32 == libc::PT_LOAD)
        .map(|at| [word(at + 16), word(at + 40), word(at + 32)])
        .collect()
}

/// Requirements: A10
fn core_dump_omits_the_contents_of_areas() {
    const PATTERN: &str = "/proc/sys/kernel/core_pattern";
    let before = fs::read_to_string(PATTERN).expect("the pattern");
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(PATTERN, format!("{}/core", directory.path().display())).expect("this is root");
    let scene = Scene::new("core");
    let mut child = Child::spawn(|link| {
        limit(libc::RLIMIT_CORE, libc::RLIM_INFINITY);
        // Dump all mappings, also shared ones and those of devices.
        fs::write("/proc/self/coredump_filter", "0x1ff").expect("a filter");
        attach();
        Numbers::default().write(1000);
        for area in maps::areas() {
            link.send(area.start as u64);
            link.send((area.end - area.start) as u64);
        }
        kill_itself(Signal::SIGSEGV);
    });
    let areas = [(); 3].map(|()| (child.link.receive(), child.link.receive()));
    let end = child.wait();
    fs::write(PATTERN, before.trim()).expect("this is root");
    assert_eq!(
        end,
        WaitStatus::Signaled(child.pid(), Signal::SIGSEGV, true)
    );
    let core = fs::read(directory.path().join("core")).expect("a core dump");
    let loads = loads(&core);
    for (start, len) in areas {
        // The core dump lists the areas, without contents.
        let [_, _, in_file] = loads
            .iter()
            .find(|[address, size, _]| (*address, *size) == (start, len))
            .expect("a segment");
        assert_eq!(*in_file, 0, "the area at {start:#x} is in the dump");
    }
    assert!(
        loads.iter().any(|[_, _, in_file]| *in_file > 0),
        "the rest is there"
    );
    assert_eq!(check_prefix(&scene.end_of_one()), 1000);
}

/// Requirements: F2
fn setuid_program_is_traced_like_any_other() {
    const USER: u32 = 1000;
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("its own");
    fs::copy(program::path("numbered"), path("numbered")).expect("a copy");
    fs::set_permissions(path("numbered"), fs::Permissions::from_mode(0o4755)).expect("its own");
    let scene = Scene::new("setuid");
    let child = Child::spawn(|_| {
        setgid(Gid::from_raw(USER)).expect("setgid");
        setuid(Uid::from_raw(USER)).expect("setuid");
        attach();
        Numbers::default().write(10);
        // This process itself, so that it had areas before. The variables would have a program
        // without more rights than its user write files of its own.
        let error = Command::new(path("numbered"))
            .args(["--events", "1000"])
            .env("USERTRACE_BACKEND", "fast")
            .env("USERTRACE_OUTPUT", path("output"))
            .stdout(fs::File::create(path("said")).expect("a file"))
            .exec();
        panic!("{error}");
    });
    let pid = child.pid();
    child.join();
    assert_eq!(
        fs::read_to_string(path("said")).expect("it ran"),
        "recorded 1000 lost 0\n"
    );
    assert!(
        !path("output").exists(),
        "the user has no say in what a setuid program writes"
    );
    wait::until("it is dead", || scene.state(pid).as_deref() == Some("dead"));
    let prefix = format!("{pid}.");
    for file in scene.trace.consumer_files("main") {
        if file
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        {
            assert_eq!(Consumer::open(&file).info().uid, USER, "whoever ran it");
        }
    }
    // The program before exec, and the one after it.
    let counts: Vec<_> = scene
        .end()
        .into_values()
        .map(|threads| check_prefix(&threads[&0]))
        .collect();
    assert_eq!(counts, [10, 1000]);
}

fn unshare_all(flags: CloneFlags) {
    unshare(flags).expect("unshare");
}

fn prctl(option: i32, value: usize) {
    // SAFETY: none of the options that are used here concerns memory in use.
    let ret = unsafe { raw::call(Sysno::prctl, [option as usize, value, 0, 0, 0]) };
    assert_eq!(ret, Ok(0), "prctl {option}");
}

fn limit(resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: it only reads the structure.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

const PR_SET_MEMORY_MERGE: i32 = 67;

/// Ways in which a program can change its identity or environment.
const CHANGES: &[(&str, fn())] = &[
    ("chroot", || {
        chroot("/tmp").expect("chroot");
        std::env::set_current_dir("/").expect("chdir");
    }),
    ("setuid", || {
        setgid(Gid::from_raw(1000)).expect("setgid");
        setuid(Uid::from_raw(1000)).expect("setuid");
    }),
    ("unshare user", || unshare_all(CloneFlags::CLONE_NEWUSER)),
    ("unshare mount", || unshare_all(CloneFlags::CLONE_NEWNS)),
    ("unshare pid", || unshare_all(CloneFlags::CLONE_NEWPID)),
    ("unshare ipc, uts, cgroup", || {
        unshare_all(
            CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWCGROUP,
        );
    }),
    ("unshare files, fs", || {
        unshare_all(CloneFlags::CLONE_FILES | CloneFlags::CLONE_FS)
    }),
    ("setns user, mount, pid", enter_namespaces),
    ("setsid", || {
        nix::unistd::setsid().expect("setsid");
    }),
    ("not dumpable", || prctl(libc::PR_SET_DUMPABLE, 0)),
    ("no new privileges", || prctl(libc::PR_SET_NO_NEW_PRIVS, 1)),
    ("pages that are alike become one", || {
        prctl(PR_SET_MEMORY_MERGE, 1)
    }),
    ("no huge pages", || prctl(libc::PR_SET_THP_DISABLE, 1)),
    ("no more files", || limit(libc::RLIMIT_NOFILE, 1)),
    ("no file may grow", || limit(libc::RLIMIT_FSIZE, 0)),
    ("no locked memory", || limit(libc::RLIMIT_MEMLOCK, 0)),
    ("no more memory", || limit(libc::RLIMIT_DATA, 0)),
    ("no more address space", || limit(libc::RLIMIT_AS, 0)),
    ("no processes", || limit(libc::RLIMIT_NPROC, 0)),
    ("stop and continue", || {
        let pid = Pid::this();
        match clone3(0) {
            None => {
                let stopped = || {
                    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its parent");
                    stat.rsplit(") ")
                        .next()
                        .is_some_and(|rest| rest.starts_with('T'))
                };
                wait::until("it is stopped", stopped);
                nix::sys::signal::kill(pid, Signal::SIGCONT).expect("its parent");
                exit(0);
            }
            Some(other) => {
                nix::sys::signal::kill(pid, Signal::SIGSTOP).expect("itself");
                wait_for_success(other, "who continues it");
            }
        }
    }),
];

/// Enters the namespaces of another process.
fn enter_namespaces() {
    let mut other = Child::spawn(|link| {
        unshare_all(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID);
        link.send(0);
        link.receive();
    });
    other.link.receive();
    let open = |name: &str| {
        fs::File::open(format!("/proc/{}/ns/{name}", other.pid())).expect("a namespace")
    };
    // The one for children is empty so far, and cannot be entered.
    let (user, mount) = (open("user"), open("mnt"));
    nix::sched::setns(user, CloneFlags::CLONE_NEWUSER).expect("setns");
    nix::sched::setns(mount, CloneFlags::CLONE_NEWNS).expect("setns");
    other.link.send(0);
    other.wait();
}

/// Requirements: F2
fn tracing_continues_after_changes_of_rights_and_namespaces() {
    for &(what, change) in CHANGES {
        let scene = Scene::new("changes");
        let mut child = Child::spawn(|link| {
            attach();
            let mut numbers = Numbers::default();
            numbers.write(10);
            change();
            numbers.write(10);
            link.send(0);
            link.receive();
            // The program follows changes of traces that happened meanwhile.
            numbers.write(10);
        });
        child.link.receive();
        let later = Bystander::trace("later");
        later.wait_for(child.pid());
        child.link.send(0);
        let pid = child.pid();
        child.join();
        assert_eq!(check_prefix(&scene.end_of_one()), 30, "{what}");
        assert_eq!(of(pid, &later)[&0], (20..30).collect::<Vec<_>>(), "{what}");
    }
}
