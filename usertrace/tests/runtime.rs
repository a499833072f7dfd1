//! The runtime, the typed events and the writer together, on a kernel that is not there.
//!
//! Each test is a process of its own, so that each has a fresh runtime, and may fork, be killed and
//! change signals.

use std::mem::offset_of;
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use usertrace::clock;
use usertrace::fake::process::{child, wait};
use usertrace::fake::{Fake, Seen, Sizes};
use usertrace::runtime::{AreaField, Kernel, Refused, init_with};
use usertrace::writer::Prefault;
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

/// What the kernel does after each change.
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

/// A process whose events go into one trace.
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

/// On this kernel there is nothing to trace with, and nothing happens.
///
/// Requirements: F3
fn a_stock_kernel_is_quiet() {
    if usertrace_sys::Calls::discover().is_ok() {
        return;
    }
    // It was looked for before `main`.
    assert!(matches!(usertrace::status(), Status::NoKernel(_)));
    assert!(matches!(usertrace::init(), Status::NoKernel(_)));
    assert!(matches!(usertrace::status(), Status::NoKernel(_)));
    assert_eq!(event!(numbered, 1), Outcome::Off);
    assert_eq!(usertrace::stats().count(), 0);
    assert_eq!(usertrace::flush(), Err(Errno::ENXIO));
}

fn the_environment_switches_it_off() {
    // SAFETY: no other thread.
    unsafe { std::env::set_var("USERTRACE_BACKEND", "off") };
    let fake = Fake::new(Sizes::default());
    assert_eq!(init_with(|| Ok(fake)), Status::Off);
    assert_eq!(usertrace::status(), Status::Off);
    assert_eq!(fake.processes(), 0);
}

