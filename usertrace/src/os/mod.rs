//! Raw system calls: the only module of the library that makes any.
//!
//! An event may be written in a signal handler, inside `malloc`, or in a child that shares its
//! parent's memory. The C library's wrappers do not serve there: they set `errno`, which belongs to
//! the program, and some of them take locks or are cancellation points. So each function here is a
//! thin wrapper around one system call, and may be used anywhere:
//!
//! - It is async-signal-safe: it allocates nothing, takes no lock, and has no thread-local state.
//! - It leaves `errno` alone. Errors come back as [`syscalls::Errno`].
//! - It is `unsafe` only if the caller must promise something, which `# Safety` then says.
//!
//! Exceptions say so in their documentation. This module imports nothing from the rest of the
//! crate. A test (`tests/tests/architecture`) rejects raw system calls elsewhere in the crate.
//! `vfork` is the only other one: its wrapper (`writer/thread/x86_64.rs`) must be assembly.

pub(crate) mod errno;
pub(crate) mod file;
pub(crate) mod fork_private;
pub(crate) mod futex;
pub(crate) mod host;
pub(crate) mod linker;
pub(crate) mod membarrier;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod rseq;
pub(crate) mod signal;
pub(crate) mod thread;
pub(crate) mod time;
