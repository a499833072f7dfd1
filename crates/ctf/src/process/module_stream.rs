//! Writes what modules a process has loaded, for readers that look up addresses.
//!
//! The stream begins with the state at the first event of the trace, so that each chunk and
//! snapshot is complete in itself. Changes follow as they come.

use std::collections::BTreeMap;
use std::io;

use usertrace_ring::schema::{Contexts, FieldType, Module, ModuleChange, Scalar};

use crate::modules::{ModuleEvent, context_values, describe};
use crate::{StreamChannel, StreamOwner, StreamState, StreamWriter, TraceWriter};

/// The modules of a process, and the stream about them.
#[derive(Debug, Default)]
pub(super) struct ModuleStream {
    /// Changes that are not written yet, with their times.
    pending: Vec<(u64, ModuleChange)>,
    /// Loaded modules by base, as the stream has them.
    loaded: BTreeMap<u64, Module>,
    stream: Option<StreamWriter>,
    /// Process id in the stream.
    vpid: i32,
}

impl ModuleStream {
    /// Takes a description.
    pub(super) fn take(&mut self, time: u64, change: ModuleChange) {
        self.pending.push((time, change));
    }

    /// Writes what is not written yet. `first`: the time of the trace's first event, `vpid`: the
    /// process id in its events. `resumed`: another writer may have begun the stream.
    pub(super) fn write(
        &mut self,
        trace: &mut TraceWriter,
        first: u64,
        vpid: i32,
        resumed: bool,
    ) -> io::Result<()> {
        if self.pending.is_empty() && (self.stream.is_none() || vpid == self.vpid) {
            return Ok(());
        }
        // The rings of the control channel are read one by one.
        self.pending.sort_by_key(|(time, _)| *time);
        let mut pending = std::mem::take(&mut self.pending).into_iter().peekable();
        if self.stream.is_none() || vpid != self.vpid {
            let (mut stream, time) = match self.stream.take() {
                Some(stream) => {
                    let time = stream.state().time;
                    (stream, time)
                }
                None => begin(trace, first, resumed)?,
            };
            while let Some((_, change)) = pending.next_if(|(of, _)| *of <= time) {
                match change {
                    ModuleChange::Loaded(module) => drop(self.loaded.insert(module.base, module)),
                    ModuleChange::Unloaded(base) => drop(self.loaded.remove(&base)),
                }
            }
            self.vpid = vpid;
            let contexts = context_values(vpid);
            let mut emit = |event: ModuleEvent, payload: &[u8]| {
                stream.event(event as u16, time, &contexts, payload)
            };
            emit(ModuleEvent::Start, &[])?;
            for module in self.loaded.values() {
                describe(module, true, &mut emit)?;
            }
            emit(ModuleEvent::End, &[])?;
            self.stream = Some(stream);
        }
        let contexts = context_values(vpid);
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        for (time, change) in pending {
            let mut emit = |event: ModuleEvent, payload: &[u8]| {
                stream.event(event as u16, time, &contexts, payload)
            };
            let (base, module) = match change {
                ModuleChange::Loaded(module) => (module.base, Some(module)),
                ModuleChange::Unloaded(base) => (base, None),
            };
            // Several copies of the library in a process may describe the same.
            if self.loaded.get(&base) == module.as_ref() {
                continue;
            }
            if self.loaded.remove(&base).is_some() {
                emit(ModuleEvent::Unload, &base.to_ne_bytes())?;
            }
            if let Some(module) = module {
                describe(&module, false, &mut emit)?;
                self.loaded.insert(base, module);
            }
        }
        stream.flush()
    }

    /// Length of the stream in bytes.
    pub(super) fn written(&self) -> u64 {
        self.stream.as_ref().map_or(0, StreamWriter::written)
    }
}

/// Begins the stream, or goes on with that of another writer. Returns the time at which it goes on.
fn begin(trace: &mut TraceWriter, first: u64, resumed: bool) -> io::Result<(StreamWriter, u64)> {
    trace.declare_modules()?;
    let (channel, owner) = (StreamChannel::modules(), StreamOwner::Process(0));
    let path = trace.directory().join(owner.file_name(&channel));
    if resumed && let Some((_, state)) = StreamState::of_file(&path)? {
        let time = state.time;
        return Ok((trace.resume_stream(&channel, owner, Some(&state))?, time));
    }
    let clock = trace.clock();
    // Before the event: readers merge streams by the time in ns.
    let time = first.saturating_sub(clock.freq() / 1_000_000);
    let time = time.max(clock.start().min(first));
    let stream = match resumed {
        true => trace.resume_stream(&channel, owner, None)?,
        false => trace.stream(&channel, owner)?,
    };
    Ok((stream, time))
}

/// The process id in the contexts of an event. None if they have none.
pub(super) fn vpid(contexts: &Contexts, mut values: &[u8]) -> Option<i32> {
    for field in &contexts.fields {
        if field.name == "vpid" {
            let is_id = |kind: &FieldType| matches!(kind, FieldType::Scalar(Scalar::Integer(kind)) if kind.len == 4 && !kind.big_endian);
            let bytes = values.first_chunk().filter(|_| is_id(&field.kind));
            return bytes.map(|bytes| i32::from_ne_bytes(*bytes));
        }
        values = values.get(field.kind.len(values)?..)?;
    }
    None
}
