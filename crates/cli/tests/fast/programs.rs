//! The traced programs. Each is this test's own executable, run once more.

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use usertrace::fake::process::{child, wait};
use usertrace::{Backend, report};
use usertrace::{Outcome, Status, event};
use usertrace_testing::wait::until;

use super::filter;

usertrace::tracepoint! {
    /// A numbered event.
    mod numbered {
        provider: "test",
        name: "numbered",
        loglevel: Info,
        fields: { thread: u32, n: u64 },
    }
}

/// Starts threads that use the allocator before the library is set up.
#[used]
#[unsafe(link_section = ".init_array.00100")]
static WITH_THREADS: extern "C" fn() = {
    extern "C" fn early() {
        if std::env::var_os(super::run::VARIABLE).is_some_and(|name| name == "threads_before") {
            // All threads share one arena, so its lock is nearly always taken.
            // SAFETY: `mallopt` only sets an option of the allocator.
            unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
            for _ in 0..4 {
                std::thread::spawn(|| {
                    loop {
                        std::hint::black_box(vec![0u8; 1 << 12]);
                    }
                });
            }
        }
    }
    early
};

/// The programs, by name.
pub(crate) const ALL: &[(&str, fn())] = &[
    ("before_main", before_main),
    ("idle", || {}),
    ("fields", super::fields::write),
    ("contexts", super::contexts::write),
    ("sandbox", super::contexts::write_in_sandbox),
    ("ten", || {
        write(1, 0..10);
    }),
    // Filters may reject some of these.
    ("ten-filtered", || {
        for n in 0..10 {
            event!(numbered, 1, n);
        }
    }),
    ("written", || {
        write(1, 0..10);
        assert_eq!(usertrace::flush(), Ok(()));
        std::thread::sleep(std::time::Duration::from_millis(200));
    }),
    ("pages", pages),
    ("report", || println!("{}", report())),
    ("family", super::complaints::family),
    ("surroundings", surroundings),
    ("threads", threads),
    ("many_threads", many_threads),
    ("threads_before", || {
        threads();
        assert_eq!(wait(child(|| assert_eq!(write(9, 0..10), 0))), 0);
    }),
    ("fork", fork),
    ("fork_without_handlers", fork_without_handlers),
    ("first_thread_ends", first_thread_ends),
    ("exec", exec),
    ("daemonize", daemonize),
    ("close_all", close_all),
    ("exit_at_once", exit_at_once),
    ("abort", || end(|| std::process::abort())),
    ("segfault", segfault),
    ("killed", killed),
    ("no_files", no_files),
    ("seccomp", seccomp),
    ("chroot", chroot),
    ("setuid", setuid),
    ("switches", switches),
    ("controlled", controlled),
    ("growing", super::controlled::growing),
    ("on_one_cpu", on_one_cpu),
    ("steps", steps),
    ("slow_steps", || {
        steps_with_pauses(std::time::Duration::from_millis(2))
    }),
    ("flood", flood),
    ("events", events),
    ("unnoticed", unnoticed),
    ("one_child", super::stepped::one_child),
    ("crowd", crowd),
    ("namespaces", namespaces),
    ("waits_for_all", waits_for_all),
    ("address_space", address_space),
    ("much", much),
    ("signal_forks", signal_forks),
    ("victims", super::victims::serve),
    ("recorder", super::chunks::recorder),
    ("on_request", super::relay::on_request),
    ("late_child", super::relay::late_child),
    ("late_program", super::relay::late_program),
    ("late_part", super::relay::late_part),
    ("slow", super::chunks::slow),
    ("until_chunks", super::chunks::until_chunks),
    ("two", super::chunks::two),
    ("some_children", super::chunks::some_children),
    ("counts_and_dies", super::stat::counts_and_dies),
    ("counts_slowly", super::stat::counts_slowly),
    ("counts_many_keys", super::stat::counts_many_keys),
];

/// Runs the program that the environment names. False: it names none.
pub(crate) fn run() -> bool {
    let Some(name) = std::env::var_os(super::run::VARIABLE) else {
        return false;
    };
    let (_, program) = ALL
        .iter()
        .find(|(known, _)| name == *known)
        .expect("a known program");
    program();
    true
}

