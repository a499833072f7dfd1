//! Tests the runtime, typed events and the writer together, on a fake kernel.
//!
//! Each test runs in a forked process: it has a fresh runtime, and may fork, be killed and change
//! signals.

mod conditions;
mod counting;
mod flagged_routes;
mod random_conditions;
mod triggers;

use std::mem::offset_of;
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use usertrace::__private::Prefault;
use usertrace::__private::{Kernel, init_with};
use usertrace::clock;
use usertrace::fake::process::{child, wait};
use usertrace::fake::{Fake, Seen, Sizes};
use usertrace::{AreaField, Refused};
use usertrace::{Errno, Outcome, Status, event};
use usertrace_sys::Update;
use usertrace_sys::uapi::{LTT_CLOCK_MONOTONIC, LTT_TRACEBUF_LIMITED, LttInfo, LttTracebuf};
use usertrace_sys::{Mode, Scope};
use usertrace_testing::counts::counts;
use usertrace_testing::seccomp;

usertrace::tracepoint! {
    /// All types.
    mod all {
        provider: "test",
        name: "all-types",
        loglevel: Warning,
        fields: {
            a: u8, b: u16, c: u32, d: u64, e: i8, f: i16, g: i32, h: i64, i: x8, j: x16, k: x32, l: x64,
            m: f32, n: f64, o: bool, p: str,
        },
    }
}

usertrace_testing::numbered_event!(n);

usertrace::tracepoint! {
    mod empty {
        provider: "test",
        name: "empty",
        loglevel: Debug,
        fields: {},
    }
}

usertrace::tracepoint! {
    mod text {
        provider: "test",
        name: "text",
        loglevel: Emergency,
        fields: { text: str },
    }
}

usertrace::tracepoint! {
    mod sequence {
        provider: "test",
        name: "sequence",
        loglevel: DebugProgram,
        fields: { two: [u8; 2], many: [u16be] },
    }
}

fn signo() -> libc::c_int {
    libc::SIGRTMIN() + 3
}

/// Sends the update signal, as the kernel does after each change.
fn update() {
    // SAFETY: the runtime's handler is installed.
    assert_eq!(unsafe { libc::raise(signo()) }, 0);
}

fn attach(sizes: Sizes) -> &'static Fake {
    attach_to(Fake::new(sizes))
}

fn attach_to(fake: &'static Fake) -> &'static Fake {
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    fake
}

fn small() -> Sizes {
    Sizes {
        subbuf_size: [4096, 4096],
        subbuf_count: [2, 2],
    }
}

/// Attaches this process, and starts one trace.
fn traced(sizes: Sizes) -> (&'static Fake, usize) {
    let fake = attach(sizes);
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    (fake, slot)
}

fn numbers(events: &[Seen]) -> Vec<u64> {
    let mut numbers: Vec<u64> = events
        .iter()
        .filter(|seen| seen.event.name == "test:numbered")
        .map(|seen| u64::from_le_bytes(seen.payload[..].try_into().unwrap()))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// On a kernel without trace buffers, nothing is traced and nothing is reported.
///
/// Requirements: F3
fn a_stock_kernel_is_quiet() {
    if usertrace_sys::Calls::discover().is_ok() {
        return;
    }
    // The constructor has looked for the kernel's calls.
    assert!(matches!(usertrace::status(), Status::NoKernel(_)));
    assert!(matches!(usertrace::init(), Status::NoKernel(_)));
    assert!(matches!(usertrace::status(), Status::NoKernel(_)));
    assert_eq!(event!(numbered, 1), Outcome::Off);
    assert_eq!(usertrace::stats().count(), 0);
    assert_eq!(usertrace::flush(), Err(Errno::ENXIO));
}

fn backend_off_disables_tracing() {
    // SAFETY: the process has no other thread.
    unsafe { std::env::set_var("USERTRACE_BACKEND", "off") };
    let fake = Fake::new(Sizes::default());
    assert_eq!(init_with(|| Ok(fake)), Status::Off);
    assert_eq!(usertrace::status(), Status::Off);
    assert_eq!(fake.processes(), 0);
}

fn no_events_without_buffers() {
    let fake = Fake::new(Sizes::default());
    fake.fail(Errno::ENOMEM);
    assert_eq!(init_with(|| Ok(fake)), Status::NoBuffers(Errno::ENOMEM));
    update();
    assert_eq!(event!(numbered, 1), Outcome::Off);
    let pid = child(|| {
        assert_eq!(event!(numbered, 1), Outcome::Off);
        assert_eq!(usertrace::status(), Status::NoBuffers(Errno::ENOMEM));
    });
    assert_eq!(wait(pid), 0);
}

/// Events of all types are read back by their metadata alone.
///
/// Requirements: E6
fn all_types_come_back() {
    let (fake, slot) = traced(Sizes::default());
    let outcome = event!(
        all, 1, 2, 3, 4, -1, -2, -3, -4, 0xf1, 0xf2, 0xf3, 0xf4, 1.5, -2.5, true, "text"
    );
    assert_eq!(outcome, Outcome::Recorded);
    assert_eq!(event!(empty), Outcome::Recorded);
    let events = fake.events(0, slot);
    assert_eq!(events.len(), 2);
    let mut expected = vec![1, 2, 0, 3, 0, 0, 0];
    expected.extend(4u64.to_le_bytes());
    expected.push(0xff);
    expected.extend((-2i16).to_le_bytes());
    expected.extend((-3i32).to_le_bytes());
    expected.extend((-4i64).to_le_bytes());
    expected.push(0xf1);
    expected.extend(0xf2u16.to_le_bytes());
    expected.extend(0xf3u32.to_le_bytes());
    expected.extend(0xf4u64.to_le_bytes());
    expected.extend(1.5f32.to_le_bytes());
    expected.extend((-2.5f64).to_le_bytes());
    expected.push(1);
    expected.extend(b"text\0");
    assert_eq!(events[0].payload, expected);
    assert_eq!(events[0].event.name, "test:all-types");
    assert_eq!(events[0].event.loglevel, 4);
    let fields: Vec<_> = events[0]
        .event
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(fields.join(""), "abcdefghijklmnop");
    assert_eq!(events[1].event.name, "test:empty");
    assert!(events[1].payload.is_empty() && events[1].event.fields.is_empty());
    assert_eq!(fake.metadata(0, slot).len(), usertrace::callsites().len());
}

/// Arguments are evaluated only if a trace wants the event.
fn arguments_are_evaluated_only_when_wanted() {
    let fake = attach(Sizes::default());
    let mut evaluated = 0;
    let mut next = || {
        evaluated += 1;
        evaluated
    };
    assert_eq!(event!(numbered, next()), Outcome::Off);
    let slot = fake.create().unwrap();
    update();
    assert_eq!(event!(numbered, next()), Outcome::Off);
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, next()), Outcome::Recorded);
    fake.stop(slot);
    update();
    assert_eq!(event!(numbered, next()), Outcome::Off);
    assert_eq!(numbers(&fake.events(0, slot)), [1]);
    assert_eq!(fake.switches(0, slot), 1);
}

/// A trace that was active before the program started is found by `init`.
fn init_finds_an_active_trace() {
    let fake = Fake::new(Sizes::default());
    let slot = fake.create().unwrap();
    fake.start(slot);
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    assert_eq!(event!(numbered, 5), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, slot)), [5]);
    assert_eq!(usertrace::flush(), Ok(()));
    assert_eq!(fake.switches(0, slot), 2);
}

/// Several traces, each with its own buffers and its own switch.
///
/// Requirements: A7
fn several_traces() {
    let fake = attach(small());
    let slots: Vec<usize> = (0..16).map(|_| fake.create().unwrap()).collect();
    assert_eq!(fake.create(), None);
    for (n, &slot) in slots.iter().enumerate() {
        fake.start(slot);
        update();
        assert_eq!(event!(numbered, n as u64), Outcome::Recorded);
    }
    for (n, &slot) in slots.iter().enumerate() {
        assert!(numbers(&fake.events(0, slot)).into_iter().eq(n as u64..16));
    }
    fake.stop(slots[3]);
    update();
    assert_eq!(event!(numbered, 100), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, slots[3])).len(), 13);
    assert_eq!(numbers(&fake.events(0, slots[4])).len(), 13);
    assert_eq!(usertrace::stats().filter(|trace| trace.active).count(), 15);
}

/// Number of events that the handler of [`an_event_has_the_same_time_in_several_traces`] wrote.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn write_from_a_handler(_: libc::c_int) {
    let number = HANDLED.fetch_add(1, Ordering::Relaxed);
    event!(numbered, 1 << 32 | number);
}

