//! What `stat` has read so far.

use std::path::PathBuf;

use usertrace_reader::{Counters, Item, LossKind, ReadError, Reader, Selection};

/// Counters of traces, and what is missing.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) counters: Counters,
    /// Events that were not counted.
    pub(super) lost: u64,
    /// Problems that were not reported yet.
    pub(super) problems: Vec<String>,
    /// Something is damaged or missing.
    pub(super) is_damaged: bool,
}

impl Collected {
    /// Adds the traces in or below these directories.
    pub(super) fn add(&mut self, directories: &[PathBuf]) -> Result<(), ReadError> {
        let mut reader = Reader::open(directories, Selection::default())?;
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => drop(self.counters.add(&event)),
                Item::Lost(lost) => {
                    let (LossKind::Events(lost) | LossKind::Packets(lost)) = lost.kind;
                    self.lost = self.lost.saturating_add(lost);
                }
                Item::Error(error) => {
                    self.is_damaged |= error.is_damage();
                    self.problems.push(error.to_string());
                }
            }
        }
        Ok(())
    }

    /// Adds the traces in or below a directory, in which there may be none.
    pub(super) fn add_any(&mut self, directory: PathBuf) {
        match self.add(&[directory]) {
            Ok(()) | Err(ReadError::NoTrace { .. }) => {}
            Err(error) => {
                self.is_damaged = true;
                self.problems.push(error.to_string());
            }
        }
    }
}
