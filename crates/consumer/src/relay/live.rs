//! The time up to which live viewers get events.
//!
//! Viewers merge all streams of a session by time, and fail when an event comes late: when they
//! have printed a later one. Processes write their rings one after another, and a new one has a
//! trace only after a while. So a live session gets packets only up to a time before which all
//! events of all processes are in files.

use std::path::Path;
use std::time::{Duration, Instant};

use usertrace_ctf::recording::is_confirmed;

use super::shared::Times;
use super::spool::{SpoolChunk, is_written};
use crate::daemons::ask_below;

/// How long to wait for a daemon that does not write its rings, as it was stopped. Its events come
/// too late for viewers then.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often daemons are asked in a period. An event waits for the next time, and up to the one
/// after it for the confirmation.
const ASKS: u32 = 3;
/// Periods for which streams stay open when everything was sent: viewers must find them before.
const LINGER: u32 = 10;

/// Finds the time up to which a live session may get events.
#[derive(Debug)]
pub(super) struct LiveBound {
    period: Duration,
    /// When the daemons were asked last to write their rings.
    asked: Option<(Instant, Times)>,
    /// The time before: each daemon has had a while to answer.
    awaited: Option<(Instant, Times)>,
    /// Whether all daemons had written everything up to that time before the spool was scanned.
    is_confirmed: bool,
    bound: Times,
    started: Times,
}

impl LiveBound {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            asked: None,
            awaited: None,
            is_confirmed: false,
            bound: Times::default(),
            started: Times::now(),
        }
    }

    /// All events before this are in the files of the spool that was scanned last.
    pub(super) fn times(&self) -> Times {
        self.bound
    }

    /// How long viewers may take to find a stream, and to read it.
    pub(super) fn linger(&self) -> Duration {
        self.period * LINGER
    }

    /// Makes the daemons write the contents of the rings some times in a period, and looks whether
    /// they have. Call this before the spool is scanned: what they say is about files that the scan
    /// finds then.
    pub(super) fn ask_daemons(&mut self, output: &Path) {
        let is_due = |(at, _): (Instant, _)| at.elapsed() >= self.period / ASKS;
        if self.asked.is_none_or(is_due) {
            let now = (Instant::now(), Times::now());
            // Those that cannot be asked write when a sub-buffer is full.
            let _ = ask_below(output);
            self.awaited = self.awaited.or(self.asked);
            self.asked = Some(now);
        }
        self.is_confirmed = self
            .awaited
            .is_some_and(|(_, times)| is_confirmed(output, times.monotonic));
    }

    /// Advances the bound, if all daemons have written their rings since the last question but one.
    /// Daemons that could not create a file to confirm that, as those of another user, only have
    /// the marks of their traces.
    pub(super) fn update_by_marks(&mut self, spool: &[SpoolChunk]) {
        let Some((at, times)) = self.awaited else {
            return;
        };
        let traces = || spool.iter().flat_map(|chunk| &chunk.traces);
        let mut late = traces().filter(|of| of.is_marked && of.written < Some(times.monotonic));
        if at.elapsed() >= PATIENCE || self.is_confirmed && !late.any(is_written) {
            self.bound = times;
            self.awaited = None;
        }
    }

    /// Advances the bound to a time that the recorder had confirmed before the spool was scanned.
    /// If it has confirmed none for long, as a program does not complete an event, the bound goes
    /// on without it.
    pub(super) fn confirm(&mut self, confirmed: Option<Times>) {
        let now = Times::now();
        let is_late = |since: Times| now.monotonic - since.monotonic >= PATIENCE.as_nanos() as u64;
        match confirmed {
            Some(times) if !is_late(times) => self.bound = times,
            None if !is_late(self.started) => {}
            _ => self.bound = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use usertrace_ctf::recording::{Confirmation, want_confirmations};

    use super::*;

    /// The time stands still for a process without a trace.
    #[test]
    fn each_daemon_has_to_confirm_a_time() {
        let output = tempfile::tempdir().unwrap();
        let output = output.path();
        want_confirmations(output).unwrap();
        let daemon = Confirmation::begin(output, 0).unwrap();
        let mut live = LiveBound::new(Duration::ZERO);
        let mut is_bound = || {
            live.ask_daemons(output);
            live.update_by_marks(&[]);
            live.times().monotonic != 0
        };
        // The first time is awaited from the second call on.
        assert_eq!([(); 3].map(|()| is_bound()), [false; 3]);
        daemon.confirm(Times::now().monotonic);
        assert!(is_bound());
    }
}
