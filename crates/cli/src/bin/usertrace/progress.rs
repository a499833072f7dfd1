//! Progress display of a recording.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use usertrace_consumer::RecordingProgress;

use crate::output;

/// Time between two lines, where standard error is no terminal.
const LINES: Duration = Duration::from_secs(10);

/// Shows progress on standard error: as one changing line in a terminal, otherwise as a line from
/// time to time.
pub(crate) struct Progress {
    terminal: bool,
    started: Instant,
    /// Time of the last line, and the events until then.
    last: Instant,
    events: u64,
}

impl Progress {
    /// Progress of a recording that begins now.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            terminal: io::stderr().is_terminal(),
            started: now,
            last: now,
            events: 0,
        }
    }

    /// Shows the recording's totals so far, if a line is due.
    pub(crate) fn show(&mut self, progress: &RecordingProgress) {
        let since = self.last.elapsed();
        if !self.terminal && since < LINES {
            return;
        }
        let new = progress.events.saturating_sub(self.events);
        let line = line(self.started.elapsed(), progress, new, since);
        if self.terminal {
            // Return to the start of the line, and erase the rest of a longer one.
            output::draw(format_args!("\r{}\x1b[K", output::readable(&line)));
        } else {
            output::say(line);
        }
        (self.last, self.events) = (Instant::now(), progress.events);
    }

    /// Ends the display, so that the summary can be printed.
    pub(crate) fn end(mut self) {
        self.clear_line();
    }

    /// Clears the line, so that something else can be printed.
    pub(crate) fn clear_line(&mut self) {
        if self.terminal {
            output::draw("\r\x1b[K");
        }
    }
}

/// Formats a line that fits a terminal, unless numbers are huge. `new` events came in the time
/// `since` the last line.
fn line(elapsed: Duration, progress: &RecordingProgress, new: u64, since: Duration) -> String {
    let rate = new as f64 / since.as_secs_f64().max(1e-3);
    format!(
        "{} s, {}, {} events ({rate:.0}/s), {}, {} lost",
        elapsed.as_secs(),
        output::count(progress.processes, "process", "processes"),
        progress.events,
        size(progress.bytes),
        progress.lost
    )
}

/// Formats a number of bytes in the unit that makes it short.
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
    fn line_has_rate_since_last_one() {
        let progress = RecordingProgress {
            processes: 1,
            events: 3000,
            bytes: 2048,
            lost: 7,
        };
        let text = line(
            Duration::from_secs(90),
            &progress,
            1000,
            Duration::from_millis(500),
        );
        assert_eq!(
            text,
            "90 s, 1 process, 3000 events (2000/s), 2.0 KiB, 7 lost"
        );
    }
}