fn no_buffers_no_events() {
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

/// What was written comes back, by its metadata alone.
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

/// Nothing of an event is evaluated unless a trace wants it.
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
fn a_trace_that_is_active_already() {
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

/// A9: a removed trace's slot is given again when this process said that it is out of it, not
/// before.
fn a_slot_is_used_again() {
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

/// A9: each removal is acknowledged, also together with other news.
fn a_removal_and_a_start_at_once() {
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

/// A9: a slot may have another trace as soon as the one before is gone. One update gives that one
/// up, and gets the other: from a trace that is written to, from one that never was, as it is
/// stopped, and from one that cannot be.
fn a9_a_slot_goes_from_one_trace_to_the_next() {
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
                // That the old one is gone is seen before the new one has a layout.
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

/// Does something while two threads write long records.
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

/// Likewise, while threads write long records, which an update does not wait for.
///
/// Requirements: A9
fn a9_slots_go_from_one_trace_to_the_next_in_the_middle_of_long_records() {
    let fake = attach(Sizes {
        subbuf_size: [4096, 65536],
        subbuf_count: [2, 4],
    });
    let slot = fake.create().unwrap();
    replace_under_long_records(fake, slot, counts(60, 300), |_| ());
    fake.events(0, slot).iter().for_each(check_long);
}

const LONG: usize = 65000;

/// Puts traces into a slot, one after the other, while threads write long records there. `prepare`
/// sees each before it is started.
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
    // Whoever was the last one to leave has said so.
    assert_ne!(event!(text, "the last one"), Outcome::Off);
    assert_eq!(fake.late_writes(), 0);
}

/// An event of [`replace_under_long_records`]'s, and whole.
fn check_long(seen: &Seen) {
    assert!(seen.payload == b"the last one\0" || seen.payload.len() == LONG + 1);
}

/// A1, A6: a trace that was never started has no layout as yet, and there is nothing to ask the
/// kernel about it.
fn a1_a_trace_that_was_never_started_is_not_asked_for() {
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

// SAFETY: the fake kernel gives areas as the trait asks for; a refusal is what a kernel without
// memory answers.
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

/// A9: where threads cannot be waited for, a slot is not given back. Those of other traces are
/// taken nevertheless.
fn without_a_barrier_no_slot_is_used_again() {
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

/// What does not fit is counted.
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

/// A text that makes the record longer than a sub-buffer is not cut.
fn a_text_that_is_too_long_is_lost() {
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

fn b1_a_sequence_that_is_too_long_is_lost() {
    let (fake, slot) = traced(Sizes::default());
    // As above, with the count and the byte before it, and no NUL.
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

/// A child never writes into its parent's buffers, and has its own, described anew.
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

/// A5: also a child that was forked while nothing was traced, and then traced; and one that writes
/// nothing gets no buffers.
fn a_child_of_a_process_that_is_not_traced() {
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

/// F2: a program's own handler stays, and the kernel is told to send nothing.
fn a_handler_of_the_program_stays() {
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

/// Without a signal, an update is noticed when a sub-buffer begins.
fn updates_without_a_signal() {
    // SAFETY: no other thread.
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

/// A4: a process without a signal follows wherever it leaves the event path, or calls the library.
fn a4_without_a_signal_calls_follow_traces() {
    // SAFETY: no other thread.
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
        // One load and a branch look at nothing.
        assert_eq!(event!(numbered, n), Outcome::Off);
        call();
        assert_eq!(event!(numbered, n), Outcome::Recorded);
        fake.destroy(slot);
        call();
        assert_eq!(event!(numbered, n), Outcome::Off);
    }
}

/// A4, A8: rings that are not those of CPUs are not written by the event path alone: each event
/// looks.
fn a4_events_of_other_scopes_follow_traces() {
    // SAFETY: no other thread.
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

/// A7, A8, E3: events come into rings of each kind, by threads that come and go, and back out
/// again.
fn e3_rings_of_each_scope() {
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
                        // Too long for one sequence.
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
                    // SAFETY: no memory is involved.
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

/// Where the processor's counter is not valid, times are those of `CLOCK_MONOTONIC`, in order in
/// each ring.
fn e3_times_of_the_monotonic_clock() {
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

/// A ring of such a trace is used again and again: sub-buffers begin, and are lost, as always.
fn e3_the_monotonic_clock_in_small_rings() {
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

/// A trace whose clock this library cannot read is left alone, and one behind it is not.
fn e3_a_clock_that_is_not_known() {
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

/// A kernel that tells something else of the areas.
struct TellsElse {
    fake: &'static Fake,
    tell: fn(&mut LttTracebuf),
    /// It gives no buffers.
    passes_over: bool,
}

// SAFETY: the fake kernel keeps the promises; what is told else is either refused, or less than
// there is.
unsafe impl Kernel for TellsElse {
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno> {
        let mut areas = self.fake.alloc_tracebuf(signo)?;
        (self.tell)(&mut areas);
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

fn attach_else(tell: fn(&mut LttTracebuf), passes_over: bool) -> (&'static Fake, Status) {
    let fake = Fake::new(small());
    let kernel: &TellsElse = Box::leak(Box::new(TellsElse {
        fake,
        tell,
        passes_over,
    }));
    (fake, init_with(|| Ok(kernel)))
}

/// What a hostile or newer kernel tells of the areas is checked, and named.
fn c1_areas_that_cannot_be_are_named() {
    type Tell = fn(&mut LttTracebuf);
    let cases: [(AreaField, Tell); 13] = [
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
    for (field, tell) in cases {
        let test = || {
            let (_, status) = attach_else(tell, false);
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

/// Likewise, what the info area tells of itself.
fn c8_an_info_area_that_cannot_be_is_named() {
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

/// A limit of the address space made the slots so small that the kernel passes over a trace: that
/// is told.
fn c2_a_trace_that_does_not_fit_is_told() {
    let (fake, status) = attach_else(
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

/// A8: more threads than rings, one after the other; each has one for itself nevertheless.
fn a8_threads_take_the_rings_of_those_that_are_gone() {
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
                // SAFETY: no memory is involved.
                unsafe { libc::gettid() }
            });
            thread.join().unwrap()
        });
        // Who joined it does not know that the kernel has forgotten it.
        // SAFETY: no signal is sent.
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

/// The signal that the environment chooses.
fn another_signal() {
    // SAFETY: no other thread.
    unsafe { std::env::set_var("USERTRACE_SIGNAL", "12") };
    let fake = attach(Sizes::default());
    assert_eq!(fake.signo(0), 12);
    let slot = fake.create().unwrap();
    fake.start(slot);
    // SAFETY: the runtime's handler is installed.
    unsafe { libc::raise(12) };
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
}

/// An event that cannot be described is not written: nobody could read it.
fn a_full_control_channel() {
    let fake = attach(small());
    let slot = fake.create().unwrap();
    fake.fill_control(0, slot);
    fake.start(slot);
    update();
    assert_eq!(event!(numbered, 1), Outcome::Off);
    let stats = usertrace::stats().next().unwrap();
    assert_eq!(stats.undescribed as usize, usertrace::callsites().len());
    assert_eq!(stats.bytes, 0);

    // Nor with an id that it had in the process that this one was forked from.
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

/// Installs a filter for one system call, and for all others.
fn filter_system_call(number: libc::c_long, its: u32, others: u32) {
    seccomp::filter(&[(number as u32, its)], others);
}

/// From now on, any system call but `exit` kills the process.
fn forbid_system_calls() {
    filter_system_call(
        libc::SYS_exit,
        libc::SECCOMP_RET_ALLOW,
        libc::SECCOMP_RET_KILL_PROCESS,
    );
}

/// No system call for an event.
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
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit, i32::from(bad)) };
    });
    assert_eq!(wait(pid), 0);
    assert_eq!(numbers(&fake.events(1, slot)).len(), 1_000_000);
    // The filter works.
    let pid = child(|| {
        forbid_system_calls();
        // SAFETY: no memory is involved.
        unsafe { libc::syscall(libc::SYS_getpid) };
    });
    assert_eq!(libc::WTERMSIG(wait(pid)), libc::SIGSYS);
}

/// Sets a flag when it goes, also if a test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A4, A9, C8: traces come and go while threads write and signal handlers interrupt them; all rings
/// stay whole.
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
                    // SAFETY: no memory is involved.
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
                // Each process said that it is out of the slot.
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
    // The threads are gone, and all that they had begun is done: what is described now is what was
    // written.
    update();
    assert_eq!(fake.late_writes(), 0);
    for slot in slots {
        fake.events(0, slot);
    }
    assert!(usertrace::stats().count() >= 4);
}

/// A kernel on which a trace goes at the worst moment: its control channel describes the events,
/// and main is not open yet.
struct GoesInTheMiddle {
    fake: &'static Fake,
    /// The trace's slot, and 1; 0: it went.
    goes: AtomicUsize,
}

// SAFETY: the fake kernel keeps the promises; destroying a trace is what the kernel does at any
// time.
unsafe impl Kernel for GoesInTheMiddle {
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno> {
        self.fake.alloc_tracebuf(signo)
    }

    fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno> {
        self.fake.update(buffer)
    }

    fn switch(&self, buffer: NonNull<u8>) -> Result<(), Errno> {
        self.fake.switch(buffer)
    }

    /// Asked for each channel but control; main comes last.
    fn prefault(&self) -> Prefault {
        if let Some(slot) = self.goes.swap(0, Ordering::Relaxed).checked_sub(1) {
            self.fake.destroy(slot);
        }
        Prefault::Never
    }
}

/// E6: what a trace told of its events, which went before it was open, does not count for the next
/// one in its slot.
fn e6_a_trace_that_goes_as_it_is_opened_leaves_no_ids() {
    let cpu = Some(Scope::Cpu);
    let fake = Fake::with_channels(small(), &[cpu, cpu]);
    let kernel: &GoesInTheMiddle = Box::leak(Box::new(GoesInTheMiddle {
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

/// A9: a trace's memory is not given away while a writer is in the middle of a long record, which
/// the barrier that restarts sequences does not wait for.
fn traces_go_in_the_middle_of_long_records() {
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
            // By now somebody who runs on another CPU is in the middle of the first record.
            fake.stop(slot);
            fake.destroy(slot);
            update();
        }
    });
    // The last one to leave said so, also if that was after the last update.
    assert!(fake.create().is_some());
}

/// F4's other side: what the info area says is checked before anything is written there.
fn traces_of_unknown_kinds_are_left_alone() {
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
    // Nor does it keep the slot.
    let calls = fake.updates();
    update();
    assert_eq!(fake.updates(), calls);
    fake.destroy(slot);
    update();
    assert_eq!(usertrace::stats().count(), 0);
    assert_eq!(fake.create(), Some(slot));
}

/// A process whose events go into one trace, that has main and such channels.
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

/// A trace has all events, none, or those that are named, from one change to the next.
///
/// Requirements: E4
fn e4_a_trace_has_the_events_that_it_names() {
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
        // Of main there are no rules: it gets what is left.
        (&[(0, ACCEPT, "text"), (1, REFUSE, "*")], (off, off, on)),
    ] {
        fake.set_rules(slot, rules);
        update();
        assert_eq!(put(), expected, "{rules:?}");
        // Nor do they go away when something else changes.
        update();
        let other = fake.create().unwrap();
        update();
        assert_eq!(put(), expected, "{rules:?}");
        fake.destroy(other);
        update();
    }
    // Rules that are none accept nothing.
    for bytes in [&b"\0\0\xff*"[..], &[0xff; 5000], b"\0\0\0*", b"\0"] {
        fake.set_rule_bytes(slot, bytes);
        update();
        assert_eq!(put(), (off, off, off));
    }
    // The next trace in the slot begins with its own.
    fake.replace(slot);
    fake.start(slot);
    update();
    assert_eq!(put(), (on, on, on));
    // All are described, wanted or not: they may be any time.
    fake.set_rules(slot, &[]);
    assert_eq!(fake.metadata(0, slot).len(), usertrace::callsites().len());
}

/// E4: the mask has a bit for each log level.
fn e4_a_mask_has_a_bit_for_each_log_level() {
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

/// An event goes to the first channel that accepts it, or else to main; to each trace once.
///
/// Requirements: E4, E5
fn e4_e5_events_go_to_the_channel_that_accepts_them() {
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
        // Without rules of its own, a channel has nothing.
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
        // There is no channel with this index, and none behind the last one.
        (&[(0, ACCEPT, "*"), (3, ACCEPT, "*"), (6, ACCEPT, "*")], 1),
        (&[(0, ACCEPT, "*"), (200, ACCEPT, "*")], 1),
        (
            &[(0, ACCEPT, "*"), (two, ACCEPT, "*"), (two, REFUSE, "num*")],
            1,
        ),
        // What the trace refuses goes nowhere.
        (&[(two, ACCEPT, "*"), (five, ACCEPT, "*")], 0),
    ] {
        fake.set_rules(slot, rules);
        update();
        // With one trace on the short way, if the channel has one; with two, on the long one.
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
    // A channel has a mask, too.
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
    // What is told of a trace is of all its channels.
    let bytes = |slot| {
        usertrace::stats()
            .find(|trace| trace.slot == slot)
            .unwrap()
            .bytes
    };
    assert!(bytes(slot) > 3 * 64 + 16 * expected.iter().sum::<usize>() as u64);
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

/// What several traces accept, by rules of each, comes to each of them once.
///
/// Requirements: A7, E5
fn e5_each_trace_has_rules_of_its_own() {
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

/// A5, E4: a child follows the rules from its first event on.
fn e4_a_child_follows_the_rules() {
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

/// Buffers may be there before the start; nothing is written to them until then.
///
/// Requirements: E2
fn e2_buffers_are_allocated_before_the_start() {
    let fake = attach(small());
    let slot = fake.create().unwrap();
    update();
    let calls = fake.updates();
    fake.allocate(slot);
    update();
    // The kernel was asked for the buffer, and has nothing more to say.
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
    // One that goes without ever being started is given up.
    let next = fake.create().unwrap();
    fake.allocate(next);
    update();
    assert_eq!(usertrace::stats().count(), 1);
    fake.destroy(next);
    update();
    assert_eq!(fake.create(), Some(next));
}

/// E3: a ring that overwrites has the newest events, one that does not the oldest, from one change
/// to the next.
fn e3_a_channel_overwrites_or_not() {
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
                // Its present mode is to discard.
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
                // What is left of the sub-buffer is written. From then on it is full until it is
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
            // All of it went to that channel, and main has a mode of its own.
            assert!(fake.events(0, slot).is_empty());
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// Keeps this process on one CPU, so that all events come into one ring.
fn pin() {
    // SAFETY: a set of CPUs is plain data, and the calls write or read nothing else.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        let done = libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        assert_eq!(done, 0);
    }
}

/// A9: a slot is given back when nobody is in any of its channels.
fn a9_long_records_in_further_channels_are_waited_for() {
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

/// A4, C8, E3, E4: rules and modes change while threads write and signal handlers interrupt them;
/// each event that was written is whole, and in one channel.
fn e3_e4_rules_and_modes_change_under_load() {
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
                    // SAFETY: no memory is involved.
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

/// A process with a trace whose writers wait, that has a reader.
fn blocking(scope: Scope) -> (&'static Fake, usize) {
    // One ring is full, and that is the one.
    pin();
    let fake = attach_to(Fake::with_scope(small(), scope));
    let slot = fake.create().unwrap();
    fake.set_mode(slot, 1, Mode::Block);
    fake.start(slot);
    update();
    fake.set_readers(0, slot, 1, 1);
    (fake, slot)
}

/// What becomes of an event that waits, if something happens to what it waits for, or to the
/// thread, meanwhile.
fn while_one_waits(fake: &Fake, slot: usize, change: impl FnOnce(libc::pthread_t)) -> Outcome {
    let before = fake.switches(0, slot);
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let waiter = scope.spawn(move || {
            // SAFETY: no memory is involved.
            let (me, process) = unsafe { (libc::pthread_self(), libc::getpid()) };
            send.send(me).unwrap();
            // More than there is room for, and less than in two rings.
            let outcome = (0..600)
                .map(|n| event!(numbered, n))
                .find(|outcome| *outcome != Outcome::Recorded);
            // SAFETY: as above; ends a child that a handler forked.
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
        // The kernel is told once, however long it takes.
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
fn d7_writers_wait_for_a_reader() {
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

/// D7: whoever waits for room goes on when there is some, and stops to wait when nobody reads any
/// more.
fn d7_a_wait_ends() {
    for scope in SCOPES {
        let test = || {
            let (fake, slot) = blocking(scope);
            let consume = |_| fake.consume(0, slot);
            assert_eq!(while_one_waits(fake, slot, consume), Outcome::Recorded);
            fake.consume(0, slot);
            let close = |_| fake.set_readers(0, slot, 1, 0);
            assert_eq!(while_one_waits(fake, slot, close), Outcome::Lost);
            // Nor does it begin to.
            let switches = fake.switches(0, slot);
            assert!((0..1000).any(|n| event!(numbered, n) == Outcome::Lost));
            assert_eq!(fake.switches(0, slot), switches);
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// D7: the kernel is told once of a wait, also if that goes on on another CPU.
fn d7_readers_are_told_once_of_a_wait() {
    let (fake, slot) = blocking(Scope::Cpu);
    // SAFETY: a set of CPUs is plain data, and the calls write or read nothing else.
    let go_to = |thread: libc::pthread_t, cpu: usize| unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::pthread_setaffinity_np(thread, size_of_val(&set), &raw const set) == 0
    };
    fake.set_readers(0, slot, 1, 0);
    for cpu in 0..2 {
        // SAFETY: no memory is involved.
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

/// D7, E3: whoever waits follows the trace: by the signal, which comes to it or to others, or by
/// itself.
fn d7_who_waits_follows_the_trace() {
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
    let tells: [fn(libc::pthread_t); 3] = [
        |_| update(),
        // SAFETY: the thread waits.
        |thread| assert_eq!(unsafe { libc::pthread_kill(thread, signo()) }, 0),
        |_| (),
    ];
    for scope in SCOPES {
        for (n, (change, outcomes)) in changes.iter().enumerate() {
            for (how, tell) in tells.iter().enumerate() {
                let test = || {
                    let (fake, slot) = blocking(scope);
                    // Who waits between two restartable sequences is not waited for, and the slot
                    // has another trace at once; in rings that no sequence writes, when that one is
                    // out.
                    let succeeds = n == 3 && how == 0;
                    let at_once = matches!(scope, Scope::Cpu | Scope::MmCid);
                    let outcome = while_one_waits(fake, slot, |thread| {
                        change(fake, slot);
                        tell(thread);
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

/// D7, A5: a handler that comes while somebody waits may fork. The child has no such rings, and
/// goes on.
fn d7_a_handler_forks_while_somebody_waits() {
    static CHILD: AtomicU32 = AtomicU32::new(0);
    extern "C" fn fork(_: libc::c_int) {
        // SAFETY: the test's other threads do nothing that a child would miss.
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
                // This one waits as before.
                fake.consume(0, slot);
            });
            assert_eq!(outcome, Outcome::Recorded);
        };
        assert_eq!(wait(child(test)), 0, "{scope:?}");
    }
}

/// D7: an event of a handler waits no more than any other, with all signals held back.
fn d7_a_handler_that_waits_follows_the_trace() {
    static OUTCOME: AtomicU32 = AtomicU32::new(0);
    extern "C" fn put(_: libc::c_int) {
        while event!(numbered, 1) == Outcome::Recorded {}
        OUTCOME.store(1, Ordering::Relaxed);
    }
    let (fake, slot) = blocking(Scope::Cpu);
    // SAFETY: zeros are a sigaction; the handler does what it may.
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
        eprintln!("skipped: this kernel has trace buffers of its own");
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Tests fork: nothing else may run meanwhile.
    arguments.test_threads = Some(1);
    let trials = trials![
        a_stock_kernel_is_quiet,
        the_environment_switches_it_off,
        no_buffers_no_events,
        all_types_come_back,
        arguments_are_evaluated_only_when_wanted,
        a_trace_that_is_active_already,
        several_traces,
        a_slot_is_used_again,
        a_removal_and_a_start_at_once,
        a9_a_slot_goes_from_one_trace_to_the_next,
        a9_slots_go_from_one_trace_to_the_next_in_the_middle_of_long_records,
        a1_a_trace_that_was_never_started_is_not_asked_for,
        events_stay_off_until_their_buffer_exists,
        without_a_barrier_no_slot_is_used_again,
        losses_are_counted,
        a_text_that_is_too_long_is_lost,
        b1_a_sequence_that_is_too_long_is_lost,
        a_child_has_its_own_buffers,
        a_child_of_a_process_that_is_not_traced,
        a_handler_of_the_program_stays,
        updates_without_a_signal,
        a4_without_a_signal_calls_follow_traces,
        a4_events_of_other_scopes_follow_traces,
        e3_rings_of_each_scope,
        e3_times_of_the_monotonic_clock,
        e3_the_monotonic_clock_in_small_rings,
        e3_a_clock_that_is_not_known,
        c1_areas_that_cannot_be_are_named,
        c8_an_info_area_that_cannot_be_is_named,
        c2_a_trace_that_does_not_fit_is_told,
        a8_threads_take_the_rings_of_those_that_are_gone,
        another_signal,
        a_full_control_channel,
        no_system_call_for_an_event,
        traces_come_and_go_under_load,
        e6_a_trace_that_goes_as_it_is_opened_leaves_no_ids,
        traces_go_in_the_middle_of_long_records,
        traces_of_unknown_kinds_are_left_alone,
        e4_a_trace_has_the_events_that_it_names,
        e4_a_mask_has_a_bit_for_each_log_level,
        e4_e5_events_go_to_the_channel_that_accepts_them,
        e5_each_trace_has_rules_of_its_own,
        e4_a_child_follows_the_rules,
        e2_buffers_are_allocated_before_the_start,
        e3_a_channel_overwrites_or_not,
        a9_long_records_in_further_channels_are_waited_for,
        e3_e4_rules_and_modes_change_under_load,
        d7_writers_wait_for_a_reader,
        d7_a_wait_ends,
        d7_readers_are_told_once_of_a_wait,
        d7_who_waits_follows_the_trace,
        d7_a_handler_forks_while_somebody_waits,
        d7_a_handler_that_waits_follows_the_trace,
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
