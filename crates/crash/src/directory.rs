//! The directory of a dump: the traces, channels, processes and buffers at the time of the crash.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use usertrace_ctf::{Clock, Crash, kernel_name};
use usertrace_ring::Channel;
use usertrace_sys::crash::{
    LTT_CRASH_ADDRESS, LTT_CRASH_BUFFER, LTT_CRASH_MAGIC, LTT_CRASH_PAGE_MAGIC, LTT_CRASH_PRESENT,
    LTT_CRASH_VERSION, LttCrashBuffer, LttCrashChannel, LttCrashContent, LttCrashEntry,
    LttCrashPage, LttCrashProcess, LttCrashRoot, LttCrashTrace, LttCrashTree,
};
use usertrace_sys::printable;
use usertrace_sys::uapi::LTT_CLOCK_MONOTONIC;
use zerocopy::{FromBytes, IntoBytes};

use crate::tree::{PAGE_SIZES, PageOwners, PageTree};
use crate::{PhysicalMemory, Presence, Problems};

/// Maximum number of pages of a directory: half a million entries.
const MAX_PAGES: usize = 1 << 15;

/// Why a page is not a valid root page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The page is not in the dump.
    #[error("the root page at {0:#x} is not in the dump")]
    Missing(u64),
    /// Its magic number is wrong.
    #[error("there is no root page at {0:#x}: its magic number is {1:#x}")]
    Magic(u64, u64),
    /// Its checksum is wrong.
    #[error("the root page at {0:#x} is damaged: its sum is wrong")]
    Sum(u64),
    /// Its version is not supported.
    #[error("the root page is of version {0}, and this program knows version {LTT_CRASH_VERSION}")]
    Version(u32),
    /// Its sizes are invalid.
    #[error("the root page says pages of {page_size} bytes and entries of {entry_size}")]
    Sizes {
        /// Size of a page in bytes.
        page_size: u32,
        /// Size of an entry in bytes.
        entry_size: u32,
    },
}

/// Entries of one kind by their keys, each with its serial.
type Entries<K, V> = BTreeMap<K, (u64, V)>;

/// The contents of the directory.
#[derive(Clone, Debug)]
pub struct Directory {
    root: LttCrashRoot,
    traces: Entries<u64, LttCrashTrace>,
    channels: Entries<(u64, u32), LttCrashChannel>,
    processes: Entries<u64, LttCrashProcess>,
    buffers: Entries<(u64, u64), LttCrashBuffer>,
}

impl Directory {
    /// Reads the directory whose root page is at `address`. Errors beyond the root page go to
    /// `problems`.
    ///
    /// # Errors
    /// If there is no valid root page.
    pub fn read(
        memory: &impl PhysicalMemory,
        address: u64,
        problems: &mut Problems,
    ) -> Result<Self, DirectoryError> {
        let root = read_root(memory, address)?;
        let mut directory = Self {
            root,
            traces: Entries::new(),
            channels: Entries::new(),
            processes: Entries::new(),
            buffers: Entries::new(),
        };
        let mut seen = HashSet::new();
        let mut next = root.directory;
        let mut page = vec![0; root.page_size as usize];
        while next != 0 {
            if !seen.insert(next) {
                problems.add(format_args!(
                    "the directory leads back to its page at {next:#x}"
                ));
                break;
            }
            if seen.len() > MAX_PAGES {
                problems.add(format_args!(
                    "the directory has more than {MAX_PAGES} pages"
                ));
                break;
            }
            if memory.read(next, &mut page) != Presence::Whole {
                problems.add(format_args!(
                    "the directory's page at {next:#x} is not in the dump: the rest of it is not known"
                ));
                break;
            }
            let Ok((header, _)) = LttCrashPage::read_from_prefix(&page) else {
                break;
            };
            if header.magic != LTT_CRASH_PAGE_MAGIC {
                problems.add(format_args!(
                    "there is no page of the directory at {next:#x}: the rest of it is not known"
                ));
                break;
            }
            let entries = &page[size_of::<LttCrashPage>()..];
            for (index, bytes) in entries.chunks_exact(root.entry_size as usize).enumerate() {
                if let Ok((entry, _)) = LttCrashEntry::read_from_prefix(bytes)
                    && let Err(kind) = directory.add(&entry)
                {
                    problems.add(format_args!(
                        "entry {index} of the directory's page at {next:#x} is of the unknown kind {kind}"
                    ));
                }
            }
            next = header.next;
        }
        Ok(directory)
    }

    /// Adds an entry. Of two entries with the same key, the later one is valid. Returns an unknown
    /// kind as error.
    fn add(&mut self, entry: &LttCrashEntry) -> Result<(), u32> {
        fn put<K: Ord, V>(entries: &mut Entries<K, V>, key: K, serial: u64, value: V) {
            if entries.get(&key).is_none_or(|(old, _)| *old <= serial) {
                entries.insert(key, (serial, value));
            }
        }
        let serial = entry.serial;
        match entry.content() {
            LttCrashContent::Free => {}
            LttCrashContent::Trace(t) => put(&mut self.traces, t.generation, serial, t),
            LttCrashContent::Channel(c) => {
                put(&mut self.channels, (c.trace, c.index), serial, c);
            }
            LttCrashContent::Process(p) => put(&mut self.processes, p.process, serial, p),
            LttCrashContent::Buffer(b) => {
                put(&mut self.buffers, (b.trace, b.process), serial, b);
            }
            // A kind that only a later version of this crate supports is unknown, too.
            LttCrashContent::Unknown(kind) => return Err(kind),
            _ => return Err(entry.kind),
        }
        Ok(())
    }

