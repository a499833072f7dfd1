//! The update signal: which processes get it, and that it harms none (A4, F2).

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use usertrace::Outcome;
use usertrace_testing::wait;
use usertrace_tests::areas::Areas;
use usertrace_tests::child::{Child, Link};
use usertrace_tests::control::Trace;
use usertrace_tests::event;
use usertrace_tests::guest::scaled;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    each_change_is_signalled,
    update_handler_runs_before_the_next_instruction,
    update_signal_wakes_a_sleeping_program,
    update_signal_can_be_chosen_and_changed,
    update_signal_is_sent_only_on_request,
    update_signal_kills_no_process,
    blocked_update_signal_is_not_left_pending,
    update_signal_is_sent_again_after_a_block,
    update_signal_does_not_survive_exec,
];

/// SIGRTMIN+3, as C programs have it.
fn realtime() -> i32 {
    libc::SIGRTMIN() + 3
}

static UPDATES: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    UPDATES.fetch_add(1, Ordering::Relaxed);
}

/// Sets what a signal does. nix does not know real-time signals.
fn handle(signo: i32, handler: libc::sighandler_t, flags: i32) {
    // SAFETY: all zeros is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the handlers of this file do nothing but load and store.
    let ret = unsafe { libc::sigaction(signo, &raw const action, std::ptr::null_mut()) };
    assert_eq!(ret, 0);
}

fn counter() -> libc::sighandler_t {
    count as *const () as libc::sighandler_t
}

/// Starts a process with areas, which sends its count of update signals on request. `signo` is the
/// update signal, or 0. Afterwards, `prepare` sets up other signals.
fn counting(signo: i32, prepare: impl FnOnce()) -> Child {
    let mut child = Child::spawn(move |link: &mut Link| {
        if signo != 0 {
            handle(signo, counter(), libc::SA_RESTART);
        }
        let areas = Areas::map(signo as u32);
        prepare();
        link.send(0);
        while let Some(_asked) = link.try_receive() {
            // The generation, and how often the handler ran.
            let generation = areas.info(0).0.generation as u32;
            let count = UPDATES.load(Ordering::Relaxed);
            link.send(u64::from(generation) << 32 | u64::from(count));
        }
    });
    child.link.receive();
    child
}

/// Requests the count of a process.
fn ask(child: &mut Child) -> u32 {
    child.link.send(0);
    child.link.receive() as u32
}

