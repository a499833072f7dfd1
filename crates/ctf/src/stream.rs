//! Writes a stream file: the packets of one ring.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use usertrace_ring::{MAX_RINGS, Run, TIME_MASK};
use usertrace_sys::Scope;
use usertrace_sys::uapi::{LTT_CHANNEL_MAIN, LTT_ID_BITS, LTT_MAX_CHANNELS};

use crate::description::{COUNT_CLASS, Content, MODULE_CLASS, class_of_channel, plain_class};
use crate::file::StreamFile;
use crate::modules::MODULES_FILE;
use crate::names::file_name;
use crate::packet::{Packet, ROOM};
use crate::unwritten::{Unwritten, is_full};

/// Magic number at the start of each packet, by CTF.
pub const PACKET_MAGIC: u32 = 0xc1fc_1fc1;

/// Length of a packet's header and context, as `description.rs` declares them, without the fields
/// that name the owner of the ring.
pub const PACKET_HEADER_LEN: usize = 4 + 16 + 4 + 8 + 6 * 8;
/// Length of the longest such header, with the owner.
const LONGEST_HEADER_LEN: usize = PACKET_HEADER_LEN + 4;
/// Offset of the packet's size in its header.
const PACKET_SIZE: usize = 4 + 16 + 4 + 8 + 3 * 8;
/// Length of an event's header: its id, and the low 48 bits of its time.
pub const EVENT_HEADER_LEN: usize = 8;

/// Longest packet of a one-shot stream, unless one event alone is longer. A missing byte costs
/// readers the rest of its packet, and costs some readers all of it.
pub(super) const SHORT_PACKET: usize = 64 << 10;

/// The channel of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamChannel {
    /// Prefix of its file names.
    name: String,
    /// Its index among the channels of events: 0 is `main`.
    number: u32,
    index: u32,
    has_contexts: bool,
    content: Content,
}

impl StreamChannel {
    /// Name in file names.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates the channel `name` with index `index`.
    #[must_use]
    pub fn new(name: &str, index: u32) -> Self {
        let mut safe = file_name(name);
        // The rest of a file name names the owner, see `StreamOwner::file_name`. The channel's
        // index is appended to a name that could be taken for another name with an owner, or that
        // differs from the channel's own name.
        let end = safe.rsplit_once(['_', '-']).map(|(_, end)| end);
        let ambiguous =
            end.is_some_and(|end| end == "cid" || end.bytes().all(|b| b.is_ascii_digit()));
        if ambiguous || safe != name {
            safe = format!("{safe}-{index}");
        }
        Self {
            name: safe,
            number: index.saturating_sub(LTT_CHANNEL_MAIN as u32),
            index,
            has_contexts: false,
            content: Content::Events,
        }
    }

    /// The place of the stream about modules, which is in no channel.
    pub(super) fn modules() -> Self {
        Self {
            name: MODULES_FILE.to_owned(),
            number: 0,
            index: 0,
            has_contexts: true,
            content: Content::Modules,
        }
    }

    /// Marks its records as states of counters, see
    /// [`TraceWriter::declare_counts`](super::TraceWriter::declare_counts).
    pub fn set_counts(&mut self) {
        self.content = Content::Counts;
    }

    /// Its index in its trace.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Marks its records as having contexts, see
    /// [`TraceWriter::declare_contexts`](super::TraceWriter::declare_contexts).
    pub fn set_contexts(&mut self) {
        self.has_contexts = true;
    }

    /// Number of the class of its streams.
    fn class(&self, scope: Scope) -> u32 {
        match self.content {
            Content::Counts => COUNT_CLASS,
            Content::Modules => MODULE_CLASS,
            Content::Events if self.has_contexts => class_of_channel(self.index),
            Content::Events => plain_class(scope),
        }
    }
}

/// The owner of a stream's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOwner {
    /// A CPU.
    Cpu(u32),
    /// A concurrency id: different threads use its ring in turn, on different CPUs.
    MmCid(u32),
    /// A thread.
    Thread {
        /// Its ring.
        ring: u32,
        /// Its id. 0 for several threads without rings of their own.
        tid: u32,
        /// Start time of its first sub-buffer, as thread ids are reused.
        begin: u64,
    },
    /// All threads of the process, in this ring.
    Process(u32),
}

