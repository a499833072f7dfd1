//! Writes the items of a ring to its stream.

use std::io;

use usertrace_ring::schema::Contexts;
use usertrace_ring::{Item, Run, Sink};

use super::lazy_stream::{LazyStream, StreamTarget};
use super::module_stream;

/// Writes the items of a ring to its stream.
pub(super) struct EventSink<'a> {
    pub(super) target: StreamTarget<'a>,
    pub(super) contexts: Option<&'a Contexts>,
    pub(super) stream: &'a mut LazyStream,
    pub(super) lost: &'a mut u64,
    pub(super) span: &'a mut Option<(u64, u64)>,
    /// Where to store the process id that an event has, if it is to be stored.
    pub(super) vpid: Option<&'a mut Option<i32>>,
}

impl Sink for EventSink<'_> {
    type Error = io::Error;

    #[inline(always)]
    fn record(&mut self, id: u16, time: u64, payload: &[u8]) -> io::Result<()> {
        // The reader checked that the payload is complete.
        let split = self.contexts.and_then(|contexts| contexts.split(payload));
        if let (Some((values, _)), Some(of)) = (split, self.contexts)
            && let Some(vpid) = self.vpid.take()
        {
            *vpid = module_stream::vpid(of, values);
        }
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
            // Contexts are padded in a ring, but not in a stream.
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
            // The number of events in a gap is unknown.
            Item::Gap { .. } => {
                self.stream.get(self.target)?.discard(1);
                Ok(())
            }
            Item::Overwritten { subbuffers } => self.stream.get(self.target)?.overwrite(subbuffers),
        }
    }
}

/// Leaves out what is earlier than some time.
pub(super) struct SinceFilter<'a> {
    pub(super) time: u64,
    /// The current sub-buffer, while all its events are too early: its start time, loss counter and
    /// writer.
    pub(super) subbuf: Option<(u64, u64, u32)>,
    /// An event was not left out.
    pub(super) has_begun: bool,
    /// Counts the events that were left out.
    pub(super) earlier: &'a mut u64,
    pub(super) events: EventSink<'a>,
}

impl Sink for SinceFilter<'_> {
    type Error = io::Error;

    fn record(&mut self, id: u16, time: u64, payload: &[u8]) -> io::Result<()> {
        if time < self.time {
            *self.earlier += 1;
            return Ok(());
        }
        self.has_begun = true;
        if let Some((time, lost, cpu)) = self.subbuf.take() {
            self.events.item(Item::SubBuffer { time, lost, cpu })?;
        }
        self.events.record(id, time, payload)
    }

    fn item(&mut self, item: Item<'_>) -> io::Result<()> {
        match item {
            Item::Record { id, time, payload } => self.record(id, time, payload),
            _ if self.has_begun => self.events.item(item),
            Item::SubBuffer { time, lost, cpu } => {
                // Losses before the end of the last sub-buffer are too early.
                if let Some((_, before, _)) = self.subbuf.replace((time, lost, cpu)) {
                    *self.events.lost = before;
                }
                Ok(())
            }
            Item::Gap { .. } | Item::Overwritten { .. } => Ok(()),
        }
    }
}
