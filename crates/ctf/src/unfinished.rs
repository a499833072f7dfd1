//! The mark in a trace's directory that its writer has not completed it.
//!
//! A writer creates the mark before anything else, holds a lock on it, and removes it at the end.
//! So a reader can tell a trace that is being written from one that stays incomplete. The mark has
//! room for the reason from the start, as the disk may be full later.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use usertrace_os::{files, procfs};

/// Name of the mark. It is hidden, so that CTF readers do not take it for a stream.
pub const NAME: &str = ".unfinished";
/// Length of the mark in bytes.
const LEN: usize = 256;
/// Offset of the time up to which everything was written, in ns of `CLOCK_MONOTONIC`.
const WRITTEN: usize = 64;
/// Offset of the reason.
const REASON: usize = 96;

/// A mark that this process holds.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    path: PathBuf,
}

impl Unfinished {
    /// Creates the mark of a process's trace, or takes over an existing one. `pid` is the process
    /// id in this namespace.
    ///
    /// # Errors
    /// If the mark cannot be written completely. It is removed then.
    pub fn mark(directory: &Path, pid: u32) -> io::Result<Self> {
        let path = directory.join(NAME);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = files::open_to_write(options, &path)?;
        let start = procfs::start_ticks(pid).unwrap_or(0);
        let mut text = format!("{pid} {} {start}", namespace());
        text.truncate(WRITTEN);
        let mut bytes = text.into_bytes();
        bytes.resize(LEN, b' ');
        if let Err(error) = file.write_all_at(&bytes, 0) {
            // The first error is the one to report.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        // Without file locks, readers just do not wait for the rest.
        let _ = files::lock(&file);
        Ok(Self { file, path })
    }

    /// Notes that everything that was in the rings at `time` is written.
    pub fn written(&self, time: u64) {
        let text = format!("{time:<width$}", width = REASON - WRITTEN);
        // Without the note, a snapshot only waits longer.
        let _ = self.file.write_all_at(text.as_bytes(), WRITTEN as u64);
    }

    /// Notes why the trace stays incomplete. Needs no room on the disk.
    pub fn fail(&self, reason: &str) {
        let mut bytes = reason.replace(char::is_control, " ").into_bytes();
        bytes.resize(LEN - REASON, b' ');
        // There is nobody to report a failure to.
        let _ = self.file.write_all_at(&bytes, REASON as u64);
    }

    /// Removes the mark: the trace is complete.
    pub fn remove(self) -> io::Result<()> {
        match fs::remove_file(self.path) {
            // Somebody else has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// State of a trace.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// Complete, or written by a writer that makes no marks.
    Complete,
    /// Its process is running.
    Running,
    /// Its process has ended, and its writer has yet to write the rest.
    Ending,
    /// Its writer ended before it completed the trace, for this reason, which may be empty.
    Incomplete(String),
}

/// Returns the state of the trace in a directory.
pub fn state(directory: &Path) -> State {
    let Ok((file, text)) = open(directory) else {
        return State::Complete;
    };
    let reason = text.get(REASON..).unwrap_or("").trim_end().to_owned();
    let mut numbers = text.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (pid, pid_namespace, started) = (next(), next(), next());
    if !files::is_locked(&file).unwrap_or(false) {
        // The mark may have been removed since it was opened.
        return match directory.join(NAME).exists() {
            true => State::Incomplete(reason),
            false => State::Complete,
        };
    }
    // A process id of another namespace is meaningless here.
    let is_same_process =
        |pid| procfs::start_ticks(pid) == Some(started) && !procfs::has_ended(pid);
    let has_ended = pid_namespace == namespace() && !is_same_process(pid as u32);
    match has_ended {
        true => State::Ending,
        false => State::Running,
    }
}

fn open(directory: &Path) -> io::Result<(File, String)> {
    let mut file = files::open(OpenOptions::new().read(true), &directory.join(NAME))?;
    let mut text = String::new();
    // A damaged mark counts as an empty one.
    let _ = file.by_ref().take(LEN as u64).read_to_string(&mut text);
    Ok((file, text))
}

/// The id of the process whose trace is marked, in the namespace of its writer. None if there is no
/// mark.
pub fn process(directory: &Path) -> Option<u32> {
    let (_, text) = open(directory).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// The time up to which everything is written. None if there is no mark, or no such note.
pub fn written(directory: &Path) -> Option<u64> {
    let (_, text) = open(directory).ok()?;
    text.get(WRITTEN..REASON)?.trim_end().parse().ok()
}

/// Inode of this process's PID namespace, or 0.
fn namespace() -> u64 {
    procfs::pid_namespace("self").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_the_state_of_a_trace() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert_eq!(state(directory), State::Complete);
        let own = std::process::id();
        let mark = Unfinished::mark(directory, own).unwrap();
        assert_eq!(state(directory), State::Running);
        drop(mark);
        assert_eq!(state(directory), State::Incomplete(String::new()));
        // No process has this id.
        let mark = Unfinished::mark(directory, 1 << 23).unwrap();
        assert_eq!(state(directory), State::Ending);
        mark.fail("No space\nleft");
        drop(mark);
        let reason = "No space left".to_owned();
        assert_eq!(state(directory), State::Incomplete(reason));
        let mark = Unfinished::mark(directory, own).unwrap();
        assert_eq!(state(directory), State::Running);
        mark.remove().unwrap();
        assert_eq!(state(directory), State::Complete);
    }

    #[test]
    fn damaged_marks_are_tolerated() {
        let directory = tempfile::tempdir().unwrap();
        for bytes in [&b""[..], &[0xff; 300], &[b'9'; 64]] {
            fs::write(directory.path().join(NAME), bytes).unwrap();
            assert_eq!(
                state(directory.path()),
                State::Incomplete(String::new()),
                "{bytes:?}"
            );
        }
    }
}
