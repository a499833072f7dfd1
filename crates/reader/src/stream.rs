//! A stream file: its packets and their events.
//!
//! The file may be damaged, and it may grow or shrink while it is read. So each access is checked
//! against its length. The file is read, not mapped: access to a mapping of a truncated file kills
//! the reader. It is only open during a read, as there may be more files than a process may have
//! open.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use usertrace_ctf::{EVENT_HEADER_LEN, PACKET_HEADER_LEN, PACKET_MAGIC};
use usertrace_ring::{record_id, record_time};

use crate::condition::{Condition, Declared, Occurrence, ProcessOf};
use crate::metadata::{EventClass, Metadata, StreamClass};

/// Longest context of a packet, without the fields of the format.
pub(super) const MAX_PACKET_CONTEXT: usize = 256;
/// Longest header of a packet, with its context.
const LONGEST_HEADER_LEN: usize = PACKET_HEADER_LEN + MAX_PACKET_CONTEXT;
/// Longest event that fits into a ring.
const MAX_EVENT: usize = usertrace_ring::MAX_RING_SIZE as usize;

/// An error in a stream.
#[derive(Debug)]
pub(super) enum StreamError {
    Damage { offset: u64, what: String },
    Io(io::Error),
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Result of looking for the next packet.
#[derive(Debug)]
pub(super) enum NextPacket {
    Found,
    /// It is cut short after this many bytes, whose events were read.
    CutShort(u64),
    /// There is no packet.
    End,
}

/// The header of a packet.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) class: usize,
    pub(super) class_id: u32,
    pub(super) instance: u64,
    /// In cycles.
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) number: u64,
    pub(super) discarded: u64,
    context: [u8; MAX_PACKET_CONTEXT],
    context_len: usize,
}

impl Packet {
    pub(super) fn context(&self) -> &[u8] {
        &self.context[..self.context_len]
    }
}

/// Sizes of a packet in bytes: of its header with its context, up to the end of its events, and of
/// all of it.
struct PacketSizes {
    header: u64,
    content: u64,
    packet: u64,
}

/// Parses the header of a packet, or says what is wrong with it.
fn parse_header(
    header: &[u8; LONGEST_HEADER_LEN],
    metadata: &Metadata,
) -> Result<(Packet, PacketSizes), &'static str> {
    let u32_at = |at: usize| u32::from_ne_bytes(*header[at..].first_chunk().unwrap_or(&[0; 4]));
    let u64_at = |at: usize| u64::from_ne_bytes(*header[at..].first_chunk().unwrap_or(&[0; 8]));
    if u32_at(0) != PACKET_MAGIC {
        return Err("there is no packet");
    }
    if header[4..20] != metadata.uuid {
        return Err("a packet of another trace");
    }
    let class_id = u32_at(20);
    let Some(class) = metadata.class_index(class_id) else {
        return Err("a packet of a stream that is not declared");
    };
    let context_len = metadata.classes()[class].packet_len;
    let words: [u64; 6] = std::array::from_fn(|n| u64_at(32 + 8 * n));
    let [begin, end, content_bits, packet_bits, number, discarded] = words;
    let sizes = PacketSizes {
        header: (PACKET_HEADER_LEN + context_len) as u64,
        content: content_bits / 8,
        packet: packet_bits / 8,
    };
    if content_bits % 8 + packet_bits % 8 != 0
        || sizes.content < sizes.header
        || sizes.packet < sizes.content
    {
        return Err("a packet of an impossible size");
    }
    let mut context = [0; MAX_PACKET_CONTEXT];
    context[..context_len].copy_from_slice(&header[PACKET_HEADER_LEN..][..context_len]);
    let packet = Packet {
        class,
        class_id,
        instance: u64_at(24),
        begin,
        end,
        number,
        discarded,
        context,
        context_len,
    };
    Ok((packet, sizes))
}

/// Position of the current event.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    id: u16,
    time: u64,
    at: u64,
    contexts_len: usize,
    len: usize,
}

/// A part of the file in memory.
#[derive(Debug, Default)]
struct Window {
    bytes: Vec<u8>,
    start: u64,
}

