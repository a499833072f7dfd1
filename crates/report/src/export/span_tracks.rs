//! Places spans of `tracing` on tracks of Perfetto.
//!
//! The slices of a track must nest. So a span is on the track of its parent if the parent is the
//! innermost slice there, and else on a track below it. Tracks without open slices are used again
//! for spans of the same name, so there are no more of them than spans at the same time.

use std::collections::HashMap;

use usertrace_reader::Event;

use super::pairs::Stack;
use crate::spans::ids::{IdMaker, Ids};
use crate::spans::live::LiveSpans;

/// Most open spans of all processes. Further ones have no slice.
const MAX_OPEN: usize = 1 << 20;
/// Most classes of events that give fields to one span, and most bytes of the fields of all open
/// spans. Further fields are left out.
const MAX_RECORDS: usize = 16;
const MAX_BYTES: usize = 64 << 20;

/// A span that has a slice.
#[derive(Debug)]
struct Slice {
    ids: Ids,
    serial: u64,
    track: usize,
    records: Vec<Record>,
}

/// Fields that a span got after its begin.
#[derive(Debug)]
pub(super) struct Record {
    /// The class of the event.
    pub(super) class: usize,
    pub(super) payload: Box<[u8]>,
}

#[derive(Debug)]
struct Process {
    ids: IdMaker,
    live: LiveSpans<Slice>,
}

#[derive(Debug)]
struct SpanTrack {
    process: usize,
    parent: Option<usize>,
    name: u64,
    stack: Stack,
}

/// The tracks of spans.
#[derive(Debug, Default)]
pub(super) struct SpanTracks {
    processes: HashMap<usize, Process>,
    tracks: Vec<SpanTrack>,
    /// Tracks without open slices, by process, parent and name.
    free: HashMap<(usize, Option<usize>, u64), Vec<usize>>,
    open: usize,
    /// Bytes of all records.
    bytes: usize,
    last: u64,
}

/// A slice that begins.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) track: usize,
    /// The track is new, and below another one or its process.
    pub(super) is_new: bool,
    pub(super) parent: Option<usize>,
    pub(super) ids: Ids,
}

/// A slice that ends.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) track: usize,
    /// How many slices within it end as well.
    pub(super) within: usize,
    pub(super) records: Vec<Record>,
}

impl SpanTracks {
    /// A span of this name, which has this number, begins. `None`: there is no room for it. The
    /// caller must have ended an open one of this id.
    pub(super) fn begin(
        &mut self,
        event: &Event<'_>,
        name: &str,
        number: u64,
        [id, parent]: [u64; 2],
    ) -> Option<Begun> {
        if self.open >= MAX_OPEN {
            return None;
        }
        let of = event.trace.process();
        let process = self.processes.entry(of).or_insert_with(|| Process {
            ids: IdMaker::new(event.trace.metadata()),
            live: LiveSpans::default(),
        });
        let around = process.live.get(parent).map(|live| &live.value);
        let ids = process
            .ids
            .of_span(name, id, event.ns, around.map(|slice| slice.ids));
        let around = around.map(|slice| (slice.track, slice.serial));
        self.last += 1;
        let serial = self.last;
        let is_innermost = |&(track, serial): &(usize, u64)| {
            let track = self.tracks.get(track);
            track.is_some_and(|track| track.stack.innermost() == Some(serial))
        };
        let (track, is_new, above) = match around.filter(is_innermost) {
            Some((track, _)) => (track, false, None),
            None => {
                let above = around.map(|(track, _)| track);
                let key = (of, above, number);
                match self.free.get_mut(&key).and_then(Vec::pop) {
                    Some(track) => (track, false, above),
                    None => {
                        self.tracks.push(SpanTrack {
                            process: of,
                            parent: above,
                            name: number,
                            stack: Stack::default(),
                        });
                        (self.tracks.len() - 1, true, above)
                    }
                }
            }
        };
        if !self.tracks.get_mut(track)?.stack.begin(serial) {
            return None;
        }
        let slice = Slice {
            ids,
            serial,
            track,
            records: Vec::new(),
        };
        process.live.begin(id, event.ns, slice);
        self.open += 1;
        Some(Begun {
            track,
            is_new,
            parent: above,
            ids,
        })
    }

    /// A span ends. `None`: it has no slice, or that ended with one around it.
    pub(super) fn end(&mut self, process: usize, id: u64) -> Option<Ended> {
        let slice = self.processes.get_mut(&process)?.live.close(id)?.value;
        self.open -= 1;
        self.bytes -= bytes_of(&slice.records);
        let track = self.tracks.get_mut(slice.track)?;
        let within = track.stack.end(slice.serial)?;
        if track.stack.innermost().is_none() {
            let key = (track.process, track.parent, track.name);
            self.free.entry(key).or_default().push(slice.track);
        }
        Some(Ended {
            track: slice.track,
            within,
            records: slice.records,
        })
    }

    /// The ids and the track of an open span.
    pub(super) fn get(&self, process: usize, id: u64) -> Option<(Ids, usize)> {
        let slice = &self.processes.get(&process)?.live.get(id)?.value;
        Some((slice.ids, slice.track))
    }

    /// A span gets fields.
    pub(super) fn record(&mut self, event: &Event<'_>, class: usize, id: u64) {
        let process = self.processes.get_mut(&event.trace.process());
        let Some(live) = process.and_then(|process| process.live.get_mut(id)) else {
            return;
        };
        let records = &mut live.value.records;
        self.bytes -= bytes_of(records);
        // Arguments have unique names, so the latest counts.
        records.retain(|record| record.class != class);
        self.bytes += bytes_of(records);
        if records.len() < MAX_RECORDS && self.bytes < MAX_BYTES {
            self.bytes += event.payload.len();
            records.push(Record {
                class,
                payload: event.payload.into(),
            });
        }
    }
}

fn bytes_of(records: &[Record]) -> usize {
    records.iter().map(|record| record.payload.len()).sum()
}
