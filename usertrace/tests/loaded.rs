//! Tests call sites that come and go, as those of libraries do, while traces are active, on a fake
//! kernel.
//!
//! One test, because a process has one runtime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use usertrace::__private::init_with;
use usertrace::__private::{Entry, declare, record_parts, register, unregister};
use usertrace::Callsite;
use usertrace::fake::{Fake, Sizes};
use usertrace::{Outcome, Status};

usertrace::tracepoint! {
    mod own {
        provider: "test",
        name: "own",
        loglevel: Info,
        fields: { n: u64 }
    }
}

/// A library's section. It is leaked, so that a use after unloading is detected and does not crash.
struct Library {
    entries: Vec<Entry>,
    callsites: Vec<&'static Callsite>,
}

impl Library {
    fn new(events: usize) -> Self {
        let callsites: Vec<&'static Callsite> = (0..events)
            .map(|_| {
                let callsite = Callsite::new("library", "event", "library:event 6 u64 n");
                &*Box::leak(Box::new(callsite))
            })
            .collect();
        Self {
            entries: callsites
                .iter()
                .map(|callsite| Entry::new(callsite))
                .collect(),
            callsites,
        }
    }

    fn load(&self) {
        let entries = self.entries.as_ptr_range();
        // SAFETY: the entries stay until `unload`.
        assert_eq!(unsafe { register(entries.start, entries.end) }, 0);
    }

    fn unload(&self) {
        let entries = self.entries.as_ptr_range();
        unregister(entries.start, entries.end);
    }
}

fn names() -> Vec<String> {
    let listed = usertrace::callsites().into_iter();
    listed.map(|listed| listed.name().to_owned()).collect()
}

/// Requirements: B1
#[test]
fn libraries_with_events_come_and_go() {
    let fake = Fake::new(Sizes::default());
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    let slot = fake.create().unwrap();
    fake.start(slot);
    usertrace::init();
    assert_eq!(usertrace::event!(own, 1), Outcome::Recorded);
    assert_eq!(names(), ["test:own"]);
    assert_eq!(described(fake, slot), 1);

    declared_events_are_traced_at_once();
    events_may_have_the_same_name(fake, slot);
    repeated_loads_describe_events_once(fake, slot);
    let other = ids_survive_unloading(fake, slot);
    updates_use_no_call_sites_that_are_gone(fake, other);
}

/// Number of events that a trace describes.
fn described(fake: &Fake, slot: usize) -> usize {
    fake.metadata(0, slot).len()
}

/// An event declared while a trace is active is in it at once; invalid ones are refused.
fn declared_events_are_traced_at_once() {
    let text = declare("test:declared 6 str text;u8 n").unwrap();
    assert!(text.is_enabled());
    assert_eq!(record_parts(text, &[b"abc\0", &[7]]), Outcome::Recorded);
    let long = "x".repeat(2000) + "\0";
    assert_eq!(
        record_parts(text, &[long.as_bytes(), &[8]]),
        Outcome::Recorded
    );
    for bad in [
        "",
        "test:declared",
        "test 6",
        "te st:n 6",
        "test:n 15",
        "a:b 6 u8 \u{fc}",
        "a:b 6 u7 a",
        "a:b 6 u8{not a label=1} a",
    ] {
        assert!(declare(bad).is_err_and(|error| error.to_string().contains(&format!("{bad:?}"))));
    }
}

/// Two events may have the same name.
fn events_may_have_the_same_name(fake: &Fake, slot: usize) {
    let library = Library::new(2);
    assert_eq!(record_parts(library.callsites[0], &[&[0; 8]]), Outcome::Off);
    library.load();
    library.load();
    assert_eq!(
        names(),
        [
            "test:own",
            "test:declared",
            "library:event",
            "library:event"
        ]
    );
    assert_eq!(described(fake, slot), 4);
    for callsite in &library.callsites {
        assert_eq!(record_parts(callsite, &[&[9; 8]]), Outcome::Recorded);
    }
    library.unload();
    library.unload();
    assert_eq!(names(), ["test:own", "test:declared"]);
}

/// Events of a library that is loaded repeatedly are described once.
fn repeated_loads_describe_events_once(fake: &Fake, slot: usize) {
    for _ in 0..100 {
        let again = Library::new(2);
        again.load();
        assert_eq!(
            record_parts(again.callsites[1], &[&[9; 8]]),
            Outcome::Recorded
        );
        again.unload();
    }
    assert_eq!(described(fake, slot), 4);
    let events = fake.events(0, slot);
    let of = |name: &str| events.iter().filter(|seen| seen.event.name == name).count();
    assert_eq!(
        (of("test:own"), of("test:declared"), of("library:event")),
        (1, 2, 102)
    );
}

/// Events get their previous ids when their library is loaded again, in either trace. There are
/// more modules than the first chunk holds. Returns the slot of the second trace.
fn ids_survive_unloading(fake: &Fake, slot: usize) -> usize {
    let many: Vec<Library> = (0..100).map(|_| Library::new(1)).collect();
    many.iter().for_each(Library::load);
    let other = fake.create().unwrap();
    fake.start(other);
    usertrace::init();
    assert_eq!(described(fake, other), 102);
    many.iter().for_each(Library::unload);
    let again = Library::new(1);
    again.load();
    assert_eq!((described(fake, slot), described(fake, other)), (4, 102));
    assert_eq!(
        record_parts(again.callsites[0], &[&[9; 8]]),
        Outcome::Recorded
    );
    again.unload();
    other
}

/// No update uses call sites that are gone.
fn updates_use_no_call_sites_that_are_gone(fake: &Fake, other: usize) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fake.stop(other);
                usertrace::init();
                fake.start(other);
                usertrace::init();
                // The lock is not fair: a thread that takes it again at once would keep others out,
                // for minutes on a busy machine.
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        for _ in 0..100 {
            let library = Library::new(3);
            library.load();
            library.unload();
            let all = || format!("{:?}", library.callsites);
            let before = all();
            std::thread::yield_now();
            assert_eq!(all(), before);
        }
        done.store(true, Ordering::Relaxed);
    });
}
