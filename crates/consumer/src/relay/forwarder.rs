//! The thread that sends: keeps a session with the relay, and sends what the spool has.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use usertrace_ctf::new_uuid;
use usertrace_os::socket;
use usertrace_relay::{Connection, RelayError, Session, TimeLimits};

use super::event::RelayEvent;
use super::note::RelayNote;
use super::sent::{SendError, SentTrace};
use super::shared::{RelayOptions, RelaySummary, Shared, SpoolWriter, Times, lock};
use super::spool::{self, SpoolChunk, SpoolTrace};
use crate::chunks;
use crate::daemons::ask_below;
use crate::error::describe;

/// How often to look for something to send.
const POLL: Duration = Duration::from_millis(50);
/// How long to wait before the next attempt to connect: at first, and at most.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// Bytes to send before the spool is listed again.
const BUDGET: u64 = 16 << 20;

/// The frequency of traces whose clock is `CLOCK_MONOTONIC`.
const NS: u64 = 1_000_000_000;

/// Sends a recording.
#[derive(Debug)]
pub(super) struct Forwarder {
    output: PathBuf,
    options: RelayOptions,
    writer: SpoolWriter,
    note: RelayNote,
    shared: Arc<Shared>,
    limits: TimeLimits,
    session: Option<RelaySession>,
    /// Directory of the last session.
    path: String,
    backoff: Duration,
    /// When to connect again.
    retry: Instant,
    /// The last error that was reported, until the relay takes something.
    reported: Option<String>,
    /// When the daemons were asked last, and the times then, which their marks will confirm.
    asked: Option<(Instant, Times)>,
    /// Chunks that are on the relay but could not be removed from the spool.
    done: Vec<u64>,
}

/// A session with the relay.
#[derive(Debug)]
struct RelaySession {
    connection: Connection,
    /// By the number of their chunk and their name.
    traces: BTreeMap<(u64, String), SentTrace>,
    /// Since when the relay has taken nothing, while something is unconfirmed.
    stalled: Option<Stalled>,
}

#[derive(Clone, Copy, Debug)]
struct Stalled {
    since: Instant,
    waiting: u64,
    queued: u32,
}

impl Forwarder {
    pub(super) fn new(
        output: &Path,
        trace: &str,
        options: RelayOptions,
        writer: SpoolWriter,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        finish_removals(output)?;
        Ok(Self {
            note: RelayNote::of(output, trace)?,
            output: output.to_owned(),
            options,
            writer,
            shared,
            limits: TimeLimits::default(),
            session: None,
            path: String::new(),
            backoff: BACKOFF[0],
            retry: Instant::now(),
            reported: None,
            asked: None,
            done: Vec::new(),
        })
    }

    /// Sends until the recording has ended and everything was sent, or until it is told to give up.
    pub(super) fn run(mut self) -> RelaySummary {
        loop {
            // Pairs with the store of the recorder: what is found from here on is everything.
            let is_over =
                self.shared.is_over.load(Ordering::Acquire) || self.writer == SpoolWriter::Nobody;
            let round = self.round(is_over);
            match round {
                Ok(Round::Complete) if is_over => return self.end(),
                Ok(Round::More) => {}
                Ok(Round::Complete | Round::Waiting) => thread::sleep(POLL),
                Err(error) => self.fail(error),
            }
            if self.shared.cancel.is_cancelled() {
                return self.summary(false);
            }
        }
    }

    fn round(&mut self, is_over: bool) -> Result<Round, SendError> {
        self.ask_daemons(is_over);
        let confirmed = *lock(&self.shared.confirmed);
        let spool = spool::scan(&self.output, self.writer == SpoolWriter::Nobody)?;
        if self.session.is_none() {
            if Instant::now() < self.retry {
                thread::sleep(POLL);
                return Ok(Round::More);
            }
            self.connect()?;
        }
        let mut budget = BUDGET;
        let mut is_complete = true;
        self.add_traces(&spool)?;
        for chunk in &spool {
            is_complete &= self.done.contains(&chunk.number)
                || self.send_chunk(chunk, confirmed, &mut budget)?;
        }
        if budget < BUDGET {
            (self.backoff, self.reported) = (BACKOFF[0], None);
        }
        if !is_complete {
            return Ok(Round::More);
        }
        if self.is_waiting()? {
            return Ok(Round::Waiting);
        }
        for chunk in spool {
            is_complete &= self.done.contains(&chunk.number) || self.finish_chunk(&chunk)?;
        }
        Ok(match is_complete {
            true => Round::Complete,
            false => Round::Waiting,
        })
    }

    /// In live sessions, makes daemons write the contents of the rings once in a period.
    fn ask_daemons(&mut self, is_over: bool) {
        let Some(period) = self.options.live.filter(|_| !is_over) else {
            return;
        };
        let is_due = |(at, _): (Instant, Times)| at.elapsed() >= period;
        if self.writer == SpoolWriter::Daemons && self.asked.is_none_or(is_due) {
            let times = Times::now();
            // Those that cannot be asked write when a sub-buffer is full.
            let _ = ask_below(&self.output);
            self.asked = Some((Instant::now(), times));
        }
    }

