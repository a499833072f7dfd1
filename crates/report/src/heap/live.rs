//! Tracks blocks of memory: what each process has in use, by the call stacks that allocated it.
//!
//! The use of memory by stack at a process's peak is exact, and costs no copy at each new peak: a
//! peak only begins a new epoch. Before the counts of a stack change, they are saved if the stack
//! was last saved in an earlier epoch, because then they are those of the peak.

use std::collections::HashMap;

use super::HeapUse;
use super::inherited::Inherited;

/// Memory in use, as far as events show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Number of blocks.
    pub blocks: u64,
    /// Their sizes, as the program asked for.
    pub bytes: u64,
}

impl InUse {
    fn add(&mut self, size: u64) {
        self.blocks += 1;
        self.bytes = self.bytes.saturating_add(size);
    }

    fn take(&mut self, size: u64) {
        self.blocks = self.blocks.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
    }
}

/// The time when a process had the most bytes in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// The time of the allocation that reached it.
    pub time: u64,
    /// What was in use then.
    pub in_use: InUse,
}

/// What the allocations of a stack have in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackUse {
    /// Number of the process.
    pub process: u32,
    /// The caller's id of the stack.
    pub stack: u32,
    /// What is in use.
    pub in_use: InUse,
}

/// What an event changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The time of the allocation of the block that was released, and its stack.
    pub freed: Option<(u64, u32)>,
    /// The event released a block whose allocation the trace lacks.
    pub is_unknown_free: bool,
    /// Blocks that nothing will be known to release: the trace lacks the release of a block at the
    /// same address, or there are too many blocks.
    pub unended: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    begin: u64,
    size: u64,
    /// Index of its [`Slot`].
    slot: u32,
}

/// A stack of a process.
#[derive(Clone, Copy, Debug)]
struct Slot {
    process: u32,
    stack: u32,
    now: InUse,
    /// What was in use at the last peak before `epoch` ended.
    saved: InUse,
    epoch: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ProcessHeap {
    now: InUse,
    peak: Peak,
    /// Number of peaks so far.
    epoch: u64,
}

/// The memory blocks of all processes.
#[derive(Debug)]
pub struct Heap {
    blocks: HashMap<(u32, u64), Block, ahash::RandomState>,
    slots: Vec<Slot>,
    by_stack: HashMap<(u32, u32), u32, ahash::RandomState>,
    processes: HashMap<u32, ProcessHeap>,
    inherited: Inherited,
    max_blocks: usize,
    untracked: u64,
    unknown_frees: u64,
    replaced: u64,
}

impl Heap {
    /// Tracks at most this number of blocks at the same time.
    #[must_use]
    pub fn new(max_blocks: usize) -> Self {
        Self {
            blocks: HashMap::default(),
            slots: Vec::new(),
            by_stack: HashMap::default(),
            processes: HashMap::new(),
            inherited: Inherited::default(),
            max_blocks,
            untracked: 0,
            unknown_frees: 0,
            replaced: 0,
        }
    }

    /// Tracks an allocation or a release of memory. `value` reads a field of the event; `stack` is
    /// any id of its call stack. `is_related` says whether another process may have forked this
    /// one, itself or by others.
    pub fn note(
        &mut self,
        used: &HeapUse,
        process: u32,
        time: u64,
        stack: u32,
        value: impl Fn(Option<usize>) -> Option<u64>,
        is_related: impl FnMut(u32) -> bool,
    ) -> Change {
        let mut change = Change::default();
        self.inherited.seen(process, time);
        let given = value(used.gives).filter(|&ptr| ptr != 0);
        let size = used.size_of(&value);
        let is_done = used.gives.is_none() || given.is_some() || size == 0;
        if let Some(ptr) = value(used.frees).filter(|&ptr| ptr != 0 && is_done) {
            match self.forget(process, ptr) {
                Some(block) => {
                    self.inherited.freed(process, ptr, block.begin);
                    change.freed = Some((block.begin, self.slots[block.slot as usize].stack));
                }
                None => {
                    let blocks = &self.blocks;
                    let in_use = |of, ptr| blocks.get(&(of, ptr)).map(|block: &Block| block.begin);
                    let inherited = &mut self.inherited;
                    let is_known = inherited.release(process, ptr, is_related, in_use);
                    change.is_unknown_free = !is_known;
                    self.unknown_frees += u64::from(!is_known);
                }
            }
        }
        if let Some(ptr) = given
            && value(used.result).unwrap_or(0) == 0
        {
            if self.forget(process, ptr).is_some() {
                self.replaced += 1;
                change.unended += 1;
            }
            if self.blocks.len() < self.max_blocks {
                self.add(process, ptr, time, size, stack);
            } else {
                self.untracked += 1;
                change.unended += 1;
            }
        }
        change
    }

