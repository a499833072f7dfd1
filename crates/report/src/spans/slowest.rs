//! Keeps the trees with the slowest roots.

use super::tree::Tree;

/// Most bytes of the trees that are kept.
const MAX_BYTES: usize = 256 << 20;

/// The trees with the slowest roots.
#[derive(Debug)]
pub(super) struct Slowest {
    max: usize,
    trees: Vec<Tree>,
    bytes: usize,
    /// How many trees were offered, and are not here.
    dropped: u64,
    /// Whether the limit of memory, and not `max`, left trees out.
    is_cut: bool,
}

impl Slowest {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            trees: Vec::new(),
            bytes: 0,
            dropped: 0,
            is_cut: false,
        }
    }

    pub(super) fn add(&mut self, tree: Tree) {
        if self.max == 0 {
            return;
        }
        self.bytes += tree.bytes;
        self.trees.push(tree);
        if self.trees.len() > self.max.saturating_mul(2) || self.bytes > MAX_BYTES {
            self.thin(MAX_BYTES / 2);
        }
    }

    /// Keeps the slowest ones: `max` at most, and so many that they have room.
    fn thin(&mut self, max_bytes: usize) {
        let before = self.trees.len();
        // Stable: of equal ones, the earlier stay.
        self.trees
            .sort_by_key(|tree| std::cmp::Reverse(tree.duration()));
        self.trees.truncate(self.max);
        let is_too_much = self.trees.iter().map(|tree| tree.bytes).sum::<usize>() > MAX_BYTES;
        if is_too_much {
            let mut bytes = 0;
            self.trees.retain(|tree| {
                bytes += tree.bytes;
                bytes <= max_bytes
            });
            self.is_cut = true;
        }
        self.bytes = self.trees.iter().map(|tree| tree.bytes).sum();
        self.dropped += (before - self.trees.len()) as u64;
    }

    /// The trees, the slowest first; how many further ones there were; and whether memory was the
    /// reason.
    pub(super) fn finish(mut self) -> (Vec<Tree>, u64, bool) {
        self.thin(MAX_BYTES);
        (self.trees, self.dropped, self.is_cut)
    }
}