/// An event in several traces costs one time stamp. Times in a ring never go back, even if a
/// handler writes events in the middle of another one.
///
/// Requirements: A3, A7
fn an_event_has_the_same_time_in_several_traces() {
    let fake = attach(Sizes {
        subbuf_size: [4096, 1 << 16],
        subbuf_count: [4, 32],
    });
    let slots: [usize; 5] = std::array::from_fn(|_| fake.create().unwrap());
    slots.iter().for_each(|&slot| fake.start(slot));
    update();
    // SAFETY: the handler writes an event, and counts.
    unsafe {
        libc::signal(
            libc::SIGALRM,
            write_from_a_handler as extern "C" fn(libc::c_int) as usize,
        );
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: 50,
        };
        let timer = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
    // 16 bytes each, in a ring of 2 MiB. Until some handlers came, but no longer than the ring.
    let mut count = 0;
    while count < 50_000 && (count < 1000 || HANDLED.load(Ordering::Relaxed) < 100) {
        assert_eq!(event!(numbered, count), Outcome::Recorded);
        count += 1;
    }
    // SAFETY: ends the timer.
    unsafe {
        let timer: libc::itimerval = std::mem::zeroed();
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
    let handled = HANDLED.load(Ordering::Relaxed);
    let times: Vec<std::collections::BTreeMap<u64, u64>> = slots
        .iter()
        .map(|&slot| {
            let mut last = std::collections::BTreeMap::new();
            let seen = fake.events(0, slot);
            let seen = seen
                .iter()
                .filter(|seen| seen.event.name == "test:numbered");
            seen.map(|seen| {
                let before = last.insert(seen.ring, seen.time);
                assert!(
                    before <= Some(seen.time),
                    "a step back in ring {}",
                    seen.ring
                );
                let number = u64::from_le_bytes(seen.payload[..].try_into().unwrap());
                (number, seen.time)
            })
            .collect()
        })
        .collect();
    for of_slot in &times {
        let numbers = (0..count).chain((0..handled).map(|number| 1 << 32 | number));
        assert!(of_slot.keys().copied().eq(numbers));
    }
    let same = |&number: &u64| {
        // Of those beyond the fourth, each has a time of its own.
        let of = |slot: usize| times[slot][&number];
        (1..4).all(|slot| of(slot) == of(0))
    };
    let same = (0..count).filter(same).count() as u64;
    assert!(same > count / 2, "{same} of {count} events");
}

/// The kernel reuses the slot of a removed trace only after this process has acknowledged the
/// removal.
///
/// Requirements: A9
fn slot_is_reused_after_acknowledgement() {
    let (fake, slot) = traced(Sizes::default());
    for round in 0..10 {
        assert_eq!(event!(numbered, round), Outcome::Recorded);
        assert_eq!(numbers(&fake.events(0, slot)), [round]);
        fake.destroy(slot);
        assert_ne!(fake.create(), Some(slot));
        update();
        assert_eq!(event!(numbered, 1000), Outcome::Off);
        fake.destroy(slot + 1);
        update();
        assert_eq!(fake.create(), Some(slot));
        fake.start(slot);
        update();
    }
}

/// Each removal is acknowledged, even together with other changes.
///
/// Requirements: A9
fn removal_and_start_in_one_update() {
    let (fake, slot) = traced(Sizes::default());
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
    let next = fake.create().unwrap();
    fake.destroy(slot);
    fake.start(next);
    update();
    assert_eq!(event!(numbered, 2), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, next)), [2]);
    assert_eq!(fake.create(), Some(slot));
}

/// A slot may have another trace as soon as the previous one is gone. One update gives up the old
/// buffer and gets the new one: from a trace that is written to, from one that never was, as it is
/// stopped, and from one whose layout is unknown.
///
/// Requirements: A9
fn one_update_moves_a_slot_to_its_next_trace() {
    let fake = Fake::new(small());
    let stopped = fake.create().unwrap();
    fake.start(stopped);
    fake.stop(stopped);
    let written = fake.create().unwrap();
    fake.start(written);
    attach_to(fake);
    assert_eq!(event!(numbered, 0), Outcome::Recorded);
    for slot in [stopped, written] {
        for round in 1..4 {
            let before = fake.generation(slot);
            fake.replace(slot);
            assert_ne!(fake.generation(slot), before);
            if round == 2 {
                // The process sees the removal before the new trace has a layout.
                update();
            }
            fake.start(slot);
            update();
            assert_eq!(event!(numbered, round), Outcome::Recorded);
            assert_eq!(numbers(&fake.events(0, slot)), [round]);
            let generation = fake.generation(slot);
            assert!(usertrace::stats().any(|trace| trace.generation == generation));
        }
        fake.stop(slot);
        update();
    }
    assert_eq!(fake.late_writes(), 0);
}

/// Runs `change` while two threads write long records.
fn while_two_write(text: &str, change: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    event!(text, text);
                }
            });
        }
        change();
    });
}

/// A slot changes its trace while threads write long records, which an update does not wait for.
///
/// Requirements: A9
fn slot_changes_its_trace_during_long_records() {
    let fake = attach(Sizes {
        subbuf_size: [4096, 65536],
        subbuf_count: [2, 4],
    });
    let slot = fake.create().unwrap();
    replace_under_long_records(fake, slot, counts(60, 300), |_| ());
    fake.events(0, slot).iter().for_each(check_long);
}

const LONG: usize = 65000;

/// Replaces the trace of a slot repeatedly while threads write long records there. `prepare` is
/// called for each trace before its start.
fn replace_under_long_records(fake: &Fake, slot: usize, rounds: u64, prepare: impl Fn(u64)) {
    while_two_write(&"x".repeat(LONG), || {
        for round in 0..rounds {
            fake.replace(slot);
            prepare(round);
            std::thread::yield_now();
            fake.start(slot);
            update();
            std::thread::yield_now();
        }
    });
    // The last writer that left has acknowledged the removal.
    assert_ne!(event!(text, "the last one"), Outcome::Off);
    assert_eq!(fake.late_writes(), 0);
}

/// Checks that an event of [`replace_under_long_records`] is complete.
fn check_long(seen: &Seen) {
    assert!(seen.payload == b"the last one\0" || seen.payload.len() == LONG + 1);
}

/// A trace that was never started has no layout yet, so the library makes no call for it.
///
/// Requirements: A1, A6
fn unstarted_traces_cause_no_calls() {
    let (fake, slot) = traced(small());
    let others: Vec<usize> = (0..5).map(|_| fake.create().unwrap()).collect();
    let calls = fake.updates();
    for _ in 0..3 {
        update();
        usertrace::flush().unwrap();
    }
    assert_eq!(fake.updates(), calls);
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
    assert_eq!(usertrace::stats().count(), 1);
    for &other in &others {
        fake.start(other);
    }
    update();
    assert_eq!(event!(numbered, 2), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, slot)), [1, 2]);
    for &other in &others {
        assert_eq!(numbers(&fake.events(0, other)), [2]);
    }
}

/// A kernel that can refuse buffers. At each request for one it notes the traces that get events.
struct RefusesBuffers {
    fake: &'static Fake,
    refuses: AtomicBool,
    /// The traces that got events at the time of a request.
    wanted: AtomicU32,
}

impl RefusesBuffers {
    /// Starts another trace and updates the process. Returns the trace's slot.
    fn start_another(&self) -> usize {
        let slot = self.fake.create().unwrap();
        self.fake.start(slot);
        update();
        slot
    }

    /// Gives buffers during one update. Returns the traces that get events after it.
    fn allow(&self) -> u32 {
        self.refuses.store(false, Ordering::Relaxed);
        self.wanted.store(0, Ordering::Relaxed);
        update();
        self.refuses.store(true, Ordering::Relaxed);
        numbered::CALLSITE.wanted()
    }
}

// SAFETY: the fake kernel gives areas as the trait requires; a refusal is an answer that a kernel
// without memory gives.
unsafe impl Kernel for RefusesBuffers {
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno> {
        self.fake.alloc_tracebuf(signo)
    }

    fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno> {
        if buffer.is_none() {
            let wanted = numbered::CALLSITE.wanted();
            self.wanted.fetch_or(wanted, Ordering::Relaxed);
            if self.refuses.load(Ordering::Relaxed) {
                return Err(Errno::ENOMEM);
            }
        }
        self.fake.update(buffer)
    }

    fn switch(&self, buffer: NonNull<u8>) -> Result<(), Errno> {
        self.fake.switch(buffer)
    }
}

/// An event goes to a trace only after the kernel has given that trace's buffer.
///
/// Requirements: A6
fn events_stay_off_until_their_buffer_exists() {
    let kernel: &'static RefusesBuffers = Box::leak(Box::new(RefusesBuffers {
        fake: Fake::new(small()),
        refuses: AtomicBool::new(true),
        wanted: AtomicU32::new(0),
    }));
    let fake = kernel.fake;
    assert_eq!(init_with(|| Ok(kernel)), Status::Attached);
    let first = kernel.start_another();
    assert_eq!(event!(numbered, 1), Outcome::Off);
    assert!(fake.is_untouched(0, first));
    assert_eq!(kernel.allow(), 1 << first);
    assert_eq!(kernel.wanted.load(Ordering::Relaxed), 0);
    assert_eq!(event!(numbered, 2), Outcome::Recorded);
    // The same while another trace records already.
    let second = kernel.start_another();
    assert_eq!(numbered::CALLSITE.wanted(), 1 << first);
    assert_eq!(event!(numbered, 3), Outcome::Recorded);
    assert!(fake.is_untouched(0, second));
    assert_eq!(kernel.allow(), 1 << first | 1 << second);
    assert_eq!(kernel.wanted.load(Ordering::Relaxed), 1 << first);
    assert_eq!(event!(numbered, 4), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, first)), [2, 3, 4]);
    assert_eq!(numbers(&fake.events(0, second)), [4]);
}