    fn add(&mut self, process: u32, ptr: u64, begin: u64, size: u64, stack: u32) {
        let of_process = self.processes.entry(process).or_default();
        let slot = *self.by_stack.entry((process, stack)).or_insert_with(|| {
            self.slots.push(Slot {
                process,
                stack,
                now: InUse::default(),
                saved: InUse::default(),
                epoch: of_process.epoch,
            });
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].change(of_process.epoch).add(size);
        let block = Block { begin, size, slot };
        self.blocks.insert((process, ptr), block);
        of_process.now.add(size);
        if of_process.now.bytes > of_process.peak.in_use.bytes {
            of_process.epoch += 1;
            of_process.peak = Peak {
                time: begin,
                in_use: of_process.now,
            };
        }
    }

    fn forget(&mut self, process: u32, ptr: u64) -> Option<Block> {
        let block = self.blocks.remove(&(process, ptr))?;
        let of_process = self.processes.entry(process).or_default();
        of_process.now.take(block.size);
        let slot = &mut self.slots[block.slot as usize];
        slot.change(of_process.epoch).take(block.size);
        Some(block)
    }

    /// What a process has in use now.
    #[must_use]
    pub fn in_use(&self, process: u32) -> Option<InUse> {
        self.processes.get(&process).map(|process| process.now)
    }

    /// The peak of a process.
    #[must_use]
    pub fn peak(&self, process: u32) -> Option<Peak> {
        self.processes.get(&process).map(|process| process.peak)
    }

    /// What the stacks of all processes have in use now.
    pub fn live(&self) -> impl Iterator<Item = StackUse> {
        self.slots.iter().filter_map(|slot| slot.used(slot.now))
    }

    /// What the stacks of each process had in use at the peak of that process.
    pub fn at_peak(&self) -> impl Iterator<Item = StackUse> {
        self.slots.iter().filter_map(|slot| {
            let epoch = self.processes.get(&slot.process)?.epoch;
            let is_saved = slot.epoch == epoch;
            slot.used(if is_saved { slot.saved } else { slot.now })
        })
    }

    /// The time of each allocation that is still in use, with its process.
    pub fn begins(&self) -> impl Iterator<Item = (u32, u64)> {
        let blocks = self.blocks.iter();
        blocks.map(|(&(process, _), block)| (process, block.begin))
    }

    /// Number of blocks that were not tracked, because too many were in use.
    #[must_use]
    pub fn untracked(&self) -> u64 {
        self.untracked
    }

    /// Number of releases of blocks whose allocation the trace lacks. Those that a child of `fork`
    /// has from its parent do not count.
    #[must_use]
    pub fn unknown_frees(&self) -> u64 {
        self.unknown_frees
    }

    /// Number of blocks whose release the trace lacks: their address was allocated again.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.replaced
    }
}

impl Slot {
    /// What is in use, to be changed in this epoch.
    fn change(&mut self, epoch: u64) -> &mut InUse {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.saved = self.now;
        }
        &mut self.now
    }