impl StreamOwner {
    /// Name of the stream file.
    pub fn file_name(self, channel: &StreamChannel) -> String {
        let StreamChannel {
            name: channel,
            content,
            ..
        } = channel;
        match self {
            // No ring has a name without a number.
            Self::Process(_) if *content == Content::Modules => channel.clone(),
            Self::Cpu(ring) | Self::Process(ring) => format!("{channel}_{ring}"),
            // Must not look like a CPU.
            Self::MmCid(ring) => format!("{channel}_cid_{ring}"),
            Self::Thread { ring, tid: 0, .. } => format!("{channel}_0_{ring}"),
            // Two rings may name the same thread, if the process lies.
            Self::Thread { ring, tid, begin } => format!("{channel}_{tid}_{begin}_{ring}"),
        }
    }

    /// Number that is unique among the streams of its class.
    fn instance(self, channel: &StreamChannel) -> u64 {
        let (rings, channels) = (u64::from(MAX_RINGS), LTT_MAX_CHANNELS as u64);
        let ring = |ring: u32| u64::from(channel.number) * rings + u64::from(ring);
        match self {
            Self::Cpu(n) | Self::MmCid(n) | Self::Process(n) => ring(n),
            // Two threads may start at the same time, but not in the same ring.
            Self::Thread { ring: n, begin, .. } => {
                begin.wrapping_mul(rings * channels).wrapping_add(ring(n))
            }
        }
    }

    /// Scope of the ring.
    fn scope(self) -> Scope {
        match self {
            Self::Cpu(_) => Scope::Cpu,
            Self::MmCid(_) => Scope::MmCid,
            Self::Thread { .. } => Scope::Thread,
            Self::Process(_) => Scope::Global,
        }
    }

    /// Value in the context of packets, see `description.rs`.
    fn context(self) -> Option<u32> {
        match self {
            Self::Cpu(number) | Self::MmCid(number) => Some(number),
            Self::Thread { tid, .. } => Some(tid),
            Self::Process(_) => None,
        }
    }
}

/// Copies bytes. Mostly there are only a few words, for which a call costs more than the copy.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        8..=16 => copy_ends::<8>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        33..=64 => copy_ends::<32>(to, from),
        4..=7 => copy_ends::<4>(to, from),
        1..=3 => {
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
            }
        }
        0 => {}
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first `N` bytes and the last `N`, which may overlap.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk()) {
        *to = *from;
    }
}

/// Writes one stream file.
#[derive(Debug)]
pub struct StreamWriter {
    file: StreamFile,
    uuid: [u8; 16],
    /// Numbers of its class and of itself.
    class: u32,
    instance: u64,
    of: StreamOwner,
    /// Bytes of complete packets in the file.
    written: u64,
    packets: u64,
    /// Discarded events that the file has counted.
    discarded_written: u64,
    discarded: u64,
    /// The packet that is being filled, and its number of events.
    packet: Packet,
    packet_events: u64,
    /// See [`StreamWriter::set_one_shot`].
    is_one_shot: bool,
    unwritten: Unwritten,
    begin: u64,
    /// Time of the last event or packet.
    time: u64,
    /// The number of the next packet will report lost packets.
    gap: bool,
}

/// State of a stream file between two packets: what another writer needs to resume it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// Bytes of complete packets in the file.
    pub written: u64,
    /// Packets in the file, plus lost ones.
    pub packets: u64,
    /// Discarded events that the file has counted.
    pub discarded_written: u64,
    /// Discarded events.
    pub discarded: u64,
    /// Time of the last event or packet.
    pub time: u64,
    /// Packets were lost since the last one, and the file does not show that yet.
    pub gap: bool,
}

impl StreamWriter {
    /// Creates the file in `directory`. Only events that are earlier themselves are before `begin`.
    ///
    /// # Errors
    /// If the file exists, or cannot be created.
    pub(super) fn create(
        directory: &Path,
        uuid: [u8; 16],
        channel: &StreamChannel,
        of: StreamOwner,
        begin: u64,
    ) -> io::Result<Self> {
        let path = directory.join(of.file_name(channel));
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let state = StreamState {
            time: begin,
            ..StreamState::default()
        };
        Ok(Self::at(file, uuid, channel, of, &state))
    }