/// Without `membarrier`, a slot is not given back. Slots of other traces are still used.
///
/// Requirements: A9
fn slots_are_not_reused_without_membarrier() {
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    filter_system_call(
        libc::SYS_membarrier,
        libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ALLOW,
    );
    let (fake, slot) = traced(Sizes::default());
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
    let next = fake.create().unwrap();
    fake.destroy(slot);
    fake.start(next);
    update();
    assert_eq!(event!(numbered, 2), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, next)), [2]);
    assert_ne!(fake.create(), Some(slot));
    // A child has no such slot.
    assert_eq!(
        wait(child(|| assert_eq!(event!(numbered, 3), Outcome::Recorded))),
        0
    );
}

/// Events that do not fit are counted as lost.
///
/// Requirements: E7
fn losses_are_counted() {
    let (fake, slot) = traced(small());
    let outcomes: Vec<Outcome> = (0..2000).map(|n| event!(numbered, n)).collect();
    let recorded = outcomes
        .iter()
        .filter(|outcome| **outcome == Outcome::Recorded)
        .count();
    let lost = outcomes
        .iter()
        .filter(|outcome| **outcome == Outcome::Lost)
        .count();
    assert_eq!(recorded + lost, 2000);
    assert!(recorded >= 2 * ((4096 - 64) / 16));
    assert_eq!(fake.lost(0, slot), lost as u64);
    assert_eq!(fake.events(0, slot).len(), recorded);
    assert_eq!(usertrace::stats().next().unwrap().lost, lost as u64);
    fake.consume(0, slot);
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
}

/// A record that is longer than a sub-buffer is dropped, not cut.
fn too_long_texts_are_dropped() {
    let (fake, slot) = traced(Sizes::default());
    // A sub-buffer, without its header, the two words of a long record, and the NUL.
    let long = "x".repeat(65536 - 64 - 16);
    assert_eq!(event!(text, &long), Outcome::Lost);
    assert_eq!(event!(text, &long[1..]), Outcome::Recorded);
    assert_eq!(event!(text, &long[..]), Outcome::Lost);
    assert_eq!(event!(text, ""), Outcome::Recorded);
    assert_eq!(fake.lost(0, slot), 2);
    let events = fake.events(0, slot);
    assert_eq!(
        events
            .iter()
            .map(|seen| seen.payload.len())
            .collect::<Vec<_>>(),
        [65536 - 64 - 16, 1]
    );
}

/// Requirements: B1
fn too_long_sequences_are_dropped() {
    let (fake, slot) = traced(Sizes::default());
    // As above, with the element count and the two bytes before it, and no NUL.
    const ROOM: u16 = ((65536 - 64 - 16 - 4 - 2) / 2) as u16;
    let long: Vec<u16> = (0..=ROOM).collect();
    assert_eq!(event!(sequence, &[9, 8], &long), Outcome::Lost);
    assert_eq!(event!(sequence, &[9, 8], &long[1..]), Outcome::Recorded);
    assert_eq!(event!(sequence, &[7, 6], &[]), Outcome::Recorded);
    assert_eq!(fake.lost(0, slot), 1);
    let events = fake.events(0, slot);
    let mut expected = vec![9, 8];
    expected.extend(u32::from(ROOM).to_le_bytes());
    expected.extend((1..=ROOM).flat_map(u16::to_be_bytes));
    assert_eq!(events[0].payload, expected);
    assert_eq!(events[1].payload, [7, 6, 0, 0, 0, 0]);
    let line = events[0].event.line();
    assert!(
        line.ends_with(" test:sequence 8 u8[2] two;u16be[] many"),
        "{line}"
    );
}

/// A child never writes to its parent's buffers, and describes events in its own ones.
///
/// Requirements: A5
fn a_child_has_its_own_buffers() {
    let (fake, slot) = traced(Sizes::default());
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
    let pid = child(|| {
        assert_eq!(usertrace::status(), Status::Forked);
        assert_eq!(event!(numbered, 2), Outcome::Recorded);
        assert_eq!(usertrace::status(), Status::Attached);
        assert_eq!(event!(text, "child"), Outcome::Recorded);
        let pid = child(|| assert_eq!(event!(text, "grandchild"), Outcome::Recorded));
        assert_eq!(wait(pid), 0);
    });
    assert_eq!(wait(pid), 0);
    assert_eq!(event!(numbered, 3), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, slot)), [1, 3]);
    assert_eq!(numbers(&fake.events(1, slot)), [2]);
    assert_eq!(fake.events(1, slot)[1].payload, b"child\0");
    assert_eq!(fake.events(2, slot)[0].payload, b"grandchild\0");
    assert_eq!(fake.processes(), 3);
    assert_eq!(fake.switches(1, slot), 1);
}

/// A child that was forked while no trace was active is traced later. A child that writes nothing
/// gets no buffers.
///
/// Requirements: A5
fn child_of_an_untraced_process_is_traced_later() {
    let fake = attach(Sizes::default());
    let slot = fake.create().unwrap();
    assert_eq!(wait(child(|| ())), 0);
    assert_eq!(fake.processes(), 1);
    let pid = child(|| {
        assert_eq!(event!(numbered, 1), Outcome::Off);
        assert_eq!(usertrace::status(), Status::Attached);
        fake.start(slot);
        update();
        assert_eq!(event!(numbered, 2), Outcome::Recorded);
    });
    assert_eq!(wait(pid), 0);
    assert_eq!(event!(numbered, 3), Outcome::Off);
    assert_eq!(numbers(&fake.events(1, slot)), [2]);
}

/// A handler of the program stays installed, and the library asks the kernel for no signal.
///
/// Requirements: F2
fn program_handler_stays_installed() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    extern "C" fn own(_: libc::c_int) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: a handler that only counts.
    unsafe { libc::signal(signo(), own as extern "C" fn(libc::c_int) as usize) };
    let fake = attach(small());
    assert_eq!(fake.signo(0), 0);
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    assert_eq!(event!(numbered, 1), Outcome::Off);
}

/// Without a signal, a process notices an update when it begins a sub-buffer.
fn updates_without_a_signal() {
    // SAFETY: the process has no other thread.
    unsafe { std::env::set_var("USERTRACE_SIGNAL", "none") };
    let fake = Fake::new(small());
    let slot = fake.create().unwrap();
    fake.start(slot);
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    assert_eq!(fake.signo(0), 0);
    assert_eq!(event!(numbered, 0), Outcome::Recorded);
    fake.stop(slot);
    let still = (1..5000)
        .take_while(|&n| event!(numbered, n) != Outcome::Off)
        .count();
    assert!(still < 5 * 4064 / 16, "{still}");
}

/// A process without a signal follows traces on the slow path, and when it calls the library.
///
/// Requirements: A4
fn calls_follow_traces_without_a_signal() {
    // SAFETY: the process has no other thread.
    unsafe { std::env::set_var("USERTRACE_SIGNAL", "none") };
    let fake = attach(small());
    for (n, call) in [
        || assert_eq!(usertrace::flush(), Ok(())),
        || assert_eq!(usertrace::init(), Status::Attached),
    ]
    .into_iter()
    .enumerate()
    {
        let n = n as u64;
        let slot = fake.create().unwrap();
        fake.start(slot);
        // An inactive event checks nothing but its mask.
        assert_eq!(event!(numbered, n), Outcome::Off);
        call();
        assert_eq!(event!(numbered, n), Outcome::Recorded);
        fake.destroy(slot);
        call();
        assert_eq!(event!(numbered, n), Outcome::Off);
    }
}

