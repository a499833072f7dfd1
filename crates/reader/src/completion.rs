//! Waits for traces whose processes have ended, but whose writers have not finished.

use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use usertrace_ctf::unfinished::{State, state};

/// How long to wait, for all traces together. The fallback's daemons give up sooner if they cannot
/// write.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before a message says so.
const ANNOUNCE_AFTER: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(2);

/// Waits for traces, up to a limit for all of them.
#[derive(Debug, Default)]
pub(super) struct Completion {
    waited: Duration,
    was_announced: bool,
}

impl Completion {
    /// Waits until the trace of an ended process is complete. If it stays incomplete, returns the
    /// reason, which may be empty.
    pub(super) fn wait(&mut self, directory: &Path) -> Option<String> {
        loop {
            match state(directory) {
                State::Complete | State::Running => return None,
                State::Incomplete(reason) => return Some(reason),
                State::Ending if self.waited >= TIMEOUT => {
                    return Some("it is still being written".to_owned());
                }
                State::Ending => self.pause(directory),
            }
        }
    }

    fn pause(&mut self, directory: &Path) {
        if !self.was_announced && self.waited >= ANNOUNCE_AFTER {
            self.was_announced = true;
            let name = usertrace_sys::printable(&directory.to_string_lossy());
            // The message is only informative.
            let _ = writeln!(
                io::stderr(),
                "usertrace: waiting until {name} is written to its end"
            );
        }
        let begun = Instant::now();
        thread::sleep(PAUSE);
        self.waited += begun.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usertrace_ctf::unfinished::Unfinished;

    /// Many forged marks cannot make a reader wait for each.
    #[test]
    fn reader_waits_once_for_all_traces() {
        let directory = tempfile::tempdir().unwrap();
        // No process has this id.
        let _mark = Unfinished::mark(directory.path(), 1 << 23).unwrap();
        let mut completion = Completion {
            waited: TIMEOUT,
            was_announced: true,
        };
        let why = completion.wait(directory.path());
        assert_eq!(why.as_deref(), Some("it is still being written"));
        assert_eq!(completion.waited, TIMEOUT);
    }
}
