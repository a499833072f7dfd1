//! How the daemons tell who waits for them what they recorded: a line for each process.

use std::io::{self, Write};
use std::path::Path;

use super::spawn::RUNNING;
use crate::ctf::ProcessSummary;

/// Numbers in a line, in front of the name.
const NUMBERS: usize = 13;

/// Adds a line, if somebody waits.
pub(super) fn tell(directory: &Path, summary: &ProcessSummary) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = match options.append(true).open(directory.join(RUNNING)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    file.write_all(line(summary).as_bytes())
}

fn line(summary: &ProcessSummary) -> String {
    let numbers: [i128; NUMBERS] = [
        summary.pid.into(),
        summary.process.into(),
        summary.event_kinds as i128,
        summary.events.into(),
        summary.lost.into(),
        summary.unfinished.into(),
        summary.holes.into(),
        summary.corrupted.into(),
        summary.damaged.into(),
        summary.overwritten.into(),
        summary.bytes.into(),
        // A trace without events has neither.
        summary.first_event_ns.map_or(i128::MIN, Into::into),
        summary.last_event_ns.map_or(i128::MIN, Into::into),
    ];
    let mut line: String = numbers.iter().map(|number| format!("{number} ")).collect();
    let name = summary.directory.file_name().unwrap_or_default();
    line += &format!("{} ", name.to_string_lossy());
    // Last, as it may have spaces; but no line is to be two.
    line += &summary.comm.replace('\n', " ");
    line.push('\n');
    line
}

/// What a line says of a process that was recorded to `directory`.
#[must_use]
pub fn parse_summary(directory: &Path, line: &str) -> Option<ProcessSummary> {
    let mut words = line.splitn(NUMBERS + 2, ' ');
    let mut numbers = [0i128; NUMBERS];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    let (name, comm) = (words.next()?, words.next()?);
    let count = |n: usize| u64::try_from(numbers[n]).ok();
    let time = |n: usize| i64::try_from(numbers[n]).ok();
    Some(ProcessSummary {
        trace: "fast".to_owned(),
        comm: comm.to_owned(),
        pid: u32::try_from(numbers[0]).ok()?,
        cmdline: None,
        process: count(1)?,
        directory: directory.join(name),
        event_kinds: usize::try_from(numbers[2]).ok()?,
        events: count(3)?,
        earlier: 0,
        lost: count(4)?,
        unfinished: count(5)?,
        holes: count(6)?,
        // That is of the kernel's buffers only.
        sunk: 0,
        corrupted: count(7)?,
        damaged: count(8)?,
        overwritten: count(9)?,
        bytes: count(10)?,
        first_event_ns: time(11),
        last_event_ns: time(12),
        rings: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        let summary = ProcessSummary {
            trace: "fast".into(),
            comm: "a b".into(),
            pid: 1,
            cmdline: None,
            process: u64::MAX,
            directory: "/traces/a_b-1-7".into(),
            event_kinds: 3,
            events: 4,
            earlier: 0,
            lost: 5,
            unfinished: 6,
            holes: 7,
            sunk: 0,
            corrupted: 8,
            damaged: 9,
            overwritten: 10,
            bytes: 11,
            first_event_ns: Some(-12),
            last_event_ns: None,
            rings: Vec::new(),
        };
        let parse = |line: &str| parse_summary(Path::new("/traces"), line);
        assert_eq!(parse(line(&summary).trim_end_matches('\n')), Some(summary));
        for bad in ["", "1 2 3", "x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
