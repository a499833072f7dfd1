//! What is extracted from a dump, and what should be.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use usertrace_tests::babeltrace::{self, Printed};
use usertrace_tests::event::check_prefix;
use usertrace_tests::program;

/// What a thread of `numbered` must have in a trace: its first events, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    thread: u32,
    events: u64,
    /// Whether it may have written more.
    more: bool,
}

impl Writer {
    pub(crate) fn exactly(thread: u32, events: u64) -> Self {
        Self {
            thread,
            events,
            more: false,
        }
    }

    pub(crate) fn at_least(thread: u32, events: u64) -> Self {
        Self {
            thread,
            events,
            more: true,
        }
    }
}

/// What a process must have in a trace.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) lost: u64,
    pub(crate) writers: Vec<Writer>,
}

/// What was extracted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dump {
    status: i32,
    traces: Vec<Trace>,
    /// What babeltrace2 reads, if there is anything.
    read: babeltrace::Read,
}

#[derive(Debug, PartialEq, Eq)]
struct Trace {
    name: String,
    active: bool,
    processes: Vec<Process>,
}

#[derive(Debug, PartialEq, Eq)]
struct Process {
    comm: String,
    events: u64,
    lost: u64,
}

impl Dump {
    /// Extracts a dump to a directory.
    pub(crate) fn extract(vmcore: &Path, to: &Path) -> Self {
        let json = to.with_extension("json");
        let output = Command::new(program::path("usertrace"))
            .arg("extract")
            .arg("--output")
            .arg(to)
            .arg(format!("--json={}", json.display()))
            .arg(vmcore)
            .output()
            .expect("usertrace runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let summary = std::fs::read(&json).unwrap_or_else(|e| panic!("no summary: {e}: {stderr}"));
        let summary: Value = serde_json::from_slice(&summary).expect("JSON");
        let traces: Vec<_> = list(&summary["traces"]).iter().map(Trace::new).collect();
        let any = traces.iter().any(|trace| !trace.processes.is_empty());
        let read = if any {
            let mut read = babeltrace::read(to);
            // In which order those of one nanosecond come is not the same each time.
            let place = |event: &Printed| (event.time, event.fields.clone());
            read.events.sort_by_key(place);
            read
        } else {
            babeltrace::Read::default()
        };
        let dump = Self {
            status: output.status.code().expect("it ended by itself"),
            traces,
            read,
        };
        assert_eq!(summary["problems"]["count"], 0, "{stderr}");
        // What the summary counts is what babeltrace2 does.
        let sum = |number: fn(&Process) -> u64| -> u64 {
            dump.traces
                .iter()
                .flat_map(|trace| &trace.processes)
                .map(number)
                .sum()
        };
        assert_eq!(sum(|process| process.events), dump.read.events.len() as u64);
        assert_eq!(sum(|process| process.lost), dump.read.discarded);
        dump
    }

    /// The one trace, of the one process.
    fn only(&self) -> &Process {
        assert_eq!(self.status, 0);
        let [trace] = &self.traces[..] else {
            panic!("not one trace: {:?}", self.traces);
        };
        assert_eq!((trace.name.as_str(), trace.active), ("crash", true));
        let [process] = &trace.processes[..] else {
            panic!("not one process: {trace:?}");
        };
        assert_eq!(process.comm, "numbered");
        process
    }

    pub(crate) fn check(&self, expected: &Expected) {
        assert_eq!(self.only().lost, expected.lost);
        self.check_writers(&expected.writers);
    }

    pub(crate) fn check_writers(&self, writers: &[Writer]) {
        self.only();
        let mut others = 0;
        for writer in writers {
            // In the order in which they are printed: that of time, in which each thread's numbers grow.
            let numbers: Vec<_> = self
                .read
                .events
                .iter()
                .map(|event| (event, event.numbered()))
                .filter(|(_, (thread, _))| *thread == writer.thread)
                .map(|(event, (thread, number))| {
                    assert_eq!(event.field("cpu_id"), u64::from(thread), "each on its CPU");
                    number
                })
                .collect();
            let count = check_prefix(&numbers);
            if writer.more {
                assert!(count >= writer.events, "{count} events of {writer:?}");
            } else {
                assert_eq!(count, writer.events, "{writer:?}");
            }
            others += count;
        }
        assert_eq!(
            self.read.events.len() as u64,
            others,
            "there are no other events"
        );
    }

    pub(crate) fn check_traces(&self, expected: &[(&str, bool, &[u64])]) {
        assert_eq!(self.status, 0);
        let found: Vec<_> = self
            .traces
            .iter()
            .map(|trace| {
                let counts: Vec<_> = trace
                    .processes
                    .iter()
                    .map(|process| process.events)
                    .filter(|&events| events > 0)
                    .collect();
                (trace.name.as_str(), trace.active, counts)
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|&(name, active, counts)| (name, active, counts.to_vec()))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(self.read.discarded, 0);
        let mut numbers: Vec<_> = self.read.events.iter().map(Printed::numbered).collect();
        numbers.sort_unstable();
        let mut expected: Vec<_> = expected
            .iter()
            .flat_map(|(_, _, counts)| counts)
            .flat_map(|&count| (0..count).map(|number| (0, number)))
            .collect();
        expected.sort_unstable();
        assert_eq!(numbers, expected);
    }

    pub(crate) fn check_nothing(&self) {
        assert_eq!(self.status, 4, "there is no trace in the dump");
        assert!(self.traces.is_empty());
    }
}

impl Trace {
    fn new(json: &Value) -> Self {
        Self {
            name: json["name"].as_str().expect("a name").into(),
            active: json["active"].as_bool().expect("a truth"),
            processes: list(&json["processes"]).iter().map(Process::new).collect(),
        }
    }
}

impl Process {
    fn new(json: &Value) -> Self {
        let number = |name: &str| {
            json[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{name}: {json}"))
        };
        assert_eq!((number("holes"), number("damaged")), (0, 0));
        Self {
            comm: json["comm"].as_str().expect("a name").into(),
            events: number("events"),
            lost: number("lost"),
        }
    }
}

fn list(json: &Value) -> &[Value] {
    json.as_array().expect("a list")
}
