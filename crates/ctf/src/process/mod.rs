//! Writes the rings of one process as a CTF trace.

mod count_writer;
mod description_sink;
mod event_channel;
mod event_sink;
mod lazy_stream;
mod module_stream;
mod ring_state;
mod summary;

use std::io;
use std::path::Path;

use usertrace_ring::schema::{Contexts, Counting, Description, EventTable, InChannel};
use usertrace_ring::{Channel, Counts, Item, MetaLengths, RingMemory, RingReader, WaitPolicy};

use self::count_writer::CountWriter;
use self::description_sink::DescriptionSink;
use self::event_channel::{CountChannel, EventChannel, EventRing, ring_target};
use self::event_sink::{EventSink, SinceFilter};
use self::lazy_stream::{LazyStream, StreamTarget};
use self::module_stream::ModuleStream;
pub use self::ring_state::{RingCounts, RingState};
pub use self::summary::{Identity, ProcessSummary, RingSummary};
use crate::packet::BLOCK;
use crate::stream::SHORT_PACKET;
use crate::unwritten::Unwritten;
use crate::{
    Clock, Crash, StreamChannel, StreamOwner, StreamWriter, TraceInfo, TraceOrigin, TraceWriter,
    Version,
};

/// Reads the rings of one process and writes its CTF trace.
#[derive(Debug)]
pub struct ProcessWriter {
    identity: Identity,
    trace: TraceWriter,
    events: EventTable,
    control: Vec<RingReader>,
    channels: Vec<EventChannel>,
    /// Contexts that the process described, each for one channel.
    contexts: Vec<Contexts>,
    /// What channels count by, likewise.
    counting: Vec<Counting>,
    modules: ModuleStream,
    /// Time of the first event in the files, as far as it is known.
    first: Option<u64>,
    /// The process id that its events have.
    vpid: Option<i32>,
    /// Stream files may exist already.
    resumed: bool,
    /// Earlier events are left out.
    since: u64,
    is_one_shot: bool,
    bad_descriptions: u64,
}

impl ProcessWriter {
    /// Creates the trace in its own directory below `parent`.
    ///
    /// # Errors
    /// If its files cannot be created.
    pub fn create(parent: &Path, identity: Identity, clock: Clock) -> io::Result<Self> {
        let directory = parent.join(identity.directory());
        let trace = TraceWriter::create(&directory, trace_info(&identity), clock)?;
        Ok(Self {
            identity,
            trace,
            events: EventTable::default(),
            control: Vec::new(),
            channels: Vec::new(),
            contexts: Vec::new(),
            counting: Vec::new(),
            modules: ModuleStream::default(),
            first: None,
            vpid: None,
            resumed: false,
            since: 0,
            is_one_shot: false,
            bad_descriptions: 0,
        })
    }

    /// Marks the trace as one of a dump. Must be called before channels are added.
    pub fn set_crash(&mut self, crash: Crash) {
        self.trace.set_crash(crash);
    }

    /// Leaves out earlier events and losses. Each ring must be read at once.
    pub fn set_since(&mut self, since: u64) {
        self.since = since;
    }

    /// For rings that are read once, such as those of a dump or a snapshot. On a full disk, events
    /// are counted ([`ProcessSummary::unwritten`]). Packets are short. Must be called before
    /// channels are added.
    pub fn set_one_shot(&mut self) {
        self.trace.set_one_shot();
        self.is_one_shot = true;
    }

    /// Resumes a trace that another writer left in `directory`, or creates it if that writer got no
    /// further. `descriptions` are those that it had declared: events of different ids, contexts of
    /// different channels. The states passed to [`ProcessWriter::add_channel`] tell where streams
    /// resume, and [`ProcessWriter::set_ring_counts`] restores counters.
    ///
    /// # Errors
    /// If its files cannot be opened.
    pub fn resume(
        directory: &Path,
        identity: Identity,
        clock: Clock,
        uuid: [u8; 16],
        descriptions: Vec<Description>,
    ) -> io::Result<Self> {
        let (mut events, mut contexts) = (Vec::new(), Vec::new());
        for description in &descriptions {
            match description {
                Description::Event(event) => events.push(event.clone()),
                Description::Contexts(of_channel) => contexts.push(of_channel.clone()),
                Description::Counting(_) | Description::Cmdline(_) | Description::Module(_) => {}
            }
        }
        let info = trace_info(&identity);
        Ok(Self {
            identity,
            trace: TraceWriter::resume(directory, info, clock, uuid, descriptions)?,
            events: events.into_iter().collect(),
            control: Vec::new(),
            channels: Vec::new(),
            contexts,
            counting: Vec::new(),
            modules: ModuleStream::default(),
            first: None,
            vpid: None,
            resumed: true,
            since: 0,
            is_one_shot: false,
            bad_descriptions: 0,
        })
    }

