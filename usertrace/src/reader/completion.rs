//! Traces whose processes have ended, and that are not written to their end yet.

use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::ctf::unfinished::{State, state};

/// How long to wait for a trace. The fallback's daemons give up sooner if they cannot write.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before anybody is told that it takes long.
const TELLING: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until a trace whose process has ended is written to its end. Gives the reason, which may
/// be empty, if it stays incomplete.
pub(super) fn wait(directory: &Path) -> Option<String> {
    let begun = Instant::now();
    let mut told = false;
    loop {
        match state(directory) {
            State::Complete | State::GoesOn => return None,
            State::Incomplete(reason) => return Some(reason),
            State::Ending if begun.elapsed() >= PATIENCE => {
                return Some("it is still being written".to_owned());
            }
            State::Ending => {}
        }
        if !told && begun.elapsed() >= TELLING {
            told = true;
            let name = crate::printable::printable(&directory.to_string_lossy());
            // Nobody waits less if this cannot be said.
            let _ = writeln!(
                io::stderr(),
                "usertrace: waiting until {name} is written to its end"
            );
        }
        thread::sleep(PAUSE);
    }
}
