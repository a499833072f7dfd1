//! Names of chunks, the parts of a recording that rotates.
//!
//! A name has the start time of the chunk and its number. The number is never reused in a
//! directory, so names sort by time.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Suffix of the name of the chunk that is being written.
pub const CURRENT: &str = ".current";
/// Directory beside the traces with the recorder's notes.
pub const DIRECTORY: &str = ".usertrace";
/// The last second of the year 9999. Later dates have other lengths.
const LAST_SECOND: u64 = 253_402_300_799;

/// A chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chunk {
    /// Number, from 1 on.
    pub number: u64,
    /// Start time in seconds since 1970.
    pub begin: u64,
}

impl Chunk {
    /// Name of its directory when it is finished.
    pub fn name(&self) -> String {
        let seconds = Duration::from_secs(self.begin.min(LAST_SECOND));
        let time = humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + seconds).to_string();
        format!("{}-{:06}", time.replace(['-', ':'], ""), self.number)
    }

    /// Name of its directory while it is being written.
    pub fn current(&self) -> String {
        self.name() + CURRENT
    }

    /// The file that writers of the chunk lock, below `output`. It is not the chunk's directory:
    /// everybody who may read that could lock it and block writers.
    pub fn lock(&self, output: &Path) -> PathBuf {
        let name = format!("lock-{}", self.number);
        output.join(DIRECTORY).join(name)
    }

    /// Parses a file that names a chunk. None if it names none.
    pub fn from_text(text: &str) -> Option<Self> {
        let number = |key| value(text, key)?.parse().ok();
        let (number, begin) = (number("number")?, number("begin")?);
        (number != 0 && begin <= LAST_SECOND).then_some(Self { number, begin })
    }

    /// The chunk to start now, after number `before`.
    pub fn after(before: u64, now: SystemTime) -> Self {
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            number: before.saturating_add(1),
            begin: since.map_or(0, |since| since.as_secs()),
        }
    }

    /// The chunk to start now, after this one. Names sort by time even if the clock is set back.
    pub fn next(&self, now: SystemTime) -> Self {
        let next = Self::after(self.number, now);
        Self {
            begin: next.begin.max(self.begin),
            ..next
        }
    }

    /// Parses the number in a directory's name.
    pub fn number_of(name: &str) -> Option<u64> {
        let (time, number) = name.split_once('-')?;
        let is_time = time.len() == 16
            && time.bytes().enumerate().all(|(n, byte)| match n {
                8 => byte == b'T',
                15 => byte == b'Z',
                _ => byte.is_ascii_digit(),
            });
        let is_number = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
        (is_time && is_number)
            .then(|| number.parse().ok())
            .flatten()
    }

    /// Text of a file that names it: [`Self::from_text`] parses that.
    #[must_use]
    pub fn to_text(self) -> String {
        format!("number {}\nbegin {}\n", self.number, self.begin)
    }
}

/// The value of the line that begins with `key`.
pub fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find_map(|(of, value)| (of == key).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chunks_sort_by_time() {
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let chunk = Chunk::after(0, time(1_795_359_827));
        assert_eq!(chunk.name(), "20261122T150347Z-000001");
        assert_eq!(chunk.current(), "20261122T150347Z-000001.current");
        assert!(chunk.name() < Chunk::after(1, time(1_795_359_827)).name());
        assert!(
            Chunk::after(998, time(1_795_359_827)).name()
                < Chunk::after(7, time(1_795_359_828)).name()
        );
        assert_eq!(Chunk::number_of(&chunk.name()), Some(1));
        assert_eq!(
            Chunk::number_of("20261122T150347Z-1000000"),
            Some(1_000_000)
        );
        for other in [
            "prog-4711-3",
            "20261122T150347Z-",
            "20261122T150347Z-00001",
            "20261122X150347Z-000001",
            "20261122T150347Z-000001.current",
            "2026-11-22",
            "",
        ] {
            assert_eq!(Chunk::number_of(other), None, "{other}");
        }
    }

    /// Whatever a file contains, a chunk's name is that of a directory below the output.
    #[test]
    fn arbitrary_files_name_valid_chunks() {
        let chunk = Chunk::after(0, SystemTime::UNIX_EPOCH + Duration::from_secs(7));
        assert_eq!(Chunk::from_text(&chunk.to_text()), Some(chunk));
        let latest = format!("number {}\nbegin {LAST_SECOND}\n", u64::MAX);
        let latest = Chunk::from_text(&latest).unwrap();
        assert_eq!(latest.name(), "99991231T235959Z-18446744073709551615");
        assert_eq!(latest.next(SystemTime::UNIX_EPOCH), latest);
        for bad in [
            "",
            "number 0\nbegin 1\n",
            "number 1\n",
            "begin 1\n",
            "number ../1\nbegin 1\n",
            "number -1\nbegin 1\n",
            "number 1\nbegin 253402300800\n",
            "number 18446744073709551616\nbegin 1\n",
        ] {
            assert_eq!(Chunk::from_text(bad), None, "{bad}");
        }
    }
}
