//! Interns call stacks, in bounded memory.
//!
//! Stacks are kept as a tree from the outermost frame inwards, so those that share callers share
//! memory. A location is a place in a module, not an address: the same code has the same location
//! in all processes, wherever it was loaded. A cache by addresses saves the way there for stacks
//! that were seen before.

use std::collections::HashMap;

/// Maximum number of nodes of the tree.
const MAX_NODES: usize = 1 << 20;
/// Maximum size of the cache, in bytes of addresses.
const MAX_CACHED: usize = 24 << 20;
/// Maximum number of frames of a stack that are kept, the innermost ones.
const MAX_FRAMES: usize = 512;

/// Number of an interned stack. 0 is the stack without frames.
pub type StackId = u32;

/// The stack without frames.
pub const NO_STACK: StackId = 0;

/// A place in a program's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// What the offset is relative to.
    pub space: Space,
    /// Of the instruction behind the call, or behind the place of an event: a return address.
    pub offset: u64,
}

/// What an offset is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// A module, by its number.
    Module(u32),
    /// Nothing: an address of a process, outside of all known modules.
    Process(u32),
}

#[derive(Clone, Copy, Debug)]
struct Node {
    outer: StackId,
    location: u32,
}

/// All stacks of a reading.
#[derive(Debug)]
pub struct StackTable {
    locations: Vec<Location>,
    by_location: HashMap<Location, u32, ahash::RandomState>,
    nodes: Vec<Node>,
    by_node: HashMap<(StackId, u32), StackId, ahash::RandomState>,
    /// By process, generation of its modules, and addresses.
    cache: HashMap<Box<[u64]>, StackId, ahash::RandomState>,
    cached: usize,
    /// How often the modules of a process changed.
    generations: HashMap<u32, u32, ahash::RandomState>,
    key: Vec<u64>,
    /// The last key, and its stack.
    last: (Vec<u64>, StackId),
    max_nodes: usize,
    truncated: u64,
}

impl Default for StackTable {
    fn default() -> Self {
        Self::new(MAX_NODES)
    }
}

impl StackTable {
    fn new(max_nodes: usize) -> Self {
        let root = Node {
            outer: NO_STACK,
            location: u32::MAX,
        };
        Self {
            locations: Vec::new(),
            by_location: HashMap::default(),
            nodes: vec![root],
            by_node: HashMap::default(),
            cache: HashMap::default(),
            cached: 0,
            generations: HashMap::default(),
            key: Vec::new(),
            last: (Vec::new(), NO_STACK),
            max_nodes,
            truncated: 0,
        }
    }

    /// Interns a stack of a process. `append` adds its return addresses from the innermost one, and
    /// `find` says where in the modules of the process an address is now.
    pub fn intern_with(
        &mut self,
        process: u32,
        append: impl FnOnce(&mut Vec<u64>),
        find: impl FnMut(u64) -> Option<(u32, u64)>,
    ) -> StackId {
        let generation = self.generations.get(&process).copied().unwrap_or(0);
        self.key.clear();
        self.key
            .push(u64::from(generation) << 32 | u64::from(process));
        append(&mut self.key);
        self.key.truncate(1 + MAX_FRAMES);
        // Many events of a thread come from one place.
        if self.key == self.last.0 {
            return self.last.1;
        }
        let stack = self.stack_of_key(process, find);
        self.last.0.clone_from(&self.key);
        self.last.1 = stack;
        stack
    }

    fn stack_of_key(
        &mut self,
        process: u32,
        find: impl FnMut(u64) -> Option<(u32, u64)>,
    ) -> StackId {
        if self.key.len() == 1 {
            return NO_STACK;
        }
        match self.cache.get(&self.key[..]) {
            Some(&stack) => stack,
            None => self.add(process, find),
        }
    }

    #[cold]
    fn add(&mut self, process: u32, mut find: impl FnMut(u64) -> Option<(u32, u64)>) -> StackId {
        let key: Box<[u64]> = self.key[..].into();
        let mut stack = NO_STACK;
        let mut is_truncated = false;
        for &address in key[1..].iter().rev() {
            // The call is in the module, even if the return address is behind its end.
            let location = match find(address.wrapping_sub(1)) {
                Some((module, offset)) => Location {
                    space: Space::Module(module),
                    offset: offset.wrapping_add(1),
                },
                None => Location {
                    space: Space::Process(process),
                    offset: address,
                },
            };
            match self.inner(stack, location) {
                Some(inner) => stack = inner,
                None => {
                    is_truncated = true;
                    break;
                }
            }
        }
        self.truncated += u64::from(is_truncated);
        let size = size_of_val(&key[..]) + 48;
        if self.cached + size > MAX_CACHED {
            self.cache.clear();
            self.cached = 0;
        }
        self.cached += size;
        self.cache.insert(key, stack);
        stack
    }

