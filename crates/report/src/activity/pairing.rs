//! Matches begin and end events.

use std::collections::HashMap;

use super::rules::{self, PairRule};
use crate::durations::Durations;
use crate::pair_names;

/// Maximum number of open spans in a thread: calls that never return would accumulate.
const MAX_OPEN: usize = 256;
/// Maximum number of asynchronous spans that are open.
const MAX_KEYS: usize = 1 << 20;

/// A pair of a begin event and an end event.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) is_async: bool,
    /// Its spans nest in others of their thread, so the time of each is divided among them.
    pub(crate) is_nested: bool,
    /// It is the time from asking for a lock to having it.
    pub(crate) is_lock_wait: bool,
    pub(crate) durations: Durations,
    /// Ends without a begin, and begins without an end.
    pub(crate) unbegun: u64,
    pub(crate) unended: u64,
}

/// What an event does: a rule with the pair's number instead of its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action {
    pub(crate) pair: u32,
    pub(crate) is_end: bool,
    pub(crate) is_async: bool,
    pub(crate) key: Option<usize>,
    pub(crate) only_if: Option<usize>,
}

/// A span that is open in a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenPair {
    pub(crate) pair: u32,
    key: u64,
    pub(crate) begin: u64,
    pub(crate) depth: u32,
    stack: u32,
    /// The time of spans that ended within it.
    inner: u64,
}

/// A span that has ended, with its nesting depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedPair {
    pub(crate) pair: u32,
    pub(crate) begin: u64,
    pub(crate) depth: u32,
    /// The call stack of its begin.
    pub(crate) stack: u32,
    /// Its duration, without that of spans that ended within it.
    pub(crate) own: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pub(crate) all: Vec<Pair>,
    by_name: HashMap<String, u32>,
    /// By lane.
    pub(crate) open: HashMap<u32, Vec<OpenPair>>,
    /// By process, pair and key: time and call stack.
    async_open: HashMap<(u32, u32, u64), (u64, u32)>,
}

impl Pairs {
    pub(crate) fn action(&mut self, rule: PairRule) -> Action {
        Action {
            pair: self.pair(rule.pair, rule.is_async),
            is_end: rule.is_end,
            is_async: rule.is_async,
            key: rule.key,
            only_if: rule.only_if,
        }
    }

    pub(crate) fn pair(&mut self, name: String, is_async: bool) -> u32 {
        let next = self.all.len() as u32;
        *self.by_name.entry(name).or_insert_with_key(|name| {
            self.all.push(Pair {
                is_nested: !is_async && name != rules::HELD,
                is_lock_wait: rules::is_lock_wait(name),
                name: name.clone(),
                is_async,
                durations: Durations::default(),
                unbegun: 0,
                unended: 0,
            });
            next
        })
    }

    /// What a pair begins and ends: `libc:read` of `libc:read_entry` and `libc:read_exit`.
    pub(crate) fn text(&self, pair: u32) -> String {
        let name = &self.all[pair as usize].name;
        let begin = name.split(" → ").next().unwrap_or(name);
        pair_names::stem(begin).to_owned()
    }

    /// Begins or ends a span. `stack` is the call stack of the event.
    pub(crate) fn act(
        &mut self,
        action: &Action,
        [process, lane]: [u32; 2],
        key: u64,
        (time, stack): (u64, u32),
    ) -> Option<EndedPair> {
        let pair = action.pair;
        let ended = match (action.is_async, action.is_end) {
            (false, false) => {
                self.begin(lane, pair, key, time, stack);
                return None;
            }
            (true, false) => {
                let place = (process, pair, key);
                if self.async_open.len() == MAX_KEYS && !self.async_open.contains_key(&place)
                    || self.async_open.insert(place, (time, stack)).is_some()
                {
                    self.all[pair as usize].unended += 1;
                }
                return None;
            }
            (false, true) => self.end(lane, pair, key, time),
            (true, true) => {
                let begin = self.async_open.remove(&(process, pair, key));
                begin.map(|(begin, stack)| EndedPair {
                    pair,
                    begin,
                    depth: 0,
                    stack,
                    own: time - begin,
                })
            }
        };
        match ended {
            Some(ended) => self.all[pair as usize].durations.add(time - ended.begin),
            None => self.all[pair as usize].unbegun += 1,
        }
        ended
    }

