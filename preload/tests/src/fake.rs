//! This process, traced by a kernel that is not there.

use usertrace::Status;
use usertrace::fake::{Fake, Seen, Sizes};
use usertrace::runtime::init_with;
use usertrace_ring::schema::{FieldType, Integer, Scalar};

/// Has the runtime look for traces.
pub fn update() {
    // SAFETY: the runtime's handler is installed.
    assert_eq!(unsafe { libc::raise(libc::SIGRTMIN() + 3) }, 0);
}

/// A trace that has all of this process's events.
#[derive(Clone, Copy)]
pub struct Traced {
    /// What stands for the kernel.
    pub fake: &'static Fake,
    /// The trace.
    pub slot: usize,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `PROVIDER:NAME`
    pub name: String,
    /// Fields that are numbers, as far as they go.
    pub numbers: Vec<u64>,
    /// Fields that are texts.
    pub texts: Vec<String>,
}

impl Traced {
    /// Begins. The control ring has room for the events of the tests, too.
    ///
    /// # Panics
    /// If that cannot be done.
    #[must_use]
    pub fn new(sizes: Sizes) -> Self {
        let fake = Fake::new(sizes);
        assert_eq!(init_with(|| Ok(fake)), Status::Attached);
        let slot = fake.create().expect("a slot");
        fake.start(slot);
        update();
        Self { fake, slot }
    }

    /// Ends it, and says what was written, by time. (Reading the events back allocates, too.)
    #[must_use]
    pub fn stop(self) -> Vec<Event> {
        self.fake.stop(self.slot);
        update();
        self.events(0)
    }

    /// What a process wrote, by time.
    #[must_use]
    pub fn events(self, process: usize) -> Vec<Event> {
        let mut seen = self.fake.events(process, self.slot);
        seen.sort_by_key(|seen| seen.time);
        seen.iter().map(Event::of).collect()
    }
}

impl Event {
    fn of(seen: &Seen) -> Self {
        let mut event = Self {
            name: seen.event.name.clone(),
            numbers: Vec::new(),
            texts: Vec::new(),
        };
        let mut rest = &seen.payload[..];
        for field in &seen.event.fields {
            let len = match field.kind {
                FieldType::Scalar(Scalar::Integer(Integer { len, .. }) | Scalar::Float { len }) => {
                    usize::from(len)
                }
                FieldType::Scalar(Scalar::Bool) => 1,
                FieldType::Str => {
                    let len = rest.iter().position(|byte| *byte == 0).expect("an end");
                    let text = String::from_utf8_lossy(&rest[..len]);
                    event.texts.push(text.into_owned());
                    rest = &rest[len + 1..];
                    continue;
                }
                ref other => panic!("the libraries have no fields like {other:?}"),
            };
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(&rest[..len]);
            event.numbers.push(u64::from_le_bytes(bytes));
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
        event
    }
}
