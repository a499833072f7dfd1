//! The open spans of `tracing` of a process, by their ids, and the threads that are in them.

use std::collections::HashMap;

/// Most spans that a thread is in: `.exit` events may be missing forever.
const MAX_DEPTH: usize = 4096;
/// Most threads that are in spans.
const MAX_THREADS: usize = 1 << 16;

/// A span that has not ended.
#[derive(Debug)]
pub(crate) struct Live<T> {
    pub(crate) begin: i64,
    /// How many threads are in it, since when there is one, and how long there was one before.
    entered: u32,
    since: i64,
    busy: i64,
    pub(crate) value: T,
}

impl<T> Live<T> {
    /// How long a thread was in it, until now.
    pub(crate) fn busy(&self, now: i64) -> i64 {
        match self.entered {
            0 => self.busy,
            _ => self.busy.saturating_add(now.saturating_sub(self.since)),
        }
    }
}

/// The open spans of a process.
#[derive(Debug)]
pub(crate) struct LiveSpans<T> {
    by_id: HashMap<u64, Live<T>>,
    /// The spans that a thread is in, from the outermost on.
    threads: HashMap<i64, Vec<u64>>,
}

impl<T> Default for LiveSpans<T> {
    fn default() -> Self {
        Self {
            by_id: HashMap::new(),
            threads: HashMap::new(),
        }
    }
}

impl<T> LiveSpans<T> {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds a span. If its id was open already, the caller must have closed that one.
    pub(crate) fn begin(&mut self, id: u64, ns: i64, value: T) {
        let live = Live {
            begin: ns,
            entered: 0,
            since: ns,
            busy: 0,
            value,
        };
        self.by_id.insert(id, live);
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Live<T>> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Live<T>> {
        self.by_id.get_mut(&id)
    }

    /// Removes a span.
    pub(crate) fn close(&mut self, id: u64) -> Option<Live<T>> {
        self.by_id.remove(&id)
    }

    /// Removes all spans, in the order of their begin.
    pub(crate) fn close_all(&mut self) -> Vec<(u64, Live<T>)> {
        let mut all: Vec<_> = self.by_id.drain().collect();
        all.sort_unstable_by_key(|(id, live)| (live.begin, *id));
        all
    }

    /// A thread enters a span, which may be unknown.
    pub(crate) fn enter(&mut self, id: u64, thread: Option<i64>, ns: i64) {
        if let Some(live) = self.by_id.get_mut(&id) {
            if live.entered == 0 {
                live.since = ns;
            }
            live.entered = live.entered.saturating_add(1);
        }
        if let Some(thread) = thread
            && (self.threads.len() < MAX_THREADS || self.threads.contains_key(&thread))
        {
            let entered = self.threads.entry(thread).or_default();
            if entered.len() < MAX_DEPTH {
                entered.push(id);
            }
        }
    }

    /// A thread leaves a span.
    pub(crate) fn exit(&mut self, id: u64, thread: Option<i64>, ns: i64) {
        if let Some(live) = self.by_id.get_mut(&id).filter(|live| live.entered > 0) {
            live.busy = live.busy(ns);
            live.since = ns;
            live.entered -= 1;
        }
        let Some(thread) = thread else {
            return;
        };
        if let Some(entered) = self.threads.get_mut(&thread) {
            if let Some(at) = entered.iter().rposition(|&entered| entered == id) {
                entered.remove(at);
            }
            if entered.is_empty() {
                self.threads.remove(&thread);
            }
        }
    }

    /// The innermost span that a thread is in.
    pub(crate) fn current(&self, thread: i64) -> Option<&Live<T>> {
        self.get(self.current_id(thread)?)
    }

    /// The id of the innermost span that a thread is in. The span may be unknown.
    pub(crate) fn current_id(&self, thread: i64) -> Option<u64> {
        self.threads.get(&thread)?.last().copied()
    }
}
