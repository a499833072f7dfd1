//! The thread that sends: keeps a session with the relay, and sends what the spool has.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use usertrace_ctf::new_uuid;
use usertrace_ctf::recording::{remove_confirmations, want_confirmations};
use usertrace_os::socket;
use usertrace_relay::{Connection, RelayError, Session, TimeLimits};

use super::event::RelayEvent;
use super::live::LiveBound;
use super::note::RelayNote;
use super::sent::{SendError, SentTrace, send_metadata_alone};
use super::shared::{RelayOptions, RelaySummary, Shared, SpoolWriter, Times, lock};
use super::spool::{self, SpoolChunk, SpoolTrace};
use super::viewer_wakeup::ViewerWakeup;
use crate::chunks;
use crate::error::describe;

/// How often to look for something to send.
const POLL: Duration = Duration::from_millis(50);
/// How long to wait before the next attempt to connect: at first, and at most.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// Bytes to send before the spool is listed again.
const BUDGET: u64 = 16 << 20;

/// Sends a recording.
#[derive(Debug)]
pub(super) struct Forwarder {
    output: PathBuf,
    options: RelayOptions,
    writer: SpoolWriter,
    note: RelayNote,
    /// Only one process sends the recording.
    _lock: File,
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
    /// The time up to which viewers get events, if the session is live.
    live: Option<LiveBound>,
    /// A time behind all events, when nothing more is written.
    ended: Option<Times>,
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
    /// The clock of all traces of a live session, as its first metadata declare it.
    clock: Option<Vec<u8>>,
    /// The relay has streams that it does not show to viewers yet.
    has_unpublished: bool,
    /// Makes viewers look for new streams, if the session is live.
    wakeup: Option<ViewerWakeup>,
}

impl RelaySession {
    /// Publishes the new streams to viewers, and makes these look for them.
    fn publish(&mut self, until: Option<Times>) -> Result<(), SendError> {
        if let (None, Some(clock)) = (&self.wakeup, &self.clock) {
            self.wakeup = ViewerWakeup::new(&mut self.connection, clock)?;
        }
        self.connection.publish_streams()?;
        self.has_unpublished = false;
        if let Some(wakeup) = &mut self.wakeup {
            wakeup.send(&mut self.connection, until)?;
        }
        Ok(())
    }

