//! What begins and ends within spans: memory, locks, and whatever else has a begin event and an end
//! event.

use std::collections::HashMap;

use usertrace_reader::Event;

use crate::activity::{Activity, Ended};

/// Maximum number of memory blocks that are tracked.
const MAX_BLOCKS: usize = 1 << 20;
/// Maximum number of begin events in spans whose end is waited for.
const MAX_MARKS: usize = 1 << 20;

/// The place of a begin event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) process: usize,
    /// The span's id, and what tells it from others with the same id.
    pub(super) span: u64,
    pub(super) serial: u64,
    /// Its index among the events of the span.
    pub(super) event: usize,
}

/// Pairs the events of threads that are in spans.
#[derive(Debug)]
pub(super) struct Inside {
    activity: Activity,
    /// By numbers that the activity keeps instead of call stacks. 0 is none.
    marks: HashMap<u32, Mark>,
    last: u32,
    ended: Vec<Ended>,
}

impl Default for Inside {
    fn default() -> Self {
        Self {
            activity: Activity::new(MAX_BLOCKS),
            marks: HashMap::new(),
            last: 0,
            ended: Vec::new(),
        }
    }
}

impl Inside {
    /// Follows an event. `mark` is its place if it is in a span; `is_open` says whether a span of
    /// another event is still open. Returns the places of the begin events of what it ended, each
    /// with the name of the pair; and whether it begins anything itself.
    pub(super) fn event(
        &mut self,
        event: &Event<'_>,
        mark: Option<Mark>,
        is_open: impl Fn(&Mark) -> bool,
    ) -> (Vec<(Mark, String)>, bool) {
        let is_begin = self.activity.is_begin(event);
        let mark = mark.filter(|_| is_begin);
        let number = mark.map_or(0, |mark| self.number(mark, is_open));
        let process = event.trace.process() as u32;
        let mut ended = std::mem::take(&mut self.ended);
        ended.clear();
        // Memory of a parent process is of none of its spans.
        self.activity
            .event(event, process, number, |_| true, &mut ended);
        let found = ended.iter().filter_map(|ended| {
            let mark = self.marks.remove(&ended.stack)?;
            Some((mark, self.activity.pairs.text(ended.pair)))
        });
        let found = found.collect();
        self.ended = ended;
        (found, is_begin)
    }

    /// Keeps a mark. Returns its number. If there is no room, others are forgotten.
    fn number(&mut self, mark: Mark, is_open: impl Fn(&Mark) -> bool) -> u32 {
        if self.marks.len() >= MAX_MARKS {
            self.marks.retain(|_, mark| is_open(mark));
            // Otherwise, each further event would look for room.
            if self.marks.len() > MAX_MARKS / 2 {
                self.marks.clear();
            }
        }
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.marks.insert(self.last, mark);
        self.last
    }
}
