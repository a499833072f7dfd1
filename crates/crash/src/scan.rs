//! Searches for the root page in a dump that does not give its address.
//!
//! Memory images have no notes, and QEMU's `dump-guest-memory` has the kernel's notes only if the
//! machine has its `vmcoreinfo` device. A root page is recognized by its magic number, its
//! checksum, and its alignment. Any program can forge such pages in its memory, with directories of
//! its choice. So the search first covers the kernel's image, which no program can write, and ranks
//! candidates by what they lead to.
//!
//! A hostile program must not control the cost of a search. Each candidate costs a bounded number
//! of reads, a directory with many candidates is read once, and only the best candidates are kept.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;

use serde::Serialize;
use usertrace_sys::crash::{LTT_CRASH_MAGIC, LttCrashRoot};

use crate::directory::{Judgement, RootTarget, judge, read_root};
use crate::image::KernelImage;
use crate::{PhysicalMemory, Presence};

/// The minimum page size.
const PAGE: u64 = 4096;
/// Maximum number of candidates to keep.
const KEPT: usize = 16;
/// Maximum number of directories to remember, so that further root pages with the same directory
/// are skipped.
const REMEMBERED: usize = 1 << 16;
/// Maximum numbers of directory pages to check: for each candidate; beyond the first page, for all
/// candidates; and for each kept candidate, if several are equal.
const PAGES: u64 = 8;
const ALL_PAGES: u64 = 1 << 16;
const PAGES_OF_BEST: u64 = 1 << 10;

/// Where a root page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootLocation {
    /// Anywhere in memory, perhaps in a program's.
    Memory,
    /// In a writable part of the kernel's image. A program may own it if it was freed at boot.
    Image,
    /// In a read-only part of the kernel's image, which only the kernel ever had.
    ReadOnlyImage,
}

/// A page that has the form of a root page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its physical address.
    pub address: u64,
    /// Where it was found.
    pub location: RootLocation,
    /// What it leads to.
    pub leads_to: RootTarget,
    /// Buffers in the checked part of the directory.
    pub buffers: u64,
}

/// The result of a search for the root page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RootSearch {
    /// Number of pages that have the form of a root page, in the searched memory.
    pub candidates: u64,
    /// Number of different directories that a kernel can have left.
    pub consistent: u64,
    /// The best candidates, best first, with different directories. A candidate without a directory
    /// is included only if it is certainly the kernel's.
    pub best: Vec<Candidate>,
    /// The first candidate without a directory at the given address.
    pub dangling: Option<DanglingRoot>,
}

/// A root page whose directory is not at the given address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DanglingRoot {
    /// Its physical address.
    pub address: u64,
    /// The address that it gives for the directory.
    pub directory: u64,
}

impl RootSearch {
    /// The best candidate, if it is better than all others.
    #[must_use]
    pub fn root(&self) -> Option<Candidate> {
        let mut best = self.best.iter();
        let first = *best.next()?;
        let has_rival = best.any(|other| other.leads_to == first.leads_to);
        let is_chosen = match first.leads_to {
            // All candidates mean that there are no traces.
            RootTarget::Nothing => true,
            // Not all rivals are kept, so check the total.
            RootTarget::Directory => !has_rival && self.consistent == 1,
            RootTarget::Nowhere | RootTarget::Damaged => !has_rival,
        };
        is_chosen.then_some(first)
    }
}

impl Candidate {
    /// Whether it certainly is the kernel's.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.location == RootLocation::ReadOnlyImage
    }
}

/// Identifies a directory. Different sizes change how its pages are read.
type Target = (u64, u32, u32);

fn target(root: &LttCrashRoot) -> Target {
    (root.directory, root.page_size, root.entry_size)
}