    /// Whether viewers have another open trace, and have had time to find it. They end with the
    /// last one. Of complete traces, only one that was published later counts: the last one stays
    /// open, and all others can be closed while nothing new is recorded.
    fn has_other(&self, key: &(u64, String), linger: Duration) -> bool {
        let is_found = |of: &SentTrace| of.published.is_some_and(|at| at.elapsed() >= linger);
        let published = self.traces.get(key).and_then(|of| of.published);
        let is_later = |of: &SentTrace, other| (of.published, other) > (published, key);
        let mut others = self.traces.iter().filter(|(of, _)| *of != key);
        others.any(|(other, of)| {
            !of.is_closed && is_found(of) && (of.complete.is_none() || is_later(of, other))
        })
    }
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
        let (note, lock) = RelayNote::of(output, trace)?;
        finish_removals(output)?;
        if options.live.is_some() && writer == SpoolWriter::Daemons {
            want_confirmations(output)?;
        }
        Ok(Self {
            note,
            _lock: lock,
            output: output.to_owned(),
            writer,
            shared,
            limits: TimeLimits::default(),
            session: None,
            path: String::new(),
            backoff: BACKOFF[0],
            retry: Instant::now(),
            reported: None,
            live: options.live.map(LiveBound::new),
            ended: None,
            done: Vec::new(),
            options,
        })
    }

    /// Sends until the recording has ended and everything was sent, or until it is told to give up.
    pub(super) fn run(mut self) -> RelaySummary {
        loop {
            // Pairs with the store of the recorder: what is found from here on is everything.
            let is_over = match self.writer {
                SpoolWriter::Nobody => !spool::is_recorded(&self.output),
                _ => self.shared.is_over.load(Ordering::Acquire),
            };
            let round = self.round(is_over);
            match round {
                Ok(Round::Complete) if is_over => {
                    self.forget_confirmations();
                    return self.end();
                }
                Ok(Round::More) => {}
                Ok(Round::Complete | Round::Waiting) => thread::sleep(POLL),
                Err(error) => self.fail(error),
            }
            if self.shared.cancel.is_cancelled() {
                self.forget_confirmations();
                return self.summary(false);
            }
        }
    }

    /// Removes what daemons said for this sender.
    fn forget_confirmations(&self) {
        // Readers ignore files that stay.
        let _ = remove_confirmations(&self.output);
    }

    fn round(&mut self, is_over: bool) -> Result<Round, SendError> {
        let confirmed = *lock(&self.shared.confirmed);
        if let (Some(live), SpoolWriter::Daemons, false) = (&mut self.live, self.writer, is_over) {
            live.ask_daemons(&self.output);
        }
        let has_recorder = self.writer != SpoolWriter::Nobody;
        let spool = spool::scan(&self.output, has_recorder, is_over)?;
        // At the end, nothing can come late any more. When the spool is full, rings are not read,
        // so the time would stand still: room in the spool is more important than viewers.
        let is_late_allowed = is_over || self.shared.is_full.load(Ordering::Relaxed);
        let until = self.live.as_mut().filter(|_| !is_late_allowed).map(|live| {
            match self.writer {
                SpoolWriter::Recorder => live.confirm(confirmed),
                _ => live.update_by_marks(&spool),
            }
            live.times()
        });
        if self.session.is_none() {
            if Instant::now() < self.retry {
                thread::sleep(POLL);
                return Ok(Round::More);
            }
            self.connect()?;
        }
        let mut budget = BUDGET;
        let mut is_complete = true;
        if !self.add_traces(&spool, until)? {
            // Packets must not come before streams that have earlier ones.
            return Ok(Round::More);
        }
        for chunk in &spool {
            is_complete &=
                self.done.contains(&chunk.number) || self.send_chunk(chunk, until, &mut budget)?;
        }
        if is_complete && self.live.is_some() {
            // Viewers must not wait for idle streams at the end either.
            let end = is_over.then(|| *self.ended.get_or_insert_with(Times::now));
            if let Some(until) = until.or(end) {
                self.send_beacons(until)?;
            }
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
            is_complete &=
                self.done.contains(&chunk.number) || self.finish_chunk(&chunk, is_late_allowed)?;
        }
        Ok(match is_complete {
            true => Round::Complete,
            false => Round::Waiting,
        })
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
            clock: None,
            has_unpublished: false,
            wakeup: None,
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

    /// Adds new traces and streams to the session, sends the metadata of all, and then publishes
    /// the new ones to viewers. Returns false if a chunk was renamed meanwhile: it must be found
    /// again before anything is published or sent.
    ///
    /// The relay publishes all that it has. `babeltrace2` forgets a trace that has no stream. If
    /// the trace gets one later, `babeltrace2` asks for its metadata stream in a busy loop, but the
    /// relay has sent that before, and does not send it again. So a live session adds a trace only
    /// with a stream.
    fn add_traces(
        &mut self,
        spool: &[SpoolChunk],
        until: Option<Times>,
    ) -> Result<bool, SendError> {
        let is_live = self.live.is_some();
        let Some(session) = &mut self.session else {
            return Ok(false);
        };
        let mut is_found = true;
        for chunk in spool.iter().filter(|of| !self.done.contains(&of.number)) {
            for trace in chunk.traces.iter().filter(|of| of.metadata.is_some()) {
                let key = (chunk.number, trace.name.clone());
                if let Entry::Vacant(entry) = session.traces.entry(key.clone()) {
                    if is_live && !trace.has_packets() {
                        continue;
                    }
                    let path = chunk.path_of(trace);
                    entry.insert(SentTrace::new(&mut session.connection, path)?);
                }
                let Some(sent) = session.traces.get_mut(&key) else {
                    continue;
                };
                session.has_unpublished |= sent.add_streams(&mut session.connection, trace)?;
                let clock = is_live.then_some(&mut session.clock);
                match sent.send_metadata(&mut session.connection, trace, clock) {
                    // The chunk was given its final name meanwhile.
                    Err(SendError::Spool(error)) if error.kind() == io::ErrorKind::NotFound => {
                        is_found = false;
                    }
                    sent => sent?,
                }
            }
        }
        if is_found && session.has_unpublished {
            session.publish(until)?;
        }
        Ok(is_found)
    }

    /// Whether nothing more will be written to a trace.
    fn is_complete(&self, chunk: &SpoolChunk, trace: &SpoolTrace) -> bool {
        chunk.is_finished || self.writer == SpoolWriter::Daemons && !trace.is_marked
    }

    /// Sends what is new in a chunk, in live sessions up to a time. Returns whether that was all.
    fn send_chunk(
        &mut self,
        chunk: &SpoolChunk,
        until: Option<Times>,
        budget: &mut u64,
    ) -> Result<bool, SendError> {
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
            is_complete &= match sent.send(&mut session.connection, trace, until, budget) {
                // The chunk was given its final name meanwhile.
                Err(SendError::Spool(error)) if error.kind() == io::ErrorKind::NotFound => false,
                sent => sent?,
            };
        }
        Ok(is_complete)
    }

    /// Tells live viewers of streams that have no more events before a time.
    fn send_beacons(&mut self, until: Times) -> Result<(), SendError> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        for sent in session.traces.values_mut() {
            sent.send_beacons(&mut session.connection, until)?;
        }
        if let Some(wakeup) = &mut session.wakeup {
            wakeup.send_beacon(&mut session.connection, until)?;
        }
        Ok(())
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
    /// chunk if it is finished. Viewers need not have found another trace if that `is_urgent`.
    /// Returns whether that was so.
    fn finish_chunk(&mut self, chunk: &SpoolChunk, is_urgent: bool) -> Result<bool, SendError> {
        let linger = self.live.as_ref().map(LiveBound::linger);
        let complete: Vec<bool> = chunk
            .traces
            .iter()
            .map(|trace| self.is_complete(chunk, trace))
            .collect();
        let Some(session) = &mut self.session else {
            return Ok(false);
        };
        let mut is_closed = chunk.is_finished;
        for (trace, is_complete) in chunk.traces.iter().zip(complete) {
            let key = (chunk.number, trace.name.clone());
            let Some(sent) = session.traces.get_mut(&key) else {
                // A trace without metadata or packets has no events.
                continue;
            };
            if !is_complete || sent.is_closed {
                continue;
            }
            if sent.is_held {
                is_closed = false;
                continue;
            }
            // The relay shows nothing of a closed stream, so viewers must have read it before.
            let since = *sent.complete.get_or_insert_with(Instant::now);
            let is_early = linger.is_some_and(|linger| {
                since.elapsed() < linger || !is_urgent && !session.has_other(&key, linger)
            });
            let Some(sent) = session.traces.get_mut(&key).filter(|_| !is_early) else {
                is_closed = false;
                continue;
            };
            match sent.close(&mut session.connection, trace) {
                Err(SendError::Spool(error)) if error.kind() == io::ErrorKind::NotFound => {
                    is_closed = false;
                }
                closed => closed?,
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

    /// Sends metadata that a live session could only append to, or that it did not send as their
    /// trace has no packets.
    fn correct(&self, chunk: &SpoolChunk) -> Result<(), SendError> {
        let Some(session) = &self.session else {
            return Ok(());
        };
        let needs_correction = |trace: &&SpoolTrace| {
            let sent = session.traces.get(&(chunk.number, trace.name.clone()));
            sent.map_or(trace.metadata.is_some(), |sent| sent.needs_correction)
        };
        let mut traces = chunk.traces.iter().filter(needs_correction).peekable();
        if traces.peek().is_none() {
            return Ok(());
        }
        let mut connection = self.open(0)?;
        for trace in traces {
            send_metadata_alone(&mut connection, &chunk.path_of(trace), trace)?;
        }
        Ok(connection.finish()?)
    }

    /// Ends the session when everything was sent.
    fn end(mut self) -> RelaySummary {
        if let Some(mut session) = self.session.take() {
            // All events were confirmed before.
            let _ = match &session.wakeup {
                Some(wakeup) => wakeup.close(&mut session.connection),
                None => Ok(()),
            };
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use usertrace_ctf::{
        Clock, METADATA, SIGNATURE, StreamChannel, StreamOwner, TraceInfo, TraceOrigin, TraceWriter,
    };
    use usertrace_relay::fake::FakeRelay;
    use usertrace_sys::Scope;
    use usertrace_sys::uapi::LttClockSync;

    use super::*;

    const CHUNK: &str = "20261122T150347Z-000001";
    const TRACE: &str = "prog-7-1";

    /// Writes a trace with two streams, each with three packets.
    fn write_trace(directory: &Path) {
        let sync = LttClockSync::default();
        let info = TraceInfo {
            trace_name: "web".into(),
            origin: TraceOrigin::Process {
                name: "prog".into(),
                pid: 7,
                process: 7,
            },
            hostname: None,
        };
        let mut trace = TraceWriter::create(directory, info, Clock::new(&sync, &[sync])).unwrap();
        trace.declare_class(Scope::Cpu).unwrap();
        let channel = StreamChannel::new("main", 1);
        for cpu in 0..2 {
            let mut stream = trace.stream(&channel, StreamOwner::Cpu(cpu)).unwrap();
            for time in 0..3 {
                stream.event(1, time, &[], &[cpu as u8; 100]).unwrap();
                stream.flush().unwrap();
            }
            stream.finish().unwrap();
        }
    }

    /// A recording whose one chunk is not finished, and a session that sends it.
    fn sending(output: &Path, relay: &FakeRelay, live: Option<Duration>) -> Forwarder {
        let chunk = output.join(format!("{CHUNK}{}", chunks::CURRENT));
        fs::create_dir(&chunk).unwrap();
        write_trace(&chunk.join(TRACE));
        let options = RelayOptions {
            address: relay.address().clone(),
            spool: u64::MAX,
            live,
            patience: None,
        };
        let shared = Arc::default();
        let forwarder = Forwarder::new(output, "web", options, SpoolWriter::Daemons, shared);
        let mut forwarder = forwarder.unwrap();
        forwarder.connect().unwrap();
        forwarder
    }

    /// The names and bytes of a trace's files.
    fn written(trace: &Path) -> BTreeMap<String, Vec<u8>> {
        let names = ["metadata", "main_0", "main_1"];
        let files = names.map(|name| (name.to_owned(), fs::read(trace.join(name)).unwrap()));
        files.into()
    }

    /// Sends the rest, and checks that the relay has each packet once, of one session.
    fn assert_sent(
        mut forwarder: Forwarder,
        relay: &FakeRelay,
        written: &BTreeMap<String, Vec<u8>>,
    ) {
        while forwarder.round(true).unwrap() != Round::Complete {}
        let received = relay.files().into_iter().map(|(path, bytes)| {
            let (directory, name) = path.rsplit_once('/').unwrap();
            assert!(directory.ends_with(&format!("/{CHUNK}/{TRACE}")), "{path}");
            (name.to_owned(), bytes)
        });
        assert!(received.collect::<BTreeMap<_, _>>() == *written);
        assert_eq!(relay.sessions().len(), 1);
    }

    /// A chunk gets its final name after it was listed: before its traces are added to the session,
    /// before their packets are sent, or before they are closed. Each packet is sent once.
    ///
    /// Requirements: D7
    #[test]
    fn chunk_renamed_while_it_is_sent_is_sent_once() {
        for renamed_before in ["adding", "sending", "closing"] {
            let (relay, output) = (FakeRelay::start(), tempfile::tempdir().unwrap());
            let output = output.path();
            let mut forwarder = sending(output, &relay, None);
            let listed = spool::scan(output, true, false).unwrap();
            let path = listed[0].path.clone();
            let written = written(&path.join(TRACE));
            let rename = |step| {
                if step == renamed_before {
                    fs::rename(&path, output.join(CHUNK)).unwrap();
                }
            };
            rename("adding");
            let is_found = forwarder.add_traces(&listed, None).unwrap();
            assert_eq!(is_found, renamed_before != "adding");
            // Viewers learn of no trace without metadata.
            assert_eq!(relay.published().len(), usize::from(is_found));
            rename("sending");
            let mut budget = BUDGET;
            let is_sent = is_found && forwarder.send_chunk(&listed[0], None, &mut budget).unwrap();
            assert_eq!(is_sent, renamed_before == "closing");
            rename("closing");
            if is_sent {
                while forwarder.is_waiting().unwrap() {}
                assert!(!forwarder.finish_chunk(&listed[0], true).unwrap());
                assert_eq!(relay.closed(), [""; 0]);
            }
            assert_sent(forwarder, &relay, &written);
        }
    }

    /// Each piece of metadata that live viewers may get begins as metadata do, and ends with a
    /// declaration that its writer has completed.
    #[test]
    fn live_metadata_grow_by_whole_pieces() {
        let (relay, output) = (FakeRelay::start(), tempfile::tempdir().unwrap());
        let output = output.path();
        let mut forwarder = sending(output, &relay, Some(Duration::from_millis(1)));
        let path = spool::scan(output, true, false).unwrap()[0]
            .path
            .join(TRACE)
            .join(METADATA);
        let mut expected = fs::read_to_string(&path).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        let [first, second] = ["a", "b"].map(|name| format!("\nevent {{\n\tname = {name};\n}};\n"));
        let (begun, rest) = second.split_at(12);
        for (written, sent) in [
            (String::new(), String::new()),
            (
                [&first, begun].concat(),
                [SIGNATURE, first.as_str()].concat(),
            ),
            (rest.to_owned(), [SIGNATURE, second.as_str()].concat()),
        ] {
            file.write_all(written.as_bytes()).unwrap();
            let listed = spool::scan(output, true, false).unwrap();
            assert!(forwarder.add_traces(&listed, None).unwrap());
            // The next reply confirms the metadata.
            while forwarder.is_waiting().unwrap() {}
            forwarder.session.as_mut().unwrap().publish(None).unwrap();
            expected += &sent;
            let files = relay.files();
            let sent = files
                .iter()
                .find(|(path, _)| path.ends_with("/prog-7-1/metadata"));
            assert_eq!(String::from_utf8_lossy(sent.unwrap().1), expected);
        }
    }

    /// A stream whose file is not found yet keeps the others open: the relay refuses to close them
    /// twice.
    #[test]
    fn streams_are_closed_when_all_are_found() {
        let (relay, output) = (FakeRelay::start(), tempfile::tempdir().unwrap());
        let output = output.path();
        let mut forwarder = sending(output, &relay, None);
        let listed = spool::scan(output, true, false).unwrap();
        let trace = listed[0].path.join(TRACE);
        let written = written(&trace);
        assert!(forwarder.add_traces(&listed, None).unwrap());
        let mut budget = BUDGET;
        assert!(forwarder.send_chunk(&listed[0], None, &mut budget).unwrap());
        while forwarder.is_waiting().unwrap() {}
        fs::rename(trace.join("main_1"), trace.join(".main_1")).unwrap();
        assert!(!forwarder.finish_chunk(&listed[0], true).unwrap());
        assert_eq!(relay.closed(), [""; 0]);
        fs::rename(trace.join(".main_1"), trace.join("main_1")).unwrap();
        fs::rename(&listed[0].path, output.join(CHUNK)).unwrap();
        assert_sent(forwarder, &relay, &written);
    }
}
