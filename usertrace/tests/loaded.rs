//! B1: callsites come and go while traces are active, as those of libraries do, on a kernel that is
//! not there.
//!
//! One test, as there is one runtime in a process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use usertrace::event::{Callsite, Entry, declare, record_parts, register, unregister};
use usertrace::fake::{Fake, Sizes};
use usertrace::runtime::init_with;
use usertrace::{Outcome, Status};

usertrace::tracepoint! {
    mod own {
        provider: "test",
        name: "own",
        loglevel: Info,
        fields: { n: u64 }
    }
}

/// What a library has in its section. It stays, so that what is wrong is seen, and does not crash.
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
fn b1_events_of_libraries_that_come_and_go() {
    let fake = Fake::new(Sizes::default());
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    let slot = fake.create().unwrap();
    fake.start(slot);
    usertrace::init();
    assert_eq!(usertrace::event!(own, 1), Outcome::Recorded);
    assert_eq!(names(), ["test:own"]);
    let described = || fake.metadata(0, slot).len();
    assert_eq!(described(), 1);

    // What is declared while a trace is active is in it at once.
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

    // Two events of one name are no error.
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
    assert_eq!(described(), 4);
    for callsite in &library.callsites {
        assert_eq!(record_parts(callsite, &[&[9; 8]]), Outcome::Recorded);
    }
    library.unload();
    library.unload();
    assert_eq!(names(), ["test:own", "test:declared"]);

    // However often one comes, its events are described once.
    for _ in 0..100 {
        let again = Library::new(2);
        again.load();
        assert_eq!(
            record_parts(again.callsites[1], &[&[9; 8]]),
            Outcome::Recorded
        );
        again.unload();
    }
    assert_eq!(described(), 4);
    let events = fake.events(0, slot);
    let of = |name: &str| events.iter().filter(|seen| seen.event.name == name).count();
    assert_eq!(
        (of("test:own"), of("test:declared"), of("library:event")),
        (1, 2, 102)
    );

    // More than there is room for at first, and another trace.
    let many: Vec<Library> = (0..100).map(|_| Library::new(1)).collect();
    many.iter().for_each(Library::load);
    let other = fake.create().unwrap();
    fake.start(other);
    usertrace::init();
    assert_eq!(fake.metadata(0, other).len(), 102);
    many.iter().for_each(Library::unload);
    let again = Library::new(1);
    again.load();
    // It has the id that events like it had, in either trace.
    assert_eq!((described(), fake.metadata(0, other).len()), (4, 102));
    assert_eq!(
        record_parts(again.callsites[0], &[&[9; 8]]),
        Outcome::Recorded
    );
    again.unload();

    // Nobody looks at what is gone, whoever makes updates meanwhile.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fake.stop(other);
                usertrace::init();
                fake.start(other);
                usertrace::init();
                // The lock is not fair: who takes it again at once keeps others out, for minutes on
                // a busy machine.
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
