//! A stopped guest that runs `stepped`, and checks of its memory.

use std::collections::BTreeMap;

use usertrace_crash::Extraction;
use usertrace_tests::instants::{CHILD_EVENTS, SUBBUF_SIZE, words};

use crate::stopped_guest::{StoppedGuest, vmlinux};
use crate::symbols::Functions;

const MEMORY_MIB: u64 = 192;
/// The trace that exists all the time.
const STEADY: &str = "steady";
/// The limit of dead processes' buffers, in bytes: more than one child's events, and less than
/// those of all children of the warm-up.
const LIMIT_DEAD: u64 = 150_000;

/// The guest.
pub(crate) struct Stepped {
    pub(crate) guest: StoppedGuest,
    /// The tracer's functions in the kernel.
    pub(crate) kernel: Functions,
    seen: Summary,
    /// The last observation.
    last: Observation,
}

/// A summary of all observations.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) looks: u64,
    /// Looks that saw something new.
    pub(crate) changes: u64,
    /// Looks with the brief trace, and without it.
    pub(crate) with_brief: u64,
    pub(crate) without_brief: u64,
    /// Looks at each function.
    pub(crate) functions: BTreeMap<String, u64>,
}

/// The processes of each trace, and how many events each has.
type Observation = BTreeMap<String, Vec<(u32, u64, u64)>>;

impl Stepped {
    /// Boots the guest, with a trace that exists all the time.
    pub(crate) fn boot() -> Self {
        let setup = format!(
            "echo {LIMIT_DEAD} > limit_dead
             mkdir {STEADY}; echo global > {STEADY}/main/scope; echo 1 > {STEADY}/main/flight
             echo {SUBBUF_SIZE} > {STEADY}/main/subbuf_size; echo 4 > {STEADY}/main/subbuf_count
             echo 1 > {STEADY}/start"
        );
        let guest = StoppedGuest::boot(MEMORY_MIB, &setup, "stepped", &[]);
        let kernel = Functions::of(&vmlinux(), |name| {
            (name.contains("ltt_main") && !name.contains("::tests::")) || name.starts_with("ltt_")
        });
        Self {
            guest,
            kernel,
            seen: Summary::default(),
            last: Observation::new(),
        }
    }

    /// Lets the guest run to its end.
    pub(crate) fn end(self) -> Summary {
        self.guest.end();
        self.seen
    }

    /// Checks the guest's memory. It is stopped at this address, in this function.
    pub(crate) fn look(&mut self, function: &str, place: u64) {
        let extracted = self.guest.extract();
        let what = format!("before {place:#x} in {function}");
        let sight = self.check(&extracted.extraction, &what);
        self.seen.looks += 1;
        *self.seen.functions.entry(function.to_owned()).or_default() += 1;
        self.seen.changes += u64::from(sight != self.last);
        self.last = sight;
    }

    fn check(&mut self, extraction: &Extraction, what: &str) -> Observation {
        let problems = &extraction.problems;
        assert!(problems.is_empty(), "{what}: {problems:?}");
        let (child, of_child) = (
            self.guest.word(words::CHILD),
            self.guest.word(words::CHILD_RECORDED),
        );
        let own = self.guest.word(words::RECORDED);
        let mut sight = Observation::new();
        for trace in &extraction.traces {
            let mut children = 0;
            let processes = sight.entry(trace.name.clone()).or_default();
            for process in &trace.processes {
                let what = format!("{what}: {process:?}");
                let bad = (process.damaged, process.corrupted, process.holes);
                assert_eq!(bad, (0, 0, 0), "{what}");
                assert!(process.unfinished <= 1, "{what}");
                processes.push((process.pid, process.events, process.unfinished));
                let threads = self.guest.numbers(&process.directory);
                for (thread, numbers) in &threads {
                    let next = |pair: &[u64]| pair[0] + 1 == pair[1];
                    assert!(numbers.windows(2).all(next), "{what}: {numbers:?}");
                    let found = numbers.last().map_or(0, |last| last + 1);
                    let recorded = match thread {
                        0 => own,
                        _ if u64::from(process.pid) == child => of_child,
                        // Dead children have written all events.
                        _ => CHILD_EVENTS,
                    };
                    // The current event may be there, and the one before must be.
                    assert!(
                        found == recorded || found == recorded + 1,
                        "{what}: {found} in the dump, {recorded} recorded"
                    );
                }
                let is_child = u64::from(process.pid) == child;
                children += u64::from(is_child && !threads.is_empty());
            }
            let must_be = u64::from(child != 0 && of_child > 0);
            let is_stopped =
                trace.name == "brief" && self.guest.word(words::BRIEF) != words::EXISTS;
            assert!(
                children == must_be || is_stopped || children == 1 && of_child == 0,
                "{what}: {children} children in {trace:?}"
            );
        }
        let processes = sight.get(STEADY).map_or(0, Vec::len);
        assert!(processes > 0, "{what}: {STEADY} is not there");
        let is_there = sight.contains_key("brief");
        match self.guest.word(words::BRIEF) {
            words::EXISTS => assert!(is_there, "{what}: the brief trace is not there"),
            words::GONE => assert!(!is_there, "{what}: the brief trace is still there"),
            _ => {}
        }
        let seen = &mut self.seen;
        *(if is_there {
            &mut seen.with_brief
        } else {
            &mut seen.without_brief
        }) += 1;
        sight
    }
}