/// Events to rings that are not per CPU take the slow path, so each one follows traces.
///
/// Requirements: A4, A8
fn events_of_other_scopes_follow_traces() {
    // SAFETY: the process has no other thread.
    unsafe { std::env::set_var("USERTRACE_SIGNAL", "none") };
    for scope in [Scope::Thread, Scope::Global, Scope::MmCid] {
        let test = || {
            let fake = Fake::with_scope(small(), scope);
            let slot = fake.create().unwrap();
            fake.start(slot);
            attach_to(fake);
            assert_eq!(event!(numbered, 1), Outcome::Recorded);
            fake.stop(slot);
            event!(numbered, 2);
            assert_eq!(event!(numbered, 3), Outcome::Off);
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// Events go to rings of each scope, by threads that come and go, and are read back.
///
/// Requirements: A7, A8, E3
fn events_reach_rings_of_each_scope() {
    for scope in [Scope::Cpu, Scope::Thread, Scope::Global, Scope::MmCid] {
        let test = || {
            let fake = attach_to(Fake::with_scope(small(), scope));
            let slot = fake.create().unwrap();
            fake.start(slot);
            update();
            for n in 0..10 {
                std::thread::scope(|threads| {
                    threads.spawn(|| {
                        assert_eq!(event!(numbered, n), Outcome::Recorded);
                        assert_eq!(event!(text, "some text"), Outcome::Recorded);
                        // Too long for one rseq sequence.
                        assert_eq!(event!(text, &"x".repeat(2500)), Outcome::Recorded);
                    });
                });
                fake.consume(0, slot);
                assert_eq!(fake.lost(0, slot), 0);
            }
            assert_eq!(event!(numbered, 10), Outcome::Recorded);
            let events = fake.events(0, slot);
            assert_eq!(numbers(&events), [10]);
            match scope {
                Scope::Thread => {
                    // SAFETY: the call takes no pointers.
                    assert_eq!(events[0].cpu, unsafe { libc::gettid() } as u32);
                }
                Scope::Global => assert_eq!((events[0].ring, events[0].cpu), (0, 0)),
                Scope::Cpu | Scope::MmCid => assert_eq!(events[0].cpu, events[0].ring),
            }
            // A child has rings of its own.
            let pid = child(|| assert_eq!(event!(numbered, 11), Outcome::Recorded));
            assert_eq!(wait(pid), 0);
            assert_eq!(numbers(&fake.events(1, slot)), [11]);
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// If the processor's counter is not valid, times are those of `CLOCK_MONOTONIC`, and ordered
/// within each ring.
///
/// Requirements: E3
fn monotonic_times_are_ordered_in_each_ring() {
    for scope in [Scope::Cpu, Scope::Thread, Scope::Global, Scope::MmCid] {
        let test = || {
            let fake = Fake::with_scope(Sizes::default(), scope);
            fake.set_clock(LTT_CLOCK_MONOTONIC);
            let fake = attach_to(fake);
            let slot = fake.create().unwrap();
            fake.start(slot);
            update();
            let (threads, each) = (4, 300);
            let before = clock::monotonic();
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    scope.spawn(move || {
                        for n in 0..each {
                            let number = thread * each + n;
                            assert_eq!(event!(numbered, number), Outcome::Recorded);
                            assert_eq!(event!(text, "some text"), Outcome::Recorded);
                            if n % 100 == 0 {
                                let text = "x".repeat(2500);
                                assert_eq!(event!(text, &text), Outcome::Recorded);
                            }
                        }
                    });
                }
            });
            let after = clock::monotonic();
            assert_eq!(fake.lost(0, slot), 0);
            let events = fake.events(0, slot);
            assert!(numbers(&events).into_iter().eq(0..threads * each));
            for pair in events.windows(2) {
                let in_order = pair[0].ring != pair[1].ring || pair[0].time <= pair[1].time;
                assert!(in_order, "{} {}", pair[0].time, pair[1].time);
            }
            assert!(
                events
                    .iter()
                    .all(|seen| (before..=after).contains(&seen.time))
            );
            let stats = usertrace::stats().next().unwrap();
            assert_eq!((stats.refused, stats.lost), (None, 0));
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// Rings with the monotonic clock are reused, and drop events, like others.
///
/// Requirements: E3
fn small_rings_with_the_monotonic_clock_are_reused() {
    for scope in [Scope::Cpu, Scope::Thread, Scope::Global, Scope::MmCid] {
        let test = || {
            let fake = Fake::with_scope(small(), scope);
            fake.set_clock(LTT_CLOCK_MONOTONIC);
            let fake = attach_to(fake);
            let slot = fake.create().unwrap();
            fake.start(slot);
            update();
            let mut lost = 0;
            for n in 0..2000 {
                match event!(numbered, n) {
                    Outcome::Recorded => {}
                    Outcome::Lost => lost += 1,
                    Outcome::Off => panic!("{n}"),
                }
                if n % 100 == 0 {
                    fake.consume(0, slot);
                }
            }
            assert_eq!(fake.lost(0, slot), lost);
            let events = fake.events(0, slot);
            assert!(!events.is_empty());
            assert!(events.iter().all(|seen| seen.time <= clock::monotonic()));
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// A trace with an unknown clock is refused; the next trace in its slot is not.
///
/// Requirements: E3
fn unknown_clocks_are_refused() {
    let fake = attach(small());
    fake.set_clock(77);
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, 1), Outcome::Off);
    let stats = usertrace::stats().next().unwrap();
    assert_eq!(stats.refused, Some(Refused::Clock));
    fake.destroy(slot);
    fake.set_clock(clock::NUMBER);
    update();
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, 2), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, slot)), [2]);
}

/// A kernel that reports an altered description of the areas.
struct AlteredAreas {
    fake: &'static Fake,
    alter: fn(&mut LttTracebuf),
    /// It gives no buffers.
    passes_over: bool,
}

// SAFETY: the fake kernel fulfils the contract; the library rejects the altered description, or it
// describes less than there is.
unsafe impl Kernel for AlteredAreas {
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno> {
        let mut areas = self.fake.alloc_tracebuf(signo)?;
        (self.alter)(&mut areas);
        Ok(areas)
    }

    fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno> {
        if self.passes_over && buffer.is_none() {
            return Ok(Update::default());
        }
        self.fake.update(buffer)
    }

    fn switch(&self, buffer: NonNull<u8>) -> Result<(), Errno> {
        self.fake.switch(buffer)
    }
}

fn attach_altered(alter: fn(&mut LttTracebuf), passes_over: bool) -> (&'static Fake, Status) {
    let fake = Fake::new(small());
    let kernel: &AlteredAreas = Box::leak(Box::new(AlteredAreas {
        fake,
        alter,
        passes_over,
    }));
    (fake, init_with(|| Ok(kernel)))
}

/// The library checks what a hostile or newer kernel reports of the areas, and names the invalid
/// field.
///
/// Requirements: C1
fn invalid_area_descriptions_are_reported() {
    type Alter = fn(&mut LttTracebuf);
    let cases: [(AreaField, Alter); 13] = [
        (AreaField::Slots, |areas| areas.nr_slots = 0),
        (AreaField::Slots, |areas| areas.nr_slots = 33),
        (AreaField::Slots, |areas| areas.nr_slots = u32::MAX),
        (AreaField::BuffersStride, |areas| areas.buffers_stride = 0),
        (AreaField::BuffersStride, |areas| areas.buffers_stride += 4),
        (AreaField::BuffersStride, |areas| areas.buffers_stride *= 2),
        (AreaField::BuffersStride, |areas| {
            areas.buffers_stride = u64::MAX - 7
        }),
        (AreaField::ControlStride, |areas| {
            areas.control_stride = 1 << 60
        }),
        (AreaField::InfoLen, |areas| areas.info_len = 120),
        (AreaField::Buffers, |areas| areas.buffers = 0),
        (AreaField::Control, |areas| areas.control |= 1),
        (AreaField::Info, |areas| areas.info_len = u64::MAX),
        (AreaField::Info, |areas| areas.info = 0),
    ];
    for (field, alter) in cases {
        let test = || {
            let (_, status) = attach_altered(alter, false);
            let Status::BadArea(bad) = status else {
                panic!("{status:?}");
            };
            assert_eq!(bad.field, field);
            let text = status.to_string();
            assert!(text.contains("ltt_tracebuf."), "{text}");
            assert_eq!(event!(numbered, 1), Outcome::Off);
        };
        assert_eq!(wait(child(test)), 0, "{field:?}");
    }
}

/// The library checks the layout that the info area describes, and names the invalid field.
///
/// Requirements: C8
fn invalid_info_areas_are_reported() {
    let cases = [
        (AreaField::Version, offset_of!(LttInfo, version), 3),
        (AreaField::InfoSlots, offset_of!(LttInfo, nr_slots), 15),
        (AreaField::Channels, offset_of!(LttInfo, nr_channels), 0),
        (AreaField::Channels, offset_of!(LttInfo, nr_channels), 33),
        (
            AreaField::SlotOffset,
            offset_of!(LttInfo, slot_offset),
            u32::MAX,
        ),
        (AreaField::SlotOffset, offset_of!(LttInfo, slot_offset), 132),
        (AreaField::SlotOffset, offset_of!(LttInfo, slot_stride), 24),
        (
            AreaField::SlotOffset,
            offset_of!(LttInfo, slot_stride),
            u32::MAX - 7,
        ),
        (
            AreaField::TraceOffset,
            offset_of!(LttInfo, trace_offset),
            1 << 20,
        ),
        (
            AreaField::TraceOffset,
            offset_of!(LttInfo, trace_stride),
            1 << 30,
        ),
        (
            AreaField::ChannelOffset,
            offset_of!(LttInfo, trace_stride),
            8,
        ),
        (
            AreaField::ChannelOffset,
            offset_of!(LttInfo, channel_stride),
            104,
        ),
        (
            AreaField::ChannelOffset,
            offset_of!(LttInfo, channel_offset),
            4096,
        ),
        (
            AreaField::FilterOffset,
            offset_of!(LttInfo, filter_offset),
            1 << 31,
        ),
        (
            AreaField::FilterOffset,
            offset_of!(LttInfo, filter_stride),
            8,
        ),
        (AreaField::RulesSize, offset_of!(LttInfo, rules_size), 4079),
        (
            AreaField::RulesSize,
            offset_of!(LttInfo, rules_size),
            u32::MAX - 3,
        ),
    ];
    for (field, offset, value) in cases {
        let test = || {
            let fake = Fake::new(small());
            let slot = fake.create().unwrap();
            fake.start(slot);
            let was = fake.set_info_word(offset, value);
            assert_ne!(was, value);
            let status = init_with(|| Ok(fake));
            let Status::BadArea(bad) = status else {
                panic!("{status:?}");
            };
            assert_eq!(bad.field, field);
            let text = status.to_string();
            assert!(text.contains("ltt_info."), "{text}");
            assert_eq!(event!(numbered, 1), Outcome::Off);
        };
        assert_eq!(wait(child(test)), 0, "{field:?} {value}");
    }
}

/// If `RLIMIT_AS` made the slots so small that the kernel passes over a trace, the library reports
/// that.
///
/// Requirements: C2
fn traces_beyond_rlimit_as_are_reported() {
    let (fake, status) = attach_altered(
        |areas| {
            areas.buffers_stride = 4096;
            areas.status = LTT_TRACEBUF_LIMITED;
        },
        true,
    );
    assert_eq!(status, Status::Attached);
    assert_eq!(usertrace::report().limited, Some(4096));
    let text = usertrace::report().to_string();
    assert!(text.contains("RLIMIT_AS"), "{text}");
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, 1), Outcome::Off);
    let stats = usertrace::stats().next().unwrap();
    assert_eq!(stats.refused, Some(Refused::Limited));
    assert_eq!(stats.generation, fake.generation(slot));
    fake.destroy(slot);
    update();
    assert_eq!(usertrace::stats().count(), 0);
}

/// More threads than rings run one after the other; each still gets a ring of its own.
///
/// Requirements: A8
fn rings_of_ended_threads_are_reused() {
    const THREADS: u64 = 150;
    let fake = attach_to(Fake::with_scope(
        Sizes {
            subbuf_size: [4096, 4096],
            subbuf_count: [2, 16],
        },
        Scope::Thread,
    ));
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    let mut threads = std::collections::BTreeMap::new();
    for n in 0..THREADS {
        let thread = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                assert_eq!(event!(numbered, n), Outcome::Recorded);
                // SAFETY: the call takes no pointers.
                unsafe { libc::gettid() }
            });
            thread.join().unwrap()
        });
        // A joined thread may still exist in the kernel for a moment.
        // SAFETY: signal 0 is sent to nobody, and the call takes no pointers.
        while unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) } == 0 {
            std::thread::yield_now();
        }
        threads.insert(n, thread as u32);
    }
    let events = fake.events(0, slot);
    assert_eq!(numbers(&events), (0..THREADS).collect::<Vec<_>>());
    for seen in events {
        let n = u64::from_le_bytes(seen.payload[..].try_into().unwrap());
        assert!(seen.ring < 48 && seen.cpu == threads[&n], "{seen:?}");
    }
}

