//! The root page of a dump that does not say where it is.
//!
//! Images of memory have no notes, and QEMU's `dump-guest-memory` has those of the kernel only if
//! the machine has its `vmcoreinfo` device. The root page says by a number and a sum what it is,
//! and it begins a page. Any program can fill its memory with pages that say so, and that lead to
//! directories as it likes. So the kernel's image, which is no program's, is searched first, and
//! candidates are ranked by what they lead to.
//!
//! A hostile program must not decide what a search takes. Each candidate costs a bounded number of
//! reads, directories that many candidates lead to are read once, and only the best candidates are
//! kept.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;

use serde::Serialize;
use usertrace_sys::crash::{LTT_CRASH_MAGIC, LttCrashRoot};

use crate::directory::{Judgement, LeadsTo, judge, read_root};
use crate::image::KernelImage;
use crate::{PhysicalMemory, Presence};

/// Pages are no smaller.
const PAGE: u64 = 4096;
/// Candidates that are kept.
const KEPT: usize = 16;
/// Directories that are remembered, so that they are not read for each root page that leads there.
const REMEMBERED: usize = 1 << 16;
/// Pages of a directory at which a search looks for each candidate; those behind the first one, for
/// all candidates; and those for each that is kept, if a choice has to be made.
const PAGES: u64 = 8;
const ALL_PAGES: u64 = 1 << 16;
const PAGES_OF_BEST: u64 = 1 << 10;

/// Where a root page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Anywhere: it may be a program's memory.
    Memory,
    /// In the kernel's image, where that is writable: a program may have got memory there that was
    /// freed at boot.
    Image,
    /// In the kernel's image, where that is read-only: nobody but the kernel ever had that memory.
    ReadOnlyImage,
}

/// A page that says that it is a root page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its physical address.
    pub address: u64,
    /// Where that is.
    pub place: Place,
    /// What it leads to.
    pub leads_to: LeadsTo,
    /// Buffers that the directory has, as far as the search looked at it.
    pub buffers: u64,
}

/// What a search for the root page has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RootSearch {
    /// Pages that say that they are a root page, where it was looked.
    pub candidates: u64,
    /// Different directories that they lead to, as a kernel leaves one.
    pub consistent: u64,
    /// The best ones, best first, which lead to different directories. One that leads nowhere is
    /// among them only if it is certain that it is the kernel's.
    pub best: Vec<Candidate>,
    /// The first one that leads nowhere: its directory is not there, or is at another place.
    pub nowhere: Option<Nowhere>,
}

/// A root page whose directory is not where it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nowhere {
    /// Its physical address.
    pub address: u64,
    /// That of the directory.
    pub directory: u64,
}

impl RootSearch {
    /// The root page, if the search has one that is better than all others.
    #[must_use]
    pub fn root(&self) -> Option<Candidate> {
        let mut best = self.best.iter();
        let first = *best.next()?;
        let has_rival = best.any(|other| other.leads_to == first.leads_to);
        let is_chosen = match first.leads_to {
            // There are no traces, whichever it is.
            LeadsTo::Nothing => true,
            // Not all were kept.
            LeadsTo::Directory => !has_rival && self.consistent == 1,
            LeadsTo::Nowhere | LeadsTo::Damaged => !has_rival,
        };
        is_chosen.then_some(first)
    }
}

impl Candidate {
    /// Is it the kernel's, whatever programs have done?
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.place == Place::ReadOnlyImage
    }
}

/// What tells apart what candidates lead to: a page is read differently with other sizes.
type Target = (u64, u32, u32);

fn target(root: &LttCrashRoot) -> Target {
    (root.directory, root.page_size, root.entry_size)
}

/// Searches for the root page: in the kernel's image, if the machine may be an x86-64 one and its
/// image is found. If that has none, or is not found, in all of these ranges.
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
            true => Place::Image,
            false => Place::ReadOnlyImage,
        };
        search.look(image.read_only, read_only);
        // One that is certain needs no comparison.
        if search.result.best.is_empty() || image.is_ambiguous {
            search.look(image.writable, Place::Image);
        }
        if !search.result.best.is_empty() {
            return search.finish();
        }
    }
    let mut search = Search::new(memory);
    search.look(ranges, Place::Memory);
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

    /// Looks at each page of these ranges.
    fn look(&mut self, ranges: impl IntoIterator<Item = Range<u64>>, place: Place) {
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
                    self.add(address, &root, place);
                }
            }
        }
    }

    fn add(&mut self, address: u64, root: &LttCrashRoot, place: Place) {
        self.result.candidates += 1;
        // Others that lead to the same were at places that are no worse.
        if self.known.contains(&target(root)) {
            return;
        }
        let judgement = self.judge(root);
        let leads_to = judgement.leads_to;
        if leads_to == LeadsTo::Nowhere && place != Place::ReadOnlyImage {
            let directory = root.directory;
            self.result
                .nowhere
                .get_or_insert(Nowhere { address, directory });
            return;
        }
        self.result.consistent += u64::from(leads_to == LeadsTo::Directory);
        let candidate = Candidate {
            address,
            place,
            leads_to,
            buffers: judgement.buffers,
        };
        let best = &mut self.result.best;
        // Behind all that are as good.
        let at = best.partition_point(|other| other.leads_to >= candidate.leads_to);
        best.insert(at, candidate);
        best.truncate(KEPT);
    }

    /// What a root page leads to, as far as the first pages of the directory say.
    fn judge(&mut self, root: &LttCrashRoot) -> Judgement {
        let judgement = judge(self.memory, root, PAGES.min(1 + self.pages_left));
        self.pages_left -= judgement.pages.saturating_sub(1);
        if judgement.leads_to != LeadsTo::Nowhere && self.known.len() < REMEMBERED {
            self.known.insert(target(root));
        }
        judgement
    }

    /// Where there are several as good as the best, looks at more of their directories.
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
                if candidate.leads_to == LeadsTo::Directory
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
