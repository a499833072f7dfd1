//! How far the daemons have written everything, for a recording with live viewers.
//!
//! The marks of unfinished traces ([`unfinished`](crate::unfinished)) do not tell that: a process
//! may have events in its rings, but no trace yet. So the recorder creates a directory, where each
//! pair of daemons has a file before its program can write an event. The worker stores the time
//! there up to which all events of all its processes are in files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use usertrace_os::files;
use usertrace_sys::clock::monotonic;

/// The directory, below that of the recording. It is hidden from readers.
const DIRECTORY: &str = ".confirmations";
/// Digits of a time in ns of `CLOCK_MONOTONIC`.
const DIGITS: usize = 20;

/// The file of a pair of daemons, which keep it locked.
#[derive(Debug)]
pub struct Confirmation {
    file: File,
    path: PathBuf,
}

impl Confirmation {
    /// Creates the file of new daemons. All events up to `time` are in files, or there are none.
    /// None if nobody wants to know, or the file cannot be created.
    #[must_use]
    pub fn begin(output: &Path, time: u64) -> Option<Self> {
        let name = format!("{}-{}", std::process::id(), monotonic());
        let path = output.join(DIRECTORY).join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).ok()?;
        let confirmation = Self { file, path };
        confirmation.confirm(time);
        // On a file system without locks, readers take these daemons for ended.
        let _ = files::lock(&confirmation.file);
        Some(confirmation)
    }

    /// Stores that all events up to this time are in files.
    pub fn confirm(&self, time: u64) {
        // The time twice: so a reader notices a part of the new time beside a part of the old one.
        let text = format!("{time:0DIGITS$}").repeat(2);
        // Without it, viewers wait longer.
        let _ = self.file.write_all_at(text.as_bytes(), 0);
    }

    /// Removes the file: the daemons end.
    pub fn remove(&self) {
        // Readers ignore a file that stays: nobody has it locked.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes the daemons that start from now on say how far they have written everything.
///
/// # Errors
/// If the directory cannot be created.
pub fn want_confirmations(output: &Path) -> io::Result<()> {
    let made = fs::DirBuilder::new()
        .mode(0o700)
        .create(output.join(DIRECTORY));
    match made {
        // A recorder that was killed left it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes the directory, and what daemons that were killed left there.
///
/// # Errors
/// If it cannot be removed.
pub fn remove_confirmations(output: &Path) -> io::Result<()> {
    match fs::remove_dir_all(output.join(DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether all daemons that run, and say so, have written all events up to this time. A daemon that
/// starts after the call has none of them.
#[must_use]
pub fn is_confirmed(output: &Path, time: u64) -> bool {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::read_dir(output.join(DIRECTORY)) {
        Ok(mut entries) => entries.all(|entry| {
            entry.is_ok_and(|entry| match is_confirmed_by(&entry.path(), time) {
                Ok(is_confirmed) => is_confirmed,
                // If the file is gone, these daemons have ended. Another error, such as a lack of
                // descriptors, confirms nothing.
                Err(error) => is_gone(&error),
            })
        }),
        // Nobody has asked.
        Err(error) => is_gone(&error),
    }
}

fn is_confirmed_by(path: &Path, time: u64) -> io::Result<bool> {
    let mut file = files::open(OpenOptions::new().read(true), path)?;
    let mut text = String::new();
    // An unreadable file confirms nothing.
    let _ = file
        .by_ref()
        .take(2 * DIGITS as u64)
        .read_to_string(&mut text);
    let confirmed = text.split_at_checked(DIGITS).filter(|(a, b)| a == b);
    let confirmed = confirmed.and_then(|(time, _)| time.parse::<u64>().ok());
    Ok(confirmed >= Some(time) || !files::is_locked(&file).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_running_daemon_has_to_confirm() {
        let output = tempfile::tempdir().unwrap();
        let output = output.path();
        assert!(Confirmation::begin(output, 0).is_none(), "nobody asked");
        assert!(is_confirmed(output, u64::MAX));
        want_confirmations(output).unwrap();
        want_confirmations(output).unwrap();
        let later = 1000;
        let daemons = [0, 1].map(|n| Confirmation::begin(output, later - n).unwrap());
        assert!(is_confirmed(output, later - 1));
        assert!(!is_confirmed(output, later));
        let [first, second] = daemons;
        second.confirm(later + 1);
        assert!(is_confirmed(output, later));
        assert!(!is_confirmed(output, later + 1));
        // It has ended.
        first.remove();
        assert!(is_confirmed(output, later + 1));
        // It was killed.
        let last = later + 2;
        assert!(!is_confirmed(output, last));
        drop(second);
        assert!(is_confirmed(output, last));
        remove_confirmations(output).unwrap();
        remove_confirmations(output).unwrap();
        assert!(!output.join(DIRECTORY).exists());
    }

    /// Only a file or a directory that does not exist means that there is nobody to wait for.
    #[test]
    fn what_cannot_be_read_confirms_nothing() {
        let output = tempfile::tempdir().unwrap();
        let output = output.path();
        let directory = output.join(DIRECTORY);
        fs::write(&directory, "").unwrap();
        assert!(!is_confirmed(output, 0), "no directory");
        fs::remove_file(&directory).unwrap();
        want_confirmations(output).unwrap();
        let entry = directory.join("entry");
        fs::create_dir(&entry).unwrap();
        assert!(!is_confirmed(output, 0), "no regular file");
        fs::remove_dir(&entry).unwrap();
        std::os::unix::fs::symlink("entry", &entry).unwrap();
        assert!(!is_confirmed(output, 0), "a circle of links");
        fs::remove_file(&entry).unwrap();
        assert!(is_confirmed(output, u64::MAX));
    }

    /// A part of a time, or of two, confirms nothing.
    #[test]
    fn torn_time_confirms_nothing() {
        let output = tempfile::tempdir().unwrap();
        let output = output.path();
        want_confirmations(output).unwrap();
        let daemon = Confirmation::begin(output, 0).unwrap();
        let old = format!("{:0DIGITS$}", 19);
        let torn = format!("{:0DIGITS$}", 29);
        for text in [format!("{torn}{old}"), torn.clone(), String::new()] {
            daemon.file.set_len(0).unwrap();
            daemon.file.write_all_at(text.as_bytes(), 0).unwrap();
            assert!(!is_confirmed(output, 1), "{text:?}");
        }
        daemon.confirm(20);
        assert!(is_confirmed(output, 20));
    }
}