    /// Sets the version of CTF. Must be called before anything else.
    pub fn set_version(&mut self, version: Version) {
        self.trace.set_version(version);
    }

    /// Adds a channel of events. `readers` read its rings; `states` is what was written of them
    /// before. Returns the channel's number for the methods below.
    ///
    /// # Errors
    /// If its files cannot be opened.
    pub fn add_channel(
        &mut self,
        name: &str,
        index: u32,
        channel: &Channel,
        readers: Vec<RingReader>,
        states: &[RingState],
    ) -> io::Result<usize> {
        let mut of = StreamChannel::new(name, index);
        let counts = channel.table().map(|table| CountChannel {
            name: name.to_owned(),
            table,
        });
        match counts {
            Some(_) => {
                self.trace.declare_counts()?;
                of.set_counts();
            }
            None => self.trace.declare_class(channel.scope())?,
        }
        let mut rings = Vec::new();
        for (ring, mut reader) in (0..).zip(readers) {
            if self.is_one_shot {
                // A window of records fits into one packet with its header.
                reader.set_window((SHORT_PACKET - BLOCK) as u64);
            }
            let state = states.get(ring as usize).copied().unwrap_or_default();
            let mut stream = LazyStream::new(channel, ring, self.resumed, &state);
            if let Some(state) = &state.stream {
                stream.stream = Some(self.trace.resume_stream(&of, stream.of, Some(state))?);
            }
            rings.push(EventRing {
                reader,
                stream,
                lost: state.lost,
                before: Counts::default(),
                earlier: 0,
                span: None,
            });
        }
        let mut channel = EventChannel {
            of,
            scope: channel.scope(),
            contexts: None,
            counts,
            is_read: false,
            rings,
        };
        let is_of_this =
            |contexts: &&Contexts| contexts.channel == index && channel.counts.is_none();
        if let Some(contexts) = self.contexts.iter().find(is_of_this) {
            channel.set_contexts(&mut self.trace, contexts)?;
        }
        self.channels.push(channel);
        Ok(self.channels.len() - 1)
    }

    /// Number of channels of events.
    #[must_use]
    pub fn nr_channels(&self) -> usize {
        self.channels.len()
    }

    /// State of a ring, after [`ProcessWriter::read`] or [`ProcessWriter::end_ring`].
    #[must_use]
    pub fn ring_state(&self, channel: usize, ring: usize) -> RingState {
        let channel = self.channels.get(channel);
        let ring = channel.and_then(|channel| channel.rings.get(ring));
        ring.map_or_else(RingState::default, |ring| {
            let (tid, begin) = match ring.stream.of {
                StreamOwner::Thread { tid, begin, .. } => (tid, begin),
                StreamOwner::Cpu(_) | StreamOwner::MmCid(_) | StreamOwner::Process(_) => (0, 0),
            };
            RingState {
                stream: ring.stream.stream.as_ref().map(StreamWriter::state),
                lost: ring.lost,
                tid,
                begin,
            }
        })
    }

    /// Counters of a ring, by all of its readers.
    #[must_use]
    pub fn ring_counts(&self, channel: usize, ring: usize) -> RingCounts {
        let channel = self.channels.get(channel);
        let ring = channel.and_then(|channel| channel.rings.get(ring));
        ring.map_or_else(RingCounts::default, |ring| RingCounts {
            counts: ring.counts(),
            span: ring.span,
        })
    }

    /// Sets the counters of earlier readers of a ring. Must be called before it is read.
    pub fn set_ring_counts(&mut self, channel: usize, ring: usize, counted: RingCounts) {
        let channel = self.channels.get_mut(channel);
        if let Some(ring) = channel.and_then(|channel| channel.rings.get_mut(ring)) {
            (ring.before, ring.span) = (counted.counts, counted.span);
            // The writer that was killed may not have written what was loaded then.
            if let (Some(_), Some((first, _))) = (&ring.stream.stream, counted.span) {
                self.first = Some(self.first.map_or(first, |other| other.min(first)));
            }
        }
    }

