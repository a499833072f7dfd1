//! A bystander: a traced process that must lose nothing, whatever happens to others.

use std::collections::BTreeMap;
use std::path::Path;

use nix::poll::PollTimeout;
use usertrace::Outcome;

use crate::child::Child;
use crate::consumer::Consumer;
use crate::control::Trace;
use crate::event::{attach, check_prefix, write};
use crate::parse;
use usertrace_testing::wait;

/// How many events it writes at once.
const BURST: u64 = 10;
/// After how many events it rests, because nobody reads them.
const MOST: u64 = 200_000;

/// A process that writes events from its start to [`Bystander::check`].
#[derive(Debug)]
pub struct Bystander {
    child: Child,
}

impl Bystander {
    /// A trace with room for the events of a bystander and of a test.
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
            link.send(0);
            while !link.is_ready(PollTimeout::from(1u8)) {
                burst();
            }
            link.send(burst());
        });
        child.link.receive();
        Self { child }
    }

    /// The prefix of its consumer files' names.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("{}.", self.child.pid())
    }

    /// Ends it, and checks that a trace, which was active all the time, has each of its events
    /// exactly once. Returns their count.
    ///
    /// # Panics
    /// If it has not.
    pub fn check(mut self, trace: &Trace) -> u64 {
        let written = self.end();
        let prefix = self.prefix();
        self.child.join();
        let path = wait::until_some("the bystander has a file", || {
            let mut files = trace.consumer_files("main").into_iter();
            files.find(|path| name(path).starts_with(&prefix))
        });
        check_events(parse::threads(&Consumer::open(&path)), written);
        written
    }

    /// Like [`Bystander::check`], when all other processes are dead. Returns their events by the
    /// names of their consumer files, and by thread.
    ///
    /// # Panics
    /// If it has not.
    #[must_use]
    pub fn check_beside(mut self, trace: &Trace) -> BTreeMap<String, BTreeMap<u32, Vec<u64>>> {
        let written = self.end();
        let prefix = self.prefix();
        self.child.join();
        let mut processes = parse::processes(trace);
        let key = processes
            .keys()
            .find(|name| name.starts_with(&prefix))
            .cloned();
        let own = key.and_then(|key| processes.remove(&key));
        check_events(own.expect("the bystander has a file"), written);
        processes
    }

    /// Ends it, and returns how much it wrote.
    fn end(&mut self) -> u64 {
        self.child.link.send(0);
        self.child.link.receive()
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().expect("a file");
    name.to_string_lossy().into_owned()
}

fn check_events(mut threads: BTreeMap<u32, Vec<u64>>, written: u64) {
    let numbers = threads.remove(&0).expect("its events");
    assert_eq!(check_prefix(&numbers), written, "what a bystander wrote");
    assert!(threads.is_empty(), "nobody else's");
}
