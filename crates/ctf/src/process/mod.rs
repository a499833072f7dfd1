//! From the rings of one process to its CTF trace.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use usertrace_ring::schema::{Contexts, Description, EventTable, InChannel};
use usertrace_ring::{
    Channel, Counts, Item, MetaLengths, RingMemory, RingReader, Run, Sink, WaitPolicy,
};
use usertrace_sys::Scope;

use crate::Crash;
use crate::names::file_name;
use crate::packet::BLOCK;
use crate::stream::SHORT_PACKET;
use crate::unwritten::Unwritten;
use crate::{
    Clock, StreamChannel, StreamOwner, StreamState, StreamWriter, TraceInfo, TraceOrigin,
    TraceWriter, Version,
};

/// Whose buffers they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the trace.
    pub trace: String,
    /// Name of the process, as the kernel has it.
    pub comm: String,
    /// Its id, in the initial namespace.
    pub pid: u32,
    /// Number of its buffers, never reused.
    pub process: u64,
    /// The machine, if it is known.
    pub hostname: Option<String>,
}

impl Identity {
    /// Name of the directory of the process's trace.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("{}-{}-{}", file_name(&self.comm), self.pid, self.process)
    }
}

/// What was read of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessSummary {
    /// Name of the trace.
    pub trace: String,
    /// Name of the process.
    pub comm: String,
    /// Its id.
    pub pid: u32,
    /// Its command line, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmdline: Option<String>,
    /// Number of its buffers.
    pub process: u64,
    /// Where its CTF trace is.
    pub directory: PathBuf,
    /// Kinds of events that it described.
    pub event_kinds: usize,
    /// Events that were read, and written.
    pub events: u64,
    /// Events that were left out, as they were earlier than what was asked for.
    #[serde(skip_serializing_if = "is_none")]
    pub earlier: u64,
    /// Events that it dropped because a ring was full.
    pub lost: u64,
    /// Events that were lost because their writer died, or gave up, in the middle.
    pub unfinished: u64,
    /// Events that were read, and found no room on the disk.
    #[serde(skip_serializing_if = "is_none")]
    pub unwritten: u64,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_error: Option<String>,
    /// Places where events were cut off by lack of memory.
    pub holes: u64,
    /// Writes of the process that found no memory, as the kernel counted them: each the first one
    /// to its page.
    pub sunk: u64,
    /// Sub-buffers of which a part was given up after a writer died in them.
    pub corrupted: u64,
    /// Places that could not be understood.
    pub damaged: u64,
    /// Sub-buffers that were overwritten before they were read.
    pub overwritten: u64,
    /// Size of the CTF trace.
    pub bytes: u64,
    /// Time of the first event, in ns since 1970.
    pub first_event_ns: Option<i64>,
    /// Time of the last event, in ns since 1970.
    pub last_event_ns: Option<i64>,
    /// The rings, once all of them was read; none that had nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<RingSummary>,
}

/// A ring, of which all was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RingSummary {
    /// Name of its channel.
    pub channel: String,
    /// Its number in the channel: of a CPU, or of a thread.
    pub ring: usize,
    /// Events that were read.
    pub events: u64,
    /// Events that were dropped because it was full.
    pub lost: u64,
    /// Sub-buffers that were overwritten before they were read.
    pub overwritten: u64,
    /// Places that could not be understood.
    pub damaged: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl ProcessSummary {
    /// When the last event was, for people.
    #[must_use]
    pub fn last_event(&self) -> String {
        self.last_event_ns
            .map_or_else(|| "-".to_owned(), crate::info::date)
    }

    /// Says that events found no room on the disk, if that is so.
    #[must_use]
    pub fn describe_unwritten(&self) -> Option<String> {
        let error = self.write_error.as_ref()?;
        Some(format!(
            "process {} ({}) in trace {}: {} events could not be written: {error} (the rest is in {})",
            self.pid,
            self.comm,
            self.trace,
            self.unwritten,
            self.directory.display(),
        ))
    }
}

/// Reads the rings of one process and writes its CTF trace.
#[derive(Debug)]
pub struct ProcessWriter {
    identity: Identity,
    trace: TraceWriter,
    events: EventTable,
    control: Vec<RingReader>,
    channels: Vec<EventChannel>,
    /// What payloads begin with, by the process's word: in one channel each.
    contexts: Vec<Contexts>,
    /// There may be files of streams already.
    resumed: bool,
    /// Events before this time are left out.
    since: u64,
    is_one_shot: bool,
    bad_descriptions: u64,
}

