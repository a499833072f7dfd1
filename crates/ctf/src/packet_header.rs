//! Reads the headers of packets, for senders of traces.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::{PACKET_HEADER_LEN, PACKET_MAGIC};

/// The header of a packet, as a [`StreamWriter`](crate::StreamWriter) writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Its bytes.
    pub bytes: [u8; PACKET_HEADER_LEN],
    /// Number of the class of streams.
    pub class: u32,
    /// Number of the stream in its class.
    pub instance: u64,
    /// Times of the first and the last event, in cycles.
    pub times: [u64; 2],
    /// Bytes of the packet that are used.
    pub content_len: u64,
    /// Bytes of the packet.
    pub len: u64,
    /// Number of the packet, which counts lost ones.
    pub number: u64,
    /// Discarded events so far.
    pub discarded: u64,
}

impl PacketHeader {
    /// Reads the header at an offset of a stream file. None if there is none, or not all of it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(file: &File, at: u64) -> io::Result<Option<Self>> {
        let mut bytes = [0; PACKET_HEADER_LEN];
        match file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(Self::parse(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Parses a header. None if it is not one.
    #[must_use]
    pub fn parse(bytes: [u8; PACKET_HEADER_LEN]) -> Option<Self> {
        let u32_at = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        // Magic number, UUID, class, instance, and the words of the context.
        const INSTANCE: usize = 4 + 16 + 4;
        let word = |n: usize| u64_at(INSTANCE + 8 * (1 + n));
        let header = Self {
            bytes,
            class: u32_at(4 + 16)?,
            instance: u64_at(INSTANCE)?,
            times: [word(0)?, word(1)?],
            content_len: word(2)? / 8,
            len: word(3)? / 8,
            number: word(4)?,
            discarded: word(5)?,
        };
        let is_header = u32_at(0)? == PACKET_MAGIC
            && header.content_len >= PACKET_HEADER_LEN as u64
            && header.len >= header.content_len;
        is_header.then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, StreamChannel, StreamOwner, TraceInfo, TraceOrigin, TraceWriter};
    use usertrace_sys::Scope;
    use usertrace_sys::uapi::LttClockSync;

    #[test]
    fn headers_of_the_writer_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let sync = LttClockSync::default();
        let clock = Clock::new(&sync, &[sync]);
        let path = directory.path().join("trace");
        let info = TraceInfo {
            trace_name: "t".into(),
            origin: TraceOrigin::Process {
                name: "p".into(),
                pid: 1,
                process: 1,
            },
            hostname: None,
        };
        let mut trace = TraceWriter::create(&path, info, clock).unwrap();
        trace.declare_class(Scope::Cpu).unwrap();
        let channel = StreamChannel::new("main", 1);
        let mut stream = trace.stream(&channel, StreamOwner::Cpu(3)).unwrap();
        for time in [5, 9] {
            stream.event(1, time, &[], &[7; 8]).unwrap();
        }
        stream.flush().unwrap();
        stream.discard(4);
        stream.event(1, 11, &[], &[]).unwrap();
        stream.finish().unwrap();
        let file = File::open(path.join("main_3")).unwrap();
        let first = PacketHeader::read(&file, 0).unwrap().unwrap();
        assert_eq!((first.times, first.number, first.discarded), ([5, 9], 0, 0));
        let second = PacketHeader::read(&file, first.len).unwrap().unwrap();
        assert_eq!(
            (second.times[1], second.number, second.discarded),
            (11, 1, 4)
        );
        assert_eq!((second.class, second.instance), (first.class, 3));
        let end = first.len + second.len;
        assert_eq!(file.metadata().unwrap().len(), end);
        assert_eq!(PacketHeader::read(&file, end).unwrap(), None);
        assert_eq!(PacketHeader::read(&file, 1).unwrap(), None);
    }

    #[test]
    fn impossible_lengths_are_no_header() {
        let mut bytes = [0; PACKET_HEADER_LEN];
        bytes[..4].copy_from_slice(&PACKET_MAGIC.to_ne_bytes());
        assert_eq!(PacketHeader::parse(bytes), None);
        // The content is longer than the packet.
        bytes[48..56].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(PacketHeader::parse(bytes), None);
    }
}
