//! Trees of pages: from the pages of an area to their physical addresses.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};

use usertrace_ring::{Positions, RingMemory};
use usertrace_sys::crash::{LTT_CRASH_ADDRESS, LTT_CRASH_LOST, LTT_CRASH_PRESENT, LttCrashTree};
use usertrace_sys::uapi::LTT_LOST_WORD;

use crate::{PhysicalMemory, Presence};

/// Page sizes that a kernel can have.
pub(super) const PAGE_SIZES: std::ops::RangeInclusive<u32> = 4096..=65536;
/// Bits of a page's number that a tree can look at: more than there is physical memory.
const MAX_BITS: u32 = 52;

/// A tree that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// No page has this size.
    #[error("{0} is no size of a page")]
    PageSize(u32),
    /// It has no level, or too many.
    #[error("a tree of depth {0}")]
    Depth(u32),
    /// It says that it stands for more pages than its levels can.
    #[error("{pages} pages in a tree of depth {depth}")]
    Pages {
        /// How many.
        pages: u64,
        /// Its depth.
        depth: u32,
    },
}

/// Whose each page is. A page is at one place of one area: trees that lead to the same pages again
/// and again are damaged, and would make more of a dump than there is in it.
#[derive(Debug, Default)]
pub struct Owners {
    trees: Cell<u32>,
    /// By the physical address of the first one: pages that lie behind each other in memory and in
    /// their tree.
    runs: RefCell<BTreeMap<u64, Run>>,
}

#[derive(Debug)]
struct Run {
    tree: u32,
    /// The number of the first one in the tree.
    page: u64,
    /// How many bytes they have.
    len: u64,
}

impl Owners {
    fn new_tree(&self) -> u32 {
        self.trees.set(self.trees.get() + 1);
        self.trees.get()
    }

    /// Is the page at this place, and at no other one?
    fn has(&self, address: u64, tree: u32, page: u64, page_bits: u32) -> bool {
        let page_size = 1 << page_bits;
        let mut runs = self.runs.borrow_mut();
        if let Some((start, run)) = runs.range_mut(..=address).next_back() {
            let behind = address - start;
            let is_next = run.tree == tree
                && behind.is_multiple_of(page_size)
                && run.page.checked_add(behind >> page_bits) == Some(page);
            if behind < run.len {
                return is_next;
            }
            if behind == run.len && is_next {
                run.len += page_size;
                return true;
            }
        }
        let len = page_size;
        runs.insert(address, Run { tree, page, len });
        true
    }
}

/// Pages that are remembered of each kind that is told of: a tree that is damaged can have any
/// number of them.
const MOST_TOLD: usize = 1 << 20;

fn note(pages: &mut HashSet<u64>, page: u64) {
    if pages.len() < MOST_TOLD {
        pages.insert(page);
    }
}

/// Where a page of an area is.
enum Page {
    At(u64),
    /// It is at another place, too.
    Elsewhere,
    NeverWritten,
    /// A table that leads to it was left out when the dump was made.
    LeftOut,
    /// There was no memory for what was written.
    Lost,
    /// The tables that lead to it are not in the dump.
    Unknown,
}

/// An area of a process's buffers, read through its tree of pages.
#[derive(Debug)]
pub struct PageTree<'a, M> {
    memory: &'a M,
    owners: &'a Owners,
    number: u32,
    root: u64,
    pages: u64,
    depth: u32,
    page_bits: u32,
    /// The table that was read last, of each level, and its address.
    tables: Vec<Option<(u64, Vec<u8>)>>,
    /// Pages that should be in the dump, and are not.
    missing: HashSet<u64>,
    /// Pages, and tables, that were left out when the dump was made: as they were zeros, or as they
    /// were not wanted.
    left_out: HashSet<u64>,
    /// Pages that are at another place, too.
    elsewhere: HashSet<u64>,
}

