//! Adds up how long threads waited for locks, by call stack, in bounded memory.

use std::collections::HashMap;

use super::table::{NO_STACK, StackId};

/// Maximum number of places. Further stacks are added up for each process and pair.
const MAX: usize = 1 << 16;

/// Where a thread waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaitPlace {
    pub(crate) process: u32,
    pub(crate) stack: StackId,
    /// The pair of the events before and after.
    pub(crate) pair: u32,
}

/// How long threads waited there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) count: u64,
    /// In ns.
    pub(crate) total: u64,
    pub(crate) longest: u64,
}

/// All waits.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    by_place: HashMap<WaitPlace, Wait, ahash::RandomState>,
}

impl Waits {
    pub(crate) fn add(&mut self, mut place: WaitPlace, duration: u64) {
        if self.by_place.len() >= MAX && !self.by_place.contains_key(&place) {
            place.stack = NO_STACK;
        }
        let wait = self.by_place.entry(place).or_default();
        wait.count += 1;
        wait.total = wait.total.saturating_add(duration);
        wait.longest = wait.longest.max(duration);
    }

    /// The places, those with the longest total first.
    pub(crate) fn sorted(&self) -> Vec<(WaitPlace, Wait)> {
        let mut all: Vec<_> = self
            .by_place
            .iter()
            .map(|(&place, &wait)| (place, wait))
            .collect();
        all.sort_unstable_by_key(|&(place, wait)| (std::cmp::Reverse(wait.total), place));
        all
    }
}
