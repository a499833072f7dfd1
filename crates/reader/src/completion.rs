//! Traces whose processes have ended, and that are not written to their end yet.

use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use usertrace_ctf::unfinished::{State, state};

/// How long to wait, for all traces together. The fallback's daemons give up sooner if they cannot
/// write.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before anybody is told that it takes long.
const TELLING: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(2);

/// How long a reader has waited for its traces.
#[derive(Debug, Default)]
pub(super) struct Completion {
    waited: Duration,
    is_told: bool,
}

impl Completion {
    /// Waits until a trace whose process has ended is written to its end. Gives the reason, which
    /// may be empty, if it stays incomplete.
    pub(super) fn wait(&mut self, directory: &Path) -> Option<String> {
        loop {
            match state(directory) {
                State::Complete | State::GoesOn => return None,
                State::Incomplete(reason) => return Some(reason),
                State::Ending if self.waited >= PATIENCE => {
                    return Some("it is still being written".to_owned());
                }
                State::Ending => self.pause(directory),
            }
        }
    }

    fn pause(&mut self, directory: &Path) {
        if !self.is_told && self.waited >= TELLING {
            self.is_told = true;
            let name = usertrace_sys::printable(&directory.to_string_lossy());
            // Nobody waits less if this cannot be said.
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

    /// Whoever makes many traces that look like that does not make a reader wait for each.
    #[test]
    fn a_reader_waits_once_for_all_traces() {
        let directory = tempfile::tempdir().unwrap();
        // No process has this id.
        let _mark = Unfinished::mark(directory.path(), 1 << 23).unwrap();
        let mut completion = Completion {
            waited: PATIENCE,
            is_told: true,
        };
        let why = completion.wait(directory.path());
        assert_eq!(why.as_deref(), Some("it is still being written"));
        assert_eq!(completion.waited, PATIENCE);
    }
}