/// Writes events, each until it is recorded. Returns how many attempts were lost.
pub(crate) fn write(thread: u32, numbers: std::ops::Range<u64>) -> u64 {
    let mut lost = 0;
    for n in numbers {
        loop {
            match event!(numbered, thread, n) {
                Outcome::Recorded => break,
                Outcome::Lost => lost += 1,
                Outcome::Off => panic!("{}", report()),
            }
        }
    }
    lost
}

/// Writes one event, and returns its outcome.
pub(crate) fn write_one(thread: u32, n: u64) -> Outcome {
    event!(numbered, thread, n)
}

fn end(by: fn()) {
    write(1, 0..1000);
    by();
}

fn exit_at_once() {
    // SAFETY: `_exit` takes no pointers.
    end(|| unsafe { libc::_exit(0) });
}

fn segfault() {
    let nowhere = std::ptr::without_provenance_mut::<u8>(8);
    write(1, 0..1000);
    // SAFETY: nothing is mapped there, so this faults, and the process ends as intended.
    unsafe { nowhere.write_volatile(1) };
}

fn killed() {
    write(1, 0..1000);
    // SAFETY: `raise` takes no pointers.
    unsafe { libc::raise(libc::SIGKILL) };
}

/// Writes an event, and prints the KiB of shared memory that the program then has.
fn pages() {
    write(1, 0..1);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let shared = status
        .lines()
        .find_map(|line| line.strip_prefix("RssShmem:"));
    println!("{}", shared.unwrap().trim().trim_end_matches(" kB"));
}

static BEFORE: std::sync::OnceLock<Status> = std::sync::OnceLock::new();

/// One of the last constructors that run.
#[used]
#[unsafe(link_section = ".init_array")]
static EARLY: extern "C" fn() = early;

extern "C" fn early() {
    let _ = BEFORE.set(usertrace::status());
}

fn before_main() {
    assert_eq!(usertrace::status(), Status::Attached, "{}", report());
    // A second call gives the same result.
    assert_eq!(usertrace::init(), Status::Attached);
    assert_eq!(report().backend, Some(Backend::Fast));
    assert!(BEFORE.get().is_some());
    write(1, 0..1);
    std::thread::spawn(|| write(2, 0..1)).join().unwrap();
}

/// Prints what a program can see of itself and its surroundings.
fn surroundings() {
    let mut text = String::new();
    let mut line = |what: &str, value: String| text += &format!("{what}: {value}\n");
    // SAFETY: the calls write only to the variables given to them, which have the right types.
    unsafe {
        let mut status = 0;
        let child = libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL);
        line(
            "child",
            format!("{child} {}", std::io::Error::last_os_error()),
        );
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut pending);
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked);
        for signo in 1..=64 {
            let mut action: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signo, std::ptr::null(), &raw mut action);
            line(
                "signal",
                format!(
                    "{signo} {known} {} {} {}",
                    libc::sigismember(&raw const pending, signo),
                    libc::sigismember(&raw const blocked, signo),
                    action.sa_sigaction == libc::SIG_DFL,
                ),
            );
        }
        line("group", (libc::getpgrp() == libc::getpid()).to_string());
        line(
            "session",
            (libc::getsid(0) == libc::getsid(libc::getppid())).to_string(),
        );
        line("nice", libc::getpriority(libc::PRIO_PROCESS, 0).to_string());
        let mask = libc::umask(0);
        line("umask", mask.to_string());
    }
    line("directory", format!("{:?}", std::env::current_dir()));
    let names = |path: &str| {
        let entries = std::fs::read_dir(path).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    line("descriptors", format!("{:?}", names("/proc/self/fd")));
    line("threads", names("/proc/self/task").len().to_string());
    let children = format!("/proc/self/task/{}/children", std::process::id());
    line(
        "children",
        std::fs::read_to_string(children).unwrap_or_default(),
    );
    for limit in 0..16 {
        // SAFETY: `value` has room for what the call writes.
        let value = unsafe {
            let mut value: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(limit, &raw mut value);
            (value.rlim_cur, value.rlim_max)
        };
        line("limit", format!("{limit} {value:?}"));
    }
    print!("{text}");
}

fn threads() {
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            scope.spawn(move || write(thread, 0..1000));
        }
    });
}

/// More threads than rings, one after the other and at once.
fn many_threads() {
    for thread in 0..100 {
        std::thread::spawn(move || write(thread, 0..10))
            .join()
            .unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 100..200 {
            scope.spawn(move || write(thread, 0..10));
        }
    });
}