    /// Resumes a file that another writer left in this state, or creates it. Everything behind the
    /// last complete packet is dropped.
    ///
    /// # Errors
    /// If it cannot be opened or truncated.
    pub(super) fn resume(
        directory: &Path,
        uuid: [u8; 16],
        channel: &StreamChannel,
        of: StreamOwner,
        state: &StreamState,
    ) -> io::Result<Self> {
        let path = directory.join(of.file_name(channel));
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.set_len(state.written)?;
        Ok(Self::at(file, uuid, channel, of, state))
    }

    fn at(
        file: File,
        uuid: [u8; 16],
        channel: &StreamChannel,
        of: StreamOwner,
        state: &StreamState,
    ) -> Self {
        Self {
            file: StreamFile::new(file),
            uuid,
            class: channel.class(of.scope()),
            instance: of.instance(channel),
            of,
            written: state.written,
            packets: state.packets,
            discarded_written: state.discarded_written,
            discarded: state.discarded,
            packet: Packet::new(),
            packet_events: 0,
            is_one_shot: false,
            unwritten: Unwritten::default(),
            begin: state.time,
            time: state.time,
            gap: state.gap,
        }
    }

    /// Makes the stream one-shot: its ring is read once. On a full disk, the writer drops events
    /// and counts them as discarded ([`StreamWriter::unwritten`]); that is no error. Packets are
    /// short.
    pub(super) fn set_one_shot(&mut self) {
        self.is_one_shot = true;
    }

    /// Events that did not fit on the disk.
    pub(super) fn unwritten(&self) -> &Unwritten {
        &self.unwritten
    }

    /// Updates the class after the channel got contexts. Must be called before the first event.
    pub fn set_contexts(&mut self, channel: &StreamChannel) {
        self.class = channel.class(self.of.scope());
    }

    /// State of the file, after [`StreamWriter::flush`].
    #[must_use]
    pub fn state(&self) -> StreamState {
        StreamState {
            written: self.written,
            packets: self.packets,
            discarded_written: self.discarded_written,
            discarded: self.discarded,
            time: self.time,
            gap: self.gap,
        }
    }

    /// Adds an event with its contexts, if the channel has any. Readers refuse steps back in time,
    /// so an early event gets the time of the one before.
    ///
    /// # Errors
    /// When the file cannot be written.
    #[inline(always)]
    pub fn event(&mut self, id: u16, time: u64, contexts: &[u8], payload: &[u8]) -> io::Result<()> {
        let first = || self.packets == 0 && self.packet.is_empty();
        let time = if time < self.time && !first() {
            self.time
        } else {
            time
        };
        if self.discarded != self.discarded_written {
            return self.event_after_discarded(id, time, contexts, payload);
        }
        let len = EVENT_HEADER_LEN + contexts.len() + payload.len();
        if time.wrapping_sub(self.time) > TIME_MASK {
            self.flush()?;
        }
        loop {
            if self.packet.is_empty() {
                self.begin = time;
            }
            // A packet that was not begun has no room.
            if let Some(room) = self.packet.add(len) {
                if let Some(last) = room.last_chunk_mut::<8>() {
                    *last = [0; 8];
                }
                let (header, rest) = room.split_at_mut(EVENT_HEADER_LEN);
                let word = time << LTT_ID_BITS | u64::from(id);
                header.copy_from_slice(&word.to_ne_bytes());
                let (of_contexts, rest) = rest.split_at_mut(contexts.len());
                if !contexts.is_empty() {
                    of_contexts.copy_from_slice(contexts);
                }
                copy(&mut rest[..payload.len()], payload);
                self.time = time;
                self.packet_events += 1;
                return Ok(());
            }
            self.begin_packet(len)?;
        }
    }

    /// Whether a run of records from `time` on can be copied unchanged from the ring.
    #[inline]
    pub fn takes_run(&self, time: u64) -> bool {
        time.wrapping_sub(self.time) <= TIME_MASK && self.discarded == self.discarded_written
    }

    /// Returns room for `len` bytes of unchanged records, behind the events so far.
    ///
    /// # Errors
    /// If the events so far cannot be written.
    pub fn room(&mut self, len: usize) -> io::Result<&mut [u8]> {
        if self.packet.room(len).is_none() {
            self.begin_packet(len)?;
        }
        Ok(self.packet.room(len).unwrap_or_default())
    }

