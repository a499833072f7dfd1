//! Streams that are created with their first item.

use std::io;

use usertrace_ring::Channel;
use usertrace_sys::Scope;

use super::ring_state::RingState;
use crate::unwritten::Unwritten;
use crate::{StreamChannel, StreamOwner, StreamWriter, TraceWriter};

/// Where streams are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamTarget<'a> {
    pub(super) trace: &'a TraceWriter,
    pub(super) channel: &'a StreamChannel,
}

/// A stream file that is made when there is something to put into it.
#[derive(Debug)]
pub(super) struct LazyStream {
    pub(super) of: StreamOwner,
    /// There may be a file already.
    pub(super) resumed: bool,
    pub(super) stream: Option<StreamWriter>,
    /// Bytes in the files of threads that had the ring before, and what found no room there.
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

    /// A sub-buffer is begun at `time`, with `writer` as its header has it. `lost` is what the ring
    /// had lost by then, and `told` what streams were told of that.
    #[inline(never)]
    pub(super) fn begin_subbuf(
        &mut self,
        target: StreamTarget<'_>,
        time: u64,
        writer: u32,
        told: &mut u64,
        lost: u64,
    ) -> io::Result<()> {
        if let StreamOwner::Thread { ring, tid, begin } = self.of
            && writer != tid
        {
            if tid != 0 {
                // The thread before this one lost them.
                self.tell_lost(target, told, lost)?;
            }
            if let Some(mut stream) = self.stream.take() {
                stream.finish()?;
                self.written_before += stream.written();
                self.unwritten_before.join(stream.unwritten());
            }
            self.of = StreamOwner::Thread {
                ring,
                tid: writer,
                // Above that of the stream before, whatever the process wrote: names are not to
                // meet.
                begin: time.max(begin.saturating_add(1)),
            };
        }
        self.tell_lost(target, told, lost)
    }

    pub(super) fn tell_lost(
        &mut self,
        target: StreamTarget<'_>,
        told: &mut u64,
        now: u64,
    ) -> io::Result<()> {
        if let Some(more) = now.checked_sub(*told).filter(|&more| more > 0) {
            self.get(target)?.discard(more);
            *told = now;
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