/// A channel of events.
#[derive(Debug)]
struct EventChannel {
    of: StreamChannel,
    scope: Scope,
    contexts: Option<Contexts>,
    /// What payloads begin with cannot change any more.
    is_read: bool,
    rings: Vec<EventRing>,
}

impl EventChannel {
    /// Its rings that had something.
    fn summaries(&self) -> impl Iterator<Item = RingSummary> {
        let rings = self.rings.iter().enumerate().map(|(number, ring)| {
            let counts = ring.counts();
            RingSummary {
                channel: self.of.name().to_owned(),
                ring: number,
                events: counts
                    .events
                    .saturating_sub(ring.stream.unwritten().events()),
                lost: ring.lost,
                overwritten: counts.overwritten,
                damaged: counts.damaged,
            }
        });
        rings.filter(|ring| ring.events + ring.overwritten + ring.damaged > 0 || ring.lost > 0)
    }

    /// Its payloads begin with these.
    fn set_contexts(&mut self, trace: &mut TraceWriter, contexts: &Contexts) -> io::Result<()> {
        trace.declare_contexts(self.scope, contexts)?;
        self.of.set_contexts();
        for ring in &mut self.rings {
            if let Some(stream) = &mut ring.stream.stream {
                stream.set_contexts(&self.of);
            }
        }
        self.contexts = Some(contexts.clone());
        Ok(())
    }
}

#[derive(Debug)]
struct EventRing {
    reader: RingReader,
    stream: LazyStream,
    /// Lost records that the stream was told of.
    lost: u64,
    /// What was counted before `reader` began.
    before: Counts,
    /// Of what `reader` read, events that were left out.
    earlier: u64,
    /// Times of the first and last event.
    span: Option<(u64, u64)>,
}

impl EventRing {
    /// What was counted in all.
    fn counts(&self) -> Counts {
        let mut counts = self.before;
        counts += self.reader.counts();
        counts.events -= self.earlier;
        counts
    }
}

/// Words of [`Counts`].
const COUNTS: usize = size_of::<Counts>() / size_of::<u64>();

/// What was counted of a ring, by all who read it one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// What readers have seen.
    pub counts: Counts,
    /// Times of the first and last event.
    pub span: Option<(u64, u64)>,
}

impl RingCounts {
    /// How many words it is.
    pub const WORDS: usize = COUNTS + 3;

    /// As words, to be noted.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let counts: [u64; COUNTS] = zerocopy::transmute!(self.counts);
        let (first, last) = self.span.unwrap_or_default();
        let mut words = [0; Self::WORDS];
        words[..COUNTS].copy_from_slice(&counts);
        words[COUNTS..].copy_from_slice(&[self.span.is_some().into(), first, last]);
        words
    }

    /// What was noted so.
    #[must_use]
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let mut counts = [0; COUNTS];
        counts.copy_from_slice(&words[..COUNTS]);
        let [.., has_span, first, last] = *words;
        Self {
            counts: zerocopy::transmute!(counts),
            span: (has_span != 0).then_some((first, last)),
        }
    }
}

/// What was written of a ring: what another writer needs to go on with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingState {
    /// Of its stream, if that was begun.
    pub stream: Option<StreamState>,
    /// Lost records that the stream was told of.
    pub lost: u64,
    /// The thread whose stream it is, if each thread has its own. 0: not known yet.
    pub tid: u32,
    /// When the first sub-buffer of that stream was begun.
    pub begin: u64,
}

impl RingState {
    /// How many words it is.
    pub const WORDS: usize = 10;

    /// The same in a chunk. In another one than that of the stream, this is begun anew.
    #[must_use]
    pub fn in_chunk(self, is_same: bool) -> Self {
        Self {
            stream: self.stream.filter(|_| is_same),
            ..self
        }
    }

    /// As words, to be noted.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let stream = self.stream.unwrap_or_default();
        [
            self.lost,
            self.stream.is_some().into(),
            stream.written,
            stream.packets,
            stream.discarded_written,
            stream.discarded,
            stream.time,
            stream.gap.into(),
            self.tid.into(),
            self.begin,
        ]
    }

    /// What was noted so.
    #[must_use]
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let [
            lost,
            begun,
            written,
            packets,
            discarded_written,
            discarded,
            time,
            gap,
            tid,
            begin,
        ] = *words;
        Self {
            stream: (begun != 0).then_some(StreamState {
                written,
                packets,
                discarded_written,
                discarded,
                time,
                gap: gap != 0,
            }),
            lost,
            tid: tid as u32,
            begin,
        }
    }
}

