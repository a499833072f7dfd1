//! This process's mappings of trace areas.

use std::fs;

/// A line of `/proc/self/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: usize,
    /// The address after the last one.
    pub end: usize,
    /// Its permissions, for example `r--s`.
    pub rights: String,
}

impl Mapping {
    /// Its length.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.end - self.start
    }
}

/// The mappings of trace areas that this process has.
///
/// # Panics
/// If the file is not what it should be.
#[must_use]
pub fn areas() -> Vec<Mapping> {
    let text = fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    text.lines()
        .filter(|line| line.contains("[ltt]"))
        .map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words
                .next()
                .and_then(|range| range.split_once('-'))
                .expect("a range");
            let number = |text| usize::from_str_radix(text, 16).expect("an address");
            Mapping {
                start: number(start),
                end: number(end),
                rights: words.next().expect("rights").to_owned(),
            }
        })
        .collect()
}
