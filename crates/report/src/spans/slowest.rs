//! Keeps the trees with the slowest roots.

use super::tree::Tree;

/// Most bytes of the trees that are kept.
const MAX_BYTES: usize = 256 << 20;

/// The trees with the slowest roots.
#[derive(Debug)]
pub(super) struct Slowest {
    max: usize,
    max_bytes: usize,
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
            max_bytes: MAX_BYTES,
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
        if self.trees.len() > self.max.saturating_mul(2) || self.bytes > self.max_bytes {
            self.thin(self.max_bytes / 2);
        }
    }

    /// Keeps the slowest ones: `max` at most, and so many that they have room.
    fn thin(&mut self, max_bytes: usize) {
        let before = self.trees.len();
        // Stable: of equal ones, the earlier stay.
        self.trees
            .sort_by_key(|tree| std::cmp::Reverse(tree.duration()));
        self.trees.truncate(self.max);
        let is_too_much = self.trees.iter().map(|tree| tree.bytes).sum::<usize>() > self.max_bytes;
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
        self.thin(self.max_bytes);
        (self.trees, self.dropped, self.is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree takes 10 bytes, and its process number tells when it came.
    fn tree(process: usize) -> Tree {
        Tree {
            process,
            spans: Vec::new(),
            left_out: 0,
            bytes: 10,
        }
    }

    #[test]
    fn memory_limits_the_trees() {
        let mut slowest = Slowest {
            max_bytes: 100,
            ..Slowest::new(1000)
        };
        for process in 0..95 {
            slowest.add(tree(process));
            assert!(slowest.bytes <= 100);
        }
        let (trees, dropped, is_cut) = slowest.finish();
        assert!((5..=10).contains(&trees.len()), "{}", trees.len());
        assert_eq!((trees.len() as u64 + dropped, is_cut), (95, true));
        // All have the same duration: the first ones stay.
        assert!(trees.iter().map(|tree| tree.process).take(5).eq(0..5));
    }
}