/// `USERTRACE_SIGNAL` selects the update signal.
fn environment_selects_the_signal() {
    // SAFETY: the process has no other thread.
    unsafe { std::env::set_var("USERTRACE_SIGNAL", "12") };
    let fake = attach(Sizes::default());
    assert_eq!(fake.signo(0), 12);
    let slot = fake.create().unwrap();
    fake.start(slot);
    // SAFETY: the runtime's handler is installed.
    unsafe { libc::raise(12) };
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
}

/// An event without a description is not written, because it would be unreadable.
fn full_control_channel_disables_events() {
    let fake = attach(small());
    let slot = fake.create().unwrap();
    fake.fill_control(0, slot);
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, 1), Outcome::Off);
    let stats = usertrace::stats().next().unwrap();
    assert_eq!(stats.undescribed as usize, usertrace::callsites().len());
    assert_eq!(stats.bytes, 0);

    // The id in the parent process is not used either.
    fake.stop(slot);
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, 2), Outcome::Recorded);
    fake.fill_control(1, slot);
    assert_eq!(
        wait(child(|| assert_eq!(event!(numbered, 3), Outcome::Off))),
        0
    );
}

/// Installs a seccomp filter: an action for one system call, and another one for all others.
fn filter_system_call(number: libc::c_long, its: u32, others: u32) {
    seccomp::filter(&[(number as u32, its)], others);
}

/// Makes any system call but `exit` kill the process.
fn forbid_system_calls() {
    filter_system_call(
        libc::SYS_exit,
        libc::SECCOMP_RET_ALLOW,
        libc::SECCOMP_RET_KILL_PROCESS,
    );
}

/// An event makes no system call.
///
/// Requirements: A3
fn no_system_call_for_an_event() {
    let (fake, slot) = traced(Sizes {
        subbuf_count: [4, 512],
        ..Sizes::default()
    });
    let pid = child(|| {
        assert_eq!(event!(numbered, 0), Outcome::Recorded);
        forbid_system_calls();
        let mut bad = false;
        for n in 1..1_000_000 {
            bad |= event!(numbered, n) != Outcome::Recorded;
        }
        // SAFETY: the call ends the process.
        unsafe { libc::syscall(libc::SYS_exit, i32::from(bad)) };
    });
    assert_eq!(wait(pid), 0);
    assert_eq!(numbers(&fake.events(1, slot)).len(), 1_000_000);
    // Checks that the filter works.
    let pid = child(|| {
        forbid_system_calls();
        // SAFETY: the call takes no pointers.
        unsafe { libc::syscall(libc::SYS_getpid) };
    });
    assert_eq!(libc::WTERMSIG(wait(pid)), libc::SIGSYS);
}

/// Sets a flag when it is dropped, even if a test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Traces come and go while threads write and signal handlers interrupt them; all rings stay
/// consistent.
///
/// Requirements: A4, A9, C8
fn traces_come_and_go_under_load() {
    let fake = attach(small());
    let stop = AtomicBool::new(false);
    let mut slots = Vec::new();
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (send, receive) = std::sync::mpsc::channel();
                let stop = &stop;
                scope.spawn(move || {
                    // SAFETY: the call takes no pointers.
                    send.send(unsafe { libc::pthread_self() }).unwrap();
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        event!(numbered, n);
                        event!(text, "some text");
                        n += 1;
                    }
                });
                receive.recv().unwrap()
            })
            .collect();
        for round in 0..counts(600, 3000) as usize {
            if let Some(slot) = fake.create() {
                // Each process has acknowledged that it left the slot.
                for _ in 0..50 {
                    assert!(fake.is_untouched(0, slot));
                }
                fake.start(slot);
                slots.push(slot);
            }
            // SAFETY: the thread runs until `stop`.
            unsafe { libc::pthread_kill(threads[round % 3], signo()) };
            if round % 3 == 0 {
                update();
            }
            if slots.len() > 4 {
                let slot = slots.remove(0);
                fake.stop(slot);
                fake.destroy(slot);
            }
        }
    });
    // The threads have ended and completed their records, so the descriptions cover all events.
    update();
    assert_eq!(fake.late_writes(), 0);
    for slot in slots {
        fake.events(0, slot);
    }
    assert!(usertrace::stats().count() >= 4);
}

/// A kernel that removes a trace while a process opens it: the control channel describes the
/// events, and main is not open yet.
struct RemovesWhileOpening {
    fake: &'static Fake,
    /// The trace's slot plus 1; 0: it was removed.
    goes: AtomicUsize,
}

// SAFETY: the fake kernel fulfils the contract; the kernel may destroy a trace at any time.
unsafe impl Kernel for RemovesWhileOpening {
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno> {
        self.fake.alloc_tracebuf(signo)
    }

    fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno> {
        self.fake.update(buffer)
    }

    fn switch(&self, buffer: NonNull<u8>) -> Result<(), Errno> {
        self.fake.switch(buffer)
    }

    /// Called for each channel but control; main comes last.
    fn prefault(&self) -> Prefault {
        if let Some(slot) = self.goes.swap(0, Ordering::Relaxed).checked_sub(1) {
            self.fake.destroy(slot);
        }
        Prefault::Never
    }
}

/// Descriptions in a trace that was removed before it was open do not count for the next trace in
/// its slot.
///
/// Requirements: E6
fn trace_removed_while_opening_leaves_no_ids() {
    let cpu = Some(Scope::Cpu);
    let fake = Fake::with_channels(small(), &[cpu, cpu]);
    let kernel: &RemovesWhileOpening = Box::leak(Box::new(RemovesWhileOpening {
        fake,
        goes: AtomicUsize::new(0),
    }));
    assert_eq!(init_with(|| Ok(kernel)), Status::Attached);
    let slot = fake.create().unwrap();
    fake.start(slot);
    kernel.goes.store(slot + 1, Ordering::Relaxed);
    update();
    assert_eq!(kernel.goes.load(Ordering::Relaxed), 0, "it went");
    assert_eq!(event!(numbered, 1), Outcome::Off);
    assert_eq!(usertrace::stats().count(), 0);

    assert_eq!(fake.create(), Some(slot));
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, 2), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, slot)), [2]);
}

/// The memory of a trace is not reused while a thread writes a long record, which the barrier that
/// restarts sequences does not wait for.
///
/// Requirements: A9
fn removal_waits_for_long_records() {
    let fake = attach(Sizes {
        subbuf_size: [4096, 65536],
        subbuf_count: [2, 4],
    });
    while_two_write(&"x".repeat(65000), || {
        for _ in 0..counts(40, 150) {
            let slot = loop {
                if let Some(slot) = fake.create() {
                    break slot;
                }
                update();
            };
            for _ in 0..5 {
                std::thread::yield_now();
                assert!(fake.is_untouched(0, slot));
            }
            fake.start(slot);
            update();
            // By now a thread on another CPU is writing the first record.
            fake.stop(slot);
            fake.destroy(slot);
            update();
        }
    });
    // The last writer acknowledged the removal, even after the last update.
    assert!(fake.create().is_some());
}