impl Window {
    /// The bytes from `at` up to `end`, as far as they are in memory.
    #[inline]
    fn get(&self, at: u64, end: u64) -> &[u8] {
        let skip = usize::try_from(at.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(skip..).unwrap_or_default();
        let len = usize::try_from(end - at).unwrap_or(usize::MAX);
        &bytes[..bytes.len().min(len)]
    }

    /// Reads `len` bytes at `at`, or fewer if the file has become shorter.
    fn read(&mut self, file: &File, at: u64, len: usize) -> io::Result<()> {
        let kept = self.get(at, u64::MAX).len();
        let before = self.bytes.len() - kept;
        self.bytes.copy_within(before.., 0);
        self.bytes.resize(len.max(kept), 0);
        self.start = at;
        let read = read_at(file, &mut self.bytes[kept..], at + kept as u64);
        self.bytes.truncate(kept + *read.as_ref().unwrap_or(&0));
        read.map(|_| ())
    }
}

fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<usize> {
    let wanted = bytes.len();
    while !bytes.is_empty() {
        match file.read_at(bytes, at) {
            Ok(0) => break,
            Ok(len) => {
                bytes = &mut bytes[len..];
                at += len as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(wanted - bytes.len())
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) path: PathBuf,
    /// Index of its trace.
    pub(super) trace: usize,
    /// Known length of the file.
    pub(super) len: u64,
    /// Offset of the next packet.
    next: u64,
    /// The current packet.
    pub(super) packet: Option<Packet>,
    /// Start of the packet, end of what was read, end of its events.
    start: u64,
    at: u64,
    end: u64,
    /// The packet is cut short after this many bytes.
    cut: Option<u64>,
    found: Found,
    window: Window,
}

impl Stream {
    pub(super) fn new(path: PathBuf, trace: usize) -> Self {
        Self {
            path,
            trace,
            len: 0,
            next: 0,
            packet: None,
            start: 0,
            at: 0,
            end: 0,
            cut: None,
            found: Found::default(),
            window: Window::default(),
        }
    }

    /// Offset of the next packet.
    pub(super) fn offset(&self) -> u64 {
        self.next
    }

    /// Reads the header of the next packet. After an error, there are no more packets. `follows`:
    /// ignores an incomplete packet until it is complete.
    pub(super) fn next_packet(
        &mut self,
        metadata: &Metadata,
        follows: bool,
    ) -> Result<NextPacket, StreamError> {
        if let Some(there) = self.cut.take() {
            return Ok(NextPacket::CutShort(there));
        }
        let (start, rest) = (self.next, self.len.saturating_sub(self.next));
        if rest == 0 {
            return Ok(NextPacket::End);
        }
        if rest < PACKET_HEADER_LEN as u64 {
            return Ok(NextPacket::CutShort(rest));
        }
        // If this packet is damaged, nothing behind it is read.
        self.next = self.len;
        let damage = |what: &str| {
            Err(StreamError::Damage {
                offset: start,
                what: what.to_owned(),
            })
        };
        let mut header = [0; LONGEST_HEADER_LEN];
        let file = crate::file::open(&self.path)?;
        let read = read_at(&file, &mut header, start)?;
        if read < PACKET_HEADER_LEN {
            return damage("the file was cut while it was read");
        }
        let (packet, sizes) = match parse_header(&header, metadata) {
            Ok(parsed) => parsed,
            Err(what) => return damage(what),
        };
        if sizes.packet > rest {
            // Its writer may have completed it since the file was looked at.
            self.len = self.len.max(file.metadata()?.len());
        }
        let rest = self.len.saturating_sub(start);
        let is_cut = sizes.packet > rest;
        if is_cut && (follows || rest < sizes.header) {
            self.next = start;
            return Ok(NextPacket::CutShort(rest));
        }
        if (read as u64) < sizes.header {
            return damage("the file was cut while it was read");
        }
        let begin = packet.begin;
        if packet.end < begin || self.packet.as_ref().is_some_and(|last| begin < last.end) {
            return damage("a packet of the time before");
        }
        // A cut packet is the last one. Its offset is reported.
        self.next = if is_cut { start } else { start + sizes.packet };
        self.cut = is_cut.then_some(rest);
        self.start = start;
        self.at = start + sizes.header;
        self.end = start + sizes.content.min(rest);
        self.found = Found {
            time: begin,
            ..Found::default()
        };
        self.packet = Some(packet);
        Ok(NextPacket::Found)
    }

    /// Begin and end of the packet, in ns since 1970. None if they are out of range.
    pub(super) fn packet_ns(&self, metadata: &Metadata) -> Option<(i64, i64)> {
        let packet = self.packet.as_ref()?;
        let ns = |cycles| metadata.clock().ns(cycles);
        Some((ns(packet.begin)?, ns(packet.end)?))
    }

    /// Finds the next event of the packet, and returns its time in cycles. None if there is none.
    /// After an error, the packet has no more events. `chunk`: bytes to read at once.
    #[inline]
    pub(super) fn next_event(
        &mut self,
        metadata: &Metadata,
        chunk: usize,
    ) -> Result<Option<u64>, StreamError> {
        if self.at == self.end {
            return Ok(None);
        }
        let packet = self.packet.as_ref();
        let class = packet.and_then(|packet| metadata.classes().get(packet.class));
        let (Some(class), Some(packet)) = (class, packet) else {
            return Ok(None);
        };
        let last = packet.end;
        self.at += self.start.wrapping_sub(self.at) % EVENT_HEADER_LEN as u64;
        if self.at >= self.end {
            if self.cut.is_some() {
                self.at = self.end;
                return Ok(None);
            }
            return self.damage("an event goes beyond the end of its packet");
        }
        loop {
            let bytes = self.window.get(self.at, self.end);
            match parse_event(class, bytes, self.found.time) {
                Parsed::Event(found) if found.time <= last => {
                    self.found = Found {
                        at: self.at,
                        ..found
                    };
                    self.at += (EVENT_HEADER_LEN + found.contexts_len + found.len) as u64;
                    return Ok(Some(found.time));
                }
                Parsed::Event(_) => {
                    return self.damage("an event of a time that is not its packet's");
                }
                Parsed::Unknown(id) => {
                    return self.damage(&format!("event id {id} is not declared"));
                }
                Parsed::TooShort if self.is_cut_here() => {
                    self.at = self.end;
                    return Ok(None);
                }
                Parsed::TooShort => self.read_more(chunk)?,
            }
        }
    }

    /// Whether the packet is cut short and all of it was read.
    #[cold]
    fn is_cut_here(&self) -> bool {
        let there = self.window.get(self.at, self.end).len() as u64;
        self.cut.is_some() && there == self.end - self.at
    }

    /// Whether the current event is selected.
    #[inline]
    pub(super) fn is_wanted(&self, metadata: &Metadata) -> bool {
        let packet = self.packet.as_ref();
        let class = packet.and_then(|packet| metadata.classes().get(packet.class));
        let event = class.and_then(|class| class.event(self.found.id));
        event.is_some_and(|event| event.is_wanted)
    }

    /// Whether the current event fulfils a condition.
    pub(super) fn holds(&self, metadata: &Metadata, condition: &Condition) -> bool {
        let Some(packet) = &self.packet else {
            return false;
        };
        let class = metadata.classes().get(packet.class);
        let found = class.and_then(|class| Some((class, self.event(class)?)));
        let Some((class, (event, contexts, payload))) = found else {
            return false;
        };
        let occurrence = Occurrence {
            declared: Declared::new(class, event),
            packet: packet.context(),
            contexts,
            payload,
            process: ProcessOf::Trace(metadata),
        };
        let binding = event.binding.as_ref();
        binding.is_some_and(|binding| condition.holds(binding, &occurrence))
    }

    /// Returns an error, and skips the rest of the packet.
    #[cold]
    pub(super) fn damage<T>(&mut self, what: &str) -> Result<T, StreamError> {
        let offset = std::mem::replace(&mut self.at, self.end);
        Err(StreamError::Damage {
            offset,
            what: what.to_owned(),
        })
    }

    /// Reads more of the current event.
    #[cold]
    fn read_more(&mut self, chunk: usize) -> Result<(), StreamError> {
        let there = self.window.get(self.at, self.end).len();
        let rest = self.end - self.at;
        if there as u64 == rest {
            return self.damage("an event goes beyond the end of its packet");
        }
        if there > MAX_EVENT {
            return self.damage("an event is longer than one can be");
        }
        let want = chunk.max(2 * there) as u64;
        let read = crate::file::open(&self.path)
            .and_then(|file| self.window.read(&file, self.at, want.min(rest) as usize));
        if let Err(error) = read {
            self.at = self.end;
            return Err(error.into());
        }
        if self.window.get(self.at, self.end).len() == there {
            return self.damage("the file was cut while it was read");
        }
        Ok(())
    }

    /// The current event: its class, its contexts, its payload.
    #[inline]
    pub(super) fn event<'a>(
        &'a self,
        class: &'a StreamClass,
    ) -> Option<(&'a EventClass, &'a [u8], &'a [u8])> {
        let found = &self.found;
        let bytes = self.window.get(found.at, self.end);
        let bytes = bytes.get(EVENT_HEADER_LEN..)?;
        let (contexts, payload) = bytes.split_at_checked(found.contexts_len)?;
        Some((class.event(found.id)?, contexts, payload.get(..found.len)?))
    }

    /// Takes the read buffer, while it is not needed, for another stream to use.
    pub(super) fn take_memory(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.window.bytes);
        bytes.clear();
        bytes
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.window.bytes.capacity()
    }

    pub(super) fn give_memory(&mut self, memory: Vec<u8>) {
        self.window.bytes = memory;
    }
}

/// Result of parsing an event.
enum Parsed {
    Event(Found),
    Unknown(u16),
    TooShort,
}

/// Parses the event at the start of `bytes`. `before`: time of the last event, or of the packet's
/// start.
#[inline]
fn parse_event(class: &StreamClass, bytes: &[u8], before: u64) -> Parsed {
    let Some((header, rest)) = bytes.split_first_chunk::<EVENT_HEADER_LEN>() else {
        return Parsed::TooShort;
    };
    let word = u64::from_ne_bytes(*header);
    let id = record_id(word);
    // A time that overflows exceeds the packet's end, and so is damage.
    let time = record_time(before, word).unwrap_or(u64::MAX);
    let Some(event) = class.event(id) else {
        return Parsed::Unknown(id);
    };
    let fields = class.contexts.as_deref().unwrap_or_default();
    let lens = || {
        let contexts_len = class.contexts_len.at(fields, rest)?;
        let payload = rest.get(contexts_len..)?;
        let len = event.len.at(&event.fields, payload)?;
        (len <= payload.len()).then_some((contexts_len, len))
    };
    lens().map_or(Parsed::TooShort, |(contexts_len, len)| {
        Parsed::Event(Found {
            id,
            time,
            at: 0,
            contexts_len,
            len,
        })
    })
}