    /// The stack with a frame inside of another stack. `None`: there is no room for it.
    fn inner(&mut self, outer: StackId, location: Location) -> Option<StackId> {
        let known = self.by_location.get(&location).copied();
        let place = known.and_then(|location| self.by_node.get(&(outer, location)));
        if let Some(&stack) = place {
            return Some(stack);
        }
        if self.nodes.len() >= self.max_nodes {
            return None;
        }
        let location = known.unwrap_or_else(|| {
            let next = self.locations.len() as u32;
            self.locations.push(location);
            self.by_location.insert(location, next);
            next
        });
        let stack = self.nodes.len() as StackId;
        self.nodes.push(Node { outer, location });
        self.by_node.insert((outer, location), stack);
        Some(stack)
    }

    /// Forgets which addresses are where: modules of a process were loaded or unloaded.
    pub fn modules_changed(&mut self, process: u32) {
        let generation = self.generations.entry(process).or_default();
        *generation = generation.wrapping_add(1);
    }

    /// The indices of a stack's locations in [`locations`](Self::locations), from the innermost.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = u32> {
        let mut at = stack;
        std::iter::from_fn(move || {
            if at == NO_STACK {
                return None;
            }
            let Node { outer, location } = self.nodes[at as usize];
            at = outer;
            Some(location)
        })
    }

    /// All locations.
    pub fn locations(&self) -> &[Location] {
        &self.locations
    }

    /// Number of different stacks whose inner frames are left out, as there was no room for them.
    pub fn truncated(&self) -> u64 {
        self.truncated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl StackTable {
        fn intern(
            &mut self,
            process: u32,
            addresses: impl Iterator<Item = u64>,
            find: impl FnMut(u64) -> Option<(u32, u64)>,
        ) -> StackId {
            self.intern_with(process, |to| to.extend(addresses), find)
        }
    }

    fn table() -> StackTable {
        StackTable::new(MAX_NODES)
    }

    /// A module of 4 KiB at each address that is a multiple of 1 MiB, numbered by these.
    fn find(address: u64) -> Option<(u32, u64)> {
        let offset = address & 0xf_ffff;
        (offset < 0x1000).then_some(((address >> 20) as u32, offset))
    }

    fn shown(table: &StackTable, stack: StackId) -> Vec<(Space, u64)> {
        let locations = table.frames(stack).map(|n| table.locations()[n as usize]);
        locations
            .map(|location| (location.space, location.offset))
            .collect()
    }

    #[test]
    fn stacks_are_shared_between_processes_and_load_addresses() {
        let mut table = table();
        let first = table.intern(1, [0x10_0010, 0x20_0020].into_iter(), find);
        let moved = |address: u64| find(address - 0x7000_0000);
        let second = table.intern(2, [0x7010_0010, 0x7020_0020].into_iter(), moved);
        assert_eq!(first, second);
        let expected = [(Space::Module(1), 0x10), (Space::Module(2), 0x20)];
        assert_eq!(shown(&table, first), expected);
        assert_eq!(table.intern(1, std::iter::empty(), find), NO_STACK);
    }

    /// A call may be the last instruction of a module, and what is outside of all modules belongs
    /// to its process.
    #[test]
    fn return_addresses_belong_to_the_call_before_them() {
        let mut table = table();
        let stack = table.intern(1, [0x55, 0x10_1000, 0x10_1000].into_iter(), find);
        let expected = [
            (Space::Module(0), 0x55),
            (Space::Module(1), 0x1000),
            (Space::Module(1), 0x1000),
        ];
        assert_eq!(shown(&table, stack), expected);
        let [one, other] =
            [1, 2].map(|process| table.intern(process, [0x9_9999].into_iter(), find));
        assert_ne!(one, other);
        assert_eq!(shown(&table, one), [(Space::Process(1), 0x9_9999)]);
    }

    #[test]
    fn the_same_address_is_elsewhere_after_a_change() {
        let mut table = table();
        let stack = |table: &mut StackTable, module| {
            let found = |_| Some((module, 0x10));
            table.intern(1, [0x10_0010].into_iter(), found)
        };
        let before = stack(&mut table, 1);
        assert_eq!(stack(&mut table, 2), before);
        table.modules_changed(2);
        assert_eq!(stack(&mut table, 2), before);
        table.modules_changed(1);
        assert_ne!(stack(&mut table, 2), before);
        table.modules_changed(1);
        assert_eq!(stack(&mut table, 1), before);
    }

    #[test]
    fn stacks_beyond_the_limit_keep_their_callers() {
        let mut table = StackTable::new(4);
        let known = table.intern(1, [1, 2].into_iter(), |_| None);
        let next = table.intern(1, [5, 4, 3, 2].into_iter(), |_| None);
        assert_eq!(table.truncated(), 1);
        let callers: Vec<u64> = shown(&table, next).iter().map(|frame| frame.1).collect();
        assert_eq!(callers, [3, 2]);
        assert_eq!(table.intern(1, [1, 2].into_iter(), |_| None), known);
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut table = StackTable::new(100);
        for n in 0..200_000u64 {
            table.intern(1, (0..64).map(|frame| n * 64 + frame), |_| None);
        }
        assert!(table.cached <= MAX_CACHED && table.nodes.len() == 100);
    }
}
