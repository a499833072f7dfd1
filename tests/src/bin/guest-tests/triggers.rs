//! Events stop and start traces, and tell programs that wait (E4).

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Uid, chroot, setuid};
use syscalls::Errno;
use usertrace::Outcome;
use usertrace_consumer::{ConsumerFile, KernelFile};
use usertrace_testing::wait;
use usertrace_tests::areas::Areas;
use usertrace_tests::bystander::Bystander;
use usertrace_tests::child::Child;
use usertrace_tests::control::{ROOT, Trace};
use usertrace_tests::cpu;
use usertrace_tests::event;
use usertrace_tests::guest::{is_debug, scaled};
use usertrace_tests::reader::Reader;
use usertrace_tests::shared::Shared;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    flight_recorder_stopped_by_an_event_keeps_what_led_to_it,
    event_starts_an_allocated_trace,
    once_and_every_count_over_all_processes,
    flood_of_triggers_harms_no_other_process,
    programs_fire_triggers_from_anywhere,
    vfork_child_fires_triggers_of_its_parent,
    trigger_that_is_no_expression_fires_nothing,
    waiting_programs_are_told,
];

/// What the events of a test that fire something have as their thread.
const FIRES: u32 = 77;

/// A line of `fired`.
#[derive(Debug, PartialEq, Eq)]
struct Fired {
    number: u8,
    matched: u64,
    fired: u64,
    suppressed: u64,
    pid: i32,
    is_spent: bool,
}

fn fired(trace: &Trace) -> Vec<Fired> {
    let line = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [
            number,
            "matched",
            matched,
            "fired",
            fired,
            "suppressed",
            suppressed,
            "last",
            pid,
            time,
            ref spent @ ..,
        ] => {
            let parse = |text: &str| text.parse().expect("a number");
            assert_eq!(parse(pid) == 0, parse(time) == 0, "{line}");
            Fired {
                number: parse(number) as u8,
                matched: parse(matched),
                fired: parse(fired),
                suppressed: parse(suppressed),
                pid: parse(pid) as i32,
                is_spent: *spent == ["spent"],
            }
        }
        _ => panic!("in fired: {line}"),
    };
    trace.read("fired").lines().map(line).collect()
}

/// Threads of a process that write until a number is set: one on each CPU. Numbers count the events
/// of a thread that were recorded.
fn writers(first: u32, stop: &Shared) -> Child {
    let mut child = Child::spawn(|link| {
        event::attach();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    cpu::pin(thread);
                    let mut number = 0;
                    while stop.get().load(Ordering::Relaxed) == 0 {
                        let outcome = event::write(first + thread as u32, number);
                        number += u64::from(outcome == Outcome::Recorded);
                    }
                });
            }
            link.send(0);
        });
    });
    child.link.receive();
    child
}

/// The events of all rings of all processes of a trace: ring, time, thread and number.
fn events(trace: &Trace) -> Vec<(usize, u64, (u32, u64))> {
    let mut all = Vec::new();
    for path in trace.consumer_files("main") {
        let mut reader = Reader::open(&path).expect("the file");
        reader.look_with_times(|ring, time, event| all.push((ring, time, event)), |_, _| {});
    }
    all
}

/// Writes an event that stops the trace, in a process of its own. Returns how long that takes, in
/// ns.
fn fire_once(number: u64) -> u64 {
    let mut child = Child::spawn(|link| {
        event::attach();
        let before = Instant::now();
        assert_eq!(event::write(FIRES, number), Outcome::Recorded);
        let took = before.elapsed();
        // The trace is stopped when the call returns.
        assert_eq!(event::write(5, number), Outcome::Off);
        link.send(took.as_nanos() as u64);
    });
    let took = child.link.receive();
    child.join();
    took
}