    /// The root page.
    #[must_use]
    pub fn root(&self) -> &LttCrashRoot {
        &self.root
    }

    /// The clock of a trace, or the default if the trace is unknown.
    #[must_use]
    pub fn clock(&self, trace: Option<&LttCrashTrace>) -> Clock {
        match trace {
            // The root page's boot time is in the processor's clock.
            Some(trace) if trace.clock == self.root.clock => {
                Clock::new(&trace.start, &[self.root.boot])
            }
            Some(trace) => Clock::new(&trace.start, &[]),
            None => Clock::new(&self.root.boot, &[]),
        }
    }

    /// What is known of the crash, with its time in the clock of the trace.
    #[must_use]
    pub fn crash(&self, trace: Option<&LttCrashTrace>, crash: Crash) -> Crash {
        let cycles = match trace.map(|trace| trace.clock) {
            Some(LTT_CLOCK_MONOTONIC) => crash.monotonic,
            Some(clock) if clock != self.root.clock => None,
            _ => crash.cycles,
        };
        Crash { cycles, ..crash }
    }

    /// All traces, in order of their creation.
    pub fn traces(&self) -> impl Iterator<Item = &LttCrashTrace> {
        self.traces.values().map(|(_, trace)| trace)
    }

    /// The printable names of all traces.
    pub fn trace_names(&self) -> impl Iterator<Item = String> {
        self.traces()
            .map(|trace| printable(&kernel_name(&trace.name)))
    }

    /// All buffers, sorted by trace and process.
    pub fn buffers(&self) -> impl Iterator<Item = &LttCrashBuffer> {
        self.buffers.values().map(|(_, buffer)| buffer)
    }

    /// A channel of a trace.
    #[must_use]
    pub fn channel(&self, trace: u64, index: u32) -> Option<&LttCrashChannel> {
        self.channels
            .get(&(trace, index))
            .map(|(_, channel)| channel)
    }

    /// A process.
    #[must_use]
    pub fn process(&self, process: u64) -> Option<&LttCrashProcess> {
        self.processes.get(&process).map(|(_, process)| process)
    }
}

/// Whether the sum of all words, of which one is a checksum, is 0.
pub(super) fn is_checksum_valid(words: &[u8]) -> bool {
    let words = words.chunks_exact(8).filter_map(|word| word.first_chunk());
    words.fold(0, |sum: u64, word| {
        sum.wrapping_add(u64::from_le_bytes(*word))
    }) == 0
}

pub(super) fn read_root(
    memory: &impl PhysicalMemory,
    address: u64,
) -> Result<LttCrashRoot, DirectoryError> {
    let mut bytes = [0; size_of::<LttCrashRoot>()];
    // A page that was excluded from the dump is not valid, even if zeros are.
    if memory.read(address, &mut bytes) != Presence::Whole {
        return Err(DirectoryError::Missing(address));
    }
    let root =
        LttCrashRoot::read_from_bytes(&bytes).map_err(|_| DirectoryError::Missing(address))?;
    if root.magic != LTT_CRASH_MAGIC {
        return Err(DirectoryError::Magic(address, root.magic));
    }
    if root.version != LTT_CRASH_VERSION {
        return Err(DirectoryError::Version(root.version));
    }
    let summed = &root.as_bytes()[..std::mem::offset_of!(LttCrashRoot, directory)];
    if !is_checksum_valid(summed) {
        return Err(DirectoryError::Sum(address));
    }
    let room = (root.page_size as usize).saturating_sub(size_of::<LttCrashPage>());
    if !root.page_size.is_power_of_two()
        || !PAGE_SIZES.contains(&root.page_size)
        || (root.entry_size as usize) < size_of::<LttCrashEntry>()
        || root.entry_size as usize > room
    {
        return Err(DirectoryError::Sizes {
            page_size: root.page_size,
            entry_size: root.entry_size,
        });
    }
    Ok(root)
}

/// Number of trees per page of the directory whose roots [`judge`] checks.
const MAX_TREES: usize = 2;

/// What a root page leads to. Later variants are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootTarget {
    /// No directory is there.
    Nowhere,
    /// The root page says that there was no trace yet.
    Nothing,
    /// A directory that no kernel leaves like this: damaged or forged.
    Damaged,
    /// A directory as a kernel leaves it.
    Directory,
}

/// The result of [`judge`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Judgement {
    pub(super) leads_to: RootTarget,
    /// Number of directory pages that were read.
    pub(super) pages: u64,
    /// Number of buffer entries in these pages.
    pub(super) buffers: u64,
}