/// The library checks the layout in the info area before it writes to a trace.
///
/// Requirements: F4
fn unknown_layouts_are_refused() {
    let fake = attach(Sizes {
        subbuf_size: [4096, 4096 + 8],
        subbuf_count: [2, 2],
    });
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, 1), Outcome::Off);
    let stats = usertrace::stats().next().unwrap();
    assert_eq!(stats.refused, Some(Refused::Layout));
    assert_eq!(
        (stats.generation, stats.active),
        (fake.generation(slot), true)
    );
    // The refused trace does not keep the slot either.
    let calls = fake.updates();
    update();
    assert_eq!(fake.updates(), calls);
    fake.destroy(slot);
    update();
    assert_eq!(usertrace::stats().count(), 0);
    assert_eq!(fake.create(), Some(slot));
}

/// Attaches this process to one trace that has main and these further channels.
fn traced_with(sizes: Sizes, further: &[Option<Scope>]) -> (&'static Fake, usize) {
    let channels = [&[Some(Scope::Cpu)], further].concat();
    let fake = attach_to(Fake::with_channels(sizes, &channels));
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    (fake, slot)
}

const ACCEPT: u8 = 0;
const REFUSE: u8 = 1;

/// A trace gets all events, none, or those that its rules name, and follows changes.
///
/// Requirements: E4
fn rules_select_the_events_of_a_trace() {
    let (fake, slot) = traced(Sizes::default());
    let put = || (event!(numbered, 1), event!(empty), event!(text, "a"));
    let (on, off) = (Outcome::Recorded, Outcome::Off);
    assert_eq!(put(), (on, on, on));
    for (rules, expected) in [
        (&[][..], (off, off, off)),
        (&[(0, ACCEPT, "numbered")], (on, off, off)),
        (&[(0, ACCEPT, "test:*e*")], (on, on, on)),
        (&[(0, ACCEPT, "*:*"), (0, REFUSE, "t??t")], (on, on, off)),
        (&[(0, REFUSE, "t??t"), (0, ACCEPT, "*")], (on, on, on)),
        (&[(0, ACCEPT, "tset:numbered")], (off, off, off)),
        // Rules for main have no effect: it gets the rest.
        (&[(0, ACCEPT, "text"), (1, REFUSE, "*")], (off, off, on)),
    ] {
        fake.set_rules(slot, rules);
        update();
        assert_eq!(put(), expected, "{rules:?}");
        // Other changes keep the rules.
        update();
        let other = fake.create().unwrap();
        update();
        assert_eq!(put(), expected, "{rules:?}");
        fake.destroy(other);
        update();
    }
    // Invalid rules accept nothing.
    for bytes in [&b"\0\0\xff*"[..], &[0xff; 5000], b"\0\0\0*", b"\0"] {
        fake.set_rule_bytes(slot, bytes);
        update();
        assert_eq!(put(), (off, off, off));
    }
    // The next trace in the slot starts with its own rules.
    fake.replace(slot);
    fake.start(slot);
    update();
    assert_eq!(put(), (on, on, on));
    // All events are described, because a trace may want them later.
    fake.set_rules(slot, &[]);
    assert_eq!(fake.metadata(0, slot).len(), usertrace::callsites().len());
}

/// The filter mask has a bit for each log level.
///
/// Requirements: E4
fn masks_have_a_bit_for_each_log_level() {
    let (fake, slot) = traced(Sizes::default());
    for (level, number) in [(6, 1), (14, 2), (0, 4)] {
        fake.set_filter(slot, 0, 1 << level);
        update();
        let outcomes = [event!(numbered, 1), event!(empty), event!(text, "a")];
        let on = |n: usize| outcomes[n] == Outcome::Recorded;
        assert_eq!(
            number,
            u32::from(on(0)) | u32::from(on(1)) << 1 | u32::from(on(2)) << 2
        );
        fake.set_filter(slot, 0, !(1 << level));
        update();
        assert_eq!(event!(numbered, 2) == Outcome::Recorded, level != 6);
    }
    assert_eq!(fake.events(0, slot).len(), 3 + 2);
}

/// An event goes to the first channel that accepts it, or else to main, and to each trace once.
///
/// Requirements: E4, E5
fn events_go_to_the_first_channel_that_accepts_them() {
    let further = [
        Some(Scope::Cpu),
        None,
        Some(Scope::Thread),
        Some(Scope::Cpu),
    ];
    let (fake, slot) = traced_with(small(), &further);
    let other = fake.create().unwrap();
    let (two, four, five) = (2, 4, 5);
    let all = |slot| [1, 2, 4, 5].map(|channel| fake.events_of(0, slot, channel).len());
    let mut expected = [0; 4];
    for (rules, to) in [
        // A channel without rules gets nothing.
        (&[(0, ACCEPT, "*")][..], 1),
        (&[(0, ACCEPT, "*"), (two, ACCEPT, "numbered")], 2),
        (
            &[
                (0, ACCEPT, "*"),
                (two, ACCEPT, "text"),
                (five, ACCEPT, "n*"),
            ],
            5,
        ),
        (
            &[(0, ACCEPT, "*"), (four, ACCEPT, "*"), (five, ACCEPT, "n*")],
            4,
        ),
        // No channel has these indices.
        (&[(0, ACCEPT, "*"), (3, ACCEPT, "*"), (6, ACCEPT, "*")], 1),
        (&[(0, ACCEPT, "*"), (200, ACCEPT, "*")], 1),
        (
            &[(0, ACCEPT, "*"), (two, ACCEPT, "*"), (two, REFUSE, "num*")],
            1,
        ),
        // Events that the trace refuses are not written.
        (&[(two, ACCEPT, "*"), (five, ACCEPT, "*")], 0),
    ] {
        fake.set_rules(slot, rules);
        update();
        // One trace: the fast path, if the channel supports it. Two traces: the slow path.
        let outcome = event!(numbered, 1);
        assert_eq!(outcome == Outcome::Recorded, to != 0, "{rules:?}");
        fake.start(other);
        update();
        assert_eq!(event!(numbered, 2), Outcome::Recorded);
        fake.stop(other);
        update();
        if let Some(at) = [1, 2, 4, 5].iter().position(|&channel| channel == to) {
            expected[at] += 2;
        }
        assert_eq!(all(slot), expected, "{rules:?}");
    }
    assert_eq!(all(other), [8, 0, 0, 0]);
    // Channels have masks, too.
    fake.set_rules(
        slot,
        &[(0, ACCEPT, "*"), (two, ACCEPT, "*"), (five, ACCEPT, "*")],
    );
    fake.set_filter(slot, 2, !(1 << 6));
    update();
    assert_eq!(event!(numbered, 3), Outcome::Recorded);
    assert_eq!(event!(empty), Outcome::Recorded);
    expected[1] += 1;
    expected[3] += 1;
    assert_eq!(all(slot), expected);
    statistics_cover_all_channels(fake, slot, expected.iter().sum());
}

/// Statistics of a trace cover all its channels. `written` is the number of its events; new ones
/// go to channel 5.
fn statistics_cover_all_channels(fake: &Fake, slot: usize, written: usize) {
    let bytes = |slot| {
        usertrace::stats()
            .find(|trace| trace.slot == slot)
            .unwrap()
            .bytes
    };
    assert!(bytes(slot) > 3 * 64 + 16 * written as u64);
    for n in 0..2000 {
        event!(numbered, n);
    }
    assert!(fake.lost_of(0, slot, 5) > 0);
    let lost = usertrace::stats()
        .find(|trace| trace.slot == slot)
        .unwrap()
        .lost;
    assert_eq!(lost, fake.lost_of(0, slot, 5));
}

/// Each trace gets an event once, according to its own rules.
///
/// Requirements: A7, E5
fn each_trace_has_its_own_rules() {
    let fake = attach(small());
    let slots: Vec<usize> = (0..16).map(|_| fake.create().unwrap()).collect();
    for (n, &slot) in slots.iter().enumerate() {
        let name = ["numbered", "empty", "text", "none"][n % 4];
        fake.set_rules(slot, &[(0, ACCEPT, name)]);
        fake.start(slot);
    }
    update();
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
    assert_eq!(event!(empty), Outcome::Recorded);
    assert_eq!(event!(text, "a"), Outcome::Recorded);
    for (n, &slot) in slots.iter().enumerate() {
        let names: Vec<_> = fake
            .events(0, slot)
            .into_iter()
            .map(|seen| seen.event.name)
            .collect();
        let expected = ["test:numbered", "test:empty", "test:text"].get(n % 4);
        assert!(names.iter().eq(expected), "{n}: {names:?}");
    }
}

/// A child follows the rules from its first event on.
///
/// Requirements: A5, E4
fn child_follows_the_rules() {
    let (fake, slot) = traced_with(small(), &[Some(Scope::Cpu)]);
    fake.set_rules(slot, &[(0, ACCEPT, "numbered"), (2, ACCEPT, "numbered")]);
    update();
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
    let pid = child(|| {
        assert_eq!(event!(empty), Outcome::Off);
        assert_eq!(event!(numbered, 2), Outcome::Recorded);
        assert_eq!(event!(empty), Outcome::Off);
    });
    assert_eq!(wait(pid), 0);
    assert_eq!(numbers(&fake.events_of(0, slot, 2)), [1]);
    assert_eq!(numbers(&fake.events_of(1, slot, 2)), [2]);
    assert!(fake.events(1, slot).is_empty());
}