/// Where streams are made.
#[derive(Clone, Copy, Debug)]
struct StreamTarget<'a> {
    trace: &'a TraceWriter,
    channel: &'a StreamChannel,
}

/// A stream file that is made when there is something to put into it.
#[derive(Debug)]
struct LazyStream {
    of: StreamOwner,
    /// There may be a file already.
    resumed: bool,
    stream: Option<StreamWriter>,
    /// Bytes in the files of threads that had the ring before, and what found no room there.
    written_before: u64,
    unwritten_before: Unwritten,
}

impl LazyStream {
    fn new(channel: &Channel, ring: u32, resumed: bool, state: &RingState) -> Self {
        let of = match channel.scope() {
            Scope::Cpu => StreamOwner::Cpu(ring),
            Scope::Thread => StreamOwner::Thread {
                ring,
                tid: state.tid,
                begin: state.begin,
            },
            Scope::Global => StreamOwner::Process(ring),
            Scope::MmCid => StreamOwner::MmCid(ring),
        };
        Self {
            of,
            resumed,
            stream: None,
            written_before: 0,
            unwritten_before: Unwritten::default(),
        }
    }

    #[inline]
    fn get(&mut self, target: StreamTarget<'_>) -> io::Result<&mut StreamWriter> {
        match &mut self.stream {
            Some(stream) => Ok(stream),
            none => {
                let stream = begin(self.of, self.resumed, target)?;
                Ok(none.insert(stream))
            }
        }
    }

    /// A sub-buffer is begun at `time`, with `writer` as its header has it. `lost` is what the ring
    /// had lost by then, and `told` what streams were told of that.
    #[inline(never)]
    fn begin_subbuf(
        &mut self,
        target: StreamTarget<'_>,
        time: u64,
        writer: u32,
        told: &mut u64,
        lost: u64,
    ) -> io::Result<()> {
        if let StreamOwner::Thread { ring, tid, begin } = self.of
            && writer != tid
        {
            if tid != 0 {
                // The thread before this one lost them.
                self.tell_lost(target, told, lost)?;
            }
            if let Some(mut stream) = self.stream.take() {
                stream.finish()?;
                self.written_before += stream.written();
                self.unwritten_before.join(stream.unwritten());
            }
            self.of = StreamOwner::Thread {
                ring,
                tid: writer,
                // Above that of the stream before, whatever the process wrote: names are not to
                // meet.
                begin: time.max(begin.saturating_add(1)),
            };
        }
        self.tell_lost(target, told, lost)
    }

    fn tell_lost(&mut self, target: StreamTarget<'_>, told: &mut u64, now: u64) -> io::Result<()> {
        if let Some(more) = now.checked_sub(*told).filter(|&more| more > 0) {
            self.get(target)?.discard(more);
            *told = now;
        }
        Ok(())
    }

    fn written(&self) -> u64 {
        self.written_before + self.stream.as_ref().map_or(0, StreamWriter::written)
    }

    fn unwritten(&self) -> Unwritten {
        let mut unwritten = self.unwritten_before.clone();
        if let Some(stream) = &self.stream {
            unwritten.join(stream.unwritten());
        }
        unwritten
    }
}

#[cold]
fn begin(of: StreamOwner, resumed: bool, target: StreamTarget<'_>) -> io::Result<StreamWriter> {
    if resumed {
        target.trace.resume_stream(target.channel, of, None)
    } else {
        target.trace.stream(target.channel, of)
    }
}