/// A family of processes: each writes before and after its child does.
fn fork() {
    fn generation(depth: u32) {
        write(depth, 0..500);
        if depth < 4 {
            assert_eq!(wait(child(|| generation(depth + 1))), 0);
        }
        write(depth, 500..1000);
    }
    generation(1);
    // A child that writes nothing, and one that forks at once.
    assert_eq!(wait(child(|| {})), 0);
    assert_eq!(
        wait(child(|| assert_eq!(
            wait(child(|| assert_eq!(write(9, 0..5), 0))),
            0
        ))),
        0
    );
}

/// A child whose first thread ends before the first event.
fn first_thread_ends() {
    write(1, 0..10);
    // `fork` would call handlers that register the child before.
    // SAFETY: the process has one thread, so the child can go on as after `fork`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
    if pid == 0 {
        std::thread::spawn(|| {
            let first = format!("/proc/self/task/{}/stat", std::process::id());
            while !std::fs::read_to_string(&first).unwrap().contains(") Z") {
                std::thread::yield_now();
            }
            for part in 0..10 {
                write(2, 10 * part..10 * (part + 1));
                // Give the daemons time for a wrong decision.
                std::thread::sleep(std::time::Duration::from_millis(30));
            }
            // SAFETY: `_exit` takes no pointers.
            unsafe { libc::_exit(0) };
        });
        // SAFETY: this ends the thread, whose stack no other thread uses.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    assert_eq!(wait(pid), 0);
}

/// A child made without the C library, so that no handlers of `fork` run.
fn fork_without_handlers() {
    write(1, 0..10);
    // SAFETY: the process has one thread, so the child can go on as after `fork`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
    if pid == 0 {
        write(2, 0..10);
        // SAFETY: `_exit` takes no pointers.
        unsafe { libc::_exit(0) };
    }
    assert_eq!(wait(pid), 0);
    write(1, 10..20);
}

fn exec() {
    write(1, 0..1000);
    let error = std::os::unix::process::CommandExt::exec(
        std::process::Command::new("/bin/sh").args(["-c", "echo there; cat"]),
    );
    panic!("{error}");
}

fn daemonize() {
    write(1, 0..100);
    // SAFETY: the process has one thread.
    assert_eq!(unsafe { libc::daemon(0, 1) }, 0);
    write(2, 0..100);
    std::thread::sleep(std::time::Duration::from_millis(100));
    write(2, 100..200);
}

fn close_all() {
    write(1, 0..10);
    // SAFETY: no code of this program uses a descriptor after this.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
    assert_eq!(closed, 0);
    write(1, 10..20_000);
    untraced_child();
}

/// A child of a process that can no longer open anything; it may be untraced.
fn untraced_child() {
    assert_eq!(wait(child(|| assert!(write(2, 0..100) < u64::MAX))), 0);
}

fn no_files() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `none` is a valid `rlimit` that the call reads.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
    assert_eq!(set, 0);
    write(1, 0..20_000);
    untraced_child();
}

/// A program whose later system calls fail with the error in `$ERRNO`, unless they are as old as
/// Unix.
fn seccomp() {
    let errno: u32 = std::env::var("ERRNO").unwrap().parse().unwrap();
    write(1, 0..10);
    filter::refuse_new_calls(errno);
    write(1, 10..20_000);
    untraced_child();
    assert_eq!(usertrace::flush(), Ok(()));
}

fn chroot() {
    write(1, 0..10);
    let empty = tempfile::tempdir().unwrap();
    std::os::unix::fs::chroot(empty.path()).unwrap();
    std::env::set_current_dir("/").unwrap();
    write(1, 10..20_000);
    untraced_child();
}

fn setuid() {
    write(1, 0..10);
    // SAFETY: neither call takes pointers.
    unsafe {
        assert_eq!(libc::setgid(65534), 0);
        assert_eq!(libc::setuid(65534), 0);
    }
    write(1, 10..20_000);
    untraced_child();
}

/// Writes events and switches buffers on request, by single characters of its input.
fn switches() {
    let mut input = [0];
    let mut n = 0;
    while std::io::stdin().read(&mut input).unwrap() == 1 {
        match input[0] {
            b's' => assert_eq!(usertrace::flush(), Ok(())),
            b'e' => {
                write(1, n..n + 1);
                n += 1;
            }
            _ => break,
        }
        print!("{}", input[0] as char);
        std::io::stdout().flush().unwrap();
    }
}

