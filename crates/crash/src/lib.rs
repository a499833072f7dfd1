//! The last events before a kernel crash, out of a dump of its memory (C7).
//!
//! A line of the dump's vmcoreinfo leads to the root page, or else a search for it (`scan.rs`). The
//! root page leads to the directory, and that to the pages of every process's buffers, as
//! `sys/include/linux/ltt_crash.h` says: no symbols, no debug information, no virtual addresses.
//! What it costs depends on what was traced, and not on how much memory the machine had.
//!
//! A dump may be incomplete, damaged, or made to mislead (F4). What cannot be read is told
//! ([`Extraction::problems`]), and does not keep the rest from being read.

mod directory;
mod dump;
mod dump_file;
mod elf;
mod error;
mod extract;
mod image;
mod kdump;
mod memory;
mod problems;
mod raw;
mod reserved;
mod scan;
mod tree;
mod vmcoreinfo;

pub use directory::{Directory, DirectoryError, LeadsTo};
pub use dump::Dump;
pub use elf::ElfDump;
pub use error::DumpError;
pub use extract::{ExtractError, ExtractOptions, Extraction, TraceSummary, extract};
pub use kdump::KdumpDump;
pub use memory::{PhysicalMemory, Presence};
pub use problems::Problems;
pub use raw::RawDump;
pub use reserved::ReservedDump;
pub use scan::{Candidate, Nowhere, Place, RootSearch, find_roots};
pub use tree::{Owners, PageTree, TreeError};
pub use vmcoreinfo::Vmcoreinfo;
