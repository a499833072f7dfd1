//! Streams that are created with their first item.

use std::io;

use usertrace_ring::Channel;
use usertrace_sys::Scope;

use super::ring_state::RingState;
use crate::unwritten::Unwritten;
use crate::{StreamChannel, StreamOwner, StreamWriter, TraceWriter};

/// The trace and the channel in which streams are created.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamTarget<'a> {
    pub(super) trace: &'a TraceWriter,
    pub(super) channel: &'a StreamChannel,
}

/// A stream file that is created with its first item.
#[derive(Debug)]
pub(super) struct LazyStream {
    pub(super) of: StreamOwner,
    /// The file may exist already.
    pub(super) resumed: bool,
    pub(super) stream: Option<StreamWriter>,
    /// Bytes in the files of earlier owner threads, and their unwritten events.
    pub(super) written_before: u64,
    pub(super) unwritten_before: Unwritten,
}

impl LazyStream {
    pub(super) fn new(channel: &Channel, ring: u32, resumed: bool, state: &RingState) -> Self {
        let of = match channel.scope() {
            Scope::Cpu => StreamOwner::Cpu(ring),
            Scope::Thread => StreamOwner::Thread {
                ring,
                tid: state.tid,
                begin: state.begin,
            },
            Scope::Global => StreamOwner::Process(ring),
            Scope::MmCid => StreamOwner::MmCid(ring),
        };
        Self {
            of,
            resumed,
            stream: None,
            written_before: 0,
            unwritten_before: Unwritten::default(),
        }
    }

    #[inline]
    pub(super) fn get(&mut self, target: StreamTarget<'_>) -> io::Result<&mut StreamWriter> {
        match &mut self.stream {
            Some(stream) => Ok(stream),
            none => {
                let stream = begin(self.of, self.resumed, target)?;
                Ok(none.insert(stream))
            }
        }
    }

    /// Starts a sub-buffer at `time` of thread `writer`, as its header has them. `lost` is the
    /// ring's loss counter then, and `counted` the part that streams have counted. If the owner
    /// thread changed, a new stream begins.
    #[inline(never)]
    pub(super) fn begin_subbuf(
        &mut self,
        target: StreamTarget<'_>,
        time: u64,
        writer: u32,
        counted: &mut u64,
        lost: u64,
    ) -> io::Result<()> {
        if let StreamOwner::Thread { ring, tid, begin } = self.of
            && writer != tid
        {
            if tid != 0 {
                // The previous thread lost them.
                self.count_lost(target, counted, lost)?;
            }
            if let Some(mut stream) = self.stream.take() {
                stream.finish()?;
                self.written_before += stream.written();
                self.unwritten_before.join(stream.unwritten());
            }
            self.of = StreamOwner::Thread {
                ring,
                tid: writer,
                // Above that of the previous stream, whatever the process wrote, so that names
                // differ.
                begin: time.max(begin.saturating_add(1)),
            };
        }
        self.count_lost(target, counted, lost)
    }

    pub(super) fn count_lost(
        &mut self,
        target: StreamTarget<'_>,
        counted: &mut u64,
        now: u64,
    ) -> io::Result<()> {
        if let Some(more) = now.checked_sub(*counted).filter(|&more| more > 0) {
            self.get(target)?.discard(more);
            *counted = now;
        }
        Ok(())
    }

    pub(super) fn written(&self) -> u64 {
        self.written_before + self.stream.as_ref().map_or(0, StreamWriter::written)
    }

    pub(super) fn unwritten(&self) -> Unwritten {
        let mut unwritten = self.unwritten_before.clone();
        if let Some(stream) = &self.stream {
            unwritten.join(stream.unwritten());
        }
        unwritten
    }
}

#[cold]
fn begin(of: StreamOwner, resumed: bool, target: StreamTarget<'_>) -> io::Result<StreamWriter> {
    if resumed {
        target.trace.resume_stream(target.channel, of, None)
    } else {
        target.trace.stream(target.channel, of)
    }
}
