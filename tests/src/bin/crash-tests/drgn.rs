//! A second opinion on a dump: `scripts/drgn/events.py`, which shares no code with the extraction.

use std::path::Path;
use std::process::Command;

use usertrace_testing::babeltrace;
use usertrace_tests::event;

/// An event, as the script prints it.
struct Event {
    pid: u64,
    cycles: u64,
    thread: u32,
    number: u64,
}

/// The events that the script finds of a trace, in all channels and rings.
fn events(vmcore: &Path, trace: &str) -> Vec<Event> {
    let drgn = usertrace_vm::cache_dir()
        .expect("a cache")
        .join("tools/drgn-0.3.0");
    assert!(
        drgn.join("drgn").exists(),
        "drgn 0.3.0 (fetched by scripts/setup) must be there to run this test"
    );
    let output = Command::new("/usr/bin/python3")
        .env("PYTHONPATH", drgn)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(usertrace_vm::repository().join("scripts/drgn/events.py"))
        .arg(vmcore)
        .output()
        .expect("python3");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let printed = String::from_utf8(output.stdout).expect("text");
    let events = printed.lines().filter_map(|line| {
        let [name, pid, channel, _ring, cycles, _id, payload] =
            line.split(' ').collect::<Vec<_>>()[..]
        else {
            panic!("not an event: {line}");
        };
        assert_eq!(channel, "main");
        let bytes: Vec<_> = (0..payload.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&payload[at..at + 2], 16).expect("hexadecimal"))
            .collect();
        let (thread, number) = event::read(&bytes);
        (name == trace).then(|| Event {
            pid: pid.parse().expect("a number"),
            cycles: cycles.parse().expect("a number"),
            thread,
            number,
        })
    });
    events.collect()
}

/// Checks that the extracted trace has the events that the script finds, at the same times.
pub(crate) fn agrees(vmcore: &Path, trace: &str, extracted: &Path) {
    let mut found = events(vmcore, trace);
    let mut read = babeltrace::read(extracted).events;
    found.sort_by_key(|event| (event.cycles, event.pid, event.thread, event.number));
    read.sort_by_key(|event| (event.time, event.numbered()));
    let numbered: Vec<_> = found
        .iter()
        .map(|event| (event.thread, event.number))
        .collect();
    let extracted: Vec<_> = read.iter().map(babeltrace::Printed::numbered).collect();
    assert_eq!(numbered, extracted);
    let [(Some(first), Some(begin)), (Some(last), Some(end))] =
        [(found.first(), read.first()), (found.last(), read.last())]
    else {
        panic!("no event in {trace}");
    };
    let ns_per_cycle = (end.time - begin.time) as f64 / (last.cycles - first.cycles) as f64;
    for (one, other) in found.iter().zip(&read) {
        let expected = (one.cycles - first.cycles) as f64 * ns_per_cycle;
        let off = (other.time - begin.time) as f64 - expected;
        assert!(
            off.abs() < 3.0,
            "{off} ns at event {} of thread {}",
            one.number,
            one.thread
        );
    }
}