/// Checks what a root page leads to, in at most `max_pages` pages of the directory.
///
/// A directory passes if a kernel left it, whatever instruction it stopped at. A carefully forged
/// one passes as well.
pub(super) fn judge(
    memory: &impl PhysicalMemory,
    root: &LttCrashRoot,
    max_pages: u64,
) -> Judgement {
    let mut judgement = Judgement {
        leads_to: RootTarget::Directory,
        pages: 0,
        buffers: 0,
    };
    if root.directory == 0 {
        judgement.leads_to = RootTarget::Nothing;
        return judgement;
    }
    let mut seen = HashSet::new();
    let mut next = root.directory;
    let mut page = vec![0; root.page_size as usize];
    while next != 0 && judgement.pages < max_pages {
        let is_aligned = next.is_multiple_of(u64::from(root.page_size));
        let is_there = seen.insert(next) && memory.read(next, &mut page) == Presence::Whole;
        let header = LttCrashPage::read_from_prefix(&page).ok();
        let header = header.filter(|(header, _)| is_there && header.magic == LTT_CRASH_PAGE_MAGIC);
        let Some((header, _)) = header else {
            judgement.leads_to = match judgement.pages {
                0 => RootTarget::Nowhere,
                _ => RootTarget::Damaged,
            };
            return judgement;
        };
        judgement.pages += 1;
        let mut trees = MAX_TREES;
        let mut are_plausible = is_aligned;
        for bytes in page[size_of::<LttCrashPage>()..].chunks_exact(root.entry_size as usize) {
            if let Ok((entry, _)) = LttCrashEntry::read_from_prefix(bytes) {
                are_plausible &= is_plausible(memory, root, &entry, &mut trees);
                judgement.buffers += u64::from(entry.kind == LTT_CRASH_BUFFER);
            }
        }
        if !are_plausible {
            judgement.leads_to = RootTarget::Damaged;
            return judgement;
        }
        next = header.next;
    }
    judgement
}

/// Whether a kernel can have left this entry.
fn is_plausible(
    memory: &impl PhysicalMemory,
    root: &LttCrashRoot,
    entry: &LttCrashEntry,
    trees: &mut usize,
) -> bool {
    let mut is_tree = |tree: &LttCrashTree| {
        let known = PageTree::new(memory, &PageOwners::default(), tree, root.page_size).is_ok();
        if !known || tree.root & LTT_CRASH_PRESENT == 0 || *trees == 0 {
            return known;
        }
        *trees -= 1;
        memory.read(tree.root & LTT_CRASH_ADDRESS, &mut [0; 8]) != Presence::Missing
    };
    let is_content = match entry.content() {
        LttCrashContent::Free => return true,
        LttCrashContent::Trace(trace) => trace.name.contains(&0),
        LttCrashContent::Channel(channel) => {
            channel.channel.nr_rings == 0 || Channel::new(&channel.channel).is_ok()
        }
        LttCrashContent::Process(process) => process.comm.contains(&0),
        LttCrashContent::Buffer(buffer) => is_tree(&buffer.buffers) && is_tree(&buffer.control),
        _ => false,
    };
    is_content && entry.serial > 0
}

#[cfg(test)]
mod tests {
    use usertrace_sys::uapi::{LTT_CLOCK_TSC, LttClockSync};

    use super::*;

    /// The clock of a trace need not be that of the root page.
    ///
    /// Requirements: C7
    #[test]
    fn each_trace_has_a_clock_of_its_own() {
        let boot = LttClockSync {
            cycles: 90_000_000_000,
            monotonic: 1_000_000_000,
            realtime: 1_700_000_000_000_000_000,
            freq: 3_000_000_000,
        };
        let directory = Directory {
            root: LttCrashRoot {
                clock: LTT_CLOCK_TSC,
                boot,
                ..LttCrashRoot::default()
            },
            traces: Entries::new(),
            channels: Entries::new(),
            processes: Entries::new(),
            buffers: Entries::new(),
        };
        let trace = |clock, start| LttCrashTrace {
            clock,
            start,
            ..LttCrashTrace::default()
        };
        let crash = Crash {
            cycles: Some(120_000_000_000),
            monotonic: Some(11_000_000_000),
            ..Crash::default()
        };
        // Ten seconds later by either clock.
        let unix_ns = 1_700_000_010_000_000_000;
        let of_counter = trace(LTT_CLOCK_TSC, LttClockSync { freq: 0, ..boot });
        let of_monotonic = trace(
            LTT_CLOCK_MONOTONIC,
            LttClockSync {
                cycles: boot.monotonic,
                freq: 1_000_000_000,
                ..boot
            },
        );
        for trace in [&of_counter, &of_monotonic] {
            let clock = directory.clock(Some(trace));
            let crash = directory.crash(Some(trace), crash);
            assert_eq!(crash.unix_ns(&clock), Some(unix_ns));
        }
        assert_eq!(directory.clock(Some(&of_monotonic)).freq(), 1_000_000_000);
        // A clock of a later kernel.
        let unknown = trace(77, boot);
        assert_eq!(directory.crash(Some(&unknown), crash).cycles, None);
    }
}
