//! What programs do, as their events tell: which threads there are, what begins and ends, and which
//! memory is in use.

mod classes;
mod lanes;
mod pairing;
mod rules;

use usertrace_reader::Event;

use crate::heap::Heap;
pub(crate) use classes::Class;
use classes::Classes;
use classes::{LIFE, packet_integer, payload_integer};
pub(crate) use lanes::{LaneOwner, Lanes};
pub(crate) use pairing::Pairs;

/// What all events so far did.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Time of the first event, in ns since 1970. All other times are relative to it.
    pub(crate) begin: Option<i64>,
    /// Time of the last event.
    pub(crate) end: u64,
    pub(crate) lanes: Lanes,
    pub(crate) pairs: Pairs,
    pub(crate) heap: Heap,
    classes: Classes,
}

/// What one event did.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) time: u64,
    pub(crate) lane: u32,
    pub(crate) class: u32,
    pub(crate) cpu: Option<u64>,
    /// The number of bytes that it is about.
    pub(crate) bytes: u64,
    /// It allocated or released memory.
    pub(crate) is_of_heap: bool,
}

/// A span that an event ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) pair: u32,
    pub(crate) begin: u64,
    pub(crate) duration: u64,
    pub(crate) depth: u32,
    /// The call stack of its begin.
    pub(crate) stack: u32,
    /// Its duration, without that of spans within it.
    pub(crate) own: u64,
}

impl Activity {
    /// Nothing has happened yet. Tracks at most this number of memory blocks at the same time.
    pub(crate) fn new(max_blocks: usize) -> Self {
        Self {
            begin: None,
            end: 0,
            lanes: Lanes::default(),
            pairs: Pairs::default(),
            heap: Heap::new(max_blocks),
            classes: Classes::default(),
        }
    }

    /// Follows an event of a process. `stack` is any id of its call stack. `is_related` says
    /// whether another process may have forked this one. Appends the spans that it ended.
    pub(crate) fn event(
        &mut self,
        event: &Event<'_>,
        process: u32,
        stack: u32,
        is_related: impl FnMut(u32) -> bool,
        ended: &mut Vec<Ended>,
    ) -> Step {
        let time = self.advance(event.ns);
        let (stream, used) = self.classes.usage(&mut self.pairs, event);
        let lane = self.lanes.get(stream.thread(process, used, event));
        self.lanes.count(lane, stream.thread_name(event));
        let field = |index| payload_integer(event, index);
        for action in &used.actions {
            if action.only_if.is_some() && field(action.only_if) != Some(0) {
                continue;
            }
            let key = field(action.key).unwrap_or(0);
            let done = self.pairs.act(action, [process, lane], key, (time, stack));
            ended.extend(done.map(|done| Ended {
                pair: done.pair,
                begin: done.begin,
                duration: time - done.begin,
                depth: done.depth,
                stack: done.stack,
                own: done.own,
            }));
        }
        if let Some((heap, pair)) = &used.heap {
            let change = self
                .heap
                .note(heap, process, time, stack, field, is_related);
            let of_pair = &mut self.pairs.all[*pair as usize];
            of_pair.unbegun += u64::from(change.is_unknown_free);
            of_pair.unended += change.unended;
            if let Some((begin, stack)) = change.freed {
                let duration = time - begin;
                of_pair.durations.add(duration);
                ended.push(Ended {
                    pair: *pair,
                    begin,
                    duration,
                    depth: 0,
                    stack,
                    own: duration,
                });
            }
        }
        let step = Step {
            time,
            lane,
            class: used.class,
            cpu: packet_integer(event, stream.cpu),
            bytes: used.bytes_of(event),
            is_of_heap: used.heap.is_some(),
        };
        self.classes.all[step.class as usize].events += 1;
        step
    }

    /// Whether an event may begin something that another event ends.
    pub(crate) fn is_begin(&mut self, event: &Event<'_>) -> bool {
        let (_, used) = self.classes.usage(&mut self.pairs, event);
        let has_begin = used.actions.iter().any(|action| !action.is_end);
        has_begin || used.heap.is_some_and(|(heap, _)| heap.gives.is_some())
    }

    /// Converts the time of the next event to ns since the first one. Never goes back.
    fn advance(&mut self, ns: i64) -> u64 {
        let begin = *self.begin.get_or_insert(ns);
        // The reader sorts events by time, so this is no earlier than the first one.
        let time = u64::try_from(ns.saturating_sub(begin)).unwrap_or(0);
        self.end = time.max(self.end);
        self.end
    }

    /// All classes of events.
    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes.all
    }

    /// Counts everything that is still open as unended.
    pub(crate) fn finish(&mut self) {
        self.pairs.finish();
        let blocks = self.heap.begins().count() as u64;
        if blocks > 0 {
            let pair = self.pairs.pair(LIFE.to_owned(), true);
            self.pairs.all[pair as usize].unended += blocks;
        }
    }
}
