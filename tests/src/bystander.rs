//! A process that is traced, and has nothing to do with what happens to others: it must lose nothing.

use nix::poll::PollTimeout;
use usertrace::Outcome;

use crate::child::Child;
use crate::consumer::Consumer;
use crate::control::Trace;
use crate::event::{attach, check_prefix, write};
use crate::{parse, wait};

/// Events that it writes at once.
const BURST: u64 = 50;
/// When it has written as many it rests, as nobody reads what it writes.
const MOST: u64 = 400_000;

/// A process that writes events from its start to [`Bystander::check`].
#[derive(Debug)]
pub struct Bystander {
    child: Child,
}

impl Bystander {
    /// A trace with room for what it writes, and whatever happens beside it.
    #[must_use]
    pub fn trace(name: &str) -> Trace {
        Trace::started_with(name, 65536, 256)
    }

    /// Starts it, and waits for its first events.
    #[must_use]
    pub fn start() -> Self {
        let mut child = Child::spawn(|link| {
            attach();
            let mut written = 0;
            let mut burst = || {
                let end = (written + BURST).min(MOST);
                while written < end {
                    assert_eq!(write(0, written), Outcome::Recorded);
                    written += 1;
                }
                written
            };
            burst();
            link.tell(0);
            while !link.is_told(PollTimeout::from(1u8)) {
                burst();
            }
            link.tell(burst());
        });
        child.link.hear();
        Self { child }
    }

    /// Ends it, and checks that this trace, which was active all the time, has each of its events exactly once.
    ///
    /// # Panics
    /// If it has not.
    pub fn check(mut self, trace: &Trace) {
        self.child.link.tell(0);
        let written = self.child.link.hear();
        let name = format!("{}.", self.child.pid());
        self.child.join();
        let file = wait::until_some("the bystander has a file", || {
            trace.consumer_files("main").into_iter().find(|path| {
                path.file_name()
                    .is_some_and(|file| file.to_string_lossy().starts_with(&name))
            })
        });
        let mut threads = parse::threads(&Consumer::open(&file));
        let numbers = threads.remove(&0).expect("its events");
        assert_eq!(check_prefix(&numbers), written, "what a bystander wrote");
        assert!(threads.is_empty(), "nobody else's");
    }
}