    /// Writes the counters of discarded events and lost packets. There may be more to read.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn finish_streams(&mut self) -> io::Result<()> {
        self.write_modules()?;
        let rings = self.channels.iter_mut();
        for ring in rings.flat_map(|channel| &mut channel.rings) {
            if let Some(stream) = &mut ring.stream.stream {
                stream.finish()?;
            }
        }
        Ok(())
    }

    /// Updates the clock in the metadata, if it changed.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn set_clock(&mut self, clock: Clock) -> io::Result<()> {
        if clock == *self.trace.clock() {
            return Ok(());
        }
        self.trace.set_clock(clock)
    }

    /// Descriptions that were declared so far, in this order.
    #[must_use]
    pub fn descriptions(&self) -> &[Description] {
        self.trace.descriptions()
    }

    /// Sets the readers of the control channel's rings, from their start.
    pub fn set_control(&mut self, control: Vec<RingReader>) {
        self.control = control;
    }

    /// Number of rings of the control channel.
    #[must_use]
    pub fn nr_control(&self) -> usize {
        self.control.len()
    }

    /// Identity of the process.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The clock of the trace.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.trace.clock()
    }

    /// Sets the latest time that a record may have.
    pub fn set_max_time(&mut self, max_time: u64) {
        let rings = self
            .channels
            .iter_mut()
            .flat_map(|channel| &mut channel.rings);
        let readers = rings.map(|ring| &mut ring.reader);
        for reader in self.control.iter_mut().chain(readers) {
            reader.set_max_time(max_time);
        }
    }

    /// Reads descriptions from a ring of the control channel, up to `head`. Returns the position
    /// below which all were read.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn read_control(
        &mut self,
        ring: usize,
        memory: &mut impl RingMemory,
        head: u64,
        policy: WaitPolicy,
    ) -> io::Result<u64> {
        let Some(reader) = self.control.get_mut(ring) else {
            return Ok(head);
        };
        let mut descriptions = DescriptionSink {
            trace: &mut self.trace,
            events: &mut self.events,
            contexts: &mut self.contexts,
            counting: &mut self.counting,
            modules: &mut self.modules,
            channels: &mut self.channels,
        };
        let bad = &mut self.bad_descriptions;
        let mut take = |item: Item<'_>| {
            if let Item::Record { time, payload, .. } = item
                && !descriptions.take(time, payload)?
            {
                *bad += 1;
            }
            Ok::<_, io::Error>(())
        };
        reader.read(memory, head, policy, &MetaLengths, &mut take)?;
        Ok(reader.position())
    }

    /// Reads events from a ring up to `head`, and writes them to the trace. All of their
    /// descriptions must have been read before. Returns the position below which everything is in
    /// the trace.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn read(
        &mut self,
        channel: usize,
        ring: usize,
        memory: &mut impl RingMemory,
        head: u64,
        policy: WaitPolicy,
    ) -> io::Result<u64> {
        let Some((target, contexts, ring)) =
            ring_target(&self.trace, &mut self.channels, channel, ring)
        else {
            return Ok(0);
        };
        let lengths = InChannel {
            events: &self.events,
            contexts,
        };
        let has_vpid = |contexts: &Contexts| contexts.fields.iter().any(|of| of.name == "vpid");
        let wants_vpid = self.vpid.is_none() && contexts.is_some_and(has_vpid);
        let EventRing {
            reader,
            stream,
            lost,
            span,
            earlier,
            before: _,
        } = ring;
        let mut now = None;
        let events = EventSink {
            target,
            contexts,
            stream,
            lost,
            span: &mut now,
            vpid: wants_vpid.then_some(&mut self.vpid),
        };
        let read = if self.since == 0 {
            let mut events = events;
            reader.read(memory, head, policy, &lengths, &mut events)
        } else {
            let mut since = SinceFilter {
                time: self.since,
                subbuf: None,
                has_begun: false,
                earlier,
                events,
            };
            reader.read(memory, head, policy, &lengths, &mut since)
        };
        if let Some((first, last)) = now {
            self.first = Some(self.first.map_or(first, |other| other.min(first)));
            *span = Some((span.map_or(first, |(first, _)| first), last));
        }
        read?;
        if let Some(stream) = &mut stream.stream {
            stream.flush()?;
        }
        Ok(reader.position())
    }

    /// Writes which modules the process has loaded, and what changed since, for events that were
    /// read before. Must be called after each round of reads, unless the rings are read once.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn write_modules(&mut self) -> io::Result<()> {
        let Some(first) = self.first else {
            // There is no event whose address could be looked up.
            return Ok(());
        };
        let vpid = self.vpid.unwrap_or(self.identity.pid.cast_signed());
        self.modules
            .write(&mut self.trace, first, vpid, self.resumed)
    }

    /// Writes the state of a table of counters, as it is now, in place of [`ProcessWriter::read`].
    /// All descriptions of its events must have been read before. `time` is the present by the
    /// clock of the trace. The last state that is written is final. `ended`: the process has
    /// ended, so it describes no further event.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn write_counts(
        &mut self,
        channel: usize,
        ring: usize,
        memory: &mut impl RingMemory,
        time: u64,
        ended: bool,
    ) -> io::Result<()> {
        let time = time.clamp(self.trace.clock().start(), self.trace.clock().max_time());
        let Some(channel) = self.channels.get_mut(channel) else {
            return Ok(());
        };
        let (Some(counts), Some(of_ring)) = (&channel.counts, channel.rings.get_mut(ring)) else {
            return Ok(());
        };
        let index = channel.of.index();
        let mut counting = self.counting.iter();
        let writer = CountWriter {
            channel: counts,
            counting: counting.find(|counting| counting.channel == index),
            events: &self.events,
            target: StreamTarget {
                trace: &self.trace,
                channel: &channel.of,
            },
            cpu: ring as u32,
            time,
            ended,
        };
        writer.write(of_ring, memory)?;
        match &mut of_ring.stream.stream {
            Some(stream) => stream.flush(),
            None => Ok(()),
        }
    }

    /// Counts a hole at the end of a ring.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn add_hole(&mut self, channel: usize, ring: usize) -> io::Result<()> {
        let Some((target, _, ring)) = ring_target(&self.trace, &mut self.channels, channel, ring)
        else {
            return Ok(());
        };
        ring.before.holes += 1;
        ring.stream.get(target)?.discard(1);
        Ok(())
    }

    /// Ends a ring that has lost `lost` events in all. Writes everything that remains to be written
    /// of it.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn end_ring(&mut self, channel: usize, ring: usize, lost: u64) -> io::Result<()> {
        let Some((target, _, ring)) = ring_target(&self.trace, &mut self.channels, channel, ring)
        else {
            return Ok(());
        };
        ring.stream.count_lost(target, &mut ring.lost, lost)?;
        match &mut ring.stream.stream {
            Some(stream) => stream.finish(),
            None => Ok(()),
        }
    }

    /// Ends the trace. `clock`: the clock, if it is known better now.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn finish(mut self, clock: Option<Clock>) -> io::Result<ProcessSummary> {
        self.finish_streams()?;
        if let Some(clock) = clock {
            self.set_clock(clock)?;
        }
        let rings = self
            .channels
            .iter()
            .flat_map(EventChannel::summaries)
            .collect();
        Ok(ProcessSummary {
            rings,
            ..self.summary()
        })
    }

    /// Summary of what was read so far.
    #[must_use]
    pub fn summary(&self) -> ProcessSummary {
        let mut counts = Counts::default();
        let mut control = Counts::default();
        for reader in &self.control {
            control += reader.counts();
        }
        let written = self.trace.metadata_len() + self.modules.written();
        let (mut lost, mut bytes) = (0u64, written);
        let (mut earlier, mut unwritten) = (0, Unwritten::default());
        let rings = || self.channels.iter().flat_map(|channel| &channel.rings);
        for ring in rings() {
            counts += ring.counts();
            lost = lost.saturating_add(ring.lost);
            bytes += ring.stream.written();
            earlier += ring.earlier;
            unwritten.join(&ring.stream.unwritten());
        }
        let spans = || rings().filter_map(|ring| ring.span);
        let ns = |time| self.trace.clock().unix_ns(time);
        ProcessSummary {
            trace: self.identity.trace.clone(),
            comm: self.identity.comm.clone(),
            pid: self.identity.pid,
            cmdline: self.trace.cmdline().map(str::to_owned),
            process: self.identity.process,
            directory: self.trace.directory().to_owned(),
            event_kinds: self.events.len(),
            events: counts.events.saturating_sub(unwritten.events()),
            earlier,
            unwritten: unwritten.events(),
            write_error: unwritten.error().map(str::to_owned),
            lost,
            unfinished: counts.unfinished + control.unfinished,
            holes: counts.holes + control.holes,
            sunk: 0,
            corrupted: counts.corrupted + control.corrupted,
            damaged: counts.damaged + control.damaged + self.bad_descriptions,
            overwritten: counts.overwritten + control.overwritten,
            bytes,
            first_event_ns: spans().map(|(first, _)| first).min().map(ns),
            last_event_ns: spans().map(|(_, last)| last).max().map(ns),
            rings: Vec::new(),
        }
    }
}

fn trace_info(identity: &Identity) -> TraceInfo {
    TraceInfo {
        trace_name: identity.trace.clone(),
        origin: TraceOrigin::Process {
            name: identity.comm.clone(),
            pid: identity.pid,
            process: identity.process,
        },
        hostname: identity.hostname.clone(),
    }
}
