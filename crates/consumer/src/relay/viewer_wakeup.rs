//! A stream without events, which makes live viewers look for new streams.
//!
//! The relay tells a viewer of new streams only along with the index of a packet. A viewer that has
//! read all packets of the streams that it knows would not hear of a new process while these are
//! idle, and that process's streams would be closed before. So each live session has a stream of
//! its own, which gets an empty packet when others were published.

use usertrace_ctf::{METADATA, PACKET_MAGIC, SIGNATURE, format_uuid, new_uuid};
use usertrace_relay::{Connection, Index, NO_PACKET, SourceError};

use super::metadata::{clock_frequency, clock_name};
use super::sent::{SendError, distinct_time};
use super::shared::Times;

/// Its directory below that of the session, hidden from readers.
const PATH: &str = ".live";
/// The name of its stream.
const NAME: &str = "wakeup";
/// Length of a packet, as its metadata declare it.
const PACKET_LEN: u32 = 4 + 16 + 4 + 4 * 8;

/// The stream in a session.
#[derive(Debug)]
pub(super) struct ViewerWakeup {
    metadata_stream: u64,
    stream: u64,
    uuid: [u8; 16],
    frequency: Option<u64>,
    packets: u64,
    /// Time of the last packet or beacon.
    time: u64,
}

impl ViewerWakeup {
    /// Adds the stream to a session, which has this clock. The caller publishes it. None if the
    /// declaration of the clock has no name.
    pub(super) fn new(
        connection: &mut Connection,
        clock: &[u8],
    ) -> Result<Option<Self>, SendError> {
        let Some(name) = clock_name(clock) else {
            return Ok(None);
        };
        let uuid = new_uuid()?;
        let metadata_stream = connection.add_stream(PATH, METADATA)?;
        let stream = connection.add_stream(PATH, NAME)?;
        connection.send_metadata(metadata_stream, &metadata(&uuid, clock, name))?;
        Ok(Some(Self {
            metadata_stream,
            stream,
            uuid,
            frequency: clock_frequency(clock),
            packets: 0,
            time: 0,
        }))
    }

    /// Sends an empty packet of the time `until`, when streams were published. Viewers look for
    /// these before they print anything of that time. Other streams may still get earlier packets:
    /// they had no such beacon yet.
    pub(super) fn send(
        &mut self,
        connection: &mut Connection,
        until: Option<Times>,
    ) -> Result<(), SendError> {
        self.time = self.time.max(self.time_of(until));
        let packet = self.packet();
        let sent = connection.send_packet(self.stream, self.packets, PACKET_LEN, &mut &packet[..]);
        sent.map_err(|error| match error {
            SourceError::Source(error) => SendError::Spool(error),
            SourceError::Relay(error) => SendError::Relay(error),
        })?;
        let bits = u64::from(PACKET_LEN) * 8;
        let index = Index {
            packet_size: bits,
            content_size: bits,
            begin: self.time,
            end: self.time,
            packet: self.packets,
            ..Index::default()
        };
        connection.send_index(self.stream, self.packets, &index)?;
        self.packets += 1;
        Ok(())
    }

    /// Tells viewers that no packet before a time follows.
    pub(super) fn send_beacon(
        &mut self,
        connection: &mut Connection,
        until: Times,
    ) -> Result<(), SendError> {
        let time = self.time_of(Some(until));
        if time > self.time {
            connection.send_beacon(self.stream, 0, time)?;
            self.time = time;
        }
        Ok(())
    }

    /// Closes it, at the end of a session.
    pub(super) fn close(&self, connection: &mut Connection) -> Result<(), SendError> {
        connection.close_stream(self.stream, self.packets.wrapping_sub(1))?;
        Ok(connection.close_stream(self.metadata_stream, NO_PACKET)?)
    }

    /// A time in its clock.
    fn time_of(&self, until: Option<Times>) -> u64 {
        let until = until.map_or(0, |until| until.of_clock(self.frequency));
        distinct_time(until, self.stream)
    }

    fn packet(&self) -> Vec<u8> {
        let class = 0_u32;
        let mut packet = Vec::with_capacity(PACKET_LEN as usize);
        packet.extend(PACKET_MAGIC.to_ne_bytes());
        packet.extend(self.uuid);
        packet.extend(class.to_ne_bytes());
        let bits = u64::from(PACKET_LEN) * 8;
        for word in [self.time, self.time, bits, bits] {
            packet.extend(word.to_ne_bytes());
        }
        packet
    }
}

/// Metadata of a trace with streams of empty packets, and with this clock of this name.
fn metadata(uuid: &[u8; 16], clock: &[u8], name: &str) -> Vec<u8> {
    let byte_order = match cfg!(target_endian = "little") {
        true => "le",
        false => "be",
    };
    let uuid = format_uuid(uuid);
    let begin = format!(
        "{SIGNATURE}
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;

trace {{
	major = 1;
	minor = 8;
	uuid = \"{uuid}\";
	byte_order = {byte_order};
	packet.header := struct {{
		uint32_t magic;
		uint8_t uuid[16];
		uint32_t stream_id;
	}};
}};

clock {{
"
    );
    let end = format!(
        "
}};

typealias integer {{
	size = 64; align = 8; signed = false;
	map = clock.{name}.value;
}} := time_t;

stream {{
	id = 0;
	packet.context := struct {{
		time_t timestamp_begin;
		time_t timestamp_end;
		uint64_t content_size;
		uint64_t packet_size;
	}};
}};
"
    );
    [begin.as_bytes(), clock, end.as_bytes()].concat()
}
