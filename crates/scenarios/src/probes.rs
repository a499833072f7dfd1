//! A scenario of probes in a traced process, on any back end. A process can run it once, because
//! the probes keep the events that they got in statics.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use usertrace::__private::{Entry, declare, record_parts, register, unregister};
use usertrace::Callsite;
use usertrace::Outcome;
use usertrace::probe::{self, Error, PAYLOAD_MAX, Record};

/// The process's events. [`probes_events!`](crate::probes_events!) declares them.
pub trait Events: 'static {
    fn number(n: u64) -> Outcome;
    fn text(n: u8, text: &str) -> Outcome;
}

/// Declares the events `test:number` and `test:text`, and the type `Events`.
#[macro_export]
macro_rules! probes_events {
    () => {
        usertrace::tracepoint! {
            mod number {
                provider: "test",
                name: "number",
                loglevel: Info,
                fields: { n: u64 }
            }
        }

        usertrace::tracepoint! {
            mod text {
                provider: "test",
                name: "text",
                loglevel: Info,
                fields: { n: u8, text: str }
            }
        }

        /// The events to which the probes are connected.
        struct Events;

        impl $crate::probes::Events for Events {
            fn number(n: u64) -> usertrace::Outcome {
                usertrace::event!(number, n)
            }

            fn text(n: u8, text: &str) -> usertrace::Outcome {
                usertrace::event!(text, n, text)
            }
        }
    };
}

/// How many events of each name a trace has of the process, and of its child.
pub const RECORDED: [[(&str, usize); 2]; 2] = [
    [("test:number", 14), ("test:text", 3)],
    [("test:number", 2), ("test:text", 0)],
];

/// The events that the probe `see` got: names, payloads, and lengths.
static SEEN: Mutex<Vec<(String, Vec<u8>, usize)>> = Mutex::new(Vec::new());

extern "C" fn see(record: &Record<'_>, data: *mut c_void) {
    assert_eq!(data.addr(), 17);
    let name = record.description().split(' ').next().unwrap_or_default();
    let seen = (name.to_owned(), record.payload().to_vec(), record.len());
    SEEN.lock().unwrap().push(seen);
    // A careless probe changes `errno`.
    // SAFETY: this thread's `errno`.
    unsafe { *libc::__errno_location() = libc::EPERM };
}

fn seen() -> Vec<(String, Vec<u8>, usize)> {
    std::mem::take(&mut SEEN.lock().unwrap())
}

static DEPTH: AtomicU64 = AtomicU64::new(0);

/// Writes the event that it is connected to.
extern "C" fn recurse<E: Events>(_: &Record<'_>, _: *mut c_void) {
    DEPTH.fetch_add(1, Ordering::Relaxed);
    assert_eq!(E::number(100), Outcome::Recorded);
}

static INSIDE: AtomicBool = AtomicBool::new(false);
static GO: AtomicBool = AtomicBool::new(false);

/// Returns only when `GO` is set.
extern "C" fn stay(_: &Record<'_>, _: *mut c_void) {
    INSIDE.store(true, Ordering::Relaxed);
    while !GO.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    INSIDE.store(false, Ordering::Relaxed);
}

/// Registers a probe, with a number as its data.
fn add(name: &str, call: probe::Call, data: usize) -> Result<(), Error> {
    // SAFETY: the functions are statics of this program, and never dereference `data`.
    unsafe { probe::register(name, call, std::ptr::without_provenance_mut(data)) }
}

/// Checks that probes work, in a traced process. `set_active` starts and stops the trace.
pub fn run<E: Events>(set_active: &dyn Fn(bool)) {
    invalid_calls_fail();

    // A connected probe is not called until it is activated. The event is written either way.
    assert_eq!(probe::connect("test:number", "see"), Ok(1));
    assert_eq!(E::number(1), Outcome::Recorded);
    assert_eq!(seen(), []);
    assert_eq!(probe::activate("test:number", "see"), Ok(1));
    // SAFETY: this thread's `errno`.
    unsafe { *libc::__errno_location() = 5 };
    assert_eq!(E::number(0x0102), Outcome::Recorded);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(5));
    let number = |n: u64| ("test:number".to_owned(), n.to_le_bytes().to_vec(), 8);
    assert_eq!(seen(), [number(0x0102)]);
    assert_eq!(E::text(1, "not connected"), Outcome::Recorded);
    assert_eq!(probe::deactivate("test:number", "see"), Ok(1));
    assert_eq!(E::number(3), Outcome::Recorded);
    assert_eq!(seen(), []);
    // A deactivated probe is still connected.
    assert_eq!(probe::activate("test:number", "see"), Ok(1));
    assert_eq!(E::number(4), Outcome::Recorded);
    assert_eq!(probe::disconnect("test:number", "see"), Ok(1));
    assert_eq!(E::number(5), Outcome::Recorded);
    assert_eq!(seen(), [number(4)]);
    let not = probe::activate("test:number", "see");
    assert_eq!(not, Err(Error::NotConnected));

    payloads::<E>();
    events_that_come_later();

    // The probe is called even if no trace is active.
    assert_eq!(probe::connect("*:number", "see"), Ok(1));
    assert_eq!(probe::activate("*:number", "see"), Ok(1));
    set_active(false);
    assert_eq!(E::number(6), Outcome::Off);
    assert_eq!(seen(), [number(6)]);
    set_active(true);
    assert_eq!(E::number(7), Outcome::Recorded);
    assert_eq!(seen(), [number(7)]);
    children::<E>(&number(8));
    assert_eq!(probe::unregister("see"), Ok(()));
    assert_eq!(E::number(9), Outcome::Recorded);
    assert_eq!(seen(), []);

    // A probe's own events do not call it again, but they are written.
    add("recurse", recurse::<E>, 0).unwrap();
    probe::connect("test:number", "recurse").unwrap();
    probe::activate("test:number", "recurse").unwrap();
    assert_eq!(E::number(10), Outcome::Recorded);
    assert_eq!(E::number(11), Outcome::Recorded);
    assert_eq!(DEPTH.load(Ordering::Relaxed), 2);
    probe::unregister("recurse").unwrap();

    removal_waits_for_running_probes::<E>();
    assert_eq!(probe::skipped(), 0);
}