impl ProcessWriter {
    /// Creates the trace, in a directory of its own below `parent`.
    ///
    /// # Errors
    /// When its files cannot be created.
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
            resumed: false,
            since: 0,
            is_one_shot: false,
            bad_descriptions: 0,
        })
    }

    /// Says that it is from a dump. To be done before channels are added.
    pub fn set_crash(&mut self, crash: Crash) {
        self.trace.set_crash(crash);
    }

    /// Leaves out events before this time, and what is to be said of what happened then. Each ring
    /// is to be read at once.
    pub fn set_since(&mut self, since: u64) {
        self.since = since;
    }

    /// Reads each ring once, as those of a dump or a snapshot. On a full disk, events are counted
    /// ([`ProcessSummary::unwritten`]). Packets are short. To be done before channels are added.
    pub fn set_one_shot(&mut self) {
        self.trace.set_one_shot();
        self.is_one_shot = true;
    }

    /// Goes on with a trace that another writer left in `directory`, or begins it: that one may
    /// have got no further. It had declared these: events of different ids, contexts of different
    /// channels; its streams go on where the states say that [`ProcessWriter::add_channel`] is
    /// given. What it counted, [`ProcessWriter::set_ring_counts`] is to be told.
    ///
    /// # Errors
    /// When its files cannot be opened.
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
                Description::Cmdline(_) => {}
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
            resumed: true,
            since: 0,
            is_one_shot: false,
            bad_descriptions: 0,
        })
    }

    /// Changes in which version of CTF it is written. To be done before anything else.
    pub fn set_version(&mut self, version: Version) {
        self.trace.set_version(version);
    }

    /// Gives it a channel of events, of index `index`, whose rings are to be read by `readers`;
    /// `states` is what was written of them before. Gives the number by which it is called below.
    ///
    /// # Errors
    /// When its files cannot be opened.
    pub fn add_channel(
        &mut self,
        name: &str,
        index: u32,
        channel: &Channel,
        readers: Vec<RingReader>,
        states: &[RingState],
    ) -> io::Result<usize> {
        self.trace.declare_class(channel.scope())?;
        let of = StreamChannel::new(name, index);
        let mut rings = Vec::new();
        for (ring, mut reader) in (0..).zip(readers) {
            if self.is_one_shot {
                // What is taken at once is in one packet, with its header.
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
            is_read: false,
            rings,
        };
        let of_this = |contexts: &&Contexts| contexts.channel == index;
        if let Some(contexts) = self.contexts.iter().find(of_this) {
            channel.set_contexts(&mut self.trace, contexts)?;
        }
        self.channels.push(channel);
        Ok(self.channels.len() - 1)
    }

    /// How many channels of events it has.
    #[must_use]
    pub fn nr_channels(&self) -> usize {
        self.channels.len()
    }

    /// What was written of a ring, after [`ProcessWriter::read`] or [`ProcessWriter::end_ring`].
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

    /// What was counted of a ring, by all who have read it.
    #[must_use]
    pub fn ring_counts(&self, channel: usize, ring: usize) -> RingCounts {
        let channel = self.channels.get(channel);
        let ring = channel.and_then(|channel| channel.rings.get(ring));
        ring.map_or_else(RingCounts::default, |ring| RingCounts {
            counts: ring.counts(),
            span: ring.span,
        })
    }

    /// This was counted of a ring by those who read it before. To be said before it is read.
    pub fn set_ring_counts(&mut self, channel: usize, ring: usize, counted: RingCounts) {
        let channel = self.channels.get_mut(channel);
        if let Some(ring) = channel.and_then(|channel| channel.rings.get_mut(ring)) {
            (ring.before, ring.span) = (counted.counts, counted.span);
        }
    }

    /// Writes what there is to say of what was read: discarded events, and lost packets. There may
    /// be more to read.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn rest(&mut self) -> io::Result<()> {
        let rings = self.channels.iter_mut();
        for ring in rings.flat_map(|channel| &mut channel.rings) {
            if let Some(stream) = &mut ring.stream.stream {
                stream.finish()?;
            }
        }
        Ok(())
    }

    /// Changes the clock in the metadata, if this is another one.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn set_clock(&mut self, clock: Clock) -> io::Result<()> {
        if clock == *self.trace.clock() {
            return Ok(());
        }
        self.trace.set_clock(clock)
    }

    /// What was declared so far, in this order.
    #[must_use]
    pub fn descriptions(&self) -> &[Description] {
        self.trace.descriptions()
    }

    /// Gives it the rings of the control channel, from their start.
    pub fn set_control(&mut self, control: Vec<RingReader>) {
        self.control = control;
    }

    /// How many rings of the control channel it has.
    #[must_use]
    pub fn nr_control(&self) -> usize {
        self.control.len()
    }

    /// Whose trace it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The clock of the trace.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.trace.clock()
    }

    /// Changes the latest time that is believed.
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

    /// Reads descriptions of events, from a ring of the control channel, up to `head`. Gives the
    /// position below which all were read.
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
            channels: &mut self.channels,
        };
        let bad = &mut self.bad_descriptions;
        let mut take = |item: Item<'_>| {
            if let Item::Record { payload, .. } = item
                && !descriptions.take(payload)?
            {
                *bad += 1;
            }
            Ok::<_, io::Error>(())
        };
        reader.read(memory, head, policy, &MetaLengths, &mut take)?;
        Ok(reader.position())
    }

    /// Reads events, from a ring of a channel, up to `head`, and writes them to the trace. The
    /// descriptions of all of them must have been read. Gives the position below which everything
    /// is in the trace.
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
        let EventRing {
            reader,
            stream,
            lost,
            span,
            earlier,
            before: _,
        } = ring;
        let mut events = EventSink {
            target,
            contexts,
            stream,
            lost,
            span,
        };
        if self.since == 0 {
            reader.read(memory, head, policy, &lengths, &mut events)?;
        } else {
            let mut since = SinceFilter {
                time: self.since,
                subbuf: None,
                begun: false,
                earlier,
                events,
            };
            reader.read(memory, head, policy, &lengths, &mut since)?;
        }
        if let Some(stream) = &mut stream.stream {
            stream.flush()?;
        }
        Ok(reader.position())
    }

    /// What follows in a ring is not there: a hole.
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

    /// A ring lost this many events in all, and there will be nothing more in it: writes all that
    /// is to be said of it.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn end_ring(&mut self, channel: usize, ring: usize, lost: u64) -> io::Result<()> {
        let Some((target, _, ring)) = ring_target(&self.trace, &mut self.channels, channel, ring)
        else {
            return Ok(());
        };
        ring.stream.tell_lost(target, &mut ring.lost, lost)?;
        match &mut ring.stream.stream {
            Some(stream) => stream.finish(),
            None => Ok(()),
        }
    }

    /// Writes what is not in the files yet. `clock`: the clock, if it is known better now.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn finish(mut self, clock: Option<Clock>) -> io::Result<ProcessSummary> {
        self.rest()?;
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

    /// What was read so far.
    #[must_use]
    pub fn summary(&self) -> ProcessSummary {
        let mut counts = Counts::default();
        let mut control = Counts::default();
        for reader in &self.control {
            control += reader.counts();
        }
        let (mut lost, mut bytes) = (0u64, self.trace.metadata_len());
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

/// A ring that is about to be read, what payloads there begin with, and where its streams are made.
fn ring_target<'a>(
    trace: &'a TraceWriter,
    channels: &'a mut [EventChannel],
    channel: usize,
    ring: usize,
) -> Option<(StreamTarget<'a>, Option<&'a Contexts>, &'a mut EventRing)> {
    let channel = channels.get_mut(channel)?;
    channel.is_read = true;
    let target = StreamTarget {
        trace,
        channel: &channel.of,
    };
    let ring = channel.rings.get_mut(ring)?;
    Some((target, channel.contexts.as_ref(), ring))
}

