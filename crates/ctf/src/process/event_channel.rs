//! Channels of events.

use std::io;

use usertrace_ring::schema::Contexts;
use usertrace_sys::Scope;

use super::count_channel::CountChannel;
use super::event_ring::EventRing;
use super::lazy_stream::StreamTarget;
use super::summary::RingSummary;
use crate::{StreamChannel, TraceWriter};

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