/// All CPUs of all processes write. The event that stops the trace is there, so are those before
/// it, and writers soon end.
///
/// Requirements: E3, E4
fn flight_recorder_stopped_by_an_event_keeps_what_led_to_it() {
    let stop = Shared::new();
    let processes = [writers(0, &stop), writers(2, &stop)];
    let mut latencies = Vec::new();
    // A round takes the debug kernel ten seconds.
    let fewest = if is_debug() { 2 } else { 4 };
    for round in 0..scaled(60).max(fewest) {
        let trace = Trace::create("stopped");
        trace.write("main/flight", "1").expect("flight");
        trace
            .write(
                "triggers",
                &format!("numbered if thread == {FIRES} then stop"),
            )
            .expect("a trigger");
        trace.start();
        wait::until("all write", || {
            let mut threads: Vec<_> = events(&trace).iter().map(|event| event.2.0).collect();
            threads.sort_unstable();
            threads.dedup();
            threads == [0, 1, 2, 3]
        });
        fire_once(round);
        assert_eq!(trace.read("start"), "0\n");
        let [Fired { fired: 1, .. }] = fired(&trace)[..] else {
            panic!("{:?}", fired(&trace));
        };
        let mut seen = events(&trace);
        wait::until("nobody writes any more", || {
            std::thread::sleep(Duration::from_millis(20));
            let before = std::mem::replace(&mut seen, events(&trace));
            before.len() == seen.len()
        });
        let firing = seen.iter().find(|event| event.2 == (FIRES, round));
        let at = firing.expect("the event that fires is recorded").1;
        for thread in 0..4 {
            let of_thread = seen.iter().filter(|event| event.2.0 == thread);
            let mut before: Vec<_> = of_thread
                .filter(|event| event.1 < at)
                .map(|event| event.2.1)
                .collect();
            before.sort_unstable();
            assert!(before.len() > 10, "thread {thread} before the event");
            let is_whole = before.windows(2).all(|two| two[1] == two[0] + 1);
            assert!(is_whole, "thread {thread} has gaps");
        }
        let last = seen.iter().map(|event| event.1).max().expect("events");
        let file = KernelFile::open(&trace.consumer_files("main")[0]).expect("a file");
        let freq = file.info().expect("its description").now.freq;
        latencies.push((last - at) * 1_000_000 / freq.max(1));
    }
    stop.get().store(1, Ordering::Relaxed);
    processes.into_iter().for_each(Child::join);
    latencies.sort_unstable();
    let (median, worst) = (
        latencies[latencies.len() / 2],
        latencies[latencies.len() - 1],
    );
    println!("from the event to the last one of any CPU: median {median} us, worst {worst} us");
    if is_debug() {
        // Its times say nothing.
        return;
    }
    let alone = || {
        let trace = Trace::create("alone");
        let line = format!("numbered if thread == {FIRES} then stop");
        trace.write("triggers", &line).expect("a trigger");
        trace.start();
        fire_once(0)
    };
    let mut alone: Vec<_> = (0..21).map(|_| alone()).collect();
    alone.sort_unstable();
    println!(
        "the event and the stop of its process: median {} ns",
        alone[10]
    );
}

/// Requirements: E4
fn event_starts_an_allocated_trace() {
    let trace = Trace::create("begun");
    trace
        .write(
            "triggers",
            &format!("test:* if thread == {FIRES} then start"),
        )
        .expect("a trigger");
    let mut child = Child::spawn(|link| {
        event::attach();
        link.send(0);
        // The trace is allocated now.
        link.receive();
        wait::until("the event is evaluated", || {
            event::write(FIRES, 0);
            event::write(1, 1) == Outcome::Recorded
        });
    });
    child.link.receive();
    assert_eq!(fired(&trace)[0].matched, 0);
    trace.write("allocate", "1").expect("allocate");
    child.link.send(0);
    child.join();
    assert_eq!(trace.read("start"), "1\n");
    let first = events(&trace).iter().map(|event| event.2).min();
    assert_eq!(first, Some((1, 1)));
    assert_eq!(fired(&trace)[0].fired, 1);
}

/// Requirements: E4
fn once_and_every_count_over_all_processes() {
    const PROCESSES: u64 = 4;
    let each = scaled(2000).max(200);
    let trace = Trace::started("exact");
    let every = PROCESSES * each / 8;
    let lines = format!(
        "numbered if thread < 4 then notify every {every}\n\
         numbered if number == 10 then notify once\n\
         * if thread == 2 && number >= 0 then notify"
    );
    trace.write("triggers", &lines).expect("triggers");
    let processes: Vec<_> = (0..PROCESSES as u32)
        .map(|thread| {
            Child::spawn(move |_| {
                event::attach();
                for number in 0..each {
                    event::write(thread, number);
                }
            })
        })
        .collect();
    processes.into_iter().for_each(Child::join);
    let [all, once, one] = &fired(&trace)[..] else {
        panic!("{:?}", fired(&trace));
    };
    assert_eq!(
        (all.matched, all.fired + all.suppressed),
        (PROCESSES * each, 8)
    );
    assert_eq!(all.suppressed, 0, "eight are fewer than ten at once");
    assert_eq!((once.matched, once.fired, once.is_spent), (1, 1, true));
    assert_eq!((one.matched, one.fired + one.suppressed), (each, each));
}