/// Where what is read of a ring goes.
struct EventSink<'a> {
    target: StreamTarget<'a>,
    contexts: Option<&'a Contexts>,
    stream: &'a mut LazyStream,
    lost: &'a mut u64,
    span: &'a mut Option<(u64, u64)>,
}

impl Sink for EventSink<'_> {
    type Error = io::Error;

    #[inline(always)]
    fn record(&mut self, id: u16, time: u64, payload: &[u8]) -> io::Result<()> {
        // The reader found the payload whole.
        let split = self.contexts.and_then(|contexts| contexts.split(payload));
        let (contexts, payload) = split.unwrap_or((&[], payload));
        let stream = self.stream.get(self.target)?;
        stream.event(id, time, contexts, payload)?;
        match &mut *self.span {
            Some((_, last)) => *last = time,
            none => *none = Some((time, time)),
        }
        Ok(())
    }

    #[inline]
    fn takes_run(&self, time: u64) -> bool {
        self.contexts.is_none()
            && matches!(&self.stream.stream, Some(stream) if stream.takes_run(time))
    }

    fn run(&mut self, run: &Run, records: &[u8]) -> io::Result<()> {
        if let Some(room) = self.room(records.len())? {
            room.copy_from_slice(records);
            self.run_in_room(run);
        }
        Ok(())
    }

    fn room(&mut self, len: usize) -> io::Result<Option<&mut [u8]>> {
        match &mut self.stream.stream {
            // Behind contexts there is padding.
            Some(stream) if self.contexts.is_none() => stream.room(len).map(Some),
            _ => Ok(None),
        }
    }

    fn run_in_room(&mut self, run: &Run) {
        if let Some(stream) = &mut self.stream.stream {
            stream.run_in_room(run);
            let [first, last] = run.times;
            self.span.get_or_insert((first, last)).1 = last;
        }
    }

    fn item(&mut self, item: Item<'_>) -> io::Result<()> {
        match item {
            Item::SubBuffer { time, lost, cpu } => {
                self.stream
                    .begin_subbuf(self.target, time, cpu, self.lost, lost)
            }
            Item::Record { id, time, payload } => self.record(id, time, payload),
            // Of how many events, only their writer knew.
            Item::Gap { .. } => {
                self.stream.get(self.target)?.discard(1);
                Ok(())
            }
            Item::Overwritten { subbuffers } => self.stream.get(self.target)?.overwrite(subbuffers),
        }
    }
}

