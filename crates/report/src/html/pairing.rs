//! Matches begin and end events.

use std::collections::HashMap;

use super::rules::{self, HeapUse};
use crate::durations::Durations;

/// Maximum number of open spans in a thread: calls that never return would accumulate.
const MAX_OPEN: usize = 256;
/// Maximum number of asynchronous spans that are open, and of memory blocks in use.
const MAX_KEYS: usize = 1 << 20;

/// A pair of a begin event and an end event.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) name: String,
    pub(super) is_async: bool,
    pub(super) durations: Durations,
    /// Ends without a begin, and begins without an end.
    pub(super) unbegun: u64,
    pub(super) unended: u64,
}

/// What an event does: a rule with the pair's number instead of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    pub(super) pair: u32,
    pub(super) is_end: bool,
    pub(super) is_async: bool,
    pub(super) key: Option<usize>,
    pub(super) only_if: Option<usize>,
}

/// A span that is open in a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPair {
    pub(super) pair: u32,
    key: u64,
    pub(super) begin: u64,
    pub(super) depth: u32,
}

/// A span that has ended, with its nesting depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedPair {
    pub(super) pair: u32,
    pub(super) begin: u64,
    pub(super) depth: u32,
}

/// A memory block in use.
#[derive(Clone, Copy, Debug)]
struct Block {
    pair: u32,
    begin: u64,
    size: u64,
}

/// The memory of a process that is in use, as far as events show it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InUse {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub(super) all: Vec<Pair>,
    by_name: HashMap<String, u32>,
    /// By lane.
    pub(super) open: HashMap<u32, Vec<OpenPair>>,
    /// By process, pair and key.
    async_open: HashMap<(u32, u32, u64), u64>,
    blocks: HashMap<(u32, u64), Block>,
    pub(super) in_use: HashMap<u32, InUse>,
}

impl Pairs {
    pub(super) fn action(&mut self, rule: rules::PairRule) -> Action {
        Action {
            pair: self.pair(rule.pair, rule.is_async),
            is_end: rule.is_end,
            is_async: rule.is_async,
            key: rule.key,
            only_if: rule.only_if,
        }
    }

    pub(super) fn pair(&mut self, name: String, is_async: bool) -> u32 {
        let next = self.all.len() as u32;
        *self.by_name.entry(name).or_insert_with_key(|name| {
            self.all.push(Pair {
                name: name.clone(),
                is_async,
                durations: Durations::default(),
                unbegun: 0,
                unended: 0,
            });
            next
        })
    }

    /// Begins or ends a span.
    pub(super) fn act(
        &mut self,
        action: &Action,
        [process, lane]: [u32; 2],
        key: u64,
        time: u64,
    ) -> Option<EndedPair> {
        let pair = action.pair;
        let ended = match (action.is_async, action.is_end) {
            (false, false) => {
                self.begin(lane, pair, key, time);
                return None;
            }
            (true, false) => {
                let place = (process, pair, key);
                if self.async_open.len() == MAX_KEYS && !self.async_open.contains_key(&place)
                    || self.async_open.insert(place, time).is_some()
                {
                    self.all[pair as usize].unended += 1;
                }
                return None;
            }
            (false, true) => self.end(lane, pair, key),
            (true, true) => {
                let begin = self.async_open.remove(&(process, pair, key));
                begin.map(|begin| EndedPair {
                    pair,
                    begin,
                    depth: 0,
                })
            }
        };
        match ended {
            Some(ended) => self.all[pair as usize].durations.add(time - ended.begin),
            None => self.all[pair as usize].unbegun += 1,
        }
        ended
    }

