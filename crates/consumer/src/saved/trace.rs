//! The settings of a trace, independent of text and of the kernel.

use std::path::PathBuf;

use super::key::{Key, Value};

/// The traces of one file.
#[derive(Clone, Debug)]
pub struct SavedFile {
    /// The file, for errors.
    pub(super) path: PathBuf,
    pub(super) traces: Vec<SavedTrace>,
}

/// The settings of a trace.
#[derive(Clone, Debug)]
pub struct SavedTrace {
    pub(super) name: String,
    /// The line of its name; 0 if it is from no file.
    pub(super) line: usize,
    pub(super) settings: Vec<Setting>,
    /// In the order in which the kernel searches them for an event.
    pub(super) channels: Vec<SavedChannel>,
}

/// The settings of a channel.
#[derive(Clone, Debug)]
pub(super) struct SavedChannel {
    pub(super) name: String,
    /// The line of its name; 0 if it is from no file.
    pub(super) line: usize,
    pub(super) settings: Vec<Setting>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) key: &'static Key,
    pub(super) value: Value,
    /// The line of the key; 0 if it is from no file.
    pub(super) line: usize,
}

/// Finds a setting by its key.
pub(super) fn setting<'a>(settings: &'a [Setting], key: &Key) -> Option<&'a Setting> {
    settings.iter().find(|setting| setting.key.name == key.name)
}