    /// Adds a run of short records at the start of what [`StreamWriter::room`] returned last, after
    /// [`StreamWriter::takes_run`] returned true.
    pub fn run_in_room(&mut self, run: &Run) {
        let [first, last] = run.times;
        if self.packet.is_empty() {
            self.begin = first;
        }
        self.packet.add_from_room(run.len, run.padding);
        self.packet_events += run.events;
        self.time = last;
    }

    /// Adds the event behind a loss. It gets its own packet: the loss is between the end of the
    /// previous packet and the end of this one. A packet without events would do, but Trace Compass
    /// stops at the first such packet, unless the file begins with it.
    #[cold]
    fn event_after_discarded(
        &mut self,
        id: u16,
        time: u64,
        contexts: &[u8],
        payload: &[u8],
    ) -> io::Result<()> {
        if self.unwritten.is_full() {
            self.unwritten.add_one();
            self.discard(1);
            return Ok(());
        }
        self.flush()?;
        self.begin_file(time)?;
        let begin = self.time.max(time.saturating_sub(TIME_MASK));
        self.discarded_written = self.discarded;
        self.event(id, time, contexts, payload)?;
        self.write_packet(begin)
    }

    /// Starts the file with an empty packet, if it has none: readers compare the counters of two
    /// packets, and so ignore those of the first.
    fn begin_file(&mut self, time: u64) -> io::Result<()> {
        if self.packets == 0 {
            self.time = time.min(self.time);
            self.write_empty(self.time)?;
        }
        Ok(())
    }

    /// Starts a packet with room for `len` bytes of an event.
    #[cold]
    fn begin_packet(&mut self, len: usize) -> io::Result<()> {
        self.flush()?;
        self.begin_in_file(len);
        Ok(())
    }

    /// Starts a packet behind the last one in the file.
    fn begin_in_file(&mut self, len: usize) {
        let longest = if self.is_one_shot { SHORT_PACKET } else { ROOM };
        self.packet
            .begin(self.written, self.header_len(), len, longest);
    }

    /// Counts discarded events.
    pub fn discard(&mut self, events: u64) {
        self.discarded = self.discarded.saturating_add(events);
    }

    /// Counts overwritten sub-buffers as lost packets, as the number of events is unknown.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn overwrite(&mut self, subbuffers: u64) -> io::Result<()> {
        self.flush()?;
        self.begin_file(self.time)?;
        self.packets = self.packets.saturating_add(subbuffers);
        self.gap = true;
        Ok(())
    }

    /// Writes the events that are not in the file yet.
    ///
    /// # Errors
    /// If the file cannot be written. It then ends with a complete packet, if possible.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.packet.is_empty() {
            // It may have been started for records that turned out to be none.
            self.packet.clear();
            return Ok(());
        }
        self.write_packet(self.begin)
    }

    /// Writes everything that is not in the file yet, including discarded events and lost packets.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        if self.discarded != self.discarded_written {
            self.begin_file(self.time)?;
            self.discarded_written = self.discarded;
            self.write_empty(self.time)?;
        }
        if self.gap {
            self.write_empty(self.time)?;
        }
        Ok(())
    }

    /// Length of the file in bytes.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes an empty packet.
    fn write_empty(&mut self, begin: u64) -> io::Result<()> {
        self.begin_in_file(0);
        self.write_packet(begin)
    }

    fn header_len(&self) -> usize {
        LONGEST_HEADER_LEN - if self.of.context().is_none() { 4 } else { 0 }
    }

    /// Writes the current packet.
    fn write_packet(&mut self, begin: u64) -> io::Result<()> {
        let content = self.packet.len();
        let padding = self.file.padding(self.written, content);
        let zeros = padding.unwrap_or(self.packet.zeros());
        let len = content + zeros;
        let mut header = Vec::with_capacity(LONGEST_HEADER_LEN);
        header.extend_from_slice(&PACKET_MAGIC.to_ne_bytes());
        header.extend_from_slice(&self.uuid);
        header.extend_from_slice(&self.class.to_ne_bytes());
        header.extend_from_slice(&self.instance.to_ne_bytes());
        for word in [
            begin,
            self.time,
            content as u64 * 8, // content_size
            len as u64 * 8,     // packet_size
            self.packets,
            self.discarded_written,
        ] {
            header.extend_from_slice(&word.to_ne_bytes());
        }
        if let Some(context) = self.of.context() {
            header.extend_from_slice(&context.to_ne_bytes());
        }
        debug_assert_eq!(header.len(), self.header_len());
        let bytes = self.packet.bytes(&header, zeros);
        let written = self.file.write(bytes, self.written, padding.is_some());
        self.packet.clear();
        let events = std::mem::take(&mut self.packet_events);
        if let Err(error) = written {
            // Readers refuse a trace that ends within a packet. If truncation fails too, the first
            // error is the one to report.
            let _ = self.file.cut(self.written);
            if self.is_one_shot && is_full(&error) {
                self.unwritten.add(events, &error);
                self.discard(events);
                return Ok(());
            }
            return Err(error);
        }
        self.written += len as u64;
        self.packets = self.packets.saturating_add(1);
        self.gap = false;
        Ok(())
    }
}