    fn begin(&mut self, lane: u32, pair: u32, key: u64, begin: u64, stack: u32) {
        let open = self.open.entry(lane).or_default();
        if open.len() == MAX_OPEN {
            let first = open.remove(0);
            self.all[first.pair as usize].unended += 1;
        }
        let depth = open.iter().map(|open| open.depth + 1).max().unwrap_or(0);
        open.push(OpenPair {
            pair,
            key,
            begin,
            // Spans that never end must not increase the depth forever.
            depth: depth.min(MAX_OPEN as u32),
            stack,
            inner: 0,
        });
    }

    fn end(&mut self, lane: u32, pair: u32, key: u64, time: u64) -> Option<EndedPair> {
        let open = self.open.get_mut(&lane)?;
        // Mutexes are not always released in reverse order.
        let at = open
            .iter()
            .rposition(|open| open.pair == pair && open.key == key)?;
        let ended = open.remove(at);
        let duration = time - ended.begin;
        let is_nested = |pair: u32| self.all[pair as usize].is_nested;
        if is_nested(pair)
            && let Some(outer) = open[..at].iter_mut().rfind(|open| is_nested(open.pair))
        {
            outer.inner = outer.inner.saturating_add(duration);
        }
        Some(EndedPair {
            pair,
            begin: ended.begin,
            depth: ended.depth,
            stack: ended.stack,
            own: duration.saturating_sub(ended.inner),
        })
    }

    /// Counts everything that is still open as unended.
    pub(crate) fn finish(&mut self) {
        let open = self.open.values().flatten().map(|open| open.pair);
        let async_open = self.async_open.keys().map(|&(_, pair, _)| pair);
        for pair in open.chain(async_open) {
            self.all[pair as usize].unended += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(pairs: &mut Pairs, name: &str, is_end: bool, is_async: bool) -> Action {
        let pair = pairs.pair(name.to_owned(), is_async);
        Action {
            pair,
            is_end,
            is_async,
            key: None,
            only_if: None,
        }
    }

    #[test]
    fn spans_nest_within_a_thread() {
        let mut pairs = Pairs::default();
        let begin = action(&mut pairs, "x", false, false);
        let end = action(&mut pairs, "x", true, false);
        for (lane, time, stack) in [(1, 10, 4), (1, 20, 5), (2, 25, 6)] {
            assert_eq!(pairs.act(&begin, [0, lane], 0, (time, stack)), None);
        }
        let ended = |begin, depth, stack, own| {
            Some(EndedPair {
                pair: 0,
                begin,
                depth,
                stack,
                own,
            })
        };
        assert_eq!(pairs.act(&end, [0, 1], 0, (30, 0)), ended(20, 1, 5, 10));
        assert_eq!(pairs.act(&end, [0, 1], 0, (40, 0)), ended(10, 0, 4, 20));
        assert_eq!(pairs.act(&end, [0, 1], 0, (50, 0)), None);
        pairs.finish();
        let pair = &pairs.all[0];
        assert_eq!(
            (pair.durations.count, pair.unbegun, pair.unended),
            (2, 1, 1)
        );
        assert_eq!((pair.durations.min, pair.durations.max), (10, 30));
    }

    #[test]
    fn locks_end_in_any_order_and_async_spans_in_any_thread() {
        let mut pairs = Pairs::default();
        let [begin, end] = [false, true].map(|is_end| action(&mut pairs, "lock", is_end, false));
        for key in 0..3 {
            pairs.act(&begin, [0, 1], key, (key, 0));
        }
        assert_eq!(pairs.act(&end, [0, 1], 0, (9, 0)).unwrap().depth, 0);
        assert_eq!(pairs.act(&end, [0, 1], 2, (9, 0)).unwrap().depth, 2);
        let [begin, end] = [false, true].map(|is_end| action(&mut pairs, "span", is_end, true));
        pairs.act(&begin, [0, 1], 7, (3, 0));
        assert_eq!(pairs.act(&end, [1, 1], 7, (9, 0)), None);
        assert_eq!(pairs.act(&end, [0, 2], 7, (9, 0)).unwrap().begin, 3);
    }
}