impl<'a, M: PhysicalMemory> PageTree<'a, M> {
    /// A tree in `memory`.
    ///
    /// # Errors
    /// When no tree of a kernel is so.
    pub fn new(
        memory: &'a M,
        owners: &'a Owners,
        tree: &LttCrashTree,
        page_size: u32,
    ) -> Result<Self, TreeError> {
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return Err(TreeError::PageSize(page_size));
        }
        let page_bits = page_size.ilog2();
        let bits = (page_bits - 3).saturating_mul(tree.depth);
        if bits == 0 || bits > MAX_BITS {
            return Err(TreeError::Depth(tree.depth));
        }
        if tree.pages > 1 << bits {
            return Err(TreeError::Pages {
                pages: tree.pages,
                depth: tree.depth,
            });
        }
        Ok(Self {
            memory,
            owners,
            number: owners.new_tree(),
            root: tree.root,
            pages: tree.pages,
            depth: tree.depth,
            page_bits,
            tables: (0..tree.depth).map(|_| None).collect(),
            missing: HashSet::new(),
            left_out: HashSet::new(),
            elsewhere: HashSet::new(),
        })
    }

    /// Length of the area.
    #[must_use]
    pub fn len(&self) -> u64 {
        // At most 2^52 pages of at most 2^16 bytes; such a tree only fits where it is this far from
        // overflow.
        self.pages.saturating_mul(1 << self.page_bits)
    }

    /// Is the area empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Pages that were read, should be in the dump, and are not.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing.len() as u64
    }

    /// Pages that were read, or tables of them, and were left out when the dump was made. They
    /// count as zeros, which they may have been.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    /// Pages that were asked for, and are at another place, too. They count as zeros.
    #[must_use]
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere.len() as u64
    }

    /// Was the page at this offset, which was read, left out when the dump was made?
    #[must_use]
    pub fn is_left_out(&mut self, offset: u64) -> bool {
        match self.find(offset >> self.page_bits) {
            Page::At(address) => self.left_out.contains(&address),
            Page::LeftOut => true,
            Page::NeverWritten | Page::Lost | Page::Unknown | Page::Elsewhere => false,
        }
    }

    /// Should the page at this offset, which was read, be in the dump, and is not?
    #[must_use]
    pub fn is_missing(&self, offset: u64) -> bool {
        self.missing.contains(&(offset >> self.page_bits))
    }

    /// Is it known that nobody wrote to the page at this offset?
    #[must_use]
    pub fn is_never_written(&mut self, offset: u64) -> bool {
        matches!(self.find(offset >> self.page_bits), Page::NeverWritten)
    }

    /// Copies bytes of the area; zeros where there is nothing, and `LTT_LOST_WORD` where there was
    /// no memory for what was written.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        let page_size = 1u64 << self.page_bits;
        let mut done = 0;
        while done < buffer.len() {
            let at = offset.saturating_add(done as u64);
            let within = at % page_size;
            let page = at >> self.page_bits;
            let found = self.find(page);
            let rest = buffer.len() - done;
            let len = rest.min((page_size - within) as usize);
            if let Page::At(address) = found {
                // Pages that lie behind each other in memory, too, are read at once, if all of them
                // is there.
                let run = self.run(page, address, within.saturating_add(rest as u64));
                let all = rest.min((run - within) as usize);
                let whole = &mut buffer[done..done + all];
                if all > len
                    && self.memory.read(address.saturating_add(within), whole) == Presence::Whole
                {
                    done += all;
                    continue;
                }
            }
            let piece = &mut buffer[done..done + len];
            match found {
                Page::NeverWritten | Page::LeftOut => piece.fill(0),
                Page::Lost => {
                    let word = LTT_LOST_WORD.to_ne_bytes();
                    for (byte, lost) in piece
                        .iter_mut()
                        .zip(word.iter().cycle().skip(at as usize % 8))
                    {
                        *byte = *lost;
                    }
                }
                Page::At(address) => {
                    // Zeros may have been left out of a dump; that a page with a header is not
                    // zeros, its reader sees.
                    match self.memory.read(address.saturating_add(within), piece) {
                        Presence::Whole => {}
                        Presence::Excluded => note(&mut self.left_out, address),
                        Presence::Missing => note(&mut self.missing, page),
                    }
                }
                Page::Unknown => {
                    piece.fill(0);
                    note(&mut self.missing, page);
                }
                Page::Elsewhere => {
                    piece.fill(0);
                    note(&mut self.elsewhere, page);
                }
            }
            done += len;
        }
    }

    /// How many bytes from the start of a page on, which is at this address, lie behind each other
    /// in memory: as many as are wanted, or some more or less.
    fn run(&mut self, page: u64, address: u64, wanted: u64) -> u64 {
        let page_size = 1u64 << self.page_bits;
        let mut len = page_size;
        let mut next = page;
        while len < wanted {
            next += 1;
            match self.find(next) {
                Page::At(at) if Some(at) == address.checked_add(len) => len += page_size,
                _ => break,
            }
        }
        len
    }

    /// The part of the area from `offset` on, as a ring whose process left it at `positions`.
    pub fn ring(&mut self, offset: u64, positions: Positions) -> impl RingMemory {
        Ring {
            tree: self,
            offset,
            positions,
        }
    }

    fn find(&mut self, page: u64) -> Page {
        if page >= self.pages {
            return Page::NeverWritten;
        }
        let word_bits = self.page_bits - 3;
        let mut word = self.root;
        for level in (0..self.depth).rev() {
            if word & LTT_CRASH_PRESENT == 0 {
                return Page::NeverWritten;
            }
            let index = page >> (word_bits * level) & ((1 << word_bits) - 1);
            match self.table_word(level, word & LTT_CRASH_ADDRESS, index as usize) {
                Some(_) if self.left_out.contains(&(word & LTT_CRASH_ADDRESS)) => {
                    return Page::LeftOut;
                }
                Some(next) => word = next,
                None => return Page::Unknown,
            }
        }
        if word & LTT_CRASH_PRESENT != 0 {
            let address = word & LTT_CRASH_ADDRESS;
            match self.owners.has(address, self.number, page, self.page_bits) {
                true => Page::At(address),
                false => Page::Elsewhere,
            }
        } else if word & LTT_CRASH_LOST != 0 {
            Page::Lost
        } else {
            Page::NeverWritten
        }
    }

    /// A word of a table. None: it is not in the dump.
    fn table_word(&mut self, level: u32, address: u64, index: usize) -> Option<u64> {
        let cached = &mut self.tables[level as usize];
        if cached.as_ref().is_none_or(|(at, _)| *at != address) {
            let mut table = vec![0; 1 << self.page_bits];
            let presence = self.memory.read(address, &mut table);
            if presence == Presence::Excluded {
                note(&mut self.left_out, address);
            }
            *cached = (presence != Presence::Missing).then_some((address, table));
        }
        let (_, table) = cached.as_ref()?;
        let bytes = table.get(index * 8..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }
}

struct Ring<'t, 'a, M> {
    tree: &'t mut PageTree<'a, M>,
    offset: u64,
    positions: Positions,
}

impl<M: PhysicalMemory> RingMemory for Ring<'_, '_, M> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        self.tree.read(self.offset.saturating_add(offset), buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn positions(&mut self) -> Positions {
        self.positions
    }
}