/// Buffers may be allocated before the start; nothing is written to them until then.
///
/// Requirements: E2
fn buffers_are_allocated_before_the_start() {
    let fake = attach(small());
    let slot = fake.create().unwrap();
    update();
    let calls = fake.updates();
    fake.allocate(slot);
    update();
    // Two calls get the buffer and the end of the list; one confirms the trace.
    assert_eq!(fake.updates(), calls + 2 + 1);
    assert_eq!(event!(numbered, 1), Outcome::Off);
    assert_eq!(fake.switches(0, slot), 0);
    assert!(fake.is_untouched(0, slot));
    let calls = fake.updates();
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, 2), Outcome::Recorded);
    assert_eq!(numbers(&fake.events(0, slot)), [2]);
    assert_eq!(fake.updates(), calls);
    // A buffer of a trace that was never started is given up, too.
    let next = fake.create().unwrap();
    fake.allocate(next);
    update();
    assert_eq!(usertrace::stats().count(), 1);
    fake.destroy(next);
    update();
    assert_eq!(fake.create(), Some(next));
}

/// A ring in overwrite mode has the newest events, one in discard mode the oldest, and mode changes
/// take effect.
///
/// Requirements: E3
fn mode_changes_take_effect() {
    for scope in [Scope::Cpu, Scope::Thread, Scope::Global, Scope::MmCid] {
        let test = || {
            pin();
            let fake = attach_to(Fake::with_channels(
                small(),
                &[Some(Scope::Cpu), Some(scope)],
            ));
            let slot = fake.create().unwrap();
            fake.set_rules(slot, &[(0, ACCEPT, "*"), (2, ACCEPT, "*")]);
            fake.start(slot);
            update();
            let mut n = 0;
            let mut put = || {
                n += 1;
                (n, event!(numbered, n))
            };
            let newest = |n: u64| *numbers(&fake.events_of(0, slot, 2)).last().unwrap() == n;
            for _ in 0..3 {
                // The current mode is discard.
                while put().1 == Outcome::Recorded {}
                fake.set_mode(slot, 2, Mode::Overwrite);
                update();
                let mut last = 0;
                for _ in 0..3000 {
                    let (n, outcome) = put();
                    assert_eq!(outcome, Outcome::Recorded);
                    last = n;
                }
                assert!(newest(last));
                fake.set_mode(slot, 2, Mode::Discard);
                update();
                // The rest of the sub-buffer is written first. Then the ring is full until it is
                // read.
                loop {
                    let (n, outcome) = put();
                    if outcome == Outcome::Lost {
                        break;
                    }
                    last = n;
                }
                assert_eq!(put().1, Outcome::Lost);
                let kept = numbers(&fake.events_of(0, slot, 2));
                assert!(kept.len() > 200);
                assert!(kept.iter().copied().eq(last + 1 - kept.len() as u64..=last));
                fake.consume_of(0, slot, 2);
                let (n, outcome) = put();
                assert_eq!(outcome, Outcome::Recorded);
                assert_eq!(numbers(&fake.events_of(0, slot, 2)), [n]);
            }
            // All events went to that channel; main has its own mode.
            assert!(fake.events(0, slot).is_empty());
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// Pins this process to one CPU, so that all events go to one ring.
fn pin() {
    // SAFETY: a set of CPUs is plain data, and the calls write or read nothing else.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        let done = libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        assert_eq!(done, 0);
    }
}

/// A slot is given back only when all its channels are quiescent.
///
/// Requirements: A9
fn slot_waits_for_long_records_in_further_channels() {
    let sizes = Sizes {
        subbuf_size: [4096, 65536],
        subbuf_count: [2, 4],
    };
    let further = [Some(Scope::Cpu), Some(Scope::MmCid)];
    let channels = [&[Some(Scope::Cpu)], &further[..]].concat();
    let fake = attach_to(Fake::with_channels(sizes, &channels));
    let slot = fake.create().unwrap();
    replace_under_long_records(fake, slot, counts(200, 1000), |round| {
        fake.set_rules(
            slot,
            &[(0, ACCEPT, "*"), (2 + (round % 2) as u8, ACCEPT, "*")],
        );
    });
    assert!(fake.events(0, slot).is_empty());
    for channel in 2..4 {
        fake.events_of(0, slot, channel).iter().for_each(check_long);
    }
}

/// Rules and modes change while threads write and signal handlers interrupt them; each event is
/// complete, and in one channel.
///
/// Requirements: A4, C8, E3, E4
fn rules_and_modes_change_under_load() {
    let fake = attach_to(Fake::with_channels(
        small(),
        &[
            Some(Scope::Cpu),
            Some(Scope::Cpu),
            Some(Scope::Global),
            Some(Scope::Thread),
        ],
    ));
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let (send, receive) = std::sync::mpsc::channel();
                let (stop, written) = (&stop, &written);
                scope.spawn(move || {
                    // SAFETY: the call takes no pointers.
                    send.send(unsafe { libc::pthread_self() }).unwrap();
                    let mut n = thread << 32;
                    while !stop.load(Ordering::Relaxed) {
                        if event!(numbered, n) == Outcome::Recorded {
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                        event!(text, "some text");
                        n += 1;
                    }
                });
                receive.recv().unwrap()
            })
            .collect();
        let modes = [Mode::Discard, Mode::Overwrite];
        let patterns = ["*", "n*", "test:text", "x", "?*e*"];
        for round in 0..counts(1000, 5000) as usize {
            let channel = round % 4 + 1;
            let pattern = patterns[round % patterns.len()];
            let rules = [(0, ACCEPT, "*"), (channel as u8, ACCEPT, pattern)];
            fake.set_rules(slot, &rules[..1 + usize::from(round % 7 != 0)]);
            fake.set_mode(slot, channel, modes[round / 4 % 2]);
            // SAFETY: the thread runs until `stop`.
            unsafe { libc::pthread_kill(threads[round % 3], signo()) };
            if round % 3 == 0 {
                update();
            }
            if round % 5 == 0 {
                fake.consume_of(0, slot, 4);
            }
        }
    });
    let mut seen: Vec<u64> = (1..5)
        .flat_map(|channel| numbers(&fake.events_of(0, slot, channel)))
        .collect();
    let all = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), all);
    assert!(all as u64 <= written.into_inner());
}

const SCOPES: [Scope; 4] = [Scope::Cpu, Scope::Thread, Scope::Global, Scope::MmCid];

/// Attaches this process to a trace in block mode that has a reader.
fn blocking(scope: Scope) -> (&'static Fake, usize) {
    // On one CPU, only one ring fills up.
    pin();
    let fake = attach_to(Fake::with_scope(small(), scope));
    let slot = fake.create().unwrap();
    fake.set_mode(slot, 1, Mode::Block);
    fake.start(slot);
    update();
    fake.set_readers(0, slot, 1, 1);
    (fake, slot)
}

/// Returns the outcome of an event that waits for space while `change` runs.
fn while_one_waits(fake: &Fake, slot: usize, change: impl FnOnce(libc::pthread_t)) -> Outcome {
    let before = fake.switches(0, slot);
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let waiter = scope.spawn(move || {
            // SAFETY: the call takes no pointers.
            let (me, process) = unsafe { (libc::pthread_self(), libc::getpid()) };
            send.send(me).unwrap();
            // More than one ring holds, and less than two hold.
            let outcome = (0..600)
                .map(|n| event!(numbered, n))
                .find(|outcome| *outcome != Outcome::Recorded);
            // SAFETY: the calls take no pointers; `_exit` ends a child that a handler forked.
            unsafe {
                if libc::getpid() != process {
                    libc::_exit(if outcome == Some(Outcome::Recorded) {
                        1
                    } else {
                        7
                    });
                }
            }
            outcome.unwrap_or(Outcome::Recorded)
        });
        while fake.switches(0, slot) == before {
            std::thread::yield_now();
        }
        // The writer notifies the kernel once, however long it waits.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiter.is_finished());
        assert_eq!(fake.switches(0, slot), before + 1);
        change(receive.recv().unwrap());
        waiter.join().unwrap()
    })
}

