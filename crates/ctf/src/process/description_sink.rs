//! Takes the descriptions of a control channel.

use std::io;

use usertrace_ring::schema::{Contexts, Counting, Description, EventTable};

use super::event_channel::EventChannel;
use super::module_stream::ModuleStream;
use crate::TraceWriter;

/// Adds descriptions to the trace and its channels.
pub(super) struct DescriptionSink<'a> {
    pub(super) trace: &'a mut TraceWriter,
    pub(super) events: &'a mut EventTable,
    pub(super) contexts: &'a mut Vec<Contexts>,
    pub(super) counting: &'a mut Vec<Counting>,
    pub(super) modules: &'a mut ModuleStream,
    pub(super) channels: &'a mut [EventChannel],
}

impl DescriptionSink<'_> {
    /// Adds a description of some time. False if it is invalid, or contradicts another one.
    pub(super) fn take(&mut self, time: u64, line: &[u8]) -> io::Result<bool> {
        match Description::parse(line) {
            Ok(Description::Event(event)) => match self.events.add(event) {
                Ok(Some(event)) => self.trace.declare(event)?,
                Ok(None) => {}
                Err(_) => return Ok(false),
            },
            Ok(Description::Contexts(contexts)) => return self.take_contexts(contexts),
            Ok(Description::Counting(counting)) => return Ok(self.take_counting(counting)),
            // Several copies of the library in a process may describe it.
            Ok(Description::Cmdline(_)) if self.trace.cmdline().is_some() => {}
            Ok(Description::Cmdline(cmdline)) => self.trace.declare_cmdline(cmdline)?,
            Ok(Description::Module(change)) => self.modules.take(time, change),
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    fn take_counting(&mut self, counting: Counting) -> bool {
        let of_same = |other: &&Counting| other.channel == counting.channel;
        if let Some(before) = self.counting.iter().find(of_same) {
            return *before == counting;
        }
        self.counting.push(counting);
        true
    }

    fn take_contexts(&mut self, contexts: Contexts) -> io::Result<bool> {
        let of_same = |other: &&Contexts| other.channel == contexts.channel;
        if let Some(before) = self.contexts.iter().find(of_same) {
            // Several copies of the library in a process may describe the same.
            return Ok(*before == contexts);
        }
        let mut channels = self.channels.iter_mut();
        if let Some(channel) = channels.find(|channel| channel.of.index() == contexts.channel) {
            if channel.is_read || channel.counts.is_some() {
                return Ok(false);
            }
            channel.set_contexts(self.trace, &contexts)?;
        }
        self.contexts.push(contexts);
        Ok(true)
    }
}
