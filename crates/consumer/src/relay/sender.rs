//! Starts and ends the sending thread.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use usertrace_ctf::recording::remove_confirmations;

use super::event::RelayEvent;
use super::forwarder::Forwarder;
use super::note::RelayNote;
use super::shared::{RelayOptions, RelaySummary, Shared, SpoolWriter, Times, lock};
use super::spool;
use crate::chunks;
use crate::error::OutputError;

/// How often to measure the spool, and how long not to, as a multiple of the time that it took.
const LOOK: Duration = Duration::from_millis(100);
const PAUSE_FACTOR: u32 = 20;
/// How often to look for events while a recording is sent.
const WAIT: Duration = Duration::from_millis(20);

/// Sends a recording in a thread of its own.
#[derive(Debug)]
pub(crate) struct RelaySender {
    output: PathBuf,
    options: RelayOptions,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<RelaySummary>>,
    /// When to measure the spool again.
    next_look: Option<Instant>,
    is_full: bool,
}

impl RelaySender {
    /// Whether a part of the recording in `output` waits for a relay.
    pub(crate) fn is_wanted(output: &Path) -> bool {
        RelayNote::is_there(output)
    }

    /// Starts to send the recording of a trace in `output`.
    ///
    /// # Errors
    /// If the note in the directory cannot be written, or there can be no thread.
    pub(crate) fn start(
        output: &Path,
        trace: &str,
        options: &RelayOptions,
        writer: SpoolWriter,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let forwarder = Forwarder::new(output, trace, options.clone(), writer, shared.clone())?;
        let thread = thread::Builder::new().name("relay".to_owned());
        Ok(Self {
            output: output.to_owned(),
            options: options.clone(),
            shared,
            thread: Some(thread.spawn(move || forwarder.run())?),
            next_look: None,
            is_full: false,
        })
    }

    /// The events since the last call.
    pub(crate) fn take_events(&self) -> Vec<RelayEvent> {
        std::mem::take(&mut lock(&self.shared.events))
    }

    /// Whether the spool is full, so that nothing is to be read from the rings.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn is_full(&mut self) -> io::Result<bool> {
        let begun = Instant::now();
        if self.next_look.is_some_and(|at| begun < at) {
            return Ok(self.is_full);
        }
        let limit = self.options.spool_limit();
        let is_full = chunks::size(&self.output)? >= limit;
        // Measuring thousands of files is expensive.
        let took = begun.elapsed();
        self.next_look = Some(begun + LOOK.max(took * PAUSE_FACTOR));
        if is_full != self.is_full {
            self.is_full = is_full;
            self.shared.is_full.store(is_full, Ordering::Relaxed);
            let path = self.output.clone();
            lock(&self.shared.events).push(match is_full {
                true => RelayEvent::Full { path, limit },
                false => RelayEvent::Available { path },
            });
        }
        Ok(is_full)
    }

    /// Whether there may be live viewers.
    pub(crate) fn is_live(&self) -> bool {
        self.options.live.is_some()
    }

    /// Tells the sender that all events before a time are in the files.
    pub(crate) fn confirm(&self, times: Times) {
        *lock(&self.shared.confirmed) = Some(times);
    }

    /// Tells the sender that nothing more will be written. It ends when it has sent everything.
    pub(crate) fn close(&self) {
        // Pairs with the load of the thread: it finds everything that was written before.
        self.shared.is_over.store(true, Ordering::Release);
    }

    /// Whether the thread has ended, after [`close`](Self::close).
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends the rest of a recording that has ended. `notify` is called for each event. `wait`
    /// waits a moment, and returns false to give up earlier. `None`: the thread panicked.
    pub(crate) fn finish<E>(
        mut self,
        notify: &mut dyn FnMut(RelayEvent),
        mut wait: impl FnMut() -> Result<bool, E>,
    ) -> Result<Option<RelaySummary>, E> {
        self.close();
        let ended = Instant::now();
        let is_late = |patience: Duration| ended.elapsed() >= patience;
        let mut failed = None;
        while !self.is_finished() {
            self.take_events().into_iter().for_each(&mut *notify);
            match wait() {
                Ok(true) if !self.options.patience.is_some_and(is_late) => {}
                Ok(_) => self.shared.cancel.cancel(),
                Err(error) => {
                    self.shared.cancel.cancel();
                    failed = Some(error);
                }
            }
        }
        self.take_events().into_iter().for_each(notify);
        let summary = self.thread.take().and_then(|thread| thread.join().ok());
        failed.map_or(Ok(summary), Err)
    }
}

impl Drop for RelaySender {
    fn drop(&mut self) {
        self.shared.cancel.cancel();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed.
            let _ = thread.join();
        }
    }
}

/// Removes the note beside a recording that was never begun.
pub(crate) fn forget_unused(output: &Path) {
    let is_unused = chunks::chunks(output).is_ok_and(|chunks| chunks.is_empty());
    if is_unused {
        // The caller reports an earlier error; a failure here would hide it.
        let _ = RelayNote::remove(output);
        let _ = remove_confirmations(output);
    }
}

/// A recording to send that has ended, or whose recorder was killed.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// The directory of the recording.
    pub recording: PathBuf,
    /// Name of the session, unless the recording was sent before.
    pub name: String,
    /// The relay.
    pub relay: RelayOptions,
}

/// Why a recording cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendRecordingError {
    /// The directory has no trace.
    #[error("\"{}\" has no trace to send", .0.display())]
    NoTrace(PathBuf),
    /// The directory cannot be read.
    #[error("cannot read \"{}\"", path.display())]
    Read {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The note of what is on the relay cannot be written, or another process sends the recording.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Sends a recording that has ended, or that the daemons of traced programs still write. A second
/// call replaces what the first one left on the relay. The recording stays.
///
/// `notify` is called for each event.
///
/// # Errors
/// If the directory has no recording, another process sends it, or the note in it cannot be
/// written.
pub fn send_recording(
    options: &SendOptions,
    notify: &mut dyn FnMut(RelayEvent),
) -> Result<Option<RelaySummary>, SendRecordingError> {
    let output = &options.recording;
    let has_traces = spool::has_traces(output).map_err(|source| SendRecordingError::Read {
        path: output.clone(),
        source,
    })?;
    // Nothing is written to a directory that is no recording.
    if !has_traces && !spool::is_recorded(output) && !RelaySender::is_wanted(output) {
        return Err(SendRecordingError::NoTrace(output.clone()));
    }
    let writer = SpoolWriter::Nobody;
    let sender = RelaySender::start(output, &options.name, &options.relay, writer);
    let sender = sender.map_err(OutputError::at(output))?;
    sender.finish(notify, || {
        thread::sleep(WAIT);
        Ok(true)
    })
}
