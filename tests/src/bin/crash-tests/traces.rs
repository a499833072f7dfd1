//! Traces that were extracted from a dump, and their expected contents.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use usertrace_testing::babeltrace::{self, Printed};
use usertrace_tests::event::check_prefix;
use usertrace_tests::program;

/// The expected events of a thread of `numbered`: its first ones, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    thread: u32,
    events: u64,
    /// Whether more events are allowed.
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

/// The expected contents of a process in a trace.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) lost: u64,
    pub(crate) writers: Vec<Writer>,
}

/// An extraction of a dump.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dump {
    status: i32,
    crash: CrashPoint,
    traces: Vec<Trace>,
    /// The events that babeltrace2 reads.
    read: babeltrace::Read,
}

/// When and where the kernel crashed, as far as the dump says it.
#[derive(Debug, PartialEq, Eq)]
struct CrashPoint {
    ns: Option<i64>,
    cpu: Option<u64>,
    thread: Option<u64>,
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
        Self::extract_as(&[], vmcore, to).0
    }

    /// Like [`extract`](Self::extract), with options. Returns standard error, too.
    pub(crate) fn extract_as(options: &[&str], vmcore: &Path, to: &Path) -> (Self, String) {
        Self::try_extract(options, vmcore, to)
            .unwrap_or_else(|stderr| panic!("no summary: {stderr}"))
    }

    /// Like [`extract_as`](Self::extract_as). If nothing is extracted, returns standard error.
    pub(crate) fn try_extract(
        options: &[&str],
        vmcore: &Path,
        to: &Path,
    ) -> Result<(Self, String), String> {
        let json = summary(to);
        let output = Command::new(program::path("usertrace"))
            .arg("extract")
            .args(options)
            .arg("--output")
            .arg(to)
            .arg(format!("--json={}", json.display()))
            .arg(vmcore)
            .output()
            .expect("usertrace runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let status = output.status.code().expect("it ended by itself");
        if !json.exists() {
            assert_eq!(status, 1, "{stderr}");
            return Err(stderr);
        }
        Ok((Self::extracted(status, to), stderr))
    }

    /// Reads an extraction from a directory, with its summary beside it.
    pub(crate) fn extracted(status: i32, to: &Path) -> Self {
        let summary = std::fs::read(summary(to)).expect("a summary");
        let summary: Value = serde_json::from_slice(&summary).expect("JSON");
        let traces: Vec<_> = list(&summary["traces"]).iter().map(Trace::new).collect();
        let any = traces.iter().any(|trace| !trace.processes.is_empty());
        let read = if any {
            read_sorted(to)
        } else {
            babeltrace::Read::default()
        };
        let dump = Self {
            status,
            crash: CrashPoint {
                ns: summary["crash_ns"].as_i64(),
                cpu: summary["crash_cpu"].as_u64(),
                thread: summary["crash_thread"].as_u64(),
            },
            traces,
            read,
        };
        assert_eq!(summary["problems"]["count"], 0, "{summary}");
        // The counts of the summary equal babeltrace2's.
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

    /// Checks that the extraction in a directory has the same events.
    pub(crate) fn has_the_events_of(&self, directory: &Path) {
        assert_eq!(read_sorted(directory), self.read);
    }

    /// Checks that the crash was at the end of the events, on one of two CPUs, in a task that was
    /// not idle.
    pub(crate) fn check_crash(&self) {
        let CrashPoint { ns, cpu, thread } = self.crash;
        assert!(cpu.is_some_and(|cpu| cpu < 2), "{:?}", self.crash);
        assert!(thread.is_some_and(|thread| thread > 0), "{:?}", self.crash);
        let crashed = ns.expect("when it crashed");
        let Some(last) = self.read.events.last() else {
            return;
        };
        // Other CPUs go on until they are stopped, and the kernel first prints why it panics.
        let since = i128::from(crashed) - i128::from(last.time);
        assert!(
            (-1_000_000_000..10_000_000_000).contains(&since),
            "{since} ns"
        );
    }

    /// The times of the first and the last event, in nanoseconds since 1970.
    pub(crate) fn times(&self) -> Option<(u64, u64)> {
        let times = || self.read.events.iter().map(|event| event.time);
        Some((times().min()?, times().max()?))
    }

    /// The later half of the events, and how many nanoseconds before the crash it begins.
    pub(crate) fn later_half(&self) -> (i64, &[Printed]) {
        let events = self.printed();
        let mut pairs = events.windows(2).enumerate().skip(events.len() / 2);
        // The clock of the traces and nanoseconds are rounded to each other.
        let (at, time) = pairs
            .find_map(|(at, pair)| {
                let apart = pair[1].time - pair[0].time > 10;
                apart.then_some((at + 1, pair[1].time - 5))
            })
            .expect("two events that are some time apart");
        let crashed = self.crash.ns.expect("when it crashed");
        (crashed - time as i64, &events[at..])
    }

    /// The events that babeltrace2 prints, in the order of time.
    pub(crate) fn printed(&self) -> &[Printed] {
        &self.read.events
    }

    pub(crate) fn events(&self) -> usize {
        self.read.events.len()
    }

    /// The only process of the only trace.
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
            // In the order in which they are printed: that of time, in which each thread's numbers
            // grow.
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

    /// Checks counters by thread, of the numbers from 0 on: how many there are, and whether there
    /// may be more.
    pub(crate) fn check_counts(&self, threads: &[(u64, u64, bool)]) {
        let counters = self.read.events.iter();
        let counters: Vec<_> = counters
            .filter(|event| event.name == "usertrace:count")
            .collect();
        for &(thread, events, more) in threads {
            let key = thread.to_string();
            let of_thread = counters.iter().filter(|event| event.text("key") == key);
            let [counter] = of_thread.collect::<Vec<_>>()[..] else {
                panic!("not one counter of thread {thread}: {counters:?}");
            };
            let count = counter.field("count");
            assert!(
                count == events || more && count > events,
                "{count} of {events}"
            );
            assert_eq!(counter.field("values"), count);
            assert_eq!(counter.field("sum"), count * (count - 1) / 2);
            assert_eq!((counter.field("min"), counter.field("max")), (0, count - 1));
            assert_eq!(counter.text("value_name"), "number");
        }
        assert_eq!(counters.len(), threads.len(), "{counters:?}");
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
        let counts = expected.iter().flat_map(|(_, _, counts)| counts);
        self.check_numbers(counts.copied());
    }

    /// Checks that the events are the first ones of some processes, with these counts.
    fn check_numbers(&self, counts: impl Iterator<Item = u64>) {
        let mut numbers: Vec<_> = self.read.events.iter().map(Printed::numbered).collect();
        numbers.sort_unstable();
        let mut expected: Vec<_> = counts
            .flat_map(|count| (0..count).map(|number| (0, number)))
            .collect();
        expected.sort_unstable();
        assert_eq!(numbers, expected);
    }

    pub(crate) fn check_rings(&self, written: u64, traces: &[(&str, u64)]) {
        assert_eq!(self.status, 0);
        let found: Vec<_> = self
            .traces
            .iter()
            .map(|trace| {
                let counts = trace.processes.iter();
                let counts: Vec<_> = counts
                    .map(|process| (process.events, process.lost))
                    .collect();
                (trace.name.as_str(), trace.active, counts)
            })
            .collect();
        let expected: Vec<_> = traces
            .iter()
            .map(|&(name, events)| (name, true, vec![(events, written - events)]))
            .collect();
        assert_eq!(found, expected);
        self.check_numbers(traces.iter().map(|&(_, events)| events));
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
        let comm = json["comm"].as_str().expect("a name");
        let events = number("events");
        // The process gets no description in a trace that is not active.
        let cmdline = json["cmdline"].as_str();
        assert!(
            events == 0 || cmdline.is_some_and(|said| said.contains(comm)),
            "{json}"
        );
        Self {
            comm: comm.into(),
            events,
            lost: number("lost"),
        }
    }
}

fn read_sorted(directory: &Path) -> babeltrace::Read {
    let mut read = babeltrace::read(directory);
    // Events of the same nanosecond have no fixed order.
    let place = |event: &Printed| (event.time, event.fields.clone());
    read.events.sort_by_key(place);
    read
}

/// The path of the summary of an extraction: beside its directory, whose name may have dots.
fn summary(to: &Path) -> PathBuf {
    let mut path = to.as_os_str().to_owned();
    path.push(".json");
    path.into()
}

fn list(json: &Value) -> &[Value] {
    json.as_array().expect("a list")
}
