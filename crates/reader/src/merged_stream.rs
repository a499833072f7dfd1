//! A stream with its position in the merged order.

use crate::Selection;
use crate::lost::{LossKind, Lost};
use crate::metadata::{Metadata, StreamClass};
use crate::stream::{NextPacket, Stream, StreamError};

/// The next item of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// None known.
    Nothing,
    /// A packet that begins at this time. Its events were not read yet.
    Packet(i64),
    /// The current event, at this time.
    Event(i64),
}

/// A stream that is merged with others.
#[derive(Debug)]
pub(crate) struct MergedStream {
    pub(crate) stream: Stream,
    pub(crate) next: Next,
    pub(crate) is_in_packet: bool,
    /// It is not read any further.
    pub(crate) is_given_up: bool,
    /// Order among streams with items at the same time.
    pub(crate) rank: u32,
    /// End in ns, number and discard counter of the last packet.
    pub(crate) last: Option<(i64, u64, u64)>,
}

impl MergedStream {
    /// Finds the next selected event of the packet.
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
            if self.is_about_modules(metadata) {
                match selection.modules {
                    true => return Ok(Some(ns)),
                    false => continue,
                }
            }
            if selection.from.is_none_or(|from| ns >= from)
                && (selection.events.is_none() || self.stream.is_wanted(metadata))
                && (selection.condition.as_ref())
                    .is_none_or(|condition| self.stream.holds(metadata, condition))
            {
                return Ok(Some(ns));
            }
        }
        Ok(None)
    }

    /// Whether the current packet has events about modules.
    #[inline]
    fn is_about_modules(&self, metadata: &Metadata) -> bool {
        let packet = self.stream.packet.as_ref();
        let class = packet.and_then(|packet| metadata.classes().get(packet.class));
        class.is_some_and(StreamClass::is_about_modules)
    }

    /// Finds the next packet in the selected time range.
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
            // Modules that were loaded before are still there.
            let is_earlier_needed = selection.modules && self.is_about_modules(metadata);
            if is_earlier_needed || selection.from.is_none_or(|from| end >= from) {
                self.next = Next::Packet(begin);
                return Ok(NextPacket::Found);
            }
            self.enter(metadata);
            self.is_in_packet = false;
        }
    }

    /// Enters the packet. Returns the losses that its header reports.
    pub(crate) fn enter(&mut self, metadata: &Metadata) -> [Option<Lost>; 2] {
        self.is_in_packet = true;
        let Some(packet) = &self.stream.packet else {
            return [None, None];
        };
        let ns = |cycles| metadata.clock().ns(cycles).unwrap_or(i64::MAX);
        let (begin, end) = (ns(packet.begin), ns(packet.end));
        let last = self.last.replace((end, packet.number, packet.discarded));
        // The first packet's number says nothing about earlier ones.
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
            // A repeated number reports no lost packet.
            (packets != 0 && packet.number != number)
                .then(|| lost(LossKind::Packets(packets), begin)),
        ]
    }
}