/// Writers wait for a reader as long as there is one, and nothing is lost.
///
/// Requirements: D7
fn writers_wait_for_a_reader() {
    for scope in SCOPES {
        let test = || {
            let (fake, slot) = blocking(scope);
            let stop = AtomicBool::new(false);
            std::thread::scope(|threads| {
                let _stop = SetOnDrop(&stop);
                let writers: Vec<_> = (0..3)
                    .map(|_| {
                        threads.spawn(|| {
                            for n in 0..3000 {
                                assert_eq!(event!(numbered, n), Outcome::Recorded);
                                if n % 10 == 0 {
                                    assert_eq!(event!(text, &"x".repeat(1500)), Outcome::Recorded);
                                }
                            }
                        })
                    })
                    .collect();
                threads.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        fake.consume(0, slot);
                        std::thread::yield_now();
                    }
                });
                writers
                    .into_iter()
                    .for_each(|writer| writer.join().unwrap());
            });
            assert_eq!(fake.lost(0, slot), 0);
            assert!(fake.switches(0, slot) > 1);
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// A waiting writer continues when there is space, and drops the event when the last reader has
/// gone.
///
/// Requirements: D7
fn waits_end_with_space_or_without_a_reader() {
    for scope in SCOPES {
        let test = || {
            let (fake, slot) = blocking(scope);
            let consume = |_| fake.consume(0, slot);
            assert_eq!(while_one_waits(fake, slot, consume), Outcome::Recorded);
            fake.consume(0, slot);
            let close = |_| fake.set_readers(0, slot, 1, 0);
            assert_eq!(while_one_waits(fake, slot, close), Outcome::Lost);
            // Without a reader, writers do not wait at all.
            let switches = fake.switches(0, slot);
            assert!((0..1000).any(|n| event!(numbered, n) == Outcome::Lost));
            assert_eq!(fake.switches(0, slot), switches);
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// A writer notifies the kernel once per wait, even if it moves to another CPU.
///
/// Requirements: D7
fn readers_are_notified_once_per_wait() {
    let (fake, slot) = blocking(Scope::Cpu);
    // SAFETY: a set of CPUs is plain data, and the calls write or read nothing else.
    let go_to = |thread: libc::pthread_t, cpu: usize| unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::pthread_setaffinity_np(thread, size_of_val(&set), &raw const set) == 0
    };
    fake.set_readers(0, slot, 1, 0);
    for cpu in 0..2 {
        // SAFETY: the call takes no pointers.
        if !go_to(unsafe { libc::pthread_self() }, cpu) {
            return;
        }
        while event!(numbered, 0) == Outcome::Recorded {}
    }
    fake.set_readers(0, slot, 1, 1);
    let before = fake.switches(0, slot);
    let move_it = |thread| {
        for n in 0..10 {
            assert!(go_to(thread, n % 2));
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        assert_eq!(fake.switches(0, slot), before + 1);
        fake.set_readers(0, slot, 1, 0);
    };
    assert_eq!(while_one_waits(fake, slot, move_it), Outcome::Lost);
}

/// A waiting writer follows the trace: by a signal to its thread or another one, or by polling.
///
/// Requirements: D7, E3
fn waiting_writers_follow_the_trace() {
    type Change = fn(&Fake, usize);
    let changes: [(Change, &[Outcome]); 4] = [
        (
            |fake, slot| fake.set_mode(slot, 1, Mode::Discard),
            &[Outcome::Lost],
        ),
        (
            |fake, slot| fake.set_mode(slot, 1, Mode::Overwrite),
            &[Outcome::Recorded],
        ),
        (|fake, slot| fake.stop(slot), &[Outcome::Lost]),
        (
            |fake, slot| fake.destroy(slot),
            &[Outcome::Lost, Outcome::Off],
        ),
    ];
    let notifications: [fn(libc::pthread_t); 3] = [
        |_| update(),
        // SAFETY: the thread waits.
        |thread| assert_eq!(unsafe { libc::pthread_kill(thread, signo()) }, 0),
        |_| (),
    ];
    for scope in SCOPES {
        for (n, (change, outcomes)) in changes.iter().enumerate() {
            for (how, notify) in notifications.iter().enumerate() {
                let test = || {
                    let (fake, slot) = blocking(scope);
                    // A writer that waits between two rseq sequences does not keep the slot, which
                    // can have another trace at once. In rings without sequences, the slot is free
                    // when the writer has left.
                    let succeeds = n == 3 && how == 0;
                    let at_once = matches!(scope, Scope::Cpu | Scope::MmCid);
                    let outcome = while_one_waits(fake, slot, |thread| {
                        change(fake, slot);
                        notify(thread);
                        if succeeds && at_once {
                            assert_eq!(fake.create(), Some(slot));
                        }
                    });
                    if succeeds && !at_once {
                        assert_eq!(fake.create(), Some(slot));
                    }
                    assert!(outcomes.contains(&outcome), "{outcome:?}");
                    assert_eq!(fake.late_writes(), 0);
                    if succeeds {
                        assert!(fake.is_untouched(0, slot));
                    }
                };
                assert_eq!(wait(child(test)), 0, "{scope:?} {n} {how}");
            }
        }
    }
}

/// A signal handler that interrupts a waiting writer may fork. The child does not have the rings,
/// and continues.
///
/// Requirements: A5, D7
fn handlers_may_fork_while_a_writer_waits() {
    static CHILD: AtomicU32 = AtomicU32::new(0);
    extern "C" fn fork(_: libc::c_int) {
        // SAFETY: the test's other threads hold no locks that the child needs.
        let pid = unsafe { libc::fork() };
        if pid != 0 {
            CHILD.store(pid as u32, Ordering::Relaxed);
        }
    }
    // SAFETY: a handler that forks.
    unsafe { libc::signal(libc::SIGUSR2, fork as extern "C" fn(libc::c_int) as usize) };
    for scope in SCOPES {
        let test = || {
            let (fake, slot) = blocking(scope);
            let outcome = while_one_waits(fake, slot, |thread| {
                // SAFETY: the thread waits.
                assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR2) }, 0);
                while CHILD.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                let status = wait(CHILD.load(Ordering::Relaxed) as libc::pid_t);
                assert_eq!(libc::WEXITSTATUS(status), 7, "{status:#x}");
                // The parent still waits.
                fake.consume(0, slot);
            });
            assert_eq!(outcome, Outcome::Recorded);
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// An event in a signal handler waits like any other, even with all signals blocked.
///
/// Requirements: D7
fn waiting_signal_handlers_follow_the_trace() {
    static OUTCOME: AtomicU32 = AtomicU32::new(0);
    extern "C" fn put(_: libc::c_int) {
        while event!(numbered, 1) == Outcome::Recorded {}
        OUTCOME.store(1, Ordering::Relaxed);
    }
    let (fake, slot) = blocking(Scope::Cpu);
    // SAFETY: zeros are a valid sigaction; the handler only writes events, which is
    // async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = put as extern "C" fn(libc::c_int) as usize;
        libc::sigfillset(&raw mut action.sa_mask);
        let done = libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
        assert_eq!(done, 0);
    }
    let switches = fake.switches(0, slot);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while fake.switches(0, slot) == switches {
                std::thread::yield_now();
            }
            fake.stop(slot);
        });
        // SAFETY: the handler is there.
        unsafe { libc::raise(libc::SIGUSR2) };
    });
    assert_eq!(OUTCOME.load(Ordering::Relaxed), 1);
}

fn isolated(name: &'static str, test: fn()) -> Trial {
    Trial::test(name, move || match wait(child(test)) {
        0 => Ok(()),
        status => Err(Failed::from(format!("wait status {status:#x}"))),
    })
}

macro_rules! trials {
    ($($name:ident),* $(,)?) => { vec![$(isolated(stringify!($name), $name)),*] };
}

fn main() -> ExitCode {
    if usertrace::status() == Status::Attached {
        println!("skipped: this kernel has trace buffers of its own");
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Tests fork, so no other thread may run.
    arguments.test_threads = Some(1);
    let mut trials = trials![
        a_stock_kernel_is_quiet,
        backend_off_disables_tracing,
        no_events_without_buffers,
        all_types_come_back,
        arguments_are_evaluated_only_when_wanted,
        init_finds_an_active_trace,
        several_traces,
        an_event_has_the_same_time_in_several_traces,
        slot_is_reused_after_acknowledgement,
        removal_and_start_in_one_update,
        one_update_moves_a_slot_to_its_next_trace,
        slot_changes_its_trace_during_long_records,
        unstarted_traces_cause_no_calls,
        events_stay_off_until_their_buffer_exists,
        slots_are_not_reused_without_membarrier,
        losses_are_counted,
        too_long_texts_are_dropped,
        too_long_sequences_are_dropped,
        a_child_has_its_own_buffers,
        child_of_an_untraced_process_is_traced_later,
        program_handler_stays_installed,
        updates_without_a_signal,
        calls_follow_traces_without_a_signal,
        events_of_other_scopes_follow_traces,
        events_reach_rings_of_each_scope,
        monotonic_times_are_ordered_in_each_ring,
        small_rings_with_the_monotonic_clock_are_reused,
        unknown_clocks_are_refused,
        invalid_area_descriptions_are_reported,
        invalid_info_areas_are_reported,
        traces_beyond_rlimit_as_are_reported,
        rings_of_ended_threads_are_reused,
        environment_selects_the_signal,
        full_control_channel_disables_events,
        no_system_call_for_an_event,
        traces_come_and_go_under_load,
        trace_removed_while_opening_leaves_no_ids,
        removal_waits_for_long_records,
        unknown_layouts_are_refused,
        rules_select_the_events_of_a_trace,
        masks_have_a_bit_for_each_log_level,
        events_go_to_the_first_channel_that_accepts_them,
        each_trace_has_its_own_rules,
        child_follows_the_rules,
        buffers_are_allocated_before_the_start,
        mode_changes_take_effect,
        slot_waits_for_long_records_in_further_channels,
        rules_and_modes_change_under_load,
        writers_wait_for_a_reader,
        waits_end_with_space_or_without_a_reader,
        readers_are_notified_once_per_wait,
        waiting_writers_follow_the_trace,
        handlers_may_fork_while_a_writer_waits,
        waiting_signal_handlers_follow_the_trace,
    ];
    trials.extend(conditions::trials());
    trials.extend(random_conditions::trials());
    trials.extend(triggers::trials());
    trials.extend(counting::trials());
    trials.extend(flagged_routes::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