/// Writes an event on request, and prints its outcome.
fn controlled() {
    let mut input = [0];
    for n in 0.. {
        // A request of the control channel may interrupt this by a signal.
        match std::io::stdin().read(&mut input) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(1) => {}
            _ => break,
        }
        let outcome = match write_one(1, n) {
            Outcome::Recorded => 'r',
            Outcome::Lost => 'l',
            Outcome::Off => 'o',
        };
        print!("{outcome}");
        std::io::stdout().flush().unwrap();
    }
}

/// Waits until both daemons have begun. Returns the watchdog and the worker.
pub(crate) fn daemons() -> [u32; 2] {
    loop {
        let daemons = report().daemons;
        if daemons.iter().all(|pid| *pid != 0) {
            return daemons;
        }
        std::thread::yield_now();
    }
}

/// Prints its worker's process id, and then does as [`switches`], on one CPU.
fn on_one_cpu() {
    // SAFETY: zeros are an empty set, and the call only reads it.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut cpus);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus),
            0
        );
    }
    println!("{}", daemons()[1]);
    switches();
}

/// Writes until the test ends it. Prints its daemons first, and its counts last.
pub(crate) fn steps() {
    steps_with_pauses(std::time::Duration::from_micros(50));
}

/// Likewise, with these pauses.
fn steps_with_pauses(pause: std::time::Duration) {
    let daemons = daemons();
    println!("{} {}", daemons[0], daemons[1]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let lost = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=2)
            .map(|thread| {
                let (stop, done) = (&stop, &done);
                scope.spawn(move || {
                    let (mut n, mut lost) = (0, 0);
                    while !stop.load(Ordering::Relaxed) {
                        lost += write(thread, n..n + 20);
                        n += 20;
                        std::thread::sleep(pause);
                    }
                    done.fetch_add(n, Ordering::Relaxed);
                    lost
                })
            })
            .collect();
        let mut input = [0];
        let _ = std::io::stdin().read(&mut input);
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<u64>()
    });
    println!("{} {lost} {:?}", done.into_inner(), report().daemons);
}

/// Writes events as fast as possible, and prints how many attempts were lost.
fn flood() {
    let lost: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=2)
            .map(|thread| scope.spawn(move || write(thread, 0..100_000)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    println!("{lost}");
}

/// Writes each event once, and prints how many were lost.
fn events() {
    let lost = (0..200_000)
        .filter(|&n| write_one(1, n) == Outcome::Lost)
        .count();
    println!("{lost}");
}

/// Short-lived children, as many as there are slots, while the watchdog is stopped and cannot see
/// them end.
fn unnoticed() {
    write(0, 0..1);
    let watchdog = daemons()[0] as libc::pid_t;
    // SAFETY: the signal goes to this program's own daemon.
    let signal = |signal| assert_eq!(unsafe { libc::kill(watchdog, signal) }, 0);
    signal(libc::SIGSTOP);
    let one = |n| wait(child(|| assert_eq!(write_one(n, 0), Outcome::Recorded)));
    (1..64).for_each(|n| assert_eq!(one(n), 0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            signal(libc::SIGCONT);
        });
        assert_eq!(one(64), 0);
    });
}

/// More children at once than can be traced. Prints how many were not traced.
fn crowd() {
    write(0, 0..1);
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let one = || {
        child(|| {
            let off = write_one(1, 0) == Outcome::Off;
            let mut byte = 0u8;
            // SAFETY: the descriptors are this process's, and `byte` has room for one byte.
            unsafe {
                libc::close(ends[1]);
                // Waits until the parent closes its end.
                libc::read(ends[0], (&raw mut byte).cast(), 1);
                libc::_exit(off.into());
            }
        })
    };
    let children: Vec<_> = (0..70).map(|_| one()).collect();
    // SAFETY: the descriptor is this process's, and is not used again.
    unsafe { libc::close(ends[1]) };
    let off: c_int = children.into_iter().map(|child| wait(child) >> 8).sum();
    println!("{off}");
}

