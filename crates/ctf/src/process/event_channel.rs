//! Channels of events, with the readers and streams of their rings.

use std::io;

use usertrace_ring::schema::Contexts;
use usertrace_ring::{CountTable, Counts, RingReader};
use usertrace_sys::Scope;

use super::lazy_stream::{LazyStream, StreamTarget};
use super::summary::RingSummary;
use crate::{StreamChannel, TraceWriter};

/// What a channel that counts has besides its streams.
#[derive(Clone, Debug)]
pub(super) struct CountChannel {
    pub(super) name: String,
    pub(super) table: CountTable,
}

/// A channel of events.
#[derive(Debug)]
pub(super) struct EventChannel {
    pub(super) of: StreamChannel,
    pub(super) scope: Scope,
    pub(super) contexts: Option<Contexts>,
    /// Set if it counts.
    pub(super) counts: Option<CountChannel>,
    /// A ring was read, so contexts cannot change any more.
    pub(super) is_read: bool,
    pub(super) rings: Vec<EventRing>,
}

impl EventChannel {
    /// Summaries of its rings that had anything.
    pub(super) fn summaries(&self) -> impl Iterator<Item = RingSummary> {
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

    /// Sets the contexts with which payloads begin.
    pub(super) fn set_contexts(
        &mut self,
        trace: &mut TraceWriter,
        contexts: &Contexts,
    ) -> io::Result<()> {
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
pub(super) struct EventRing {
    pub(super) reader: RingReader,
    pub(super) stream: LazyStream,
    /// Lost records that the stream has counted.
    pub(super) lost: u64,
    /// Counters of earlier readers.
    pub(super) before: Counts,
    /// Events that `reader` read and that were left out.
    pub(super) earlier: u64,
    /// Times of the first and last event.
    pub(super) span: Option<(u64, u64)>,
}

impl EventRing {
    /// Sum of all readers' counters.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.before;
        counts += self.reader.counts();
        counts.events -= self.earlier;
        counts
    }
}

/// Borrows a ring that is about to be read, its contexts, and the target of its streams.
pub(super) fn ring_target<'a>(
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
