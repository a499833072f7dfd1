//! How far a recording is, for who waits for it.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use usertrace_consumer::RecordingProgress;

use crate::output;

/// Between two lines where they stay, as in a file.
const LINES: Duration = Duration::from_secs(10);

/// Says on standard error what was recorded: in a terminal, in one line that changes; elsewhere, in
/// a line now and then.
pub(crate) struct Progress {
    terminal: bool,
    started: Instant,
    /// When it was told last, and what.
    last: Instant,
    events: u64,
}

impl Progress {
    /// Of something that begins now.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            terminal: io::stderr().is_terminal(),
            started: now,
            last: now,
            events: 0,
        }
    }

    /// So far, it is this.
    pub(crate) fn tell(&mut self, so_far: &RecordingProgress) {
        let since = self.last.elapsed();
        if !self.terminal && since < LINES {
            return;
        }
        let new = so_far.events.saturating_sub(self.events);
        let line = line(self.started.elapsed(), so_far, new, since);
        if self.terminal {
            // To the start of the line, and what was longer before is erased.
            output::draw(format_args!("\r{}\x1b[K", output::readable(&line)));
        } else {
            output::say(line);
        }
        (self.last, self.events) = (Instant::now(), so_far.events);
    }

    /// It is over: there is room for what is to be said then.
    pub(crate) fn end(mut self) {
        self.make_room();
    }

    /// Something else is said.
    pub(crate) fn make_room(&mut self) {
        if self.terminal {
            output::draw("\r\x1b[K");
        }
    }
}

/// In less than the width of a terminal, as long as numbers are not astronomic. There were `new`
/// events `since` the last one.
fn line(elapsed: Duration, so_far: &RecordingProgress, new: u64, since: Duration) -> String {
    let rate = new as f64 / since.as_secs_f64().max(1e-3);
    format!(
        "{} s, {}, {} events ({rate:.0}/s), {}, {} lost",
        elapsed.as_secs(),
        output::count(so_far.processes, "process", "processes"),
        so_far.events,
        size(so_far.bytes),
        so_far.lost
    )
}

/// A number of bytes, in the unit that leaves it short.
fn size(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            let digits = usize::from(unit != "bytes");
            return format!("{size:.digits$} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (5 << 29, "2.5 GiB"),
            (3 << 50, "3072.0 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn a_line_has_the_rate_since_the_last_one() {
        let so_far = RecordingProgress {
            processes: 1,
            events: 3000,
            bytes: 2048,
            lost: 7,
        };
        let text = line(
            Duration::from_secs(90),
            &so_far,
            1000,
            Duration::from_millis(500),
        );
        assert_eq!(
            text,
            "90 s, 1 process, 3000 events (2000/s), 2.0 KiB, 7 lost"
        );
    }
}
