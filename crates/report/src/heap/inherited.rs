//! Which blocks children of `fork` have from their parents.
//!
//! A child starts with copies of its parent's blocks. They count for the parent only, but the child
//! may release its copies. Traces do not say who forked whom. So a block that a process releases
//! without having allocated it is taken for inherited if a related process, which began no later,
//! had it in use when the process began, or released it after some process had begun: then a third
//! process may have passed it on. The caller says which processes are related.

use std::collections::{HashMap, HashSet};

/// Maximum number of released blocks that are remembered, and of releases of inherited ones.
/// Further releases of inherited blocks count as unknown.
const MAX: usize = 1 << 20;
/// Maximum number of processes that may be related, and of related ones that are asked for a block:
/// the earliest ones.
const MAX_ASKED: usize = 4096;
const MAX_RELATED: usize = 64;

/// What is known of the processes that may have forked each other.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// When each process began, as far as events show it, in that order.
    begins: Vec<(u32, u64)>,
    index: HashMap<u32, usize, ahash::RandomState>,
    /// By process and address: when a block was allocated that was released after a later process
    /// had begun. The earliest one.
    freed: HashMap<(u32, u64), u64, ahash::RandomState>,
    /// Related processes that began no later.
    related: HashMap<u32, Vec<u32>, ahash::RandomState>,
    /// Inherited blocks that were released, by process and address.
    released: HashSet<(u32, u64), ahash::RandomState>,
}

impl Inherited {
    /// Takes notice of an event of a process.
    pub(super) fn seen(&mut self, process: u32, time: u64) {
        if self.begins.last().is_none_or(|(last, _)| *last != process)
            && !self.index.contains_key(&process)
        {
            self.index.insert(process, self.begins.len());
            self.begins.push((process, time));
        }
    }

    /// A process releases a block that it allocated.
    pub(super) fn freed(&mut self, process: u32, ptr: u64, allocated: u64) {
        // Without another process that began meanwhile, nobody has a copy.
        let is_copied = self
            .begins
            .last()
            .is_some_and(|(last, begin)| *last != process && *begin >= allocated);
        if is_copied && self.freed.len() < MAX {
            self.freed.entry((process, ptr)).or_insert(allocated);
        }
    }

    /// A process releases a block that it did not allocate. Returns whether it has it from a
    /// related process. `in_use` says when a process allocated the block that it has at an address.
    pub(super) fn release(
        &mut self,
        process: u32,
        ptr: u64,
        is_related: impl FnMut(u32) -> bool,
        in_use: impl Fn(u32, u64) -> Option<u64>,
    ) -> bool {
        let Some(&index) = self.index.get(&process) else {
            return false;
        };
        let (begins, begin) = (&self.begins[..index], self.begins[index].1);
        let related = self.related.entry(process).or_insert_with(|| {
            let mut is_related = is_related;
            let earlier = begins.iter().take(MAX_ASKED).map(|(other, _)| *other);
            let related = earlier.filter(|other| is_related(*other));
            related.take(MAX_RELATED).collect()
        });
        let had = |other: u32| {
            let freed = self.freed.get(&(other, ptr)).copied();
            let times = [in_use(other, ptr), freed].into_iter().flatten();
            times.min().is_some_and(|allocated| allocated <= begin)
        };
        // A copy is released once.
        related.iter().any(|other| had(*other))
            && self.released.len() < MAX
            && self.released.insert((process, ptr))
    }
}