/// The header of the last complete packet, and its end; 0 if there is none.
fn last_packet(file: &File) -> io::Result<([u8; PACKET_HEADER_LEN], u64)> {
    let len = file.metadata()?.len();
    let (mut last, mut end) = ([0; PACKET_HEADER_LEN], 0);
    let mut header = last;
    while file.read_exact_at(&mut header, end).is_ok() {
        let packet = word(&header, PACKET_SIZE) / 8;
        let next = end.saturating_add(packet);
        if header[..4] != PACKET_MAGIC.to_ne_bytes()
            || packet < PACKET_HEADER_LEN as u64
            || next > len
        {
            break;
        }
        (last, end) = (header, next);
    }
    Ok((last, end))
}

fn word(header: &[u8; PACKET_HEADER_LEN], at: usize) -> u64 {
    let bytes = header[at..].first_chunk();
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

impl StreamState {
    /// State of a file by its last complete packet, and the UUID of its trace. None without a
    /// packet.
    pub fn of_file(path: &Path) -> io::Result<Option<([u8; 16], Self)>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (header, written) = last_packet(&file)?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&header[4..20]);
        // The words of the header around the packet's size, as `StreamWriter::write_packet` writes
        // them.
        let of_packet = |n: usize| word(&header, PACKET_SIZE - 2 * 8 + n * 8);
        let discarded = of_packet(4);
        let state = Self {
            written,
            packets: of_packet(3).saturating_add(1),
            discarded_written: discarded,
            discarded,
            time: of_packet(0),
            gap: false,
        };
        Ok((written > 0).then_some((uuid, state)))
    }
}