    fn connect(&mut self) -> Result<(), SendError> {
        let live_us = self.options.live.map_or(0, |period| period.as_micros());
        let connection = self.open(u32::try_from(live_us).unwrap_or(u32::MAX))?;
        self.path = connection.path().to_owned();
        self.notify(RelayEvent::Connected {
            address: self.options.address.to_string(),
            path: self.path.clone(),
        });
        self.session = Some(RelaySession {
            connection,
            traces: BTreeMap::new(),
            stalled: None,
        });
        Ok(())
    }

    fn open(&self, live_us: u32) -> Result<Connection, SendError> {
        let session = Session {
            name: self.note.name.clone(),
            host: self.note.host.clone(),
            base_path: self.note.path.clone(),
            live_us,
            created: self.note.created,
            uuid: new_uuid()?,
        };
        let address = &self.options.address;
        let cancel = &self.shared.cancel;
        let opened = Connection::open(address, &session, self.limits, cancel, &|socket| {
            // The next session must not meet what this one left in the network.
            socket::drop_queue_on_close(socket)
        });
        Ok(opened?)
    }

    /// Adds new traces to the session, and publishes them to viewers.
    fn add_traces(&mut self, spool: &[SpoolChunk]) -> Result<(), SendError> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        let mut has_new = false;
        for chunk in spool.iter().filter(|of| !self.done.contains(&of.number)) {
            for trace in chunk.traces.iter().filter(|of| of.metadata.is_some()) {
                let key = (chunk.number, trace.name.clone());
                if !session.traces.contains_key(&key) {
                    let path = match &chunk.name[..] {
                        "" => trace.name.clone(),
                        chunk => format!("{chunk}/{}", trace.name),
                    };
                    let sent = SentTrace::new(&mut session.connection, path)?;
                    session.traces.insert(key, sent);
                    has_new = true;
                }
            }
        }
        if has_new {
            session.connection.publish_streams()?;
        }
        Ok(())
    }

    /// Sends what is new in a chunk. Returns whether that was all.
    fn send_chunk(
        &mut self,
        chunk: &SpoolChunk,
        confirmed: Option<Times>,
        budget: &mut u64,
    ) -> Result<bool, SendError> {
        let is_live = self.options.live.is_some();
        let asked = self.asked.map(|(_, times)| times);
        let Some(session) = &mut self.session else {
            return Ok(false);
        };
        let mut is_complete = true;
        for trace in &chunk.traces {
            let key = (chunk.number, trace.name.clone());
            let Some(sent) = session.traces.get_mut(&key) else {
                // Its metadata are not written yet.
                continue;
            };
            let connection = &mut session.connection;
            let is_sent = match sent.send(connection, trace, is_live, budget) {
                // The chunk was given its final name meanwhile.
                Err(SendError::Spool(error)) if error.kind() == io::ErrorKind::NotFound => false,
                sent => sent?,
            };
            is_complete &= is_sent;
            if let (true, true, Some(now)) = (is_live, is_sent, bound(trace, asked, confirmed)) {
                let is_monotonic = sent.frequency == Some(NS);
                let now = if is_monotonic {
                    now.monotonic
                } else {
                    now.cycles
                };
                sent.send_beacons(connection, now)?;
            }
        }
        Ok(is_complete)
    }

    /// Whether the relay has yet to confirm something.
    fn is_waiting(&mut self) -> Result<bool, SendError> {
        let Some(session) = &mut self.session else {
            return Ok(true);
        };
        let mut waiting = 0;
        for sent in session.traces.values_mut() {
            waiting += sent.confirm(&mut session.connection)?;
        }
        if waiting == 0 {
            session.stalled = None;
            return Ok(false);
        }
        let queued = socket::queued(session.connection.data_socket())?;
        let now = Stalled {
            since: Instant::now(),
            waiting,
            queued,
        };
        match session.stalled {
            Some(of) if (of.waiting, of.queued) == (waiting, queued) => {
                if of.since.elapsed() >= self.limits.answer {
                    let what = "confirm a packet";
                    return Err(RelayError::TimedOut { what }.into());
                }
            }
            _ => session.stalled = Some(now),
        }
        Ok(true)
    }

    /// Closes traces that are complete, of which everything was sent and confirmed; and removes the
    /// chunk if it is finished. Returns whether that was so.
    fn finish_chunk(&mut self, chunk: &SpoolChunk) -> Result<bool, SendError> {
        let Some(session) = &mut self.session else {
            return Ok(false);
        };
        let mut is_closed = chunk.is_finished;
        for trace in &chunk.traces {
            let key = (chunk.number, trace.name.clone());
            let Some(sent) = session.traces.get_mut(&key) else {
                // A trace without metadata has no events.
                continue;
            };
            let is_complete =
                chunk.is_finished || self.writer == SpoolWriter::Daemons && !trace.is_marked;
            if is_complete {
                match sent.close(&mut session.connection, trace) {
                    Err(SendError::Spool(error)) if error.kind() == io::ErrorKind::NotFound => {
                        is_closed = false;
                    }
                    closed => closed?,
                }
            }
        }
        if !is_closed {
            return Ok(false);
        }
        self.correct(chunk)?;
        if let Some(session) = &mut self.session {
            session
                .traces
                .retain(|(number, _), _| *number != chunk.number);
        }
        self.notify(RelayEvent::Sent {
            name: chunk.name.clone(),
        });
        if self.writer == SpoolWriter::Nobody {
            self.done.push(chunk.number);
        } else if let Err(error) = remove(&self.output, chunk) {
            self.done.push(chunk.number);
            let path = chunk.path.clone();
            self.notify(RelayEvent::NotRemoved { path, error });
        }
        Ok(true)
    }

    /// Corrects metadata that a live session could only append to.
    fn correct(&self, chunk: &SpoolChunk) -> Result<(), SendError> {
        let Some(session) = &self.session else {
            return Ok(());
        };
        let to_correct = |trace: &SpoolTrace| {
            let sent = session.traces.get(&(chunk.number, trace.name.clone()));
            sent.filter(|sent| sent.needs_correction)
        };
        let mut traces = chunk.traces.iter();
        if !traces.any(|trace| to_correct(trace).is_some()) {
            return Ok(());
        }
        let mut connection = self.open(0)?;
        for trace in &chunk.traces {
            if let Some(sent) = to_correct(trace) {
                sent.correct(&mut connection, trace)?;
            }
        }
        Ok(connection.finish()?)
    }

    /// Ends the session when everything was sent.
    fn end(mut self) -> RelaySummary {
        if let Some(session) = self.session.take() {
            // All was confirmed before.
            let _ = session.connection.finish();
        }
        if self.writer != SpoolWriter::Nobody {
            // What is left does no harm.
            let _ = RelayNote::remove(&self.output);
        }
        self.summary(true)
    }

    fn summary(&self, is_complete: bool) -> RelaySummary {
        RelaySummary {
            path: self.path.clone(),
            is_complete,
            // It is only shown.
            waiting: match is_complete {
                true => 0,
                false => chunks::size(&self.output).unwrap_or(0),
            },
            why: self.reported.clone(),
        }
    }

    /// Ends the session after an error, and reports that once.
    fn fail(&mut self, error: SendError) {
        let had_session = self.session.take().is_some();
        let why = match error {
            SendError::Changed => {
                // The next session replaces everything. Something that changes all the time must
                // not keep the relay busy.
                self.retry = Instant::now() + self.backoff;
                self.backoff = (self.backoff * 2).min(BACKOFF[1]);
                return;
            }
            SendError::Relay(RelayError::Cancelled) => return,
            SendError::Relay(error) => describe(&error),
            SendError::Spool(error) => {
                format!("cannot read \"{}\": {error}", self.output.display())
            }
        };
        self.retry = Instant::now() + self.backoff;
        self.backoff = (self.backoff * 2).min(BACKOFF[1]);
        if had_session || self.reported.as_ref() != Some(&why) {
            self.notify(RelayEvent::Lost {
                address: self.options.address.to_string(),
                why: why.clone(),
            });
        }
        self.reported = Some(why);
    }

    fn notify(&self, event: RelayEvent) {
        lock(&self.shared.events).push(event);
    }
}

/// Prefix of chunks that were sent and are being removed. They are hidden from readers.
const SENT: &str = ".sent-";

/// Removes a chunk that was sent from the spool.
fn remove(output: &Path, chunk: &SpoolChunk) -> io::Result<()> {
    let sent = output.join(format!("{SENT}{}", chunk.name));
    match fs::rename(&chunk.path, &sent) {
        // Somebody else removed it.
        Err(_) if !chunk.path.exists() => return Ok(()),
        renamed => renamed?,
    }
    fs::remove_dir_all(sent)
}

/// Completes the removals of a sender that was killed.
fn finish_removals(output: &Path) -> io::Result<()> {
    for entry in fs::read_dir(output)? {
        let entry = entry?;
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(SENT.as_bytes())
        {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// There is more to send.
    More,
    /// Something is to be confirmed, or will be written.
    Waiting,
    /// Everything is on the relay.
    Complete,
}

/// The time before which all events of a trace are in its files.
fn bound(trace: &SpoolTrace, asked: Option<Times>, confirmed: Option<Times>) -> Option<Times> {
    match trace.is_marked {
        true => asked.filter(|asked| trace.written >= Some(asked.monotonic)),
        false => confirmed,
    }
}