fn invalid_calls_fail() {
    let none = probe::connect("test:number", "see");
    assert_eq!(none, Err(Error::NoProbe));
    let long = "x".repeat(65);
    for bad in ["", "a b", "a:b", &long] {
        assert_eq!(add(bad, see, 17), Err(Error::Name), "{bad}");
    }
    assert_eq!(add("see", see, 17), Ok(()));
    assert_eq!(add("see", see, 17), Err(Error::Exists));
    let long = "x".repeat(257);
    for bad in ["", "a b", "test:number\n", &long] {
        assert_eq!(probe::connect(bad, "see"), Err(Error::Pattern), "{bad}");
    }
    assert_eq!(probe::connect("no:*", "see"), Ok(0));
    assert_eq!(probe::connect("no:*", "see"), Err(Error::Connected));
    assert_eq!(probe::disconnect("no:*", "see"), Ok(0));
    assert_eq!(probe::unregister("other"), Err(Error::NoProbe));

    // There is room for 63 more probes and 256 connections, and for as many again once these are
    // gone.
    let name = |n: usize| format!("filler{n}");
    (1..64).for_each(|n| add(&name(n), see, 0).unwrap());
    assert_eq!(add("last", see, 0), Err(Error::Full));
    (1..64).for_each(|n| probe::unregister(&name(n)).unwrap());
    let pattern = |n: usize| format!("filler:{n}");
    (0..256).for_each(|n| {
        probe::connect(&pattern(n), "see").unwrap();
    });
    assert_eq!(probe::connect("a:b", "see"), Err(Error::Full));
    (0..256).for_each(|n| {
        probe::disconnect(&pattern(n), "see").unwrap();
    });
}

/// Short payloads, and payloads that are longer than a probe gets.
fn payloads<E: Events>() {
    probe::connect("test:t*t", "see").unwrap();
    probe::activate("test:t*t", "see").unwrap();
    assert_eq!(E::text(7, "abc"), Outcome::Recorded);
    let long = "x".repeat(1500);
    assert_eq!(E::text(8, &long), Outcome::Recorded);
    let seen = seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(&seen[0].1[..5], b"\x07abc\0");
    assert_eq!((seen[1].1.len(), seen[1].2), (PAYLOAD_MAX, 1502));
    assert_eq!(seen[1].1[0], 8);
    assert!(seen[1].1[1..].iter().all(|&byte| byte == b'x'));
    probe::disconnect("test:t*t", "see").unwrap();
}

/// A connection holds for events that are declared later, and for those of libraries.
fn events_that_come_later() {
    assert_eq!(probe::connect("late:*", "see"), Ok(0));
    assert_eq!(probe::activate("late:*", "see"), Ok(0));
    let late = declare("late:one 6 u8 n").unwrap();
    assert_eq!(record_parts(late, &[&[1]]), Outcome::Recorded);
    let callsite: &'static Callsite =
        Box::leak(Box::new(Callsite::new("late", "two", "late:two 6 u8 n")));
    let entries = [Entry::new(callsite)];
    let entries = entries.as_ptr_range();
    // SAFETY: the entries stay until `unregister`.
    assert_eq!(unsafe { register(entries.start, entries.end) }, 0);
    assert_eq!(record_parts(callsite, &[&[2]]), Outcome::Recorded);
    unregister(entries.start, entries.end);
    let names: Vec<_> = seen().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["late:one", "late:two"]);
    assert_eq!(probe::disconnect("late:*", "see"), Ok(1));
    assert_eq!(record_parts(late, &[&[3]]), Outcome::Recorded);
    assert_eq!(seen(), []);
}

/// A child of `fork` inherits the connections, and can remove its own.
fn children<E: Events>(expected: &(String, Vec<u8>, usize)) {
    // SAFETY: the process has no other threads now, whose locks the child would find taken.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut good = E::number(8) == Outcome::Recorded;
        good &= seen().first() == Some(expected);
        good &= probe::disconnect("*:number", "see") == Ok(1);
        good &= E::number(8) == Outcome::Recorded;
        good &= seen().is_empty();
        // SAFETY: no memory is involved.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a local of this function.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// `unregister`, `disconnect` and `deactivate` wait until no thread executes the probe.
fn removal_waits_for_running_probes<E: Events>() {
    for undo in [
        || probe::unregister("stay").unwrap(),
        || {
            probe::disconnect("test:number", "stay").unwrap();
        },
        || {
            probe::deactivate("test:number", "stay").unwrap();
        },
    ] {
        let _ = probe::unregister("stay");
        // SAFETY: the function is part of this program, and ignores its data.
        unsafe { probe::register("stay", stay, null_mut()) }.unwrap();
        probe::connect("test:number", "stay").unwrap();
        probe::activate("test:number", "stay").unwrap();
        GO.store(false, Ordering::Relaxed);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| E::number(12));
            while !INSIDE.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            scope.spawn(|| {
                undo();
                assert!(!INSIDE.load(Ordering::Relaxed));
                done.store(true, Ordering::Relaxed);
            });
            std::thread::sleep(Duration::from_millis(50));
            assert!(!done.load(Ordering::Relaxed));
            GO.store(true, Ordering::Relaxed);
        });
        assert!(done.load(Ordering::Relaxed));
    }
    probe::unregister("stay").unwrap();
}