/// Removes what follows the last complete packet of a file whose writer was killed.
pub(super) fn mend(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let (_, end) = last_packet(&file)?;
    if end < file.metadata()?.len() {
        file.set_len(end)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users name channels, and each file needs its own name.
    #[test]
    fn files_of_channels_have_unique_names() {
        let names = [
            "main", "main_0", "main-1", "a:b", "a_b", "a@b", "a_b-4", "main_cid", "net_io", "7",
            "cid", "main_7_8", "-", "_", ".x",
        ];
        let mut files = std::collections::BTreeMap::new();
        for (index, name) in (1..).zip(names) {
            let channel = StreamChannel::new(name, index);
            for n in [0, 1, 7, 8] {
                let thread = |tid, begin| StreamOwner::Thread {
                    ring: n,
                    tid,
                    begin,
                };
                // All rings of a channel have one kind of owner.
                let kinds = [
                    vec![StreamOwner::Cpu(n)],
                    vec![StreamOwner::MmCid(n)],
                    vec![thread(0, 0), thread(7, 8), thread(8, n.into())],
                ];
                for of in kinds.into_iter().flatten() {
                    let file = of.file_name(&channel);
                    let by = files.entry(file.clone()).or_insert(index);
                    assert_eq!(
                        *by,
                        index,
                        "{file} of {name} and {}",
                        names[*by as usize - 1]
                    );
                }
            }
        }
        let name = |name, index| StreamOwner::Cpu(3).file_name(&StreamChannel::new(name, index));
        assert_eq!(name("main", 1), "main_3");
        assert_eq!(name("net_io", 2), "net_io_3");
        assert_eq!(name("main_0", 2), "main_0-2_3");
    }

    /// A writer that resumes after a killed one drops packets behind the checkpoint, and counts
    /// losses that only the checkpoint has.
    ///
    /// Requirements: A10
    #[test]
    fn another_writer_resumes_from_a_checkpoint() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, killed: bool| {
            let directory = directory.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            let (uuid, channel, of) = ([7; 16], StreamChannel::new("main", 1), StreamOwner::Cpu(0));
            let mut stream = StreamWriter::create(&directory, uuid, &channel, of, 10).unwrap();
            stream.event(1, 11, &[], &[1; 8]).unwrap();
            stream.overwrite(3).unwrap();
            if killed {
                let state = stream.state();
                stream.event(1, 12, &[], &[2; 800]).unwrap();
                stream.flush().unwrap();
                {
                    let of_file = StreamState::of_file(&directory.join("main_0")).unwrap();
                    assert_eq!(of_file, Some((uuid, stream.state())));
                }
                stream = StreamWriter::resume(&directory, uuid, &channel, of, &state).unwrap();
            }
            stream.finish().unwrap();
            std::fs::read(directory.join("main_0")).unwrap()
        };
        assert_eq!(write("killed", true), write("whole", false));
    }

    /// Trace Compass takes an empty packet for the end of the file, unless the file begins with it
    /// (`StreamInputPacketIndex.append`, since 2017). So the packet of the next event reports a
    /// loss.
    ///
    /// Requirements: F1
    #[test]
    fn empty_packets_are_first_or_last() {
        let directory = tempfile::tempdir().unwrap();
        let (channel, of) = (StreamChannel::new("main", 1), StreamOwner::Process(0));
        let mut stream = StreamWriter::create(directory.path(), [7; 16], &channel, of, 10).unwrap();
        stream.discard(2);
        for time in [11, 12, 5, 13] {
            stream.event(1, time, &[], &[1; 8]).unwrap();
            stream.event(1, time + 1, &[], &[2; 8]).unwrap();
            stream.discard(3);
            stream.overwrite(4).unwrap();
        }
        stream.finish().unwrap();
        let bytes = std::fs::read(directory.path().join("main_0")).unwrap();
        let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        let (mut packets, mut at, mut end) = (Vec::new(), 0, 0);
        while at < bytes.len() {
            let words: [u64; 6] = std::array::from_fn(|n| word(at + 32 + 8 * n));
            let [begin, this_end, content, size, number, discarded] = words;
            assert!(end <= begin && begin <= this_end, "{words:?}");
            packets.push((content / 8 - stream.header_len() as u64, number, discarded));
            end = this_end;
            at += size as usize / 8;
        }
        // An event header has 8 bytes. The first event after a loss is alone: the loss ends with
        // its packet.
        let want = [
            (0, 0, 0),
            (16, 1, 2),
            (16, 2, 2),
            (16, 7, 5),
            (16, 8, 5),
            (16, 13, 8),
            (16, 14, 8),
            (16, 19, 11),
            (16, 20, 11),
            (0, 25, 14),
        ];
        assert_eq!(packets, want);
    }

    /// Parses a stream file: for each packet its size, and the id, the time and all bytes of each
    /// event.
    fn packets(bytes: &[u8], header_len: usize, lens: &[usize]) -> Vec<(usize, Vec<Parsed>)> {
        let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        let (mut packets, mut at, mut lens) = (Vec::new(), 0, lens.iter());
        while at < bytes.len() {
            let size = |n: usize| (word(at + 32 + 8 * n) / 8) as usize;
            let (content, packet) = (at + size(2), at + size(3));
            let (mut end, mut time) = (at + header_len, word(at + 32));
            let mut events = Vec::new();
            while end < content {
                let next = at + (end - at).next_multiple_of(8);
                time += (word(next) >> 16).wrapping_sub(time) & (u64::MAX >> 16);
                end = next + 8 + lens.next().unwrap();
                events.push((word(next) as u16, time, bytes[next + 8..end].to_vec()));
            }
            assert_eq!(end, content);
            assert_eq!(events.last().map_or(time, |event| event.1), word(at + 40));
            assert!(bytes[content..packet].iter().all(|&byte| byte == 0));
            packets.push((packet - at, events));
            at = packet;
        }
        packets
    }

    type Parsed = (u16, u64, Vec<u8>);

    /// Direct writes have the same result as writes through the page cache, and another writer can
    /// resume after them.
    ///
    /// Requirements: A10
    #[test]
    fn long_packets_are_complete_in_both_write_modes() {
        let directory = tempfile::tempdir().unwrap();
        let (uuid, channel, of) = ([7; 16], StreamChannel::new("main", 1), StreamOwner::Cpu(0));
        let path = directory.path().join("main_0");
        let create = |state: &StreamState| {
            StreamWriter::resume(directory.path(), uuid, &channel, of, state).unwrap()
        };
        let mut stream = create(&StreamState::default());
        let mut want = Vec::new();
        // Several long packets, a short one, one with the longest event, and long ones again.
        for (count, len) in [(90_000, 32_usize), (3, 8), (1, 3 << 20), (40_000, 33)] {
            // Some as runs from a ring, followed by garbage.
            let mut run = Run {
                len: 0,
                padding: len.next_multiple_of(8) - len,
                events: 0,
                times: [0, 0],
            };
            let mut records = Vec::new();
            let take = |stream: &mut StreamWriter, run: &mut Run, records: &mut Vec<u8>| {
                if run.events > 0 {
                    run.len = records.len();
                    let room = stream.room(run.len + 100).unwrap();
                    room[..run.len].copy_from_slice(records);
                    room[run.len..].fill(0xdd);
                    assert!(stream.takes_run(run.times[0]));
                    stream.run_in_room(run);
                    (run.events, *records) = (0, Vec::new());
                }
            };
            for _ in 0..count {
                let n = want.len() as u64;
                let (time, payload) = (1000 + n, vec![n as u8; len]);
                if n % 100 < 90 {
                    run.times = match run.events {
                        0 => [time, time],
                        _ => [run.times[0], time],
                    };
                    run.events += 1;
                    records.extend_from_slice(&(time << 16 | 3).to_ne_bytes());
                    records.extend_from_slice(&payload);
                    records.extend_from_slice(&[0xee; 7][..run.padding]);
                } else {
                    take(&mut stream, &mut run, &mut records);
                    stream.event(3, time, &[], &payload).unwrap();
                }
                want.push((3, time, payload));
            }
            take(&mut stream, &mut run, &mut records);
            stream.flush().unwrap();
            // There is no memory between two packets.
            assert!(stream.packet.is_empty());
            let state = stream.state();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), state.written);
            assert_eq!(StreamState::of_file(&path).unwrap(), Some((uuid, state)));
            stream = create(&state);
        }
        let bytes = std::fs::read(&path).unwrap();
        let lens: Vec<_> = want.iter().map(|(_, _, payload)| payload.len()).collect();
        let packets = packets(&bytes, stream.header_len(), &lens);
        let padded = packets.iter().filter(|(len, _)| len % 4096 == 0);
        let padded = padded.count();
        let got: Vec<_> = packets.into_iter().flat_map(|(_, events)| events).collect();
        assert!(got == want, "{} of {} events", got.len(), want.len());
        assert!(padded > 0);
    }

    /// A header word has 48 bits of an event's time. After a longer pause, a new packet has the
    /// full time.
    #[test]
    fn events_days_apart_have_separate_packets() {
        let directory = tempfile::tempdir().unwrap();
        let (channel, of) = (StreamChannel::new("main", 1), StreamOwner::Process(0));
        let mut stream = StreamWriter::create(directory.path(), [7; 16], &channel, of, 10).unwrap();
        let far = 1 << 48;
        let times = [11, 10 + far, 10 + 2 * far, 11 + 3 * far, 12 + 4 * far];
        for time in times {
            stream.event(1, time, &[], &[1; 8]).unwrap();
        }
        assert!(stream.takes_run(11 + 5 * far) && !stream.takes_run(12 + 5 * far));
        assert!(!stream.takes_run(11 + 4 * far));
        // The packet of a loss begins where the one before ended, unless that is too long ago.
        stream.discard(1);
        assert!(!stream.takes_run(11 + 5 * far));
        stream.event(1, 20 + 6 * far, &[], &[1; 8]).unwrap();
        stream.finish().unwrap();
        let bytes = std::fs::read(directory.path().join("main_0")).unwrap();
        let packets = packets(&bytes, stream.header_len(), &[8; 6]);
        let got: Vec<Vec<_>> = packets
            .iter()
            .map(|(_, events)| events.iter().map(|&(_, time, _)| time).collect())
            .collect();
        let [a, b, c, d, e] = times;
        assert_eq!(
            got,
            [vec![a, b], vec![c], vec![d], vec![e], vec![20 + 6 * far]]
        );
    }
}