/// Children in a new PID namespace, one after the other and one below another.
fn namespaces() {
    fn slowly(thread: u32) {
        for n in 0..50 {
            write(thread, n..n + 1);
            // Longer than the daemons' period of looking for ended processes.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // Nobody can ask for the ids of a process that is gone.
        assert_eq!(usertrace::flush(), Ok(()));
        let outer = std::fs::read_link("/proc/self").unwrap();
        let ids = [
            outer.to_str().unwrap().to_owned(),
            std::process::id().to_string(),
        ];
        let output = std::env::var_os("USERTRACE_OUTPUT").unwrap();
        until("this process has a trace", || {
            let traces = std::fs::read_dir(&output).unwrap();
            traces.into_iter().any(|trace| {
                let name = trace.unwrap().file_name().into_string().unwrap();
                let id = name.rsplit('-').nth(1);
                id.is_some_and(|id| ids.iter().any(|of| of == id))
            })
        });
    }
    write(1, 0..10);
    // SAFETY: `unshare` takes no pointers.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
    let first = child(|| {
        assert_eq!(std::process::id(), 1);
        assert_eq!(wait(child(|| slowly(20))), 0);
        slowly(10);
    });
    let second = child(|| slowly(11));
    let third = child(|| slowly(12));
    for child in [second, third, first] {
        assert_eq!(wait(child), 0);
    }
}

/// Waits for all its children, and prints how many there were.
fn waits_for_all() {
    write(1, 0..10);
    for _ in 0..3 {
        child(|| ());
    }
    // SAFETY: `wait` accepts NULL, which means that it writes no status.
    let children =
        std::iter::from_fn(|| (unsafe { libc::wait(std::ptr::null_mut()) } > 0).then_some(()));
    println!("{}", children.count());
    write(1, 10..20);
}

/// Writes events, and prints the report and the KiB of address space of shared memory.
fn address_space() {
    write(1, 0..10);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps
        .lines()
        .filter(|line| line.contains("/dev/zero (deleted)"));
    let len = |line: &str| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        number(end) - number(start)
    };
    println!("{} {}", shared.map(len).sum::<usize>(), report());
}

/// Prints its daemons, writes many events, and waits for the end of its input.
fn much() {
    let [watchdog, worker] = daemons();
    println!("{watchdog} {worker}");
    write(1, 0..200_000);
    assert_eq!(usertrace::flush(), Ok(()));
    let _ = std::io::stdin().read(&mut [0]);
}

/// A signal handler forks at any point of the program, and the child returns to that point.
fn signal_forks() {
    static CHILDREN: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: c_int) {
        // SAFETY: the process has one thread; the test is about a handler that forks.
        if unsafe { libc::fork() } == 0 {
            CHILDREN.store(u64::MAX, Ordering::Relaxed);
        } else if CHILDREN.load(Ordering::Relaxed) != u64::MAX {
            CHILDREN.fetch_add(1, Ordering::Relaxed);
        }
    }
    // SAFETY: the handler has the signature of a signal handler.
    unsafe {
        libc::signal(libc::SIGALRM, handler as extern "C" fn(c_int) as usize);
    }
    let mut n = 0;
    while n < 200_000 && CHILDREN.load(Ordering::Relaxed) < 20 {
        if n % 500 == 250 {
            let timer = libc::itimerval {
                it_interval: libc::timeval {
                    tv_sec: 0,
                    tv_usec: 0,
                },
                it_value: libc::timeval {
                    tv_sec: 0,
                    tv_usec: 20,
                },
            };
            // SAFETY: `timer` is a valid `itimerval` that the call reads.
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
        }
        event!(numbered, 1, n);
        n += 1;
        if CHILDREN.load(Ordering::Relaxed) == u64::MAX {
            for n in 0..100 {
                event!(numbered, 2, n);
            }
            // SAFETY: `_exit` takes no pointers.
            unsafe { libc::_exit(0) };
        }
    }
    loop {
        let mut status = 0;
        // SAFETY: `status` has room for what the call writes.
        let pid = unsafe { libc::wait(&raw mut status) };
        if pid < 0 {
            break;
        }
        assert_eq!(status, 0, "wait status {status:#x}");
    }
}

/// Memory that children share with this process. `T` must consist of atomics, for which zeros are
/// valid.
pub(crate) fn shared<T>() -> &'static T {
    // SAFETY: the new mapping is large enough, page-aligned and zeroed; all callers use atomics as
    // `T`.
    unsafe {
        let memory: *mut c_void = libc::mmap(
            std::ptr::null_mut(),
            size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(memory, libc::MAP_FAILED);
        &*memory.cast()
    }
}