/// Ten thousand calls a second, or as many as there can be, by a process of another user.
///
/// Requirements: A11, E4, F5
fn flood_of_triggers_harms_no_other_process() {
    let trace = Bystander::trace("flooded");
    trace
        .write(
            "triggers",
            "never then start\nnever then notify\nnever then notify every 1000",
        )
        .expect("triggers");
    let numbers: Vec<u8> = fired(&trace).iter().map(|fired| fired.number).collect();
    let bystander = Bystander::start();
    let mut flood = Child::spawn(|link| {
        setuid(Uid::from_raw(65534)).expect("another user");
        let areas = Areas::map(0);
        let slot = areas.must_next();
        let buffer = std::ptr::NonNull::new(slot.address as *mut u8).expect("not at 0");
        let begun = Instant::now();
        let mut calls = 0;
        while begun.elapsed() < Duration::from_secs(2) || calls < 7000 {
            // The numbers of no trigger, too, but not each time.
            for number in 1..=255 {
                let is_one = numbers.contains(&number);
                if is_one || calls % 100 == 0 {
                    let expected = if is_one { Ok(()) } else { Err(Errno::ENOENT) };
                    assert_eq!(areas.calls.fire(buffer, number), expected);
                }
            }
            calls += 1;
        }
        link.send(calls);
        link.send(begun.elapsed().as_millis() as u64);
    });
    let (calls, ms) = (flood.link.receive(), flood.link.receive());
    flood.join();
    let most = 10 + ms / 100 + 1;
    for (at, fired) in fired(&trace).iter().enumerate() {
        assert_eq!(fired.matched, calls);
        let due = if at == 2 { calls / 1000 } else { calls };
        assert_eq!(fired.fired + fired.suppressed, due);
        assert!(
            fired.fired <= most && fired.fired >= due.min(10),
            "{fired:?}"
        );
    }
    let written = bystander.check(&trace);
    let rate = calls * 3 * 1000 / ms.max(1);
    println!("{rate} matches a second; the bystander wrote {written} events");
}

/// A `vfork` child loses its events, as it must not write into its parent's rings. It fires
/// triggers nevertheless.
///
/// Requirements: E4, F2
fn vfork_child_fires_triggers_of_its_parent() {
    let trace = Trace::started("vforked");
    trace
        .write("triggers", "numbered if thread == 1 then notify")
        .expect("a trigger");
    Child::spawn(|_| {
        cpu::pin(0);
        event::attach();
        assert!(event::write_around_vfork(Outcome::Lost));
    })
    .join();
    let counts: Vec<_> = (fired(&trace).iter())
        .map(|of| (of.matched, of.fired + of.suppressed))
        .collect();
    assert_eq!(counts, [(5, 5)]);
}

