//! The mark in the directory of a trace that its writer has not completed.
//!
//! Whoever writes the trace makes the mark before anything else, holds a lock of it, and removes it
//! when all is written. So a reader can tell a trace that is being written from one that stays as
//! it is. The mark has room for the reason from the start, as it may be that the disk is full.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use usertrace_os::{files, procfs};

/// Its name: hidden, so that no reader of CTF takes it for a stream.
pub const NAME: &str = ".unfinished";
/// Its length in bytes.
const LEN: usize = 256;
/// Where it says up to when all was written, in ns of `CLOCK_MONOTONIC`.
const WRITTEN: usize = 64;
/// Where the reason begins in it.
const REASON: usize = 96;

/// A mark that this process holds.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    path: PathBuf,
}

impl Unfinished {
    /// Marks a trace of a process, with the id that it has here, or goes on with a mark.
    ///
    /// # Errors
    /// When it cannot be written as a whole. Then there is none.
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
            // If this fails too, there is no better error to tell.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        // Where files cannot be locked, readers do not wait for the rest.
        let _ = files::lock(&file);
        Ok(Self { file, path })
    }

    /// Says that all is written that was in the rings at this time.
    pub fn written(&self, time: u64) {
        let text = format!("{time:<width$}", width = REASON - WRITTEN);
        // Nobody is there to be told that this failed.
        let _ = self.file.write_all_at(text.as_bytes(), WRITTEN as u64);
    }

    /// Says why the trace stays unfinished. Needs no room on the disk.
    pub fn fail(&self, reason: &str) {
        let mut bytes = reason.replace(char::is_control, " ").into_bytes();
        bytes.resize(LEN - REASON, b' ');
        // Nobody is there to be told that this failed.
        let _ = self.file.write_all_at(&bytes, REASON as u64);
    }

    /// The trace is as it is to be.
    pub fn remove(self) -> io::Result<()> {
        match fs::remove_file(self.path) {
            // Somebody else has.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// The state of a trace.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// It is complete, or was written by somebody who makes no marks.
    Complete,
    /// Its process goes on.
    Running,
    /// Its process has ended, and its writer is about to write the rest.
    Ending,
    /// Its writer has ended before it could complete it, for this reason, if it could say one.
    Incomplete(String),
}

/// The state of the trace in a directory.
pub fn state(directory: &Path) -> State {
    let Ok((file, text)) = open(directory) else {
        return State::Complete;
    };
    let reason = text.get(REASON..).unwrap_or("").trim_end().to_owned();
    let mut numbers = text.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (pid, there, started) = (next(), next(), next());
    if !files::is_locked(&file).unwrap_or(false) {
        // It may have been removed since it was opened.
        return match directory.join(NAME).exists() {
            true => State::Incomplete(reason),
            false => State::Complete,
        };
    }
    // An id of another namespace says nothing here.
    let is_it = |pid| procfs::start_ticks(pid) == Some(started) && !procfs::has_ended(pid);
    let has_ended = there == namespace() && !is_it(pid as u32);
    match has_ended {
        true => State::Ending,
        false => State::Running,
    }
}

fn open(directory: &Path) -> io::Result<(File, String)> {
    let mut file = files::open(OpenOptions::new().read(true), &directory.join(NAME))?;
    let mut text = String::new();
    // What the mark says is for people; a bad one says nothing.
    let _ = file.by_ref().take(LEN as u64).read_to_string(&mut text);
    Ok((file, text))
}

/// The process whose trace is marked, by the id that it has for its writer; nothing if there is no
/// mark.
pub fn process(directory: &Path) -> Option<u32> {
    let (_, text) = open(directory).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Up to when all was written; nothing if there is no mark, or that was never asked for.
pub fn written(directory: &Path) -> Option<u64> {
    let (_, text) = open(directory).ok()?;
    text.get(WRITTEN..REASON)?.trim_end().parse().ok()
}

/// Inode of the PID namespace of this process; 0 if it cannot be told.
fn namespace() -> u64 {
    procfs::pid_namespace("self").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_how_far_a_trace_is() {
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
    fn a_mark_may_have_anything_in_it() {
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
