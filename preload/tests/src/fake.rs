//! Traces this process with a simulated kernel.

use usertrace::__private::init_with;
use usertrace::Status;
use usertrace::fake::{Fake, Seen, Sizes};
use usertrace_ring::schema::{FieldType, Integer, Scalar};

/// Makes the runtime update its traces.
pub fn update() {
    // SAFETY: the runtime has installed a handler of this signal.
    assert_eq!(unsafe { libc::raise(libc::SIGRTMIN() + 3) }, 0);
}

/// A trace of all events of this process.
#[derive(Clone, Copy)]
pub struct Traced {
    /// The simulated kernel.
    pub fake: &'static Fake,
    /// The trace.
    pub slot: usize,
}

/// A recorded event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `PROVIDER:NAME`
    pub name: String,
    /// The values of leading numeric fields.
    pub numbers: Vec<u64>,
    /// The values of text fields.
    pub texts: Vec<String>,
}

impl Traced {
    /// Starts the trace. The control ring has room for the descriptions of the tests' events, too.
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

    /// Stops the trace, and returns its events in order of time. (Reading them allocates.)
    #[must_use]
    pub fn stop(self) -> Vec<Event> {
        self.fake.stop(self.slot);
        update();
        self.events(0)
    }

    /// The events of a process, in order of time.
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
