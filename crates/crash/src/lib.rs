//! Extracts the last events before a kernel crash from a dump of its memory (C7).
//!
//! A line of the dump's vmcoreinfo gives the address of the root page; otherwise, a search finds it
//! (`scan.rs`). The root page leads to the directory, and the directory to the pages of every
//! process's buffers. `sys/include/linux/ltt_crash.h` defines the format. It needs no symbols, no
//! debug information, and no virtual addresses. The cost depends on the traces, not on the
//! machine's memory.
//!
//! A dump may be incomplete, damaged, or forged (F4). Unreadable parts are reported
//! ([`Extraction::problems`]), and the rest is still extracted.

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

pub use directory::{Directory, DirectoryError, RootTarget};
pub use dump::Dump;
pub use elf::ElfDump;
pub use error::DumpError;
pub use extract::{ExtractError, ExtractOptions, Extraction, TraceSummary, extract};
pub use kdump::KdumpDump;
pub use memory::{PhysicalMemory, Presence};
pub use problems::Problems;
pub use raw::RawDump;
pub use reserved::ReservedDump;
pub use scan::{Candidate, DanglingRoot, RootLocation, RootSearch, find_roots};
pub use tree::{PageOwners, PageTree, TreeError};
pub use vmcoreinfo::Vmcoreinfo;