/// Requirements: A4
fn each_change_is_signalled() {
    // Before the first start, no signal is sent.
    drop(Trace::started("first"));
    let mut child = counting(realtime(), || ());
    let mut last = ask(&mut child);
    assert_eq!(last, 0, "nothing to be told yet");
    let trace = Trace::create("signals");
    let filter =
        |mask: &'static str| move |trace: &Trace| trace.write("filter_mask", mask).expect("a mask");
    type Change<'a> = &'a dyn Fn(&Trace);
    let changes: [(&str, u32, Change<'_>); 8] = [
        ("create", 1, &|_| ()),
        ("start", 1, &Trace::start),
        ("start what is started", 0, &Trace::start),
        ("filter", 1, &filter("0x10")),
        ("the same filter", 0, &filter("16")),
        ("stop", 1, &Trace::stop),
        ("start again", 1, &Trace::start),
        ("destroy", 1, &|trace| trace.try_remove().expect("rmdir")),
    ];
    for (what, times, change) in changes {
        change(&trace);
        // The signal comes before the program's next instruction, so also before its answer.
        let now = ask(&mut child);
        assert_eq!(now, last + times, "{what}");
        last = now;
    }
}

/// Requirements: A4
fn update_handler_runs_before_the_next_instruction() {
    /// The active mask that the handler read last.
    static SEEN: AtomicU32 = AtomicU32::new(0);
    static INFO: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    extern "C" fn look(_: i32) {
        let info = INFO.load(Ordering::Relaxed) as *const u32;
        // SAFETY: the active mask, in the info area, which is mapped.
        SEEN.store(unsafe { info.add(6).read_volatile() }, Ordering::Relaxed);
    }
    assert_eq!(
        std::mem::offset_of!(usertrace_sys::uapi::LttInfo, active),
        6 * 4
    );

    let trace = Trace::create("order");
    let mut child = Child::spawn(|link| {
        handle(
            realtime(),
            look as *const () as libc::sighandler_t,
            libc::SA_RESTART,
        );
        let areas = Areas::map(realtime() as u32);
        INFO.store(areas.at.info as usize, Ordering::Relaxed);
        link.send(0);
        while link.try_receive().is_some() {
            // The system call that received the message has returned, so the handler has run for
            // all changes from before the message was sent.
            let (seen, now) = (SEEN.load(Ordering::Relaxed), areas.info(0).0.active);
            assert_eq!(seen, now);
            link.send(u64::from(now));
        }
    });
    child.link.receive();
    for _ in 0..scaled(200) {
        for (active, change) in [(1, Trace::start as fn(&Trace)), (0, Trace::stop)] {
            change(&trace);
            child.link.send(0);
            assert_eq!(child.link.receive(), active << trace.stats().slot);
        }
    }
}

/// Requirements: A4
fn update_signal_wakes_a_sleeping_program() {
    let mut child = Child::spawn(|link| {
        handle(realtime(), counter(), 0);
        let _areas = Areas::map(realtime() as u32);
        link.send(0);
        while UPDATES.load(Ordering::Relaxed) == 0 {
            // SAFETY: it takes no arguments. (If a signal comes just before, the parent sends
            // another parent.)
            unsafe { libc::pause() };
        }
    });
    child.link.receive();
    let trace = Trace::create("wakes");
    let mut running = false;
    wait::until("it woke", || {
        running = !running;
        if running {
            trace.start()
        } else {
            trace.stop()
        };
        !child.is_alive()
    });
    child.join();
}

/// Requirements: A4
fn update_signal_can_be_chosen_and_changed() {
    let (first, second) = (Signal::SIGUSR1 as i32, Signal::SIGUSR2 as i32);
    let trace = Trace::create("chosen");
    let mut child = Child::spawn(|link| {
        for signo in [first, second] {
            handle(signo, counter(), libc::SA_RESTART);
            // The program gives up the other signal first.
            handle(first + second - signo, libc::SIG_DFL, 0);
            let areas = Areas::map(signo as u32);
            let before = UPDATES.load(Ordering::Relaxed);
            link.send(0);
            link.receive();
            assert_eq!(UPDATES.load(Ordering::Relaxed), before + 1, "{signo}");
            assert_eq!(areas.at.signo, signo as u32);
        }
        link.send(0);
    });
    child.link.receive();
    trace.start();
    child.link.send(0);
    child.link.receive();
    trace.stop();
    child.link.send(0);
    child.link.receive();
    child.join();
}

/// Requirements: A4
fn update_signal_is_sent_only_on_request() {
    let mut child = counting(0, || {
        for signo in 1..=64 {
            if ![Signal::SIGKILL as i32, Signal::SIGSTOP as i32, 32, 33].contains(&signo)
                && signo != Signal::SIGCHLD as i32
            {
                handle(signo, counter(), libc::SA_RESTART);
            }
        }
    });
    let trace = Trace::create("quiet");
    for _ in 0..5 {
        trace.start();
        trace.stop();
    }
    assert_eq!(ask(&mut child), 0);
}

/// Ways in which a program can treat the signal without handling it.
const WAYS: &[(&str, libc::sighandler_t, bool)] = &[
    ("default", libc::SIG_DFL, false),
    ("ignored", libc::SIG_IGN, false),
    ("blocked, default", libc::SIG_DFL, true),
    ("blocked, ignored", libc::SIG_IGN, true),
];

/// Real-time and other signals whose default action is death.
fn signals() -> [i32; 3] {
    [realtime(), Signal::SIGUSR1 as i32, Signal::SIGTERM as i32]
}

fn block(signo: i32) {
    // SAFETY: the set is this function's own.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signo);
        assert_eq!(
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()),
            0
        );
    }
}

