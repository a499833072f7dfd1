//! A stream, and where it is in the order of time.

use crate::Selection;
use crate::lost::{LossKind, Lost};
use crate::metadata::Metadata;
use crate::stream::{NextPacket, Stream, StreamError};

/// What comes next of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, as far as is known.
    Nothing,
    /// A packet, at this time: what is in it was not looked at.
    Packet(i64),
    /// The event that it is at.
    Event(i64),
}

/// A stream among those that are merged.
#[derive(Debug)]
pub(crate) struct MergedStream {
    pub(crate) stream: Stream,
    pub(crate) next: Next,
    pub(crate) is_in_packet: bool,
    /// Nothing will be read of it any more.
    pub(crate) is_given_up: bool,
    /// The place among streams that have something at the same time.
    pub(crate) rank: u32,
    /// Of the packet before: its end in ns, and its counters.
    pub(crate) last: Option<(i64, u64, u64)>,
}

impl MergedStream {
    /// The next event of the packet that was asked for.
    #[inline]
    pub(crate) fn next_event(
        &mut self,
        metadata: &Metadata,
        selection: &Selection,
        chunk: usize,
    ) -> Result<Option<i64>, StreamError> {
        while let Some(cycles) = self.stream.next_event(metadata, chunk)? {
            let Some(ns) = metadata.clock().ns(cycles) else {
                return self.stream.damage("a time beyond what can be said");
            };
            if selection.to.is_some_and(|to| ns > to) {
                self.is_given_up = true;
                return Ok(None);
            }
            if selection.from.is_none_or(|from| ns >= from)
                && (selection.events.is_none() || self.stream.is_wanted(metadata))
            {
                return Ok(Some(ns));
            }
        }
        Ok(None)
    }

    /// Finds the next packet that has something that was asked for.
    pub(crate) fn next_packet(
        &mut self,
        metadata: &Metadata,
        selection: &Selection,
        follows: bool,
    ) -> Result<NextPacket, StreamError> {
        loop {
            match self.stream.next_packet(metadata, follows)? {
                NextPacket::Found => {}
                none => return Ok(none),
            }
            let Some((begin, end)) = self.stream.packet_ns(metadata) else {
                return self.stream.damage("a time beyond what can be said");
            };
            if selection.to.is_some_and(|to| begin > to) {
                self.is_given_up = true;
                return Ok(NextPacket::End);
            }
            if selection.from.is_none_or(|from| end >= from) {
                self.next = Next::Packet(begin);
                return Ok(NextPacket::Found);
            }
            self.enter(metadata);
            self.is_in_packet = false;
        }
    }

    /// Goes into a packet. Gives what its header says of what was lost before.
    pub(crate) fn enter(&mut self, metadata: &Metadata) -> [Option<Lost>; 2] {
        self.is_in_packet = true;
        let Some(packet) = &self.stream.packet else {
            return [None, None];
        };
        let ns = |cycles| metadata.clock().ns(cycles).unwrap_or(i64::MAX);
        let (begin, end) = (ns(packet.begin), ns(packet.end));
        let last = self.last.replace((end, packet.number, packet.discarded));
        // Of what was before the first packet that there is, its number does not tell.
        let (since, number, discarded) = last.unwrap_or((begin, packet.number, 0));
        let class = metadata.classes().get(packet.class);
        let cpu = class.and_then(|class| class.cpu(packet.context()));
        let lost = |kind, end| Lost {
            trace: self.stream.trace,
            path: self.stream.path.clone(),
            cpu,
            kind,
            begin: since,
            end,
        };
        let events = packet.discarded.wrapping_sub(discarded);
        let packets = packet.number.wrapping_sub(number).saturating_sub(1);
        [
            (events != 0).then(|| lost(LossKind::Events(events), end)),
            // The same number again is nothing to take one from.
            (packets != 0 && packet.number != number)
                .then(|| lost(LossKind::Packets(packets), begin)),
        ]
    }
}