    fn begin(&mut self, lane: u32, pair: u32, key: u64, begin: u64) {
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
        });
    }

    fn end(&mut self, lane: u32, pair: u32, key: u64) -> Option<EndedPair> {
        let open = self.open.get_mut(&lane)?;
        // Mutexes are not always released in reverse order.
        let at = open
            .iter()
            .rposition(|open| open.pair == pair && open.key == key)?;
        let OpenPair { begin, depth, .. } = open.remove(at);
        Some(EndedPair { pair, begin, depth })
    }

    /// Tracks an allocation or a release of memory. `value` reads a field of the event; `pair` is
    /// the pair for the block's life.
    pub(super) fn heap(
        &mut self,
        used: HeapUse,
        pair: u32,
        process: u32,
        time: u64,
        value: impl Fn(Option<usize>) -> Option<u64>,
    ) -> Option<EndedPair> {
        let given = value(used.gives).filter(|&ptr| ptr != 0);
        let size = value(used.size).unwrap_or(0);
        let size = size.saturating_mul(value(used.times).unwrap_or(1));
        let is_done = used.gives.is_none() || given.is_some() || size == 0;
        let freed = value(used.frees).filter(|&ptr| ptr != 0 && is_done);
        let ended = freed.and_then(|ptr| {
            let block = self.forget(process, ptr);
            match block {
                Some(block) => {
                    let pair = &mut self.all[block.pair as usize];
                    pair.durations.add(time - block.begin);
                }
                None => self.all[pair as usize].unbegun += 1,
            }
            block.map(|block| EndedPair {
                pair: block.pair,
                begin: block.begin,
                depth: 0,
            })
        });
        if let Some(ptr) = given
            && value(used.result).unwrap_or(0) == 0
        {
            let before = self.forget(process, ptr);
            let is_full = self.blocks.len() == MAX_KEYS;
            self.all[pair as usize].unended += u64::from(before.is_some()) + u64::from(is_full);
            if !is_full {
                let begin = time;
                self.blocks
                    .insert((process, ptr), Block { pair, begin, size });
                let in_use = self.in_use.entry(process).or_default();
                in_use.blocks += 1;
                in_use.bytes = in_use.bytes.saturating_add(size);
            }
        }
        ended
    }

    fn forget(&mut self, process: u32, ptr: u64) -> Option<Block> {
        let block = self.blocks.remove(&(process, ptr))?;
        let in_use = self.in_use.entry(process).or_default();
        in_use.blocks = in_use.blocks.saturating_sub(1);
        in_use.bytes = in_use.bytes.saturating_sub(block.size);
        Some(block)
    }

    /// Counts everything that is still open as unended.
    pub(super) fn finish(&mut self) {
        let open = self.open.values().flatten().map(|open| open.pair);
        let async_open = self.async_open.keys().map(|&(_, pair, _)| pair);
        let blocks = self.blocks.values().map(|block| block.pair);
        for pair in open.chain(async_open).chain(blocks) {
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
        for (lane, time) in [(1, 10), (1, 20), (2, 25)] {
            assert_eq!(pairs.act(&begin, [0, lane], 0, time), None);
        }
        let ended = |begin, depth| {
            Some(EndedPair {
                pair: 0,
                begin,
                depth,
            })
        };
        assert_eq!(pairs.act(&end, [0, 1], 0, 30), ended(20, 1));
        assert_eq!(pairs.act(&end, [0, 1], 0, 40), ended(10, 0));
        assert_eq!(pairs.act(&end, [0, 1], 0, 50), None);
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
            pairs.act(&begin, [0, 1], key, key);
        }
        assert_eq!(pairs.act(&end, [0, 1], 0, 9).unwrap().depth, 0);
        assert_eq!(pairs.act(&end, [0, 1], 2, 9).unwrap().depth, 2);
        let [begin, end] = [false, true].map(|is_end| action(&mut pairs, "span", is_end, true));
        pairs.act(&begin, [0, 1], 7, 3);
        assert_eq!(pairs.act(&end, [1, 1], 7, 9), None);
        assert_eq!(pairs.act(&end, [0, 2], 7, 9).unwrap().begin, 3);
    }

    #[test]
    fn memory_lives_from_malloc_to_free() {
        let mut pairs = Pairs::default();
        let pair = pairs.pair("malloc".into(), true);
        let used = |frees, gives, size| HeapUse {
            frees,
            gives,
            size,
            times: None,
            result: None,
        };
        let mut act = |used, time, fields: &[u64]| {
            let ended = pairs.heap(used, pair, 5, time, |index| Some(fields[index?]));
            (
                ended.map(|ended| ended.begin),
                pairs.in_use[&5].bytes,
                pairs.in_use[&5].blocks,
            )
        };
        let (malloc, free) = (used(None, Some(1), Some(0)), used(Some(0), None, None));
        let realloc = used(Some(0), Some(2), Some(1));
        assert_eq!(act(malloc, 1, &[100, 0xa]), (None, 100, 1));
        assert_eq!(act(malloc, 2, &[50, 0xb]), (None, 150, 2));
        assert_eq!(act(realloc, 3, &[0xa, 10, 0xc]), (Some(1), 60, 2));
        // The allocations failed.
        assert_eq!(act(realloc, 4, &[0xc, 1 << 40, 0]), (None, 60, 2));
        assert_eq!(act(malloc, 4, &[1 << 40, 0]), (None, 60, 2));
        assert_eq!(act(free, 5, &[0xc]), (Some(3), 50, 1));
        assert_eq!(act(free, 6, &[0xc]), (None, 50, 1));
        assert_eq!(act(free, 6, &[0]), (None, 50, 1));
        // The trace lacks the free.
        assert_eq!(act(malloc, 7, &[8, 0xb]), (None, 8, 1));
        pairs.finish();
        let pair = &pairs.all[0];
        assert_eq!(
            (pair.durations.count, pair.unbegun, pair.unended),
            (2, 1, 2)
        );
    }
}