/// Whether the signal is pending for this process.
fn is_pending(signo: i32) -> bool {
    // SAFETY: the set is this function's own.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        assert_eq!(libc::sigpending(&raw mut set), 0);
        libc::sigismember(&raw const set, signo) == 1
    }
}

/// Requirements: F2
fn update_signal_kills_no_process() {
    let trace = Trace::create("harmless");
    let mut children = Vec::new();
    for signo in signals() {
        for &(how, handler, blocked) in WAYS {
            let child = counting(signo, move || {
                handle(signo, handler, 0);
                if blocked {
                    block(signo);
                }
            });
            children.push((signo, how, child));
        }
    }
    for _ in 0..20 {
        trace.start();
        trace.stop();
    }
    trace.try_remove().expect("rmdir");
    for (signo, how, child) in &mut children {
        assert!(child.is_alive(), "signal {signo}, {how}");
        assert_eq!(ask(child), 0, "signal {signo}, {how}");
    }
}

/// Requirements: F2
fn blocked_update_signal_is_not_left_pending() {
    let trace = Trace::create("blocked");
    for signo in signals() {
        let mut child = Child::spawn(|link| {
            handle(signo, counter(), 0);
            block(signo);
            let _areas = Areas::map(signo as u32);
            link.send(0);
            link.receive();
            assert!(!is_pending(signo), "signal {signo}");
            assert_eq!(UPDATES.load(Ordering::Relaxed), 0);
        });
        child.link.receive();
        for _ in 0..5 {
            trace.start();
            trace.stop();
        }
        child.link.send(0);
        child.join();
    }
}

/// C libraries block all signals while they create a thread. Events are off here, so that no event
/// detects the change.
///
/// Requirements: A4
fn update_signal_is_sent_again_after_a_block() {
    for all in [false, true] {
        let mut child = Child::spawn(|link| {
            event::attach();
            let mut before = SigSet::empty();
            let set = if all {
                SigSet::all()
            } else {
                let mut set = SigSet::empty();
                // SAFETY: the set is one; nix does not know real-time signals.
                unsafe { libc::sigaddset(std::ptr::from_mut(&mut set).cast(), realtime()) };
                set
            };
            sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut before)).expect("blocked");
            link.send(0);
            link.receive();
            assert_eq!(event::write(0, 0), Outcome::Off);
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None).expect("as before");
            wait::until("it is told", || event::write(0, 0) == Outcome::Recorded);
        });
        child.link.receive();
        let _trace = Trace::started("blocked");
        std::thread::sleep(Duration::from_millis(50));
        child.link.send(0);
        child.join();
    }
}

/// Requirements: F2
fn update_signal_does_not_survive_exec() {
    let trace = Trace::create("exec");
    for (signo, blocked) in signals().into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let mut child = Child::spawn(|link| {
            handle(signo, counter(), 0);
            if blocked {
                block(signo);
            }
            let _areas = Areas::map(signo as u32);
            link.send(0);
            link.receive();
            // Blocked signals stay blocked, so the new program unblocks all, and would die of one
            // that is pending.
            let script =
                c"perl -MPOSIX -e 'sigprocmask(SIG_SETMASK, POSIX::SigSet->new) or die; exit 0'";
            let arguments: [&CStr; 3] = [c"sh", c"-c", script];
            let _ = nix::unistd::execv(c"/bin/sh", &arguments);
            panic!("exec failed");
        });
        child.link.receive();
        trace.start();
        child.link.send(0);
        // Signals during the execution of another program.
        for _ in 0..20 {
            trace.stop();
            trace.start();
        }
        child.join();
        trace.stop();
    }
}