/// Requirements: A4, A5, E4, F1
fn programs_fire_triggers_from_anywhere() {
    let trace = Trace::started("anywhere");
    let line = format!("numbered if thread == {FIRES} then notify");
    trace.write("triggers", &line).expect("a trigger");
    let fires = |what: &str, prepare: &dyn Fn()| {
        let before = fired(&trace)[0].matched;
        let child = Child::spawn(|_| {
            event::attach();
            prepare();
            event::write(1, 0);
            event::write(FIRES, 0);
        });
        let pid = child.pid().as_raw();
        child.join();
        let fired = &fired(&trace)[0];
        assert_eq!(fired.matched, before + 1, "{what}");
        (pid, fired.pid)
    };
    // Only ten at once act, so there is a pause before the process is compared.
    for (what, prepare) in [
        ("a process", &(|| {}) as &dyn Fn()),
        ("another user", &|| {
            setuid(Uid::from_raw(65534)).expect("another user");
        }),
        ("without descriptors", &|| {
            setrlimit(Resource::RLIMIT_NOFILE, 0, 0).expect("no descriptors");
            // SAFETY: the child uses no descriptor any more but that of its message, on a panic.
            unsafe { libc::close_range(0, u32::MAX, 0) };
        }),
        ("chroot", &|| chroot("/tmp").expect("chroot")),
        ("namespaces", &|| {
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).expect("namespaces");
        }),
    ] {
        std::thread::sleep(Duration::from_millis(120));
        let (pid, last) = fires(what, prepare);
        assert_eq!(last, pid, "{what}");
    }
    // The first process of a namespace, whose number there is 1.
    std::thread::sleep(Duration::from_millis(120));
    let before = fired(&trace)[0].matched;
    Child::spawn(|_| {
        unshare(CloneFlags::CLONE_NEWPID).expect("a namespace");
        Child::spawn(|_| {
            assert_eq!(std::process::id(), 1);
            event::attach();
            event::write(FIRES, 0);
        })
        .join();
    })
    .join();
    let last = &fired(&trace)[0];
    assert_eq!(last.matched, before + 1);
    assert_ne!(last.pid, 1, "it is the number in the initial namespace");
    // A child of fork, and one that shares memory.
    Child::spawn(|_| {
        event::attach();
        event::write(1, 0);
        Child::spawn(|_| {
            event::write(FIRES, 0);
        })
        .join();
    })
    .join();
    assert_eq!(fired(&trace)[0].matched, before + 2);
    // A handler, in the middle of a call of the parent's.
    Child::spawn(|_| {
        extern "C" fn handler(_: libc::c_int) {
            event::write(FIRES, 0);
        }
        event::attach();
        // SAFETY: the handler only writes an event.
        unsafe {
            libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
            libc::raise(libc::SIGUSR1);
        }
        event::write(FIRES, 1);
    })
    .join();
    assert_eq!(fired(&trace)[0].matched, before + 4);
}

/// Requirements: E4, F2
fn trigger_that_is_no_expression_fires_nothing() {
    let trace = Trace::started("wrong");
    // The kernel does not interpret expressions.
    trace
        .write("triggers", "* if thread > then stop")
        .expect("a trigger");
    trace
        .write("triggers", "* if missing == 1 then stop")
        .expect("a trigger");
    let child = Child::spawn(|_| {
        event::attach();
        assert_eq!(event::write(FIRES, 0), Outcome::Recorded);
        let stats = usertrace::stats().next().expect("the trace");
        assert_eq!(stats.unusable_conditions, 1);
    });
    child.join();
    assert!(fired(&trace).iter().all(|fired| fired.matched == 0));
    assert_eq!(trace.read("start"), "1\n");
}

/// Requirements: E4
fn waiting_programs_are_told() {
    let trace = Trace::started("waits");
    let line = format!("numbered if thread == {FIRES} then notify");
    trace.write("triggers", &line).expect("a trigger");
    let path = Path::new(ROOT).join("waits/fired");
    let file = std::fs::File::open(&path).expect("fired");
    let events_of = |file: BorrowedFd<'_>, timeout: u16| {
        let mut fds = [PollFd::new(file, PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(timeout)).expect("poll");
        fds[0].revents().expect("known events")
    };
    let events = |timeout: u16| events_of(file.as_fd(), timeout);
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK).expect("inotify");
    inotify
        .add_watch(&path, AddWatchFlags::IN_MODIFY)
        .expect("a watch");
    assert_eq!(events(0), PollFlags::empty());
    let mut child = Child::spawn(|link| {
        event::attach();
        while link.try_receive().is_some() {
            event::write(FIRES, 0);
        }
    });
    for count in 1..=3 {
        child.link.send(0);
        assert!(events(60_000).contains(PollFlags::POLLIN), "{count}");
        // The kernel wakes those who poll first.
        assert!(events_of(inotify.as_fd(), 60_000).contains(PollFlags::POLLIN));
        assert!(!inotify.read_events().expect("events").is_empty());
        // Reading says that it was seen.
        assert_eq!(fired(&trace)[0].fired, count);
        assert!(events(0).contains(PollFlags::POLLIN));
        let mut text = [0; 4096];
        std::os::unix::fs::FileExt::read_at(&file, &mut text, 0).expect("fired");
        assert_eq!(events(0), PollFlags::empty());
    }
    trace.try_remove().expect("rmdir");
    assert!(events(60_000).contains(PollFlags::POLLHUP));
    drop(child);
}
