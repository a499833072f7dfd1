//! Summaries that daemons write for a waiting recorder: one line for each process.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use usertrace_os::files;

use super::RUNNING;
use crate::ProcessSummary;

/// Numbers in a line, before the name.
const NUMBERS: usize = 13;

/// Appends the line of a process to the file [`RUNNING`], if a recorder waits.
///
/// # Errors
/// If the file cannot be written.
pub fn add_summary(directory: &Path, summary: &ProcessSummary) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = match files::open_to_write(options.append(true), &directory.join(RUNNING)) {
        // A waiting recorder has created a regular file.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
            ) =>
        {
            return Ok(());
        }
        file => file?,
    };
    file.write_all(line(directory, summary).as_bytes())
}

/// Traces that stayed incomplete, and the error of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Number of traces.
    pub processes: u32,
    /// Error number of the last one.
    pub errno: i32,
    /// Bytes that stayed in their rings.
    pub bytes: u64,
    /// Events that were discarded, as the rings were full.
    pub lost: u64,
}

impl Failures {
    /// Length of the first line of the file, which has these numbers.
    const LEN: usize = 80;

    /// Formats the first line. The recorder writes one without failures when it creates the file,
    /// so that a full disk has room for it later.
    #[must_use]
    pub fn line(self) -> String {
        let Self {
            processes,
            errno,
            bytes,
            lost,
        } = self;
        let text = format!("failed {processes} {errno} {bytes} {lost}");
        format!("{text:<width$}\n", width = Self::LEN - 1)
    }

    /// Parses such a line. None if it is not one.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("failed ")?.split_ascii_whitespace();
        Some(Self {
            processes: words.next()?.parse().ok()?,
            errno: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
            lost: words.next()?.parse().ok()?,
        })
    }
}

/// Adds an incomplete trace to the first line of the file [`RUNNING`], if a recorder waits.
pub fn add_failure(directory: &Path, errno: i32, bytes: u64, lost: u64) {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let Ok(file) = files::open_to_write(options, &directory.join(RUNNING)) else {
        return;
    };
    // There is nobody to report a failure to.
    let _ = update_failures(&file, |before| Failures {
        processes: before.processes.saturating_add(1),
        errno,
        bytes: before.bytes.saturating_add(bytes),
        lost: before.lost.saturating_add(lost),
    });
}

fn update_failures(file: &File, update: impl Fn(Failures) -> Failures) -> io::Result<()> {
    // Daemons of other programs may do the same, which takes a moment. The lock ends with the
    // descriptor.
    files::retry_lock(|| files::lock(file))?;
    let mut line = [0; Failures::LEN];
    file.read_exact_at(&mut line, 0)?;
    let line = std::str::from_utf8(&line).ok().and_then(Failures::parse);
    let Some(before) = line else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    file.write_all_at(update(before).line().as_bytes(), 0)
}

fn line(directory: &Path, summary: &ProcessSummary) -> String {
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
    // Includes the chunk, if there is one.
    let name = summary.directory.strip_prefix(directory);
    let name = name.unwrap_or(&summary.directory);
    line += &format!("{} ", name.to_string_lossy());
    // Last, as it may have spaces. A line must stay a single line.
    line += &summary.comm.replace('\n', " ");
    line.push('\n');
    line
}

/// Parses the line of a process that was recorded to `directory`.
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
        // Only the kernel's buffers have it.
        sunk: 0,
        corrupted: count(7)?,
        damaged: count(8)?,
        overwritten: count(9)?,
        bytes: count(10)?,
        first_event_ns: time(11),
        last_event_ns: time(12),
        ..ProcessSummary::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(RUNNING);
        // No recorder waits.
        add_failure(directory.path(), libc::ENOSPC, 10, 3);
        assert!(!path.exists());
        let none = Failures::default().line();
        std::fs::write(&path, format!("{none}other\n")).unwrap();
        add_failure(directory.path(), libc::ENOSPC, 10, 3);
        add_failure(directory.path(), libc::EDQUOT, 1, 1);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let failures = Failures {
            processes: 2,
            errno: libc::EDQUOT,
            bytes: 11,
            lost: 4,
        };
        assert_eq!(Failures::parse(lines[0]), Some(failures));
        assert_eq!(lines[1..], ["other"]);
        let most = Failures {
            processes: u32::MAX,
            errno: i32::MIN,
            bytes: u64::MAX,
            lost: u64::MAX,
        };
        assert_eq!(
            (none.len(), most.line().len()),
            (Failures::LEN, Failures::LEN)
        );
    }

    #[test]
    fn lines_round_trip() {
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
            ..ProcessSummary::default()
        };
        let parse = |line: &str| parse_summary(Path::new("/traces"), line);
        let directory = Path::new("/traces");
        for name in ["a_b-1-7", "20261122T150347Z-000001.current/a_b-1-7"] {
            let summary = ProcessSummary {
                directory: directory.join(name),
                ..summary.clone()
            };
            let line = line(directory, &summary);
            assert_eq!(parse(line.trim_end_matches('\n')), Some(summary));
        }
        for bad in ["", "1 2 3", "x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
