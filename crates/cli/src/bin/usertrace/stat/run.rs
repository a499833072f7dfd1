//! Runs a program, and shows what it counts.

use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use usertrace_consumer::{Limits, Notification, Options, RecorderEvent, Recording, TraceSetup};
use usertrace_ctf::Version;

use super::collected::Collected;
use super::request::Requests;
use super::show::Display;
use crate::output;
use crate::preload::{Preload, Wanted};
use crate::record::{self, FAILED, INTERRUPTED};
use crate::root::Root;

/// A program, and what to count of it.
#[derive(Debug)]
pub(super) struct Counting {
    pub(super) requests: Requests,
    pub(super) program: Vec<OsString>,
    pub(super) preload: Wanted,
    pub(super) root: Root,
    pub(super) interval: Option<Duration>,
}

impl Counting {
    /// Runs the program, and returns its status.
    pub(super) fn run(self, display: Display) -> ExitCode {
        self.try_run(display).unwrap_or_else(|error| {
            output::error(&error);
            FAILED.into()
        })
    }

    fn try_run(self, mut display: Display) -> anyhow::Result<ExitCode> {
        // Both must live until the program has ended.
        let preload = Preload::new(&self.preload)?;
        let directory = tempfile::Builder::new().prefix("usertrace-stat-").tempdir();
        let directory = directory.context("cannot make a temporary directory")?;
        let events = self.requests.filter();
        let requests = self.requests.0;
        let options = Options {
            root: self.root.path,
            trace: format!("usertrace-stat-{}", std::process::id()),
            setup: TraceSetup {
                // Nothing is written to the channel `main`.
                events,
                counts: requests.into_iter().map(|of| of.text).collect(),
                ..TraceSetup::default()
            },
            output: directory.path().join("traces"),
            version: Version::default(),
            program: self.program,
            environment: preload.iter().map(Preload::variable).collect(),
            pids: Vec::new(),
            kernel: None,
            limits: Limits {
                // Each chunk has the present states of all counters.
                rotate_time: self.interval,
                ..Limits::default()
            },
            relay: None,
        };
        let mut collected = Collected::default();
        let mut failed = None;
        let mut notify = |notification: Notification<'_>| {
            let Notification::RecorderEvent(event) = notification else {
                return;
            };
            let RecorderEvent::ChunkFinished(chunk) = event else {
                if event.is_trouble() {
                    output::say(event);
                }
                return;
            };
            collected.add_any(chunk.clone());
            // If this fails, the rest of the directory is removed at the end.
            let _ = fs::remove_dir_all(chunk);
            if failed.is_none() {
                failed = display.show(&mut collected, false).err();
            }
        };
        let (recorded, obstacles) = record::run_recording(&options, preload.is_some(), &mut notify);
        let recording = match recorded {
            Ok(recording) => recording,
            Err(error) => {
                let status = record::failure_status(&error);
                output::error(&error.into());
                return Ok(status.into());
            }
        };
        // A chunk that could not be finished, or all of it without chunks.
        collected.add_any(options.output.clone());
        record::report_problems(&recording, &obstacles);
        report_losses(&recording);
        let shown = display.show(&mut collected, true);
        if let Some(error) = failed {
            return Err(error);
        }
        shown?;
        if collected.counters.is_empty() && record::has_no_events(&recording, &obstacles) {
            output::say(
                "no event was counted: are there tracepoints in the program, and does -e name them? --malloc, --pthread, \
                 --dl and --function make events of what programs do that have none",
            );
        }
        if recording.incomplete > 0 || collected.is_damaged {
            return Ok(FAILED.into());
        }
        Ok(match recording.exit_status {
            Some(status) => ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)),
            None => INTERRUPTED.into(),
        })
    }
}

/// Reports pages for which there was no memory, and damaged cells.
fn report_losses(recording: &Recording) {
    for process in &recording.session.processes {
        let name = format!("process {:?} ({})", process.comm, process.pid);
        if process.holes > 0 {
            output::say(format_args!(
                "{name}: there was no memory for {}, and what they counted is missing",
                output::count(process.holes as usize, "counter", "counters")
            ));
        }
        if process.damaged > 0 {
            output::say(format_args!(
                "{name}: {} cannot be read, as the program overwrote them",
                output::count(process.damaged as usize, "counter", "counters")
            ));
        }
    }
}