/// Leaves out what was before some time.
struct SinceFilter<'a> {
    time: u64,
    /// The sub-buffer in which nothing was of interest yet: when it was begun, what was lost by
    /// then, and its writer.
    subbuf: Option<(u64, u64, u32)>,
    /// There was an event that was not left out.
    begun: bool,
    /// Counts those that were.
    earlier: &'a mut u64,
    events: EventSink<'a>,
}

impl Sink for SinceFilter<'_> {
    type Error = io::Error;

    fn record(&mut self, id: u16, time: u64, payload: &[u8]) -> io::Result<()> {
        if time < self.time {
            *self.earlier += 1;
            return Ok(());
        }
        self.begun = true;
        if let Some((time, lost, cpu)) = self.subbuf.take() {
            self.events.item(Item::SubBuffer { time, lost, cpu })?;
        }
        self.events.record(id, time, payload)
    }

    fn item(&mut self, item: Item<'_>) -> io::Result<()> {
        match item {
            Item::Record { id, time, payload } => self.record(id, time, payload),
            _ if self.begun => self.events.item(item),
            Item::SubBuffer { time, lost, cpu } => {
                // What was lost before the one that ends here is of no interest.
                if let Some((_, before, _)) = self.subbuf.replace((time, lost, cpu)) {
                    *self.events.lost = before;
                }
                Ok(())
            }
            Item::Gap { .. } | Item::Overwritten { .. } => Ok(()),
        }
    }
}

/// What descriptions are about.
struct DescriptionSink<'a> {
    trace: &'a mut TraceWriter,
    events: &'a mut EventTable,
    contexts: &'a mut Vec<Contexts>,
    channels: &'a mut [EventChannel],
}

impl DescriptionSink<'_> {
    /// Takes one. False: it is none, or contradicts another one.
    fn take(&mut self, line: &[u8]) -> io::Result<bool> {
        match Description::parse(line) {
            Ok(Description::Event(event)) => match self.events.add(event) {
                Ok(Some(event)) => self.trace.declare(event)?,
                Ok(None) => {}
                Err(_) => return Ok(false),
            },
            Ok(Description::Contexts(contexts)) => return self.take_contexts(contexts),
            // Several libraries in a process may say it.
            Ok(Description::Cmdline(_)) if self.trace.cmdline().is_some() => {}
            Ok(Description::Cmdline(cmdline)) => self.trace.declare_cmdline(cmdline)?,
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    fn take_contexts(&mut self, contexts: Contexts) -> io::Result<bool> {
        let of_same = |other: &&Contexts| other.channel == contexts.channel;
        if let Some(before) = self.contexts.iter().find(of_same) {
            // Several libraries in a process may say the same.
            return Ok(*before == contexts);
        }
        let mut channels = self.channels.iter_mut();
        if let Some(channel) = channels.find(|channel| channel.of.index() == contexts.channel) {
            if channel.is_read {
                return Ok(false);
            }
            channel.set_contexts(self.trace, &contexts)?;
        }
        self.contexts.push(contexts);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_a_plain_name() {
        let name = |comm: &str| {
            let identity = Identity {
                trace: "t".into(),
                comm: comm.into(),
                pid: 7,
                process: 3,
                hostname: None,
            };
            identity.directory()
        };
        assert_eq!(name("sqlite3"), "sqlite3-7-3");
        assert_eq!(name("gnome-shell"), "gnome-shell-7-3");
        assert_eq!(name("-rf"), "_rf-7-3");
        assert_eq!(name("../a b\n"), "_._a_b_-7-3");
        assert_eq!(name(""), "_-7-3");
    }
}