/// Searches for the root page: in the kernel's image, if the machine may be x86-64 and the image is
/// found. If that yields no candidate, in all of these ranges.
#[must_use]
pub fn find_roots(
    memory: &impl PhysicalMemory,
    ranges: impl IntoIterator<Item = Range<u64>>,
    may_be_x86_64: bool,
) -> RootSearch {
    let image = may_be_x86_64.then(|| KernelImage::find(memory)).flatten();
    if let Some(image) = image {
        let mut search = Search::new(memory);
        let read_only = match image.is_ambiguous {
            true => RootLocation::Image,
            false => RootLocation::ReadOnlyImage,
        };
        search.scan(image.read_only, read_only);
        // A certain candidate needs no comparison.
        if search.result.best.is_empty() || image.is_ambiguous {
            search.scan(image.writable, RootLocation::Image);
        }
        if !search.result.best.is_empty() {
            return search.finish();
        }
    }
    let mut search = Search::new(memory);
    search.scan(ranges, RootLocation::Memory);
    search.finish()
}

struct Search<'a, M> {
    memory: &'a M,
    result: RootSearch,
    known: HashSet<Target>,
    pages_left: u64,
}

impl<'a, M: PhysicalMemory> Search<'a, M> {
    fn new(memory: &'a M) -> Self {
        Self {
            memory,
            result: RootSearch::default(),
            known: HashSet::new(),
            pages_left: ALL_PAGES,
        }
    }

    /// Adds the candidates in these ranges.
    fn scan(&mut self, ranges: impl IntoIterator<Item = Range<u64>>, location: RootLocation) {
        for range in ranges {
            let Some(first) = range.start.checked_next_multiple_of(PAGE) else {
                continue;
            };
            for address in (first..range.end).step_by(PAGE as usize) {
                let mut word = [0; 8];
                if self.memory.read(address, &mut word) != Presence::Whole
                    || u64::from_le_bytes(word) != LTT_CRASH_MAGIC
                {
                    continue;
                }
                if let Ok(root) = read_root(self.memory, address) {
                    self.add(address, &root, location);
                }
            }
        }
    }

    fn add(&mut self, address: u64, root: &LttCrashRoot, location: RootLocation) {
        self.result.candidates += 1;
        // Earlier candidates with the same directory were at locations that are no worse.
        if self.known.contains(&target(root)) {
            return;
        }
        let judgement = self.judge(root);
        let leads_to = judgement.leads_to;
        if leads_to == RootTarget::Nowhere && location != RootLocation::ReadOnlyImage {
            let directory = root.directory;
            self.result
                .dangling
                .get_or_insert(DanglingRoot { address, directory });
            return;
        }
        self.result.consistent += u64::from(leads_to == RootTarget::Directory);
        let candidate = Candidate {
            address,
            location,
            leads_to,
            buffers: judgement.buffers,
        };
        let best = &mut self.result.best;
        // After all that are equally good.
        let at = best.partition_point(|other| other.leads_to >= candidate.leads_to);
        best.insert(at, candidate);
        best.truncate(KEPT);
    }

    /// Checks the first pages of the directory that a root page leads to.
    fn judge(&mut self, root: &LttCrashRoot) -> Judgement {
        let judgement = judge(self.memory, root, PAGES.min(1 + self.pages_left));
        self.pages_left -= judgement.pages.saturating_sub(1);
        if judgement.leads_to != RootTarget::Nowhere && self.known.len() < REMEMBERED {
            self.known.insert(target(root));
        }
        judgement
    }

    /// Checks more of the directories if several candidates are equally good.
    fn finish(mut self) -> RootSearch {
        let best = &mut self.result.best;
        let first = best.first().map(|candidate| candidate.leads_to);
        let rivals = best.partition_point(|other| Some(other.leads_to) == first);
        if rivals > 1 {
            for candidate in &mut best[..rivals] {
                let Ok(root) = read_root(self.memory, candidate.address) else {
                    continue;
                };
                let judgement = judge(self.memory, &root, PAGES_OF_BEST);
                candidate.buffers = judgement.buffers;
                if candidate.leads_to == RootTarget::Directory
                    && judgement.leads_to != candidate.leads_to
                {
                    candidate.leads_to = judgement.leads_to;
                    self.result.consistent -= 1;
                }
            }
            best.sort_by_key(|candidate| Reverse(candidate.leads_to));
        }
        self.result
    }
}