    fn used(&self, in_use: InUse) -> Option<StackUse> {
        (in_use.blocks > 0).then_some(StackUse {
            process: self.process,
            stack: self.stack,
            in_use,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn used(frees: Option<usize>, gives: Option<usize>, size: Option<usize>) -> HeapUse {
        HeapUse {
            frees,
            gives,
            size,
            times: None,
            result: None,
        }
    }

    fn malloc() -> HeapUse {
        used(None, Some(1), Some(0))
    }

    fn free() -> HeapUse {
        used(Some(0), None, None)
    }

    #[test]
    fn memory_lives_from_malloc_to_free() {
        let mut heap = Heap::new(100);
        let mut act = |used, time, fields: &[u64]| {
            let change = heap.note(&used, 5, time, 7, |index| Some(fields[index?]), |_| false);
            let InUse { blocks, bytes } = heap.in_use(5).unwrap();
            (change.freed.map(|(begin, _)| begin), bytes, blocks)
        };
        let realloc = used(Some(0), Some(2), Some(1));
        assert_eq!(act(malloc(), 1, &[100, 0xa]), (None, 100, 1));
        assert_eq!(act(malloc(), 2, &[50, 0xb]), (None, 150, 2));
        assert_eq!(act(realloc, 3, &[0xa, 10, 0xc]), (Some(1), 60, 2));
        // The allocations failed.
        assert_eq!(act(realloc, 4, &[0xc, 1 << 40, 0]), (None, 60, 2));
        assert_eq!(act(malloc(), 4, &[1 << 40, 0]), (None, 60, 2));
        assert_eq!(act(free(), 5, &[0xc]), (Some(3), 50, 1));
        assert_eq!(act(free(), 6, &[0xc]), (None, 50, 1));
        assert_eq!(act(free(), 6, &[0]), (None, 50, 1));
        // The trace lacks the free.
        assert_eq!(act(malloc(), 7, &[8, 0xb]), (None, 8, 1));
        assert_eq!((heap.unknown_frees(), heap.replaced()), (1, 1));
        let peak = heap.peak(5).unwrap();
        assert_eq!((peak.time, peak.in_use.bytes), (2, 150));
    }

    #[test]
    fn blocks_beyond_the_limit_are_counted() {
        let mut heap = Heap::new(2);
        for ptr in 1..=5u64 {
            let value = |index: Option<usize>| Some([8, ptr][index?]);
            heap.note(&malloc(), 0, ptr, 0, value, |_| false);
        }
        assert_eq!(heap.untracked(), 3);
        assert_eq!(heap.in_use(0).unwrap().bytes, 16);
    }

    /// A child releases its copies, each once, and what it allocated itself is its own.
    #[test]
    fn children_release_what_they_inherited() {
        let mut heap = Heap::new(100);
        // Process 9 is of another program.
        let mut act = |used: HeapUse, process, time, fields: &[u64]| {
            let value = |index: Option<usize>| Some(fields[index?]);
            let is_related = |other| other != 9;
            heap.note(&used, process, time, 1, value, is_related)
                .is_unknown_free
        };
        for (process, time, ptr) in [(9, 5, 0xe), (1, 10, 0xa), (1, 10, 0xb), (1, 10, 0xc)] {
            assert!(!act(malloc(), process, time, &[8, ptr]));
        }
        assert!(!act(free(), 1, 11, &[0xc]));
        // The first child begins. Its parent releases one of the blocks before the child does.
        assert!(!act(malloc(), 2, 20, &[100, 0x1a]));
        assert!(!act(free(), 1, 21, &[0xa]));
        assert!(!act(malloc(), 1, 22, &[8, 0xd]));
        assert!(!act(free(), 2, 23, &[0xb]));
        // A child of the child, which still has the first block.
        assert!(!act(malloc(), 3, 30, &[100, 0x1b]));
        assert!(!act(free(), 2, 31, &[0xa]));
        for ptr in [0xa, 0xb, 0x1a] {
            assert!(!act(free(), 3, 32, &[ptr]), "{ptr:x}");
        }
        // A second time; what its parent released before, or allocated later; another program's.
        for (process, ptr) in [(2, 0xa), (3, 0xb), (2, 0xc), (2, 0xd), (2, 0xe), (9, 0xb)] {
            assert!(act(free(), process, 40, &[ptr]), "{process} {ptr:x}");
        }
        let bytes = [1, 2, 3].map(|process| heap.in_use(process).unwrap().bytes);
        assert_eq!(bytes, [16, 100, 100]);
        assert_eq!(heap.unknown_frees(), 6);
    }

    type ByStack = BTreeMap<(u32, u32), InUse>;

    fn by_stack(uses: impl Iterator<Item = StackUse>) -> ByStack {
        uses.map(|used| ((used.process, used.stack), used.in_use))
            .collect()
    }

    proptest! {
        /// The use by stack, now and at the peak of each process, equals that of a model that
        /// copies everything at each new peak.
        #[test]
        fn peaks_are_exact(
            steps in prop::collection::vec((0u32..2, 0u32..4, 1u64..12, 0u64..50, any::<bool>()), 0..300)
        ) {
            let mut heap = Heap::new(1000);
            let mut blocks: BTreeMap<(u32, u64), (u32, u64)> = BTreeMap::new();
            let mut peaks: BTreeMap<u32, (u64, ByStack)> = BTreeMap::new();
            let sums = |blocks: &BTreeMap<(u32, u64), (u32, u64)>| {
                let mut sums = ByStack::new();
                for (&(process, _), &(stack, size)) in blocks {
                    sums.entry((process, stack)).or_default().add(size);
                }
                sums
            };
            for (time, (process, stack, ptr, size, is_free)) in (0..).zip(steps) {
                if is_free {
                    let value = |index: Option<usize>| Some([ptr][index?]);
                    heap.note(&free(), process, time, stack, value, |_| true);
                    blocks.remove(&(process, ptr));
                    continue;
                }
                let value = |index: Option<usize>| Some([size, ptr][index?]);
                heap.note(&malloc(), process, time, stack, value, |_| true);
                blocks.insert((process, ptr), (stack, size));
                let mut now = sums(&blocks);
                now.retain(|(of, _), _| *of == process);
                let bytes = now.values().map(|used| used.bytes).sum();
                let peak = peaks.entry(process).or_default();
                if bytes > peak.0 {
                    *peak = (bytes, now);
                }
            }
            prop_assert_eq!(by_stack(heap.live()), sums(&blocks));
            let expected: ByStack = peaks.into_values().flat_map(|(_, peak)| peak).collect();
            prop_assert_eq!(by_stack(heap.at_peak()), expected);
        }
    }
}
